/* Damages files of every kind and runs the program on them. Each call must succeed or exit
 * with status 1 or 2 and a message, without a signal, a report of a sanitizer, a raw
 * control character, more than MEMORY or more than SECONDS. scripts/mutate makes the files.
 *   mutate DIR COUNT SEED   damages COUNT files of DIR; keeps those that fail in DIR/findings
 * Runs the program's main() in a forked child, which is faster than starting the program.
 * Depends on all of the program. */
int trireme_main(int argc, char **argv);
#define main trireme_main
#include "../../src/main.c"
#undef main

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/jsondoc.h"
#include "base/place.h"
#include "base/rng.h"
#include "data/recipe.h"
#include "data/unpack.h"
#include "fuzz_file.h"

#define SECONDS 60
#define MEMORY  ((long)1500 << 10) /* kB, including the sanitizer's own memory */

/* How half of the damaged files are repaired, so that they pass the checks of checksums. */
typedef enum {
  AS_IS,
  SEAL_BLOCKS,
  SEAL_JSON,
  NAME_HASH
} Repair; /* NAME_HASH: writes the new hash to dataset.json */

typedef struct {
  const char *file;
  bool text;
  Repair repair;
  const char *call[20]; /* "unpack", "sgm" and "recipe" call a function instead of a command */
} Case;

#define SET     "set/"
#define STEP    "run/checkpoints/step-00000002/"
#define PREPARE "prepare", "--quiet", "--threads", "1", "--out", "out"
#define BOTH    PREPARE, "--valid", "few.a", "few.b", "--tokenizer", "good.model", "--train"
#define REPORT  "report", "run", "--quiet", "--out", "-"
#define RESUME  "train", "--quiet", "--run", "run", "--resume", "--steps", "2"
#define TEXTS   "texts/"
#define CLASSES \
  PREPARE, "--task", "classify", "--text-column", "text", "--label-column", "class"
#define LABEL  "classify", "--quiet", "--model", "classifier", "--input", "few.a"
#define IMPORT "import", "--quiet", "--out", "out", "--from"

static const Case cases[] = {
    {SET "train-00000.tok", false, SEAL_BLOCKS, {"inspect", "set", "--batch-tokens", "64"}},
    {SET "train-00000.tok", false, SEAL_BLOCKS, {"inspect", "set", "--verify", "--quiet"}},
    {SET "train-00000.tok",
     false,
     SEAL_BLOCKS,
     {"bench", "reader", "set", "--batch-tokens", "64", "--time", "20ms"}},
    {SET "valid.tok", false, SEAL_BLOCKS, {"inspect", "set", "--split", "valid"}},
    {SET "train.order", false, SEAL_BLOCKS, {"inspect", "set", "--batch-tokens", "64"}},
    {SET "train.order",
     false,
     SEAL_BLOCKS,
     {"bench", "reader", "set", "--batch-tokens", "64", "--time", "20ms"}},
    {SET "dataset.json", true, AS_IS, {"inspect", "set", "--json", "--samples", "2"}},
    {SET "dataset.json", true, AS_IS, {"inspect", "set"}},
    {SET "dataset.json",
     true,
     AS_IS,
     {"train", "--data", "set", "--run", "new", "--dry-run", "--quiet", "--batch-tokens",
      "64"}},
    {SET "shards.manifest", true, NAME_HASH, {"inspect", "set", "--samples", "2"}},
    {SET "valid.src",
     true,
     AS_IS,
     {"train", "--data", "set", "--run", "new", "--dry-run", "--quiet", "--batch-tokens",
      "64"}},
    {SET "tokenizer.model", false, NAME_HASH, {"inspect", "set", "--samples", "5"}},
    {"tokenizer.model",
     false,
     AS_IS,
     {PREPARE, "--valid", "few.a", "few.b", "--tokenizer", "tokenizer.model", "--train",
      "few.a", "few.b"}},
    {"older/tokenizer.model",
     false,
     AS_IS,
     {"translate", "--quiet", "--model", "older", "--input", "few.a", "--max-length", "5"}},
    {"older/weights.safetensors",
     false,
     AS_IS,
     {"translate", "--quiet", "--model", "older", "--input", "few.a", "--max-length", "5"}},
    {"older/model.json",
     true,
     AS_IS,
     {"translate", "--quiet", "--model", "older", "--input", "few.a", "--max-length", "5"}},
    {"model/model.json",
     true,
     SEAL_JSON,
     {"translate", "--quiet", "--model", "model", "--input", "few.a", "--max-length", "5"}},
    {"model/weights.safetensors",
     false,
     AS_IS,
     {"translate", "--quiet", "--model", "model", "--input", "few.a", "--max-length", "5"}},
    {STEP "training.json", true, SEAL_JSON, {RESUME}},
    {STEP "model.json", true, SEAL_JSON, {RESUME}},
    {STEP "moment1.safetensors", false, AS_IS, {RESUME}},
    {STEP "weights.safetensors", false, AS_IS, {RESUME}},
    {"run/config", true, AS_IS, {RESUME}},
    {"run/metrics.jsonl", true, AS_IS, {RESUME}},
    {"run/metrics.jsonl", true, AS_IS, {REPORT, "--json"}},
    {"run/processes.jsonl", true, AS_IS, {REPORT, "--markdown"}},
    {"run/config", true, AS_IS, {REPORT}},
    {STEP "model.json", true, AS_IS, {REPORT}},
    {SET "dataset.json", true, AS_IS, {REPORT, "--markdown"}},
    {"prepare.conf",
     true,
     AS_IS,
     {"prepare", "--quiet", "--config", "prepare.conf", "--out", "out"}},
    {"train.conf",
     true,
     AS_IS,
     {"train", "--quiet", "--data", "set", "--run", "new", "--dry-run", "--config",
      "train.conf"}},
    {"recipe.conf", true, AS_IS, {"recipe", "recipe.conf"}},
    {"text.tar", false, AS_IS, {"unpack", "text.tar"}},
    {"text.tar.gz", false, AS_IS, {"unpack", "text.tar.gz"}},
    {"text.tar.zst", false, AS_IS, {"unpack", "text.tar.zst"}},
    {"text.zip", false, AS_IS, {"unpack", "text.zip"}},
    {"text.sgm", true, AS_IS, {"sgm", "text.sgm"}},
    {"few.a.gz", false, AS_IS, {BOTH, "few.a.gz", "few.b"}},
    {"few.a.zst", false, AS_IS, {BOTH, "few.a.zst", "few.b"}},
    {"text.a", true, AS_IS, {BOTH, "text.a", "few.b"}},
    {"text.a",
     true,
     AS_IS,
     {"translate", "--quiet", "--model", "model", "--input", "text.a", "--max-length", "5"}},
    {"text.a",
     true,
     AS_IS,
     {"score", "--ref", "few.a", "--hyp", "text.a", "--metrics", "bleu,chrf,ter"}},
    /* texts with labels, classifiers */
    {TEXTS "train-00000.tok", false, SEAL_BLOCKS, {"inspect", "texts", "--samples", "3"}},
    {TEXTS "train-00000.tok", false, SEAL_BLOCKS, {"inspect", "texts", "--verify", "--quiet"}},
    {TEXTS "train.order", false, SEAL_BLOCKS, {"inspect", "texts", "--batch-tokens", "64"}},
    {TEXTS "valid.tok", false, SEAL_BLOCKS, {"inspect", "texts", "--split", "valid"}},
    {TEXTS "dataset.json", true, AS_IS, {"inspect", "texts", "--json", "--samples", "2"}},
    {TEXTS "dataset.json",
     true,
     AS_IS,
     {"train", "--data", "texts", "--run", "new", "--dry-run", "--quiet", "--preset",
      "bert-tiny", "--batch-tokens", "64"}},
    {TEXTS "shards.manifest", true, NAME_HASH, {"inspect", "texts", "--samples", "2"}},
    {TEXTS "vocab.txt", true, NAME_HASH, {"inspect", "texts", "--samples", "5"}},
    {TEXTS "labels.txt", true, NAME_HASH, {"inspect", "texts", "--samples", "5"}},
    {"lines/dataset.json", true, AS_IS, {"inspect", "lines", "--samples", "2"}},
    {"lines/train-00000.tok", false, SEAL_BLOCKS, {"inspect", "lines", "--samples", "3"}},
    {"table.csv", true, AS_IS, {CLASSES, "--vocab", "vocab.txt", "--train", "table.csv"}},
    {"table.jsonl", true, AS_IS, {CLASSES, "--vocab", "vocab.txt", "--train", "table.jsonl"}},
    {"words.txt", true, AS_IS, {CLASSES, "--vocab", "words.txt", "--train", "small.csv"}},
    {"classifier/model.json", true, SEAL_JSON, {LABEL}},
    {"classifier/weights.safetensors", false, AS_IS, {LABEL}},
    {"classifier/labels.txt", true, AS_IS, {LABEL}},
    {"classifier/vocab.txt", true, AS_IS, {LABEL}},
    /* directories of Hugging Face */
    {"hf/config.json", true, AS_IS, {IMPORT, "hf"}},
    {"hf/tokenizer.json", true, AS_IS, {IMPORT, "hf"}},
    {"hf/tokenizer_config.json", true, AS_IS, {IMPORT, "hf"}},
    {"hf/model.safetensors", false, AS_IS, {IMPORT, "hf"}},
    {"hf-mlm/vocab.txt", true, AS_IS, {IMPORT, "hf-mlm"}},
    {"hf-mlm/pytorch_model.bin", false, AS_IS, {IMPORT, "hf-mlm"}},
    {"hf-base/model.safetensors.index.json", true, AS_IS, {IMPORT, "hf-base"}},
    {"hf-roberta/vocab.json", true, AS_IS, {IMPORT, "hf-roberta"}},
    {"hf-roberta/merges.txt", true, AS_IS, {IMPORT, "hf-roberta"}},
    {"hf-marian/config.json", true, AS_IS, {IMPORT, "hf-marian"}},
    {"hf-marian/vocab.json", true, AS_IS, {IMPORT, "hf-marian"}},
    {"hf-marian/source.spm", false, AS_IS, {IMPORT, "hf-marian"}},
};
#define CASES (sizeof cases / sizeof *cases)

/* Damage. */

static uint64_t seed, drawn;

static uint64_t draw(uint64_t below) {
  return below ? rng_mix(seed, drawn++) % below : 0;
}

typedef struct {
  uint8_t *at;
  size_t len, room;
} Bytes;

static void die(const char *what) {
  fprintf(stderr, "mutate: %s: %s\n", what, err_message());
  exit(3);
}

/* Inserts n bytes; does nothing if there is no space. */
static void insert(Bytes *b, size_t at, const void *bytes, size_t n) {
  if (b->len + n > b->room) return;
  memmove(b->at + at + n, b->at + at, b->len - at);
  memcpy(b->at + at, bytes, n);
  b->len += n;
}

static void cut(Bytes *b, size_t at, size_t n) {
  memmove(b->at + at, b->at + at + n, b->len - at - n);
  b->len -= n;
}

static const uint64_t edges[] = {0,          1,
                                 2,          3,
                                 255,        256,
                                 4095,       4096,
                                 65535,      65536,
                                 INT32_MAX,  (uint64_t)INT32_MAX + 1,
                                 UINT32_MAX, (uint64_t)UINT32_MAX + 1,
                                 INT64_MAX,  (uint64_t)INT64_MAX + 1,
                                 UINT64_MAX};
#define EDGES (sizeof edges / sizeof *edges)

static void damage_bytes(Bytes *b) {
  size_t at = (size_t)draw(b->len ? b->len : 1), n = 1 + (size_t)draw(64);
  uint64_t edge = edges[draw(EDGES)];
  if (draw(3) == 0) at = (size_t)draw(b->len < 256 ? b->len : 256); /* in the header */
  if (n > b->len - at) n = b->len - at;
  switch (draw(8)) {
    case 0:
      if (b->len) b->at[at] ^= (uint8_t)(1u << draw(8));
      break;
    case 1:
      if (b->len) b->at[at] = (uint8_t)draw(256);
      break;
    case 2:
      memcpy(b->at + at, &edge, n < 4 ? n : 4);
      break;
    case 3:
      memcpy(b->at + at, &edge, n < 8 ? n : 8);
      break;
    case 4:
      b->len = at;
      break;
    case 5:
      cut(b, at, n);
      break;
    case 6: {
      uint8_t copy[64];
      memcpy(copy, b->at + (size_t)draw(b->len - n + 1), n);
      insert(b, at, copy, n);
      break;
    }
    default:
      memset(b->at + at, draw(2) ? 0 : 0xff, n);
  }
}

/* Finds a word at or after a random position: lower-case letters, digits, '-' and '.'. */
static void find_word(const Bytes *b, size_t *at, size_t *n) {
  *at = (size_t)draw(b->len ? b->len : 1);
  while (*at < b->len && !strchr("0123456789abcdefghijklmnopqrstuvwxyz-", b->at[*at])) ++*at;
  for (*n = 0; *at + *n < b->len && b->at[*at + *n] &&
               strchr("0123456789abcdefghijklmnopqrstuvwxyz-.", b->at[*at + *n]);)
    ++*n;
}

static void damage_text(Bytes *b) {
  static const char *const words[] = {"",         "-1",           "1e999", "\033[2J", "\n",
                                      "\"",       "{}",           "[[[[",  "null",    "true",
                                      "\xff\xfe", "%s%n",         "NaN",   "../x",    "/",
                                      "\\u001b",  "\xe2\x80\xae", " ",     ","};
  char number[32], run[4096];
  size_t at, n;
  find_word(b, &at, &n);
  switch (draw(4)) {
    case 0: {
      int len = snprintf(number, sizeof number, "%" PRIu64, edges[draw(EDGES)]);
      cut(b, at, n);
      insert(b, at, number, (size_t)len);
      break;
    }
    case 1: {
      const char *word = words[draw(sizeof words / sizeof *words)];
      cut(b, at, n);
      insert(b, at, word, strlen(word));
      break;
    }
    case 2:
      memset(run, "[{ax\xff"[draw(5)], sizeof run);
      insert(b, at, run, 1 + (size_t)draw(sizeof run));
      break;
    default: { /* removes or doubles a line */
      uint8_t *begin = memrchr(b->at, '\n', at), *end = memchr(b->at + at, '\n', b->len - at);
      size_t from = begin ? (size_t)(begin - b->at) : 0;
      size_t to = end ? (size_t)(end - b->at) : b->len;
      if (draw(2))
        cut(b, from, to - from);
      else if (to - from < sizeof run)
        memcpy(run, b->at + from, to - from), insert(b, from, run, to - from);
    }
  }
}

static void damage(Bytes *b, bool text) {
  for (uint64_t times = 1 + draw(draw(2) ? 2 : 6); times; times--) {
    if (text && draw(3))
      damage_text(b);
    else
      damage_bytes(b);
  }
}

/* Repairs. */

static void write_bytes(const char *path, const void *bytes, size_t len) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd < 0 || write(fd, bytes, len) != (ssize_t)len || close(fd) != 0) {
    err_errno("cannot write", path);
    die("a file");
  }
}

static void seal_blocks(Bytes *b) {
  /* The size of the payload is at byte 56 of a shard, at byte 32 of an order file. */
  size_t place = b->len > 64 && memcmp(b->at, "TRITOK", 6) == 0 ? 56 : 32;
  if (b->len < 64) return;
  uint64_t payload = fuzz_get64(b->at, place);
  if (payload >= 64 && payload < b->len && payload + checked_table_size(payload) <= b->room)
    b->len = fuzz_seal(b->at, (size_t)payload);
}

static void seal_json(Bytes *b) {
  Str text = {0};
  str_addn(&text, (const char *)b->at, b->len);
  jsondoc_seal(&text);
  if (text.s) memcpy(b->at, text.s, b->len);
  str_free(&text);
}

/* Writes to `path` the dataset.json with the hash of the damaged tokenizer, labels or manifest; also its
 * length, if that has as many digits as before. */
static void name_hash(const char *path, const Str *dataset, const Bytes *good, const Bytes *b) {
  char old[65], new[65];
  Sha256 sha;
  sha256_begin(&sha), sha256_add(&sha, good->at, good->len), sha256_end(&sha, old);
  sha256_begin(&sha), sha256_add(&sha, b->at, b->len), sha256_end(&sha, new);
  char *place = strstr(dataset->s, old);
  if (!place) return;
  char old_bytes[32], new_bytes[32];
  snprintf(old_bytes, sizeof old_bytes, "\"bytes\": %zu,", good->len);
  snprintf(new_bytes, sizeof new_bytes, "\"bytes\": %zu,", b->len);
  char *length = strstr(dataset->s, old_bytes);
  size_t digits = strlen(old_bytes) == strlen(new_bytes) && length ? strlen(new_bytes) : 0;
  memcpy(place, new, 64);
  if (digits) memcpy(length, new_bytes, digits);
  write_bytes(path, dataset->s, dataset->len);
  memcpy(place, old, 64);
  if (digits) memcpy(length, old_bytes, digits);
}

/* The search for leaks takes a hundred times as long as the call, so it is done once for
 * each case. The leak sanitizer calls this function by its name. */
static bool wants_leaks;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) {
  return !wants_leaks;
}

/* Calls. */

static Err call_function(const char *name, const char *file) {
  if (strcmp(name, "sgm") == 0) return unpack_sgm(file, "out.txt");
  if (strcmp(name, "unpack") == 0) {
    UnpackPair pairs[] = {{"few.a", "out.a"}, {"few.b", "out.b"}};
    return unpack_members(file, pairs, 2);
  }
  Str text = {0};
  Recipe r;
  Err err = file_read(file, (size_t)1 << 20, &text);
  if (!err) err = recipe_parse(&r, str_text(&text), text.len, file);
  if (!err) recipe_free(&r);
  str_free(&text);
  return err;
}

static int call(const Case *c) {
  char *argv[24] = {(char *)(uintptr_t) "trireme"};
  int argc = 1;
  for (; c->call[argc - 1]; argc++) argv[argc] = (char *)(uintptr_t)c->call[argc - 1];
  const char *command = c->call[0];
  bool function =
      !strcmp(command, "sgm") || !strcmp(command, "unpack") || !strcmp(command, "recipe");
  if (!function) return trireme_main(argc, argv);
  Err err = call_function(command, c->call[1]);
  if (err) log_error("%s", err_message());
  return (int)err;
}

static void run_child(const Case *c) {
  struct rlimit files = {1 << 28, 1 << 28}, core = {0, 0};
  int in = open("/dev/null", O_RDONLY),
      out = open("stdout", O_WRONLY | O_CREAT | O_TRUNC, 0666),
      err = open("stderr", O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (in < 0 || out < 0 || err < 0) _exit(98);
  dup2(in, 0), dup2(out, 1), dup2(err, 2);
  setrlimit(RLIMIT_FSIZE, &files);
  setrlimit(RLIMIT_CORE, &core);
  alarm(SECONDS);
  exit(call(c));
}

static bool has_control(const Str *text) {
  for (size_t i = 0; i < text->len; i++) {
    unsigned char c = (unsigned char)text->s[i];
    if ((c < 32 && c != '\n' && c != '\t') || c == 127) return true;
  }
  return false;
}

/* Returns what is wrong with the result of the call; NULL if nothing is. */
static const char *judge(int status, const struct rusage *use) {
  static char told[64];
  Str err = {0};
  const char *wrong = NULL;
  if (file_read("stderr", (size_t)1 << 26, &err)) die("stderr");
  const char *text = str_text(&err);
  if (WIFSIGNALED(status))
    snprintf(told, sizeof told, "signal %d", WTERMSIG(status)), wrong = told;
  else if (WEXITSTATUS(status) > 2)
    snprintf(told, sizeof told, "exit code %d", WEXITSTATUS(status)), wrong = told;
  else if (strstr(text, "Sanitizer") || strstr(text, "runtime error:"))
    wrong = "a sanitizer's report";
  else if (WEXITSTATUS(status) && !strstr(text, "trireme: "))
    wrong = "no message";
  else if (has_control(&err))
    wrong = "a raw control character";
  else if (use->ru_maxrss > MEMORY)
    snprintf(told, sizeof told, "%ld MB", use->ru_maxrss >> 10), wrong = told;
  str_free(&err);
  return wrong;
}

static void clean_up(void) {
  static const char *const made[] = {"out",   "out.partial", "new",   "out.txt",
                                     "out.a", "out.b",       "stdout"};
  for (size_t i = 0; i < sizeof made / sizeof *made; i++)
    if (file_remove_all(made[i])) die(made[i]);
}

static Str good[CASES], set_dataset, texts_dataset;
static long peak; /* kB */

static bool try_case(size_t which, uint64_t number) {
  const Case *c = &cases[which];
  Bytes b = {.room = good[which].len + (1 << 16)},
        whole = {(uint8_t *)good[which].s, good[which].len, 0};
  b.at = calloc(1, b.room + 1);
  if (!b.at) die("memory");
  if (!whole.len) die("an empty file has nothing to damage");
  memcpy(b.at, whole.at, b.len = whole.len);
  drawn = number << 16;
  bool repaired = draw(2), is_texts = str_starts(c->file, TEXTS);
  Str *dataset = is_texts ? &texts_dataset : &set_dataset;
  const char *dataset_path = is_texts ? TEXTS "dataset.json" : SET "dataset.json";
  damage(&b, c->text);
  if (repaired && c->repair == SEAL_BLOCKS) seal_blocks(&b);
  if (repaired && c->repair == SEAL_JSON) seal_json(&b);
  write_bytes(c->file, b.at, b.len);
  if (repaired && c->repair == NAME_HASH) name_hash(dataset_path, dataset, &whole, &b);
  struct rusage use;
  int status;
  wants_leaks = number / CASES == which;
  pid_t child = fork();
  if (child == 0) run_child(c);
  if (child < 0 || wait4(child, &status, 0, &use) != child) die("fork");
  if (use.ru_maxrss > peak) peak = use.ru_maxrss;
  const char *wrong = judge(status, &use);
  if (wrong) {
    char name[96], err[112];
    snprintf(name, sizeof name, "findings/%zu-%" PRIu64, which, number);
    snprintf(err, sizeof err, "%s.err", name);
    write_bytes(name, b.at, b.len);
    if (place_copy("stderr", err)) die("stderr");
    printf("%s: damaged %s, call", wrong, c->file);
    for (int i = 0; c->call[i]; i++) printf(" %s", c->call[i]);
    printf(": %s\n", name);
    fflush(stdout);
  }
  write_bytes(c->file, whole.at, whole.len);
  if (c->repair == NAME_HASH) write_bytes(dataset_path, dataset->s, dataset->len);
  clean_up();
  free(b.at);
  return wrong == NULL;
}

/* The undamaged file must pass; otherwise the damaged ones test nothing. */
static void check_good(size_t which) {
  const Case *c = &cases[which];
  struct rusage use;
  int status;
  pid_t child = fork();
  if (child == 0) run_child(c);
  if (child < 0 || wait4(child, &status, 0, &use) != child) die("fork");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !judge(status, &use)) {
    clean_up();
    return;
  }
  Str err = {0};
  if (file_read("stderr", 1 << 20, &err)) die("stderr");
  fprintf(stderr, "mutate: the undamaged %s fails: %s\n", c->file, str_text(&err));
  exit(3);
}

int main(int argc, char **argv) {
  if (argc != 4 || chdir(argv[1]) != 0) {
    fprintf(stderr, "usage: mutate DIR COUNT SEED\n");
    return 2;
  }
  uint64_t count = strtoull(argv[2], NULL, 10), bad = 0;
  seed = strtoull(argv[3], NULL, 10);
  if (file_mkdirs("findings")) die("findings");
  if (file_read(SET "dataset.json", 1 << 24, &set_dataset)) die("dataset.json");
  if (file_read(TEXTS "dataset.json", 1 << 24, &texts_dataset)) die("dataset.json of texts");
  for (size_t i = 0; i < CASES; i++) {
    if (file_read(cases[i].file, (size_t)1 << 26, &good[i])) die(cases[i].file);
    check_good(i);
  }
  for (uint64_t n = 0; n < count; n++) bad += !try_case((size_t)(n % CASES), n);
  printf("seed %" PRIu64 ": %" PRIu64 " damaged files of %zu kinds, %" PRIu64
         " findings, at most %ld MB\n",
         seed, count, CASES, bad, peak >> 10);
  return bad != 0;
}
