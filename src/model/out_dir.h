/* A new directory that is complete or absent: written as OUT.partial, then renamed. Depends on
 * base/file. */
#ifndef MODEL_OUT_DIR_H
#define MODEL_OUT_DIR_H

#include "base/file.h"

/* Sets `path` to `out`, the value of --out, without slashes at its end. Fails if it exists. */
NODISCARD Err out_dir_begin(const char *out, char path[FILE_PATH_MAX]);
/* Creates and locks PATH.partial, calls write(self, PATH.partial) and renames it to `path`. Fails if
 * another process has locked it. After another error PATH.partial is removed: the disk may be full. */
NODISCARD Err out_dir_write(const char *path, Err (*write)(const void *self, const char *dir),
                            const void *self);

#endif
