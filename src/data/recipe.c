/* Finds and parses recipe files; recipe_obtain.c obtains the files that they name. Depends on
 * fetch (checks URLs), base. */
#include "data/recipe.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/url.h"
#include "base/utf8.h"
#include "data/fetch.h"

#define FILE_NAME   "recipe.conf"
#define FILE_LIMIT  ((size_t)1 << 20)
#define NAME_LIMIT  200
#define WORDS_LIMIT 8
#define SPLIT_LIMIT 1000000

/* ---- parsing ---- */

static bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

/* Checks a name of the recipe, which becomes a file name in the cache: only letters, digits and .
 * _ + -, no leading dot, and no suffix that unfinished downloads use. */
static Err check_name(const char *name) {
  static const char *const reserved[] = {".part", ".meta", ".bad"};
  size_t n = strlen(name);
  if (n == 0 || n > NAME_LIMIT || name[0] == '.' || name[0] == '-' || strstr(name, "..") ||
      strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+-") != n) {
    return err_set(
        ERR_USAGE,
        "'%.60s' cannot be a file's name: use letters, digits, '.', '_', '+' and '-' "
        "only, not first '.' or '-', and no '..'",
        name);
  }
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
    if (str_ends(name, reserved[i])) {
      return err_set(ERR_USAGE,
                     "'%.60s' cannot be a file's name: '%s' is reserved for unfinished "
                     "downloads; choose another name",
                     name, reserved[i]);
    }
  }
  return ERR_OK;
}

/* Splits a line in place, with the syntax of config files: blanks separate words, except in double
 * quotes, where \" and \\ are escapes; '#' at the beginning of a word starts a comment. */
static Err split_words(char *at, char **word, size_t *words) {
  *words = 0;
  for (;;) {
    while (is_blank(*at)) at++;
    if (*at == '\0' || *at == '#') return ERR_OK;
    if (*words == WORDS_LIMIT)
      return err_set(ERR_USAGE, "too many words: a line may have at most %d", WORDS_LIMIT);
    char *to = at;
    word[(*words)++] = to;
    if (*at == '"') {
      for (at++; *at && *at != '"'; at++) {
        if (*at == '\\' && (at[1] == '"' || at[1] == '\\')) at++;
        *to++ = *at;
      }
      if (*at != '"') return err_set(ERR_USAGE, "a quote is not closed; add a double quote");
      at++;
      if (*at && !is_blank(*at))
        return err_set(ERR_USAGE, "a blank must follow the closing quote");
    } else {
      while (*at && !is_blank(*at)) at++;
      to = at;
    }
    bool last = *at == '\0';
    *to = '\0';
    if (last) return ERR_OK;
    at++;
  }
}

static Err copy_text(char **to, const char *text) {
  return mem_dup(to, text, strlen(text));
}

static RecipeItem *find_item(Recipe *r, const char *name) {
  for (size_t i = 0; i < r->items; i++) {
    if (strcmp(r->item[i].name, name) == 0) return &r->item[i];
  }
  return NULL;
}

/* Appends an item to r->item. The recipe can be freed even if a later step fails. */
static Err add_item(Recipe *r, RecipeKind kind, const char *name, size_t line,
                    RecipeItem **out) {
  TRY(check_name(name));
  RecipeItem *old = find_item(r, name);
  if (old)
    return err_set(ERR_USAGE, "the name '%s' is already used on line %zu; choose another", name,
                   old->line);
  TRY(mem_grow(&r->item, &r->item_capacity, r->items + 1, sizeof *r->item));
  RecipeItem *item = &r->item[r->items];
  *item = (RecipeItem){.kind = kind, .line = line};
  TRY(copy_text(&item->name, name));
  r->items++;
  *out = item;
  return ERR_OK;
}

static Err parse_sha256(const char *text, char **out) {
  if (strlen(text) != 64 || strspn(text, "0123456789abcdefABCDEF") != 64) {
    return err_set(ERR_USAGE,
                   "'%.80s' is not a SHA-256; write sha256: and 64 hexadecimal digits", text);
  }
  TRY(copy_text(out, text));
  for (char *at = *out; *at; at++) {
    if (*at >= 'A' && *at <= 'F') *at = (char)(*at - 'A' + 'a');
  }
  return ERR_OK;
}

static Err parse_fetch(Recipe *r, char **word, size_t words, size_t line) {
  RecipeItem *item;
  if (words < 2)
    return err_set(ERR_USAGE, "expected 'fetch = NAME URL [sha256:HEX] [bytes:N]'");
  if (!fetch_is_url(word[1])) {
    char shown[URL_SHOWN_MAX];
    return err_set(ERR_USAGE, "'%.200s' is not an http, https, ftp or file address",
                   url_mask(word[1], shown));
  }
  TRY(add_item(r, RECIPE_FETCH, word[0], line, &item));
  TRY(copy_text(&item->url, word[1]));
  for (size_t i = 2; i < words; i++) {
    if (str_starts(word[i], "sha256:") && !item->sha256) {
      TRY(parse_sha256(word[i] + 7, &item->sha256));
    } else if (str_starts(word[i], "bytes:") && !item->bytes) {
      const char *digits = word[i] + 6;
      size_t n = strlen(digits);
      if (n > 0 && n < 19 && strspn(digits, "0123456789") == n) {
        item->bytes = strtoull(digits, NULL, 10);
      }
      if (item->bytes == 0)
        return err_set(ERR_USAGE, "'%.60s' is not a size; write bytes:N with N > 0", word[i]);
    } else {
      return err_set(ERR_USAGE,
                     "'%.80s' is not allowed here: after the URL give at most one sha256:HEX "
                     "and one bytes:N",
                     word[i]);
    }
  }
  return ERR_OK;
}

static Err parse_unpack(Recipe *r, char **word, size_t words, size_t line) {
  RecipeItem *item;
  if (words != 3) return err_set(ERR_USAGE, "expected 'unpack = ARCHIVE-NAME MEMBER NAME'");
  for (const char *at = word[1]; *at; at++) {
    if ((unsigned char)*at < ' ')
      return err_set(ERR_USAGE,
                     "the name of the archive member contains a control character; remove it");
  }
  if (!word[1][0])
    return err_set(ERR_USAGE,
                   "the name of the archive member is empty; expected 'unpack = ARCHIVE-NAME "
                   "MEMBER NAME'");
  TRY(add_item(r, RECIPE_UNPACK, word[2], line, &item));
  TRY(copy_text(&item->from, word[0]));
  return copy_text(&item->member, word[1]);
}

static Err parse_sgm(Recipe *r, char **word, size_t words, size_t line) {
  RecipeItem *item;
  if (words != 2) return err_set(ERR_USAGE, "expected 'sgm = FILE-NAME NAME'");
  TRY(add_item(r, RECIPE_SGM, word[1], line, &item));
  return copy_text(&item->from, word[0]);
}

static Err parse_split(Recipe *r, char **word, size_t words, size_t line) {
  RecipeItem *item;
  uint64_t n = 0;
  if (words != 6) {
    return err_set(ERR_USAGE,
                   "expected 'split = FILE-NAME N SOURCE TARGET HELD-SOURCE HELD-TARGET'");
  }
  size_t digits = strlen(word[1]);
  if (digits < 8 && strspn(word[1], "0123456789") == digits) n = strtoull(word[1], NULL, 10);
  if (n < 2 || n > SPLIT_LIMIT) {
    return err_set(
        ERR_USAGE,
        "'%.60s' is not a number N from 2 to %d; one source sentence in N is held out", word[1],
        SPLIT_LIMIT);
  }
  for (int part = 0; part < 4; part++) {
    TRY(add_item(r, RECIPE_SPLIT, word[2 + part], line, &item));
    item->every = n;
    item->part = part;
    TRY(copy_text(&item->from, word[0]));
  }
  return ERR_OK;
}

static Err parse_use(Recipe *r, const char *key, char **word, size_t words, size_t line) {
  if (words == 0)
    return err_set(ERR_USAGE,
                   "'%s' names no file; write the NAME of a fetch, unpack, sgm or split line",
                   key);
  TRY(mem_grow(&r->use, &r->use_capacity, r->uses + 1, sizeof *r->use));
  RecipeUse *use = &r->use[r->uses++];
  *use = (RecipeUse){.line = line};
  TRY(copy_text(&use->key, key));
  TRY(mem_alloc(&use->word, words, sizeof *use->word));
  for (; use->words < words; use->words++)
    TRY(copy_text(&use->word[use->words], word[use->words]));
  return ERR_OK;
}

static Err parse_about(Recipe *r, char **word, size_t words) {
  Str text = {0};
  for (size_t i = 0; i < words; i++) str_addf(&text, "%s%s", i ? " " : "", word[i]);
  Err err = str_check(&text);
  if (!err && r->about)
    err = err_set(ERR_USAGE, "'about' is given twice; remove one of the lines");
  if (!err) err = copy_text(&r->about, str_text(&text));
  str_free(&text);
  return err;
}

static Err parse_generate(Recipe *r, char **word, size_t words) {
  if (words != 1 || strcmp(word[0], "demo") != 0) {
    return err_set(ERR_USAGE, "the only generator is 'demo'; write 'generate = demo'");
  }
  if (r->generate)
    return err_set(ERR_USAGE, "'generate' is given twice; remove one of the lines");
  return copy_text(&r->generate, word[0]);
}

static bool is_use(const char *key) {
  return strcmp(key, "train") == 0 || strcmp(key, "valid") == 0 || strcmp(key, "test") == 0;
}

/* Returns true for options that a recipe must not set: a recipe describes the data, not where
 * they are stored. */
static bool is_callers(const char *key) {
  static const char *const keys[] = {"recipe", "config",       "out",
                                     "mirror", "download-dir", "source-dir"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (strcmp(key, keys[i]) == 0) return true;
  }
  return false;
}

/* Parses one line; modifies the text. Sets *ours to false if the line is an option of
 * `prepare`. */
static Err parse_line(Recipe *r, char *line, size_t number, bool *ours) {
  char *word[WORDS_LIMIT], *key = line;
  size_t words = 0;
  *ours = false;
  while (is_blank(*key)) key++;
  if (*key == '\0' || *key == '#') return ERR_OK;
  size_t len = strcspn(key, " \t=");
  char *value = key + len;
  while (is_blank(*value)) value++;
  if (len == 0 || *value != '=') return err_set(ERR_USAGE, "expected 'option = value'");
  key[len] = '\0';
  value++;
  if (is_use(key)) {
    TRY(split_words(value, word, &words));
    return parse_use(r, key, word, words, number);
  }
  *ours = true;
  if (strcmp(key, "about") == 0) {
    /* An "about" sentence without quotes may have any number of words. */
    while (is_blank(*value)) value++;
    if (*value != '"') return parse_about(r, &value, 1);
    TRY(split_words(value, word, &words));
    return parse_about(r, word, words);
  }
  if (is_callers(key)) {
    return err_set(ERR_USAGE, "a recipe cannot set '%s'; pass --%s to trireme prepare", key,
                   key);
  }
  bool fetch = strcmp(key, "fetch") == 0, unpack = strcmp(key, "unpack") == 0;
  bool sgm = strcmp(key, "sgm") == 0, parts = strcmp(key, "split") == 0;
  bool generate = strcmp(key, "generate") == 0;
  *ours = fetch || unpack || sgm || parts || generate;
  if (*ours) TRY(split_words(value, word, &words));
  if (fetch) return parse_fetch(r, word, words, number);
  if (unpack) return parse_unpack(r, word, words, number);
  if (sgm) return parse_sgm(r, word, words, number);
  if (parts) return parse_split(r, word, words, number);
  return generate ? parse_generate(r, word, words) : ERR_OK;
}

/* Checks that every name is defined by a line, and that every item is made from an item of an
 * allowed kind, which also excludes cycles. */
static Err check_links(Recipe *r, const char *where) {
  for (size_t i = 0; i < r->items; i++) {
    const RecipeItem *item = &r->item[i];
    if (item->kind == RECIPE_FETCH) continue;
    const RecipeItem *from = find_item(r, item->from);
    bool unpack = item->kind == RECIPE_UNPACK;
    if (!from || (from->kind != RECIPE_FETCH && (unpack || from->kind != RECIPE_UNPACK))) {
      return err_set(ERR_USAGE, "%s:%zu: '%.80s' is not the NAME of a fetch%s line", where,
                     item->line, item->from, unpack ? "" : " or unpack");
    }
  }
  for (size_t i = 0; i < r->uses; i++) {
    const RecipeUse *use = &r->use[i];
    for (size_t w = 0; w < use->words; w++) {
      if (!find_item(r, use->word[w])) {
        return err_set(ERR_USAGE,
                       "%s:%zu: '%.80s' is not the NAME of a fetch, unpack, sgm or split line",
                       where, use->line, use->word[w]);
      }
    }
  }
  if (r->uses == 0 && !r->generate) {
    return err_set(ERR_USAGE, "%s has no 'train' line; add 'train = SOURCE TARGET'", where);
  }
  return ERR_OK;
}

static Err parse_all(Recipe *r, const char *text, size_t len, const char *where) {
  Str line = {0};
  Err err = ERR_OK;
  size_t number = 0;
  for (size_t at = utf8_bom(text, len); at < len && !err;) {
    const char *end = memchr(text + at, '\n', len - at);
    size_t n = end ? (size_t)(end - text) - at : len - at;
    bool ours = false;
    number++;
    str_clear(&line);
    str_addn(&line, text + at, n);
    err = str_check(&line);
    if (!err && n && memchr(text + at, '\0', n))
      err = err_set(ERR_USAGE, "the file contains a NUL byte; save it as UTF-8 text");
    if (!err) err = parse_line(r, line.s, number, &ours);
    if (err) err = err_context("%s:%zu", where, number);
    if (!ours) str_addn(&r->config, text + at, n);
    str_addc(&r->config, '\n');
    at += n + 1;
  }
  str_free(&line);
  if (!err) err = str_check(&r->config);
  if (!err) err = check_links(r, where);
  return err;
}

Err recipe_parse(Recipe *r, const char *text, size_t len, const char *where) {
  *r = (Recipe){0};
  Err err = parse_all(r, text, len, where);
  if (err) recipe_free(r);
  return err;
}

void recipe_free(Recipe *r) {
  for (size_t i = 0; i < r->items; i++) {
    RecipeItem *item = &r->item[i];
    mem_free(item->name);
    mem_free(item->url);
    mem_free(item->sha256);
    mem_free(item->from);
    mem_free(item->member);
    mem_free(item->path);
  }
  for (size_t i = 0; i < r->uses; i++) {
    RecipeUse *use = &r->use[i];
    for (size_t w = 0; w < use->words; w++) mem_free(use->word[w]);
    mem_free(use->word);
    mem_free(use->key);
  }
  mem_free(r->item);
  mem_free(r->use);
  mem_free(r->name);
  mem_free(r->path);
  mem_free(r->about);
  mem_free(r->generate);
  str_free(&r->config);
  *r = (Recipe){0};
}

/* ---- finding recipes ---- */

#define PLACES 4

/* Returns the i-th folder that may contain recipes; false if there is no such folder. */
static bool get_recipe_dir(int i, char *out) {
  static const char *const beside[PLACES] = {NULL, "../recipes", "recipes",
                                             "../share/trireme/recipes"};
  char program[FILE_PATH_MAX];
  const char *own = getenv("TRIREME_RECIPES");
  if (i == 0) return own && *own && file_join(out, own, "") == ERR_OK && file_is_dir(out);
  return file_program_dir(program) == ERR_OK && file_join(out, program, beside[i]) == ERR_OK &&
         file_is_dir(out);
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static Err add_names(const char *dir, char ***name, size_t *names, size_t *capacity) {
  DIR *d = opendir(dir);
  if (!d) return ERR_OK; /* A folder that cannot be read has no recipes. */
  Err err = ERR_OK;
  for (struct dirent *entry; !err && (entry = readdir(d));) {
    char path[FILE_PATH_MAX], inner[FILE_PATH_MAX];
    bool known = entry->d_name[0] == '.';
    for (size_t i = 0; i < *names && !known; i++)
      known = strcmp((*name)[i], entry->d_name) == 0;
    if (known || file_join(path, dir, entry->d_name) || file_join(inner, path, FILE_NAME) ||
        !file_exists(inner)) {
      continue;
    }
    err = mem_grow(name, capacity, *names + 1, sizeof **name);
    if (!err) err = copy_text(&(*name)[*names], entry->d_name);
    if (!err) (*names)++;
  }
  closedir(d);
  return err;
}

Err recipe_list(Str *out) {
  char **name = NULL, dir[FILE_PATH_MAX];
  size_t names = 0, capacity = 0;
  Err err = ERR_OK;
  for (int i = 0; i < PLACES && !err; i++) {
    if (get_recipe_dir(i, dir)) err = add_names(dir, &name, &names, &capacity);
  }
  if (!err && names) qsort(name, names, sizeof *name, by_name);
  for (size_t i = 0; i < names; i++) {
    if (!err) str_addf(out, "%s\n", name[i]);
    mem_free(name[i]);
  }
  mem_free(name);
  return err ? err : str_check(out);
}

static Err refuse_unknown(const char *name) {
  Str list = {0};
  Err err = recipe_list(&list);
  if (err) goto done;
  char nearest[64] = "";
  size_t best = strlen(name) / 3 + 2;
  Str shown = {0};
  for (char *at = list.s; at && *at;) {
    size_t n = strcspn(at, "\n");
    at[n] = '\0';
    size_t distance = str_distance(name, at);
    if (strlen(name) >= 3 && str_starts(at, name)) distance = 1;
    if (distance < best && n < sizeof nearest) {
      best = distance;
      memcpy(nearest, at, n + 1);
    }
    str_addf(&shown, "%s%s", shown.len ? ", " : "", at);
    at += n + 1;
  }
  if (list.len == 0) {
    err = err_set(ERR_USAGE,
                  "there is no recipe '%.80s', and no folder with recipes was found; set "
                  "TRIREME_RECIPES to such a folder",
                  name);
  } else {
    bool near = nearest[0] != '\0';
    err = err_set(ERR_USAGE, "there is no recipe '%.80s'%s%s%s there are: %.600s", name,
                  near ? "; did you mean '" : ";", nearest, near ? "'?" : "", str_text(&shown));
  }
  str_free(&shown);
done:
  str_free(&list);
  return err;
}

static Err read_recipe(Recipe *r, const char *conf) {
  Str text = {0};
  char *real = realpath(conf, NULL);
  if (!real) return err_errno("cannot read", conf);
  Err err = file_read(real, FILE_LIMIT, &text);
  if (!err) err = recipe_parse(r, str_text(&text), text.len, conf);
  if (!err) {
    err = copy_text(&r->path, real);
    char *slash = strrchr(real, '/');
    *slash = '\0';
    const char *folder = strrchr(real, '/');
    if (!err) err = copy_text(&r->name, folder && folder[1] ? folder + 1 : "recipe");
    if (err) recipe_free(r);
  }
  free(real); /* realpath allocated the path with malloc. */
  str_free(&text);
  return err;
}

Err recipe_load(Recipe *r, const char *name) {
  char dir[FILE_PATH_MAX], path[FILE_PATH_MAX], conf[FILE_PATH_MAX];
  *r = (Recipe){0};
  if (strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
    if (!file_is_dir(name)) return read_recipe(r, name);
    TRY(file_join(conf, name, FILE_NAME));
    return read_recipe(r, conf);
  }
  for (int i = 0; i < PLACES && name[0]; i++) {
    if (!get_recipe_dir(i, dir)) continue;
    TRY(file_join(path, dir, name));
    TRY(file_join(conf, path, FILE_NAME));
    if (file_exists(conf)) return read_recipe(r, conf);
  }
  return refuse_unknown(name);
}
