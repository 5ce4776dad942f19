// SPDX-License-Identifier: Apache-2.0
// A prompt in parts, and a reader that reads it into a session chunk by chunk, so that other work can run in between.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chat/conversation.h"
#include "chat/picture_source.h"
#include "engine/session.h"

namespace weir {

// One part of a prompt: tokens, or the next pictures of a PictureSource.
struct PromptPart {
  std::vector<int32_t> tokens;
  bool pinned = false;
  bool whole = false;  // once begun, must be read to its end: half of it would leave a broken turn
  bool visual = false;
};

// The tokens of all parts, concatenated.
std::vector<int32_t> TokensOf(std::span<const PromptPart> parts);

// Parts of a user's turn, or of the next piece of one.
struct TurnParts {
  std::vector<PromptPart> parts;
  size_t n_heads = 0;  // the first n_heads parts open the turn; 0 if a turn is open already
  bool asks = false;   // the last part ends the turn; an answer follows
};
// The template's words that open a turn, unless one is open, followed by `body`, if any.
TurnParts OpenTurn(const Conversation& talk, std::optional<PromptPart> body);
// The template's words that open a turn, unless one is open, followed by the question. The template's closing words are
// a separate part that is read to its end; with `in_one` they belong to the question's part. `report` (may be nullptr)
// as for Conversation::Ask().
TurnParts AskInTurn(const Conversation& talk, const std::string& question, bool in_one = false,
                    EncodeReport* report = nullptr);

// Reads parts chunk by chunk. The result is byte for byte that of one Session::Append() per part.
class PromptReader {
 public:
  // `ends_prompt`: the last token ends a prompt (Session::AppendOptions::end_of_prompt). `pictures` must outlive the
  // reading of visual parts. t_ms is the current stream time. The session already holds the first n_held tokens.
  // REQUIRES: the parts have more than n_held tokens, and no picture comes before the end of those.
  void Start(std::vector<PromptPart> parts, bool ends_prompt, PictureSource* pictures, int64_t t_ms,
             int64_t n_held = 0);
  // Reads a turn of `talk`, which is updated after each step and must outlive the reading. A question ends a prompt.
  void Start(TurnParts turn, Conversation& talk, PictureSource* pictures, int64_t t_ms);
  bool done() const { return part_ == parts_.size(); }
  // Whether reading may stop here.
  bool may_stop() const { return done() || !parts_[part_].whole || at_ == 0; }
  int64_t n_read() const { return n_read_; }
  int64_t n_visual() const { return n_visual_; }  // of these, of pictures
  int64_t t_ms() const { return t_ms_; }          // the time of the last picture
  // Whether Step() would return without waiting.
  bool Ready() const { return done() || !parts_[part_].visual || pictures_->Ready(); }

  // Reads one chunk or one picture. `between`: Session::AppendOptions::between. REQUIRES: !done().
  Status Step(Session& session, const TensorObserver* observer = nullptr,
              const std::function<void()>* between = nullptr);
  // Whether the next step reads a picture. REQUIRES: !done().
  bool visual() const { return parts_[part_].visual; }

 private:
  Status ReadSome(Session& session, const TensorObserver* observer, const std::function<void()>* between);
  Status LookAt(Session& session, Session::AppendOptions append);
  std::vector<PromptPart> parts_;
  bool ends_prompt_ = false;
  size_t part_ = 0, at_ = 0;  // the next part, and the next token in it
  int64_t n_read_ = 0, n_visual_ = 0;
  PictureSource* pictures_ = nullptr;
  int64_t t_ms_ = 0, t_part_ms_ = 0;
  bool in_part_ = false;          // of pictures
  Conversation* talk_ = nullptr;  // nullptr: the parts are not a turn of a conversation
  size_t n_heads_ = 0;            // of parts_
};

}  // namespace weir
