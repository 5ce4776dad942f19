// SPDX-License-Identifier: Apache-2.0
// Recall for one session: finds what a question is about in what the session has read, reads it again for one answer,
// and takes it back.
//
//     WEIR_ASSIGN_OR_RETURN(recalled, recaller.Bring(session, question, t_ms));
//     ... the question is read, the answer generated ...
//     WEIR_RETURN_IF_ERROR(recaller.TakeBack(session));
//
// Nothing is forgotten for an excerpt: it has slots of its own (SessionOptions::excerpt_slots).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/session.h"
#include "recall/recorder.h"
#include "recall/spec.h"
#include "text/tokenizer.h"

namespace weir {

struct RecalledPassage {
  int64_t seq = 0, seq_end = 0;  // in the stream
  int64_t t_ms = 0;
  double score = 0;
  int64_t n_rows = 0;  // of pictures and frames
  std::string text;
};

// What was brought back for a question.
struct Recalled {
  std::vector<RecalledPassage> passages;  // in the order of the stream
  int32_t n_tokens = 0;                   // that the excerpt takes
  double best_score = 0;                  // of everything that was found
  bool gated = false;                     // something was found, but nothing above the gate
  bool held = false;                      // the best match is in the pot
};

class Recaller {
 public:
  // All must outlive it. `recorder` (may be nullptr) is flushed before a search, so that the newest words can be found.
  // `rows` has room for the largest picture; without it pictures are not read again.
  Recaller(RecallSpec spec, BlockSource& blocks, const Tokenizer& tokenizer, Recorder* recorder,
           std::span<float> rows = {});

  const RecallSpec& spec() const { return spec_; }
  // Fixed memory of a search, for SessionOptions::beside.
  static int64_t MemoryBytes(const RecallSpec& spec);

  // Searches, and reads what was found on top of the pot: at most the session's excerpt_slots. A passage that does not
  // fit is left out, the worst first. Errors of the source and of Session::Append(). REQUIRES: no excerpt is held.
  Result<Recalled> Bring(Session& session, std::string_view question, int64_t t_ms);
  Status TakeBack(Session& session) { return session.TakeBackExcerpt(); }

 private:
  // What a passage is, as words; its first block's where pictures follow.
  Result<std::string> TextOf(const Passage& passage, std::string_view question);
  Status ReadPictures(const Passage& passage, Session& session, const Session::AppendOptions& append);
  std::vector<int32_t> Encode(std::string_view text) const;

  RecallSpec spec_;
  BlockSource& blocks_;
  const Tokenizer& tokenizer_;
  Recorder* recorder_;
  std::unique_ptr<Selector> selector_;
  std::span<float> rows_;
};

// Passages without pictures as they are read again.
std::string ExcerptText(const std::vector<RecalledPassage>& passages);

}  // namespace weir
