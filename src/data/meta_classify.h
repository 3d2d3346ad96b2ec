/* dataset.json of texts with or without labels. Depends on base, meta.h, Jansson. */
#ifndef DATA_META_CLASSIFY_H
#define DATA_META_CLASSIFY_H

#include "data/meta_json.h"

void meta_classify_free(MetaClassify *c);
/* Allocates the names and counts of `labels` labels. */
NODISCARD Err meta_classify_alloc(MetaClassify *c, size_t labels);
/* Returns "classify" or "mlm". */
const char *meta_classify_task(const MetaClassify *c);
json_t *meta_classify_print(const Meta *m);
/* Returns true if the list `requires` of dataset.json marks a data set of texts. */
bool meta_classify_is_required(const json_t *requires);
/* Parses what a data set of texts has besides; m->classify is allocated. */
NODISCARD Err meta_classify_parse(MetaParse *p, const json_t *root, Meta *m);

#endif
