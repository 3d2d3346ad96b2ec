/* Records of metrics.jsonl: columns by name, events, undone steps. Depends on base, nameindex,
 * scan. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "monitor/runlog_internal.h"

#define STEP_LIMIT 9007199254740992.0 /* 2^53: larger numbers are not whole in a double */

/* A value of the record that is being read. */
typedef struct {
  uint32_t column;
  double value;
} Reading;

typedef struct {
  uint64_t step, undone_after;
  double seconds;
  bool has_step, undoes_later;
  char event[RUNLOG_NAME]; /* empty: measurements */
  size_t values;
  Reading value[RUNLOG_COLUMNS];
} Record;

static void free_column(RunColumn *c) {
  mem_free(c->record);
  mem_free(c->value);
}

void runlog_drop_metrics(RunLog *log) {
  for (size_t i = 0; i < log->column_count; i++) free_column(&log->columns[i]);
  for (size_t i = 0; i < log->event_count; i++) mem_free(log->events[i].line);
  log->column_count = 0;
  log->event_count = 0;
  log->ranks_events = 0;
  log->last_event_step = 0;
  log->records = 0;
  nameindex_free(&log->column_index);
  log->left_out_name[0] = 0;
}

const RunColumn *runlog_column(const RunLog *log, const char *name) {
  for (size_t i = 0; i < log->column_count; i++)
    if (strcmp(log->columns[i].name, name) == 0)
      return log->columns[i].points ? &log->columns[i] : NULL;
  return NULL;
}

RunPoint runlog_point(const RunLog *log, const RunColumn *column, size_t i) {
  uint32_t record = column->record[i];
  return (RunPoint){
      .step = log->step[record], .seconds = log->seconds[record], .value = column->value[i]};
}

bool runlog_last(const RunLog *log, const char *name, RunPoint *point) {
  const RunColumn *c = runlog_column(log, name);
  if (!c) return false;
  *point = runlog_point(log, c, c->points - 1);
  return true;
}

/* Finds or adds the column with the scanned name. *index: RUNLOG_COLUMNS if the name is not that of a
 * column, or if there are too many. */
static Err find_column(RunLog *log, const Scan *scan, size_t *index) {
  size_t count = log->column_count;
  *index = RUNLOG_COLUMNS;
  if (scan->key_len >= RUNLOG_NAME) return ERR_OK;
  size_t found = nameindex_find(&log->column_index, log->columns, sizeof *log->columns,
                                scan->key, scan->key_len);
  if (found != NAMEINDEX_NONE) {
    *index = found;
    return ERR_OK;
  }
  RunColumn column = {0};
  if (!scan_copy_name(column.name, sizeof column.name, scan->key, scan->key_len)) return ERR_OK;
  if (count == RUNLOG_COLUMNS) {
    if (!log->left_out_name[0]) memcpy(log->left_out_name, column.name, sizeof column.name);
    return ERR_OK;
  }
  TRY(mem_grow(&log->columns, &log->column_capacity, count + 1, sizeof column));
  log->columns[count] = column;
  TRY(nameindex_add(&log->column_index, log->columns, sizeof column, count));
  log->column_count++;
  *index = count;
  return ERR_OK;
}

static bool read_step(Scan *scan, uint64_t *step) {
  if (!(scan->number >= 0 && scan->number < STEP_LIMIT)) {
    scan->why = "a step is not a number of steps";
    return false;
  }
  *step = (uint64_t)scan->number;
  return true;
}

static LineResult read_number(RunLog *log, Scan *scan, Record *r) {
  if (scan_key_is(scan, "step")) {
    r->has_step = true;
    return read_step(scan, &r->step) ? LINE_TAKEN : LINE_DAMAGED;
  }
  if (scan_key_is(scan, "undone_after")) {
    r->undoes_later = true;
    return read_step(scan, &r->undone_after) ? LINE_TAKEN : LINE_DAMAGED;
  }
  if (scan_key_is(scan, "seconds")) {
    r->seconds = scan->number;
    return LINE_TAKEN;
  }
  size_t column;
  if (r->event[0]) return LINE_TAKEN;
  if (find_column(log, scan, &column)) return LINE_FAILED;
  if (column < RUNLOG_COLUMNS && r->values < RUNLOG_COLUMNS)
    r->value[r->values++] = (Reading){.column = (uint32_t)column, .value = scan->number};
  return LINE_TAKEN;
}

/* Reads a line into a record. */
static LineResult read_record(RunLog *log, Scan *scan, Record *r) {
  for (;;) {
    LineResult result = LINE_TAKEN;
    switch (scan_next(scan)) {
      case SCAN_NUMBER:
        result = read_number(log, scan, r);
        break;
      case SCAN_TEXT:
        if (scan_key_is(scan, "event") &&
            !scan_copy_name(r->event, sizeof r->event, scan->text, scan->text_len))
          memcpy(r->event, "unknown", sizeof "unknown");
        break;
      case SCAN_OPEN:
        if (scan->depth > 1 && !scan_skip(scan)) return LINE_DAMAGED;
        break;
      case SCAN_ERROR:
        return LINE_DAMAGED;
      case SCAN_END:
        if (r->has_step) return LINE_TAKEN;
        scan->why = "the record has no step";
        return LINE_DAMAGED;
      case SCAN_OTHER:
      case SCAN_CLOSE:
        break;
    }
    if (result != LINE_TAKEN) return result;
  }
}

/* Drops the last points of a column while their step is greater than `last`. */
static bool drop_points(const RunLog *log, RunColumn *c, uint64_t last) {
  size_t before = c->points;
  while (c->points > 0 && log->step[c->record[c->points - 1]] > last) c->points--;
  return c->points < before;
}

/* Marks the events of later steps. Looks at no event unless there is one to mark: a file may have any
 * number of lines with "undone_after". */
static bool undo_events(RunLog *log, uint64_t step) {
  uint64_t last = 0;
  if (log->last_event_step <= step) return false;
  for (size_t i = 0; i < log->event_count; i++) {
    RunEvent *e = &log->events[i];
    if (e->step > step)
      e->is_undone = true;
    else if (!e->is_undone && e->step > last)
      last = e->step;
  }
  log->last_event_step = last;
  return true;
}

static void undo_after(RunLog *log, uint64_t step) {
  bool has_dropped = false;
  for (size_t i = 0; i < log->column_count; i++)
    if (drop_points(log, &log->columns[i], step)) has_dropped = true;
  if (undo_events(log, step)) has_dropped = true;
  while (log->records > 0 && log->step[log->records - 1] > step) log->records--;
  if (has_dropped) log->revision++;
}

/* Drops every second "ranks" event, so that many ranks and many records need bounded memory. */
static void thin_ranks_events(RunLog *log) {
  size_t kept = 0, seen = 0;
  for (size_t i = 0; i < log->event_count; i++) {
    RunEvent *e = &log->events[i];
    if (strcmp(e->kind, "ranks") == 0 && seen++ % 2 == 0) {
      mem_free(e->line);
      log->ranks_events--;
    } else {
      log->events[kept++] = *e;
    }
  }
  log->event_count = kept;
  log->revision++;
}

static LineResult add_event(RunLog *log, Scan *scan, const Record *r) {
  bool is_ranks = strcmp(r->event, "ranks") == 0;
  if (is_ranks && log->ranks_events == RUNLOG_RANKS) thin_ranks_events(log);
  if (!is_ranks && log->event_count - log->ranks_events == RUNLOG_EVENTS) {
    scan->why = "there are too many events";
    return LINE_DAMAGED;
  }
  RunEvent e = {.step = r->step, .seconds = r->seconds, .undoes_later = r->undoes_later};
  memcpy(e.kind, r->event, sizeof e.kind);
  e.len = (size_t)(scan->end - scan->begin);
  if (mem_grow(&log->events, &log->event_capacity, log->event_count + 1, sizeof e) ||
      mem_dup(&e.line, scan->begin, e.len))
    return LINE_FAILED;
  log->events[log->event_count++] = e;
  if (e.step > log->last_event_step) log->last_event_step = e.step;
  if (is_ranks) log->ranks_events++;
  return LINE_TAKEN;
}

static Err add_point(RunLog *log, RunColumn *c, uint32_t record, double value) {
  uint64_t step = log->step[record];
  /* The later of two values of the same step counts, as a validation may be repeated. */
  if (c->points > 0 && log->step[c->record[c->points - 1]] >= step) {
    while (c->points > 0 && log->step[c->record[c->points - 1]] >= step) c->points--;
    log->revision++;
  }
  size_t need = c->points + 1;
  TRY(mem_grow(&c->record, &c->record_capacity, need, sizeof *c->record));
  TRY(mem_grow(&c->value, &c->value_capacity, need, sizeof *c->value));
  c->record[c->points] = record;
  c->value[c->points] = value;
  c->points++;
  return ERR_OK;
}

static Err add_measurements(RunLog *log, const Record *r) {
  size_t record = log->records;
  if (record == RUNLOG_RECORDS)
    return err_set(ERR_WORK, "there are more than %zu records", RUNLOG_RECORDS);
  TRY(mem_grow(&log->step, &log->step_capacity, record + 1, sizeof *log->step));
  TRY(mem_grow(&log->seconds, &log->seconds_capacity, record + 1, sizeof *log->seconds));
  log->step[record] = r->step;
  log->seconds[record] = r->seconds;
  log->records++;
  for (size_t i = 0; i < r->values; i++)
    TRY(add_point(log, &log->columns[r->value[i].column], (uint32_t)record, r->value[i].value));
  return ERR_OK;
}

LineResult runlog_take_metrics(RunLog *log, Scan *scan) {
  Record r;
  r.has_step = false;
  r.undoes_later = false;
  r.event[0] = 0;
  r.seconds = 0;
  r.values = 0;
  LineResult result = read_record(log, scan, &r);
  if (result != LINE_TAKEN) return result;
  if (r.undoes_later) undo_after(log, r.undone_after);
  if (r.event[0]) return add_event(log, scan, &r);
  if (r.values > 0 && add_measurements(log, &r)) return LINE_FAILED;
  return LINE_TAKEN;
}
