/* Answers from the times of a step and the samples of hosts: were the devices busy, was the network
 * the bottleneck, how long is a step, how it relates to traffic. Depends on facts, plot, trend. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "monitor/report_internal.h"
#include "monitor/trend.h"

#define BUSY_SHARE    0.9  /* a device that computes for this share of a step is busy */
#define LIMITED_SHARE 0.1  /* waits for this share of a step: the network is the bottleneck */
#define SMALL_SHARE   0.03 /* a smaller share of a step is not mentioned */
#define BUSY_PERCENT  85   /* utilization from which a GPU is busy */

static double or_zero(double value) {
  return isnan(value) ? 0 : value;
}

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

static const char *const part_names[] = {"forward",         "backward",   "update", "data wait",
                                         "all-reduce wait", "checkpoint", "other"};
#define PARTS (sizeof part_names / sizeof *part_names)

static void get_parts(const StepParts *p, double values[PARTS]) {
  const double all[PARTS] = {p->forward, p->backward,   p->update, p->data,
                             p->comm,    p->checkpoint, p->other};
  memcpy(values, all, sizeof all);
}

/* Names the largest part of a step that is not computation. */
static size_t find_largest_loss(const StepParts *p) {
  double values[PARTS];
  size_t largest = 3;
  get_parts(p, values);
  for (size_t i = 3; i < PARTS; i++)
    if (or_zero(values[i]) > or_zero(values[largest])) largest = i;
  return largest;
}

static void add_parts_chart(Answer *a, const StepParts *p) {
  double values[PARTS];
  get_parts(p, values);
  PlotRow row = {"step", values};
  PlotBars bars = {"Time of a step", "ms", part_names, PARTS, &row, 1};
  plot_bars(&bars, &a->chart);
  for (size_t i = 0; i < PARTS; i++) {
    char ms[32];
    if (or_zero(values[i]) > 0.005 * p->total)
      str_addf(&a->caption, "%s%s %s", a->caption.len ? ", " : "", part_names[i],
               report_ms(ms, values[i]));
  }
}

static double get_compute_share(const StepParts *p) {
  return (or_zero(p->forward) + or_zero(p->backward) + or_zero(p->update)) / p->total;
}

static void add_device_figures(Answer *a, const RunFacts *f) {
  char text[2][32];
  double share = get_compute_share(&f->parts);
  report_figure(a, "compute_share", "of a step computing (rank 0)", share, "%s",
                report_share(text[0], share));
  report_figure(a, "mfu", "MFU: share of the device's peak FLOP/s", f->mfu, "%s",
                report_share(text[0], f->mfu));
  report_figure(a, "tflops_per_s", "GEMM TFLOP/s, all ranks", f->tflops, "%.3g", f->tflops);
  if (!isnan(f->gpus)) {
    report_figure(a, "gpus", "GPUs of the run, of the hosts", f->gpus_used, "%.0f of %.0f",
                  f->gpus_used, f->gpus);
    report_figure(a, "gpu_busy_percent", "GPU utilisation", f->gpu_busy, "%.0f %%",
                  f->gpu_busy);
    report_figure(a, "gpu_watts", "power of a GPU", f->gpu_watts, "%.0f W of %.0f W",
                  f->gpu_watts, f->gpu_watts_limit);
    report_figure(a, "gpu_memory_bytes", "GPU memory, most", f->gpu_memory_used, "%s of %s",
                  report_bytes(text[0], f->gpu_memory_used),
                  report_bytes(text[1], f->gpu_memory_total));
    report_figure(a, "gpu_throttled_share", "of the time with lowered clocks", f->gpu_throttled,
                  "%s", report_share(text[0], f->gpu_throttled));
  }
  report_figure(a, "cpu_busy_percent", "CPU utilisation, all cores and hosts", f->cpu_busy,
                "%.0f %%", f->cpu_busy);
  report_figure(a, "cores", "CPU cores", f->cores, "%.0f", f->cores);
}

/* Returns true if NVML reports a low utilization, whatever the times of steps show. */
static bool is_gpu_idle(const RunFacts *f) {
  return f->is_on_gpu && f->gpu_busy < BUSY_PERCENT;
}

/* The times of all ranks are known: what share of them is work. */
static void judge_ranks(Answer *a, const RunFacts *f) {
  double work = 0, wait = 0, data = 0, total = 0;
  Waiting w = report_waiting(f);
  char share[3][32];
  for (size_t r = 0; r < f->rank_count; r++) {
    work += f->rank[r].work;
    wait += f->rank[r].wait;
    data += f->rank[r].data;
    total += f->rank[r].total;
  }
  report_share(share[0], work / total);
  report_share(share[1], wait / total);
  report_share(share[2], data / total);
  if (work / total >= BUSY_SHARE && is_gpu_idle(f))
    report_verdict(a, VERDICT_MIXED, "Not fully: utilisation %.0f %%", f->gpu_busy);
  else if (work / total >= BUSY_SHARE)
    report_verdict(a, VERDICT_GOOD, "Yes: %s of the ranks' time computes", share[0]);
  else if (data > wait)
    report_verdict(a, VERDICT_BAD, "No: %s of the ranks' time is data wait", share[2]);
  else if (w.slowest != SIZE_MAX && w.straggler > w.network)
    report_verdict(a, VERDICT_BAD, "No: %s of the ranks' time waits for rank %zu", share[1],
                   w.slowest);
  else
    report_verdict(a, work / total < 0.7 ? VERDICT_BAD : VERDICT_MIXED,
                   "No: %s of the ranks' time is all-reduce wait", share[1]);
  report_say(
      a,
      "Over all %zu ranks, steps consist of %s work, %s waiting for other ranks and their "
      "gradients, and %s waiting for data.",
      f->rank_count, share[0], share[1], share[2]);
  if (f->is_on_gpu && !isnan(f->gpu_busy))
    report_say(a, " The GPUs report %.0f %% utilisation.", f->gpu_busy);
}

/* Only the times of rank 0 are known. */
static void judge_step(Answer *a, const RunFacts *f) {
  const StepParts *p = &f->parts;
  const char *device = f->is_on_gpu ? "GPU" : "CPU";
  char share[32], lost[32], ms[32];
  double values[PARTS], busy = get_compute_share(p);
  size_t loss = find_largest_loss(p);
  get_parts(p, values);
  report_share(share, busy);
  if (busy >= BUSY_SHARE && !is_gpu_idle(f)) {
    report_verdict(a, VERDICT_GOOD, "Yes: %s of a step computes", share);
    report_say(a,
               "The %s of rank 0 computes during %s of a step of %s; the largest other part is "
               "%s with %s.",
               device, share, report_ms(ms, p->total), part_names[loss],
               report_share(lost, or_zero(values[loss]) / p->total));
  } else if (busy >= BUSY_SHARE) {
    report_verdict(a, VERDICT_MIXED, "Not fully: utilisation %.0f %%", f->gpu_busy);
    report_say(a,
               "Steps compute during %s of their time, but the GPUs are busy during %.0f %% of "
               "all samples: the rest is validation, start and checkpoints, or small kernels.",
               share, f->gpu_busy);
  } else {
    report_verdict(a, busy < 0.7 ? VERDICT_BAD : VERDICT_MIXED, "No: %s of a step is %s",
                   report_share(lost, or_zero(values[loss]) / p->total), part_names[loss]);
    report_say(
        a, "The %s of rank 0 computes during only %s of a step of %s; %s of the step is %s.",
        device, share, report_ms(ms, p->total), lost, part_names[loss]);
  }
}

static void answer_devices(RunReport *r) {
  Answer *a = &r->answers[ANSWER_DEVICES];
  const RunFacts *f = &r->facts;
  const StepParts *p = &f->parts;
  if (isnan(p->total) || isnan(p->forward)) {
    report_verdict(a, VERDICT_UNKNOWN, "Unknown");
    report_say(a, "The times of steps were not measured.");
    return;
  }
  if (f->rank_count > 1)
    judge_ranks(a, f);
  else
    judge_step(a, f);
  if (isnan(f->cpu_busy) && isnan(f->gpu_busy))
    report_say(a, " Utilisation of the hosts was not measured (no system.jsonl).");
  if (f->is_on_gpu && isnan(f->mfu)) report_say(a, " The share of the peak (MFU) is unknown.");
  add_device_figures(a, f);
  add_parts_chart(a, p);
}

static double get_ring_bytes(const RunFacts *f) {
  return 2 * (f->ranks - 1) / f->ranks * f->gradient_bytes;
}

static void add_traffic_figures(Answer *a, const RunFacts *f) {
  char text[32];
  const CardUse *c = &f->card;
  double ring = get_ring_bytes(f);
  report_figure(a, "sent_bytes", "sent per step by rank 0 (counted)", f->sent_bytes, "%s",
                report_bytes(text, f->sent_bytes));
  report_figure(a, "ring_bytes", "ring formula 2(N-1)/N x gradient", ring, "%s",
                report_bytes(text, ring));
  report_figure(a, "gradient_bytes", "gradient", f->gradient_bytes, "%s",
                report_bytes(text, f->gradient_bytes));
  if (!c->card[0]) return;
  report_figure(a, "card_bytes_per_s", "busiest card, mean of its busier direction",
                fmax(c->sent, c->received), "%s/s (%s, %s)",
                report_bytes(text, fmax(c->sent, c->received)), c->host, c->card);
  report_figure(a, "card_peak_bytes_per_s", "its 95 % peak", c->peak, "%s/s",
                report_bytes(text, c->peak));
  report_figure(a, "card_speed_bytes_per_s", "its speed", c->speed, "%s/s",
                report_bytes(text, c->speed));
}

/* Says how much of the card's speed was used. */
static void compare_with_card(Answer *a, const RunFacts *f, double network_share) {
  const CardUse *c = &f->card;
  char used[32], speed[32], share[32];
  if (!c->card[0]) {
    report_say(a, " The use of the network cards was not measured (no system.jsonl).");
    return;
  }
  if (isnan(c->speed)) {
    report_say(a,
               " The busiest card (%s on %s) moved %s/s at its peak; it does not report its "
               "speed.",
               c->card, c->host, report_bytes(used, c->peak));
    return;
  }
  report_say(a, " The busiest card (%s on %s) moved %s/s at its peak, %s of its %s/s.", c->card,
             c->host, report_bytes(used, c->peak), report_share(share, c->peak / c->speed),
             report_bytes(speed, c->speed));
  if (c->peak < 0.5 * c->speed && network_share >= LIMITED_SHARE)
    report_say(
        a,
        " So the card is not what limits the transfer: the link behind it, its latency or "
        "the processors do.");
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
    report_verdict(a, VERDICT_BAD, "Yes: %s of a step waits for it", share);
    report_say(
        a,
        "Every rank waits at least %s of each step (%s) for gradients, even the one that "
        "arrives last: that is transfer which the backward pass does not hide.",
        ms, share);
  } else if (network >= SMALL_SHARE) {
    report_verdict(a, VERDICT_MIXED, "Partly: %s of a step", share);
    report_say(a, "Every rank waits at least %s of each step (%s) for gradients.", ms, share);
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
  if (share >= LIMITED_SHARE)
    report_verdict(a, VERDICT_MIXED, "Possibly: %s of a step waits", text);
  else
    report_verdict(a, VERDICT_GOOD, "No: %s of a step", text);
  report_say(a,
             "Rank 0 waits %s of each step (%s) for gradients; whether for the network or for "
             "slower ranks is unknown, because the times of the other ranks were not recorded.",
             report_ms(ms, f->parts.comm), text);
}

static void answer_network(RunReport *r) {
  Answer *a = &r->answers[ANSWER_NETWORK];
  const RunFacts *f = &r->facts;
  Waiting w = report_waiting(f);
  if (isnan(f->ranks) || isnan(f->parts.total)) {
    report_verdict(a, VERDICT_UNKNOWN, "Unknown");
    report_say(a, "The number of ranks or the times of steps were not recorded.");
    return;
  }
  if (f->ranks == 1) {
    report_verdict(a, VERDICT_GOOD, "No: there was one rank");
    report_say(a, "One rank trained, so no gradient was sent.");
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
}

/* Makes the curve of step times in ms from that of steps per second. */
static Err make_step_curve(const RunLog *log, Curve *c) {
  TRY(report_curve(log, "steps_per_s", c));
  for (size_t i = 0; i < c->points; i++) c->y[i] = c->y[i] > 0 ? 1e3 / c->y[i] : NAN;
  return ERR_OK;
}

static void answer_step(RunReport *r, const Curve *step) {
  Answer *a = &r->answers[ANSWER_STEP];
  const RunFacts *f = &r->facts;
  const StepParts *p = &f->parts;
  char ms[5][32];
  if (isnan(p->total)) {
    report_verdict(a, VERDICT_UNKNOWN, "Unknown");
    report_say(a, "No record of a step has its rate.");
    return;
  }
  report_verdict(a, VERDICT_FACT, "%s", report_ms(ms[0], p->total));
  report_say(
      a,
      "A step takes %s on average (half of the records below %s, 95 %% below %s): %s forward, "
      "%s backward, and the rest in the parts below.",
      ms[0], report_ms(ms[1], f->step_median), report_ms(ms[2], f->step_p95),
      report_ms(ms[3], p->forward), report_ms(ms[4], p->backward));
  if (f->is_on_gpu && f->ranks == 1)
    report_say(a, " On one GPU a step is one CUDA graph, so backward contains everything.");
  double values[PARTS];
  static const char *const keys[PARTS] = {"forward_ms",   "backward_ms",  "update_ms",
                                          "data_wait_ms", "comm_wait_ms", "checkpoint_ms",
                                          "other_ms"};
  get_parts(p, values);
  report_figure(a, "step_ms", "step", p->total, "%s", ms[0]);
  for (size_t i = 0; i < PARTS; i++)
    report_figure(a, keys[i], part_names[i], values[i], "%s (%.1f %%)",
                  report_ms(ms[1], values[i]), 100 * values[i] / p->total);
  report_figure(a, "tokens_per_s", "target tokens per second", f->tokens_per_s, "%s",
                report_count(ms[1], f->tokens_per_s));
  PlotSeries s = {.name = "step (ms)", .x = step->x, .y = step->y, .points = step->points};
  PlotLines lines = {
      .title = "Time of a step", .x_label = "step", .y_label = "ms", .mark = NAN};
  lines.includes_zero = true;
  lines.series = &s;
  lines.count = 1;
  report_chart(a, &lines);
}

static void answer_traffic(RunReport *r, const Curve *step, const Curve *comm) {
  Answer *a = &r->answers[ANSWER_TRAFFIC];
  const RunFacts *f = &r->facts;
  char text[4][32];
  double ring = get_ring_bytes(f), counted = f->sent_bytes;
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
  double need = ring / f->card.speed * 1e3;
  report_verdict(a, VERDICT_FACT, "%s of %s wait for %s per rank",
                 report_ms(text[0], f->parts.comm), report_ms(text[1], f->parts.total),
                 report_bytes(text[2], ring));
  report_say(
      a,
      "A ring all-reduce over %.0f ranks moves 2(N-1)/N x %s = %s per rank, direction and "
      "step; ",
      f->ranks, report_bytes(text[3], f->gradient_bytes), text[2]);
  if (counted > 0)
    report_say(a, "rank 0 counted %s sent (%.2f times the formula)",
               report_bytes(text[3], counted), counted / ring);
  else
    report_say(a, "%s",
               f->hosts == 1 ? "on one host it goes through shared memory, where nothing "
                               "is counted"
                             : "the bytes that were sent were not counted (NCCL)");
  report_say(a, ". Of a step of %s, %s are all-reduce that backward does not hide.", text[1],
             text[0]);
  if (!isnan(need) && f->hosts > 1)
    report_say(a, " At the card's speed the bytes need %s.", report_ms(text[3], need));
  add_traffic_figures(a, f);
  report_figure(a, "ratio_to_ring", "counted / formula", counted > 0 ? counted / ring : NAN,
                "%.3f", counted / ring);
  report_figure(a, "ms_at_card_speed", "at the card's speed", need, "%s",
                report_ms(text[3], need));
  PlotSeries s[] = {
      {.name = "step (ms)", .x = step->x, .y = step->y, .points = step->points},
      {.name = "all-reduce wait", .x = comm->x, .y = comm->y, .points = comm->points}};
  PlotLines lines = {.title = "Step and all-reduce", .x_label = "step", .y_label = "ms"};
  lines.includes_zero = true;
  lines.mark = NAN;
  lines.series = s;
  lines.count = 2;
  report_chart(a, &lines);
}

/* Bars of the first 32 ranks; the table has all. */
static Err draw_ranks(RunReport *r) {
  static const char *const names[] = {"work", "data wait", "wait for others"};
  const RunFacts *f = &r->facts;
  size_t n = f->rank_count < 32 ? f->rank_count : 32;
  double(*values)[3] = NULL;
  char(*labels)[96] = NULL;
  PlotRow *rows = NULL;
  Err err;
  if (n == 0) return ERR_OK;
  TRY_DONE(mem_alloc(&values, n, sizeof *values));
  TRY_DONE(mem_alloc(&labels, n, sizeof *labels));
  TRY_DONE(mem_alloc(&rows, n, sizeof *rows));
  for (size_t i = 0; i < n; i++) {
    const RankTimes *t = &f->rank[i];
    values[i][0] = t->work;
    values[i][1] = t->data;
    values[i][2] = t->wait;
    snprintf(labels[i], sizeof labels[i], "rank %zu%s%s", i, *t->host ? " " : "", t->host);
    rows[i] = (PlotRow){labels[i], values[i]};
  }
  PlotBars bars = {"Time of a step on each rank", "ms", names, 3, rows, n};
  plot_bars(&bars, &r->rank_chart);
done:
  mem_free(values);
  mem_free(labels);
  mem_free(rows);
  return err;
}

Err report_answer_machine(RunReport *r) {
  const RunLog *log = &r->facts.log;
  Curve step = {0}, comm = {0}, data = {0};
  Err err;
  answer_devices(r);
  answer_network(r);
  TRY_DONE(make_step_curve(log, &step));
  TRY_DONE(report_curve(log, "comm_wait_ms", &comm));
  TRY_DONE(report_curve(log, "data_wait_ms", &data));
  answer_step(r, &step);
  answer_traffic(r, &step, &comm);
  if (r->facts.ranks > 1) {
    PlotSeries s[] = {
        {.name = "step (ms)", .x = step.x, .y = step.y, .points = step.points},
        {.name = "all-reduce wait", .x = comm.x, .y = comm.y, .points = comm.points},
        {.name = "data wait", .x = data.x, .y = data.y, .points = data.points}};
    PlotLines lines = {.title = "Waits of rank 0", .x_label = "step", .y_label = "ms"};
    lines.includes_zero = true;
    lines.mark = NAN;
    lines.series = s;
    lines.count = 3;
    report_chart(&r->answers[ANSWER_NETWORK], &lines);
  }
  Waiting w = report_waiting(&r->facts);
  r->straggler = w.slowest;
  TRY_DONE(draw_ranks(r));
done:
  report_free_curve(&step);
  report_free_curve(&comm);
  report_free_curve(&data);
  return err;
}
