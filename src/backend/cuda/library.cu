// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/library.h"

#ifdef __CUDACC__

#include <cublasLt.h>

#include <map>
#include <optional>
#include <tuple>

namespace weir::cuda {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // recommended for the library's Hopper kernels
constexpr size_t kMaxAlgorithms = 512;                  // remembered; chunks may have any number of rows

cudaDataType_t TypeOf(DType type) {
  return type == DType::kF32 ? CUDA_R_32F : type == DType::kF16 ? CUDA_R_16F : CUDA_R_16BF;
}

}  // namespace

// Key of a call; algorithms are chosen once for each.
using Shape = std::tuple<DType, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool>;

struct Library::State {
  Device* device = nullptr;
  cublasLtHandle_t handle = nullptr;
  Buffer workspace, ones;
  std::map<Shape, std::optional<cublasLtMatmulAlgo_t>> algorithms;  // nullopt: the library has none

  void Check(cublasStatus_t status, const char* what) {
    if (status != CUBLAS_STATUS_SUCCESS)
      device->stream().Fail(Internal("cuBLASLt: {}: {}", what, cublasLtGetStatusString(status)));
  }
};

Result<std::unique_ptr<Library>> Library::Make(Device& device, Ledger& ledger) {
  std::unique_ptr<Library> out(new Library);
  out->state_ = std::make_unique<State>();
  out->state_->device = &device;
  if (const cublasStatus_t status = cublasLtCreate(&out->state_->handle); status != CUBLAS_STATUS_SUCCESS) {
    return Unsupported("cuBLASLt does not start: {}", cublasLtGetStatusString(status));
  }
  WEIR_ASSIGN_OR_RETURN(out->state_->workspace,
                        device.Allocate(ledger, MemTag::kWorkspace, kWorkspaceBytes, Access::kDevice));
  const float factors[2] = {1, 0};
  WEIR_ASSIGN_OR_RETURN(out->state_->ones,
                        device.Allocate(ledger, MemTag::kWorkspace, sizeof(factors), Access::kDevice));
  device.Copy(out->state_->ones.data(), factors, sizeof(factors));
  return Result<std::unique_ptr<Library>>(std::move(out));
}

Library::~Library() {
  if (state_ == nullptr || state_->handle == nullptr) return;
  state_->device->Synchronise();  // products may be running
  cublasLtDestroy(state_->handle);
}

bool Library::Has(DType type) const { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }

bool Library::Multiply(DType type, const void* x, int64_t x_stride, int64_t n_rows, int64_t n_in, const void* w,
                       int64_t w_stride, int64_t n_out, const float* scale, float* y, int64_t y_stride,
                       bool accumulate) {
  State& s = *state_;
  // The library is column-major: y' [n_out, n_rows] = (w' [n_in, n_out])' x' [n_in, n_rows].
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const cublasLtPointerMode_t on_device = CUBLASLT_POINTER_MODE_DEVICE;
  s.Check(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product");
  s.Check(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
          "a product");
  s.Check(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_POINTER_MODE, &on_device, sizeof(on_device)),
          "a product");
  s.Check(cublasLtMatrixLayoutCreate(&left, TypeOf(type), static_cast<uint64_t>(n_in), static_cast<uint64_t>(n_out),
                                     w_stride),
          "a layout");
  s.Check(cublasLtMatrixLayoutCreate(&right, TypeOf(type), static_cast<uint64_t>(n_in), static_cast<uint64_t>(n_rows),
                                     x_stride),
          "a layout");
  s.Check(cublasLtMatrixLayoutCreate(&result, CUDA_R_32F, static_cast<uint64_t>(n_out), static_cast<uint64_t>(n_rows),
                                     y_stride),
          "a layout");

  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  const Shape shape = {type, n_rows, n_in, n_out, x_stride, w_stride, y_stride, aligned(x) && aligned(w) && aligned(y)};
  auto found = s.algorithms.find(shape);
  if (found == s.algorithms.end() && s.device->stream().status().ok()) {
    cublasLtMatmulPreference_t preference = nullptr;
    s.Check(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      s.Check(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof(value)), "a preference");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
    // Rows of a workspace may begin at any float.
    const uint32_t alignment = std::get<7>(shape) ? 16 : 4;
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    cublasLtMatmulHeuristicResult_t best;
    int n_found = 0;
    const cublasStatus_t chosen =
        cublasLtMatmulAlgoGetHeuristic(s.handle, product, left, right, result, result, preference, 1, &best, &n_found);
    if (chosen != CUBLAS_STATUS_NOT_SUPPORTED) s.Check(chosen, "choosing a kernel");
    if (s.algorithms.size() >= kMaxAlgorithms) s.algorithms.clear();
    const bool has = chosen == CUBLAS_STATUS_SUCCESS && n_found > 0;
    found = s.algorithms.emplace(shape, has ? std::optional(best.algo) : std::nullopt).first;
    cublasLtMatmulPreferenceDestroy(preference);
  }
  const bool has = found == s.algorithms.end() || found->second.has_value();
  if (has && s.device->stream().status().ok()) {
    const float* one = s.ones.as<float>();
    s.Check(cublasLtMatmul(s.handle, product, scale != nullptr ? scale : one, w, left, x, right,
                           accumulate ? one : one + 1, y, result, y, result, &*found->second, s.workspace.data(),
                           kWorkspaceBytes, static_cast<cudaStream_t>(s.device->stream().handle())),
            "a product");
  }
  cublasLtMatrixLayoutDestroy(result);
  cublasLtMatrixLayoutDestroy(right);
  cublasLtMatrixLayoutDestroy(left);
  cublasLtMatmulDescDestroy(product);
  return has;
}

}  // namespace weir::cuda

#else

namespace weir::twin {
namespace {

// The library's product with its roundings: a thread an element.
WEIR_KERNEL void MultiplyEach(DType type, const uint16_t* x, int64_t x_stride, int64_t n_in, const uint16_t* w,
                              int64_t w_stride, int64_t n_out, int64_t n, const float* scale, float* y,
                              int64_t y_stride, bool accumulate) {
  const int64_t i = GlobalThread();
  if (i >= n) return;
  const int64_t r = i / n_out, o = i % n_out;
  float sum = 0;
  for (int64_t k = 0; k < n_in; ++k) {
    const uint16_t a = x[r * x_stride + k], b = w[o * w_stride + k];
    sum += type == DType::kF16 ? HalfToFloat(a) * HalfToFloat(b) : Bf16ToFloat(a) * Bf16ToFloat(b);
  }
  if (scale != nullptr) sum *= *scale;
  y[r * y_stride + o] = accumulate ? y[r * y_stride + o] + sum : sum;
}

}  // namespace

struct Library::State {
  Device* device = nullptr;
};

Result<std::unique_ptr<Library>> Library::Make(Device& device, Ledger&) {
  std::unique_ptr<Library> out(new Library);
  out->state_ = std::make_unique<State>(State{&device});
  return Result<std::unique_ptr<Library>>(std::move(out));
}
Library::~Library() = default;
bool Library::Has(DType type) const { return type == DType::kF16 || type == DType::kBF16; }
bool Library::Multiply(DType type, const void* x, int64_t x_stride, int64_t n_rows, int64_t n_in, const void* w,
                       int64_t w_stride, int64_t n_out, const float* scale, float* y, int64_t y_stride,
                       bool accumulate) {
  const int64_t n = n_rows * n_out;
  state_->device->Launch(MultiplyEach, Grid{Blocks(n, 256)}, 256, 0, type, static_cast<const uint16_t*>(x), x_stride,
                         n_in, static_cast<const uint16_t*>(w), w_stride, n_out, n, scale, y, y_stride, accumulate);
  return true;
}

}  // namespace weir::twin

#endif
