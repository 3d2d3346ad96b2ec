/* Runs steps on all hosts in parallel, with one thread per host and at most MOST_THREADS at a
 * time, and prints the table. Depends on base, cluster_host. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "launch/cluster_internal.h"

#define MOST_THREADS 64
#define MOST_WIDTH   48 /* largest width of a cell in columns; longer texts are not padded */

typedef struct {
  Member *member;
  size_t count;
  atomic_size_t next;
} Work;

static void run_member(Member *m) {
  for (; m->done < m->count; m->done++) {
    const Step *step = &m->steps[m->done];
    Err err = step->run(m, step->argument);
    if (err) {
      m->error = err_take(err); /* the error is printed below the table */
      if (m->has_progress) log_info("%s: %s: FAILED", m->host->name, step->title);
      return;
    }
    if (m->has_progress)
      log_info("%s: %s: %s", m->host->name, step->title, str_text(&m->cell[m->done]));
  }
}

static void *run_members(void *argument) {
  Work *w = argument;
  for (size_t i; (i = atomic_fetch_add(&w->next, 1)) < w->count;) run_member(&w->member[i]);
  return NULL;
}

static void run_all(Work *w) {
  pthread_t thread[MOST_THREADS];
  size_t threads = 0;
  while (threads < MOST_THREADS && threads < w->count &&
         thread_start(&thread[threads], run_members, w)) {
    threads++;
  }
  if (threads == 0) run_members(w);
  for (size_t i = 0; i < threads; i++) pthread_join(thread[i], NULL);
}

/* Formats a cell; characters that a terminal would interpret are escaped. */
static void show_cell(const Member *m, size_t step, char *out, size_t room) {
  if (step < m->done)
    utf8_visible(str_text(&m->cell[step]), out, room);
  else
    snprintf(out, room, "%s", step == m->done && m->error.code ? "FAILED" : "-");
}

static void show_host(const Member *members, size_t i, char *out, size_t room) {
  char name[HOSTS_NAME_MAX * 4];
  utf8_visible(members[i].host->name, name, sizeof name);
  snprintf(out, room, "%zu %s", i + 1, name);
}

static Err print_table(const Member *members, size_t count, const Step *steps, size_t columns) {
  int width[CLUSTER_STEPS + 1] = {4};
  char text[1100];
  for (size_t i = 0; i < count; i++) {
    show_host(members, i, text, sizeof text);
    if ((int)strlen(text) > width[0]) width[0] = (int)strlen(text);
  }
  for (size_t c = 0; c < columns; c++) {
    width[c + 1] = (int)strlen(steps[c].title);
    for (size_t i = 0; i < count; i++) {
      show_cell(&members[i], c, text, sizeof text);
      int n = (int)strlen(text);
      if (n > width[c + 1]) width[c + 1] = n < MOST_WIDTH ? n : MOST_WIDTH;
    }
  }
  printf("%-*s", width[0], "host");
  for (size_t c = 0; c < columns; c++)
    printf("  %-*s", c + 1 < columns ? width[c + 1] : 0, steps[c].title);
  putchar('\n');
  for (size_t i = 0; i < count; i++) {
    show_host(members, i, text, sizeof text);
    printf("%-*s", width[0], text);
    for (size_t c = 0; c < columns; c++) {
      show_cell(&members[i], c, text, sizeof text);
      printf("  %-*s", c + 1 < columns ? width[c + 1] : 0, text);
    }
    putchar('\n');
  }
  return out_check();
}

static void print_notes(const Member *m) {
  for (const char *at = str_text(&m->notes); *at;) {
    size_t n = strcspn(at, "\n");
    char line[1024], shown[1100];
    snprintf(line, sizeof line, "%.*s", (int)n, at);
    utf8_visible(line, shown, sizeof shown);
    printf("%s: %s\n", m->host->name, shown);
    at += n + (at[n] != '\0');
  }
}

/* Prints notes and the reasons of failures, and returns the error of the whole command. */
static Err report_failures(const Member *members, size_t count) {
  size_t failed = 0, first = 0;
  for (size_t i = 0; i < count; i++) print_notes(&members[i]);
  for (size_t i = count; i-- > 0;) {
    if (!members[i].error.code) continue;
    failed++;
    first = i;
  }
  for (size_t i = 0; i < count; i++) {
    const Member *m = &members[i];
    if (m->error.code == ERR_STOPPED) return err_give(&m->error);
    if (m->error.code)
      printf("%zu %s: %s FAILED: %s\n", i + 1, m->host->name, m->steps[m->done].title,
             m->error.text);
  }
  if (!failed) return ERR_OK;
  const Member *m = &members[first];
  return err_set(ERR_WORK, "%zu of %zu hosts failed%s%s: %s; the reasons are above", failed,
                 count, failed > 1 ? ", first " : ": ", m->host->name, m->steps[m->done].title);
}

static void free_members(Member *members, size_t count) {
  for (size_t i = 0; i < count; i++) {
    for (size_t c = 0; c < CLUSTER_STEPS; c++) str_free(&members[i].cell[c]);
    str_free(&members[i].notes);
  }
  mem_free(members);
}

/* Copies the program directory to `dir` if it is the same on all hosts that were reached. */
static void find_dir(const Member *members, size_t count, char *dir) {
  const Member *first = NULL;
  dir[0] = '\0';
  for (size_t i = 0; i < count; i++) {
    const Member *m = &members[i];
    if (m->done == 0) continue;
    if (!first) first = m;
    if (strcmp(first->dir, m->dir) != 0) return;
  }
  if (first) snprintf(dir, CLUSTER_DIR_MAX, "%s", first->dir);
}

Err cluster_steps(const ClusterSpec *spec, const Step *steps, size_t count,
                  ClusterProgress progress, char *dir) {
  Work w = {.count = spec->hosts->count};
  TRY(mem_alloc(&w.member, w.count, sizeof *w.member));
  for (size_t i = 0; i < w.count; i++) {
    Member *m = &w.member[i];
    m->spec = spec;
    m->host = &spec->hosts->host[i];
    m->steps = steps;
    m->count = count;
    m->has_progress = progress == PROGRESS_SHOWN;
    snprintf(m->dir, sizeof m->dir, "%s", spec->dir);
  }
  run_all(&w);
  if (dir) find_dir(w.member, w.count, dir);
  Err err = print_table(w.member, w.count, steps, count);
  if (!err) err = report_failures(w.member, w.count);
  free_members(w.member, w.count);
  return err;
}
