/* The forms in which models are exported. Depends on export_hf, export_ct2. */
#include "model/export_ct2.h"
#include "model/export_hf.h"

const ExportForm *const export_forms[] = {&export_hf, &export_ct2, NULL};
