/* Class weights of a classifier, the value of --class-weights. Depends on data/meta. */
#ifndef TRAIN_CLASS_WEIGHTS_H
#define TRAIN_CLASS_WEIGHTS_H

#include "data/meta.h"

/* Computes the weights of the labels of a data set from `text`:
 *   none       all weights are 1; *has_weights is false and `weight` is not written
 *   balanced   classes: texts / (classes * texts of the class), as scikit-learn does; several
 *              labels: texts without the label / texts with it, the pos_weight of PyTorch.
 *              Counts are those of the training texts. A label that no text has gets 1.
 *   1,2.5,…    one number above 0 for each label, in the order of labels.txt
 * weight: (labels). */
NODISCARD Err class_weights_read(const char *text, const Meta *meta, bool *has_weights,
                                 float *weight);

#endif
