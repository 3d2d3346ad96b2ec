/* Obtains the files of a recipe from --source-dir, else from the cache, else by download, and
 * unpacks them. Depends on fetch, unpack, base. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/url.h"
#include "data/fetch.h"
#include "data/recipe.h"
#include "data/unpack.h"

typedef struct {
  Recipe *r;
  const RecipeFrom *from;
  char cache[FILE_PATH_MAX];
  bool *wanted; /* (items) the item must be downloaded or made from another item */
  size_t todo;  /* number of items with `wanted` set */
  size_t unreached;
} Obtain;

/* ---- which files exist, which are missing ---- */

static RecipeItem *item_of(Recipe *r, const char *name) {
  for (size_t i = 0; i < r->items; i++) {
    if (strcmp(r->item[i].name, name) == 0) return &r->item[i];
  }
  return NULL; /* Cannot happen: recipe_parse checked that the name exists. */
}

static Err set_path(RecipeItem *item, const char *path) {
  mem_free(item->path);
  item->path = NULL;
  return mem_dup(&item->path, path, strlen(path));
}

/* Sets `path` to DIR/NAME, and *there to true if it exists. */
static Err find_file(const char *dir, const char *name, char *path, bool *there) {
  *there = false;
  if (!dir) return ERR_OK;
  TRY(file_join(path, dir, name));
  *there = access(path, F_OK) == 0;
  return ERR_OK;
}

/* Searches --source-dir for the item. A text file may be compressed there, unless the recipe
 * specifies its size or hash. */
static Err look_source(const Obtain *o, const RecipeItem *item, bool text, char *path,
                       bool *there) {
  static const char *const ending[] = {"", ".gz", ".zst"};
  size_t endings = text && !item->sha256 && !item->bytes ? 3 : 1;
  *there = false;
  for (size_t i = 0; i < endings && !*there; i++) {
    char name[256]; /* recipe_parse allows names of at most 200 bytes */
    snprintf(name, sizeof name, "%s%s", item->name, ending[i]);
    TRY(find_file(o->from->source_dir, name, path, there));
  }
  struct stat st;
  if (*there && stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
    return err_set(
        ERR_WORK,
        "%s is not a regular file; put the file itself, as downloaded, into --source-dir",
        path);
  }
  return ERR_OK;
}

static bool is_newer(const char *a, const char *b) {
  struct stat x, y;
  if (stat(a, &x) != 0 || stat(b, &y) != 0) return false;
  return x.st_mtim.tv_sec != y.st_mtim.tv_sec ? x.st_mtim.tv_sec > y.st_mtim.tv_sec
                                              : x.st_mtim.tv_nsec > y.st_mtim.tv_nsec;
}

/* Sets *stale if `path` is older than a file from which `item` is made. */
static Err is_stale(Obtain *o, const RecipeItem *item, const char *path, bool *stale) {
  *stale = false;
  while (item->kind != RECIPE_FETCH && !*stale) {
    char origin[FILE_PATH_MAX];
    bool there;
    bool text = item->kind == RECIPE_SPLIT;
    item = item_of(o->r, item->from);
    TRY(look_source(o, item, text, origin, &there));
    if (!there) TRY(find_file(o->cache, item->name, origin, &there));
    *stale = there && is_newer(origin, path);
  }
  return ERR_OK;
}

/* Finds the item's file, or marks the item and the items that it is made from as wanted. `text`:
 * the file is read line by line. */
static Err require_item(Obtain *o, RecipeItem *item, bool text) {
  size_t i = (size_t)(item - o->r->item);
  char path[FILE_PATH_MAX];
  bool there, stale;
  if (item->path || o->wanted[i]) return ERR_OK;
  TRY(look_source(o, item, text, path, &there));
  if (there) {
    if (fetch_check(path, item->sha256, item->bytes)) {
      return err_context("wrong file for recipe %s in --source-dir", o->r->name);
    }
    return set_path(item, path);
  }
  TRY(find_file(o->cache, item->name, path, &there));
  if (there && item->kind == RECIPE_FETCH) {
    if (fetch_check(path, item->sha256, item->bytes) == ERR_OK) return set_path(item, path);
    log_warn("%s; the file is downloaded again", err_message());
  } else if (there) {
    TRY(is_stale(o, item, path, &stale));
    if (!stale) return set_path(item, path);
  }
  o->wanted[i] = true;
  o->todo++;
  if (item->kind == RECIPE_FETCH) return ERR_OK;
  return require_item(o, item_of(o->r, item->from), item->kind == RECIPE_SPLIT);
}

/* Refuses a split of which --source-dir has only some files. They may come from a different split
 * and have sentences in common with the files made here. */
static Err check_splits(const Obtain *o) {
  const Recipe *r = o->r;
  const RecipeItem *before = NULL; /* the last needed item of the same split */
  bool before_there = false;
  for (size_t i = 0; i < r->items; i++) {
    const RecipeItem *item = &r->item[i];
    char path[FILE_PATH_MAX];
    bool there;
    if (item->kind != RECIPE_SPLIT || !(item->path || o->wanted[i])) continue;
    TRY(look_source(o, item, /*text=*/true, path, &there));
    if (before && before->line == item->line && before_there != there) {
      return err_set(ERR_WORK,
                     "--source-dir %s has %s but not %s, and the texts of one split belong "
                     "together; put all of them there, or none",
                     o->from->source_dir, there ? item->name : before->name,
                     there ? before->name : item->name);
    }
    before = item;
    before_there = there;
  }
  return ERR_OK;
}

static Err plan_work(Obtain *o) {
  o->todo = 0;
  for (size_t i = 0; i < o->r->items; i++) {
    mem_free(o->r->item[i].path);
    o->r->item[i].path = NULL;
    o->wanted[i] = false;
  }
  for (size_t i = 0; i < o->r->uses; i++) {
    for (size_t w = 0; w < o->r->use[i].words; w++) {
      TRY(require_item(o, item_of(o->r, o->r->use[i].word[w]), /*text=*/true));
    }
  }
  return check_splits(o);
}

/* ---- fetching ---- */

/* Returns the last component of the URL's path, without the query; "" if there is none. */
static void last_part(const char *url, const char **part, size_t *len) {
  const char *path = strstr(url, "://");
  path = path ? path + 3 : url;
  size_t n = strcspn(path, "?#");
  size_t start = n;
  while (start && path[start - 1] != '/') start--;
  *part = path + start;
  *len = start ? n - start : 0;
}

static Err mirror_url(const Obtain *o, const RecipeItem *item, Str *url) {
  const char *part, *base = o->from->mirror;
  size_t len, n = strlen(base);
  last_part(item->url, &part, &len);
  if (len == 0) {
    part = item->name;
    len = strlen(part);
  }
  while (n && base[n - 1] == '/') n--;
  str_addn(url, base, n);
  str_addc(url, '/');
  str_addn(url, part, len);
  return str_check(url);
}

static Err fetch_item(Obtain *o, RecipeItem *item, bool *unreachable) {
  char path[FILE_PATH_MAX];
  FetchReport report = {0};
  TRY(file_join(path, o->cache, item->name));
  FetchJob job = {.path = path,
                  .sha256 = item->sha256,
                  .bytes = item->bytes,
                  .delay = o->from->delay,
                  .report = &report,
                  /* After one server did not answer, each further file is tried only once. */
                  .tries = o->unreached ? 1 : o->from->tries};
  Err err = ERR_OK;
  *unreachable = true;
  if (o->from->mirror) {
    Str url = {0};
    err = mirror_url(o, item, &url);
    if (!err) {
      job.url = url.s;
      err = fetch_file(&job);
      char shown[URL_SHOWN_MAX];
      if (err) log_warn("%s; trying %s", err_message(), url_mask(item->url, shown));
      *unreachable = report.unreachable;
    }
    str_free(&url);
    if (!err) return set_path(item, path);
    if (report.unreachable) job.tries = 1;
  }
  job.url = item->url;
  err = fetch_file(&job);
  *unreachable = *unreachable && report.unreachable;
  return err ? err : set_path(item, path);
}

/* Reports all files that could not be downloaded in one message. */
static Err unreached_error(Obtain *o) {
  enum { ROOM = sizeof((ErrRecord *)0)->text };
  Str list = {0};
  size_t named = 0;
  size_t fixed = strlen(o->cache) + strlen(o->r->name) + 220;
  for (size_t i = 0; i < o->r->items; i++) {
    const RecipeItem *item = &o->r->item[i];
    const char *part;
    size_t len;
    if (item->kind != RECIPE_FETCH || !o->wanted[i] || item->path) continue;
    last_part(item->url, &part, &len);
    bool same = len == strlen(item->name) && memcmp(part, item->name, len) == 0;
    char shown[URL_SHOWN_MAX];
    url_mask(item->url, shown);
    if (fixed + list.len + strlen(item->name) + strlen(shown) > ROOM) continue;
    str_addf(&list, "%s%s%s%s", named++ ? ", " : "", same ? "" : item->name,
             same ? "" : " from ", shown);
  }
  if (named < o->unreached) str_addf(&list, " and %zu more", o->unreached - named);
  Err err = str_check(&list);
  if (!err) {
    err = err_set(
        ERR_WORK,
        "no server can be reached for %zu %s of recipe %s: %s; put %s into %s, or name a "
        "folder that has %s with --source-dir DIR",
        o->unreached, o->unreached == 1 ? "file" : "files", o->r->name, str_text(&list),
        o->unreached == 1 ? "it" : "them", o->cache, o->unreached == 1 ? "it" : "them");
  }
  str_free(&list);
  return err;
}

static Err fetch_all(Obtain *o) {
  for (size_t i = 0; i < o->r->items; i++) {
    RecipeItem *item = &o->r->item[i];
    bool unreachable = false;
    if (item->kind != RECIPE_FETCH || !o->wanted[i]) continue;
    Err err = fetch_item(o, item, &unreachable);
    if (err && !unreachable) {
      ErrRecord why = err_take(err);
      return err_set(
          err, "%s; or put %s into %s, or name a folder that has it with --source-dir DIR",
          why.text, item->name, o->cache);
    }
    if (err) o->unreached++;
  }
  return o->unreached ? unreached_error(o) : ERR_OK;
}

/* ---- unpacking ---- */

/* Extracts all wanted members of one archive in one pass. */
static Err unpack_from(Obtain *o, const RecipeItem *archive) {
  Recipe *r = o->r;
  UnpackPair *pair = NULL;
  size_t pairs = 0;
  Err err = mem_alloc(&pair, r->items, sizeof *pair);
  for (size_t i = 0; i < r->items && !err; i++) {
    RecipeItem *item = &r->item[i];
    char path[FILE_PATH_MAX];
    if (item->kind != RECIPE_UNPACK || !o->wanted[i] ||
        strcmp(item->from, archive->name) != 0) {
      continue;
    }
    err = file_join(path, o->cache, item->name);
    if (!err) err = set_path(item, path);
    pair[pairs++] = (UnpackPair){.member = item->member, .to = item->path};
  }
  if (!err && pairs) err = unpack_members(archive->path, pair, pairs);
  mem_free(pair);
  return err;
}

/* Writes all wanted texts of one split in one pass. */
static Err split_from(Obtain *o, const RecipeItem *first) {
  const char *to[4] = {NULL};
  for (size_t i = 0; i < o->r->items; i++) {
    RecipeItem *item = &o->r->item[i];
    char path[FILE_PATH_MAX];
    if (item->kind != RECIPE_SPLIT || item->line != first->line || !o->wanted[i]) continue;
    TRY(file_join(path, o->cache, item->name));
    TRY(set_path(item, path));
    to[item->part] = item->path;
  }
  return unpack_split(item_of(o->r, first->from)->path, first->every, to);
}

static Err make_all(Obtain *o) {
  for (size_t i = 0; i < o->r->items; i++) {
    const RecipeItem *item = &o->r->item[i];
    if (item->kind == RECIPE_FETCH && item->path) TRY(unpack_from(o, item));
  }
  for (size_t i = 0; i < o->r->items; i++) {
    RecipeItem *item = &o->r->item[i];
    char path[FILE_PATH_MAX];
    if (item->kind == RECIPE_SPLIT && o->wanted[i] && !item->path) TRY(split_from(o, item));
    if (item->kind != RECIPE_SGM || !o->wanted[i]) continue;
    TRY(file_join(path, o->cache, item->name));
    TRY(unpack_sgm(item_of(o->r, item->from)->path, path));
    TRY(set_path(item, path));
  }
  return ERR_OK;
}

/* ---- the complete procedure ---- */

static void add_quoted(Str *out, const char *text) {
  str_addc(out, '"');
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') str_addc(out, '\\');
    str_addc(out, *text);
  }
  str_addc(out, '"');
}

/* Writes `key = "path" "path"` instead of `key = NAME NAME`. */
static Err add_use(Recipe *r, const RecipeUse *use, Str *out) {
  str_addf(out, "%s =", use->key);
  for (size_t w = 0; w < use->words; w++) {
    const char *path = item_of(r, use->word[w])->path;
    char *absolute = realpath(path, NULL);
    if (!absolute) return err_errno("cannot find", path);
    Err err =
        strchr(absolute, '\n')
            ? err_set(ERR_WORK,
                      "the path of %s has a line break, which a recipe cannot contain; rename "
                      "the directory",
                      path)
            : ERR_OK;
    str_addc(out, ' ');
    add_quoted(out, absolute);
    free(absolute); /* realpath allocated the path with malloc. */
    if (err) return err;
  }
  return ERR_OK;
}

static Err rewrite_config(Recipe *r) {
  Str out = {0};
  Err err = ERR_OK;
  const char *at = str_text(&r->config);
  for (size_t line = 1; *at && !err; line++) {
    size_t n = strcspn(at, "\n");
    const RecipeUse *use = NULL;
    for (size_t i = 0; i < r->uses; i++) {
      if (r->use[i].line == line) use = &r->use[i];
    }
    if (use)
      err = add_use(r, use, &out);
    else
      str_addn(&out, at, n);
    str_addc(&out, '\n');
    at += n + (at[n] == '\n');
  }
  if (!err) err = str_check(&out);
  if (!err) {
    str_free(&r->config);
    r->config = out;
    return ERR_OK;
  }
  str_free(&out);
  return err;
}

static Err cache_dir(Obtain *o) {
  const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char base[FILE_PATH_MAX], ours[FILE_PATH_MAX];
  if (o->from->cache_dir) return file_join(o->cache, o->from->cache_dir, "");
  if (xdg && xdg[0] == '/') {
    TRY(file_join(base, xdg, ""));
  } else if (home && home[0] == '/') {
    TRY(file_join(base, home, ".cache"));
  } else {
    return err_set(
        ERR_USAGE,
        "HOME is not set, so there is no cache for downloads; pass --download-dir DIR");
  }
  TRY(file_join(ours, base, "trireme"));
  return file_join(o->cache, ours, o->r->name ? o->r->name : "recipe");
}

/* Locks the cache directory, to which only one process at a time may write. */
static Err lock_cache(const Obtain *o, int *fd, bool *waited) {
  char path[FILE_PATH_MAX];
  TRY(file_mkdirs(o->cache));
  TRY(file_join(path, o->cache, ".lock"));
  *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (*fd < 0) return err_errno("cannot create", path);
  /* Continues without a lock if the file system does not support locks. */
  if (flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    log_info("waiting for another process that downloads to %s", o->cache);
    *waited = true;
    while (flock(*fd, LOCK_EX) != 0 && errno == EINTR) {}
  }
  return ERR_OK;
}

static Err obtain_all(Obtain *o) {
  int fd = -1;
  bool waited = false;
  TRY(plan_work(o));
  if (o->todo) {
    Err err = lock_cache(o, &fd, &waited);
    /* The other process may have obtained all files in the meantime. */
    if (!err && waited) err = plan_work(o);
    if (!err) err = fetch_all(o);
    if (!err) err = make_all(o);
    if (fd >= 0) close(fd);
    if (err) return err;
  }
  return rewrite_config(o->r);
}

Err recipe_obtain(Recipe *r, const RecipeFrom *from) {
  Obtain o = {.r = r, .from = from};
  if (r->uses == 0) return ERR_OK;
  if (from->source_dir && !file_is_dir(from->source_dir)) {
    return err_set(ERR_USAGE,
                   "--source-dir %s is not a directory; give the path of a directory",
                   from->source_dir);
  }
  if (from->mirror && !fetch_is_url(from->mirror)) {
    char shown[URL_SHOWN_MAX];
    return err_set(ERR_USAGE, "--mirror '%s' is not an http, https, ftp or file address",
                   url_mask(from->mirror, shown));
  }
  TRY(cache_dir(&o));
  TRY(mem_alloc(&o.wanted, r->items, sizeof *o.wanted));
  Err err = obtain_all(&o);
  mem_free(o.wanted);
  return err;
}
