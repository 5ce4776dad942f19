// SPDX-License-Identifier: Apache-2.0
#include "text/dialects/dialect.h"

namespace weir {

const DialectInfo& DialectOf(std::string_view jinja) {
  const DialectInfo* best = nullptr;
  int most = -1;
  for (const DialectInfo* dialect : AllDialectInfos()) {
    const int fit = dialect->fits(jinja);
    if (fit > most) best = dialect;
    if (fit > most) most = fit;
  }
  return *best;
}

}  // namespace weir
