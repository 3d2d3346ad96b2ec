/* The built-in corpus: English-German pairs written by a grammar, so that a model
 * can be trained without a download. Each pair is a pure function of seed and
 * number, and each English sentence has one German one. Depends on base/str and
 * data/generator. */
#ifndef DEMO_DEMO_H
#define DEMO_DEMO_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "data/generator.h"

/* Pair number i under the seed, without newline; replaces what en and de held. */
NODISCARD Err demo_pair(uint64_t seed, uint64_t i, Str *en, Str *de);

/* The split of an English sentence: by its hash alone (90, 5 and 5 of 100), so
 * splits never overlap whatever the seed. */
Split demo_split(const char *en, size_t len);

/* Writes `pairs` distinct pairs of the split, one sentence per line. */
NODISCARD Err demo_write(const char *en_path, const char *de_path, Split split, uint64_t pairs,
                         uint64_t seed);

/* What `prepare --recipe demo` calls. */
extern const CorpusGenerator demo_generator;

#endif
