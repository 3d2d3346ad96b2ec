/* The inputs of prepare: files, standard input, generated text. Depends on base, the state of
 * prepare. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "data/prepare_work.h"

/* A path in OUT.partial/source that lives as long as the run. */
static Err stand_in(Prepare *p, const char *name, const char **path) {
  char dir[FILE_PATH_MAX], full[FILE_PATH_MAX];
  TRY(prepare_path(&p->state, "source", dir));
  TRY(file_mkdirs(dir));
  TRY(file_join(full, dir, name));
  TRY(mem_dup(&p->path[p->paths], full, strlen(full)));
  *path = p->path[p->paths++];
  return ERR_OK;
}

/* Writes the generated text of one split, unless a stopped run has done so. The file name
 * contains size and seed, so that a resumed run never takes text of another call. */
static Err generate_split(Prepare *p, TextPair *pair, Split split, uint64_t pairs) {
  char name[64], beside[FILE_PATH_MAX];
  for (int side = 0; side < 2; side++) {
    pair->name[side] = p->spec.generator->file[split][side];
    snprintf(name, sizeof name, "%s.%" PRIu64 ".%" PRIu64, pair->name[side], pairs,
             p->spec.seed);
    TRY(stand_in(p, name, &pair->path[side]));
  }
  if (file_exists(pair->path[1])) return ERR_OK;
  TRY(prepare_path(&p->state, "source/unfinished", beside));
  TRY(p->spec.generator->write(pair->path[0], beside, split, pairs, p->spec.seed));
  return file_rename(beside, pair->path[1]);
}

static Err generate_text(Prepare *p) {
  PrepareSpec *spec = &p->spec;
  spec->train = &p->generated_train;
  spec->trains = 1;
  TRY(generate_split(p, spec->train, SPLIT_TRAIN, spec->generated_pairs));
  TRY(generate_split(p, &spec->valid, SPLIT_VALID, spec->generator->held_out_pairs));
  return generate_split(p, &spec->test, SPLIT_TEST, spec->generator->held_out_pairs);
}

/* Standard input is read once but wanted twice: it is kept until the end. */
static Err keep_standard_input(const char *path) {
  if (file_exists(path)) return ERR_OK;
  char beside[FILE_PATH_MAX];
  int n = snprintf(beside, sizeof beside, "%s.tmp", path);
  if (n < 0 || n >= FILE_PATH_MAX) return err_set(ERR_WORK, "the path %s is too long", path);
  FileWriter w;
  TRY(file_create(&w, beside));
  Err err = ERR_OK;
  char *block = NULL;
  TRY_DONE(mem_alloc(&block, (size_t)1 << 16, 1));
  Progress progress;
  progress_begin(&progress, "read standard input", "bytes", 0);
  for (size_t got; (got = fread(block, 1, (size_t)1 << 16, stdin)) > 0;) {
    TRY_DONE(file_put(&w, block, got));
    progress_set(&progress, w.bytes);
  }
  if (ferror(stdin)) {
    err = err_errno("cannot read", "standard input");
    goto done;
  }
  TRY_DONE(file_finish(&w, NULL));
  progress_end(&progress);
  err = file_rename(beside, path);
done:
  file_abandon(&w);
  mem_free(block);
  return err;
}

static Err gather_pair(Prepare *p, TextPair *pair) {
  for (int side = 0; side < 2 && pair->path[side]; side++) {
    if (strcmp(pair->path[side], "-") != 0) {
      const char *slash = strrchr(pair->path[side], '/');
      pair->name[side] = slash ? slash + 1 : pair->path[side];
      continue;
    }
    if (p->paths) return err_set(ERR_USAGE, "standard input ('-') can be one file only");
    TRY(stand_in(p, "stdin", &pair->path[side]));
    pair->name[side] = "stdin";
    TRY(keep_standard_input(pair->path[side]));
  }
  return ERR_OK;
}

/* Learning a tokenizer reads the training text once, encoding it a second time. */
static Err check_rereadable(const char *path) {
  struct stat st;
  if (stat(path, &st) != 0) return err_errno("cannot open", path);
  if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) return ERR_OK; /* input_open refuses these */
  return err_set(ERR_WORK,
                 "%s is not a regular file, and training text is read twice where a tokenizer "
                 "is learned: save it to a file, pass it as standard input (-), which is kept, "
                 "or give --tokenizer",
                 path);
}

/* Before anything is made: a wrong file leaves nothing behind, and is named as it was given. */
static Err check_tokenizer(const char *path) {
  Tokenizer t = {0};
  Err err = tokenizer_open(&t, path);
  tokenizer_close(&t);
  return err;
}

/* After this every input is a file that exists. */
Err prepare_gather(Prepare *p) {
  if (p->spec.tokenizer) TRY(check_tokenizer(p->spec.tokenizer));
  if (p->spec.generator)
    TRY(generate_text(p));
  else {
    for (size_t i = 0; i < p->spec.trains; i++) TRY(gather_pair(p, &p->spec.train[i]));
    TRY(gather_pair(p, &p->spec.valid));
    TRY(gather_pair(p, &p->spec.test));
  }
  for (size_t i = 0; i < p->spec.trains; i++) {
    for (int side = 0; side < 2 && p->spec.train[i].path[side]; side++) {
      uint64_t bytes;
      if (!p->spec.tokenizer) TRY(check_rereadable(p->spec.train[i].path[side]));
      TRY(file_size(p->spec.train[i].path[side], &bytes));
      p->input_bytes += bytes;
    }
  }
  return prepare_fingerprint(&p->state, &p->spec);
}
