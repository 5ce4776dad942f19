// SPDX-License-Identifier: Apache-2.0
// Names of the types that keys and values are stored in (ops/kv_slots.h), as users give them.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "quant/dtype.h"

namespace weir {

enum class CachePart { kKeys, kValues };

// "f16", "q4_0" and so on, as llama.cpp names them, or "small", which is one type for keys and one for values: the
// pair that tells most of a stream in the bytes of a given pot (docs/decisions/0032-caches-below-eight-bits.md).
Result<DType> ParseCacheType(std::string_view name, CachePart part);

// "f32, f16 ... or small", for messages and help.
std::string CacheTypeNames();

}  // namespace weir
