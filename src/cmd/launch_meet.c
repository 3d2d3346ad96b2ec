/* trireme launch without ssh: reads the options of the rendezvous and creates key files.
 * Depends on launch/rendezvous, launch/key. */
#include "cmd/launch_meet.h"

#include "base/log.h"
#include "base/out.h"
#include "base/str.h"

Err launch_make_key(const OptSet *opts) {
  const char *path = opt_text(opts, "new-key");
  if (opt_operands(opts) || opt_given(opts, "rdzv-endpoint"))
    return err_set(ERR_USAGE,
                   "--new-key writes a key and starts nothing: pass it without --rdzv-endpoint "
                   "and without a command");
  TRY(key_create(path));
  log_info("key written to %s; copy it to every machine, where only you can read it", path);
  return ERR_OK;
}

static Err read_options(const OptSet *opts, RendezvousSpec *spec) {
  const char *key = opt_text(opts, "rdzv-key");
  if (!key)
    return err_set(
        ERR_USAGE,
        "--rdzv-endpoint needs --rdzv-key FILE, the same key on every machine; make one "
        "with 'trireme launch --new-key FILE'");
  if (!opt_given(opts, "nnodes"))
    return err_set(
        ERR_USAGE,
        "--rdzv-endpoint needs the number of machines to wait for; pass --nnodes N or MIN:MAX");
  spec->id = opt_text(opts, "rdzv-id");
  spec->timeout = opt_real(opts, "join-timeout");
  TRY(rendezvous_check_id(spec->id));
  TRY(rendezvous_parse_endpoint(opt_text(opts, "rdzv-endpoint"), &spec->endpoint));
  return key_read(key, &spec->key);
}

/* Quoted for a shell, two commands are equal only if each of their words is. */
static Err quote_command(const OptSet *opts, Str *command) {
  for (int i = 0; i < opt_operands(opts); i++) {
    if (i) str_addc(command, ' ');
    str_add_shell(command, opt_operand(opts, i));
  }
  return str_check(command);
}

Err launch_meet(const OptSet *opts, int max, Rendezvous **head, Channel **agent) {
  RendezvousSpec spec = {.has_others = max > 1};
  Str command = {0};
  *head = NULL;
  *agent = NULL;
  Err err = read_options(opts, &spec);
  if (!err) err = quote_command(opts, &command);
  spec.command = str_text(&command);
  if (!err) err = rendezvous_meet(&spec, head, agent);
  key_wipe(&spec.key);
  str_free(&command);
  if (err) return err;
  const char *host = spec.endpoint.host;
  if (*head)
    log_info("rendezvous '%s': this machine is the head, others join at %s port %d", spec.id,
             host, spec.endpoint.port);
  else
    log_info("rendezvous '%s': joined the head at %s port %d, which prints and logs the run",
             spec.id, host, spec.endpoint.port);
  return ERR_OK;
}
