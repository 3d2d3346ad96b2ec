/* trireme launch: reads the options, opens the sources of machines and runs the supervisor.
 * Also runs the internal programs of a launch (agent, stubs). Depends on launch. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/utf8.h"
#include "cmd/cmd.h"
#include "cmd/launch_meet.h"
#include "launch/agent.h"
#include "launch/console.h"
#include "launch/console_files.h"
#include "launch/machine.h"
#include "launch/signals.h"
#include "launch/source_local.h"
#include "launch/source_slurm.h"
#include "launch/source_ssh.h"
#include "launch/stub.h"
#include "launch/supervisor.h"
#include "train/rundir.h"

#define COMMAND_MAX ((size_t)4 << 20) /* largest command line of this process in bytes */
/* Default of --stall-timeout for train in seconds. Its ranks report every micro-batch, so that only
 * loading or writing of files can take long: 360 GB at 100 MB/s. */
#define TRAIN_STALL 3600.0
#define NO_RUN      "trireme-launch" /* log directory of a command without --run */
/* Seconds for which a run may still be in use by ranks of a launch that was killed: their agents
 * end them within 6 s (HEARTBEAT_LIMIT). */
#define RUN_WAIT 10.0

/* Commands that may run on several ranks. */
static const char *const rank_commands[] = {"train", "translate", "classify", "bench",
                                            "prepare"};

static Err read_nproc(const char *text, int *nproc) {
  int64_t n;
  *nproc = strcmp(text, "auto") == 0  ? NPROC_AUTO
           : strcmp(text, "cpu") == 0 ? NPROC_CPU
           : strcmp(text, "gpu") == 0 ? NPROC_GPU
                                      : 0;
  if (*nproc) return ERR_OK;
  if (str_count(text, &n) || n < 1 || n > 4096)
    return err_set(ERR_USAGE, "--nproc-per-node %s: pass auto, cpu, gpu or 1 to 4096", text);
  *nproc = (int)n;
  return ERR_OK;
}

/* Parses at most four digits; returns the text after them, or NULL if there are none or more. */
static const char *parse_digits(const char *text, int *number) {
  size_t digits = strspn(text, "0123456789");
  if (digits < 1 || digits > 4) return NULL;
  *number = atoi(text);
  return text + digits;
}

/* Parses "2" or "2:4". */
static Err read_nnodes(const char *text, int *min, int *max) {
  if (!text) return ERR_OK;
  const char *rest = parse_digits(text, min);
  *max = *min;
  if (rest && *rest == ':') rest = parse_digits(rest + 1, max);
  if (!rest || *rest || *min < 1 || *max < *min || *max > 1024)
    return err_set(
        ERR_USAGE,
        "--nnodes %s: pass a number of machines, or MIN:MAX with 1 <= MIN <= MAX <= 1024",
        text);
  return ERR_OK;
}

/* Returns the value of `--name VALUE` or `--name=VALUE` in the workers' command; NULL if it is
 * not given. */
static const char *find_option(const char *const *argv, int args, const char *name) {
  size_t n = strlen(name);
  for (int i = 1; i < args; i++) {
    if (strncmp(argv[i], "--", 2) != 0 || strncmp(argv[i] + 2, name, n) != 0) continue;
    if (argv[i][n + 2] == '=') return argv[i] + n + 3;
    if (!argv[i][n + 2]) return i + 1 < args ? argv[i + 1] : "";
  }
  return NULL;
}

static Err check_command(const char *name) {
  for (size_t i = 0; i < sizeof rank_commands / sizeof *rank_commands; i++)
    if (strcmp(name, rank_commands[i]) == 0) return ERR_OK;
  const char *slash = strrchr(name, '/');
  bool is_program = strcmp(slash ? slash + 1 : name, "trireme") == 0;
  return err_set(
      ERR_USAGE,
      "launch starts train, translate, classify, prepare or bench, not '%s'%s: trireme launch "
      "[options] -- train ...",
      name, is_program ? "; leave out the program's name" : "");
}

/* Refuses arguments that are not UTF-8, because messages between machines are JSON. */
static Err check_utf8(const char *const *argv, int args) {
  char dir[FILE_PATH_MAX];
  for (int i = 0; i < args; i++) {
    size_t len = strlen(argv[i]);
    if (utf8_valid(argv[i], len) != len)
      return err_set(ERR_USAGE,
                     "'%s' in the command is not UTF-8; rename the file or directory", argv[i]);
  }
  if (getcwd(dir, sizeof dir) && utf8_valid(dir, strlen(dir)) != strlen(dir))
    return err_set(ERR_USAGE, "the path of the working directory, %s, is not UTF-8; rename it",
                   dir);
  return ERR_OK;
}

typedef struct {
  LaunchSpec spec;
  const char **argv;
  char log_dir[FILE_PATH_MAX];
  /* Directory that train must create before log files are written in it; NULL: they are written
   * at once. */
  const char *run;
  OptSet *options; /* parsed options of the workers' command; NULL: they are invalid */
  ErrRecord wrong; /* why they are invalid */
  HostList hosts;  /* empty: this machine only, or a Slurm allocation */
  SshOptions ssh;
  SlurmAllocation slurm;
} Launch;

static void drop_message(void *context, const char *label, const char *line) {
  (void)context;
  (void)label;
  (void)line;
}

/* Parses the options of the workers' command as the workers will, with config file and aliases.
 * Warnings are suppressed here, because the ranks print them. */
static void read_options(Launch *l, int args) {
  log_divert(drop_message, NULL);
  Err err = opt_parse(&l->options, opt_command(l->argv[0]), args - 1,
                      (char **)(uintptr_t)(l->argv + 1));
  if (err) l->wrong = err_take(err);
  log_divert(NULL, NULL);
}

static bool is_train(const Launch *l) {
  return strcmp(l->argv[0], "train") == 0;
}

/* Returns the value of an option in the workers' command, or NULL. The command must have an
 * option of this name. */
static const char *get_option(const Launch *l, const char *name) {
  return l->options ? opt_text(l->options, name) : find_option(l->argv, l->spec.args, name);
}

static bool has_flag(const Launch *l, const char *name) {
  return l->options ? opt_flag(l->options, name)
                    : find_option(l->argv, l->spec.args, name) != NULL;
}

/* Refuses a command that reads standard input, which launched ranks do not have. */
static Err check_input(const Launch *l) {
  bool has_input = strcmp(l->argv[0], "translate") == 0 || strcmp(l->argv[0], "classify") == 0;
  const char *input = has_input ? get_option(l, "input") : NULL;
  bool is_read = has_input && (!input || strcmp(input, "-") == 0);
  for (int i = 1; i < l->spec.args; i++) is_read = is_read || strcmp(l->argv[i], "-") == 0;
  if (!is_read) return ERR_OK;
  return err_set(ERR_USAGE,
                 "%s reads standard input, which launched ranks do not have; name a file%s",
                 l->argv[0], has_input ? " with --input FILE" : "");
}

/* Returns the option with which the command continues work that was stopped, if it was not
 * passed; else NULL. Launch adds this option, so that a restart and the same command later
 * continue. */
static const char *find_missing_resume(const Launch *l) {
  if (is_train(l)) {
    bool is_passed =
        has_flag(l, "resume") || has_flag(l, "auto-resume") || has_flag(l, "dry-run");
    return is_passed ? NULL : "--auto-resume";
  }
  if (strcmp(l->argv[0], "prepare") != 0 || get_option(l, "convert")) return NULL;
  return has_flag(l, "resume") ? NULL : "--resume";
}

/* Fails if the options of the workers' command are invalid. On other machines they may be valid: a
 * config file may exist only there. The ranks then report the error. */
static Err check_options(const Launch *l) {
  bool is_here = !l->hosts.count;
  return !l->options && is_here ? err_give(&l->wrong) : ERR_OK;
}

/* Copies the workers' command; adds the option to resume, and --peer-checkpoint. */
static Err read_command(Launch *l, const OptSet *opts) {
  int args = opt_operands(opts);
  TRY(check_command(opt_operand(opts, 0)));
  TRY(mem_alloc(&l->argv, (size_t)args + 3, sizeof *l->argv));
  for (int i = 0; i < args; i++) l->argv[i] = opt_operand(opts, i);
  l->spec.args = args;
  read_options(l, args);
  TRY(check_input(l));
  TRY(check_utf8(l->argv, args));
  const char *resume = find_missing_resume(l);
  if (resume) l->argv[args++] = resume;
  if (opt_given(opts, "peer-checkpoint")) {
    if (!is_train(l))
      return err_set(ERR_USAGE, "--peer-checkpoint is for train, not for %s; leave it out",
                     l->argv[0]);
    l->argv[args++] = "--peer-checkpoint";
    l->argv[args++] = opt_text(opts, "peer-checkpoint");
  }
  l->spec.argv = l->argv;
  l->spec.args = args;
  l->spec.max_restarts =
      is_train(l) || opt_given(opts, "max-restarts") ? (int)opt_count(opts, "max-restarts") : 0;
  return ERR_OK;
}

static Err choose_log_dir(Launch *l, const OptSet *opts) {
  const char *given = opt_text(opts, "log-dir");
  const char *run = is_train(l) ? get_option(l, "run") : NULL;
  if (given) return file_join(l->log_dir, given, "");
  /* train without --run ends with an error and creates no run, so no log file is written. */
  bool has_run = run && *run;
  if (is_train(l)) l->run = has_run ? run : NO_RUN;
  return has_run ? file_join(l->log_dir, run, "launch") : file_join(l->log_dir, NO_RUN, "");
}

/* Refuses more ranks on a host than its max_slots. With --nproc-per-node auto, cpu and gpu the
 * number is limited to max_slots (launch/machine.c). */
static Err check_max_slots(const Launch *l) {
  for (size_t i = 0; i < l->hosts.count; i++) {
    const Host *h = &l->hosts.host[i];
    if (h->max_slots && !h->slots && l->spec.nproc > h->max_slots)
      return err_set(
          ERR_USAGE,
          "--nproc-per-node %d is more than max_slots=%d of host %s; pass at most %d, "
          "or give the host's ranks by slots=N",
          l->spec.nproc, h->max_slots, h->name, h->max_slots);
  }
  return ERR_OK;
}

static Err read_hosts(Launch *l, const OptSet *opts) {
  HostSource from = {.hosts = opt_text(opts, "hosts"),
                     .hostfile = opt_text(opts, "hostfile"),
                     .inventory = opt_text(opts, "inventory"),
                     .user = opt_text(opts, "ssh-user")};
  TRY(hosts_read(&l->hosts, &from));
  if (l->hosts.count && opt_flag(opts, "standalone"))
    return err_set(
        ERR_USAGE,
        "--standalone uses this machine only, but hosts are listed; leave out one of the two");
  if (l->hosts.count && opt_given(opts, "rdzv-endpoint"))
    return err_set(ERR_USAGE,
                   "machines are either listed and reached by ssh, or meet at --rdzv-endpoint; "
                   "omit one of the two");
  bool is_alone = !l->hosts.count && !opt_given(opts, "rdzv-endpoint") &&
                  (opt_flag(opts, "standalone") || !slurm_has_allocation());
  if (is_alone && l->spec.min > 1)
    return err_set(
        ERR_USAGE,
        "--nnodes asks for %d machines, but only this one is known: list machines with "
        "--hosts, --hostfile or --inventory, or let them meet at --rdzv-endpoint",
        l->spec.min);
  TRY(check_max_slots(l));
  if (l->hosts.count && l->spec.min > (int)l->hosts.count)
    return err_set(
        ERR_USAGE,
        "--nnodes asks for %d machines, but %zu are listed; list more or lower --nnodes",
        l->spec.min, l->hosts.count);
  l->ssh.port = (int)opt_count(opts, "ssh-port");
  l->ssh.key = opt_text(opts, "ssh-key");
  TRY(ssh_check_key(l->ssh.key));
  l->ssh.program = opt_text(opts, "remote-program");
  return ERR_OK;
}

/* Without the endpoint every machine would train alone. */
static Err check_rendezvous(const OptSet *opts) {
  static const char *const names[] = {"rdzv-key", "rdzv-id"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (opt_given(opts, names[i]) && !opt_given(opts, "rdzv-endpoint"))
      return err_set(
          ERR_USAGE,
          "--%s works only with --rdzv-endpoint: pass --rdzv-endpoint HOST:PORT too, the same "
          "on every machine, or omit --%s",
          names[i], names[i]);
  return ERR_OK;
}

static Err read_launch(Launch *l, const OptSet *opts) {
  TRY(check_rendezvous(opts));
  TRY(read_command(l, opts));
  TRY(choose_log_dir(l, opts));
  TRY(read_nproc(opt_text(opts, "nproc-per-node"), &l->spec.nproc));
  TRY(read_nnodes(opt_text(opts, "nnodes"), &l->spec.min, &l->spec.max));
  TRY(read_hosts(l, opts));
  TRY(check_options(l));
  l->spec.network = opt_text(opts, "network");
  l->spec.stall_timeout = opt_given(opts, "stall-timeout") ? opt_real(opts, "stall-timeout")
                          : is_train(l)                    ? TRAIN_STALL
                                                           : 0;
  l->spec.start_timeout = opt_real(opts, "start-timeout");
  l->spec.mpi_timeout = is_train(l) ? 3 * l->spec.start_timeout : 0;
  l->spec.join_timeout = opt_real(opts, "join-timeout");
  l->spec.log_dir = l->log_dir;
  l->spec.has_terminal = log_is_live() && !opt_flag(opts, "all-output");
  return ERR_OK;
}

/* Opens the sources of machines: the listed machines, or the nodes of a Slurm allocation, or
 * this machine; with a rendezvous also the machines that join there. */
static Err open_sources(Launch *l, const OptSet *opts, Rendezvous *rendezvous, Source source[2],
                        int *sources) {
  int min = l->spec.min ? l->spec.min : (int)l->hosts.count;
  bool is_slurm = !rendezvous && !opt_flag(opts, "standalone") && slurm_has_allocation();
  Err err;
  *sources = 0;
  if (rendezvous) rendezvous_to_source(rendezvous, &source[(*sources)++]);
  if (l->hosts.count) {
    err = source_ssh_open(&source[*sources], &l->hosts, &l->ssh, min);
  } else if (is_slurm) {
    TRY(slurm_read_allocation(&l->slurm));
    if (l->spec.min > l->slurm.nodes)
      return err_set(
          ERR_USAGE,
          "--nnodes asks for %d machines, but the allocation of Slurm has %d; request "
          "more nodes or lower --nnodes",
          l->spec.min, l->slurm.nodes);
    err = source_slurm_open(&source[*sources], &l->slurm, opt_given(opts, "nproc-per-node"));
  } else {
    err = source_local_open(&source[*sources], 0);
  }
  if (!err) (*sources)++;
  return err;
}

/* Returns true if standard output is the result of the command. The result of train and prepare
 * is a directory. */
static bool has_results(const char *command) {
  return strcmp(command, "translate") == 0 || strcmp(command, "classify") == 0 ||
         strcmp(command, "bench") == 0;
}

/* Returns true if the same command continues what was stopped: a run that exists, or prepare, which
 * gets --resume. */
static bool can_continue(const Launch *l) {
  const char *run = is_train(l) ? get_option(l, "run") : NULL;
  char path[FILE_PATH_MAX];
  if (strcmp(l->argv[0], "prepare") == 0) return !get_option(l, "convert");
  return run && file_join(path, run, "config") == ERR_OK && file_exists(path);
}

/* Prints the command with which the user can continue what was stopped: the one that was typed. */
static void print_continuation(const Launch *l, Console *console,
                               const Rendezvous *rendezvous) {
  Str words = {0}, command = {0};
  if (can_continue(l) && file_read("/proc/self/cmdline", COMMAND_MAX, &words) == ERR_OK) {
    str_add(&command, rendezvous ? "continue on every machine with:" : "continue with:");
    for (const char *at = words.s; at < words.s + words.len; at += strlen(at) + 1) {
      str_addc(&command, ' ');
      str_add_shell(&command, at);
    }
    console_print(console, str_text(&command));
  }
  str_free(&words);
  str_free(&command);
}

/* Fails if another process uses the run or the log directory, before anything is changed. Ranks of
 * a launch that was killed may use the run for some seconds more. */
static Err check_use(const Launch *l) {
  const char *run = is_train(l) ? get_option(l, "run") : NULL;
  double start = progress_clock();
  bool is_used = false, is_announced = false;
  TRY(log_files_check(l->log_dir));
  while (run && *run) {
    TRY(rundir_is_used(run, &is_used));
    if (!is_used) return ERR_OK;
    if (progress_clock() - start > RUN_WAIT)
      return err_set(ERR_WORK,
                     "%s is in use by another trireme process; wait for its end or choose "
                     "another --run",
                     run);
    if (!is_announced)
      log_info("%s is in use; waiting up to %.0f s for ranks of an earlier launch to end", run,
               RUN_WAIT);
    is_announced = true;
    poll(NULL, 0, 100);
  }
  return ERR_OK;
}

/* Ends launch.log with how the launch has ended. */
static void log_end(Console *console, Err result) {
  char line[64];
  snprintf(line, sizeof line, "ended with status %d", (int)result);
  console_log(console, line);
}

static Err run_supervisor(Launch *l, const OptSet *opts, Rendezvous *rendezvous) {
  Console *console = NULL;
  Supervisor *supervisor = NULL;
  Source source[2];
  int sources;
  bool is_reported = false;
  sigset_t signals;
  signals_save(&signals);
  ConsoleSpec spec = {.log_dir = l->log_dir,
                      .run = l->run,
                      .has_results = has_results(l->argv[0]),
                      .all_output = opt_flag(opts, "all-output"),
                      .is_quiet = opt_flag(opts, "quiet")};
  Err err = open_sources(l, opts, rendezvous, source, &sources);
  if (!err) err = check_use(l);
  if (!err) err = console_open(&console, &spec);
  if (!err) err = supervisor_open(&supervisor, &l->spec, console, source, sources);
  if (!err) err = supervisor_run(supervisor, &is_reported);
  ErrRecord why = err_copy();
  if (err == ERR_WORK && console && !is_reported) console_log_error(console, err_message());
  if (err == ERR_STOPPED) print_continuation(l, console, rendezvous);
  if (console) log_end(console, err);
  for (int i = 0; i < sources && !supervisor; i++) source[i].close(source[i].self);
  supervisor_close(supervisor);
  bool is_known = console && console_has_lost_logs(console); /* a warning has reported it */
  Err lost = console_close(console);
  signals_restore(&signals);
  if (err && lost && !is_known) log_warn("%s", err_message());
  if (err && is_reported) log_mute(); /* the workers have printed the reason */
  if (err) err_give(&why);
  return err ? err : lost;
}

static Err run_agent(int in, int out) {
  Channel *head;
  log_quiet(true);
  signal(SIGHUP, SIG_IGN); /* the head started this agent and decides when it ends */
  TRY(channel_open(&head, in, out, "the head"));
  return agent_run(head, NULL, AGENT_OF_HEAD);
}

static Err run_rsh(const OptSet *opts) {
  int words = opt_operands(opts);
  const char *word[64];
  if (words < 2) return err_set(ERR_USAGE, "--rsh needs a host and a command");
  if (words > 64)
    return err_set(ERR_USAGE, "--rsh has a command of %d words; at most 63 are allowed",
                   words - 1);
  for (int i = 0; i < words; i++) word[i] = opt_operand(opts, i);
  return stub_run_rsh(word[0], word + 1, words - 1);
}

/* Shows the help of the workers' command if it asks for it. */
static Err show_help(const OptSet *opts, bool *is_shown) {
  OptSet *help;
  char name[16];
  *is_shown = false;
  for (int i = 1; i < opt_operands(opts) && !*is_shown; i++)
    *is_shown =
        strcmp(opt_operand(opts, i), "--help") == 0 || strcmp(opt_operand(opts, i), "-h") == 0;
  if (!*is_shown) return ERR_OK;
  TRY(check_command(opt_operand(opts, 0)));
  snprintf(name, sizeof name, "%s", opt_operand(opts, 0));
  char *word = name;
  TRY(opt_parse(&help, opt_command("help"), 1, &word));
  Err err = cmd_help(help);
  opt_free(help);
  return err;
}

/* Runs as head or as agent, whichever role the rendezvous assigns. */
static Err run_rendezvous(Launch *l, const OptSet *opts) {
  Rendezvous *head;
  Channel *agent;
  TRY(launch_meet(opts, l->spec.max, &head, &agent));
  return agent ? agent_run(agent, NULL, AGENT_OF_USER) : run_supervisor(l, opts, head);
}

Err cmd_launch(OptSet *opts) {
  Launch l = {0};
  log_quiet(opt_flag(opts, "quiet"));
  if (opt_given(opts, "new-key")) return launch_make_key(opts);
  if (opt_flag(opts, "worker")) return stub_run_worker();
  if (opt_flag(opts, "rsh")) return run_rsh(opts);
  if (opt_given(opts, "agent-fd")) {
    int fd = (int)opt_count(opts, "agent-fd");
    return run_agent(fd, fd);
  }
  if (opt_flag(opts, "agent-slurm")) return slurm_run_agent();
  if (opt_flag(opts, "agent")) {
    TRY(ssh_greet(STDOUT_FILENO));
    return run_agent(STDIN_FILENO, STDOUT_FILENO);
  }
  if (!opt_operands(opts))
    return err_set(ERR_USAGE, "no command given: trireme launch [options] -- train ...");
  TRY(cmd_refuse_ranks("launch", "call it without mpirun"));
  bool is_shown;
  TRY(show_help(opts, &is_shown));
  if (is_shown) return ERR_OK;
  Err err = read_launch(&l, opts);
  bool has_rendezvous = opt_given(opts, "rdzv-endpoint");
  if (!err) err = has_rendezvous ? run_rendezvous(&l, opts) : run_supervisor(&l, opts, NULL);
  hosts_free(&l.hosts);
  opt_free(l.options);
  mem_free(l.argv);
  return err;
}
