/* Builds the arguments of ssh, and explains its failures. Depends on hosts, base. */
#include "launch/ssh.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

/* A public key suffices if ssh's agent has the private one. */
static bool has_public_key(const char *path) {
  char public_key[FILE_PATH_MAX];
  int len = snprintf(public_key, sizeof public_key, "%s.pub", path);
  return len < (int)sizeof public_key && access(public_key, R_OK) == 0;
}

Err ssh_check_key(const char *path) {
  char expanded[FILE_PATH_MAX];
  const char *home = getenv("HOME");
  struct stat info;
  if (!path || strpbrk(path, "%$")) return ERR_OK;
  snprintf(expanded, sizeof expanded, "%s", path);
  if (path[0] == '~' && (path[1] != '/' || !home)) return ERR_OK;
  if (path[0] == '~') snprintf(expanded, sizeof expanded, "%s%s", home, path + 1);
  bool is_there = access(expanded, R_OK) == 0;
  int why = errno;
  if (!is_there && !has_public_key(expanded))
    return err_set(ERR_USAGE,
                   "--ssh-key %s: %s; pass the file of a private key that you may read", path,
                   strerror(why));
  if (is_there && stat(expanded, &info) == 0 && S_ISDIR(info.st_mode))
    return err_set(ERR_USAGE,
                   "--ssh-key %s is a directory; pass the file of a private key in it", path);
  return ERR_OK;
}

static Err add_word(SshCall *call, const char *word) {
  if (call->words == SSH_WORDS)
    return err_set(ERR_WORK, "a call of ssh has too many arguments");
  TRY(mem_dup(&call->word[call->words], word, strlen(word)));
  call->words++;
  return ERR_OK;
}

static Err add_setting(SshCall *call, const char *setting) {
  TRY(add_word(call, "-o"));
  return add_word(call, setting);
}

/* Adds the settings of every call. A host that is down is detected in 10 s, a broken connection
 * in 15 s. ControlMaster=no: uses an existing shared connection of the user, but creates none
 * that would outlive this program. LogLevel: ensures the texts that ssh_judge recognizes. */
static Err add_settings(SshCall *call) {
  static const char *const settings[] = {
      "BatchMode=yes",         "ConnectTimeout=10",     "ConnectionAttempts=1",
      "ServerAliveInterval=5", "ServerAliveCountMax=3", "ClearAllForwardings=yes",
      "ForwardAgent=no",       "ForwardX11=no",         "PermitLocalCommand=no",
      "ControlMaster=no",      "LogLevel=INFO",         "RequestTTY=no",
  };
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    TRY(add_setting(call, settings[i]));
  return ERR_OK;
}

static Err add_target(SshCall *call, const Host *host, const SshOptions *options) {
  char port[16];
  if (options->port) {
    snprintf(port, sizeof port, "%d", options->port);
    TRY(add_word(call, "-p"));
    TRY(add_word(call, port));
  }
  if (options->key) {
    TRY(add_word(call, "-i"));
    TRY(add_word(call, options->key));
    /* Other keys offered first could exhaust the server's limit of attempts. */
    TRY(add_setting(call, "IdentitiesOnly=yes"));
  }
  if (host->user[0]) {
    TRY(add_word(call, "-l"));
    TRY(add_word(call, host->user));
  }
  /* Ends the options: a host that begins with '-' is not taken as an option. */
  TRY(add_word(call, "--"));
  return add_word(call, host->address);
}

Err ssh_call_command(SshCall *call, const Host *host, const SshOptions *options,
                     const char *const *remote, bool must_check) {
  *call = (SshCall){0};
  TRY(add_word(call, "ssh"));
  TRY(add_settings(call));
  if (must_check) TRY(add_setting(call, "StrictHostKeyChecking=yes"));
  TRY(add_target(call, host, options));
  Str command = {0};
  for (; *remote; remote++) {
    if (command.len) str_addc(&command, ' ');
    str_add_shell(&command, *remote);
  }
  Err err = str_check(&command);
  if (!err) err = add_word(call, str_text(&command));
  str_free(&command);
  return err;
}

Err ssh_call_settings(SshCall *call, const Host *host, const SshOptions *options) {
  *call = (SshCall){0};
  TRY(add_word(call, "ssh"));
  TRY(add_word(call, "-G"));
  return add_target(call, host, options);
}

void ssh_call_free(SshCall *call) {
  for (size_t i = 0; i < call->words; i++) mem_free(call->word[i]);
  *call = (SshCall){0};
}

bool ssh_is_check_off(const char *settings) {
  static const char key[] = "stricthostkeychecking ";
  for (const char *line = settings; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncasecmp(line, key, sizeof key - 1) != 0) continue;
    const char *value = line + sizeof key - 1;
    return str_starts(value, "false") || str_starts(value, "no") || str_starts(value, "off");
  }
  return false;
}

const char *const ssh_failure_id[SSH_FAILURES] = {
    [SSH_OTHER] = "other",
    [SSH_KEY_REFUSED] = "key-refused",
    [SSH_KEY_FILE] = "key-file",
    [SSH_HOST_KEY_UNKNOWN] = "host-key-unknown",
    [SSH_HOST_KEY_CHANGED] = "host-key-changed",
    [SSH_REFUSED] = "connection-refused",
    [SSH_TIMED_OUT] = "timed-out",
    [SSH_UNREACHABLE] = "unreachable",
    [SSH_NAME_UNKNOWN] = "name-unknown",
    [SSH_CLOSED] = "closed",
    [SSH_HANGS] = "hangs",
    [SSH_NO_PROGRAM] = "no-program",
    [SSH_WRONG_PROGRAM] = "wrong-program",
    [SSH_OTHER_VERSION] = "other-version",
};

/* Texts of OpenSSH's client, which are not translated. The first one that is found decides: a
 * changed host key also prints "failed verification", and an unusable key file also "Permission
 * denied". */
static const struct {
  const char *text;
  SshFailure failure;
} known[] = {
    {"REMOTE HOST IDENTIFICATION HAS CHANGED", SSH_HOST_KEY_CHANGED},
    {"Host key verification failed", SSH_HOST_KEY_UNKNOWN},
    {"UNPROTECTED PRIVATE KEY FILE", SSH_KEY_FILE},
    /* "Identity file … not accessible: No such file or directory" */
    {"Identity file ", SSH_KEY_FILE},
    {"Load key ", SSH_KEY_FILE}, /* "Load key …: invalid format" or "…: Permission denied" */
    {"Permission denied", SSH_KEY_REFUSED},
    {"Too many authentication failures", SSH_KEY_REFUSED},
    {"Could not resolve hostname", SSH_NAME_UNKNOWN},
    {"Connection refused", SSH_REFUSED},
    {"timed out", SSH_TIMED_OUT},
    {"not responding", SSH_TIMED_OUT},
    {"No route to host", SSH_UNREACHABLE},
    {"Network is unreachable", SSH_UNREACHABLE},
    {"Connection closed", SSH_CLOSED},
    {"Connection reset", SSH_CLOSED},
    {"Broken pipe", SSH_CLOSED},
};

SshFailure ssh_judge(int exit_status, const char *said) {
  if (exit_status == 127) return SSH_NO_PROGRAM;
  if (exit_status == 126) return SSH_WRONG_PROGRAM;
  /* Exit status of the remote command, not of ssh. */
  if (exit_status >= 0 && exit_status != 255) return SSH_OTHER;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strstr(said, known[i].text)) return known[i].failure;
  return SSH_OTHER;
}

/* Copies the last line that ssh printed, without the carriage return that ssh adds. If ssh cannot
 * use the key file, the line about that is copied instead: the last one only says that no other
 * key was accepted. */
static void copy_line(char *out, size_t room, const char *said) {
  const char *key = strstr(said, "Load key ");
  if (!key) key = strstr(said, "Identity file ");
  size_t end = key ? (size_t)(key - said) + strcspn(key, "\n") : strlen(said);
  while (end && (said[end - 1] == '\n' || said[end - 1] == '\r')) end--;
  size_t begin = end;
  while (begin && said[begin - 1] != '\n') begin--;
  snprintf(out, room, "%.*s", (int)(end - begin), said + begin);
}

const char *ssh_program(const SshOptions *options, char own[FILE_PATH_MAX]) {
  if (options->program) return options->program;
  ssize_t len = readlink("/proc/self/exe", own, FILE_PATH_MAX - 1);
  own[len > 0 ? len : 0] = '\0';
  return len > 0 ? own : "trireme";
}

/* Appends a command for the user to try by hand, such as "ssh -p 4444 ann@b". */
static void add_call(Str *text, const Host *host, const SshOptions *options) {
  str_add(text, "ssh");
  if (options->port) str_addf(text, " -p %d", options->port);
  if (options->key) {
    str_add(text, " -i ");
    str_add_shell(text, options->key);
  }
  str_addc(text, ' ');
  if (host->user[0]) str_addf(text, "%s@", host->user);
  str_add(text, host->address);
}

/* The error is "host NAME " + what + " (ssh's last line); " + remedy, and for some failures the
 * ssh command to try. %s: path of the program. */
static const struct {
  const char *what, *remedy;
  bool has_call;
} texts[SSH_FAILURES] = {
    [SSH_OTHER] = {"cannot be used through ssh", "try it by hand: ", true},
    [SSH_KEY_REFUSED] =
        {"refuses your ssh key",
         "add the public key to ~/.ssh/authorized_keys there, for example with "
         "ssh-copy-id, or pass another key with --ssh-key FILE or another user with "
         "USER@HOST",
         false},
    [SSH_KEY_FILE] = {"was not reached, because ssh cannot use the private key",
                      "the file must exist, be a private key (not the .pub file), belong to "
                      "you and have mode 0600 (chmod 600 FILE)",
                      false},
    [SSH_HOST_KEY_UNKNOWN] = {"has a host key that is not known here",
                              "connect once by hand and compare the fingerprint: ", true},
    [SSH_HOST_KEY_CHANGED] =
        {"has another host key than the one known here",
         "it is another machine, or was installed again; if you know why, "
         "remove the old key with ssh-keygen -R and connect once by hand: ",
         true},
    [SSH_REFUSED] = {"refuses the connection",
                     "start the ssh daemon there, or pass its port with --ssh-port N", false},
    [SSH_TIMED_OUT] =
        {"does not answer",
         "check that it runs and that a firewall or security group lets this machine "
         "in: ",
         true},
    [SSH_UNREACHABLE] = {"cannot be reached",
                         "check its address and the network of this machine", false},
    [SSH_NAME_UNKNOWN] = {"has an unknown name", "check its spelling or use its address",
                          false},
    [SSH_CLOSED] = {"closed the connection",
                    "look at the log of the ssh daemon there, and try it by hand: ", true},
    [SSH_HANGS] = {"does not start a command",
                   "the login shell or its start-up files there may hang, or the machine is "
                   "overloaded; try it by hand: ",
                   true},
    [SSH_NO_PROGRAM] =
        {"has no %s",
         "install trireme there under this path, for example with 'trireme cluster "
         "up', or in a directory that all machines share",
         false},
    [SSH_WRONG_PROGRAM] = {"cannot execute %s",
                           "it must have permission to execute and be built for that machine",
                           false},
    [SSH_OTHER_VERSION] = {"has another version of trireme than this machine at %s",
                           "install version " TRIREME_VERSION " there", false},
};

/* Appends `format`, in which one %s may occur, with `value`. */
static void add_filled(Str *text, const char *format, const char *value) {
  const char *mark = strstr(format, "%s");
  str_addn(text, format, mark ? (size_t)(mark - format) : strlen(format));
  if (!mark) return;
  str_add(text, value);
  str_add(text, mark + 2);
}

Err ssh_explain(SshFailure failure, const Host *host, const SshOptions *options,
                const char *said) {
  char line[300];
  char own[FILE_PATH_MAX];
  Str text = {0};
  copy_line(line, sizeof line, said);
  str_addf(&text, "host %s ", host->name);
  add_filled(&text, texts[failure].what, ssh_program(options, own));
  str_addf(&text, " (%s); %s", line[0] ? line : "ssh printed nothing", texts[failure].remedy);
  if (texts[failure].has_call) add_call(&text, host, options);
  Err err = str_check(&text);
  if (!err) err = err_set(ERR_WORK, "%s", str_text(&text));
  str_free(&text);
  return err;
}
