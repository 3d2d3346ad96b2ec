/* Checks at start-up that all ranks see the same OUT.partial. Depends on ranks, prepare_state. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "data/prepare_state.h"

#define RANKS_TOKEN "ranks.tmp" /* a temporary file in OUT.partial, written by rank 0 */

/* Fails if this rank does not see the token file of rank 0: ranks that do not share the output
 * directory would wait for each other's shards. */
static Err compare_token(const PrepareState *s, const Ranks *r, const char *token) {
  char path[FILE_PATH_MAX];
  Str here = {0};
  TRY(prepare_path(s, RANKS_TOKEN, path));
  Err err = file_read(path, 64, &here);
  if (!err && strcmp(str_text(&here), token) != 0)
    err = err_set(ERR_WORK, "%s has other contents than on rank 0", path);
  str_free(&here);
  if (!err) return ERR_OK;
  return err_set(ERR_WORK,
                 "this rank does not see the output directory of rank 0 on %s (%s): give --out "
                 "a directory that all hosts share, under the same path",
                 r->host(r->context, 0), err_message());
}

/* Creates a text that is unique to this run. */
static void make_token(char token[40]) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  snprintf(token, 40, "%lld.%09ld.%d", (long long)now.tv_sec, now.tv_nsec, (int)getpid());
}

Err prepare_check_shared(const PrepareState *s, Ranks *r) {
  bool is_first = ranks_is_first(r);
  char token[40] = "", path[FILE_PATH_MAX];
  if (ranks_count(r) == 1) return ERR_OK;
  TRY(prepare_path(s, RANKS_TOKEN, path));
  make_token(token);
  TRY(ranks_agree(r, is_first ? file_write(path, token, strlen(token)) : ERR_OK));
  ranks_broadcast(r, "token of the directory", token, sizeof token);
  TRY(ranks_agree(r, compare_token(s, r, token)));
  return ranks_agree(r, is_first ? file_remove_all(path) : ERR_OK);
}
