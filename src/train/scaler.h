/* The scale of the loss where gradients are made in a type of small range: as large
 * as can be without overflow, found by trying. Relies on nothing. */
#ifndef TRAIN_SCALER_H
#define TRAIN_SCALER_H

#include <stdbool.h>
#include <stdint.h>

#define SCALER_START  0x1p14
#define SCALER_LEAST  0x1p-10 /* what overflows below it is no number at any scale */
#define SCALER_MOST   0x1p24
#define SCALER_WINDOW 2000 /* clean steps before a larger one is tried */

/* Powers of two only: scaling and unscaling round nothing. */
typedef struct {
  double scale;   /* 0: nothing is scaled */
  uint64_t clean; /* steps since the scale changed */
} Scaler;

/* Switches it on or off; one that is on already stays as it is. */
void scaler_switch(Scaler *s, bool on);
double scaler_factor(const Scaler *s); /* what gradients are multiplied by */
/* Takes a step: was its gradient finite? False when the scale has become so small
 * that it cannot be the reason. */
bool scaler_take(Scaler *s, bool finite);

#endif
