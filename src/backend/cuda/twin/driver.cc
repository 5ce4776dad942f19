// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/driver.h"

#include <cstring>
#include <vector>

#include "backend/cuda/twin/watch.h"

namespace weir::twin {
namespace {

// A piece of work with its own copy of the parameters' bytes.
struct Kept {
  Kept(const Work& what, const Params& params) : work(what) {
    for (int32_t p = 0; p < params.n; ++p) {
      const auto* bytes = static_cast<const uint8_t*>(params.param[p].data);
      values.emplace_back(bytes, bytes + params.param[p].n_bytes);
    }
  }
  Status Do() const {
    if (work.kernel == nullptr) {
      if (!StaysWithin(work.to, work.n_bytes) || !StaysWithin(work.from, work.n_bytes))
        return Internal("twin: a copy of {} bytes ends beyond an allocation", work.n_bytes);
      std::memmove(work.to, work.from, static_cast<size_t>(work.n_bytes));
      return Status();
    }
    const void* addresses[kMaxParams];
    for (size_t p = 0; p < values.size(); ++p) addresses[p] = values[p].data();
    return RunGrid(work.grid, work.threads, work.shared_bytes, [&] { work.call(work.kernel, addresses); });
  }

  Work work;
  std::vector<std::vector<uint8_t>> values;
};

// A graph's own pieces: a change without an update has no effect.
using Pieces = std::vector<Kept>;

bool Refused() { return refuse_graph_call >= 0 && refuse_graph_call-- == 0; }

}  // namespace

struct Driver::State {
  Pieces queue;
};

Driver::Driver() : state_(std::make_unique<State>()) {}
Driver::~Driver() = default;
Status Driver::Open() { return Status(); }
void* Driver::handle() const { return nullptr; }

Status Driver::Send(const Work& work, const Params& params) {
  state_->queue.emplace_back(work, params);
  return Status();
}

Status Driver::Wait() {
  Pieces now;
  now.swap(state_->queue);
  for (const Kept& piece : now) WEIR_RETURN_IF_ERROR(piece.Do());
  return Status();
}

bool Driver::Build(WorkList& list, DriverGraph* out) {
  if (Refused()) return false;
  auto* pieces = new Pieces;
  out->exec = pieces;
  for (int64_t i = 0; i < list.size(); ++i) pieces->emplace_back(list.work(i), list.ParamsOf(i));
  return true;
}

bool Driver::Update(const DriverGraph& graph, WorkList& list, int64_t i) {
  if (Refused()) return false;
  Kept& was = (*static_cast<Pieces*>(graph.exec))[static_cast<size_t>(i)];
  const Work& is = list.work(i);
  if (was.work.kernel != is.kernel || was.work.kind != is.kind || was.work.is_nothing() != is.is_nothing())
    return false;
  was = Kept(is, list.ParamsOf(i));
  return true;
}

bool Driver::Launch(const DriverGraph& graph) {
  if (Refused()) return false;
  for (const Kept& piece : *static_cast<const Pieces*>(graph.exec)) {
    if (!piece.work.is_nothing()) state_->queue.push_back(piece);
  }
  return true;
}

void Driver::Drop(DriverGraph* graph) {
  delete static_cast<Pieces*>(graph->exec);
  *graph = {};
}

}  // namespace weir::twin
