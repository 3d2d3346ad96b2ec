/* Runs functions of cluster.sh on one host, copies files to it, and explains failures. Secrets
 * are passed on standard input, never as arguments. Depends on session, ssh. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "launch/cluster_internal.h"

/* Sets *is_off if the user's ssh configuration turns host-key checking off for this host. */
static Err read_check_off(const SshCall *settings, bool *is_off) {
  SessionEnd end;
  Session s = {.argv = (const char *const *)settings->word};
  Err err = session_run(&s, &end);
  if (!err && end.status != 0)
    err =
        err_set(ERR_WORK, "ssh cannot read its configuration (ssh -G): %s; check ~/.ssh/config",
                end.err.len ? str_text(&end.err) : "no message");
  *is_off = !err && ssh_is_check_off(str_text(&end.out));
  session_free(&end);
  return err;
}

/* Converts the arguments of `ssh -G …` to those of an interactive session with the same
 * target. */
static Err make_interactive(SshCall *call, bool must_check) {
  mem_free(call->word[1]);
  if (must_check)
    return mem_dup(&call->word[1], "-oStrictHostKeyChecking=yes",
                   strlen("-oStrictHostKeyChecking=yes"));
  for (size_t i = 1; i < call->words; i++) call->word[i] = call->word[i + 1];
  call->words--;
  return ERR_OK;
}

Err cluster_make_call(SshCall *call, const ClusterSpec *spec, const Host *host,
                      const char *const *command) {
  bool is_off;
  TRY(ssh_call_settings(call, host, &spec->ssh));
  TRY(read_check_off(call, &is_off));
  if (!command) return make_interactive(call, is_off);
  ssh_call_free(call);
  return ssh_call_command(call, host, &spec->ssh, command, is_off);
}

/* Appends the last `most` lines of `text` that are not empty, separated by "; ". */
static void add_last_lines(Str *out, const char *text, int most) {
  const char *line[8];
  int len[8], lines = 0;
  for (const char *at = text; *at;) {
    int n = (int)strcspn(at, "\r\n");
    if (n) {
      if (lines == most) {
        memmove(line, line + 1, (size_t)(most - 1) * sizeof *line);
        memmove(len, len + 1, (size_t)(most - 1) * sizeof *len);
        lines--;
      }
      line[lines] = at;
      len[lines++] = n;
    }
    at += n + (at[n] != '\0');
  }
  for (int i = 0; i < lines; i++) str_addf(out, "%s%.*s", i ? "; " : "", len[i], line[i]);
}

/* Sets the error for a failed session: a failure of ssh itself with its remedy, or otherwise
 * the last lines that cluster.sh printed to standard error. */
static Err explain_end(const Member *m, const SessionEnd *end) {
  const char *said = str_text(&end->err);
  if (end->status == 255)
    return ssh_explain(ssh_judge(end->status, said), m->host, &m->spec->ssh, said);
  Str why = {0};
  add_last_lines(&why, said, 3);
  if (!why.len) str_addf(&why, "exit status %d without a message", end->status);
  Err err = str_check(&why);
  if (!err) err = err_set(ERR_WORK, "%s", str_text(&why));
  str_free(&why);
  return err;
}

void cluster_quote(Str *script, const char *word) {
  str_addc(script, '\'');
  for (const char *c = word; *c; c++) {
    if (*c == '\'')
      str_add(script, "'\\''");
    else
      str_addc(script, *c);
  }
  str_addc(script, '\'');
}

void cluster_set(Str *script, const char *name, const char *value) {
  str_addf(script, "%s=", name);
  cluster_quote(script, value);
  str_addc(script, '\n');
}

/* Parses the output of cluster.sh, with the lines "cell TEXT", "note TEXT", "send PATH" and
 * "directory PATH". */
static void read_answers(Member *m, const char *text) {
  Str *cell = &m->cell[m->done];
  for (const char *at = text; *at;) {
    size_t n = strcspn(at, "\n");
    if (str_starts(at, "cell ")) {
      str_clear(cell);
      str_addn(cell, at + 5, n - 5);
    } else if (str_starts(at, "note ")) {
      str_addf(&m->notes, "%.*s\n", (int)(n - 5), at + 5);
    } else if (str_starts(at, "directory ") && n - 10 < sizeof m->dir) {
      snprintf(m->dir, sizeof m->dir, "%.*s", (int)(n - 10), at + 10);
    } else if (str_starts(at, "send ")) {
      for (size_t i = 0; i < m->spec->program.files; i++) {
        const char *path = m->spec->program.file[i].path;
        if (strlen(path) == n - 5 && strncmp(path, at + 5, n - 5) == 0) m->wants[i] = true;
      }
    }
    at += n + (at[n] != '\0');
  }
}

static Err run_session(Member *m, const char *const *command, const Str *input) {
  SshCall call = {0};
  SessionEnd end = {0};
  Err err = cluster_make_call(&call, m->spec, m->host, command);
  Session s = {.argv = (const char *const *)call.word,
               .input = str_text(input),
               .input_len = input->len};
  if (!err) err = session_run(&s, &end);
  if (!err && end.status != 0) err = explain_end(m, &end);
  if (!err) read_answers(m, str_text(&end.out));
  session_free(&end);
  ssh_call_free(&call);
  return err;
}

Err cluster_call(Member *m, const char *function, const Str *settings) {
  Str script = {0};
  cluster_set(&script, "DIR", m->dir);
  cluster_set(&script, "VERB", function);
  if (settings) str_addn(&script, str_text(settings), settings->len);
  str_add(&script, cluster_script);
  Err err = str_check(&script);
  /* `sh -s` reads the script from standard input, so it does not depend on the login shell. */
  if (!err) err = run_session(m, (const char *const[]){"sh", "-s", NULL}, &script);
  str_free(&script);
  return err;
}

Err cluster_send(Member *m, const char *name, const Str *bytes) {
  Str command = {0};
  str_add(&command, "cat > ");
  cluster_quote(&command, m->dir);
  str_addf(&command, "/incoming/%s", name);
  Err err = str_check(&command);
  if (!err)
    err = run_session(m, (const char *const[]){"sh", "-c", str_text(&command), NULL}, bytes);
  if (err == ERR_WORK) err = err_context("copying %s", name);
  str_free(&command);
  return err;
}
