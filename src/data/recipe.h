/* Recipes: a folder with a file recipe.conf, which lists the files of a data set, where to download
 * them, and options for `trireme prepare`. Depends on fetch, unpack, base. */
#ifndef DATA_RECIPE_H
#define DATA_RECIPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef enum {
  RECIPE_FETCH,  /* fetch = NAME URL [sha256:HEX] [bytes:N] */
  RECIPE_UNPACK, /* unpack = ARCHIVE-NAME MEMBER NAME */
  RECIPE_SGM,    /* sgm = FILE-NAME NAME */
  RECIPE_SPLIT,  /* split = FILE-NAME N SOURCE TARGET HELD-SOURCE HELD-TARGET: four items */
} RecipeKind;

/* One file of the recipe: downloaded, or made from another one. */
typedef struct {
  RecipeKind kind;
  char *name;
  char *url;      /* fetch */
  char *sha256;   /* fetch; 64 lower-case digits, or NULL */
  uint64_t bytes; /* fetch; 0 = unknown */
  char *from;     /* unpack, sgm, split: name of the item it is made from */
  char *member;   /* unpack */
  uint64_t every; /* split: N; one source sentence in N is held out */
  int part;       /* split: 0 to 3, its position among the four names on the line */
  size_t line;
  char *path; /* absolute; set by recipe_obtain for those that were needed */
} RecipeItem;

/* A 'train', 'valid' or 'test' line: names of items. */
typedef struct {
  char *key;
  char **word;
  size_t words;
  size_t line;
} RecipeUse;

typedef struct {
  char *name;     /* of the folder */
  char *path;     /* of recipe.conf */
  char *about;    /* one sentence, or NULL */
  char *generate; /* "demo": the text is generated, not downloaded; else NULL */
  RecipeItem *item;
  size_t items, item_capacity;
  RecipeUse *use;
  size_t uses, use_capacity;
  /* The options for `prepare`, line for line as in recipe.conf, with blank lines in place of those
   * that describe files, so that line numbers in errors are right. After recipe_obtain, train, valid
   * and test name the files obtained. */
  Str config;
} Recipe;

/* Where files may come from. */
typedef struct {
  const char *cache_dir;  /* NULL = ${XDG_CACHE_HOME:-~/.cache}/trireme/NAME */
  const char *source_dir; /* directory with files under the recipe's names; NULL = none */
  const char *mirror;     /* replaces all of a URL but its last component; NULL = none */
  int tries;              /* as in FetchJob; 0 = its defaults */
  double delay;
} RecipeFrom;

/* Loads a recipe by name from the recipe folders, or by path if it contains '/'. */
NODISCARD Err recipe_load(Recipe *r, const char *name_or_path);
/* Parses a recipe in memory; `where` is its name in errors. */
NODISCARD Err recipe_parse(Recipe *r, const char *text, size_t len, const char *where);
/* Downloads and unpacks the files of train, valid and test that are missing; completes r->config. */
NODISCARD Err recipe_obtain(Recipe *r, const RecipeFrom *from);
void recipe_free(Recipe *r);

/* Appends the names of the available recipes, sorted, each followed by a line break. */
NODISCARD Err recipe_list(Str *out);

#endif
