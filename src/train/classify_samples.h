/* Samples of a classifier's validation: the first validation texts with their predicted and true labels.
 * Depends on classify_valid, samples, data. */
#ifndef TRAIN_CLASSIFY_SAMPLES_H
#define TRAIN_CLASSIFY_SAMPLES_H

#include "train/classify_valid.h"
#include "train/samples.h"

typedef struct {
  char **text;         /* (texts) both texts of a pair with " | " between them */
  size_t texts;        /* at most --samples */
  double *probability; /* (labels) of the text that is shown */
} ClassifySamples;

/* Reads the first `most` texts of the data set's valid.csv. A file that cannot be read, or is not the one
 * whose checksum is in dataset.json, is a warning, and there are no samples. */
NODISCARD Err classify_samples_open(ClassifySamples *s, const DataSet *d, size_t most);
void classify_samples_free(ClassifySamples *s);
/* On rank 0, after classify_valid_score: logs the samples and adds them to the table. */
NODISCARD Err classify_samples_show(const ClassifySamples *s, const ClassifyValid *v,
                                    const MetaClassify *labels, TaskSamples *out);

#endif
