/* The small files of a run, read when somebody asks: config, process, checkpoints,
 * samples. All are
 * bounded; what is missing is an empty list. Depends on board_json, base. */
#ifndef MONITOR_BOARD_FILES_H
#define MONITOR_BOARD_FILES_H

#include "base/str.h"

/* Appends the options as a JSON array of pairs [name, value]. */
void board_files_config(const char *run, Str *out);
/* Appends the last line of RUN/processes.jsonl, which has command, versions and ranks of the last
 * process; null if there is none. */
void board_files_process(const char *run, Str *out);
/* Appends the checkpoints that exist: [{"step", "time", "is_best"}]. */
void board_files_checkpoints(const char *run, Str *out);
/* Appends the last tables of RUN/samples.jsonl as a JSON array, without undone ones. */
void board_files_samples(const char *run, Str *out);

#endif
