/* Declarations shared by place.c, place_local.c and place_memory.c only. */
#ifndef BASE_PLACE_INTERNAL_H
#define BASE_PLACE_INTERNAL_H

#include "base/place.h"

extern const PlaceKind place_local;

/* Reads the range of a pin into allocated memory and stores that memory in pin->state. */
NODISCARD Err place_pin_copy(const PlaceFile *f, PlacePin *pin);
void place_unpin_copy(PlacePin *pin);

#endif
