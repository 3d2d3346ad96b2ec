/* The subcommands `cluster run` and `cluster ssh`. Depends on cluster_host. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "launch/cluster_internal.h"

/* The command as it runs on one host. */
typedef struct {
  const ClusterSpec *spec;
  const Host *host;
  const Str *script;
  Err err;
  ErrRecord error;
  int status;
  bool has_begun; /* the host has started the command */
  bool has_lost;  /* a line could not be printed, as memory is short */
  pthread_t thread;
  bool has_thread;
} Remote;

static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;

/* Prints a line with a single write, so that lines of several hosts do not mix. */
static void print_line(void *argument, int stream, const char *line) {
  Remote *r = argument;
  Str text = {0};
  char shown[8192];
  do {
    size_t n = utf8_visible(line, shown, sizeof shown);
    str_addf(&text, "%s: %s\n", r->host->name, shown);
    line += n;
  } while (*line);
  if (str_check(&text)) r->has_lost = true;
  pthread_mutex_lock(&printing);
  FILE *to = stream == 1 ? stdout : stderr;
  fputs(str_text(&text), to);
  fflush(to);
  pthread_mutex_unlock(&printing);
  str_free(&text);
}

static void *run_remote(void *argument) {
  Remote *r = argument;
  SshCall call = {0};
  SessionEnd end = {0};
  r->err = cluster_make_call(&call, r->spec, r->host, (const char *const[]){"sh", "-s", NULL});
  Session s = {.argv = (const char *const *)call.word,
               .input = str_text(r->script),
               .input_len = r->script->len,
               .has_open_input = true,
               .limit = r->spec->timeout,
               .begin = CLUSTER_BEGIN,
               .may_pause = true,
               .on_line = print_line,
               .argument = r};
  if (!r->err) r->err = session_run(&s, &end);
  if (!r->err && end.is_timed_out) r->err = cluster_explain_timeout(r->spec, r->host, &end);
  if (!r->err) r->err = cluster_check_begin(r->host, &end);
  if (!r->err && r->has_lost)
    r->err = err_set(ERR_WORK, "out of memory: lines of the command's output are lost");
  r->status = end.status;
  r->has_begun = end.has_begun;
  if (r->err) r->error = err_take(r->err);
  session_free(&end);
  ssh_call_free(&call);
  return NULL;
}

/* Writes a shell script that runs the command with empty input and kills it, with its children,
 * when the ssh connection ends. The script notices the end because its standard input closes;
 * sshd alone would leave the command running. */
static Err write_script(Str *script, const char *const *words, size_t count) {
  str_add(script, "{\necho " CLUSTER_BEGIN "\ncd\nexec 3<&0\nset --");
  if (count == 1) str_add(script, " sh -c");
  for (size_t i = 0; i < count; i++) {
    str_addc(script, ' ');
    cluster_quote(script, words[i]);
  }
  str_add(script,
          "\nif command -v setsid > /dev/null; then set -- setsid \"$@\"; fi\n"
          "\"$@\" < /dev/null 3<&- &\n"
          "command=$!\n"
          "{ cat <&3 > /dev/null; kill -s TERM -- -$command || kill $command; } "
          "> /dev/null 2>&1 &\n"
          "watch=$!\n"
          "exec 3<&-\n"
          "wait $command\n"
          "status=$?\n"
          "kill $watch 2> /dev/null\n"
          "exit $status\n}\n");
  return str_check(script);
}

static Err report_ends(const Remote *remote, size_t count) {
  size_t failed = 0;
  for (size_t i = 0; i < count; i++) {
    const Remote *r = &remote[i];
    if (r->err == ERR_STOPPED) return err_give(&r->error);
    failed += r->err || r->status != 0;
    if (r->err)
      log_warn("%s: %s", r->host->name, r->error.text);
    else if (r->status == 255 && !r->has_begun)
      log_warn("%s: ssh failed, and the command was not started; see its message above",
               r->host->name);
    else if (r->status)
      log_warn("%s: exit status %d", r->host->name, r->status);
  }
  if (failed == 0) {
    log_info("exit status 0 on %zu host%s", count, count == 1 ? "" : "s");
    return ERR_OK;
  }
  return err_set(ERR_WORK, "the command failed on %zu of %zu hosts; see the messages above",
                 failed, count);
}

Err cluster_run(const ClusterSpec *spec, const char *const *words, size_t count) {
  Str script = {0};
  Remote *remote = NULL;
  size_t hosts = spec->hosts->count;
  Err err;
  TRY_DONE(write_script(&script, words, count));
  TRY_DONE(mem_alloc(&remote, hosts, sizeof *remote));
  for (size_t i = 0; i < hosts; i++) {
    remote[i] = (Remote){.spec = spec, .host = &spec->hosts->host[i], .script = &script};
    remote[i].has_thread = thread_start(&remote[i].thread, run_remote, &remote[i]);
  }
  for (size_t i = 0; i < hosts; i++) {
    if (remote[i].has_thread)
      pthread_join(remote[i].thread, NULL);
    else
      run_remote(&remote[i]);
  }
  err = report_ends(remote, hosts);
done:
  str_free(&script);
  mem_free(remote);
  return err;
}

static void pass_line(void *unused, int stream, const char *line) {
  (void)unused;
  FILE *to = stream == 1 ? stdout : stderr;
  fprintf(to, "%s\n", line);
  fflush(to);
}

Err cluster_run_self(const char *const *words, size_t count) {
  const char **argv;
  SessionEnd end;
  TRY(mem_alloc(&argv, count + 2, sizeof *argv));
  argv[0] = "/proc/self/exe";
  for (size_t i = 0; i < count; i++) argv[i + 1] = words[i];
  fflush(stdout);
  Err err = session_run(&(Session){.argv = argv, .on_line = pass_line}, &end);
  if (!err && end.status == ERR_STOPPED) err = err_set(ERR_STOPPED, "stopped by a signal");
  if (!err && end.status != 0)
    err = err_set(ERR_WORK, "trireme %s ended with status %d; see its messages above", words[0],
                  end.status);
  session_free(&end);
  mem_free(argv);
  return err;
}

static const Host *find_host(const HostList *list, const char *which) {
  char *end;
  long number = strtol(which, &end, 10);
  if (end != which && !*end)
    return number >= 1 && (size_t)number <= list->count ? &list->host[number - 1] : NULL;
  for (size_t i = 0; i < list->count; i++) {
    if (strcmp(list->host[i].name, which) == 0 || strcmp(list->host[i].address, which) == 0)
      return &list->host[i];
  }
  return NULL;
}

Err cluster_ssh(const ClusterSpec *spec, const char *which) {
  const Host *host = find_host(spec->hosts, which);
  if (!host)
    return err_set(ERR_USAGE, "there is no host %s; pass a number from 1 to %zu, or a name",
                   which, spec->hosts->count);
  SshCall call = {0};
  Err err = cluster_make_call(&call, spec, host, NULL);
  if (!err) {
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    execvp(call.word[0], call.word);
    err = err_errno("cannot start", call.word[0]);
  }
  ssh_call_free(&call);
  return err;
}
