// SPDX-License-Identifier: Apache-2.0
// The same product as llama.cpp computes it: ggml_product FORMAT ROWS TIMES, weights repacked where ggml does so.
#include <strings.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int64_t n = 2048, n_rows = std::atoi(argv[2]);
  int type = 0;
  while (type < GGML_TYPE_COUNT && strcasecmp(ggml_type_name(static_cast<ggml_type>(type)), argv[1]) != 0) ++type;
  if (type == GGML_TYPE_COUNT) return 1;
  ggml_backend_t backend = ggml_backend_cpu_init();
  ggml_backend_cpu_set_n_threads(backend, 1);
  const ggml_init_params params = {ggml_tensor_overhead() * 16 + ggml_graph_overhead(), nullptr, true};
  ggml_context *weights = ggml_init(params), *rest = ggml_init(params);
  ggml_tensor* w = ggml_new_tensor_2d(weights, static_cast<ggml_type>(type), n, n);
  ggml_tensor* x = ggml_new_tensor_2d(rest, GGML_TYPE_F32, n, n_rows);
  ggml_tensor* y = ggml_mul_mat(rest, w, x);
  // As llama.cpp does: the first extra kind of buffer that takes the product.
  ggml_backend_dev_t device = ggml_backend_get_device(backend);
  const auto extra = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  ggml_backend_buffer_type_t kind = ggml_backend_cpu_buffer_type();
  for (ggml_backend_buffer_type_t* e = extra(device); e != nullptr && *e != nullptr; ++e) {
    w->buffer = ggml_backend_buft_alloc_buffer(*e, 0);
    const bool takes = ggml_backend_dev_supports_op(device, y);
    ggml_backend_buffer_free(w->buffer);
    w->buffer = nullptr;
    if (takes) {
      kind = *e;
      break;
    }
  }
  ggml_backend_alloc_ctx_tensors_from_buft(weights, kind);
  ggml_backend_alloc_ctx_tensors(rest, backend);
  std::vector<float> row(n), input(n * n_rows, 0.5f);
  for (int64_t i = 0; i < n; ++i) row[i] = static_cast<float>(i * 37 % 101) / 101 - 0.5f;
  const size_t row_bytes = ggml_row_size(w->type, n);
  std::vector<char> bytes(row_bytes * n);
  ggml_quantize_chunk(w->type, row.data(), bytes.data(), 0, 1, n, nullptr);
  for (int64_t o = 1; o < n; ++o) std::memcpy(bytes.data() + o * row_bytes, bytes.data(), row_bytes);
  ggml_backend_tensor_set(w, bytes.data(), 0, bytes.size());
  ggml_backend_tensor_set(x, input.data(), 0, input.size() * sizeof(float));
  ggml_cgraph* graph = ggml_new_graph(rest);
  ggml_build_forward_expand(graph, y);
  for (int i = 0; i < std::atoi(argv[3]); ++i) ggml_backend_graph_compute(backend, graph);
  std::_Exit(0);
}
