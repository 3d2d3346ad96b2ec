/* Commands called in this process as main.c calls them, on small files in the scratch directory, which is
 * the working directory, for the tests of failing allocations and failing I/O. Depends on cmd. */
#ifndef TESTS_FAULTS_SUPPORT_H
#define TESTS_FAULTS_SUPPORT_H

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/out.h"
#include "base/rng.h"
#include "base/str.h"
#include "cmd/cmd.h"
#include "support.h"

#define COMMAND(word, most)                                                       \
  {                                                                               \
    .name = #word, .summary = "s", .usage = "u", .about = "a", .examples = "e\n", \
    .operands = "operands", .max_operands = (most), .run = cmd_##word             \
  }
static const OptCommand commands[] = {
    COMMAND(prepare, 0),  COMMAND(inspect, 1), COMMAND(train, 0),  COMMAND(translate, 0),
    COMMAND(classify, 0), COMMAND(import, 0),  COMMAND(export, 1), COMMAND(score, 0),
    COMMAND(plan, 0),     COMMAND(report, 16), COMMAND(watch, 1),  {0}};

enum { COMMAND_WORDS = 64 };

static int real_output[3] = {-1, -1,
                             -1}; /* descriptors of standard output and error while hidden */

/* Discards standard output and error until show_output. */
static void hide_output(void) {
  int null = open("/dev/null", O_WRONLY);
  assert_true(null >= 0);
  fflush(stdout);
  for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
    real_output[fd] = dup(fd);
    assert_true(real_output[fd] >= 0 && dup2(null, fd) >= 0);
  }
  close(null);
}

static void show_output(void) {
  fflush(stdout);
  clearerr(stdout);
  for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
    if (real_output[fd] < 0) continue;
    assert_true(dup2(real_output[fd], fd) >= 0);
    close(real_output[fd]);
    real_output[fd] = -1;
  }
}

/* Teardown of a test: shows what comes after a crash. */
static int end_walk(void **state) {
  (void)state;
  show_output();
  return 0;
}

/* Runs a command line whose words are separated by blanks. */
static Err run_line(const char *line) {
  char text[1024];
  char quiet[] = "--quiet", *word[COMMAND_WORDS];
  int n = 0;
  OptSet *opts;
  assert_true(snprintf(text, sizeof text, "%s", line) < (int)sizeof text);
  for (char *one = strtok(text, " "); one; one = strtok(NULL, " ")) {
    assert_true(n + 1 < COMMAND_WORDS);
    word[n++] = one;
    if (n == 1 && strcmp(one, "watch") != 0) word[n++] = quiet;
  }
  opt_tables(cmd_options(), commands, cmd_aliases);
  const OptCommand *command = opt_command(word[0]);
  assert_non_null(command);
  TRY(opt_parse(&opts, command, n - 1, word + 1));
  Err err = command->run(opts);
  opt_free(opts);
  log_to_end();
  return err ? err : out_flush();
}

static void run_quietly(const char *line) {
  hide_output();
  Err err = run_line(line);
  show_output();
  if (err) fail_msg("%s: %s", line, err_message());
}

static void write_text(const char *path, const Str *text) {
  OK(str_check(text));
  OK(file_write(path, text->s, text->len));
}

/* Random pairs of sentences. */
static void write_pairs(const char *source, const char *target, int pairs, uint64_t seed) {
  Str text[2] = {{0}, {0}};
  Rng rng = {.key = seed};
  for (int i = 0; i < pairs; i++) {
    uint64_t words = 1 + rng_below(&rng, 6);
    for (uint64_t w = 0; w < words; w++) {
      unsigned a = (unsigned)rng_below(&rng, 5), c = (unsigned)rng_below(&rng, 5);
      str_addf(&text[0], "%s%c%co%c", w ? " " : "", 'a' + a, 'a' + c, 'a' + a);
      str_addf(&text[1], "%s%cu%c", w ? " " : "", 'a' + c, 'a' + a);
    }
    for (int side = 0; side < 2; side++) str_addc(&text[side], '\n');
  }
  write_text(source, &text[0]);
  write_text(target, &text[1]);
  for (int side = 0; side < 2; side++) str_free(&text[side]);
}

/* A table with a text, a class, two labels and a number in each row; lines with the text alone; and a
 * vocabulary for them. */
static void write_table(int rows) {
  static const char vocab[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n";
  Str table = {0}, lines = {0};
  Rng rng = {.key = 5};
  str_addf(&table, "text,class,good,loud,score\n");
  for (int i = 0; i < rows; i++) {
    Str one = {0};
    uint64_t words = 1 + rng_below(&rng, 6);
    for (uint64_t w = 0; w < words; w++)
      str_addf(&one, "%s%c", w ? " " : "", 'a' + (int)rng_below(&rng, 4));
    str_addf(&table, "%s,%s,%d,%d,%.2f\n", str_text(&one), i % 3 ? "no" : "yes", i % 2,
             i % 5 == 0, i / (double)rows);
    str_addf(&lines, "%s\n", str_text(&one));
    str_free(&one);
  }
  write_text("table.csv", &table);
  write_text("lines", &lines);
  OK(file_write("vocab.txt", vocab, sizeof vocab - 1));
  str_free(&table);
  str_free(&lines);
}

#define CPU "--device cpu --threads 1 "
#define TINY                                                                  \
  CPU "--d-model 8 --ffn-dim 8 --heads 1 --batch-tokens 64 --warmup-steps 2 " \
      "--seed 1 --log-every 1 --micro-batches 1 --system-metrics no "
#define TINY_TRANSLATOR TINY "--preset tiny --encoder-layers 1 --decoder-layers 1 "
#define TINY_BERT       TINY "--preset bert-tiny --layers 1 "

static int home = -1; /* the working directory of the program */

/* Goes to a scratch directory, on tmpfs where there is one, because fsync is fast there. */
static void enter_scratch(void) {
  if (access("/dev/shm", W_OK) == 0) strcpy(scratch, "/dev/shm/trireme-XXXXXX");
  home = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  assert_true(home >= 0 && mkdtemp(scratch) && chdir(scratch) == 0);
}

static int leave_scratch(void **state) {
  (void)state;
  int failed = fchdir(home);
  close(home);
  return failed ? -1 : (int)file_remove_all(scratch);
}

/* Makes data sets (set, classes, texts), runs (run, classifier), models of others (marian, exported), an
 * imported model, and predictions of the classifier. */
static int make_runs(void **state) {
  char golden[FILE_PATH_MAX];
  (void)state;
  assert_non_null(realpath("tests/golden/marian/hf", golden));
  enter_scratch();
  assert_int_equal(symlink(golden, "marian"), 0);
  write_pairs("a", "b", 60, 4);
  write_pairs("va", "vb", 5, 9);
  write_table(40);
  run_quietly("prepare --out set --train a b --valid va vb --vocab-size 40 --threads 1");
  run_quietly(
      "prepare --out classes --task classify --train table.csv --text-column text "
      "--label-column "
      "class --split 0.2 --vocab vocab.txt --threads 1");
  run_quietly(
      "prepare --out texts --task mlm --train lines --split 0.25 --vocab vocab.txt --threads "
      "1");
  run_quietly("train --data set --run run --steps 2 " TINY_TRANSLATOR);
  run_quietly("train --data classes --run classifier --steps 2 " TINY_BERT);
  run_quietly("import --from marian --out imported");
  run_quietly("export classifier --to hf --out exported");
  run_quietly(
      "classify --model classifier --input table.csv --text-column text --json --output "
      "predictions.jsonl " CPU);
  return 0;
}

#endif
