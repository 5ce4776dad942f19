// SPDX-License-Identifier: Apache-2.0
// One product again and again, for tools/arm/count.c: weir_product FORMAT ROWS TIMES, weights 2,048 x 2,048, one
// thread.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/memory.h"
#include "quant/format.h"

int main(int argc, char** argv) {
  using namespace weir;
  if (argc != 4) return 2;
  const int64_t n = 2048, n_rows = std::atoi(argv[2]);
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    if (InfoOf(type).name != std::string_view(argv[1])) continue;
    const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
    Ledger ledger;
    const int64_t row_bytes = RowBytes(type, n);
    std::vector<float> row(n);
    for (int64_t i = 0; i < n; ++i) row[i] = static_cast<float>(i * 37 % 101) / 101 - 0.5f;
    std::vector<uint8_t> bytes(n * row_bytes);
    EncodeRow(type, row.data(), n, bytes.data());
    for (int64_t o = 1; o < n; ++o) std::memcpy(bytes.data() + o * row_bytes, bytes.data(), row_bytes);
    const auto w = backend->PrepareMatrix({"w", type, n, n, bytes.data(), nullptr}, ledger);
    const auto scratch =
        HostBuffer::Allocate(ledger, MemTag::kWorkspace, backend->RoundedMatMulScratchBytes(n_rows, n));
    if (!w.ok() || !scratch.ok()) return 1;
    std::vector<float> x(n_rows * n, 0.5f), y(n_rows * n);
    for (int i = 0; i < std::atoi(argv[3]); ++i) {
      const MatMulOut out = {w.value().get(), y.data(), n, nullptr, false};
      backend->MatMul({x.data(), n, n_rows, n, {&out, 1}, scratch.value().data(), false});
    }
    std::_Exit(0);
  }
  return 1;
}
