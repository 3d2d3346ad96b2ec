/* Runs functions of cluster.sh on one host, copies files to it, and explains failures. Secrets
 * are passed on standard input, never as arguments. Depends on session, ssh. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "launch/cluster_internal.h"

#define LINE_LIMIT 4096 /* longer lines, in bytes, come from start-up files and are ignored */
/* Largest number of bytes that a host may print in one step. */
#define OUTPUT_LIMIT ((size_t)16 << 20)
#define NOTES_LIMIT  ((size_t)65536) /* bytes of a host's notes that are printed */

/* Runs `ssh -G`, which prints the settings for a host without connecting. Call session_free in any
 * case. */
static Err read_settings(const SshCall *settings, double limit, SessionEnd *end) {
  Session s = {.argv = (const char *const *)settings->word, .limit = limit};
  TRY(session_run(&s, end));
  if (end->is_timed_out)
    return err_set(ERR_WORK,
                   "ssh has not read its configuration in %.0f s (ssh -G); look for a command "
                   "that hangs (Match exec) in ~/.ssh/config",
                   limit);
  if (end->status != 0)
    return err_set(ERR_WORK,
                   "ssh cannot read its configuration (ssh -G): %s; check ~/.ssh/config",
                   end->err.len ? str_text(&end->err) : "no message");
  return ERR_OK;
}

/* Sets *is_off if the user's ssh configuration turns host-key checking off for this host. */
static Err read_check_off(const SshCall *settings, double limit, bool *is_off) {
  SessionEnd end;
  Err err = read_settings(settings, limit, &end);
  *is_off = !err && ssh_is_check_off(str_text(&end.out));
  session_free(&end);
  return err;
}

#define SSH_PORT 22 /* default port of ssh */

Err cluster_read_port(const ClusterSpec *spec, const Host *host, int *port) {
  SshCall call = {0};
  SessionEnd end = {0};
  *port = spec->ssh.port;
  if (*port) return ERR_OK;
  Err err = ssh_call_settings(&call, host, &spec->ssh);
  if (!err) err = read_settings(&call, spec->timeout, &end);
  const char *line = err ? NULL : strstr(str_text(&end.out), "\nport ");
  if (line) *port = atoi(line + strlen("\nport "));
  /* Some versions of ssh print -1 if no port is configured. */
  if (!err && (*port < 1 || *port > 65535)) *port = SSH_PORT;
  session_free(&end);
  ssh_call_free(&call);
  return err;
}

/* Converts the arguments of `ssh -G …` to those of an interactive session with the same
 * target. */
static Err make_interactive(SshCall *call, bool must_check) {
  static const char *const setting[] = {"-oConnectTimeout=10", "-oStrictHostKeyChecking=yes"};
  mem_free(call->word[1]);
  TRY(mem_dup(&call->word[1], setting[0], strlen(setting[0])));
  if (!must_check) return ERR_OK;
  memmove(&call->word[3], &call->word[2], (call->words - 2) * sizeof *call->word);
  call->words++;
  return mem_dup(&call->word[2], setting[1], strlen(setting[1]));
}

bool cluster_is_here(const Host *host) {
  return hosts_is_local(host) && hosts_is_own_user(host);
}

/* Makes the arguments of a command, or of a shell, on this machine. */
static Err make_local(SshCall *call, const char *const *command) {
  const char *shell = getenv("SHELL");
  const char *const interactive[] = {shell && *shell ? shell : "sh", NULL};
  *call = (SshCall){0};
  for (const char *const *word = command ? command : interactive; *word; word++) {
    TRY(mem_dup(&call->word[call->words], *word, strlen(*word)));
    call->words++;
  }
  return ERR_OK;
}

Err cluster_make_call(SshCall *call, const ClusterSpec *spec, const Host *host,
                      const char *const *command) {
  bool is_off;
  if (cluster_is_here(host)) return make_local(call, command);
  TRY(ssh_call_settings(call, host, &spec->ssh));
  TRY(read_check_off(call, spec->timeout, &is_off));
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
static Err explain_end(const Member *m, int status, const char *said) {
  if (status == 255 && !cluster_is_here(m->host))
    return ssh_explain(ssh_judge(status, said), m->host, &m->spec->ssh, said);
  Str why = {0};
  add_last_lines(&why, said, 3);
  if (!why.len) str_addf(&why, "exit status %d without a message", status);
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

/* Handles a line that cluster.sh printed; cluster.sh lists them. */
static void read_answer(Member *m, const char *line) {
  Str *cell = &m->cell[m->done];
  if (str_starts(line, "cell ")) {
    str_clear(cell);
    str_add(cell, line + 5);
  } else if (str_starts(line, "note ")) {
    if (m->notes.len < NOTES_LIMIT) str_addf(&m->notes, "%s\n", line + 5);
  } else if (str_starts(line, "busy ")) {
    log_info("%s: %s: %s", m->host->name, m->steps[m->done].title, line + 5);
  } else if (str_starts(line, "directory ") && strlen(line + 10) < sizeof m->dir) {
    snprintf(m->dir, sizeof m->dir, "%s", line + 10);
  } else if (str_starts(line, "send ")) {
    for (size_t i = 0; i < m->spec->program.files; i++)
      if (strcmp(m->spec->program.file[i].path, line + 5) == 0) m->wants[i] = true;
  }
}

/* A session of a host, while its output is read. */
typedef struct {
  Member *member;
  Str said; /* standard error */
} Conversation;

static void read_line(void *argument, int stream, const char *line) {
  Conversation *c = argument;
  if (stream == 1 && strlen(line) < LINE_LIMIT)
    read_answer(c->member, line);
  else if (stream == 2 && c->said.len < SESSION_OUTPUT_MAX)
    str_addf(&c->said, "%s\n", line);
}

Err cluster_explain_timeout(const ClusterSpec *spec, const Host *host, const SessionEnd *end) {
  char limit[64];
  snprintf(limit, sizeof limit, "no command was started in %.0f s", spec->timeout);
  if (!end->has_begun) return ssh_explain(SSH_HANGS, host, &spec->ssh, limit);
  return err_set(
      ERR_WORK,
      "host %s has sent nothing for %.0f s (--host-timeout); check that it still runs "
      "and is reachable, and repeat the call",
      host->name, spec->timeout);
}

Err cluster_check_begin(const Host *host, const SessionEnd *end) {
  if (end->has_begun || end->status != 0) return ERR_OK;
  return err_set(ERR_WORK,
                 "host %s accepted the connection, but ran no command (exit status 0); check "
                 "the login shell of the user there, and ForceCommand of its ssh daemon",
                 host->name);
}

/* Sets the error of a session that has ended; `said` is what it printed to standard error. */
static Err judge_end(const Member *m, const SessionEnd *end, const char *said) {
  if (end->is_timed_out) return cluster_explain_timeout(m->spec, m->host, end);
  if (end->is_too_long)
    return err_set(ERR_WORK,
                   "host %s prints without end (more than %zu MB); check the start-up files of "
                   "the user there",
                   m->host->name, OUTPUT_LIMIT >> 20);
  if (end->status != 0) return explain_end(m, end->status, said);
  return cluster_check_begin(m->host, end);
}

static Err run_session(Member *m, const char *const *command, const Str *input) {
  SshCall call = {0};
  SessionEnd end = {0};
  Conversation c = {.member = m};
  Err err = cluster_make_call(&call, m->spec, m->host, command);
  Session s = {.argv = (const char *const *)call.word,
               .input = str_text(input),
               .input_len = input->len,
               .limit = m->spec->timeout,
               .output_limit = OUTPUT_LIMIT,
               .begin = CLUSTER_BEGIN,
               .on_line = read_line,
               .argument = &c};
  if (!err) err = session_run(&s, &end);
  if (!err) err = judge_end(m, &end, str_text(&c.said));
  if (!err) err = str_check(&c.said);
  session_free(&end);
  str_free(&c.said);
  ssh_call_free(&call);
  return err;
}

Err cluster_call(Member *m, const char *function, const Str *settings) {
  Str script = {0};
  str_add(&script, "echo " CLUSTER_BEGIN "\n");
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
  str_add(&command, "echo " CLUSTER_BEGIN "; cat > ");
  cluster_quote(&command, m->dir);
  str_addf(&command, "/incoming/%s", name);
  Err err = str_check(&command);
  if (!err)
    err = run_session(m, (const char *const[]){"sh", "-c", str_text(&command), NULL}, bytes);
  if (err == ERR_WORK) err = err_context("copying %s", name);
  str_free(&command);
  return err;
}
