/* many_shards make FROM TO N: makes a data set with N copies of the first training shard of
 * FROM (format 2), quickly, as hard links. many_shards open DATASET: opens it and prints the
 * seconds that this took. Depends on data/dataset. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/place.h"
#include "base/progress.h"
#include "data/dataset.h"
#include "data/manifest.h"

/* Returns the lengths of pair i of the new data set; pair i is a copy of pair i % examples of
 * the shard. */
static Err copy_lengths(void *context, uint64_t i, uint32_t len[2]) {
  Shard *shard = context;
  ShardView view;
  TRY(shard_pair(shard, i % shard->examples, &view));
  len[0] = view.len[0];
  len[1] = view.len[1];
  return ERR_OK;
}

static Err link_file(const char *from, const char *to, const char *name, const char *new_name) {
  char a[FILE_PATH_MAX], b[FILE_PATH_MAX];
  TRY(file_join(a, from, name));
  TRY(file_join(b, to, new_name));
  return link(a, b) == 0 ? ERR_OK : err_errno("cannot link", b);
}

/* Links the training shards of `m` and returns the text of the manifest. A file may have a
 * limited number of links (65,000 on ext4), so a new file is used from time to time. */
static Err link_shards(const Meta *m, const char *from, const char *to, Str *manifest) {
  char source[FILE_PATH_MAX], whole[FILE_PATH_MAX];
  TRY(file_join(source, from, m->split[SPLIT_TRAIN].shard[0].name));
  for (int s = SPLITS - 1; s >= 0; s--) {
    for (size_t i = 0; i < m->split[s].shards; i++) {
      ManifestEntry e = {.split = (Split)s, .file = m->split[s].shard[i]};
      if (s == SPLIT_TRAIN) {
        snprintf(e.file.name, sizeof e.file.name, "train-%05zu.tok", i);
        TRY(file_join(whole, to, e.file.name));
        if (i % 10000 == 0) {
          TRY(place_copy(source, whole));
          memcpy(source, whole, sizeof source);
        } else if (link(source, whole) != 0) {
          return err_errno("cannot link", whole);
        }
      }
      manifest_print(&e, manifest);
    }
  }
  return str_check(manifest);
}

static Err write_set(DataSet *d, Shard *shard, const char *to, size_t n) {
  static const char *const same[] = {"tokenizer.model", "valid.tok", "valid.src", "valid.ref"};
  char path[FILE_PATH_MAX];
  Str text = {0};
  Meta *m = &d->meta;
  MetaSplit *train = &m->split[SPLIT_TRAIN];
  MetaFile first = train->shard[0];
  Err err;
  TRY(file_mkdirs(to));
  for (size_t i = 0; i < sizeof same / sizeof *same; i++)
    TRY(link_file(d->dir, to, same[i], same[i]));
  train->shards = 0;
  for (size_t i = 0; i < n; i++) TRY(meta_add_shard(train, &first));
  train->pairs = n * first.pairs;
  TRY(file_join(path, to, m->order.name));
  TRY(order_write(path, &train->pairs, 1, copy_lengths, shard, &m->order.bytes,
                  m->order.sha256));
  TRY_DONE(link_shards(m, d->dir, to, &text));
  TRY_DONE(file_join(path, to, MANIFEST_NAME));
  TRY_DONE(file_write(path, text.s, text.len));
  m->manifest.bytes = text.len;
  TRY_DONE(place_sha256(path, m->manifest.sha256));
  str_clear(&text);
  TRY_DONE(meta_print(m, &text));
  TRY_DONE(file_join(path, to, "dataset.json"));
  err = file_write(path, text.s, text.len);
done:
  str_free(&text);
  return err;
}

static Err make_set(const char *from, const char *to, size_t n) {
  DataSet d;
  DataReader reader;
  Shard *shard;
  TRY(dataset_open(&d, from));
  dataset_enter(&d, &reader);
  Err err = dataset_shard(&reader, SPLIT_TRAIN, 0, &shard);
  if (!err) err = write_set(&d, shard, to, n);
  dataset_leave(&reader);
  d.meta.split[SPLIT_TRAIN].shards = 0;
  dataset_close(&d);
  return err;
}

static Err open_set(const char *path) {
  DataSet d;
  double start = progress_clock();
  TRY(dataset_open(&d, path));
  printf("%.3f\n", progress_clock() - start);
  dataset_close(&d);
  return ERR_OK;
}

int main(int argc, char **argv) {
  Err err = ERR_USAGE;
  if (argc == 5 && strcmp(argv[1], "make") == 0)
    err = make_set(argv[2], argv[3], (size_t)atol(argv[4]));
  else if (argc == 3 && strcmp(argv[1], "open") == 0)
    err = open_set(argv[2]);
  else
    fputs("usage: many_shards make FROM TO N | many_shards open DATASET\n", stderr);
  if (err == ERR_WORK) fprintf(stderr, "%s\n", err_message());
  return (int)err;
}
