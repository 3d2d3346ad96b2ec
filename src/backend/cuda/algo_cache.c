/* Reads and writes the GEMM algorithm cache. File format: the first line (AlgoCache.head), then
 * one line per entry: the numbers of the key, `fused`, and the algorithm's words in hexadecimal.
 * Depends on base/file, base/mem, base/rng. */
#include "backend/cuda/algo_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

#define MAX_FILE_BYTES ((size_t)4 << 20)
/* A model has some hundreds of shapes. The file is read again for each new shape, and each of its
 * entries is looked up, so the time for a file grows with the square of its entries. */
#define MAX_ENTRIES 4096

/* Sets p->path: a file in XDG_CACHE_HOME or ~/.cache whose name is a hash of the first line. */
static Err find_path(AlgoCache *p) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char base[FILE_PATH_MAX], name[64];
  p->path[0] = '\0';
  if (cache && *cache) {
    TRY(file_join(base, cache, "trireme"));
  } else if (home && *home) {
    TRY(file_join(base, home, ".cache/trireme"));
  } else {
    return err_set(ERR_WORK, "neither XDG_CACHE_HOME nor HOME is set");
  }
  snprintf(name, sizeof name, "products-%016" PRIx64 ".txt",
           rng_hash(p->head, strlen(p->head), 0));
  return file_join(p->path, base, name);
}

static bool parse_entry(const char *line, AlgoEntry *entry) {
  AlgoKey *k = &entry->key;
  int used = 0;
  *entry = (AlgoEntry){0};
  if (line[strspn(line, "0123456789abcdef ")]) return false; /* sscanf would accept signs */
  if (sscanf(line,
             "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32
             " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 "%n",
             &k->kind, &k->type, &k->tf32, &k->bias, &k->add, &k->aligned, &k->rows, &k->in,
             &k->out, &k->sms, &entry->fused, &used) != 11)
    return false;
  for (int i = 0; i < ALGO_WORDS; i++) {
    int more = 0;
    if (sscanf(line + used, " %" SCNx64 "%n", &entry->algorithm[i], &more) != 1) return false;
    used += more;
  }
  return line[used] == '\0' && entry->fused <= 1;
}

static Err parse_file(AlgoCache *p, char *text) {
  size_t head = strlen(p->head);
  if (strncmp(text, p->head, head) != 0 || text[head] != '\n') return ERR_OK;
  for (char *line = text + head + 1, *end; (end = strchr(line, '\n')); line = end + 1) {
    AlgoEntry entry;
    *end = '\0';
    if (!parse_entry(line, &entry) || algo_cache_find(p, &entry.key)) continue;
    TRY(algo_cache_add(p, &entry));
  }
  return ERR_OK;
}

Err algo_cache_open(AlgoCache *p, const char *gpu, size_t version) {
  *p = (AlgoCache){0};
  snprintf(p->head, sizeof p->head, "trireme products 5, cuBLASLt %zu, %.200s", version, gpu);
  if (find_path(p)) {
    log_warn("cannot keep a GEMM algorithm cache: %s; GEMMs will be timed again at each start",
             err_message());
    p->path[0] = '\0';
  }
  Err err = algo_cache_read(p);
  if (err) algo_cache_free(p);
  return err;
}

static bool has_too_many_lines(const char *text) {
  size_t lines = 0; /* without the first line of the file */
  while (lines <= MAX_ENTRIES && (text = strchr(text, '\n')) && *++text) lines++;
  return lines > MAX_ENTRIES;
}

/* Reads the whole file. The user has never named it, so the advice cannot be to name another. */
static Err read_text(const char *path, Str *text) {
  struct stat st;
  bool exists = stat(path, &st) == 0;
  if (exists && !S_ISREG(st.st_mode))
    return err_set(ERR_WORK, "%s is not a regular file; remove it", path);
  if (exists && (uint64_t)st.st_size > MAX_FILE_BYTES)
    return err_set(ERR_WORK, "%s is larger than %zu bytes and will be replaced", path,
                   MAX_FILE_BYTES);
  TRY(file_read(path, MAX_FILE_BYTES, text));
  if (text->len && has_too_many_lines(text->s))
    return err_set(ERR_WORK, "%s has more than %d entries and will be replaced", path,
                   MAX_ENTRIES);
  return ERR_OK;
}

Err algo_cache_read(AlgoCache *p) {
  Str text = {0};
  Err err = ERR_OK;
  if (!p->path[0] || !file_exists(p->path)) return ERR_OK;
  if (read_text(p->path, &text)) {
    if (!p->warned)
      log_warn("the GEMM algorithm cache is not used: %s; GEMMs are timed again",
               err_message());
    p->warned = true;
  } else if (text.len) {
    err = parse_file(p, text.s);
  }
  str_free(&text);
  return err;
}

void algo_cache_free(AlgoCache *p) {
  mem_free(p->entry);
  *p = (AlgoCache){0};
}

AlgoEntry *algo_cache_find(const AlgoCache *p, const AlgoKey *key) {
  for (size_t i = 0; i < p->count; i++) {
    if (memcmp(&p->entry[i].key, key, sizeof *key) == 0) return &p->entry[i];
  }
  return NULL;
}

Err algo_cache_add(AlgoCache *p, const AlgoEntry *entry) {
  AlgoEntry *old = algo_cache_find(p, &entry->key);
  if (!old) {
    TRY(mem_grow(&p->entry, &p->cap, p->count + 1, sizeof *p->entry));
    old = &p->entry[p->count++];
  }
  *old = *entry;
  return ERR_OK;
}

Err algo_cache_save(const AlgoCache *p) {
  if (!p->path[0]) return ERR_OK;
  char dir[FILE_PATH_MAX];
  memcpy(dir, p->path, sizeof dir);
  *strrchr(dir, '/') = '\0';
  TRY(file_mkdirs(dir));
  Str text = {0};
  str_addf(&text, "%s\n", p->head);
  for (size_t i = p->count > MAX_ENTRIES ? p->count - MAX_ENTRIES : 0; i < p->count; i++) {
    const AlgoEntry *x = &p->entry[i];
    const AlgoKey *k = &x->key;
    str_addf(&text, "%u %u %u %u %u %u %u %u %u %u %u", k->kind, k->type, k->tf32, k->bias,
             k->add, k->aligned, k->rows, k->in, k->out, k->sms, x->fused);
    for (int w = 0; w < ALGO_WORDS; w++) str_addf(&text, " %" PRIx64, x->algorithm[w]);
    str_addc(&text, '\n');
  }
  Err err = str_check(&text);
  if (!err) err = file_write(p->path, text.s, text.len);
  str_free(&text);
  return err;
}
