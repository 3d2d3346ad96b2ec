/* Measurements for `plan` as hostile JSON: accepted numbers are finite and in their range. Depends on
 * monitor/plan_machine. */
#include "monitor/plan_machine.h"

#include <math.h>

#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  PlanMeasurement m;
  if (plan_measurement_parse((const char *)data, size, "fuzz", &m)) return 0;
  REQUIRE(isfinite(m.step) && m.step > 0);
  REQUIRE(isfinite(m.tokens) && m.tokens > 0);
  REQUIRE(isfinite(m.copy) && m.copy >= 0);
  REQUIRE(m.batch_tokens > 0);
  REQUIRE(!m.has_parts || (m.timed > 0 && m.gradients + m.optimizer <= 1.01 * m.timed));
  return 0;
}
