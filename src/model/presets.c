/* Finds the family of a preset. Depends on model.h. */
#include "model/presets.h"

#include <string.h>

/* Returns true if `name` is in a list such as "tiny|small". */
static bool is_listed(const char *list, const char *name) {
  size_t n = strlen(name);
  for (const char *at = list; *at;) {
    size_t len = strcspn(at, "|");
    if (len == n && memcmp(at, name, n) == 0) return true;
    at += len + (at[len] == '|');
  }
  return false;
}

Err presets_configure(ModelConfig *config, const char *preset, int vocab) {
  for (const ModelFamily *const *f = model_families; *f; f++)
    if (is_listed((*f)->presets, preset)) return (*f)->configure_preset(config, preset, vocab);
  return err_set(ERR_USAGE, "--preset %s: there is no such preset; see 'trireme help train'",
                 preset);
}
