/* Runs `bench train` as the ranks of a machine would run: at the same time, each with its share of
 * the cores. Depends on launch/process, base/file. */
#include "cmd/plan_measure.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/thread.h"
#include "launch/process.h"

#define MOST_PAIRS  20000 /* sentence pairs in the sample of lengths */
#define EVEN_PAIRS  2000  /* pairs without a data set, of EVEN_TOKENS tokens each */
#define EVEN_TOKENS 32
#define MOST_OUTPUT ((size_t)1 << 20) /* bytes of a result */
#define POLL_US     20000 /* microseconds between two checks for ended processes and signals */

/* Appends a line of the file of lengths: of a pair of sentences with eos, or of a text. */
static void add_line(Str *text, uint32_t source, uint32_t target, bool has_texts) {
  if (has_texts)
    str_addf(text, "%u\n", source);
  else
    str_addf(text, "%u %u\n", source, target);
}

/* Appends the lengths of every n-th example of a window. */
static void add_window(Str *text, const OrderWindow *w, uint64_t every, bool has_texts) {
  uint64_t seen = 0;
  for (size_t i = 0; i < w->cells; i++) {
    uint64_t from = (seen + every - 1) / every,
             to = (seen + w->cell[i].count + every - 1) / every;
    for (; from < to; from++)
      add_line(text, w->cell[i].len[0] + 1u, w->cell[i].len[1] + 1u, has_texts);
    seen += w->cell[i].count;
  }
}

static Err write_lengths(const PlanMeasureSpec *s, const char *path) {
  Str text = {0};
  const Order *order = s->order;
  uint64_t every = order ? (order->pairs + MOST_PAIRS - 1) / MOST_PAIRS : 1;
  for (size_t i = 0; order && i < order->windows; i++)
    add_window(&text, &order->window[i], every, s->has_texts);
  for (int i = 0; !order && i < EVEN_PAIRS; i++)
    add_line(&text, EVEN_TOKENS, EVEN_TOKENS, s->has_texts);
  Err err = str_check(&text);
  if (!err) err = file_write(path, str_text(&text), text.len);
  str_free(&text);
  return err;
}

typedef struct {
  pid_t pid;                /* 0: not running */
  char path[FILE_PATH_MAX]; /* file with its standard output */
} Worker;

static Err start_worker(Worker *w, const PlanMeasureSpec *s, const char *dir, int rank) {
  char program[FILE_PATH_MAX], lengths[FILE_PATH_MAX], name[32], device[64];
  char vocab[16], tokens[16], steps[24], threads[16];
  int share = thread_cores() / s->ranks;
  TRY(file_program(program));
  TRY(file_join(lengths, dir, "lengths"));
  snprintf(name, sizeof name, "result-%d", rank);
  TRY(file_join(w->path, dir, name));
  snprintf(device, sizeof device, strcmp(s->device, "cuda") == 0 ? "%s:%d" : "%s", s->device,
           rank);
  snprintf(vocab, sizeof vocab, "%d", s->vocab);
  snprintf(tokens, sizeof tokens, "%u", s->batch_tokens);
  snprintf(steps, sizeof steps, "%llu", (unsigned long long)s->steps);
  snprintf(threads, sizeof threads, "%d", share > 1 ? share : 1);
  const char *argv[] = {
      program,          "bench",     "train",       "--lengths",    lengths,
      "--preset",       s->preset,   "--precision", s->precision,   "--device",
      device,           "--threads", threads,       "--vocab-size", vocab,
      "--batch-tokens", tokens,      "--steps",     steps,          "--json",
      "--quiet",        NULL};
  int out = open(w->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (out < 0) return err_errno("cannot create", w->path);
  ProcessSpec process = {
      .argv = (char *const *)(uintptr_t)argv, .in = -1, .out = out, .err = STDERR_FILENO};
  Err err = process_start(&process, &w->pid);
  if (err) w->pid = 0;
  close(out);
  return err;
}

/* Waits until the process ends, or a signal asks to stop. */
static Err wait_for_worker(Worker *w, int *status) {
  while (!stop_asked()) {
    if (waitpid(w->pid, status, WNOHANG) != 0) {
      w->pid = 0;
      return ERR_OK;
    }
    usleep(POLL_US);
  }
  return err_set(ERR_WORK, "a signal ended the measurement of this machine");
}

static void end_worker(Worker *w) {
  kill(w->pid, SIGKILL);
  while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR) continue;
  w->pid = 0;
}

static Err check_status(int status) {
  if (WIFSIGNALED(status))
    return err_set(
        ERR_WORK,
        "cannot measure this machine: 'trireme bench train' was ended by signal %d (%s)%s",
        WTERMSIG(status), strsignal(WTERMSIG(status)),
        WTERMSIG(status) == SIGKILL
            ? "; if memory is short, pass smaller --gpus or --batch-tokens"
            : "");
  if (WEXITSTATUS(status) != 0)
    return err_set(ERR_WORK,
                   "cannot measure this machine: 'trireme bench train' ended with status %d; "
                   "its message is above",
                   WEXITSTATUS(status));
  return ERR_OK;
}

static Err read_result(Worker *w, PlanMeasurement *m) {
  Str text = {0};
  int status = 0;
  TRY(wait_for_worker(w, &status));
  TRY(check_status(status));
  Err err = file_read(w->path, MOST_OUTPUT, &text);
  if (!err) err = plan_measurement_parse(str_text(&text), text.len, "this machine", m);
  str_free(&text);
  return err;
}

/* Adds the times of another rank; scale them by 1 / ranks in the end. */
static void add_result(PlanMeasurement *sum, const PlanMeasurement *m) {
  sum->step += m->step;
  sum->tokens += m->tokens;
  sum->timed += m->timed;
  sum->gradients += m->gradients;
  sum->other_backward += m->other_backward;
  sum->optimizer += m->optimizer;
  sum->copy += m->copy;
}

static Err collect_results(Worker *w, int ranks, PlanMeasurement *sum) {
  PlanMeasurement m;
  TRY(read_result(&w[0], sum));
  for (int i = 1; i < ranks; i++) {
    TRY(read_result(&w[i], &m));
    add_result(sum, &m);
  }
  double *mean[] = {&sum->step,           &sum->tokens,    &sum->timed, &sum->gradients,
                    &sum->other_backward, &sum->optimizer, NULL};
  for (int i = 0; mean[i]; i++) *mean[i] /= ranks;
  return ERR_OK;
}

Err plan_measure(const PlanMeasureSpec *s, PlanMeasurement *result) {
  char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
  const char *parent = getenv("TMPDIR");
  Worker *worker = NULL;
  Err err;
  TRY(file_join(dir, parent && *parent ? parent : "/tmp", "trireme-plan-XXXXXX"));
  stop_watch(); /* A signal ends the processes and removes the folder. */
  if (!mkdtemp(dir)) return err_errno("cannot create", dir);
  log_info("measuring %llu steps of %s on this machine, %d %s", (unsigned long long)s->steps,
           s->preset, s->ranks, s->ranks == 1 ? "process" : "processes at once");
  TRY_DONE(mem_alloc(&worker, (size_t)s->ranks, sizeof *worker));
  TRY_DONE(file_join(path, dir, "lengths"));
  TRY_DONE(write_lengths(s, path));
  for (int i = 0; i < s->ranks; i++) TRY_DONE(start_worker(&worker[i], s, dir, i));
  err = collect_results(worker, s->ranks, result);
done:;
  ErrRecord kept = err_copy();
  for (int i = 0; worker && i < s->ranks; i++)
    if (worker[i].pid) end_worker(&worker[i]);
  mem_free(worker);
  if (file_remove_all(dir)) log_warn("%s", err_message());
  stop_unwatch();
  return err ? err_give(&kept) : ERR_OK;
}
