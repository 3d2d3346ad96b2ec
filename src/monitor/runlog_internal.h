/* What the files of runlog share. Depends on runlog, scan. */
#ifndef MONITOR_RUNLOG_INTERNAL_H
#define MONITOR_RUNLOG_INTERNAL_H

#include "monitor/runlog.h"
#include "monitor/scan.h"

/* What became of a line. A damaged line has its reason in scan->why. */
typedef enum { LINE_TAKEN, LINE_DAMAGED, LINE_FAILED } LineResult;

/* Stores the record in a line of metrics.jsonl or of system.jsonl. LINE_FAILED: an error is set. */
LineResult runlog_take_metrics(RunLog *log, Scan *scan);
LineResult runlog_take_sample(RunLog *log, Scan *scan);
/* Drop everything that was read from one of the files. */
void runlog_drop_metrics(RunLog *log);
void runlog_drop_hosts(RunLog *log);

#endif
