/* Runs the gradient all-reduce of `bench allreduce` under mpirun and reads its result. Depends on
 * command, Jansson. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/command.h"
#include "launch/doctor.h"

#define OPTIONS_MAX 48

/* Reads the JSON line that rank 0 prints. */
static bool read_result(AllreduceFacts *a, const char *text) {
  const char *line = strchr(text, '{');
  json_t *root = line ? json_loads(line, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
  const json_t *size = json_array_get(json_object_get(root, "sizes"), 0);
  const char *about = json_string_value(json_object_get(root, "about"));
  a->bytes = (uint64_t)json_integer_value(json_object_get(size, "bytes"));
  a->seconds = json_number_value(json_object_get(size, "us")) / 1e6;
  snprintf(a->about, sizeof a->about, "%.159s", about ? about : "");
  json_decref(root);
  return a->seconds > 0;
}

/* Open MPI refuses to run as root without these; containers often have no other user. */
static void allow_root(void) {
  if (geteuid() != 0) return;
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
}

/* The first line of mpirun's complaint that says something, not a frame of dashes. */
static void explain_failure(AllreduceFacts *a, const CommandResult *r, double seconds) {
  const char *at = str_text(&r->err);
  while (*at) {
    size_t n = strcspn(at, "\n");
    if (n && at[0] != '-' && at[0] != '[' && at[strspn(at, " ")] != '\n') break;
    at += n + (at[n] == '\n');
  }
  size_t n = strcspn(at, "\n");
  if (r->is_timed_out)
    snprintf(a->problem, sizeof a->problem, "it did not end within %.0f s%s%.*s", seconds,
             n ? ": " : "", n < 300 ? (int)n : 300, at);
  else
    snprintf(a->problem, sizeof a->problem, "mpirun ended with status %d%s%.*s", r->status,
             n ? ": " : "", n < 300 ? (int)n : 300, at);
}

void doctor_run_allreduce(AllreduceFacts *a, const char *program, uint64_t ranks,
                          const char *const *options, uint64_t bytes, double seconds) {
  const char *argv[OPTIONS_MAX + 24];
  char count[24], size[24];
  size_t n = 0;
  CommandResult r;
  snprintf(count, sizeof count, "%llu", (unsigned long long)ranks);
  snprintf(size, sizeof size, "%llu", (unsigned long long)bytes);
  const char *const first[] = {"mpirun",    "-n",   count, "--oversubscribe",
                               "--bind-to", "none", NULL};
  const char *const last[] = {program,  "bench", "allreduce", "--bytes", size,
                              "--time", "1s",    "--json",    "--quiet", NULL};
  for (size_t i = 0; first[i]; i++) argv[n++] = first[i];
  for (size_t i = 0; options[i] && i < OPTIONS_MAX; i++) argv[n++] = options[i];
  for (size_t i = 0; last[i]; i++) argv[n++] = last[i];
  argv[n] = NULL;
  a->was_run = true;
  a->ranks = ranks;
  a->bytes = bytes;
  allow_root();
  if (command_run(argv, seconds, &r))
    snprintf(a->problem, sizeof a->problem, "%.500s", err_message());
  else if (r.status != 0 || r.is_timed_out)
    explain_failure(a, &r, seconds);
  else if (!read_result(a, str_text(&r.out)))
    snprintf(a->problem, sizeof a->problem, "it printed no result");
  command_free(&r);
}
