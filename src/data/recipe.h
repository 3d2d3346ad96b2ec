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
  char *url;      /* URL of a fetch item */
  char *sha256;   /* SHA-256 of a fetch item, 64 lower-case digits; or NULL */
  uint64_t bytes; /* size of a fetch item; 0: unknown */
  char *from;     /* unpack, sgm, split: name of the item that this one is made from */
  char *member;   /* unpack: path of the member in the archive */
  uint64_t every; /* split: N; one source sentence in N is held out */
  int part;       /* split: 0 to 3, position of this item among the four names on the line */
  size_t line;
  char *path; /* absolute path; set by recipe_obtain for the items that were needed */
} RecipeItem;

/* A 'train', 'valid' or 'test' line, which lists names of items. */
typedef struct {
  char *key;
  char **word;
  size_t words;
  size_t line;
} RecipeUse;

typedef struct {
  char *name;     /* name of the recipe's folder */
  char *path;     /* path of recipe.conf */
  char *about;    /* one-sentence description, or NULL */
  char *generate; /* "demo": the text is generated instead of downloaded; otherwise NULL */
  RecipeItem *item;
  size_t items, item_capacity;
  RecipeUse *use;
  size_t uses, use_capacity;
  /* The options for `prepare`, line for line as in recipe.conf. Lines that describe files are
   * replaced by blank lines, so that line numbers in errors are correct. After recipe_obtain,
   * train, valid and test name the files obtained. */
  Str config;
} Recipe;

/* Locations from which the files of a recipe may be obtained. */
typedef struct {
  const char *cache_dir;  /* cache directory; NULL: ${XDG_CACHE_HOME:-~/.cache}/trireme/NAME */
  const char *source_dir; /* directory with files under the recipe's names; NULL: none */
  const char *mirror;     /* replaces all of a URL except its last component; NULL: none */
  int tries;              /* maximum attempts, as in FetchJob; 0: its default */
  double delay;
} RecipeFrom;

/* Loads a recipe by name from the recipe folders, or by path if it contains '/'. */
NODISCARD Err recipe_load(Recipe *r, const char *name_or_path);
/* Parses a recipe in memory; `where` is its name in errors. */
NODISCARD Err recipe_parse(Recipe *r, const char *text, size_t len, const char *where);
/* Downloads and unpacks the missing files of train, valid and test; completes r->config. */
NODISCARD Err recipe_obtain(Recipe *r, const RecipeFrom *from);
void recipe_free(Recipe *r);

/* Appends the names of the available recipes, sorted, each followed by a line break. */
NODISCARD Err recipe_list(Str *out);

#endif
