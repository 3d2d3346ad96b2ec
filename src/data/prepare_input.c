/* The inputs of prepare: files, standard input, generated text. Rank 0 creates the missing files;
 * all ranks read the same files. Depends on base, the state of prepare. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "data/prepare_work.h"

/* Returns the path of a file in OUT.partial/source that replaces standard input or generated
 * text. The path stays valid during the run. */
static Err stand_in(Prepare *p, const char *name, const char **path) {
  char dir[FILE_PATH_MAX], full[FILE_PATH_MAX];
  TRY(prepare_path(&p->state, "source", dir));
  if (ranks_is_first(p->spec.ranks)) TRY(file_mkdirs(dir));
  TRY(file_join(full, dir, name));
  TRY(mem_dup(&p->path[p->paths], full, strlen(full)));
  *path = p->path[p->paths++];
  return ERR_OK;
}

/* Writes the generated text of one split, unless an earlier, stopped run wrote it. The file name
 * contains the number of pairs and the seed, so that a resumed run never uses text of a different
 * call. */
static Err generate_split(Prepare *p, TextPair *pair, Split split, uint64_t pairs) {
  char name[64], beside[FILE_PATH_MAX];
  for (int side = 0; side < 2; side++) {
    pair->name[side] = p->spec.generator->file[split][side];
    snprintf(name, sizeof name, "%s.%" PRIu64 ".%" PRIu64, pair->name[side], pairs,
             p->spec.seed);
    TRY(stand_in(p, name, &pair->path[side]));
  }
  if (!ranks_is_first(p->spec.ranks) || file_exists(pair->path[1])) return ERR_OK;
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

/* Copies standard input to a file, because prepare reads the text twice. The file is kept until
 * the end of the run. */
static Err keep_standard_input(const char *path) {
  if (file_exists(path)) return ERR_OK;
  char beside[FILE_PATH_MAX];
  int n = snprintf(beside, sizeof beside, "%s.tmp", path);
  if (n < 0 || n >= FILE_PATH_MAX)
    return err_set(ERR_WORK, "the path %s is too long; choose a directory with a shorter path",
                   path);
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
    if (p->paths)
      return err_set(
          ERR_USAGE,
          "standard input ('-') can be used for one file only; give the other texts as files");
    TRY(stand_in(p, "stdin", &pair->path[side]));
    pair->name[side] = "stdin";
    if (ranks_is_first(p->spec.ranks)) TRY(keep_standard_input(pair->path[side]));
  }
  return ERR_OK;
}

/* Fails if an input is not a regular file but will be read twice: once to train the tokenizer and
 * once to encode it, or by every rank. */
static Err check_rereadable(const Prepare *p, const char *path) {
  struct stat st;
  if (stat(path, &st) != 0) return err_errno("cannot open", path);
  /* Directories are accepted here, because input_open refuses them with a better message. */
  if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) return ERR_OK;
  if (ranks_count(p->spec.ranks) > 1)
    return err_set(ERR_WORK,
                   "%s is not a regular file, and every rank reads the training text: save it "
                   "to a file, or pass it as standard input (-), of which rank 0 keeps a copy",
                   path);
  return err_set(
      ERR_WORK,
      "%s is not a regular file, and training text is read twice if a tokenizer is trained: "
      "save it to a file, pass it as standard input (-), which is copied, or give --tokenizer",
      path);
}

/* Checks the tokenizer file before any output is created, so that a wrong file leaves no
 * directory behind and the error names the path that was given. */
static Err check_tokenizer(const char *path) {
  Tokenizer t = {0};
  Err err = tokenizer_open(&t, path);
  tokenizer_close(&t);
  return err;
}

/* Determines the size of each file of training text. `bytes`: (2 * trains); bytes[2 * i + 1] is 0
 * if pair i is a single file. */
static Err measure_inputs(Prepare *p, uint64_t *bytes) {
  bool is_reread = !p->spec.tokenizer || ranks_count(p->spec.ranks) > 1;
  for (size_t i = 0; i < p->spec.trains; i++) {
    for (size_t side = 0; side < 2 && p->spec.train[i].path[side]; side++) {
      const char *path = p->spec.train[i].path[side];
      if (is_reread) TRY(check_rereadable(p, path));
      TRY(file_size(path, &bytes[2 * i + side]));
      p->input_bytes += bytes[2 * i + side];
    }
  }
  return ERR_OK;
}

static Err name_inputs(Prepare *p) {
  if (p->spec.generator) return generate_text(p);
  for (size_t i = 0; i < p->spec.trains; i++) TRY(gather_pair(p, &p->spec.train[i]));
  TRY(gather_pair(p, &p->spec.valid));
  return gather_pair(p, &p->spec.test);
}

Err prepare_gather(Prepare *p) {
  uint64_t *bytes;
  if (p->spec.tokenizer) TRY(check_tokenizer(p->spec.tokenizer));
  TRY(name_inputs(p));
  TRY(mem_alloc(&bytes, 2 * p->spec.trains, sizeof *bytes));
  Err err = measure_inputs(p, bytes);
  mem_free(bytes);
  return err ? err : prepare_fingerprint(&p->state, &p->spec);
}

static Err compare_sizes(const Prepare *p, const uint64_t *here, const uint64_t *first) {
  const Ranks *r = p->spec.ranks;
  for (size_t i = 0; i < 2 * p->spec.trains; i++) {
    if (here[i] != first[i])
      return err_set(ERR_WORK,
                     "%s has %" PRIu64 " bytes here and %" PRIu64
                     " on rank 0 on %s: all ranks must read the same text; put it on a file "
                     "system that all hosts share",
                     p->spec.train[i / 2].path[i % 2], here[i], first[i],
                     r->host(r->context, 0));
  }
  return ERR_OK;
}

/* Compares the sizes of the training text with rank 0. bytes: (2, 2 * trains) sizes on this rank,
 * then sizes on rank 0. */
static Err compare_inputs(Prepare *p, uint64_t *bytes) {
  bool is_first = ranks_is_first(p->spec.ranks);
  uint64_t *first = bytes + 2 * p->spec.trains;
  p->input_bytes = 0;
  TRY(ranks_agree(p->spec.ranks, measure_inputs(p, bytes)));
  if (is_first) memcpy(first, bytes, 2 * p->spec.trains * sizeof *bytes);
  ranks_broadcast(p->spec.ranks, "sizes of the text", first,
                  2 * p->spec.trains * sizeof *bytes);
  return ranks_agree(p->spec.ranks, compare_sizes(p, bytes, first));
}

Err prepare_check_ranks(Prepare *p) {
  Ranks *r = p->spec.ranks;
  bool is_first = ranks_is_first(r);
  if (ranks_count(r) == 1) return ERR_OK;
  TRY(prepare_check_shared(&p->state, r));
  /* Sets the paths of the inputs and, for generated text, the field `trains`. */
  TRY(ranks_agree(r, is_first ? ERR_OK : name_inputs(p)));
  uint64_t *bytes;
  TRY(mem_alloc(&bytes, 4 * p->spec.trains, sizeof *bytes));
  Err err = compare_inputs(p, bytes);
  mem_free(bytes);
  return err;
}

Err prepare_index_lines(Prepare *p) {
  Ranks *r = p->spec.ranks;
  if (ranks_count(r) == 1) return ERR_OK;
  ranks_report(r, "counting lines");
  TRY(mem_alloc(&p->lines, 2 * p->spec.trains, sizeof *p->lines));
  for (size_t i = 0; i < 2 * p->spec.trains; i++) {
    const char *path = p->spec.train[i / 2].path[i % 2];
    if (path) TRY(line_index_make(&p->lines[i], path, r));
  }
  return ERR_OK;
}

void prepare_free_index(Prepare *p) {
  for (size_t i = 0; p->lines && i < 2 * p->spec.trains; i++) line_index_free(&p->lines[i]);
  mem_free(p->lines);
  p->lines = NULL;
}
