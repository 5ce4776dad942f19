#include <memory>
#include <string>

#include "backend/backend.h"
#include "base/threads.h"

namespace weir {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int n_threads) : pool_(n_threads) {}
  std::string name() const override { return "cpu"; }
  int n_threads() const override { return pool_.n_threads(); }

 private:
  ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(int n_threads) { return std::make_unique<CpuBackend>(n_threads); }

}  // namespace weir
