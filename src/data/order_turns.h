/* Finds the window that contains batch i of an epoch. The windows of an epoch are in random order
 * and have different numbers of batches. Used by order.c and order_plan.c; depends on base,
 * order. */
#ifndef DATA_ORDER_TURNS_H
#define DATA_ORDER_TURNS_H

#include "data/order.h"

/* Allocates the cache for plan->windows windows; turns_free frees it. */
NODISCARD Err turns_new(OrderPlan *plan);
void turns_free(OrderPlan *plan);
/* Returns the window that contains batch *i of the epoch with this key; *i becomes the number of
 * the batch within that window. */
size_t turns_find(const OrderPlan *plan, uint64_t key, uint64_t *i);

#endif
