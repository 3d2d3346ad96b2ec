/* Latency and bandwidth of every pair of hosts. A round measures disjoint pairs in parallel, as
 * in a round-robin tournament: N - 1 rounds contain every pair once (N: number of hosts,
 * rounded up to an even number). Pairs that seem slow are measured again alone, because
 * parallel measurements through one machine or one switch slow each other down. Depends on
 * doctor_hosts.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "launch/doctor_hosts.h"

#define ROUND_SECONDS 0.4   /* longest measurement of one direction in seconds */
#define ROUND_LEAST   0.05  /* shortest measurement in seconds, if there are many hosts */
#define TOTAL_SECONDS 120.0 /* time limit for all rounds in seconds; later rounds are skipped */
#define ANSWER_SLACK  40.0  /* seconds that an answer may take in addition to the measurement */
#define AGAIN_MAX     12    /* largest number of pairs that are measured again */
/* Fraction of the normal rate below which a link is a warning. */
#define SLOW_WARNING (1.0 / 3)
/* Fraction of the normal rate below which a link is a problem. */
#define SLOW_PROBLEM (1.0 / 10)
#define FAR_LATENCY  0.005 /* latency in seconds above which a warning is added */

static int compare_pairs(const void *one, const void *other) {
  const PairFacts *x = one, *y = other;
  if (x->a != y->a) return x->a < y->a ? -1 : 1;
  return (x->b > y->b) - (x->b < y->b);
}

/* Returns the entry of a pair; NULL if one of the hosts cannot be measured. */
static PairFacts *find_pair(const DoctorHosts *d, size_t a, size_t b) {
  PairFacts key = {.a = a, .b = b};
  return bsearch(&key, d->pair, d->pairs, sizeof key, compare_pairs);
}

static bool is_measurable(const DoctorHosts *d, size_t i) {
  return i < d->sessions.count && d->host[i].address[0] && d->host[i].port[1] &&
         d->sessions.list[i].is_ready;
}

/* Asks host a to measure the link to host b. */
static void ask_pair(DoctorHosts *d, const PairFacts *p, double seconds) {
  session_ask(
      &d->sessions.list[p->a],
      json_pack("{s:s, s:s, s:i, s:s, s:f}", "ask", "measure", "address", d->host[p->b].address,
                "port", (int)d->host[p->b].port[1], "token", d->token, "seconds", seconds));
}

/* Reads the answer and keeps the better of two measurements. */
static void read_pair(const DoctorHosts *d, PairFacts *p) {
  const json_t *answer = d->sessions.list[p->a].answer;
  if (!answer) {
    if (!p->was_measured) snprintf(p->why, sizeof p->why, "%s", "no answer");
    return;
  }
  double latency = json_number_value(json_object_get(answer, "latency"));
  const char *why = protocol_text(answer, "why");
  if (why[0] && p->was_measured && !p->why[0]) return;
  snprintf(p->why, sizeof p->why, "%.*s", LINK_WHY - 1, why);
  if (!p->was_measured || latency < p->latency) p->latency = latency;
  p->rate_ab = fmax(p->rate_ab, json_number_value(json_object_get(answer, "rate_out")));
  p->rate_ba = fmax(p->rate_ba, json_number_value(json_object_get(answer, "rate_in")));
  p->was_measured = true;
}

/* Returns the k-th pair of round r by the circle method: host n - 1 stays, the others
 * rotate. */
static void find_opponents(size_t r, size_t k, size_t n, size_t *a, size_t *b) {
  size_t x = k == 0 ? n - 1 : (r + k) % (n - 1), y = (r + n - 1 - k) % (n - 1);
  *a = x < y ? x : y;
  *b = x < y ? y : x;
}

static void measure_round(DoctorHosts *d, size_t r, size_t n, double seconds) {
  size_t a, b;
  for (size_t k = 0; k < n / 2; k++) {
    find_opponents(r, k, n, &a, &b);
    PairFacts *p = find_pair(d, a, b);
    if (p && is_measurable(d, a) && is_measurable(d, b)) ask_pair(d, p, seconds);
  }
  sessions_wait(&d->sessions, 2 * seconds + ANSWER_SLACK);
  for (size_t k = 0; k < n / 2; k++) {
    find_opponents(r, k, n, &a, &b);
    PairFacts *p = find_pair(d, a, b);
    if (p && is_measurable(d, a) && is_measurable(d, b)) read_pair(d, p);
  }
}

static Err list_pairs(DoctorHosts *d) {
  size_t n = d->sessions.count;
  TRY(mem_alloc(&d->pair, n * (n - 1) / 2 + 1, sizeof *d->pair));
  for (size_t a = 0; a < n; a++)
    for (size_t b = a + 1; b < n; b++)
      if (is_measurable(d, a) && is_measurable(d, b))
        d->pair[d->pairs++] = (PairFacts){.a = a, .b = b};
  return ERR_OK;
}

static double get_slower(const PairFacts *p) {
  return fmin(p->rate_ab, p->rate_ba);
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Returns the rate of the fastest link of host i; 0 if none was measured. */
static double find_best_rate(const DoctorHosts *d, size_t i) {
  double best = 0;
  for (size_t k = 0; k < d->pairs; k++) {
    const PairFacts *p = &d->pair[k];
    if ((p->a == i || p->b == i) && p->was_measured && get_slower(p) > best)
      best = get_slower(p);
  }
  return best;
}

/* Returns the normal rate of these hosts: the median over the hosts of the rate of each host's
 * fastest link. A median over all links would be wrong if one host is slow, because all its
 * links are slow. Two hosts have a single link, which is compared with the speed of the card.
 * 0: unknown. */
static double find_normal_rate(const DoctorHosts *d) {
  double *best, normal = 0;
  size_t n = 0;
  if (d->pairs == 1) return d->speed * 1e6 / 8;
  if (mem_alloc(&best, d->sessions.count + 1, sizeof *best)) return 0;
  for (size_t i = 0; i < d->sessions.count; i++) {
    best[n] = find_best_rate(d, i);
    n += best[n] > 0;
  }
  qsort(best, n, sizeof *best, compare_doubles);
  if (n) normal = best[n / 2];
  mem_free(best);
  return normal;
}

static void measure_slow_again(DoctorHosts *d) {
  double normal = find_normal_rate(d);
  int times = 0;
  for (size_t i = 0; i < d->pairs && times < AGAIN_MAX; i++) {
    PairFacts *p = &d->pair[i];
    bool is_slow = p->was_measured && (p->why[0] || get_slower(p) < SLOW_WARNING * normal);
    if (!is_slow || !is_measurable(d, p->a) || !is_measurable(d, p->b)) continue;
    times++;
    ask_pair(d, p, ROUND_SECONDS);
    sessions_wait(&d->sessions, 2 * ROUND_SECONDS + ANSWER_SLACK);
    read_pair(d, p);
  }
}

Err doctor_measure_pairs(DoctorHosts *d) {
  size_t n = d->sessions.count + d->sessions.count % 2;
  double until = progress_clock() + TOTAL_SECONDS;
  TRY(list_pairs(d));
  if (d->pairs == 0) return ERR_OK;
  double seconds = fmax(fmin(TOTAL_SECONDS / 4 / (double)(n - 1), ROUND_SECONDS), ROUND_LEAST);
  for (size_t r = 0; r + 1 < n && progress_clock() < until; r++)
    measure_round(d, r, n, seconds);
  measure_slow_again(d);
  return ERR_OK;
}

static void print_rate(char out[32], double rate) {
  if (rate >= 125e6)
    snprintf(out, 32, "%.2f Gbit/s", rate * 8 / 1e9);
  else
    snprintf(out, 32, "%.3g Mbit/s", rate * 8 / 1e6);
}

static FindingLevel grade_pair(const PairFacts *p, double normal) {
  if (p->why[0] || get_slower(p) < SLOW_PROBLEM * normal) return FINDING_PROBLEM;
  return get_slower(p) < SLOW_WARNING * normal ? FINDING_WARNING : FINDING_OK;
}

/* Returns the mildest level of the links of host i: if even its best link is slow, the host is
 * the cause. Returns FINDING_OK for a host with one link, because the other host may be the
 * cause. */
static FindingLevel grade_host(const DoctorHosts *d, size_t i, double normal) {
  FindingLevel least = FINDING_PROBLEM;
  size_t links = 0;
  for (size_t k = 0; k < d->pairs; k++) {
    const PairFacts *p = &d->pair[k];
    if ((p->a != i && p->b != i) || !p->was_measured) continue;
    FindingLevel level = grade_pair(p, normal);
    if (level < least) least = level;
    links++;
  }
  return links > 1 ? least : FINDING_OK;
}

static void judge_host(DoctorHosts *d, size_t i, FindingLevel level, double normal) {
  char best[32], usual[32];
  print_rate(best, find_best_rate(d, i));
  print_rate(usual, normal);
  findings_add(&d->findings, level, doctor_name(d, i), "link speed",
               "all its links are slow: at most %s, where %s is usual among these hosts", best,
               usual);
  findings_remedy(
      &d->findings,
      "check its card (%s), cable and switch port ('ethtool %s': speed, duplex), and "
      "that no traffic shaping limits it ('tc qdisc show')",
      d->host[i].card, d->host[i].card);
}

static void judge_pair(DoctorHosts *d, const PairFacts *p, double normal) {
  char ab[32], ba[32], usual[32];
  print_rate(ab, p->rate_ab);
  print_rate(ba, p->rate_ba);
  print_rate(usual, normal);
  const char *a = doctor_name(d, p->a), *b = doctor_name(d, p->b);
  FindingLevel level = grade_pair(p, normal);
  if (p->why[0])
    findings_add(&d->findings, level, b, "link speed",
                 "the link from %s could not be measured: %s", a, p->why);
  else
    findings_add(&d->findings, level, b, "link speed",
                 "slow link: %s from %s, %s to %s, where %s is %s", ab, a, ba, a, usual,
                 d->pairs > 1 ? "usual among these hosts" : "the speed of the card");
  findings_remedy(&d->findings,
                  "check cards, cables and switch ports of both hosts ('ethtool %s': speed, "
                  "duplex), and that no traffic shaping limits them ('tc qdisc show')",
                  d->host[p->b].card);
}

/* Adds one finding for all links: range of latency and bandwidth, and the effect of the slowest
 * link. A ring all-reduce over N hosts sends 2 (N - 1) / N of the gradient over each link. */
static void judge_all(DoctorHosts *d) {
  const PairFacts *slowest = NULL;
  double latency = 0, fastest = 0, hosts = 0;
  char low[32], high[32], bytes[32];
  for (size_t i = 0; i < d->sessions.count; i++) hosts += find_best_rate(d, i) > 0;
  for (size_t i = 0; i < d->pairs; i++) {
    const PairFacts *p = &d->pair[i];
    if (!p->was_measured || p->why[0]) continue;
    if (!slowest || get_slower(p) < get_slower(slowest)) slowest = p;
    if (p->latency > latency) latency = p->latency;
    fastest = fmax(fastest, fmax(p->rate_ab, p->rate_ba));
  }
  if (!slowest || get_slower(slowest) <= 0) return;
  print_rate(low, get_slower(slowest));
  print_rate(high, fastest);
  double seconds = 2 * (hosts - 1) / hosts * (double)d->needs.gradient / get_slower(slowest);
  bool is_far = latency > FAR_LATENCY;
  findings_add(
      &d->findings, is_far ? FINDING_WARNING : FINDING_OK, "", "links",
      "%zu pair%s: %s (%s-%s) to %s, latency at most %.2f ms. Over the slowest link the "
      "gradient of %s needs at least %.3f s",
      d->pairs, d->pairs == 1 ? "" : "s", low, doctor_name(d, slowest->a),
      doctor_name(d, slowest->b), high, 1e3 * latency, str_of_bytes(bytes, d->needs.gradient),
      seconds);
  if (is_far)
    findings_remedy(&d->findings,
                    "use hosts in one place (cloud: one availability zone, a "
                    "placement group): every all-reduce waits for the latency");
}

void doctor_judge_pairs(DoctorHosts *d) {
  double normal = find_normal_rate(d);
  size_t missing = 0;
  judge_all(d);
  for (size_t i = 0; i < d->sessions.count; i++) {
    FindingLevel level = grade_host(d, i, normal);
    if (level != FINDING_OK) judge_host(d, i, level, normal);
  }
  for (size_t i = 0; i < d->pairs; i++) {
    const PairFacts *p = &d->pair[i];
    missing += !p->was_measured;
    if (!p->was_measured || grade_pair(p, normal) == FINDING_OK) continue;
    if (grade_host(d, p->a, normal) == FINDING_OK && grade_host(d, p->b, normal) == FINDING_OK)
      judge_pair(d, p, normal);
  }
  if (missing == 0) return;
  findings_add(&d->findings, FINDING_WARNING, "", "links", "%zu of %zu pairs were not measured",
               missing, d->pairs);
  findings_remedy(&d->findings,
                  "all pairs together may take %.0f s: check fewer hosts at a time",
                  TOTAL_SECONDS);
}
