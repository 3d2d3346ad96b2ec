/* Progress bars and lines on standard error. Depends on log, str, utf8. */
#include "base/progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "base/utf8.h"

#define TERMINAL_PERIOD 0.1 /* seconds between two redraws on a terminal */
#define PIPE_PERIOD     5.0

static double read_clock(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double progress_clock(void) {
  return read_clock(CLOCK_MONOTONIC);
}

double progress_cpu_clock(void) {
  return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void progress_begin(Progress *p, const char *title, const char *unit, uint64_t total) {
  *p = (Progress){.unit = unit, .total = total};
  utf8_visible(title, p->title, sizeof p->title);
  p->bytes = strcmp(unit, "bytes") == 0;
  p->start = p->shown = progress_clock();
}

void progress_resume(Progress *p, uint64_t already) {
  p->first = p->done = already;
}

static void format_amount(const Progress *p, char *out, uint64_t value) {
  if (p->bytes)
    str_of_bytes(out, value);
  else
    str_of_count(out, value);
}

static double compute_rate(const Progress *p, double now) {
  return (double)(p->done - p->first) / (now - p->start > 1e-9 ? now - p->start : 1e-9);
}

static void draw_line(Progress *p, double now) {
  char done[32], total[32], per_second[32], left[32];
  double speed = compute_rate(p, now);
  format_amount(p, done, p->done);
  format_amount(p, per_second, (uint64_t)speed);
  const char *unit = p->bytes ? "" : " ";
  const char *word = p->bytes ? "" : p->unit;
  Str line = {0};
  str_addf(&line, "%s: ", p->title);
  if (p->total && p->done <= p->total) {
    double part = (double)p->done / (double)p->total;
    if (log_is_live()) {
      int filled = (int)(part * 24);
      str_addc(&line, '[');
      for (int i = 0; i < 24; i++) str_addc(&line, i < filled ? '#' : '.');
      str_add(&line, "] ");
    }
    format_amount(p, total, p->total);
    str_of_seconds(left, speed > 0 ? (double)(p->total - p->done) / speed : 0);
    str_addf(&line, "%3.0f%% %s of %s%s%s, %s%s%s/s, %s left", 100 * part, done, total, unit,
             word, per_second, unit, word, left);
  } else {
    str_addf(&line, "%s%s%s, %s%s%s/s", done, unit, word, per_second, unit, word);
  }
  if (log_is_live())
    fprintf(stderr, "\r\033[K%.*s", log_fit(str_text(&line)), str_text(&line));
  else
    fprintf(stderr, "%s\n", str_text(&line));
  fflush(stderr);
  str_free(&line);
  p->drawn = true;
  p->shown = now;
}

void progress_set(Progress *p, uint64_t done) {
  p->done = done;
  if (log_is_quiet()) return;
  double now = progress_clock();
  if (now - p->shown >= (log_is_live() ? TERMINAL_PERIOD : PIPE_PERIOD)) draw_line(p, now);
}

void progress_end(Progress *p) {
  if (log_is_quiet()) return;
  char done[32], time[32], per_second[32];
  double now = progress_clock();
  format_amount(p, done, p->done);
  format_amount(p, per_second, (uint64_t)compute_rate(p, now));
  const char *unit = p->bytes ? "" : " ";
  const char *word = p->bytes ? "" : p->unit;
  if (p->drawn && log_is_live()) fputs("\r\033[K", stderr);
  fprintf(stderr, "%s: %s%s%s in %s, %s%s%s/s\n", p->title, done, unit, word,
          str_of_seconds(time, now - p->start), per_second, unit, word);
}

static void *wait_and_show(void *argument) {
  ProgressWait *w = argument;
  double period = log_is_live() ? 1 : PIPE_PERIOD;
  struct timespec next;
  clock_gettime(CLOCK_MONOTONIC, &next);
  pthread_mutex_lock(&w->lock);
  while (!w->over) {
    next.tv_sec += (time_t)period;
    while (!w->over && pthread_cond_timedwait(&w->ended, &w->lock, &next) == 0) continue;
    if (w->over) break;
    char time[32];
    const char *form = log_is_live() ? "\r\033[K%s: %s so far" : "%s: %s so far\n";
    fprintf(stderr, form, w->title, str_of_seconds(time, progress_clock() - w->start));
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

void progress_wait_begin(ProgressWait *w, const char *title) {
  *w = (ProgressWait){.title = title, .start = progress_clock()};
  pthread_mutex_init(&w->lock, NULL);
  thread_cond_init(&w->ended);
  w->started = !log_is_quiet() && pthread_create(&w->thread, NULL, wait_and_show, w) == 0;
}

void progress_wait_end(ProgressWait *w) {
  pthread_mutex_lock(&w->lock);
  w->over = true;
  pthread_cond_broadcast(&w->ended);
  pthread_mutex_unlock(&w->lock);
  if (w->started) pthread_join(w->thread, NULL);
  pthread_cond_destroy(&w->ended);
  pthread_mutex_destroy(&w->lock);
  if (log_is_quiet()) return;
  char time[32];
  fprintf(stderr, "%s%s: done in %s\n", log_is_live() ? "\r\033[K" : "", w->title,
          str_of_seconds(time, progress_clock() - w->start));
}
