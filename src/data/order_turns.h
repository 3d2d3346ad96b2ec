/* Which window of the training set has batch i of an epoch. The windows of an epoch come in a
 * random order and have different numbers of batches. For order.c and order_plan.c; depends on
 * base, order. */
#ifndef DATA_ORDER_TURNS_H
#define DATA_ORDER_TURNS_H

#include "data/order.h"

/* For plan->windows windows; released by turns_free. */
NODISCARD Err turns_new(OrderPlan *plan);
void turns_free(OrderPlan *plan);
/* The window of batch *i of the epoch that `key` stands for; *i becomes the number of the batch
 * in that window. */
size_t turns_find(const OrderPlan *plan, uint64_t key, uint64_t *i);

#endif
