// SPDX-License-Identifier: Apache-2.0
// Draws sessions and asserts that they keep to their plans (budget/life.h).
//
//     budget_draws --draws 10000 --seed 1       draws 1:0 to 1:9999
//     budget_draws --draw 1:4711                one of them again
//     budget_draws --draws 20 --tell all        says what was drawn of those that hold, too
//
// Every draw lives in a process of its own, so that one that crashes is one that failed. For each that fails: what does
// not hold, what was drawn, and the line that repeats it. 1 if any failed.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "budget/life.h"

namespace weir::testing {
namespace {

// For one draw: of processor time, and in all, for one that waits for what never comes.
constexpr unsigned kMostSeconds = 120, kMostWait = 3600;

struct Options {
  int64_t n_draws = 200, from = 0;
  uint64_t seed = 1;
  bool tell = false;  // of those that held, too
};

bool Parse(int n, char** words, Options* out) {
  for (int i = 1; i + 1 < n; i += 2) {
    const std::string flag = words[i], value = words[i + 1];
    if (flag == "--draws") {
      out->n_draws = std::atoll(value.c_str());
    } else if (flag == "--from") {
      out->from = std::atoll(value.c_str());
    } else if (flag == "--seed") {
      out->seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (flag == "--draw" && value.find(':') != std::string::npos) {
      out->seed = std::strtoull(value.c_str(), nullptr, 10);
      out->from = std::atoll(value.c_str() + value.find(':') + 1);
      out->n_draws = 1;
      out->tell = true;
    } else if (flag == "--tell") {
      out->tell = value == "all";
    } else {
      return false;
    }
  }
  return n % 2 == 1;
}

// In a process of its own.
Verdict InAChild(uint64_t seed, const std::string& folder) {
  auto* shared =
      static_cast<Verdict*>(mmap(nullptr, sizeof(Verdict), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  new (shared) Verdict();
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit processor = {kMostSeconds, kMostSeconds};
    setrlimit(RLIMIT_CPU, &processor);
    alarm(kMostWait);
    Live(seed, folder, shared);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Verdict out = *shared;
  munmap(shared, sizeof(Verdict));
  if (WIFSIGNALED(status)) {
    out.kind = Verdict::kBroken;
    std::snprintf(out.broken, sizeof(out.broken), "the process ended with signal %d", WTERMSIG(status));
  }
  return out;
}

int Run(const Options& options) {
  std::string root = (std::filesystem::temp_directory_path() / "weir_budget_XXXXXX").string();
  if (mkdtemp(root.data()) == nullptr) {
    std::fprintf(stderr, "budget_draws: no folder can be made in %s\n", root.c_str());
    return 2;
  }
  int64_t n_of[3] = {};
  Verdict all;  // sums, and the largest of what is a figure of memory
  for (int64_t k = options.from; k < options.from + options.n_draws; ++k) {
    const std::string folder = root + "/" + std::to_string(k);
    std::filesystem::create_directory(folder);
    const Verdict v = InAChild(options.seed * 1'000'000'007u + static_cast<uint64_t>(k), folder);
    std::filesystem::remove_all(folder);
    ++n_of[v.kind];
    for (int32_t Verdict::*count : Verdict::kCounts) all.*count += v.*count;
    all.planned = std::max(all.planned, v.planned);
    all.most_beyond = std::max(all.most_beyond, v.most_beyond);
    all.most_pages_beyond = std::max(all.most_pages_beyond, v.most_pages_beyond);
    if (v.kind == Verdict::kBroken) {
      std::printf("broken: %s\n  drawn: %s\n  again: budget_draws --draw %llu:%lld\n", v.broken, v.drawn,
                  static_cast<unsigned long long>(options.seed), static_cast<long long>(k));
    } else if (options.tell) {
      std::printf("%s%s\n  drawn: %s\n  planned %lld bytes, %lld taken beside it, %lld of pages\n",
                  v.kind == Verdict::kHeld ? "held" : "refused: ", v.broken, v.drawn, static_cast<long long>(v.planned),
                  static_cast<long long>(v.most_beyond), static_cast<long long>(v.most_pages_beyond));
    }
  }
  std::filesystem::remove_all(root);
  rusage use{};
  getrusage(RUSAGE_CHILDREN, &use);
  const auto number = [](auto n) { return static_cast<long long>(n); };
  std::printf("%lld draws: %lld held, %lld refused by the plan, %lld broken\n", number(options.n_draws),
              number(n_of[Verdict::kHeld]), number(n_of[Verdict::kRefused]), number(n_of[Verdict::kBroken]));
  std::printf(
      "%d steps, %d of which found no slots; %d selections, %d pictures and frames, %d excerpts for %d searches, ",
      all.n_steps, all.n_failed_steps, all.n_selections, all.n_pictures, all.n_recalled, all.n_searched);
  std::printf("%d guesses, %d forks, %d restored\n", all.n_guessed, all.n_forks, all.n_restored);
  std::printf(
      "the largest plan has %lld bytes; at most %lld were taken beside a plan (of pages %lld), allowed are %lld a "
      "session; %lld s of processor time\n",
      number(all.planned), number(all.most_beyond), number(all.most_pages_beyond), number(kBeyondPlan),
      number(use.ru_utime.tv_sec + use.ru_stime.tv_sec));
  return n_of[Verdict::kBroken] > 0 ? 1 : 0;
}

}  // namespace
}  // namespace weir::testing

int main(int n, char** words) {
  weir::testing::Options options;
  if (!weir::testing::Parse(n, words, &options)) {
    std::fprintf(stderr, "usage: budget_draws [--draws N] [--seed S] [--from K] [--tell all] | --draw S:K\n");
    return 2;
  }
  return weir::testing::Run(options);
}
