/* trireme help: prints help texts, man page and bash completion from the option table. Depends on
 * base/opt. */
#include <string.h>

#include "base/out.h"
#include "cmd/cmd.h"

Err cmd_help(OptSet *opts) {
  Str out = {0};
  const char *name = opt_operand(opts, 0);
  Err err = ERR_OK;
  if (opt_flag(opts, "man"))
    opt_man(&out, TRIREME_VERSION);
  else if (opt_flag(opts, "completion"))
    opt_completion(&out);
  else if (!name)
    opt_help(&out, NULL);
  else if (strcmp(name, "aliases") == 0)
    opt_help_aliases(&out);
  else if (opt_command(name))
    opt_help(&out, opt_command(name));
  else
    err = err_set(ERR_USAGE, "there is no command '%s'%s", name, opt_suggest_command(name));
  if (!err) err = str_check(&out);
  if (!err) err = out_print(str_text(&out));
  str_free(&out);
  return err;
}
