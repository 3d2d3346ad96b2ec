/* Finds and loads plug-ins. Depends on the dynamic linker, file, str. */
#include "base/plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Searches one directory for the plug-in. Adds the directory to `looked`, the list for the error
 * message. */
static Err look_in(const char *dir, const char *name, char *path, Str *looked, bool *found) {
  TRY(file_join(path, dir, name));
  *found = file_exists(path);
  if (looked->len) str_add(looked, ", ");
  str_add(looked, dir);
  return str_check(looked);
}

static Err look_in_list(const char *list, const char *name, char *path, Str *looked,
                        bool *found) {
  char dir[FILE_PATH_MAX];
  for (const char *at = list; *at && !*found;) {
    size_t n = strcspn(at, ":");
    if (n >= sizeof dir)
      return err_set(ERR_USAGE,
                     "a directory in TRIREME_PLUGIN_PATH is too long; use a shorter path");
    memcpy(dir, at, n);
    dir[n] = '\0';
    if (n) TRY(look_in(dir, name, path, looked, found));
    at += n + (at[n] == ':');
  }
  return ERR_OK;
}

static Err find_plugin(const char *name, char *path, Str *looked) {
  char dir[FILE_PATH_MAX], library[FILE_PATH_MAX];
  const char *list = getenv("TRIREME_PLUGIN_PATH");
  bool found = false;
  if (list) TRY(look_in_list(list, name, path, looked, &found));
  TRY(file_program_dir(dir));
  if (!found) TRY(look_in(dir, name, path, looked, &found));
  TRY(file_join(library, dir, "../lib/trireme"));
  if (!found) TRY(look_in(library, name, path, looked, &found));
  if (found) return ERR_OK;
  return err_set(
      ERR_WORK,
      "cannot find the plug-in %s in %s; install it there, or put its directory into "
      "TRIREME_PLUGIN_PATH",
      name, str_text(looked));
}

/* Refuses a plug-in of another build, because program and plug-in share struct layouts. */
static Err check_version(const Plugin *p) {
  const char *version = dlsym(p->handle, "trireme_plugin_version");
  if (!version)
    return err_set(ERR_WORK,
                   "%s is not a plug-in of trireme; remove it or correct TRIREME_PLUGIN_PATH",
                   p->path);
  if (strcmp(version, PLUGIN_VERSION) == 0) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s has version %s, this program %s; install both from the same build",
                 p->path, version, PLUGIN_VERSION);
}

Err plugin_open(Plugin *p, const char *name) {
  Str looked = {0};
  *p = (Plugin){0};
  Err err = find_plugin(name, p->path, &looked);
  str_free(&looked);
  if (err) return err;
  /* RTLD_NOW resolves all symbols here, so a missing library is reported at start-up and not
   * later in a run. */
  p->handle = dlopen(p->path, RTLD_NOW | RTLD_LOCAL);
  if (!p->handle) {
    const char *why = dlerror();
    /* Removes the path that dlerror() puts before its message: the error below contains the
     * path. */
    if (str_starts(why, p->path)) why += strlen(p->path) + 2;
    return err_set(ERR_WORK,
                   "cannot load %s: %s; install the missing library, or remove the plug-in",
                   p->path, why);
  }
  err = check_version(p);
  if (err) plugin_close(p);
  return err;
}

bool plugin_exists(const char *name) {
  Str looked = {0};
  char path[FILE_PATH_MAX];
  Err err = find_plugin(name, path, &looked);
  str_free(&looked);
  return !err;
}

Err plugin_symbol(const Plugin *p, const char *symbol, void *address) {
  void *found = dlsym(p->handle, symbol);
  memcpy(address, &found, sizeof found);
  if (found) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s has no symbol %s; install plug-in and program from the same build",
                 p->path, symbol);
}

void plugin_close(Plugin *p) {
  if (p->handle) dlclose(p->handle);
  *p = (Plugin){0};
}
