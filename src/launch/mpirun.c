/* Builds mpirun's command line. Depends on Jansson, base/str. */
#include "launch/mpirun.h"

#include <stdio.h>

#include "base/str.h"

static void add_word(json_t *words, const char *word) {
  json_array_append_new(words, json_string(word));
}

static void add_setting(json_t *words, const char *name, const char *value) {
  add_word(words, "--mca");
  add_word(words, name);
  add_word(words, value);
}

static void add_hosts(json_t *words, const MpirunSpec *spec) {
  Str list = {0};
  char count[16];
  int ranks = 0;
  for (size_t i = 0; i < spec->hosts; i++) {
    str_addf(&list, "%s%s:%d", i ? "," : "", spec->host[i].address, spec->host[i].ranks);
    ranks += spec->host[i].ranks;
  }
  snprintf(count, sizeof count, "%d", ranks);
  add_word(words, "-n");
  add_word(words, count);
  add_word(words, "--host");
  add_word(words, str_text(&list));
  str_free(&list);
}

/* "trireme" is found through PATH, in the agent's directory, on every machine. */
static void add_daemons(json_t *words) {
  add_setting(words, "plm", "rsh");
  add_setting(words, "plm_rsh_agent", "trireme launch --rsh --");
  add_setting(words, "plm_rsh_no_tree_spawn", "1");
  /* Keeps the daemons attached; otherwise the agent would not notice that they or their parent
   * have ended. */
  add_setting(words, "orte_leave_session_attached", "1");
}

json_t *mpirun_command(const MpirunSpec *spec) {
  json_t *words = json_array();
  if (!words) return NULL;
  add_word(words, "mpirun");
  if (spec->is_root) add_word(words, "--allow-run-as-root");
  add_hosts(words, spec);
  add_word(words, "--map-by");
  add_word(words, "slot");
  add_word(words, "--bind-to");
  add_word(words, "none");
  add_setting(words, "orte_abort_on_non_zero_status", "0");
  if (spec->include) {
    add_daemons(words);
    add_setting(words, "btl_tcp_if_include", spec->include);
    add_setting(words, "oob_tcp_if_include", spec->include);
  } else {
    add_setting(words, "plm", "isolated");
    add_setting(words, "btl", "self,vader");
  }
  add_word(words, "/bin/sh");
  add_word(words, "-c");
  /* mpirun unblocks all signals of this shell; the stub handles SIGTERM and SIGUSR1 itself. A signal
   * in the instant before the trap still ends the shell. */
  add_word(words, "trap '' TERM USR1; exec \"$TRIREME_PROGRAM\" launch --worker");
  return words;
}
