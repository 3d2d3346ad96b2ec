/* What opt.c (parsing) and opt_help.c (printing) share; for no one else. */
#ifndef BASE_OPT_INTERNAL_H
#define BASE_OPT_INTERNAL_H

#include "base/opt.h"

extern const OptSpec *opt_specs_;
extern const OptVerb *opt_verbs_;
bool opt_applies_(const OptSpec *spec, const OptVerb *verb);

#endif
