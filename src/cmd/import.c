/* trireme import: makes a model directory of a model of Hugging Face. Depends on model/hf_import. */
#include <stdio.h>

#include "base/log.h"
#include "cmd/cmd.h"
#include "model/hf_import.h"

Err cmd_import(OptSet *opts) {
  const char *from = opt_text(opts, "from"), *out = opt_text(opts, "out");
  char about[256], count[32];
  HfImported imported;
  log_quiet(opt_flag(opts, "quiet"));
  TRY(cmd_refuse_ranks("import", "run it once, without mpirun"));
  if (!from)
    return err_set(ERR_USAGE, "no model given: pass --from DIR, a directory of Hugging Face");
  if (!out) return err_set(ERR_USAGE, "no output given: pass --out DIR, a new directory");
  TRY((opt_flag(opts, "pairs") ? hf_import_pairs : hf_import)(from, out, &imported));
  imported.config.family->describe(&imported.config, about, sizeof about);
  log_info("imported %s: %s, %s parameters", out, about,
           str_of_count(count, imported.parameters));
  return ERR_OK;
}
