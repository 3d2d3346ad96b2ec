/* Dynamic loss scaling for fp16: halved when the gradient overflows, doubled after SCALER_WINDOW steps
 * without overflow. Depends on nothing. */
#ifndef TRAIN_SCALER_H
#define TRAIN_SCALER_H

#include <stdbool.h>
#include <stdint.h>

#define SCALER_START  0x1p14
#define SCALER_LEAST  0x1p-10 /* a gradient that overflows below it is not finite at any scale */
#define SCALER_MOST   0x1p24
#define SCALER_WINDOW 2000 /* steps without overflow before the scale is doubled */

/* Powers of two only, so that scaling does not round. */
typedef struct {
  double scale;   /* 0: nothing is scaled */
  uint64_t clean; /* steps since the scale changed */
} Scaler;

/* Turns scaling on or off. Where it is on already, the scale stays as it is. */
void scaler_switch(Scaler *s, bool on);
double scaler_factor(const Scaler *s); /* by which gradients are multiplied; 1 when off */
/* Adjusts the scale after a step. False: the gradient is not finite, and the scale is too small to be
 * the reason. */
bool scaler_take(Scaler *s, bool finite);

#endif
