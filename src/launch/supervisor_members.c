/* Chooses the members of a generation, and excludes machines that cannot be used with the
 * others: no GPU where the others have one, no network in common, no connection, ranks that
 * refuse to run with it. The others then continue. If fewer than --nnodes MIN remain, the
 * first start fails; later the supervisor waits for other machines.
 *
 * If not all machines can be connected, those are kept that come first in this order: this
 * machine, which is never excluded (the run directory may be on its disk); machines that took
 * part before, so that a newcomer does not displace them; machines that fail to connect to the
 * fewest others; earlier arrivals. Depends on supervisor_phase, network_proof, network,
 * standing, console. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "launch/supervisor_internal.h"

/* Seconds for which machines that took part before, but cannot be reached now, are tried again
 * before they are excluded: the network may be down for a while only. */
#define RECONNECT_LIMIT 60.0
#define RETRY_PAUSE     1.0 /* seconds between a network test that failed and the next */
/* Largest number of others with which each machine is compared to count those that share no
 * network with it. */
#define COMPARED_MAX 64

typedef struct {
  Machine *machine;
  char why[900];
} Refusal;

typedef struct {
  Refusal *item;
  size_t count, capacity;
} RefusalList;

static Err add_refusal(RefusalList *l, Machine *m, const char *fmt, ...) PRINTF_LIKE(3, 4);
static Err add_refusal(RefusalList *l, Machine *m, const char *fmt, ...) {
  va_list args;
  TRY(mem_grow(&l->item, &l->capacity, l->count + 1, sizeof *l->item));
  Refusal *r = &l->item[l->count++];
  r->machine = m;
  va_start(args, fmt);
  vsnprintf(r->why, sizeof r->why, fmt, args);
  va_end(args);
  return ERR_OK;
}

/* Excludes the machines. Fails if this machine is among them or if, at the first start, too few
 * remain, because others are unlikely to arrive then. Later the supervisor waits for others
 * until --join-timeout. */
static Err apply_refusals(Supervisor *s, const RefusalList *l) {
  int remaining = supervisor_count_ready(s) - (int)l->count;
  bool is_first = s->generation.number == 0;
  for (size_t i = 0; i < l->count; i++)
    if (l->item[i].machine->is_head || (is_first && remaining < s->spec.min))
      return err_set(ERR_WORK, "%s", l->item[i].why);
  for (size_t i = 0; i < l->count; i++) {
    const Refusal *r = &l->item[i];
    r->machine->is_set_aside = true;
    TRY(standing_note_refusal(&s->standing, r->machine->name));
    snprintf(s->refusal, sizeof s->refusal, "%s is set aside: %s", r->machine->name, r->why);
    console_warn(s->console, "%s", s->refusal);
    supervisor_tell_aside(r->machine, r->why);
  }
  return ERR_OK;
}

typedef struct {
  Machine *machine;
  bool is_proven;
  int strangers; /* number of other machines to which it cannot connect */
} Applicant;

static int compare_applicants(const void *left, const void *right) {
  const Applicant *a = left, *b = right;
  if (a->machine->is_head != b->machine->is_head)
    return (int)b->machine->is_head - (int)a->machine->is_head;
  if (a->is_proven != b->is_proven) return (int)b->is_proven - (int)a->is_proven;
  if (a->strangers != b->strangers) return a->strangers < b->strangers ? -1 : 1;
  return (a->machine->arrival > b->machine->arrival) -
         (a->machine->arrival < b->machine->arrival);
}

/* Lists the members in any order. */
static Err list_members(Supervisor *s, Applicant **list, size_t *count) {
  *count = 0;
  TRY(mem_alloc(list, s->machines + 1, sizeof **list));
  for (size_t i = 0; i < s->machines; i++) {
    Machine *m = &s->machine[i];
    if (!m->is_member) continue;
    bool is_proven = standing_is_proven(&s->standing, m->name);
    (*list)[(*count)++] = (Applicant){.machine = m, .is_proven = is_proven};
  }
  return ERR_OK;
}

/* Returns the ready machine whose GPUs the others must match: this machine, otherwise one that took
 * part before, otherwise any with GPUs. NULL: machines without GPUs are accepted. */
static const Machine *find_gpu_reference(const Supervisor *s) {
  const Machine *senior = NULL, *any = NULL;
  for (size_t i = 0; i < s->machines; i++) {
    const Machine *m = &s->machine[i];
    if (!machine_is_ready(m)) continue;
    bool is_senior = m->is_head || standing_is_proven(&s->standing, m->name);
    if (is_senior && (!senior || m->is_head)) senior = m;
    if (m->gpus > 0 && !any) any = m;
  }
  const Machine *reference = senior ? senior : any;
  return reference && reference->gpus > 0 ? reference : NULL;
}

static Err check_ranks(Supervisor *s, RefusalList *l) {
  const Machine *reference = s->spec.nproc == NPROC_AUTO ? find_gpu_reference(s) : NULL;
  for (size_t i = 0; i < s->machines; i++) {
    Machine *m = &s->machine[i];
    if (!machine_is_ready(m)) continue;
    if (machine_count_ranks(m, s->spec.nproc, &m->ranks)) {
      TRY(add_refusal(l, m, "%s", err_message()));
    } else if (reference && !m->gpus && !m->slots) {
      TRY(add_refusal(l, m,
                      "%s has no GPU that CUDA may use, but %s has; check nvidia-smi and "
                      "CUDA_VISIBLE_DEVICES there, or pass --nproc-per-node N to use its cores",
                      m->name, reference->name));
    }
  }
  return ERR_OK;
}

static Err check_networks(const Supervisor *s, const NetworkMachine *machines, size_t count) {
  NetworkChoice choice;
  Err err = network_candidates(&choice, machines, count, s->spec.network);
  ErrRecord why = err_copy();
  network_free(&choice);
  return err ? err_give(&why) : ERR_OK;
}

static NetworkMachine describe_network(const Machine *m) {
  return (NetworkMachine){m->name, &m->networks};
}

static bool is_separated(const Supervisor *s, const Machine *a, const Machine *b) {
  NetworkMachine pair[2] = {describe_network(a), describe_network(b)};
  return check_networks(s, pair, 2) != ERR_OK;
}

/* Returns true if the machines have the same addresses, as two agents on one machine have. */
static bool has_equal_addresses(const Machine *a, const Machine *b) {
  if (!a->networks.count || a->networks.count != b->networks.count) return false;
  for (size_t i = 0; i < a->networks.count; i++)
    if (strcmp(a->networks.address[i].address, b->networks.address[i].address) != 0)
      return false;
  return true;
}

/* Adds the refusal of `m`, which shares no network with the machines that are kept. The reason is
 * the current error, or a more specific one. */
static Err refuse_network(const Supervisor *s, RefusalList *l, const Applicant *applicant,
                          const NetworkMachine *kept, size_t count, Machine *m) {
  ErrRecord why = err_copy();
  for (size_t i = 0; applicant[i].machine != m; i++)
    if (has_equal_addresses(applicant[i].machine, m))
      return add_refusal(l, m,
                         "%s has the addresses of %s; does the command run twice on one "
                         "machine? End one of the two",
                         m->name, applicant[i].machine->name);
  NetworkMachine pair[2] = {kept[0], describe_network(m)};
  if (count > 1 && check_networks(s, pair, 2) == ERR_OK) err_give(&why);
  return add_refusal(l, m, "%s", err_message());
}

static void count_strangers(const Supervisor *s, Applicant *list, size_t count) {
  for (size_t i = 0; i < count; i++)
    for (size_t k = 1; k < count && k <= COMPARED_MAX; k++)
      list[i].strangers += is_separated(s, list[i].machine, list[(i + k) % count].machine);
}

/* Keeps the members that share a network, and excludes the others. */
static Err keep_connectable(const Supervisor *s, RefusalList *l, Applicant *list, size_t count,
                            NetworkMachine *kept) {
  size_t keep = 0;
  count_strangers(s, list, count);
  qsort(list, count, sizeof *list, compare_applicants);
  for (size_t i = 0; i < count; i++) {
    kept[keep] = describe_network(list[i].machine);
    if (!keep || check_networks(s, kept, keep + 1) == ERR_OK)
      keep++;
    else
      TRY(refuse_network(s, l, list, kept, keep, list[i].machine));
  }
  return ERR_OK;
}

static Err check_members(Supervisor *s, RefusalList *l) {
  Applicant *list;
  NetworkMachine *kept = NULL;
  size_t count;
  Err err = list_members(s, &list, &count);
  if (!err) err = mem_alloc(&kept, count + 1, sizeof *kept);
  for (size_t i = 0; !err && i < count; i++) kept[i] = describe_network(list[i].machine);
  if (!err && count > 1) err = check_networks(s, kept, count);
  if (err == ERR_WORK) err = keep_connectable(s, l, list, count, kept);
  mem_free(kept);
  mem_free(list);
  return err;
}

/* Order of the machines, in which ranks are numbered. This machine is first, so that rank 0,
 * which writes the run directory, runs where the command was typed. If it is not a member, the
 * machine with the newest in-memory checkpoint is first, so that rank 0 finds the copy. */
static int compare_machines(const void *a, const void *b) {
  const Machine *x = a, *y = b;
  if (x->is_head != y->is_head) return (int)y->is_head - (int)x->is_head;
  if (x->copy != y->copy) return x->copy < y->copy ? 1 : -1;
  return (x->arrival > y->arrival) - (x->arrival < y->arrival);
}

/* Makes the first machines that are ready members, and numbers their ranks. */
static int number_members(Supervisor *s) {
  uint32_t rank = 0;
  int members = 0;
  for (size_t i = 0; i < s->machines; i++) {
    Machine *m = &s->machine[i];
    m->is_member = machine_is_ready(m) && members < s->spec.max;
    m->is_clear = !m->is_member;
    if (!m->is_member) continue;
    m->first_rank = rank;
    rank += (uint32_t)m->ranks;
    members++;
  }
  return members;
}

/* Each iteration except the last excludes a machine, so the loop ends. */
static Err choose_usable(Supervisor *s, RefusalList *l, int *members) {
  TRY(check_ranks(s, l));
  do {
    TRY(apply_refusals(s, l));
    l->count = 0;
    *members = number_members(s);
    TRY(check_members(s, l));
  } while (l->count);
  return ERR_OK;
}

Err supervisor_choose_members(Supervisor *s, int *members) {
  RefusalList refusals = {0};
  *members = 0;
  qsort(s->machine, s->machines, sizeof *s->machine, compare_machines);
  Err err = choose_usable(s, &refusals, members);
  mem_free(refusals.item);
  if (err || (*members > 0 && *members >= s->spec.min)) return err;
  *members = 0;
  for (size_t i = 0; i < s->machines; i++) s->machine[i].is_member = false;
  return ERR_OK;
}

const Machine *supervisor_find_waiting(const Supervisor *s) {
  const Machine *waiting = NULL;
  int members = 0;
  for (size_t i = 0; i < s->machines; i++) {
    const Machine *m = &s->machine[i];
    members += m->is_member;
    if (!waiting && !m->is_member && machine_is_ready(m)) waiting = m;
  }
  return members < s->spec.max ? waiting : NULL;
}

/* For one network: moves members that can all connect to each other to the front and returns
 * their number. *proven: how many of them took part before. */
static size_t keep_connected(const Supervisor *s, size_t network, Applicant *list, size_t count,
                             int *proven) {
  size_t keep = 0;
  *proven = 0;
  for (size_t i = 0; i < count; i++) {
    list[i].strangers = 0;
    for (size_t k = 0; k < count; k++)
      list[i].strangers += k != i && network_proof_is_separated(s->proof, network,
                                                                (size_t)list[i].machine->proof,
                                                                (size_t)list[k].machine->proof);
  }
  qsort(list, count, sizeof *list, compare_applicants);
  for (size_t i = 0; i < count; i++) {
    bool is_kept = true;
    for (size_t k = 0; k < keep; k++)
      is_kept = is_kept &&
                !network_proof_is_separated(s->proof, network, (size_t)list[i].machine->proof,
                                            (size_t)list[k].machine->proof);
    if (!is_kept) continue;
    Applicant one = list[i];
    memmove(&list[keep + 1], &list[keep], (i - keep) * sizeof one);
    list[keep++] = one;
    *proven += one.is_proven;
  }
  return keep;
}

/* Moves the members to keep to the front of `list` and returns their number. Selects the
 * network that keeps most of the machines that took part before, then most machines. */
static size_t keep_most(const Supervisor *s, Applicant *list, size_t count) {
  size_t best = 0, best_keep = 0;
  int best_proven = -1, proven;
  for (size_t n = 0; n < network_proof_candidates(s->proof); n++) {
    size_t keep = keep_connected(s, n, list, count, &proven);
    if (proven < best_proven || (proven == best_proven && keep <= best_keep)) continue;
    best = n;
    best_keep = keep;
    best_proven = proven;
  }
  return keep_connected(s, best, list, count, &proven);
}

/* Called while machines that took part before cannot be reached. They are tried again every
 * RETRY_PAUSE seconds. If enough others remain, *is_over is set after RECONNECT_LIMIT seconds.
 * Otherwise fails with the error `why` after --join-timeout. */
static Err wait_for_connection(Supervisor *s, const char *why, size_t lost, double now,
                               bool *is_over) {
  int remaining = supervisor_count_ready(s) - (int)lost;
  *is_over = false;
  if (s->unconnected_since <= 0) {
    s->unconnected_since = now;
    console_warn(s->console, "%s; trying again", why);
  }
  double waited = now - s->unconnected_since;
  s->next_test = now + RETRY_PAUSE;
  if (lost && remaining > 0 && remaining >= s->spec.min) {
    *is_over = waited > RECONNECT_LIMIT;
    return ERR_OK;
  }
  return waited > s->spec.join_timeout ? err_set(ERR_WORK, "%s", why) : ERR_OK;
}

/* Excludes the machines after the first `keep`: all of them, or only those that never took
 * part. */
static Err refuse_unconnected(RefusalList *l, const Applicant *list, size_t keep, size_t count,
                              bool is_all, const char *why) {
  for (size_t i = keep; i < count; i++)
    if (is_all || !list[i].is_proven) TRY(add_refusal(l, list[i].machine, "%s", why));
  return ERR_OK;
}

static Err judge_members(Supervisor *s, RefusalList *l, const char *why, double now) {
  Applicant *list;
  size_t count;
  bool is_over = false;
  TRY(list_members(s, &list, &count));
  size_t keep = keep_most(s, list, count);
  Err err = refuse_unconnected(l, list, keep, count, false, why);
  if (!err && !l->count) {
    err = wait_for_connection(s, why, count - keep, now, &is_over);
    if (!err && is_over) err = refuse_unconnected(l, list, keep, count, true, why);
    if (is_over) {
      s->unconnected_since = 0;
      s->next_test = 0; /* the test without these machines begins at once */
    }
  }
  mem_free(list);
  return err ? err : apply_refusals(s, l);
}

/* This machine is not listed, because it cannot be excluded. */
static Err list_newcomers(Supervisor *s, RefusalList *l) {
  for (size_t i = 0; i < s->machines; i++) {
    Machine *m = &s->machine[i];
    bool is_new = standing_last_good(&s->standing, m->name) != s->last_good;
    if (m->is_member && !m->is_head && is_new)
      TRY(add_refusal(l, m,
                      "the ranks ended with status 2 when it joined, for the reason printed "
                      "above; correct that and let it join again"));
  }
  return ERR_OK;
}

Err supervisor_exclude_newcomers(Supervisor *s, int *excluded) {
  RefusalList refusals = {0};
  *excluded = 0;
  if (!s->last_good) return ERR_OK;
  Err err = list_newcomers(s, &refusals);
  if (!err) err = apply_refusals(s, &refusals);
  if (!err) *excluded = (int)refusals.count;
  if (!err && refusals.count)
    snprintf(s->reason, sizeof s->reason, "the ranks ended with status 2 when %s joined",
             refusals.item[0].machine->name);
  mem_free(refusals.item);
  return err;
}

Err supervisor_exclude_unconnected(Supervisor *s, double now) {
  RefusalList refusals = {0};
  ErrRecord why = err_copy();
  Err err = judge_members(s, &refusals, why.text, now);
  mem_free(refusals.item);
  return err;
}
