// SPDX-License-Identifier: Apache-2.0
// Any bytes as a trace: read to its end, or refused with the line that is wrong.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "kv/trace_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = memfd_create("trace", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  const auto reader = weir::TraceReader::Open("/proc/self/fd/" + std::to_string(fd));
  if (!reader.ok()) return 0;
  int64_t n_slots = 0;
  (*reader)->OnAttention([&](const weir::TraceAttention& attention) {
    int64_t n = 0;
    for (const weir::SeqRun& run : attention.slots) n += run.count;
    if (std::ssize(attention.scores) != n) std::abort();
  });
  weir::TraceStep step;
  for (;;) {
    const auto more = (*reader)->Next(&step);
    if (!more.ok() || !*more) break;
    int64_t n_before = 0, n_dropped = 0;
    for (const weir::SeqRun& run : step.before) n_before += run.count;
    for (const weir::SeqRun& run : step.dropped) n_dropped += run.count;
    if (n_before != step.n_slots || n_before - n_dropped != step.n_keep) std::abort();
    for (const weir::SeqRun& run : (*reader)->held(step.group)) {
      if (run.first < 0 || run.count < 1 || run.first + run.count > (*reader)->n_tokens()) std::abort();
      n_slots += run.count;
    }
  }
  for (const weir::TraceToken& token : (*reader)->tokens()) (void)(*reader)->piece(token.id);
  return 0;
}
