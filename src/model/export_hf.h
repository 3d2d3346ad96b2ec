/* Writes a translation model as a MarianMT model of Hugging Face transformers. Depends on export,
 * marian. */
#ifndef MODEL_EXPORT_HF_H
#define MODEL_EXPORT_HF_H

#include "model/export.h"

extern const ExportForm export_hf;

#endif
