/* Reads from the environment how often the run was restarted. Depends on base. */
#include "train/restart.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "base/utf8.h"

/* Reads a count from an environment variable; returns false if it is not set or not a
 * number. */
static bool read_count(const char *name, uint64_t *count) {
  const char *text = getenv(name);
  int64_t n;
  if (!text || !*text) return false;
  if (str_count(text, &n) || n < 0) {
    log_warn("the environment has %s=%s, which is not a number of restarts; it is ignored",
             name, text);
    return false;
  }
  *count = (uint64_t)n;
  return true;
}

bool restart_has_trained(void) {
  const char *text = getenv("TRIREME_RESTART_TRAINED");
  return text && strcmp(text, "1") == 0;
}

Restart restart_read(void) {
  Restart r = {0};
  const char *reason = getenv("TRIREME_RESTART_REASON");
  r.is_counted = read_count("TRIREME_RESTART_COUNT", &r.count);
  if (!r.is_counted) {
    r.is_counted = read_count("SLURM_RESTART_COUNT", &r.count);
    if (r.is_counted) reason = "requeued by Slurm";
  }
  if (reason) utf8_visible(reason, r.reason, sizeof r.reason);
  return r;
}
