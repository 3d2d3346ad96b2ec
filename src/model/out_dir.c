/* A new directory that is complete or absent. Depends on out_dir.h. */
#include "model/out_dir.h"

#include <stdio.h>

Err out_dir_begin(const char *out, char path[FILE_PATH_MAX]) {
  int len = snprintf(path, FILE_PATH_MAX, "%s", out);
  if (len < 0 || len >= FILE_PATH_MAX)
    return err_set(ERR_USAGE, "--out %s: the path is too long", out);
  while (len > 1 && path[len - 1] == '/') path[--len] = '\0';
  if (file_exists(path))
    return err_set(ERR_USAGE, "--out %s exists; pass the path of a new directory", out);
  return ERR_OK;
}

Err out_dir_write(const char *path, Err (*write)(const void *self, const char *dir),
                  const void *self) {
  char partial[FILE_PATH_MAX];
  int len = snprintf(partial, sizeof partial, "%s.partial", path);
  if (len < 0 || (size_t)len >= sizeof partial)
    return err_set(ERR_USAGE, "--out %s: the path is too long", path);
  if (file_exists(partial)) TRY(file_remove_all(partial));
  Err err = file_mkdirs(partial);
  if (!err) err = write(self, partial);
  if (!err) err = file_rename(partial, path);
  if (!err) return ERR_OK;
  ErrRecord fault = err_take(err);
  if (file_exists(partial)) (void)!file_remove_all(partial);
  return err_give(&fault);
}
