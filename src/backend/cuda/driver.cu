// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/driver.h"

namespace weir::cuda {
namespace {

constexpr int64_t kSharedWithoutAsking = 48 << 10;

dim3 Dim(const Grid& grid) {
  return dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z));
}

cudaError_t AllowShared(const Work& work) {
  if (work.kernel == nullptr || work.shared_bytes <= kSharedWithoutAsking) return cudaSuccess;
  return cudaFuncSetAttribute(work.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(work.shared_bytes));
}

// Clears an error that is handled here, so that the next call does not report it.
bool Did(cudaError_t error) {
  if (error == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

cudaGraph_t GraphOf(const DriverGraph& graph) { return static_cast<cudaGraph_t>(graph.graph); }
cudaGraphExec_t ExecOf(const DriverGraph& graph) { return static_cast<cudaGraphExec_t>(graph.exec); }

// Parameters in CUDA's form.
struct Addresses {
  explicit Addresses(const Params& params) {
    for (int32_t p = 0; p < params.n; ++p) at[p] = const_cast<void*>(params.param[p].data);
  }
  void* at[kMaxParams];
};

// A launch in the form for graphs.
struct KernelNode {
  KernelNode(const WorkList& list, int64_t i) : addresses(list.ParamsOf(i)) {
    const Work& work = list.work(i);
    params.func = const_cast<void*>(work.kernel);
    params.gridDim = Dim(work.grid);
    params.blockDim = dim3(static_cast<unsigned>(work.threads));
    params.sharedMemBytes = static_cast<unsigned>(work.shared_bytes);
    params.kernelParams = addresses.at;
  }
  KernelNode(const KernelNode&) = delete;
  KernelNode& operator=(const KernelNode&) = delete;
  Addresses addresses;
  cudaKernelNodeParams params = {};
};

}  // namespace

struct Driver::State {
  cudaStream_t stream = nullptr;
};

Driver::Driver() : state_(std::make_unique<State>()) {}

Driver::~Driver() {
  if (state_->stream != nullptr) cudaStreamDestroy(state_->stream);
}

Status Driver::Open() {
  return StatusOf(cudaStreamCreateWithFlags(&state_->stream, cudaStreamNonBlocking), "a stream");
}

Status Driver::Send(const Work& work, const Params& params) {
  if (work.kernel == nullptr) {
    return StatusOf(
        cudaMemcpyAsync(work.to, work.from, static_cast<size_t>(work.n_bytes), cudaMemcpyDefault, state_->stream),
        "a copy");
  }
  WEIR_RETURN_IF_ERROR(StatusOf(AllowShared(work), "shared memory"));
  Addresses addresses(params);
  return StatusOf(cudaLaunchKernel(work.kernel, Dim(work.grid), dim3(static_cast<unsigned>(work.threads)), addresses.at,
                                   static_cast<size_t>(work.shared_bytes), state_->stream),
                  "a kernel's start");
}

Status Driver::Wait() {
  return state_->stream == nullptr ? Status() : StatusOf(cudaStreamSynchronize(state_->stream), "work before this");
}

bool Driver::Build(WorkList& list, DriverGraph* out) {
  cudaGraph_t graph = nullptr;
  if (!Did(cudaGraphCreate(&graph, 0))) return false;
  out->graph = graph;
  cudaGraphNode_t before = nullptr;
  for (int64_t i = 0; i < list.size(); ++i) {
    const Work& work = list.work(i);
    if (work.is_nothing()) continue;
    cudaGraphNode_t node = nullptr;
    const size_t n_before = before != nullptr ? 1 : 0;
    if (work.kernel == nullptr) {
      if (!Did(cudaGraphAddMemcpyNode1D(&node, graph, &before, n_before, work.to, work.from,
                                        static_cast<size_t>(work.n_bytes), cudaMemcpyDefault))) {
        return false;
      }
    } else {
      const KernelNode kernel(list, i);
      if (!Did(AllowShared(work)) || !Did(cudaGraphAddKernelNode(&node, graph, &before, n_before, &kernel.params))) {
        return false;
      }
    }
    list.node(i) = node;
    before = node;
  }
  cudaGraphExec_t exec = nullptr;
  if (!Did(cudaGraphInstantiate(&exec, graph, 0))) return false;
  out->exec = exec;
  return true;
}

bool Driver::Update(const DriverGraph& graph, WorkList& list, int64_t i) {
  const Work& work = list.work(i);
  const auto node = static_cast<cudaGraphNode_t>(list.node(i));
  if (work.kernel == nullptr) {
    return Did(cudaGraphExecMemcpyNodeSetParams1D(ExecOf(graph), node, work.to, work.from,
                                                  static_cast<size_t>(work.n_bytes), cudaMemcpyDefault));
  }
  const KernelNode kernel(list, i);
  return Did(AllowShared(work)) && Did(cudaGraphExecKernelNodeSetParams(ExecOf(graph), node, &kernel.params));
}

bool Driver::Launch(const DriverGraph& graph) { return Did(cudaGraphLaunch(ExecOf(graph), state_->stream)); }

void Driver::Drop(DriverGraph* graph) {
  if (graph->exec != nullptr) cudaGraphExecDestroy(ExecOf(*graph));
  if (graph->graph != nullptr) cudaGraphDestroy(GraphOf(*graph));
  *graph = {};
}

void* Driver::handle() const { return state_->stream; }

}  // namespace weir::cuda
