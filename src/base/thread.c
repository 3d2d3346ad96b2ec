/* Cores and one parallel loop over POSIX threads. Relies on err, mem. */
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

int thread_cores(void) {
#ifdef __linux__
  cpu_set_t set; /* the cores this process may use, not those the machine has */
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}

typedef struct {
  pthread_t thread;
  ThreadWork work;
  void *context;
  int i;
  bool started;
  ErrRecord error;
} Task;

static void *run(void *argument) {
  Task *task = argument;
  task->error = err_take(task->work(task->context, task->i));
  return NULL;
}

Err thread_each(int n, ThreadWork work, void *context) {
  if (n == 1) return work(context, 0);
  Task *tasks;
  TRY(mem_alloc(&tasks, (size_t)n, sizeof *tasks));
  Err err = ERR_OK;
  for (int i = 0; i < n; i++) {
    tasks[i] = (Task){.work = work, .context = context, .i = i};
    int code = pthread_create(&tasks[i].thread, NULL, run, &tasks[i]);
    tasks[i].started = code == 0;
    /* Every i must run, for others may wait for it: here, if need be. */
    if (code) run(&tasks[i]);
  }
  for (int i = 0; i < n; i++) {
    if (tasks[i].started) pthread_join(tasks[i].thread, NULL);
    if (tasks[i].error.code && !err) err = err_give(&tasks[i].error);
  }
  mem_free(tasks);
  return err;
}
