/* Pins a range by copying it into memory, for storage kinds that cannot map files. Depends on
 * mem. */
#include "base/mem.h"
#include "base/place_internal.h"

Err place_pin_copy(const PlaceFile *f, PlacePin *pin) {
  TRY(mem_alloc_aligned(&pin->state, pin->size));
  pin->bytes = pin->state;
  Err err = f->kind->read(f, pin->offset, pin->state, pin->size);
  if (err) mem_free(pin->state);
  return err;
}

void place_unpin_copy(PlacePin *pin) {
  mem_free(pin->state);
}
