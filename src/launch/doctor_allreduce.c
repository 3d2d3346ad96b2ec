/* Runs `bench allreduce` on several ranks and reads its result. Depends on command, Jansson. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/command.h"
#include "launch/doctor.h"

#define LAUNCHER_MAX 48

/* Parses the JSON line that rank 0 prints. */
static bool read_result(AllreduceFacts *a, const char *text) {
  const char *line = strchr(text, '{');
  json_t *root = line ? json_loads(line, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
  const json_t *size = json_array_get(json_object_get(root, "sizes"), 0);
  const char *about = json_string_value(json_object_get(root, "about"));
  a->bytes = (uint64_t)json_integer_value(json_object_get(size, "bytes"));
  a->ranks = (uint64_t)json_integer_value(json_object_get(root, "ranks"));
  a->seconds = json_number_value(json_object_get(size, "us")) / 1e6;
  snprintf(a->about, sizeof a->about, "%.159s", about ? about : "");
  json_decref(root);
  return a->seconds > 0;
}

/* Sets the variables without which Open MPI refuses to run as root. Containers often have no
 * other user. */
static void allow_root(void) {
  if (geteuid() != 0) return;
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
}

/* Copies the first informative line that the launcher printed; Open MPI frames its errors with
 * lines of dashes. */
static void explain_failure(AllreduceFacts *a, const CommandResult *r, double seconds) {
  const char *at = str_text(&r->err);
  while (*at) {
    size_t n = strcspn(at, "\n");
    if (n && at[0] != '-' && at[0] != '[' && at[strspn(at, " ")] != '\n') break;
    at += n + (at[n] == '\n');
  }
  size_t n = strcspn(at, "\n");
  char how[48];
  if (r->is_timed_out)
    snprintf(how, sizeof how, "it did not end within %.0f s", seconds);
  else
    snprintf(how, sizeof how, "exit status %d", r->status);
  snprintf(a->problem, sizeof a->problem, "%s%s%.*s", how, n ? ": " : "",
           n < 400 ? (int)n : 400, at);
}

void doctor_run_allreduce(AllreduceFacts *a, const char *const *launcher, uint64_t bytes,
                          double seconds) {
  const char *argv[LAUNCHER_MAX + 16];
  char size[24];
  size_t n = 0;
  CommandResult r;
  snprintf(size, sizeof size, "%llu", (unsigned long long)bytes);
  const char *const bench[] = {"bench", "allreduce", "--bytes", size, "--time",
                               "1s",    "--json",    "--quiet", NULL};
  for (size_t i = 0; launcher[i] && i < LAUNCHER_MAX; i++) argv[n++] = launcher[i];
  for (size_t i = 0; bench[i]; i++) argv[n++] = bench[i];
  argv[n] = NULL;
  *a = (AllreduceFacts){.was_run = true, .bytes = bytes};
  allow_root();
  if (command_run(argv, seconds, &r))
    snprintf(a->problem, sizeof a->problem, "%.500s", err_message());
  else if (r.status != 0 || r.is_timed_out)
    explain_failure(a, &r, seconds);
  else if (!read_result(a, str_text(&r.out)))
    snprintf(a->problem, sizeof a->problem, "it printed no result");
  command_free(&r);
}
