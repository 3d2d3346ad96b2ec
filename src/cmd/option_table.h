/* The table of all options: the general ones (options.c), and those of the tasks and model families,
 * which are declared with them. Depends on base/opt. */
#ifndef CMD_OPTION_TABLE_H
#define CMD_OPTION_TABLE_H

#include "base/opt.h"

extern const OptSpec cmd_general_options[];

/* Returns the table, which ends with a row without a name. The first call builds it. */
const OptSpec *cmd_options(void);

#endif
