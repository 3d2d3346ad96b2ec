/* trireme export: writes a model for other programs. Depends on model/export, infer. */
#include <string.h>

#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/infer.h"
#include "model/export.h"

/* Returns the form that --to names; the option table allows no other values. */
static const ExportForm *find_form(const char *name) {
  const ExportForm *const *form = export_forms;
  while (strcmp((*form)->name, name) != 0) form++;
  return *form;
}

/* Verifies the files of a model whose model.json has no checksums. */
static Err check_files(const char *dir) {
  ModelConfig config;
  StoreSums sums;
  TRY(store_load_config(&config, &sums, dir));
  return sums.known ? ERR_OK : infer_check_older_model(dir);
}

Err cmd_export(OptSet *opts) {
  const char *to = opt_text(opts, "to"), *out = opt_text(opts, "out");
  char about[256], count[32], dir[FILE_PATH_MAX];
  Exported exported;
  log_quiet(opt_flag(opts, "quiet"));
  TRY(cmd_refuse_ranks("export", "run it once, without mpirun"));
  if (!to) return err_set(ERR_USAGE, "no form given: pass --to hf or --to ctranslate2");
  if (!out) return err_set(ERR_USAGE, "no output given: pass --out DIR, a new directory");
  TRY(infer_find_model("", opt_operand(opts, 0), dir));
  TRY(check_files(dir));
  TRY(export_model(find_form(to), dir, out, &exported));
  exported.config.family->describe(&exported.config, about, sizeof about);
  log_info("exported %s for %s: %s, %s parameters", out, to, about,
           str_of_count(count, exported.parameters));
  return ERR_OK;
}
