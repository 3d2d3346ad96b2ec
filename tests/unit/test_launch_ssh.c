/* Arguments of ssh, explanations of its failures, and the start of agents, with a script
 * instead of ssh. tests/cluster/ssh.bats uses a real daemon. Depends on launch/ssh. */
#include "support.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/progress.h"
#include "launch/ssh.h"

static const Host host_b = {.user = "ann", .address = "10.0.0.2", .name = "b"};

static void join_words(const SshCall *call, Str *out) {
  for (size_t i = 0; i < call->words; i++) str_addf(out, "%s<%s>", i ? " " : "", call->word[i]);
}

static void assert_has(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("\"%s\" lacks \"%s\"", text, part);
}

static void assert_lacks(const char *text, const char *part) {
  if (strstr(text, part)) fail_msg("\"%s\" has \"%s\"", text, part);
}

/* Tests of ssh's arguments. */

static void test_ssh_call_has_every_option(void **state) {
  (void)state;
  SshCall call;
  Str text = {0};
  SshOptions options = {.port = 4444, .key = "/k/id"};
  OK(ssh_call_command(&call, &host_b, &options, (const char *const[]){"true", NULL}, false));
  join_words(&call, &text);
  assert_true(str_starts(str_text(&text), "<ssh> <-o> <BatchMode=yes>"));
  assert_has(str_text(&text), "<ConnectTimeout=10>");
  assert_has(str_text(&text), "<ServerAliveInterval=5>");
  assert_has(str_text(&text), "<ForwardAgent=no>");
  assert_lacks(str_text(&text), "StrictHostKeyChecking");
  assert_true(str_ends(str_text(&text),
                       "<-p> <4444> <-i> </k/id> <-o> <IdentitiesOnly=yes> <-l> <ann> <--> "
                       "<10.0.0.2> <true>"));
  ssh_call_free(&call);
  str_free(&text);
}

static void test_ssh_call_remote_words_are_quoted_once(void **state) {
  (void)state;
  SshCall call;
  static const char *const remote[] = {"exec", "/opt/my program", "it's", "$HOME;`x`", "",
                                       NULL};
  OK(ssh_call_command(&call, &host_b, &(SshOptions){0}, remote, false));
  const char *last = call.word[call.words - 1];
  /* A shell must parse the command to the same words. */
  char command[512];
  char got[256] = "";
  snprintf(command, sizeof command, "set -- %s; shift; printf '<%%s>' \"$@\"", last);
  FILE *shell = popen(command, "r");
  assert_non_null(shell);
  assert_non_null(fgets(got, sizeof got, shell));
  pclose(shell);
  assert_string_equal(got, "</opt/my program><it's><$HOME;`x`><>");
  ssh_call_free(&call);
}

static void test_ssh_call_must_check_sets_strict(void **state) {
  (void)state;
  SshCall call;
  Str text = {0};
  OK(ssh_call_command(&call, &host_b, &(SshOptions){0}, (const char *const[]){"x", NULL},
                      true));
  join_words(&call, &text);
  assert_has(str_text(&text), "<-o> <StrictHostKeyChecking=yes>");
  ssh_call_free(&call);
  str_free(&text);
}

static void test_ssh_settings_check_off_is_found(void **state) {
  (void)state;
  assert_true(ssh_is_check_off("user a\nstricthostkeychecking false\nport 22\n"));
  assert_true(ssh_is_check_off("stricthostkeychecking no\n"));
  assert_true(ssh_is_check_off("stricthostkeychecking off"));
  assert_false(ssh_is_check_off("stricthostkeychecking ask\n"));
  assert_false(ssh_is_check_off("stricthostkeychecking accept-new\n"));
  assert_false(ssh_is_check_off("stricthostkeychecking true\nx no\n"));
  assert_false(ssh_is_check_off(""));
}

/* Tests of failures, with texts of OpenSSH 9.2. */

static const struct {
  int status;
  const char *said;
  SshFailure failure;
  const char *says; /* text that the error must contain */
} failures[] = {
    {255, "ann@10.0.0.2: Permission denied (publickey).\r\n", SSH_KEY_REFUSED,
     "host b refuses your ssh key (ann@10.0.0.2: Permission denied (publickey).); add the "
     "public "
     "key"},
    {255, "Received disconnect from 10.0.0.2 port 22:2: Too many authentication failures\r\n",
     SSH_KEY_REFUSED, "refuses your ssh key"},
    {255,
     "Warning: Identity file /k/id not accessible: No such file or directory.\n"
     "ann@10.0.0.2: Permission denied (publickey).\n",
     SSH_KEY_FILE,
     "cannot use the private key (Warning: Identity file /k/id not accessible: No such file or "
     "directory.); the file must exist"},
    {255,
     "Load key \"/k/id.pub\": invalid format\r\nann@10.0.0.2: Permission denied (publickey).\n",
     SSH_KEY_FILE,
     "cannot use the private key (Load key \"/k/id.pub\": invalid format); the file must "
     "exist, "
     "be a private key (not the .pub file)"},
    {255,
     "@ WARNING: UNPROTECTED PRIVATE KEY FILE! @\nLoad key \"/k/id\": bad permissions\n"
     "ann@b: Permission denied (publickey).\n",
     SSH_KEY_FILE, "mode 0600"},
    {255,
     "No ED25519 host key is known for 10.0.0.2 and you have requested strict checking.\n"
     "Host key verification failed.\n",
     SSH_HOST_KEY_UNKNOWN, "compare the fingerprint: ssh -p 4444 -i /k/id ann@10.0.0.2"},
    {255,
     "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n",
     SSH_HOST_KEY_CHANGED, "another host key than the one known here"},
    {255, "ssh: connect to host 10.0.0.2 port 22: Connection refused\n", SSH_REFUSED,
     "--ssh-port N"},
    {255, "ssh: connect to host 10.0.0.2 port 22: Connection timed out\n", SSH_TIMED_OUT,
     "host b does not answer"},
    {255, "Connection timed out during banner exchange\n", SSH_TIMED_OUT, "does not answer"},
    {255, "ssh: connect to host 10.0.0.2 port 22: No route to host\n", SSH_UNREACHABLE,
     "cannot be reached"},
    {255, "ssh: Could not resolve hostname b: Name or service not known\n", SSH_NAME_UNKNOWN,
     "check its spelling"},
    {255, "kex_exchange_identification: Connection closed by remote host\n", SSH_CLOSED,
     "closed the connection"},
    {127, "bash: line 1: /opt/trireme: No such file or directory\n", SSH_NO_PROGRAM,
     "host b has no /opt/trireme"},
    {126, "bash: line 1: /opt/trireme: cannot execute binary file: Exec format error\n",
     SSH_WRONG_PROGRAM, "cannot execute /opt/trireme"},
    {255, "no matching cipher found\n", SSH_OTHER, "no matching cipher found"},
    /* Exit status of the remote command. */
    {1, "Permission denied\n", SSH_OTHER, "try it by hand: ssh"},
    {-1, "ssh: connect to host 10.0.0.2 port 22: Connection refused\n", SSH_REFUSED, "refuses"},
    {255, "", SSH_OTHER, "ssh printed nothing"},
};

static void test_ssh_failures_are_named_with_remedies(void **state) {
  (void)state;
  SshOptions options = {.port = 4444, .key = "/k/id", .program = "/opt/trireme"};
  for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
    SshFailure failure = ssh_judge(failures[i].status, failures[i].said);
    if (failure != failures[i].failure)
      fail_msg("case %zu is judged as %s", i, ssh_failure_id[failure]);
    assert_int_equal(ssh_explain(failure, &host_b, &options, failures[i].said), ERR_WORK);
    assert_says(failures[i].says);
  }
}

static void test_ssh_failure_text_cannot_command_a_terminal(void **state) {
  (void)state;
  assert_int_equal(ssh_explain(SSH_OTHER, &host_b, &(SshOptions){0}, "a\x1b[2Jb\n"), ERR_WORK);
  assert_false(strchr(err_message(), '\x1b'));
}

static void test_ssh_every_failure_has_an_id_and_a_text(void **state) {
  (void)state;
  for (int f = 0; f < SSH_FAILURES; f++) {
    assert_non_null(ssh_failure_id[f]);
    assert_int_equal(ssh_explain((SshFailure)f, &host_b, &(SshOptions){0}, "x"), ERR_WORK);
    assert_says("host b ");
  }
}

/* Tests of agents, with a script named ssh. */

/* Creates the script `ssh`: prints `settings` for -G, otherwise runs `body`. */
static void install_ssh(const char *settings, const char *body) {
  Str text = {0};
  str_addf(&text, "#!/bin/sh\nif [ \"$1\" = -G ]; then echo '%s'; exit 0; fi\n%s\n", settings,
           body);
  OK(file_write(at("ssh"), text.s, text.len));
  str_free(&text);
  assert_int_equal(chmod(at("ssh"), 0755), 0);
  setenv("PATH", scratch, 1);
}

static char old_path[4096];

static int keep_path(void **state) {
  (void)state;
  snprintf(old_path, sizeof old_path, "%s", getenv("PATH"));
  return 0;
}

static int restore_path(void **state) {
  (void)state;
  return setenv("PATH", old_path, 1);
}

static SshState await_agent(SshAgent *agent) {
  for (;;) {
    struct pollfd fds[2];
    SshState now = ssh_agent_advance(agent, progress_clock());
    if (now != SSH_STARTING) return now;
    poll(fds, (nfds_t)ssh_agent_poll_for(agent, fds), 20);
  }
}

static const SshOptions options_b = {.program = "/opt/trireme"};

static void test_ssh_agent_greets_and_gives_its_pipes(void **state) {
  (void)state;
  SshAgent *agent;
  install_ssh("stricthostkeychecking ask",
              "echo Welcome to b; echo 'trireme-agent " TRIREME_VERSION
              "'; read line; echo \"got $line\"");
  OK(ssh_agent_start(&agent, &host_b, &options_b, progress_clock()));
  assert_int_equal(await_agent(agent), SSH_READY);
  int from;
  int to;
  ssh_agent_take(agent, &from, &to);
  assert_int_equal(write(to, "hello\n", 6), 6);
  char text[32] = "";
  struct pollfd fd = {from, POLLIN, 0};
  assert_int_equal(poll(&fd, 1, 60000), 1);
  /* The greeting is not part of what the caller reads. */
  assert_int_equal(read(from, text, sizeof text - 1), 10);
  assert_string_equal(text, "got hello\n");
  close(from);
  close(to);
  ssh_agent_close(agent);
}

static void test_ssh_agent_check_off_becomes_strict(void **state) {
  (void)state;
  SshAgent *agent;
  install_ssh("stricthostkeychecking false",
              "case \"$*\" in *StrictHostKeyChecking=yes*) echo 'trireme-agent " TRIREME_VERSION
              "';; esac");
  OK(ssh_agent_start(&agent, &host_b, &options_b, progress_clock()));
  assert_int_equal(await_agent(agent), SSH_READY);
  ssh_agent_close(agent);
}

static void test_ssh_agent_setting_of_the_user_is_kept(void **state) {
  (void)state;
  SshAgent *agent;
  install_ssh(
      "stricthostkeychecking accept-new",
      "case \"$*\" in *StrictHostKeyChecking*) ;; *) echo 'trireme-agent " TRIREME_VERSION
      "';; esac");
  OK(ssh_agent_start(&agent, &host_b, &options_b, progress_clock()));
  assert_int_equal(await_agent(agent), SSH_READY);
  ssh_agent_close(agent);
}

static void assert_agent_fails(const char *body, SshFailure failure, const char *says) {
  SshAgent *agent;
  install_ssh("stricthostkeychecking ask", body);
  OK(ssh_agent_start(&agent, &host_b, &options_b, progress_clock()));
  assert_int_equal(await_agent(agent), SSH_FAILED);
  assert_says(says);
  assert_int_equal(ssh_agent_failure(agent), failure);
  /* The state is permanent. */
  assert_int_equal(ssh_agent_advance(agent, progress_clock()), SSH_FAILED);
  assert_says(says);
  ssh_agent_close(agent);
}

static void test_ssh_agent_refused_key_is_named(void **state) {
  (void)state;
  assert_agent_fails("echo 'ann@b: Permission denied (publickey).' >&2; exit 255",
                     SSH_KEY_REFUSED, "host b refuses your ssh key");
}

static void test_ssh_agent_missing_program_is_named(void **state) {
  (void)state;
  assert_agent_fails("echo 'sh: /opt/trireme: not found' >&2; exit 127", SSH_NO_PROGRAM,
                     "host b has no /opt/trireme");
}

static void test_ssh_agent_other_version_is_named(void **state) {
  (void)state;
  assert_agent_fails("echo trireme-agent 99.0; cat", SSH_OTHER_VERSION,
                     "(trireme-agent 99.0); install version " TRIREME_VERSION);
}

static void test_ssh_agent_endless_noise_is_refused(void **state) {
  (void)state;
  assert_agent_fails("while :; do echo noise; done", SSH_OTHER, "print without end");
}

static void test_ssh_agent_that_says_nothing_times_out(void **state) {
  (void)state;
  SshAgent *agent;
  install_ssh("stricthostkeychecking ask", "read line");
  double now = progress_clock();
  OK(ssh_agent_start(&agent, &host_b, &options_b, now));
  assert_int_not_equal(ssh_agent_advance(agent, now), SSH_FAILED);
  assert_int_equal(ssh_agent_advance(agent, now + 41), SSH_FAILED);
  assert_int_equal(ssh_agent_failure(agent), SSH_HANGS);
  assert_says("no agent within 40 s");
  ssh_agent_close(agent);
}

static void test_ssh_agent_without_ssh_is_an_error(void **state) {
  (void)state;
  SshAgent *agent;
  setenv("PATH", "/nonexistent", 1);
  assert_int_equal(ssh_agent_start(&agent, &host_b, &options_b, 0), ERR_WORK);
  assert_says("cannot start ssh");
  assert_null(agent);
}

static void test_ssh_agent_standard_error_is_bounded(void **state) {
  (void)state;
  SshAgent *agent;
  install_ssh("stricthostkeychecking ask",
              "i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done; echo "
              "'trireme-agent " TRIREME_VERSION
              "'; exec 1>&-; echo end >&2; exec 2>&-; read line");
  OK(ssh_agent_start(&agent, &host_b, &options_b, progress_clock()));
  assert_int_equal(await_agent(agent), SSH_READY);
  struct pollfd fds[2];
  while (ssh_agent_poll_for(agent, fds) > 0) {
    poll(fds, 1, 1000);
    ssh_agent_advance(agent, progress_clock());
  }
  Str lines = {0};
  ssh_agent_take_lines(agent, &lines);
  assert_true(lines.len <= 8192);
  assert_true(str_ends(str_text(&lines), "line 2999\nend\n"));
  str_clear(&lines);
  ssh_agent_take_lines(agent, &lines);
  assert_int_equal(lines.len, 0);
  str_free(&lines);
  ssh_agent_close(agent);
}

#define AGENT_TEST(name) cmocka_unit_test_setup_teardown(name, keep_path, restore_path)

static void check_key_refused(const char *path, const char *reason) {
  assert_int_equal(ssh_check_key(path), ERR_USAGE);
  assert_says(reason);
}

static void test_ssh_key_missing_file_is_refused(void **state) {
  (void)state;
  check_key_refused("/nowhere/id", "--ssh-key /nowhere/id: No such file or directory; pass");
}

static void test_ssh_key_below_home_is_found(void **state) {
  (void)state;
  char home[] = "/tmp/trireme-home-XXXXXX", path[64];
  assert_non_null(mkdtemp(home));
  setenv("HOME", home, 1);
  check_key_refused("~/id", "--ssh-key ~/id: No such file");
  snprintf(path, sizeof path, "%s/id.pub", home);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fclose(f);
  OK(ssh_check_key("~/id")); /* the private key may be in ssh's agent */
  check_key_refused("~/", "is a directory");
  unlink(path);
  rmdir(home);
}

static void test_ssh_key_that_ssh_expands_is_left_to_ssh(void **state) {
  (void)state;
  OK(ssh_check_key(NULL));
  OK(ssh_check_key("%d/.ssh/no-such-key"));
  OK(ssh_check_key("~no-such-user/id"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ssh_key_missing_file_is_refused),
      cmocka_unit_test(test_ssh_key_below_home_is_found),
      cmocka_unit_test(test_ssh_key_that_ssh_expands_is_left_to_ssh),
      cmocka_unit_test(test_ssh_call_has_every_option),
      cmocka_unit_test(test_ssh_call_remote_words_are_quoted_once),
      cmocka_unit_test(test_ssh_call_must_check_sets_strict),
      cmocka_unit_test(test_ssh_settings_check_off_is_found),
      cmocka_unit_test(test_ssh_failures_are_named_with_remedies),
      cmocka_unit_test(test_ssh_failure_text_cannot_command_a_terminal),
      cmocka_unit_test(test_ssh_every_failure_has_an_id_and_a_text),
      AGENT_TEST(test_ssh_agent_greets_and_gives_its_pipes),
      AGENT_TEST(test_ssh_agent_check_off_becomes_strict),
      AGENT_TEST(test_ssh_agent_setting_of_the_user_is_kept),
      AGENT_TEST(test_ssh_agent_refused_key_is_named),
      AGENT_TEST(test_ssh_agent_missing_program_is_named),
      AGENT_TEST(test_ssh_agent_other_version_is_named),
      AGENT_TEST(test_ssh_agent_endless_noise_is_refused),
      AGENT_TEST(test_ssh_agent_that_says_nothing_times_out),
      AGENT_TEST(test_ssh_agent_without_ssh_is_an_error),
      AGENT_TEST(test_ssh_agent_standard_error_is_bounded),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
