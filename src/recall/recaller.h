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
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/session.h"
#include "recall/archive.h"
#include "recall/question_vectors.h"
#include "recall/recorder.h"
#include "recall/restorers/restorer.h"
#include "recall/spec.h"
#include "text/tokenizer.h"

namespace weir {

// What was brought back for a question.
struct Recalled {
  std::vector<RecalledPassage> passages;  // in the order of the stream
  int32_t n_tokens = 0;                   // that the excerpt takes
  double best_score = 0;                  // of everything that was found
  bool gated = false;                     // something was found, but nothing above the gate
  bool held = false;                      // the best match is in the pot
  Status failed;                          // why nothing could be searched; Bring() itself returns such an error
  bool too_large = false;                 // what was found above the gate needs more room than excerpts have
};

class Recaller {
 public:
  // All must outlive it. `recorder` (may be nullptr) is flushed before a search, so that the newest words can be found.
  // `rows` has room for the largest picture; without it pictures are not read again.
  Recaller(RecallSpec spec, BlockSource& blocks, const Tokenizer& tokenizer, Recorder* recorder,
           std::span<float> rows = {});

  // For a spec that needs vectors. Both must outlive it.
  void SetVectors(QuestionReader& reader, Archive& archive) {
    reader_ = &reader;
    archive_ = &archive;
  }
  const RecallSpec& spec() const { return spec_; }
  // Fixed memory of a search, for SessionOptions::beside.
  static int64_t MemoryBytes(const RecallSpec& spec);

  // Searches, and brings what was found back on top of the pot: at most the session's excerpt_slots. A passage that
  // does not fit is left out, the worst first. Errors of the source and of Session::Append(). REQUIRES: no excerpt is
  // held. `gold`: RecallQuery::gold.
  Result<Recalled> Bring(Session& session, std::string_view question, int64_t t_ms,
                         std::optional<std::span<const SeqSpan>> gold = std::nullopt);
  // The same, but a source that cannot be read (kIo) costs the excerpt, not the answer: Recalled::failed says why.
  Result<Recalled> TryToBring(Session& session, std::string_view question, int64_t t_ms);
  Status TakeBack(Session& session) { return session.TakeBackExcerpt(); }

 private:
  Result<std::vector<Passage>> Search(Session& session, std::string_view question, int64_t t_ms, int32_t most,
                                      std::optional<std::span<const SeqSpan>> gold);
  // Sorts passages by the likelihood of the question behind each of them.
  Status Rerank(const RestoreJob& job, std::vector<Passage>* passages);

  RecallSpec spec_;
  BlockSource& blocks_;
  const Tokenizer& tokenizer_;
  Recorder* recorder_;
  std::unique_ptr<Selector> selector_;
  std::unique_ptr<Restorer> restorer_;
  std::span<float> rows_;
  QuestionReader* reader_ = nullptr;
  Archive* archive_ = nullptr;  // whose keys, or keys and values, are used
};

}  // namespace weir
