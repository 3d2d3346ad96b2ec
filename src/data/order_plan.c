/* Computes the packing that order.h describes: how many chunks a window has, how many batches a
 * chunk has, and which strata share a batch. The packing depends only on the sentence lengths and
 * is the same on every rank. Depends on base, order_turns. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/order_turns.h"

/* Minimum number of strata. With fewer, a stratum would span many lengths, and its slot would
 * waste tokens. */
#define LEAST_STRATA  4096
#define LEAST_BATCHES 4 /* minimum number of batches in a chunk */
/* maximum number of candidates (numbers of chunks) that are packed */
#define MOST_PACKINGS  12
#define MOST_LOOKED_AT 4096 /* maximum number of candidates whose packing is estimated */
#define GOOD_ENOUGH    0.999
#define BATCH_BLOCK    64u /* number of batches searched by one vectorized loop */

typedef struct {
  uint32_t tokens[2]; /* tokens of each side, including eos */
} Slot;

/* Computes the slot sizes: on each side slot j has the length of the longest pair of stratum
 * j. */
static void size_slots(const OrderWindow *o, uint32_t strata, Slot *slot) {
  uint64_t cell_end = o->cell[0].count; /* number of pairs up to the end of cell c */
  size_t c = 0;
  for (uint32_t j = 0; j < strata; j++) {
    uint64_t end = (uint64_t)(j + 1) * o->pairs / strata;
    Slot s = {{0, 0}};
    for (;; c++, cell_end += o->cell[c].count) {
      for (int side = 0; side < 2; side++) {
        uint32_t tokens = o->cell[c].len[side] + 1u;
        if (tokens > s.tokens[side]) s.tokens[side] = tokens;
      }
      if (cell_end >= end) break;
    }
    slot[j] = s;
    if (cell_end == end && c + 1 < o->cells) cell_end += o->cell[++c].count;
  }
}

/* Returns the tokens of the longer side of batch b after the slot is added. */
static inline uint32_t add_slot(const uint32_t *const load[2], Slot s, uint32_t b) {
  uint32_t source = load[0][b] + s.tokens[0];
  uint32_t target = load[1][b] + s.tokens[1];
  return source > target ? source : target;
}

/* Returns the first batch whose longer side is minimal after the slot is added; *lowest receives
 * its tokens. Most of the planning time is spent in this function. A vectorized loop computes the
 * minimum of each block of batches; only the block with the lowest minimum is searched for the
 * batch. */
static uint32_t find_batch(const uint32_t *const load[2], Slot s, uint32_t batches,
                           uint32_t *lowest) {
  uint32_t chosen = 0;
  *lowest = UINT32_MAX;
  for (uint32_t begin = 0; begin < batches; begin += BATCH_BLOCK) {
    uint32_t end = batches - begin < BATCH_BLOCK ? batches : begin + BATCH_BLOCK;
    uint32_t least = UINT32_MAX;
    for (uint32_t b = begin; b < end; b++) {
      uint32_t fuller = add_slot(load, s, b);
      least = fuller < least ? fuller : least;
    }
    if (least >= *lowest) continue;
    *lowest = least;
    chosen = begin;
  }
  while (add_slot(load, s, chosen) != *lowest) chosen++;
  return chosen;
}

/* Assigns each slot, longest first, to the batch whose longer side is minimal after the slot is
 * added. Returns false if a slot fits into no batch. batch_of: (strata) batch of each slot; load:
 * by side, (batches) tokens. */
static bool pack_slots(const Slot *slot, uint32_t strata, uint32_t capacity, uint32_t batches,
                       uint32_t *batch_of, uint32_t *const load[2]) {
  const uint32_t *const filled[2] = {load[0], load[1]};
  for (int side = 0; side < 2; side++) memset(load[side], 0, batches * sizeof *load[side]);
  for (uint32_t j = strata; j-- > 0;) {
    uint32_t lowest;
    uint32_t chosen = find_batch(filled, slot[j], batches, &lowest);
    if (lowest > capacity) return false;
    load[0][chosen] += slot[j].tokens[0];
    load[1][chosen] += slot[j].tokens[1];
    batch_of[j] = chosen;
  }
  return true;
}

typedef struct {
  uint64_t chunks;
  double promise; /* packing efficiency if the packing were perfect */
} Candidate;

static int compare_promise(const void *a, const void *b) {
  const Candidate *x = a, *y = b;
  if (x->promise != y->promise) return x->promise < y->promise ? 1 : -1;
  return x->chunks < y->chunks ? 1 : -1; /* Prefers more chunks, which mix the pairs better. */
}

static uint64_t ceil_div(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}

/* Returns the tokens of the longer side, including eos, of the whole window. */
static uint64_t count_tokens(const OrderWindow *o) {
  uint64_t tokens[2] = {o->pairs, o->pairs};
  for (size_t c = 0; c < o->cells; c++) {
    for (int side = 0; side < 2; side++)
      tokens[side] += (uint64_t)o->cell[c].count * o->cell[c].len[side];
  }
  return tokens[0] > tokens[1] ? tokens[0] : tokens[1];
}

static size_t list_candidates(const OrderWindow *o, uint32_t capacity, uint64_t tokens,
                              Candidate *list) {
  /* expected number of pairs in a batch */
  uint64_t per_batch = ceil_div((uint64_t)capacity * o->pairs, tokens);
  uint64_t least =
      LEAST_BATCHES * per_batch > LEAST_STRATA ? LEAST_BATCHES * per_batch : LEAST_STRATA;
  uint64_t most_chunks = o->pairs / least, least_chunks = o->pairs / (4 * least);
  if (most_chunks < 1) most_chunks = 1;
  if (least_chunks < 1) least_chunks = 1;
  uint64_t step = (most_chunks - least_chunks) / MOST_LOOKED_AT + 1;
  size_t n = 0;
  for (uint64_t chunks = least_chunks; chunks <= most_chunks; chunks += step) {
    uint64_t batches = chunks * ceil_div(ceil_div(tokens, chunks), capacity);
    list[n++] = (Candidate){chunks, (double)tokens / ((double)batches * capacity)};
  }
  qsort(list, n, sizeof *list, compare_promise);
  return n;
}

/* Working memory for planning one window. */
typedef struct {
  Slot *slot;         /* (strata) slot sizes */
  uint32_t *load;     /* (2 * batches) tokens: source of all batches, then target */
  uint32_t *batch_of; /* (strata) batch of each slot, for the current candidate */
  uint32_t *best_of;  /* (strata) batch of each slot, for the best candidate */
  size_t slot_cap;
  size_t load_cap;
  size_t batch_cap;
  size_t best_cap;
} Workspace;

/* Packs one candidate into as few batches as possible; keeps the packing if it is the best so
 * far. */
static Err try_candidate(WindowPlan *plan, const OrderWindow *o, uint32_t capacity,
                         uint64_t tokens, uint64_t chunks, Workspace *work) {
  uint32_t strata = (uint32_t)ceil_div(o->pairs, chunks);
  chunks = ceil_div(o->pairs, strata);
  TRY(mem_grow(&work->slot, &work->slot_cap, strata, sizeof *work->slot));
  TRY(mem_grow(&work->batch_of, &work->batch_cap, strata, sizeof *work->batch_of));
  size_slots(o, strata, work->slot);
  /* `large`: number of slots above half the capacity, no two of which fit into one batch */
  uint64_t total[2] = {0}, large[2] = {0};
  for (uint32_t j = 0; j < strata; j++) {
    for (int side = 0; side < 2; side++) {
      total[side] += work->slot[j].tokens[side];
      large[side] += 2 * (uint64_t)work->slot[j].tokens[side] > capacity;
    }
  }
  uint64_t batches = ceil_div(total[0] > total[1] ? total[0] : total[1], capacity);
  for (int side = 0; side < 2; side++)
    if (batches < large[side]) batches = large[side];
  /* The step grows with the number of batches, because trying every number would take long. */
  for (;; batches += 1 + batches / 128) {
    double fill = (double)tokens / ((double)capacity * (double)batches * (double)chunks);
    if (fill <= plan->fill) return ERR_OK;
    TRY(mem_grow(&work->load, &work->load_cap, 2 * (size_t)batches, sizeof *work->load));
    uint32_t *const load[2] = {work->load, work->load + batches};
    if (!pack_slots(work->slot, strata, capacity, (uint32_t)batches, work->batch_of, load))
      continue;
    plan->fill = fill;
    plan->chunks = chunks;
    plan->strata = strata;
    plan->per_chunk = (uint32_t)batches;
    TRY(mem_grow(&work->best_of, &work->best_cap, strata, sizeof *work->best_of));
    memcpy(work->best_of, work->batch_of, strata * sizeof *work->best_of);
    return ERR_OK;
  }
}

typedef struct {
  Slot size;
  uint32_t stratum;
} Sized;

static int compare_size(const void *a, const void *b) {
  const Sized *x = a, *y = b;
  for (int side = 0; side < 2; side++) {
    if (x->size.tokens[side] != y->size.tokens[side])
      return x->size.tokens[side] < y->size.tokens[side] ? -1 : 1;
  }
  return x->stratum < y->stratum ? -1 : 1;
}

/* Groups strata with equal slots into size classes, and lists the slots of each batch. */
static Err lay_out(WindowPlan *plan, const OrderWindow *o, const uint32_t *batch_of,
                   Workspace *work) {
  uint32_t strata = plan->strata;
  size_slots(o, strata, work->slot);
  TRY(mem_alloc(&plan->slot_begin, (size_t)plan->per_chunk + 1, sizeof *plan->slot_begin));
  TRY(mem_alloc(&plan->slot_class, strata, sizeof *plan->slot_class));
  TRY(mem_alloc(&plan->slot_ordinal, strata, sizeof *plan->slot_ordinal));
  TRY(mem_alloc(&plan->class_begin, (size_t)strata + 1, sizeof *plan->class_begin));
  TRY(mem_alloc(&plan->class_stratum, strata, sizeof *plan->class_stratum));
  for (uint32_t j = 0; j < strata; j++) plan->slot_begin[batch_of[j] + 1]++;
  for (uint32_t b = 0; b < plan->per_chunk; b++) {
    if (plan->slot_begin[b + 1] > plan->most_sentences)
      plan->most_sentences = plan->slot_begin[b + 1];
    plan->slot_begin[b + 1] += plan->slot_begin[b];
  }
  Sized *sorted;
  uint32_t *next;
  TRY(mem_alloc(&sorted, strata, sizeof *sorted));
  Err err = mem_alloc(&next, plan->per_chunk, sizeof *next);
  if (!err) {
    for (uint32_t j = 0; j < strata; j++) sorted[j] = (Sized){work->slot[j], j};
    qsort(sorted, strata, sizeof *sorted, compare_size);
    memcpy(next, plan->slot_begin, plan->per_chunk * sizeof *next);
    for (uint32_t k = 0; k < strata; k++) {
      bool opens = k == 0 || memcmp(&sorted[k].size, &sorted[k - 1].size, sizeof(Slot)) != 0;
      if (opens) plan->class_begin[plan->classes++] = k;
      plan->class_stratum[k] = sorted[k].stratum;
    }
    plan->class_begin[plan->classes] = strata;
    for (uint32_t c = 0; c < plan->classes;
         c++) { /* Within a batch, slots are sorted by increasing length. */
      for (uint32_t k = plan->class_begin[c]; k < plan->class_begin[c + 1]; k++) {
        uint32_t slot = next[batch_of[sorted[k].stratum]]++;
        plan->slot_class[slot] = c;
        plan->slot_ordinal[slot] = k - plan->class_begin[c];
      }
    }
    mem_free(next);
  }
  mem_free(sorted);
  return err;
}

static Err plan_window(WindowPlan *plan, const OrderWindow *o, uint32_t capacity) {
  uint64_t tokens = count_tokens(o);
  Candidate *list;
  TRY(mem_alloc(&list, MOST_LOOKED_AT + 2, sizeof *list));
  size_t n = list_candidates(o, capacity, tokens, list);
  Workspace work = {0};
  Err err = ERR_OK;
  for (size_t i = 0; i < n && i < MOST_PACKINGS && plan->fill < GOOD_ENOUGH && !err; i++) {
    err = try_candidate(plan, o, capacity, tokens, list[i].chunks, &work);
  }
  if (!err) err = lay_out(plan, o, work.best_of, &work);
  plan->batches = plan->chunks * plan->per_chunk;
  mem_free(list);
  mem_free(work.slot);
  mem_free(work.load);
  mem_free(work.batch_of);
  mem_free(work.best_of);
  return err;
}

static Err refuse_capacity(uint32_t capacity, uint32_t longest, bool has_pairs) {
  if (!has_pairs)
    return err_set(ERR_USAGE,
                   "a batch of %u tokens cannot hold the longest text, %u tokens; give "
                   "--batch-tokens %u or more",
                   capacity, longest, longest);
  return err_set(ERR_USAGE,
                 "a batch of %u tokens per side cannot hold the longest sentence, %u tokens "
                 "with its end mark; give --batch-tokens %u or more",
                 capacity, longest, longest);
}

/* Texts have an empty second side, sentence pairs never. */
static Err check_capacity(const Order *o, uint32_t capacity) {
  uint32_t longest = 0;
  bool has_pairs = false;
  for (size_t i = 0; i < o->windows; i++) {
    const OrderWindow *w = &o->window[i];
    for (size_t c = 0; c < w->cells; c++) {
      for (int side = 0; side < 2; side++)
        if (w->cell[c].len[side] > longest) longest = w->cell[c].len[side];
      has_pairs |= w->cell[c].len[1] > 0;
    }
  }
  return longest + 1 <= capacity ? ERR_OK : refuse_capacity(capacity, longest + 1, has_pairs);
}

/* Computes the totals over all windows. */
static void add_up(OrderPlan *plan) {
  double filled = 0;
  for (size_t i = 0; i < plan->windows; i++) {
    const WindowPlan *w = &plan->window[i];
    plan->batches += w->batches;
    filled += w->fill * (double)w->batches;
    if (w->most_sentences > plan->most_sentences) plan->most_sentences = w->most_sentences;
  }
  plan->fill = plan->windows == 1 ? plan->window[0].fill : filled / (double)plan->batches;
}

static Err plan_windows(OrderPlan *plan, const Order *o) {
  TRY(check_capacity(o, plan->capacity));
  TRY(mem_alloc(&plan->window, o->windows, sizeof *plan->window));
  plan->windows = o->windows;
  TRY(turns_new(plan));
  ErrRecord failed = {.code = ERR_OK};
#pragma omp parallel for schedule(dynamic) if (o->windows > 1)
  for (size_t i = 0; i < o->windows; i++) {
    Err err = plan_window(&plan->window[i], &o->window[i], plan->capacity);
    if (err) {
#pragma omp critical(order_plan_error)
      failed = err_take(err);
    }
  }
  if (failed.code) return err_give(&failed);
  add_up(plan);
  return ERR_OK;
}

Err order_plan(OrderPlan *plan, const Order *o, uint32_t capacity) {
  *plan = (OrderPlan){.capacity = capacity};
  Err err = plan_windows(plan, o);
  if (err) order_plan_free(plan);
  return err;
}

void order_plan_free(OrderPlan *plan) {
  for (size_t i = 0; i < plan->windows; i++) {
    WindowPlan *w = &plan->window[i];
    mem_free(w->slot_begin);
    mem_free(w->slot_class);
    mem_free(w->slot_ordinal);
    mem_free(w->class_begin);
    mem_free(w->class_stratum);
  }
  mem_free(plan->window);
  turns_free(plan);
  *plan = (OrderPlan){0};
}
