/* The thread that follows the runs: searches directories, reads the ends of files for the list, and
 * what is appended to the files of the runs that somebody looks at. Depends on board_find, board_series, board_system, base. */
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/thread.h"
#include "monitor/board_internal.h"

#define ROUND_SECONDS  0.5 /* between two looks at the files */
#define SEARCH_SECONDS 2.0 /* shortest time between two searches for runs */
#define SEARCH_SHARE   20  /* searches take at most 1 / SEARCH_SHARE of the time */
#define READ_BYTES     ((size_t)512 << 10) /* read while the lock is held */
#define TAIL_BYTES     ((size_t)32 << 10)
#define CONFIG_BYTES   ((size_t)256 << 10)

static void take_fact(RunFacts *f, const Line *line) {
  static const struct {
    const char *name;
    size_t at;
  } facts[] = {{"nll", offsetof(RunFacts, nll)},
               {"valid_nll", offsetof(RunFacts, valid_nll)},
               {"valid_bleu", offsetof(RunFacts, valid_bleu)},
               {"target_tokens_per_s", offsetof(RunFacts, tokens_per_s)},
               {"epoch", offsetof(RunFacts, epoch)}};
  f->step = line->step;
  for (size_t i = 0; i < line->values; i++) {
    for (size_t k = 0; k < sizeof facts / sizeof *facts; k++) {
      size_t len = strlen(facts[k].name);
      if (line->value[i].name_len == len &&
          memcmp(line->value[i].name, facts[k].name, len) == 0)
        memcpy((char *)f + facts[k].at, &line->value[i].number, sizeof(double));
    }
  }
}

/* Reads the last records of metrics.jsonl into r->facts. */
static void read_tail(BoardRun *r) {
  char *text;
  Line line;
  if (mem_alloc(&text, TAIL_BYTES, 1)) return;
  int fd = open(r->series.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  uint64_t begin = r->size > TAIL_BYTES ? r->size - TAIL_BYTES : 0;
  ssize_t got = fd < 0 ? -1 : pread(fd, text, TAIL_BYTES, (off_t)begin);
  if (fd >= 0) close(fd);
  size_t at = 0, len = got > 0 ? (size_t)got : 0;
  const char *stop;
  while ((stop = memchr(text + at, '\n', len - at))) {
    size_t n = (size_t)(stop - text) - at;
    if (line_read(&line, text + at, n)) take_fact(&r->facts, &line);
    at += n + 1;
  }
  mem_free(text);
}

/* Reads the number of steps that the run's config plans. */
static void read_plan(BoardRun *r) {
  char path[FILE_PATH_MAX];
  Str config = {0};
  if (file_join(path, r->path, "config") == ERR_OK && file_exists(path) &&
      file_read(path, CONFIG_BYTES, &config) == ERR_OK) {
    const char *at = str_text(&config);
    while (at) {
      int64_t steps;
      char word[32];
      if (sscanf(at, "steps = %31[0-9kMG.]", word) == 1 && str_count(word, &steps) == ERR_OK)
        r->facts.steps = (double)steps;
      at = strchr(at, '\n');
      if (at) at++;
    }
  }
  str_free(&config);
  r->is_plan_read = true;
}

/* Looks whether the run's metrics.jsonl has changed. */
static void look_at_run(Board *b, BoardRun *r) {
  struct stat st;
  bool is_there = stat(r->series.path, &st) == 0 && S_ISREG(st.st_mode);
  bool is_gone = !is_there && !file_is_dir(r->path);
  bool has_changed = is_gone != r->is_gone;
  if (is_there && ((uint64_t)st.st_size != r->size || st.st_mtim.tv_sec != r->written.tv_sec ||
                   st.st_mtim.tv_nsec != r->written.tv_nsec)) {
    r->size = (uint64_t)st.st_size;
    r->written = st.st_mtim;
    read_tail(r);
    has_changed = true;
  }
  if (!is_gone && (r->is_gone || !r->is_plan_read)) read_plan(r);
  r->is_gone = is_gone;
  if (has_changed) r->changed = ++b->version;
}

static Err add_run(Board *b, const char *name) {
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
  r->facts = (RunFacts){NAN, NAN, NAN, NAN, NAN, NAN, NAN};
  r->changed = ++b->version;
  b->run[b->runs++] = r;
  return ERR_OK;
}

static bool is_listed(const Board *b, const char *name) {
  for (size_t i = 0; i < b->runs; i++)
    if (strcmp(b->run[i]->name, name) == 0) return true;
  return false;
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
    if (is_listed(b, found.name[i])) continue;
    if (b->runs == FIND_RUNS)
      b->is_cut = true;
    else
      err = add_run(b, found.name[i]);
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
