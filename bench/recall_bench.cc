// SPDX-License-Identifier: Apache-2.0
// What an archive costs, and a question to it:
//
//     recall_bench BLOCKS QUESTIONS FOLDER
//
// BLOCKS has one block of 32 tokens a line, QUESTIONS one question; the archive is made in FOLDER, and deleted.
// `cold` drops the archive's pages from the page cache before every question.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "processor_time.h"
#include "recall/archive.h"
#include "recall/selectors/selector.h"

namespace {

using namespace weir;

int Die(const Status& status) {
  std::fprintf(stderr, "recall_bench: %s\n", status.message().c_str());
  return 2;
}

std::vector<std::string> Lines(const char* path) {
  std::ifstream file(path);
  std::vector<std::string> out;
  for (std::string line; std::getline(file, line);) out.push_back(line);
  return out;
}

double ResidentMib() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_maxrss) / 1024;
}

void DropPages(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const int fd = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    (void)fdatasync(fd);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return Die(InvalidArgument("usage: recall_bench BLOCKS QUESTIONS FOLDER"));
  ArchiveOptions options;
  options.dir = argv[3];
  Ledger ledger;
  auto made = Archive::Make(options, ledger);
  if (!made.ok()) return Die(made.status());
  Archive& archive = **made;
  int64_t n = 0;
  double add_s = 0, sync_s = 0;
  const double processor = ProcessSeconds();
  {
    std::ifstream file(argv[1]);
    for (std::string line; std::getline(file, line); ++n) {
      const auto start = Clock::now();
      Block block;
      block.seq = 32 * n;
      block.n_tokens = 32;
      block.text = line;
      if (const Status status = archive.Append(block); !status.ok()) return Die(status);
      if (n % 16 == 15) archive.Flush();  // a chunk of 512 tokens
      add_s += SecondsSince(start);
    }
  }
  const double add_processor_s = ProcessSeconds() - processor;
  const auto start = Clock::now();
  archive.SavePoint();
  sync_s = SecondsSince(start);
  if (!archive.state().ok()) return Die(archive.state());
  const double tokens = 32e-6 * static_cast<double>(n);
  std::printf(
      "%.1fM tokens: added in %.3f s (%.3f s per 1M, %.3f s of processor), synced in %.3f s; %.2f bytes a token; %ld "
      "bytes of buffers\n",
      tokens, add_s, add_s / tokens, add_processor_s / tokens, sync_s,
      static_cast<double>(archive.disk_bytes()) / (1e6 * tokens), static_cast<long>(archive.memory_bytes()));
  const SelectorInfo* words = nullptr;
  for (const SelectorInfo* info : AllSelectorInfos()) {
    if (std::string_view(info->name) == "words") words = info;
  }
  if (words == nullptr) return Die(NotFound("there is no selector `words`"));
  const auto selector = words->make({});
  for (const char* how : {"warm", "cold"}) {
    std::vector<double> walk_ms, ask_ms, walk_processor_ms, ask_processor_ms;
    int64_t n_found = 0;
    const bool cold = *how == 'c';
    for (const std::string& question : Lines(argv[2])) {
      if (cold) DropPages(options.dir);
      auto begun = Clock::now();
      double from = 1e3 * ProcessSeconds();
      RecallQuery query;
      query.text = question;
      query.held_from = INT64_MAX;
      query.n_seen = 32 * n;
      const auto found = selector->Select(query, archive);
      if (!found.ok()) return Die(found.status());
      ask_ms.push_back(MillisecondsSince(begun));
      ask_processor_ms.push_back(1e3 * ProcessSeconds() - from);
      n_found += std::ssize(*found);
      if (cold) DropPages(options.dir);
      begun = Clock::now();
      from = 1e3 * ProcessSeconds();
      if (const Status status = archive.Scan(archive.begin(), [](BlockPlace, const Block&) { return true; });
          !status.ok()) {
        return Die(status);
      }
      walk_ms.push_back(MillisecondsSince(begun));
      walk_processor_ms.push_back(1e3 * ProcessSeconds() - from);
    }
    std::printf(
        "%s: a question %.1f ms (median; most %.1f), %.1f ms of processor, one pass that only reads %.1f ms, %.1f of "
        "processor; %ld "
        "passages\n",
        how, Median(ask_ms), *std::max_element(ask_ms.begin(), ask_ms.end()), Median(ask_processor_ms), Median(walk_ms),
        Median(walk_processor_ms), static_cast<long>(n_found));
  }
  std::printf("resident at most %.1f MiB\n", ResidentMib());
  return archive.Remove().ok() ? 0 : 1;
}
