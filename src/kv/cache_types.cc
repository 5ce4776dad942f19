// SPDX-License-Identifier: Apache-2.0
#include "kv/cache_types.h"

#include "base/ascii.h"
#include "ops/kv_slots.h"

namespace weir {
namespace {

std::string NameOf(DType type) { return AsciiLower(InfoOf(type).name); }

}  // namespace

Result<DType> ParseCacheType(std::string_view name, CachePart part) {
  if (name == "small") return part == CachePart::kKeys ? DType::kQ5_0 : DType::kQ4_0;
  for (const DType type : kSlotTypes) {
    if (name == NameOf(type)) return type;
  }
  return InvalidArgument("cache type '{}' is not supported; use {}", name, CacheTypeNames());
}

std::string CacheTypeNames() {
  std::string out;
  for (const DType type : kSlotTypes) out += NameOf(type) + ", ";
  return out.substr(0, out.size() - 2) + " or small";
}

}  // namespace weir
