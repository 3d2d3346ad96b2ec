/* Dynamic loss scaling for fp16: the scale is halved when the gradient overflows and doubled after
 * SCALER_WINDOW steps without overflow. Depends on nothing. */
#ifndef TRAIN_SCALER_H
#define TRAIN_SCALER_H

#include <stdbool.h>
#include <stdint.h>

#define SCALER_START 0x1p14
/* Smallest scale; a gradient that overflows at it is taken as not finite at any scale. */
#define SCALER_LEAST  0x1p-10
#define SCALER_MOST   0x1p24
#define SCALER_WINDOW 2000 /* steps without overflow before the scale is doubled */

/* The scale is a power of two, so that scaling does not round. */
typedef struct {
  double scale;   /* current loss scale; 0: loss scaling is off */
  uint64_t clean; /* number of steps since the scale changed */
} Scaler;

/* Turns loss scaling on or off. If it is on already, the scale is kept. */
void scaler_switch(Scaler *s, bool on);
double scaler_factor(const Scaler *s); /* factor of the loss; 1 if scaling is off */
/* Adjusts the scale after a step. Returns false if the gradient is not finite for another
 * reason than the scale. */
bool scaler_take(Scaler *s, bool finite);

#endif
