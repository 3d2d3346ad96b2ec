/* Verifies and traverses the trie of a SentencePiece normalizer. Depends on err, mem.
 *
 * Layout: the size of the trie in bytes, the trie (32-bit units), then NUL-terminated replacement
 * texts. A search in state u continues at unit u ^ offset(u) ^ byte, for any byte of the input,
 * and compares the label of that unit. All 256 such units must therefore be inside the trie. The
 * value of a unit with a leaf is stored at u ^ offset(u): the offset of its replacement text.
 * Equal suffixes are shared, so the trie is a directed graph; the graph of a hostile file may
 * have cycles. */
#include "text/sp_rules.h"

#include <string.h>

#include "base/mem.h"

/* Maximum number of rules that may match at one position: the size of SentencePiece's array. */
#define MOST_MATCHES 32

typedef struct {
  const uint8_t *units_; /* units of four bytes, not aligned */
  size_t units;
  const uint8_t *texts;
  size_t texts_len;
  /* Unit i is a child of exactly one base: i ^ label(i). The children of base b are
   * child[first[b]] to child[first[b + 1] - 1]. */
  uint32_t *first, *child;
} Trie;

static Err report_damage(const SpRules *r, size_t at, const char *what) {
  return err_set(ERR_WORK,
                 "%s is not a usable SentencePiece model: its normalization rules are damaged "
                 "at byte %zu: %s; copy the file again",
                 r->where, r->offset + at, what);
}

static uint32_t unit_at(const Trie *t, size_t i) {
  uint32_t u;
  memcpy(&u, t->units_ + 4 * i, 4);
  return u;
}

/* Returns the base that unit i is a child of, or SIZE_MAX if it is not a child. */
static size_t parent_base(const Trie *t, size_t i) {
  uint32_t u = unit_at(t, i);
  size_t base = i ^ (u & 0xff);
  return u >> 31 || base >= t->units ? SIZE_MAX : base;
}

static Err list_children(Trie *t) {
  TRY(mem_alloc(&t->first, t->units + 2, sizeof *t->first));
  TRY(mem_alloc(&t->child, t->units, sizeof *t->child));
  for (size_t i = 0; i < t->units; i++) {
    size_t base = parent_base(t, i);
    if (base != SIZE_MAX) t->first[base + 2]++;
  }
  for (size_t b = 2; b < t->units + 2; b++) t->first[b] += t->first[b - 1];
  /* During this loop first[b + 1] is the index at which the next child of b is stored. */
  for (size_t i = 0; i < t->units; i++) {
    size_t base = parent_base(t, i);
    if (base != SIZE_MAX) t->child[t->first[base + 1]++] = (uint32_t)i;
  }
  return ERR_OK;
}

static Err open_trie(const SpRules *r, Trie *t) {
  uint32_t size;
  *t = (Trie){0};
  if (r->len == 0) return ERR_OK;
  if (r->len < 4) return report_damage(r, 0, "too few bytes");
  memcpy(&size, r->bytes, 4);
  if (size > r->len - 4 || size % 4 != 0 || size == 0)
    return report_damage(r, 0, "the size of the trie is wrong");
  *t = (Trie){.units_ = r->bytes + 4,
              .units = size / 4,
              .texts = r->bytes + 4 + size,
              .texts_len = r->len - 4 - size};
  return list_children(t);
}

static void close_trie(Trie *t) {
  mem_free(t->first);
  mem_free(t->child);
}

/* Returns the base of a unit. The unit's children are at base ^ label. */
static size_t base_of(const Trie *t, size_t node) {
  uint32_t u = unit_at(t, node);
  return node ^ (size_t)(u >> 10) << ((u & 0x200u) >> 6);
}

static bool has_leaf(const Trie *t, size_t node) {
  return unit_at(t, node) >> 8 & 1;
}

/* Checks one unit, independently of the path that leads to it. */
static Err verify_unit(const SpRules *r, const Trie *t, size_t node) {
  size_t base = base_of(t, node), at = 4 + 4 * node;
  if ((base | 255) >= t->units) return report_damage(r, at, "it points outside the trie");
  if (node == 0 || !has_leaf(t, node)) return ERR_OK;
  size_t text = unit_at(t, base) & 0x7fffffffu;
  if (text >= t->texts_len) return report_damage(r, at, "its replacement is outside the texts");
  size_t left = t->texts_len - text;
  size_t most = left < SP_RULE_LIMIT + 1 ? left : SP_RULE_LIMIT + 1;
  if (memchr(t->texts + text, 0, most)) return ERR_OK;
  return report_damage(r, at,
                       left > SP_RULE_LIMIT ? "its replacement is longer than 1,024 bytes"
                                            : "its replacement has no end");
}

/* One node on the path of a depth-first search. */
typedef struct {
  uint32_t node, next; /* `next`: index in Trie.child of the child to visit next */
} Step;

typedef enum { NODE_NEW, NODE_OPEN, NODE_DONE } NodeState;

typedef struct {
  /* Per unit: its state in the search, and the maximum number of rules that match on a path from
   * it. */
  uint8_t *state, *matches;
  Step *path;
  size_t depth, cap;
} Walk;

static Err enter_node(const SpRules *r, const Trie *t, Walk *w, size_t node) {
  TRY(verify_unit(r, t, node));
  TRY(mem_grow(&w->path, &w->cap, w->depth + 1, sizeof *w->path));
  w->path[w->depth++] = (Step){(uint32_t)node, t->first[base_of(t, node)]};
  w->state[node] = NODE_OPEN;
  return ERR_OK;
}

static Err leave_node(const SpRules *r, const Trie *t, Walk *w) {
  size_t node = w->path[--w->depth].node;
  w->state[node] = NODE_DONE;
  if (node && has_leaf(t, node)) w->matches[node]++;
  if (w->matches[node] > MOST_MATCHES)
    return report_damage(r, 4 + 4 * node, "more than 32 rules match at one position");
  if (w->depth == 0) return ERR_OK;
  size_t parent = w->path[w->depth - 1].node;
  if (w->matches[node] > w->matches[parent]) w->matches[parent] = w->matches[node];
  return ERR_OK;
}

static Err walk_trie(const SpRules *r, const Trie *t, Walk *w) {
  TRY(enter_node(r, t, w, 0));
  while (w->depth) {
    Step *s = &w->path[w->depth - 1];
    size_t node = s->node;
    if (s->next == t->first[base_of(t, node) + 1]) {
      TRY(leave_node(r, t, w));
      continue;
    }
    size_t child = t->child[s->next++];
    if (w->state[child] == NODE_OPEN)
      return report_damage(r, 4 + 4 * child, "the trie has a cycle");
    if (w->state[child] == NODE_NEW)
      TRY(enter_node(r, t, w, child));
    else if (w->matches[child] > w->matches[node])
      w->matches[node] = w->matches[child];
  }
  return ERR_OK;
}

Err sp_rules_verify(const SpRules *r) {
  Trie t;
  Walk w = {0};
  Err err;
  TRY_DONE(open_trie(r, &t));
  if (t.units == 0) return ERR_OK;
  TRY_DONE(mem_alloc(&w.state, t.units, 1));
  TRY_DONE(mem_alloc(&w.matches, t.units, 1));
  err = walk_trie(r, &t, &w);
done:
  mem_free(w.state);
  mem_free(w.matches);
  mem_free(w.path);
  close_trie(&t);
  return err;
}

static uint32_t label_of(const Trie *t, size_t node) {
  return unit_at(t, node) & 0xff;
}

static void mark_joins(const Trie *t, size_t space, bool joins[256]) {
  size_t base = base_of(t, space);
  for (uint32_t k = t->first[base]; k < t->first[base + 1]; k++)
    joins[label_of(t, t->child[k])] = true;
}

static bool find_spaces(const Trie *t, uint32_t *stack, bool *visited, bool joins[256]) {
  size_t depth = 0;
  bool only_alone = true;
  for (stack[depth++] = 0, visited[0] = true; depth;) {
    size_t node = stack[--depth], base = base_of(t, node);
    for (uint32_t k = t->first[base]; k < t->first[base + 1]; k++) {
      size_t child = t->child[k];
      bool space = label_of(t, child) == ' ';
      if (space && node == 0)
        mark_joins(t, child, joins);
      else if (space)
        only_alone = false;
      else if (!visited[child]) {
        visited[child] = true;
        stack[depth++] = (uint32_t)child;
      }
    }
  }
  return only_alone;
}

Err sp_rules_spaces(const SpRules *r, bool *only_alone, bool joins[256]) {
  Trie t;
  uint32_t *stack = NULL;
  bool *visited = NULL;
  Err err;
  *only_alone = true;
  TRY_DONE(open_trie(r, &t));
  if (t.units == 0) return ERR_OK;
  TRY_DONE(mem_alloc(&stack, t.units, sizeof *stack));
  TRY_DONE(mem_alloc(&visited, t.units, sizeof *visited));
  *only_alone = find_spaces(&t, stack, visited, joins);
done:
  mem_free(stack);
  mem_free(visited);
  close_trie(&t);
  return err;
}
