/* The directory OUT.partial: its lock, its fingerprint and its saved progress. Depends on base,
 * meta, manifest. */
#include "data/prepare_state.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/event.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/place.h"
#include "base/stop.h"
#include "data/manifest.h"

/* Name of a file in OUT.partial that marks the directory of a conversion, which cannot be
 * resumed. */
#define CONVERSION_MARK "conversion"
#define STATE_BYTES_MAX ((size_t)1 << 26)
#define STATE_NAME      "trireme-prepare "
#define STATE_VERSION   3
#define STATE_HEAD      STATE_NAME "3"

static Err refuse_busy(const char *dir) {
  return err_set(
      ERR_WORK,
      "another process is writing to %s; wait until it has ended, or choose another --out",
      dir);
}

static Err lock_dir(PrepareState *s) {
  char path[FILE_PATH_MAX];
  bool busy;
  TRY(file_join(path, s->dir, "lock"));
  TRY(file_lock_soon(path, &s->lock, &busy));
  return busy ? refuse_busy(s->dir) : ERR_OK;
}

/* Copies OUT without trailing slashes. */
static Err trim_slashes(char path[FILE_PATH_MAX], const char *out) {
  TRY(file_join(path, out, ""));
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') path[--n] = '\0';
  return ERR_OK;
}

static Err partial_path(char path[FILE_PATH_MAX], const char *out) {
  char trimmed[FILE_PATH_MAX];
  TRY(trim_slashes(trimmed, out));
  int n = snprintf(path, FILE_PATH_MAX, "%s.partial", trimmed);
  return n < FILE_PATH_MAX
             ? ERR_OK
             : err_set(ERR_WORK,
                       "the path %s is too long (more than %d bytes); pass a shorter --out",
                       trimmed, FILE_PATH_MAX - 10);
}

/* ---- directories ---- */

static bool is_temporary(const char *name) {
  return str_ends(name, ".tmp") || strstr(name, ".tmp.");
}

/* Returns true for all files except the lock and the mark of a conversion. */
static bool is_content(const char *name) {
  return strcmp(name, "lock") != 0 && strcmp(name, CONVERSION_MARK) != 0;
}

/* Returns true for files that a restarted run writes again. Text from standard input is not among
 * them, because it cannot be read again. */
static bool is_made_again(const char *name) {
  static const char *const kept[] = {"lock", "source", "fingerprint", "tokenizer.model",
                                     "vocab.txt"};
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
    if (strcmp(name, kept[i]) == 0) return false;
  }
  return true;
}

/* Removes the entries of the directory for which is_removed() returns true. */
static Err remove_entries(const char *path, bool (*is_removed)(const char *name)) {
  DIR *dir = opendir(path);
  if (!dir) return err_errno("cannot read the directory", path);
  Err err = ERR_OK;
  for (struct dirent *entry; !err && (entry = readdir(dir));) {
    const char *name = entry->d_name;
    char inner[FILE_PATH_MAX];
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || !is_removed(name)) continue;
    err = file_join(inner, path, name);
    if (!err) err = file_remove_all(inner);
  }
  closedir(dir);
  return err;
}

/* Returns true if the directory has no files, or only those of a run that was killed at its
 * start. */
static bool is_empty(const char *path) {
  DIR *dir = opendir(path);
  bool is_found = false;
  for (struct dirent *entry; dir && !is_found && (entry = readdir(dir));) {
    const char *name = entry->d_name;
    bool is_itself = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    is_found = !is_itself && is_content(name) && !is_temporary(name);
  }
  if (dir) closedir(dir);
  return dir && !is_found;
}

static bool has_mark(const char *dir) {
  char path[FILE_PATH_MAX];
  return file_join(path, dir, CONVERSION_MARK) == ERR_OK && file_exists(path);
}

static Err refuse_existing(const char *out) {
  return err_set(ERR_WORK, "%s exists already; choose another --out or remove it first", out);
}

static Err refuse_partial(const char *partial) {
  return err_set(
      ERR_WORK,
      "%s is left from a run that was stopped: continue it with --resume, or remove it",
      partial);
}

static bool is_busy(const char *dir) {
  char path[FILE_PATH_MAX];
  return file_join(path, dir, "lock") == ERR_OK && file_is_locked(path);
}

Err prepare_check_out(const char *out, bool resume) {
  char partial[FILE_PATH_MAX];
  TRY(place_check(out));
  TRY(partial_path(partial, out));
  if (file_exists(out)) return refuse_existing(out);
  bool is_left = file_exists(partial) && (!resume || has_mark(partial));
  if (!is_left) return ERR_OK;
  if (is_busy(partial)) return refuse_busy(partial);
  if (has_mark(partial))
    return err_set(ERR_WORK,
                   "%s is left from a conversion that was stopped: repeat the command with "
                   "--convert, or remove it",
                   partial);
  return refuse_partial(partial);
}

/* has_lock: this process has locked OUT.partial. */
static Err check_conversion(const char *out, bool has_lock) {
  char partial[FILE_PATH_MAX];
  TRY(partial_path(partial, out));
  if (file_exists(out)) return refuse_existing(out);
  bool is_free = !file_exists(partial) || has_mark(partial) || is_empty(partial);
  if (is_free) return ERR_OK;
  return !has_lock && is_busy(partial) ? refuse_busy(partial) : refuse_partial(partial);
}

Err prepare_check_conversion(const char *out) {
  return check_conversion(out, /*has_lock=*/false);
}

Err prepare_enter(PrepareState *s, const char *out, bool resume) {
  *s = (PrepareState){.lock = -1};
  TRY(prepare_check_out(out, resume));
  TRY(partial_path(s->dir, out));
  /* trireme launch always passes --resume. */
  if (!file_exists(s->dir) && resume && !event_has_launcher())
    log_info("nothing to resume in %s: starting from the beginning", s->dir);
  TRY(file_mkdirs(s->dir));
  Err err = lock_dir(s);
  if (!file_exists(out)) return err;
  prepare_leave(s);
  return refuse_existing(out); /* the process that had the lock has completed it */
}

Err prepare_follow(PrepareState *s, const char *out) {
  *s = (PrepareState){.lock = -1};
  return partial_path(s->dir, out);
}

Err prepare_enter_conversion(PrepareState *s, const char *out) {
  char mark[FILE_PATH_MAX];
  *s = (PrepareState){.lock = -1};
  TRY(partial_path(s->dir, out));
  TRY(file_join(mark, s->dir, CONVERSION_MARK));
  TRY(prepare_check_conversion(out));
  TRY(file_mkdirs(s->dir));
  TRY(lock_dir(s));
  /* Checks again: another run may have written files here before this one got the lock. */
  Err err = check_conversion(out, /*has_lock=*/true);
  if (!err) err = file_write(mark, "", 0);
  if (!err) err = remove_entries(s->dir, is_content);
  if (err) prepare_leave(s);
  return err;
}

void prepare_discard(const PrepareState *s) {
  if (s->lock < 0) return;
  ErrRecord kept = err_take(ERR_WORK);
  (void)!file_remove_all(s->dir);
  err_give(&kept);
}

void prepare_forget(const PrepareState *s) {
  static const char *const worth[] = {"state", "tokenizer.model", "vocab.txt", "source"};
  if (s->lock < 0) return;
  char path[FILE_PATH_MAX];
  for (size_t i = 0; i < sizeof worth / sizeof *worth; i++) {
    if (file_join(path, s->dir, worth[i]) || file_exists(path)) return;
  }
  prepare_discard(s);
}

void prepare_leave(PrepareState *s) {
  if (s->lock >= 0) close(s->lock);
  s->lock = -1;
}

Err prepare_path(const PrepareState *s, const char *name, char path[FILE_PATH_MAX]) {
  return file_join(path, s->dir, name);
}

Err prepare_check_stop(const PrepareState *s) {
  if (!stop_asked()) return ERR_OK;
  return err_set(
      ERR_STOPPED,
      "stopped by a signal; continue with --resume, which uses what is finished in %s", s->dir);
}

Err prepare_add_input(Str *text, const char *path) {
  struct stat st;
  if (stat(path, &st) != 0) return err_errno("cannot open", path);
  str_addf(text, "%s %lld %lld.%09ld\n", path, (long long)st.st_size,
           (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
  return ERR_OK;
}

static Err add_pair(Str *text, const TextPair *pair) {
  for (int side = 0; side < 2 && pair->path[side]; side++)
    TRY(prepare_add_input(text, pair->path[side]));
  return ERR_OK;
}

void prepare_set_fingerprint(PrepareState *s, const Str *text) {
  Sha256 sha;
  sha256_begin(&sha);
  sha256_add(&sha, str_text(text), text->len);
  sha256_end(&sha, s->fingerprint);
}

Err prepare_fingerprint(PrepareState *s, const PrepareSpec *p) {
  Str text = {0};
  Err err = ERR_OK;
  str_addf(&text, "%u %u %u %.17g %u %d %d\n", p->rules.min_words, p->rules.max_words,
           p->rules.max_word_length, p->rules.max_ratio, p->max_tokens, p->dedup,
           p->drop_bad_utf8);
  /* window_pairs is not part of the fingerprint: the windows are determined after all shards are
   * written, and a run may be resumed with another value. */
  str_addf(&text, "%s %s %" PRIu64 " %zu %" PRIu64 "\n", p->lang[0], p->lang[1], p->seed,
           p->shard_bytes, p->generated_pairs);
  if (p->tokenizer) {
    TRY_DONE(prepare_add_input(&text, p->tokenizer));
  } else {
    str_addf(&text, "%s %d %.17g %" PRIu64 "\n", p->training.type, p->training.vocab_size,
             p->training.character_coverage, p->sample);
  }
  for (size_t i = 0; i < p->trains; i++) TRY_DONE(add_pair(&text, &p->train[i]));
  TRY_DONE(add_pair(&text, &p->valid));
  TRY_DONE(add_pair(&text, &p->test));
  TRY_DONE(str_check(&text));
  prepare_set_fingerprint(s, &text);
done:
  str_free(&text);
  return err;
}

Err prepare_save(const PrepareState *s, const Meta *meta) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, s->dir, "state"));
  Str text = {0};
  str_addf(&text, "%s\n%s\n", STATE_HEAD, s->fingerprint);
  Err err = meta ? meta_print(meta, &text) : str_check(&text);
  if (!err) err = file_write(path, text.s, text.len);
  str_free(&text);
  return err;
}

/* Checks version and fingerprint; *rest is the text after them. */
static Err parse_state(const PrepareState *s, const char *text, const char *path,
                       const char **rest) {
  char fingerprint[65];
  int used = 0;
  unsigned version;
  if (sscanf(text, STATE_NAME "%u\n", &version) == 1 && version != STATE_VERSION) {
    return err_set(ERR_WORK,
                   "%s was written by %s version of trireme (state format %u, this one uses "
                   "%d): continue with that version, or remove %s and start again",
                   path, version < STATE_VERSION ? "an earlier" : "a newer", version,
                   STATE_VERSION, s->dir);
  }
  if (sscanf(text, STATE_HEAD "\n%64[0-9a-f]\n%n", fingerprint, &used) != 1 || used == 0) {
    return err_set(ERR_WORK, "%s is damaged; remove %s and start again", path, s->dir);
  }
  if (strcmp(fingerprint, s->fingerprint) != 0) {
    return err_set(ERR_WORK,
                   "%s was begun with other options or other inputs: give the same ones to "
                   "resume, or remove it",
                   s->dir);
  }
  *rest = text + used;
  return ERR_OK;
}

static Err remove_tokenizers(const PrepareState *s) {
  static const char *const name[] = {"tokenizer.model", "vocab.txt"};
  char path[FILE_PATH_MAX];
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
    TRY(file_join(path, s->dir, name[i]));
    TRY(file_remove_all(path));
  }
  return ERR_OK;
}

/* Removes the files of an earlier run, because its shards have no manifest lines. Keeps the
 * tokenizer if it was made with the same options and inputs. */
static Err begin_anew(const PrepareState *s) {
  char path[FILE_PATH_MAX];
  Str before = {0};
  TRY(remove_entries(s->dir, is_made_again));
  TRY(file_join(path, s->dir, "fingerprint"));
  Err err = file_exists(path) ? file_read(path, 1024, &before) : ERR_OK;
  bool same = strcmp(str_text(&before), s->fingerprint) == 0;
  if (!err && !same) err = remove_tokenizers(s);
  if (!err && !same) err = file_write(path, s->fingerprint, strlen(s->fingerprint));
  str_free(&before);
  return err;
}

/* Fails unless the manifest lists as many validation and test shards as the saved state. */
static Err check_held_out(const PrepareState *s, const Meta *meta) {
  for (int split = SPLIT_VALID; split < SPLITS; split++) {
    if (meta->split[split].shards == meta->split[split].shards_listed) continue;
    return err_set(ERR_WORK,
                   "%s/" MANIFEST_NAME
                   " is damaged: it lists %zu shards of %s, not %zu; remove "
                   "%s and start again",
                   s->dir, meta->split[split].shards, split_name[split],
                   meta->split[split].shards_listed, s->dir);
  }
  return ERR_OK;
}

/* Reads the saved state. meta NULL: only its version and fingerprint are checked. */
static Err load_state(const PrepareState *s, Meta *meta, bool *is_resumed) {
  char path[FILE_PATH_MAX];
  const char *rest = NULL;
  TRY(file_join(path, s->dir, "state"));
  *is_resumed = file_exists(path);
  if (!*is_resumed) return begin_anew(s);
  Str text = {0};
  Err err = file_read(path, STATE_BYTES_MAX, &text);
  if (!err) err = parse_state(s, str_text(&text), path, &rest);
  if (!err && meta) err = meta_parse(meta, rest, strlen(rest), path);
  str_free(&text);
  return err;
}

Err prepare_load(const PrepareState *s, Meta *meta, bool *is_resumed) {
  char path[FILE_PATH_MAX];
  TRY(load_state(s, meta, is_resumed));
  if (!*is_resumed) return ERR_OK;
  TRY(file_join(path, s->dir, MANIFEST_NAME));
  TRY(manifest_recover(path, meta));
  return check_held_out(s, meta);
}

Err prepare_load_texts(const PrepareState *s, Meta *meta, bool *is_resumed) {
  char path[FILE_PATH_MAX];
  TRY(load_state(s, NULL, is_resumed));
  if (!*is_resumed) return ERR_OK;
  TRY(file_join(path, s->dir, MANIFEST_NAME));
  return manifest_recover_texts(path, meta);
}

/* Removes the files that only a resumed run needs from a complete data set. The file `state` is
 * removed last. */
static Err remove_scaffold(const char *out) {
  static const char *const scaffold[] = {"source", "lock", "fingerprint", CONVERSION_MARK,
                                         "state"};
  char path[FILE_PATH_MAX];
  for (size_t i = 0; i < sizeof scaffold / sizeof *scaffold; i++) {
    TRY(file_join(path, out, scaffold[i]));
    TRY(file_remove_all(path));
  }
  return file_sync_dir(out);
}

/* The rename precedes the removal of the files for resuming. A run killed before the rename can
 * be resumed without loss; a run killed after it leaves a complete data set. */
Err prepare_complete(PrepareState *s, const char *out) {
  char path[FILE_PATH_MAX];
  TRY(remove_entries(s->dir, is_temporary));
  TRY(file_sync_dir(s->dir));
  TRY(trim_slashes(path, out));
  if (file_exists(path))
    return err_set(ERR_WORK,
                   "cannot rename the result to %s: another process has created it in the "
                   "meantime; the result is in %s",
                   path, s->dir);
  fault_point("prepare-rename");
  TRY(file_rename(s->dir, path));
  fault_point("prepare-renamed");
  return remove_scaffold(path);
}

bool prepare_is_converted(const char *out) {
  char path[FILE_PATH_MAX];
  return has_mark(out) && file_join(path, out, "dataset.json") == ERR_OK && file_exists(path);
}

Err prepare_tidy(const char *out) {
  char path[FILE_PATH_MAX];
  Str text = {0};
  if (has_mark(out)) return remove_scaffold(out);
  TRY(file_join(path, out, "state"));
  if (!file_exists(path)) return ERR_OK;
  Err err = file_read(path, STATE_BYTES_MAX, &text);
  bool is_ours = !err && str_starts(str_text(&text), STATE_NAME);
  str_free(&text);
  return is_ours ? remove_scaffold(out) : err;
}
