// SPDX-License-Identifier: Apache-2.0
// libFuzzer target of the GGUF reader: any bytes either parse, and then every value and tensor byte can be read, or
// give an error.
#include <cstddef>
#include <cstdint>

#include "io/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = weir::GgufFile::Parse({data, size}, "fuzz");
  if (!file.ok()) return 0;
  volatile uint64_t sink = 0;
  for (const auto& [key, value] : (*file)->metadata()) sink = sink + (*file)->IntOr(key, 0).ok() + value.v.index();
  for (const weir::GgufTensor& tensor : (*file)->tensors()) {
    if ((*file)->Tensor(tensor.name) != &tensor) __builtin_trap();
    for (int64_t i = 0; i < tensor.bytes; ++i) sink = sink + tensor.data[i];
  }
  return 0;
}
