/* The file: a line that says what it is for, then one line for each plan: the key,
 * fused, the algorithm's words in hexadecimal. Depends on file, mem, rng. */
#include "backend/cuda/plans.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

#define MOST_BYTES ((size_t)4 << 20)

static Err find_path(Plans *p) {
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

static bool read_plan(const char *line, Plan *plan) {
  PlanKey *k = &plan->key;
  int used = 0;
  *plan = (Plan){0};
  if (sscanf(line,
             "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32
             " %" SCNu32 " %" SCNu32 " %" SCNu32 "%n",
             &k->kind, &k->type, &k->tf32, &k->bias, &k->add, &k->aligned, &k->rows, &k->in,
             &k->out, &plan->fused, &used) != 10)
    return false;
  for (int i = 0; i < PLAN_WORDS; i++) {
    int more = 0;
    if (sscanf(line + used, " %" SCNx64 "%n", &plan->algorithm[i], &more) != 1) return false;
    used += more;
  }
  return line[used] == '\0';
}

static Err read_plans(Plans *p, char *text) {
  size_t head = strlen(p->head);
  if (strncmp(text, p->head, head) != 0 || text[head] != '\n') return ERR_OK;
  for (char *line = text + head + 1, *end; (end = strchr(line, '\n')); line = end + 1) {
    Plan plan;
    *end = '\0';
    if (read_plan(line, &plan) && !plans_find(p, &plan.key)) TRY(plans_add(p, &plan));
  }
  return ERR_OK;
}

Err plans_open(Plans *p, const char *gpu, size_t version) {
  *p = (Plans){0};
  snprintf(p->head, sizeof p->head, "trireme products 3, cuBLASLt %zu, %.200s", version, gpu);
  if (find_path(p)) {
    log_warn("how matrix products are best done is not kept for next time: %s", err_message());
    p->path[0] = '\0';
  }
  Err err = plans_read(p);
  if (err) plans_free(p);
  return err;
}

Err plans_read(Plans *p) {
  Str text = {0};
  Err err = ERR_OK;
  if (!p->path[0] || !file_exists(p->path)) return ERR_OK;
  if (file_read(p->path, MOST_BYTES, &text))
    log_warn("how matrix products are best done is found out again: %s", err_message());
  else if (text.len)
    err = read_plans(p, text.s);
  str_free(&text);
  return err;
}

void plans_free(Plans *p) {
  mem_free(p->plan);
  *p = (Plans){0};
}

Plan *plans_find(const Plans *p, const PlanKey *key) {
  for (size_t i = 0; i < p->count; i++) {
    if (memcmp(&p->plan[i].key, key, sizeof *key) == 0) return &p->plan[i];
  }
  return NULL;
}

Err plans_add(Plans *p, const Plan *plan) {
  Plan *old = plans_find(p, &plan->key);
  if (!old) {
    TRY(mem_grow(&p->plan, &p->cap, p->count + 1, sizeof *p->plan));
    old = &p->plan[p->count++];
  }
  *old = *plan;
  return ERR_OK;
}

Err plans_save(const Plans *p) {
  if (!p->path[0]) return ERR_OK;
  char dir[FILE_PATH_MAX];
  memcpy(dir, p->path, sizeof dir);
  *strrchr(dir, '/') = '\0';
  TRY(file_mkdirs(dir));
  Str text = {0};
  str_addf(&text, "%s\n", p->head);
  for (size_t i = 0; i < p->count; i++) {
    const Plan *x = &p->plan[i];
    const PlanKey *k = &x->key;
    str_addf(&text, "%u %u %u %u %u %u %u %u %u %u", k->kind, k->type, k->tf32, k->bias, k->add,
             k->aligned, k->rows, k->in, k->out, x->fused);
    for (int w = 0; w < PLAN_WORDS; w++) str_addf(&text, " %" PRIx64, x->algorithm[w]);
    str_addc(&text, '\n');
  }
  Err err = str_check(&text);
  if (!err) err = file_write(p->path, text.s, text.len);
  str_free(&text);
  return err;
}
