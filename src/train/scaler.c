/* Halves the loss scale at an overflow and doubles it after SCALER_WINDOW steps without one.
 * Depends on nothing. */
#include "train/scaler.h"

void scaler_switch(Scaler *s, bool on) {
  if (on == (s->scale > 0)) return;
  *s = (Scaler){.scale = on ? SCALER_START : 0};
}

double scaler_factor(const Scaler *s) {
  return s->scale > 0 ? s->scale : 1;
}

bool scaler_take(Scaler *s, bool finite) {
  if (!(s->scale > 0)) return finite;
  if (!finite) {
    *s = (Scaler){.scale = s->scale / 2};
    return s->scale >= SCALER_LEAST;
  }
  if (++s->clean < SCALER_WINDOW) return true;
  *s = (Scaler){.scale = s->scale < SCALER_MOST ? 2 * s->scale : s->scale};
  return true;
}
