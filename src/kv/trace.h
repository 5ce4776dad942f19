// The trace: one JSON line per forgotten token, so that forgetting can be inspected, counted and drawn.
//
//   {"step":3,"policy":"streaming_llm","layer":-1,"head":-1,"slot":4,"seq":4,"t_src_ms":0,"token":198,"reason":"pot
//   full"}
//
// step counts selections; layer and head are -1 where one decision covers all of them. Lines go to FILE.part, which
// becomes FILE when Close() succeeds: a full disk or a kill never leaves a half-written FILE. A FILE that is there
// already and is no regular file (a pipe, /dev/stderr) gets its lines directly.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "base/status.h"
#include "kv/types.h"

namespace weir {

// One group at one selection. Spans have one entry per slot, or none where nothing was declared.
struct TraceSelection {
  int64_t step = 0, n_seen = 0;          // running number of the selection; tokens of the stream so far
  const char* policy = "";
  int32_t layer = -1, head = -1;         // -1: all
  std::span<const SlotMeta> slots;
  std::span<const float> scores, nll;
  const KeepSet* keep = nullptr;
  const char* reason = "";
};

class TraceWriter {
 public:
  // kIo with the path when the file cannot be made, directories included.
  static Result<std::unique_ptr<TraceWriter>> Open(const std::string& path);
  ~TraceWriter();  // without Close(): FILE.part is removed
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Writes one line per slot that is not kept. kIo when the disk is full; the writer is then closed and its part file
  // removed.
  Status Selected(const TraceSelection& selection);
  Status Close();

 private:
  TraceWriter() = default;
  Status Fail();
  void RemovePart();

  std::string path_;
  std::string part_;  // where lines go until Close(); empty when they go to path_ itself
  std::FILE* file_ = nullptr;
};

}  // namespace weir
