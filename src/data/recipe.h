/* Recipes: a folder whose recipe.conf says which files a data set is made of,
 * where they come from, and the options of 'prepare' that go with them. Depends on
 * fetch, unpack, base. */
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

/* One file that the recipe knows how to get. */
typedef struct {
  RecipeKind kind;
  char *name;
  char *url;      /* fetch */
  char *sha256;   /* fetch; 64 lower-case digits, or NULL */
  uint64_t bytes; /* fetch; 0 = unknown */
  char *from;     /* unpack, sgm, split: the name it is made from */
  char *member;   /* unpack */
  uint64_t every; /* split: N, one source sentence in so many is held back */
  int part;       /* split: 0 to 3, in the order of the line */
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
  char *generate; /* "demo", or NULL: the text is made, not fetched */
  RecipeItem *item;
  size_t items, item_capacity;
  RecipeUse *use;
  size_t uses, use_capacity;
  /* The options for 'prepare', line for line as in recipe.conf: blank where the
   * line was this file's business. After recipe_obtain train, valid and test name
   * the files obtained. */
  Str config;
} Recipe;

/* Where files may come from. */
typedef struct {
  const char *cache_dir;  /* NULL = ${XDG_CACHE_HOME:-~/.cache}/trireme/NAME */
  const char *source_dir; /* files on disk, by any name of the recipe; NULL = none */
  const char *mirror;     /* URL put in place of all before a URL's last part; NULL */
  int tries;              /* as in FetchJob; 0 = its defaults */
  double delay;
} RecipeFrom;

/* By name, from the recipe folders; or by path, when there is a '/' in it. */
NODISCARD Err recipe_load(Recipe *r, const char *name_or_path);
/* From memory; `where` names the text in errors. */
NODISCARD Err recipe_parse(Recipe *r, const char *text, size_t len, const char *where);
/* Gets what train, valid and test need and is not there; fills in r->config. */
NODISCARD Err recipe_obtain(Recipe *r, const RecipeFrom *from);
void recipe_free(Recipe *r);

/* The names of the recipes there are, sorted, each followed by a line break. */
NODISCARD Err recipe_list(Str *out);

#endif
