/* The thread that follows the runs: searches directories, reads the ends of files for the list, and
 * what is appended to the files of the runs that somebody looks at. Depends on board_find, board_series, board_system, base. */
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/thread.h"
#include "format/hparams.h"
#include "monitor/board_internal.h"

#define ROUND_SECONDS  0.5 /* between two looks at the files */
#define SEARCH_SECONDS 2.0 /* shortest time between two searches for runs */
#define SEARCH_SHARE   20  /* searches take at most 1 / SEARCH_SHARE of the time */
#define READ_BYTES     ((size_t)512 << 10) /* read while the lock is held */
#define TAIL_BYTES     ((size_t)32 << 10)  /* of a file that was read before */
#define BEGIN_BYTES    ((size_t)512 << 10) /* of a new file: the last validation is further away */
#define CONFIG_BYTES   ((size_t)256 << 10)

/* Forgets the measurements; the steps that are planned stay. */
static void forget_facts(RunFacts *f) {
  *f = (RunFacts){.step = NAN,
                  .steps = f->steps,
                  .nll = NAN,
                  .valid_nll = NAN,
                  .valid_bleu = NAN,
                  .valid_f1_macro = NAN,
                  .valid_pearson = NAN,
                  .tokens_per_s = NAN,
                  .epoch = NAN};
}

/* The measurements of the list, by their names in metrics.jsonl. */
static const struct {
  const char *name;
  size_t at;
} fact_names[] = {{"nll", offsetof(RunFacts, nll)},
                  {"valid_nll", offsetof(RunFacts, valid_nll)},
                  {"valid_bleu", offsetof(RunFacts, valid_bleu)},
                  {"valid_f1_macro", offsetof(RunFacts, valid_f1_macro)},
                  {"valid_pearson", offsetof(RunFacts, valid_pearson)},
                  {"target_tokens_per_s", offsetof(RunFacts, tokens_per_s)},
                  {"tokens_per_s", offsetof(RunFacts, tokens_per_s)},
                  {"epoch", offsetof(RunFacts, epoch)}};
#define FACT_NAMES (sizeof fact_names / sizeof *fact_names)

static double *get_fact(RunFacts *f, size_t i) {
  return (double *)(void *)((char *)f + fact_names[i].at);
}

static void set_if_unknown(double *fact, double value) {
  if (isnan(*fact)) *fact = value;
}

/* Takes what is not known yet from a line. */
static void take_fact(RunFacts *f, const Line *line) {
  set_if_unknown(&f->step, line->step);
  for (size_t i = 0; i < line->values; i++) {
    for (size_t k = 0; k < FACT_NAMES; k++) {
      size_t len = strlen(fact_names[k].name);
      if (line->value[i].name_len == len &&
          memcmp(line->value[i].name, fact_names[k].name, len) == 0)
        set_if_unknown(get_fact(f, k), line->value[i].number);
    }
  }
}

static size_t find_line_begin(const char *text, size_t end) {
  while (end > 0 && text[end - 1] != '\n') end--;
  return end;
}

/* Takes the last measurements of the complete lines, from the last line to the first: a line that undoes
 * steps comes after them. Returns true if there is such a line. */
static bool take_tail(RunFacts *f, const char *text, size_t len) {
  Line line;
  double last = INFINITY; /* lines of later steps were undone */
  for (size_t stop = find_line_begin(text, len), begin; stop > 0; stop = begin) {
    begin = find_line_begin(text, stop - 1);
    if (!line_read(&line, text + begin, stop - 1 - begin)) continue;
    if (line.step <= last) take_fact(f, &line);
    if (line.undoes_later) last = fmin(last, line.undone_after);
  }
  return last < INFINITY;
}

/* Returns false if the file has other bytes than before where it ended when it was last read. */
static bool has_same_end(const BoardRun *r, int fd) {
  char end[RUN_END];
  ssize_t got = pread(fd, end, r->end_len, (off_t)(r->end - r->end_len));
  return got == (ssize_t)r->end_len && memcmp(end, r->end_bytes, r->end_len) == 0;
}

static void note_end(BoardRun *r, const char *text, size_t len, uint64_t end) {
  r->end = end;
  r->end_len = len < RUN_END ? len : RUN_END;
  memcpy(r->end_bytes, text + len - r->end_len, r->end_len);
}

/* Reads the last `most` bytes of a file of `bytes` bytes. Returns true if a line in them undoes steps. */
static bool read_end(BoardRun *r, int fd, uint64_t bytes, size_t most, RunFacts *f) {
  char *text;
  uint64_t begin = bytes > most ? bytes - most : 0;
  if (mem_alloc(&text, most, 1)) return false;
  ssize_t got = pread(fd, text, most, (off_t)begin);
  size_t len = got > 0 ? (size_t)got : 0;
  bool has_undone = take_tail(f, text, len);
  note_end(r, text, len, begin + len);
  mem_free(text);
  return has_undone;
}

/* Reads the last records of metrics.jsonl into r->facts. Those of a file that was replaced by
 * another one are forgotten, and so are those that may be of undone steps. */
static void read_tail(BoardRun *r) {
  int fd;
  uint64_t bytes;
  RunFacts found = r->facts;
  if (file_open(r->series.path, &fd, &bytes)) return;
  bool is_known = r->end > 0 && has_same_end(r, fd);
  forget_facts(&found);
  if (is_known && read_end(r, fd, bytes, TAIL_BYTES, &found)) {
    forget_facts(&found);
    is_known = false;
  }
  if (is_known) {
    set_if_unknown(&found.step, r->facts.step);
    for (size_t i = 0; i < FACT_NAMES; i++)
      set_if_unknown(get_fact(&found, i), *get_fact(&r->facts, i));
  } else {
    read_end(r, fd, bytes, BEGIN_BYTES, &found);
  }
  r->facts = found;
  close(fd);
}

/* Reads the number of steps that the run's config plans. */
static void read_plan(BoardRun *r, const char *path) {
  Str config = {0};
  Hparam h;
  r->facts.steps = NAN;
  if (file_read(path, CONFIG_BYTES, &config) == ERR_OK) {
    for (const char *at = str_text(&config); hparams_next(&at, &h);) {
      int64_t steps;
      char word[32];
      bool is_steps = h.name_len == 5 && memcmp(h.name, "steps", 5) == 0;
      if (!is_steps || h.text_len >= sizeof word) continue;
      memcpy(word, h.text, h.text_len);
      word[h.text_len] = '\0';
      word[strcspn(word, " \t\r")] = '\0';
      if (str_count(word, &steps) == ERR_OK) r->facts.steps = (double)steps;
    }
  }
  str_free(&config);
}

/* Looks whether the run's config has changed, as by a process that continues with more steps. */
static bool look_at_config(BoardRun *r) {
  char path[FILE_PATH_MAX];
  struct stat st;
  if (file_join(path, r->path, "config") || stat(path, &st) != 0) return false;
  if (series_is_same_time(st.st_mtim, r->configured)) return false;
  r->configured = st.st_mtim;
  read_plan(r, path);
  return true;
}

/* Looks whether the run's metrics.jsonl has changed. */
static bool look_at_metrics(BoardRun *r, const struct stat *st) {
  uint64_t size = (uint64_t)st->st_size;
  if (size == r->size && series_is_same_time(st->st_mtim, r->written)) return false;
  r->size = size;
  r->written = st->st_mtim;
  read_tail(r);
  return true;
}

static void look_at_run(Board *b, BoardRun *r) {
  struct stat st;
  bool is_there = stat(r->series.path, &st) == 0 && S_ISREG(st.st_mode);
  bool is_gone = !is_there && !file_is_dir(r->path);
  bool has_changed = is_gone != r->is_gone;
  if (is_there && look_at_metrics(r, &st)) has_changed = true;
  if (!is_gone && look_at_config(r)) has_changed = true;
  r->is_gone = is_gone;
  if (has_changed) r->changed = ++b->version;
}

/* Returns the place of the name in the list, which is sorted: that of the run, or of a new one. */
static size_t find_place(const Board *b, const char *name, bool *is_listed) {
  size_t low = 0, high = b->runs;
  *is_listed = false;
  while (low < high && !*is_listed) {
    size_t middle = (low + high) / 2;
    int order = strcmp(b->run[middle]->name, name);
    *is_listed = order == 0;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return high;
}

static Err add_run(Board *b, const char *name, size_t place) {
  char path[FILE_PATH_MAX], hex[65];
  BoardRun *r;
  Sha256 sha;
  TRY(strcmp(name, ".") == 0 ? file_join(path, b->dir, ".") : file_join(path, b->dir, name));
  TRY(mem_grow(&b->run, &b->run_room, b->runs + 1, sizeof *b->run));
  TRY(mem_alloc(&r, 1, sizeof *r));
  Err err = mem_dup(&r->name, name, strlen(name));
  if (!err) err = mem_dup(&r->path, path, strlen(path));
  if (!err) err = file_join(r->series.path, path, "metrics.jsonl");
  if (err) {
    mem_free(r->name);
    mem_free(r->path);
    mem_free(r);
    return err;
  }
  sha256_begin(&sha);
  sha256_add(&sha, name, strlen(name));
  sha256_end(&sha, hex);
  memcpy(r->id, hex, RUN_ID);
  r->facts.steps = NAN;
  forget_facts(&r->facts);
  r->changed = ++b->version;
  memmove(b->run + place + 1, b->run + place, (b->runs - place) * sizeof *b->run);
  b->run[place] = r;
  b->runs++;
  return ERR_OK;
}

/* Adds runs that are new. A run that is no longer found stays in the list: look_at_run says
 * whether it is gone. */
static Err search_runs(Board *b) {
  FoundRuns found;
  TRY(find_runs(b->dir, &found));
  Err err = ERR_OK;
  pthread_mutex_lock(&b->lock);
  b->is_cut = found.is_cut;
  for (size_t i = 0; !err && i < found.count; i++) {
    bool is_listed;
    size_t place = find_place(b, found.name[i], &is_listed);
    if (is_listed) continue;
    if (b->runs == FIND_RUNS)
      b->is_cut = true;
    else
      err = add_run(b, found.name[i], place);
  }
  pthread_mutex_unlock(&b->lock);
  find_free(&found);
  return err;
}

/* Takes the lock after the requests that wait for it. */
static void lock_board(Board *b) {
  const struct timespec pause = {.tv_nsec = 200000};
  while (b->waiting > 0) nanosleep(&pause, NULL);
  pthread_mutex_lock(&b->lock);
}

/* Reads a part of the files of the runs that are wanted. Returns true if there is more to read. */
static bool read_wanted(Board *b, double now) {
  bool has_more = false;
  for (size_t i = 0; i < b->runs; i++) {
    lock_board(b);
    BoardRun *r = b->run[i];
    Err err = ERR_OK;
    bool has_all = !r->series.sample && r->series.exact; /* else the builder reads it */
    if (now - r->wanted < BOARD_WANTED && has_all) {
      if (series_refresh(&r->series)) err = series_read(&r->series, READ_BYTES);
      if (!r->series.is_exact && !err && !b->is_closing) has_more = true;
    }
    if (now - r->system_wanted < BOARD_WANTED)
      err = board_system_refresh(&r->system, r->path);
    else if (r->system.hosts)
      board_system_free(&r->system);
    if (err) log_warn("%s: %s", r->name, err_message());
    pthread_mutex_unlock(&b->lock);
  }
  return has_more;
}

static void look_at_all(Board *b) {
  for (size_t i = 0; i < b->runs; i++) {
    lock_board(b);
    look_at_run(b, b->run[i]);
    pthread_mutex_unlock(&b->lock);
  }
}

void *board_read_runs(void *board) {
  Board *b = board;
  double next_search = 0;
  bool is_closing = false;
  while (!is_closing) {
    double begin = board_now();
    if (begin >= next_search) {
      if (search_runs(b)) log_warn("%s", err_message());
      double took = board_now() - begin;
      next_search = begin + fmax(SEARCH_SECONDS, took * SEARCH_SHARE);
    }
    look_at_all(b);
    pthread_mutex_lock(&b->lock);
    b->is_searched = true;
    pthread_mutex_unlock(&b->lock);
    bool has_more = read_wanted(b, board_now());
    pthread_mutex_lock(&b->lock);
    if (!has_more && !b->is_closing) thread_cond_wait_for(&b->wake, &b->lock, ROUND_SECONDS);
    is_closing = b->is_closing;
    pthread_mutex_unlock(&b->lock);
  }
  return NULL;
}
