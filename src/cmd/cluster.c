/* trireme cluster: prepares existing machines over ssh (program, libraries, mounts). Depends on
 * launch/cluster. */
#include "launch/cluster.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/stop.h"
#include "cmd/cmd.h"

/* Reads the --mount options and, if a drive is a CIFS share, its credentials. */
static Err read_mounts(ClusterSpec *spec, const OptSet *opts) {
  const char *credentials = opt_text(opts, "credentials");
  bool has_cifs = false;
  int times = opt_times(opts, "mount");
  if (times > CLUSTER_MOUNTS)
    return err_set(
        ERR_USAGE,
        "--mount is given %d times, but at most %d drives are supported; leave some out", times,
        CLUSTER_MOUNTS);
  for (int i = 0; i < times; i++) {
    ClusterMount *m = &spec->mount[spec->mounts++];
    TRY(cluster_parse_mount(m, opt_word(opts, "mount", i, 0), opt_text(opts, "mount-options")));
    has_cifs = has_cifs || strcmp(m->type, "cifs") == 0;
    for (size_t k = 0; k + 1 < spec->mounts; k++) {
      if (strcmp(spec->mount[k].point, m->point) == 0)
        return err_set(ERR_USAGE, "--mount: two drives for %s; choose another mount point",
                       m->point);
    }
  }
  if (has_cifs && !credentials)
    return err_set(ERR_USAGE,
                   "--mount cifs://…: pass --credentials FILE with the lines username=NAME and "
                   "password=SECRET");
  if (has_cifs) return cluster_read_credentials(&spec->credentials, credentials);
  return ERR_OK;
}

/* Options with which `launch` and `doctor` reach these hosts. */
#define REACH_WORDS 16
typedef struct {
  const char *word[REACH_WORDS];
  size_t words;
  char port[16], program[CLUSTER_DIR_MAX + 16];
} Reach;

static void add_option(Reach *r, const char *name, const char *value) {
  if (!value) return;
  r->word[r->words++] = name;
  r->word[r->words++] = value;
}

/* Fills in the options. `dir` is the program directory on the hosts; --remote-program is needed
 * only if that is not the path of this program here. */
static void fill_reach(Reach *r, const ClusterSpec *spec, const OptSet *opts, const char *dir) {
  char own[FILE_PATH_MAX];
  snprintf(r->port, sizeof r->port, "%d", spec->ssh.port);
  snprintf(r->program, sizeof r->program, "%s/bin/trireme", dir);
  add_option(r, "--hosts", opt_text(opts, "hosts"));
  add_option(r, "--hostfile", opt_text(opts, "hostfile"));
  add_option(r, "--inventory", opt_text(opts, "inventory"));
  add_option(r, "--ssh-user", opt_text(opts, "ssh-user"));
  add_option(r, "--ssh-key", spec->ssh.key);
  add_option(r, "--ssh-port", spec->ssh.port ? r->port : NULL);
  bool is_here = strcmp(ssh_program(&spec->ssh, own), r->program) == 0;
  add_option(r, "--remote-program", is_here ? NULL : r->program);
}

/* Prints the command that starts ranks on these hosts. */
static Err print_launch_line(const ClusterSpec *spec, const Reach *r, bool has_problem) {
  Str line = {0};
  for (size_t i = 0; i < r->words; i++) {
    str_addc(&line, ' ');
    str_add_shell(&line, r->word[i]);
  }
  Err err = str_check(&line);
  if (!err)
    printf("\n%s with:\n  trireme launch%s -- train ",
           has_problem ? "When the problems are mended, start ranks on these hosts"
                       : "Start ranks on these hosts",
           str_text(&line));
  if (!err && spec->mounts)
    printf("--data %s/data --run %s/run\n", spec->mount[0].point, spec->mount[0].point);
  else if (!err)
    printf(
        "--data DATA --run RUN\n"
        "DATA: a data set that every host has under this path. RUN: a directory for the "
        "results, "
        "written on %s.\n",
        spec->hosts->host[0].name);
  str_free(&line);
  return err ? err : out_check();
}

static Err run_doctor(const ClusterSpec *spec, const Reach *r) {
  const char *words[REACH_WORDS + 4] = {"doctor"};
  char run[sizeof spec->mount->point + 8];
  size_t n = 1;
  for (size_t i = 0; i < r->words; i++) words[n++] = r->word[i];
  if (spec->mounts) { /* let doctor check that all hosts see the drive and can write to it */
    snprintf(run, sizeof run, "%s/run", spec->mount[0].point);
    words[n++] = "--run";
    words[n++] = run;
  }
  printf("\n");
  return cluster_run_self(words, n);
}

static Err run_up(ClusterSpec *spec, const OptSet *opts) {
  char dir[CLUSTER_DIR_MAX];
  Reach reach = {0};
  TRY(read_mounts(spec, opts));
  TRY(cluster_read_program(&spec->program));
  Err err = cluster_up(spec, dir);
  if (err == ERR_STOPPED) return err;
  ErrRecord failure = err_copy();
  /* Print the ports after an error too, because a closed port may be its cause. */
  TRY(cluster_print_rules(spec, opt_text(opts, "inventory")));
  if (err) return err_give(&failure);
  if (!dir[0])
    return err_set(ERR_WORK,
                   "the hosts have different home directories, so the program has no common "
                   "path; pass an absolute one with --dir");
  fill_reach(&reach, spec, opts, dir);
  if (opt_flag(opts, "doctor")) err = run_doctor(spec, &reach);
  if (err == ERR_STOPPED) return err;
  failure = err_copy();
  TRY(print_launch_line(spec, &reach, err != ERR_OK));
  return err ? err_give(&failure) : ERR_OK;
}

static Err run_down(ClusterSpec *spec, const OptSet *opts) {
  (void)opts;
  return cluster_down(spec);
}

static Err run_status(ClusterSpec *spec, const OptSet *opts) {
  (void)opts;
  TRY(cluster_read_program(&spec->program));
  return cluster_status(spec);
}

static Err run_ssh(ClusterSpec *spec, const OptSet *opts) {
  return cluster_ssh(spec, opt_operand(opts, 1));
}

static Err run_command(ClusterSpec *spec, const OptSet *opts) {
  const char **words;
  size_t count = (size_t)opt_operands(opts) - 1;
  TRY(mem_alloc(&words, count, sizeof *words));
  for (size_t i = 0; i < count; i++) words[i] = opt_operand(opts, (int)i + 1);
  Err err = cluster_run(spec, words, count);
  mem_free(words);
  return err;
}

typedef struct {
  const char *name;
  Err (*run)(ClusterSpec *, const OptSet *);
  int min_operands, max_operands; /* including the name of the subcommand */
  const char *needs;
} Verb;

static const Verb verbs[] = {
    {"up", run_up, 1, 1, ""},
    {"down", run_down, 1, 1, ""},
    {"status", run_status, 1, 1, ""},
    {"ssh", run_ssh, 2, 2, "the number of a host, trireme cluster ssh 1 --inventory FILE"},
    {"run", run_command, 2, CLUSTER_OPERANDS,
     "a command behind '--', trireme cluster run --hosts a,b -- nvidia-smi"},
};

static Err find_verb(const OptSet *opts, const Verb **verb) {
  const char *name = opt_operand(opts, 0);
  int operands = opt_operands(opts);
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
    const Verb *v = &verbs[i];
    if (strcmp(v->name, name) != 0) continue;
    *verb = v;
    if (operands < v->min_operands)
      return err_set(ERR_USAGE, "cluster %s needs %s", v->name, v->needs);
    if (operands > v->max_operands)
      return err_set(ERR_USAGE, "cluster %s: unexpected argument '%s'; leave it out", v->name,
                     opt_operand(opts, v->max_operands));
    return ERR_OK;
  }
  return err_set(ERR_USAGE, "'cluster %s' does not exist; pass up, down, status, ssh or run",
                 name);
}

/* Refuses options that only `cluster up` uses. */
static Err check_options(const Verb *verb, const OptSet *opts) {
  static const char *const of_up[] = {"mount", "mount-options", "credentials", "install",
                                      "doctor"};
  if (verb->run == run_up) return ERR_OK;
  for (size_t i = 0; i < sizeof of_up / sizeof *of_up; i++) {
    if (opt_given(opts, of_up[i]))
      return err_set(ERR_USAGE,
                     "cluster %s has no option --%s, which belongs to cluster up; "
                     "leave it out",
                     verb->name, of_up[i]);
  }
  return ERR_OK;
}

Err cmd_cluster(OptSet *opts) {
  const Verb *verb = NULL;
  HostList hosts = {0};
  log_quiet(opt_flag(opts, "quiet"));
  TRY(find_verb(opts, &verb));
  TRY(check_options(verb, opts));
  ClusterSpec spec = {
      .hosts = &hosts,
      .ssh = {.port = (int)opt_count(opts, "ssh-port"), .key = opt_text(opts, "ssh-key")},
      .dir = opt_text(opts, "dir"),
      .may_install = opt_flag(opts, "install"),
      .timeout = (double)opt_count(opts, "host-timeout")};
  HostSource source = {.hosts = opt_text(opts, "hosts"),
                       .hostfile = opt_text(opts, "hostfile"),
                       .inventory = opt_text(opts, "inventory"),
                       .user = opt_text(opts, "ssh-user")};
  TRY(cluster_check_dir(spec.dir));
  TRY(ssh_check_key(spec.ssh.key));
  Err err = hosts_read(&hosts, &source);
  if (!err && hosts.count == 0)
    err = err_set(ERR_USAGE,
                  "no hosts given; pass --hosts a,b, --hostfile FILE or --inventory FILE");
  if (!err && verb->run != run_ssh) stop_watch();
  if (!err) err = verb->run(&spec, opts);
  if (err == ERR_STOPPED)
    log_warn("stopped by a signal; 'trireme cluster %s' can be repeated", verb->name);
  cluster_free(&spec);
  hosts_free(&hosts);
  return err;
}
