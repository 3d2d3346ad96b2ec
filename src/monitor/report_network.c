/* Answers about the network: was it the bottleneck, how does the step time relate to traffic, and which
 * rank do the others wait for. Depends on facts, plot. */
#include <math.h>
#include <string.h>

#include "monitor/report_internal.h"

#define LIMITED_SHARE 0.1  /* waits for this share of a step: the network is the bottleneck */
#define SMALL_SHARE   0.03 /* a smaller share of a step is not mentioned */

static double get_load(const RankTimes *t) {
  return t->work + t->data;
}

/* Compares the slowest rank with the mean of the others. */
static void find_slowest(const RunFacts *f, Waiting *w) {
  size_t slowest = 0, n = f->rank_count;
  double others = 0, others_data = 0;
  for (size_t r = 1; r < n; r++)
    if (get_load(&f->rank[r]) > get_load(&f->rank[slowest])) slowest = r;
  for (size_t r = 0; r < n; r++) {
    if (r == slowest) continue;
    others += get_load(&f->rank[r]) / (double)(n - 1);
    others_data += f->rank[r].data / (double)(n - 1);
  }
  w->slowest_extra = get_load(&f->rank[slowest]) - others;
  w->is_data = f->rank[slowest].data - others_data > w->slowest_extra / 2;
  if (w->slowest_extra > 2 * SMALL_SHARE * f->rank[slowest].total) w->slowest = slowest;
}

Waiting report_waiting(const RunFacts *f) {
  Waiting w = {.network = NAN, .straggler = NAN, .slowest = SIZE_MAX, .slowest_extra = NAN};
  if (f->ranks == 1) w.network = 0;
  if (f->rank_count < 2) return w;
  double least = INFINITY, sum = 0;
  for (size_t r = 0; r < f->rank_count; r++) {
    least = fmin(least, f->rank[r].wait);
    sum += f->rank[r].wait;
  }
  /* The rank that arrives last waits for the transfer alone; what the others wait beyond that is
   * waiting for it. */
  w.network = least;
  w.straggler = sum / (double)f->rank_count - least;
  find_slowest(f, &w);
  return w;
}

static double get_ring_bytes(const RunFacts *f) {
  return 2 * (f->ranks - 1) / f->ranks * f->gradient_bytes;
}

/* NCCL's bytes are not counted: what rank 0 counts is then only losses and times. */
static bool is_by_nccl(const RunFacts *f) {
  return strstr(f->allreduce, "GPU to GPU") != NULL;
}

/* Returns the bytes that rank 0 sent per step for gradients; NAN: not counted. */
static double get_counted_bytes(const RunFacts *f) {
  return f->sent_bytes > 0 && !is_by_nccl(f) ? f->sent_bytes : NAN;
}

/* Returns the bytes that a host sends over its card in a step; NAN: unknown. By messages each of its
 * ranks sends to all ranks of other hosts; a ring leaves a host once, however many ranks it has. */
static double get_host_bytes(const RunFacts *f) {
  double on_host = f->ranks / f->hosts, counted = get_counted_bytes(f);
  if (!(f->hosts > 1) || floor(on_host) != on_host) return NAN;
  if (is_by_nccl(f)) return get_ring_bytes(f);
  return on_host * (f->ranks - on_host) / (f->ranks - 1) * counted;
}

/* Returns false if even the busiest card moved less than half of what hosts must have sent: the
 * gradients took another way, for example an adapter whose counters are not readable. */
static bool is_card_used(const RunFacts *f) {
  return !(f->card.peak < 0.5 * get_host_bytes(f) / (f->parts.total / 1e3));
}

/* Returns the milliseconds that the bytes of a step need at the speed of the card; NAN: unknown. */
static double get_card_ms(const RunFacts *f) {
  return is_card_used(f) ? get_host_bytes(f) / f->card.speed * 1e3 : NAN;
}

static void add_traffic_figures(Answer *a, const RunFacts *f) {
  char text[32];
  const CardUse *c = &f->card;
  double ring = get_ring_bytes(f), counted = get_counted_bytes(f), host = get_host_bytes(f);
  report_figure(a, "sent_bytes", "sent per step by rank 0 (counted)", counted, "%s",
                report_bytes(text, counted));
  report_figure(a, "ring_bytes", "ring formula 2(N-1)/N x gradient", ring, "%s",
                report_bytes(text, ring));
  report_figure(a, "gradient_bytes", "gradient", f->gradient_bytes, "%s",
                report_bytes(text, f->gradient_bytes));
  report_figure(a, "host_bytes", "sent per step by a host, to others", host, "%s",
                report_bytes(text, host));
  if (!c->card[0]) return;
  report_figure(a, "card_bytes_per_s", "busiest card, mean of its busier direction",
                fmax(c->sent, c->received), "%s/s (%s, %s)",
                report_bytes(text, fmax(c->sent, c->received)), c->host, c->card);
  report_figure(a, "card_peak_bytes_per_s", "95 % of its seconds are below", c->peak, "%s/s",
                report_bytes(text, c->peak));
  report_figure(a, "card_speed_bytes_per_s", "its speed in a direction", c->speed, "%s/s",
                report_bytes(text, c->speed));
}

/* Says how much of the card's speed was used. Samples are means over a second, in which the ranks also
 * compute: peak / speed is the share of the time in which the card would be busy at full speed, and is
 * compared with the share of a step that waits. */
static void compare_with_card(Answer *a, const RunFacts *f, double network_share) {
  const CardUse *c = &f->card;
  char used[32], speed[32], share[32];
  double busy = c->peak / c->speed;
  if (!c->card[0]) {
    report_say(a, " The use of the network cards was not measured (no system.jsonl).");
    return;
  }
  if (!is_card_used(f)) {
    report_say(
        a,
        " No card that was measured moved the bytes that the ranks sent (the busiest, %s "
        "on %s, %s/s), so the use of the network is unknown.",
        c->card, c->host, report_bytes(used, c->peak));
    return;
  }
  report_say(
      a, " The busiest card (%s on %s) moved up to %s/s in one direction (mean of a second)",
      c->card, c->host, report_bytes(used, c->peak));
  if (isnan(c->speed)) {
    report_say(a, "; it does not report its speed.");
    return;
  }
  report_say(a, ", %s of its %s/s.", report_share(share, busy), report_bytes(speed, c->speed));
  if (network_share >= LIMITED_SHARE && busy < network_share / 2)
    report_say(
        a,
        " At full speed that is less than half of the wait, so the card is not the limit: "
        "the link behind it, its latency or the processors are.");
}

/* The waits of the ranks are known: network and straggler can be told apart. Returns the share of a step
 * that is the network's. */
static double judge_waiting(Answer *a, const RunFacts *f, const Waiting *w) {
  double step = 0;
  for (size_t r = 0; r < f->rank_count; r++) step += f->rank[r].total / (double)f->rank_count;
  double network = w->network / step;
  char share[32], ms[32];
  report_share(share, network);
  report_ms(ms, w->network);
  if (network >= LIMITED_SHARE) {
    if (is_card_used(f))
      report_verdict(a, VERDICT_BAD, "Yes: %s of a step waits for it", share);
    else
      report_verdict(a, VERDICT_MIXED, "Possibly: %s of a step waits for gradients", share);
    report_say(
        a,
        "On average every rank waits at least %s of each step (%s) for gradients, even the one "
        "that arrives last: that is transfer which the backward pass does not hide, or ranks "
        "that are slow by turns.",
        ms, share);
  } else if (network >= SMALL_SHARE) {
    report_verdict(a, VERDICT_MIXED, "Partly: %s of a step", share);
    report_say(a, "On average every rank waits at least %s of each step (%s) for gradients.",
               ms, share);
  } else {
    report_verdict(a, VERDICT_GOOD, "No: %s of a step", share);
    report_say(a, "The rank that arrives last waits only %s of each step (%s) for gradients.",
               ms, share);
  }
  if (w->slowest != SIZE_MAX && w->straggler > SMALL_SHARE * step)
    report_say(
        a,
        " Another %s of a step is waiting for rank %zu, which is slower by %s, and not for "
        "the network.",
        report_share(share, w->straggler / step), w->slowest, report_ms(ms, w->slowest_extra));
  return network;
}

static void judge_rank_0(Answer *a, const RunFacts *f) {
  double share = f->parts.comm / f->parts.total;
  char text[32], ms[32];
  report_share(text, share);
  if (isnan(share)) {
    report_verdict(a, VERDICT_UNKNOWN, "Unknown");
    report_say(a, "The time for which ranks wait for gradients was not recorded.");
    return;
  }
  if (share >= LIMITED_SHARE)
    report_verdict(a, VERDICT_MIXED, "Possibly: %s of a step waits", text);
  else
    report_verdict(a, VERDICT_GOOD, "No: %s of a step", text);
  report_say(a,
             "Rank 0 waits %s of each step (%s) for gradients; whether for the network or for "
             "slower ranks is unknown, because the times of the other ranks were not recorded.",
             report_ms(ms, f->parts.comm), text);
}

static void draw_waits(Answer *a, const StepCurves *c) {
  PlotSeries s[] = {
      {.name = "step (ms)", .x = c->step->x, .y = c->step->y, .points = c->step->points},
      {.name = "all-reduce wait", .x = c->comm->x, .y = c->comm->y, .points = c->comm->points},
      {.name = "data wait", .x = c->data->x, .y = c->data->y, .points = c->data->points}};
  PlotLines lines = {.title = "Waits of rank 0", .x_label = "step", .y_label = "ms"};
  lines.includes_zero = true;
  lines.mark = NAN;
  lines.series = s;
  lines.count = 3;
  report_chart(a, &lines);
}

static void answer_network(RunReport *r, const StepCurves *curves) {
  Answer *a = &r->answers[ANSWER_NETWORK];
  const RunFacts *f = &r->facts;
  Waiting w = report_waiting(f);
  bool is_known = f->ranks == 1 || (!isnan(f->ranks) && !isnan(f->hosts));
  if (!is_known || isnan(f->parts.total)) {
    report_verdict(a, VERDICT_UNKNOWN, "Unknown");
    report_say(a,
               "The number of ranks, that of hosts or the times of steps were not recorded.");
    return;
  }
  if (f->ranks == 1) {
    report_verdict(a, VERDICT_GOOD, "No: there was one rank");
    report_say(a, "One rank trained, so no gradient was sent.");
    report_figure(a, "comm_wait_ms", "all-reduce not hidden, rank 0", 0, "none");
    return;
  }
  if (f->hosts == 1) {
    char share[32];
    report_verdict(a, VERDICT_GOOD, "No: all ranks were on one host");
    report_say(a,
               "The %.0f ranks shared one host, so gradients did not cross a network; rank 0 "
               "waited %s of a step for the others and the sum.",
               f->ranks, report_share(share, f->parts.comm / f->parts.total));
    if (w.slowest != SIZE_MAX) report_say(a, " Rank %zu is slower than the others.", w.slowest);
  } else if (isnan(w.network)) {
    judge_rank_0(a, f);
    compare_with_card(a, f, /*network_share=*/NAN);
  } else {
    double share = judge_waiting(a, f, &w);
    compare_with_card(a, f, share);
  }
  double exposed = f->parts.comm;
  char ms[32];
  report_figure(a, "comm_wait_ms", "all-reduce not hidden, rank 0", exposed, "%s",
                report_ms(ms, exposed));
  report_figure(a, "network_wait_ms", "waited by every rank", w.network, "%s",
                report_ms(ms, w.network));
  report_figure(a, "straggler_wait_ms", "waited for the slowest rank, mean", w.straggler, "%s",
                report_ms(ms, w.straggler));
  add_traffic_figures(a, f);
  draw_waits(a, curves);
}

/* Says what was counted beside the formula. */
static void compare_with_formula(Answer *a, const RunFacts *f, double ring) {
  char text[32];
  double counted = get_counted_bytes(f);
  if (!isnan(counted))
    report_say(a, "rank 0 counted %s sent (%.2f times the formula)",
               report_bytes(text, counted), counted / ring);
  else if (is_by_nccl(f))
    report_say(a, "the bytes that NCCL sends are not counted");
  else if (f->hosts == 1)
    report_say(a, "on one host it goes through shared memory, where nothing is counted");
  else
    report_say(a, "the bytes that were sent were not counted");
}

static void answer_traffic(RunReport *r, const StepCurves *c) {
  Answer *a = &r->answers[ANSWER_TRAFFIC];
  const RunFacts *f = &r->facts;
  char text[4][32];
  double ring = get_ring_bytes(f), need = get_card_ms(f);
  if (f->ranks == 1) {
    report_verdict(a, VERDICT_FACT, "No traffic");
    report_say(a, "One rank sends nothing, so the step time does not depend on the network.");
    return;
  }
  if (isnan(ring) || isnan(f->parts.comm)) {
    report_verdict(a, VERDICT_UNKNOWN, "Unknown");
    report_say(a,
               "The number of ranks, the size of the gradient or the waits were not recorded.");
    return;
  }
  report_verdict(a, VERDICT_FACT, "%s of %s wait for %s per rank",
                 report_ms(text[0], f->parts.comm), report_ms(text[1], f->parts.total),
                 report_bytes(text[2], ring));
  report_say(
      a,
      "A ring all-reduce over %.0f ranks moves 2(N-1)/N x %s = %s per rank, direction and "
      "step; ",
      f->ranks, report_bytes(text[3], f->gradient_bytes), text[2]);
  compare_with_formula(a, f, ring);
  report_say(
      a,
      ". Of a step of %s, rank 0 waits %s for gradients: transfer that backward does not "
      "hide, and ranks that are slower.",
      text[1], text[0]);
  if (!isnan(need))
    report_say(a, " At the card's speed the %s of a host need %s.",
               report_bytes(text[2], get_host_bytes(f)), report_ms(text[3], need));
  add_traffic_figures(a, f);
  double ratio = get_counted_bytes(f) / ring;
  report_figure(a, "ratio_to_ring", "counted / formula", ratio, "%.3f", ratio);
  report_figure(a, "ms_at_card_speed", "bytes of a host at the card's speed", need, "%s",
                report_ms(text[3], need));
  PlotSeries s[] = {
      {.name = "step (ms)", .x = c->step->x, .y = c->step->y, .points = c->step->points},
      {.name = "all-reduce wait", .x = c->comm->x, .y = c->comm->y, .points = c->comm->points}};
  PlotLines lines = {.title = "Step and all-reduce", .x_label = "step", .y_label = "ms"};
  lines.includes_zero = true;
  lines.mark = NAN;
  lines.series = s;
  lines.count = 2;
  report_chart(a, &lines);
}

void report_answer_network(RunReport *r, const StepCurves *curves) {
  answer_network(r, curves);
  answer_traffic(r, curves);
}
