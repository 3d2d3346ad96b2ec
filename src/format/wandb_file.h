/* Constants that reader and writer of wandb.h share: sizes and types of fragments, numbers of
 * fields. */
#ifndef FORMAT_WANDB_FILE_H
#define FORMAT_WANDB_FILE_H

#define WANDB_MAGIC       ":W&B\xe1\xbe\0" /* header of the file */
#define WANDB_MAGIC_BYTES 7
#define WANDB_BLOCK       ((size_t)32768)
#define WANDB_FRAGMENT    7 /* bytes of a fragment before its data */

enum { WANDB_WHOLE = 1, WANDB_FIRST, WANDB_MIDDLE, WANDB_LAST };

/* Values of history, summary and config; of stats. */
enum { WANDB_ITEMS = 1, WANDB_STATS_ITEMS = 3 };
enum { WANDB_ITEM_KEY = 1, WANDB_ITEM_NESTED_KEY = 2, WANDB_ITEM_JSON = 16 };
enum { WANDB_HISTORY_STEP = 2, WANDB_STEP_NUM = 1, WANDB_STATS_TIME = 2, WANDB_RUN_START = 17 };
enum { WANDB_SECONDS = 1, WANDB_NANOS = 2 };

#endif
