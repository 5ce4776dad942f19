// SPDX-License-Identifier: Apache-2.0
// Restorers: how passages of a stream come back into the pot for one answer.
//
// To add one, add a file src/recall/restorers/my.cc whose first line is `// weir-plugin: restorer` and which
// defines `extern const RestorerInfo kMyRestorer`; the build finds it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "engine/session.h"
#include "recall/block_vectors.h"
#include "recall/selectors/selector.h"
#include "text/tokenizer.h"

namespace weir {

struct RecalledPassage {
  int64_t seq = 0, seq_end = 0;  // in the stream
  int64_t t_ms = 0;
  double score = 0;
  int64_t n_rows = 0;  // of pictures and frames
  std::string text;
};

// What a restorer works with. The session holds no excerpt but the restorer's own.
struct RestoreJob {
  Session& session;
  BlockSource& blocks;
  const Tokenizer& tokenizer;
  std::string_view question;
  int32_t context = 1;         // sentences around the best one
  int64_t t_ms = 0;            // stream time of what is read
  std::span<float> rows = {};  // room for the largest picture; empty: pictures do not come back
  // For RestorerInfo::needs_kv, and its layout; nullptr: there is none.
  Archive* kv = nullptr;
  VectorShape shape = {};

  std::vector<int32_t> Encode(std::string_view text) const;
  int64_t n_left() const { return session.plan().excerpt_slots - session.n_excerpt(); }
};

// What precedes and follows text that came back.
inline constexpr std::string_view kExcerptBegin = "\n\n[From earlier in the text]\n", kExcerptEnd = "\n[End]";

class Restorer {
 public:
  virtual ~Restorer() = default;
  // Brings passages back, the best first, as an excerpt of the session. One that does not fit is left out. Returns
  // those that came back, in the order of the stream. Errors of the sources and of the session.
  virtual Result<std::vector<RecalledPassage>> Restore(const RestoreJob& job, std::span<const Passage> passages) = 0;
};

struct RestorerInfo {
  const char* name;                          // = file name
  const char* summary;                       // one line for a list
  const char* source = "";                   // paper, or "" for well-known methods
  std::span<const OptionInfo> options = {};  // named as a selector's
  bool needs_kv = false;                     // the archive keeps keys and values
  std::unique_ptr<Restorer> (*make)(const Options& options);
};

// Every restorer of the folder, sorted by name. (Generated.)
std::span<const RestorerInfo* const> AllRestorerInfos();

}  // namespace weir
