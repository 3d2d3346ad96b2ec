/* One function per command: read the options, call the rooms below, print.
 * No numerics here. Relies on base/opt. */
#ifndef CMD_CMD_H
#define CMD_CMD_H

#include "base/err.h"
#include "base/opt.h"
#include "comm/comm.h"

/* The one table of options (options.c) and the one table of commands (main.c). */
extern const OptSpec cmd_options[];
extern const OptAlias cmd_aliases[]; /* aliases.c: other names of options */

NODISCARD Err cmd_prepare(OptSet *opts);
NODISCARD Err cmd_inspect(OptSet *opts);
NODISCARD Err cmd_train(OptSet *opts);
NODISCARD Err cmd_translate(OptSet *opts);
NODISCARD Err cmd_score(OptSet *opts);
NODISCARD Err cmd_bench(OptSet *opts);
NODISCARD Err cmd_help(OptSet *opts);

/* The position of an option's value among names, "a|b|c". */
int cmd_choice(const OptSet *opts, const char *name, const char *names);
/* An error if this process is one of several ranks, for what one process does: they would write
 * the same files or print the same lines. Asks the environment alone: MPI would wait for all ranks,
 * and a script may call this on one. `remedy` is what to do. */
NODISCARD Err cmd_refuse_ranks(const char *what, const char *remedy);
/* From now on warnings and errors say whose they are, and only rank 0 tells the rest. */
void cmd_introduce(const Comm *comm);

#endif
