/* Parts of dataset.json that data sets of all tasks have. Depends on base, meta.h, Jansson. */
#ifndef DATA_META_JSON_H
#define DATA_META_JSON_H

#include <jansson.h>

#include "data/meta.h"

json_t *meta_print_file(const MetaFile *f);
json_t *meta_print_source(const MetaSource *s);

/* State of parsing: the first error is stored with its path in the document, and everything after
 * it is skipped. */
typedef struct {
  const char *where;
  int format;
  bool failed;
} MetaParse;

/* Each function returns the value of a key, or stores an error if it is missing or invalid. */
void meta_refuse_key(MetaParse *p, const char *key, const char *expected);
const json_t *meta_get_object(MetaParse *p, const json_t *from, const char *key);
int64_t meta_get_int(MetaParse *p, const json_t *from, const char *key, int64_t min,
                     int64_t max);
uint64_t meta_get_count(MetaParse *p, const json_t *from, const char *key);
void meta_get_text(MetaParse *p, const json_t *from, const char *key, char *out, size_t room);
double meta_get_number(MetaParse *p, const json_t *from, const char *key);
bool meta_get_flag(MetaParse *p, const json_t *from, const char *key);
void meta_get_sha256(MetaParse *p, const json_t *from, char out[65]);
/* Reads the entry of a file of the data set. Its name must not lead out of the directory. */
void meta_get_file(MetaParse *p, const json_t *from, MetaFile *f);
void meta_get_source(MetaParse *p, const json_t *from, MetaSource *s);

#endif
