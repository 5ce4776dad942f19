// SPDX-License-Identifier: Apache-2.0
#include "engine/fingerprint.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace weir {
namespace {

// FNV-1a.
class Fingerprint {
 public:
  void Add(const void* data, size_t n) {
    for (size_t i = 0; i < n; ++i) sum_ = (sum_ ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001B3u;
  }
  uint64_t value() const { return sum_; }

 private:
  uint64_t sum_ = 0xCBF29CE484222325u;
};

// An element type's number in fingerprints. The first twelve are those of the first release, so that its session files
// still fit; any other type has its number in GGUF files, above them.
uint8_t FingerprintNumber(DType type) {
  constexpr std::string_view kFirst[] = {"F32",  "F16",  "BF16", "I32",  "Q8_0", "Q4_0",
                                         "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"};
  const auto at = std::find(std::begin(kFirst), std::end(kFirst), InfoOf(type).name);
  return static_cast<uint8_t>(at == std::end(kFirst) ? 128 + InfoOf(type).gguf_number : at - std::begin(kFirst));
}

}  // namespace

uint64_t ModelHash(const GgufFile& file) {
  Fingerprint sum;
  const int64_t n_bytes = file.file_bytes();
  sum.Add(&n_bytes, sizeof(n_bytes));
  for (const GgufTensor& tensor : file.tensors()) {
    sum.Add(tensor.name.data(), tensor.name.size());
    sum.Add(tensor.shape.data(), tensor.shape.size() * sizeof(int64_t));
    const uint8_t type = FingerprintNumber(tensor.type);
    sum.Add(&type, sizeof(type));
    sum.Add(tensor.data, static_cast<size_t>(std::min<int64_t>(tensor.bytes, 64)));
  }
  return sum.value();
}

uint64_t TokenizerHash(const Tokenizer& tokenizer) {
  Fingerprint sum;
  for (int32_t id = 0; id < tokenizer.n_tokens(); ++id) {
    const std::string& text = tokenizer.TokenText(id);
    sum.Add(text.data(), text.size() + 1);  // with the zero behind it
  }
  return sum.value();
}

}  // namespace weir
