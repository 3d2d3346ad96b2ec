/* Writes a translation model as a model directory of CTranslate2. Depends on export, format/ct2. */
#ifndef MODEL_EXPORT_CT2_H
#define MODEL_EXPORT_CT2_H

#include "model/export.h"

extern const ExportForm export_ct2;

#endif
