// SPDX-License-Identifier: Apache-2.0
// A prompt in parts, and what reads it into a session chunk by chunk, so that other work can be done in between.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chat/conversation.h"
#include "chat/picture_source.h"
#include "engine/session.h"

namespace weir {

// What to read, in order: tokens, or what a PictureSource has next.
struct PromptPart {
  std::vector<int32_t> tokens;
  bool pinned = false;
  bool whole = false;  // not to be cut short once it began: half of it would leave a turn that neither ends nor goes on
  bool visual = false;
};

// The tokens of the parts, one after the other.
std::vector<int32_t> TokensOf(std::span<const PromptPart> parts);

// Parts that are read as the user's turn of a conversation, or as its next piece.
struct TurnParts {
  std::vector<PromptPart> parts;
  size_t n_heads = 0;  // of them, the words that open the turn: 0 where one is open
  bool asks = false;   // the last part ends the turn; an answer follows
};
// What opens a turn where none is open, then `body`, if any.
TurnParts OpenTurn(const Conversation& talk, std::optional<PromptPart> body);
// What opens a turn where none is open, then the question. The template's words at its end are a part of their own that
// is not cut short, or with `in_one` the end of the question's. `report` (may be nullptr) as for Conversation::Ask().
TurnParts AskInTurn(const Conversation& talk, const std::string& question, bool in_one = false,
                    EncodeReport* report = nullptr);

// Reads parts chunk by chunk, with the bytes that one Session::Append() of each part would give.
class PromptReader {
 public:
  // `ends_prompt`: the last token ends a prompt (Session::AppendOptions::end_of_prompt). `pictures` outlives the
  // reading of visual parts. The stream stands at the moment t_ms. The session holds the first n_held tokens already;
  // REQUIRES: more than they come, and no picture stands before them.
  void Start(std::vector<PromptPart> parts, bool ends_prompt, PictureSource* pictures, int64_t t_ms,
             int64_t n_held = 0);
  // A turn of `talk`, which learns step by step what was read of it, and outlives the reading. A question ends a
  // prompt.
  void Start(TurnParts turn, Conversation& talk, PictureSource* pictures, int64_t t_ms);
  bool done() const { return part_ == parts_.size(); }
  // Whether what comes next may be left away.
  bool may_stop() const { return done() || !parts_[part_].whole || at_ == 0; }
  int64_t n_read() const { return n_read_; }
  int64_t n_visual() const { return n_visual_; }  // of them, of pictures
  int64_t t_ms() const { return t_ms_; }          // the moment of the last picture
  // Whether Step() would not wait.
  bool Ready() const { return done() || !parts_[part_].visual || pictures_->Ready(); }

  // One chunk or one picture. REQUIRES: !done().
  Status Step(Session& session, const TensorObserver* observer = nullptr);
  // What comes next is a picture. REQUIRES: !done().
  bool visual() const { return parts_[part_].visual; }

 private:
  Status ReadSome(Session& session, const TensorObserver* observer);
  Status LookAt(Session& session, Session::AppendOptions append);
  std::vector<PromptPart> parts_;
  bool ends_prompt_ = false;
  size_t part_ = 0, at_ = 0;  // what comes next: the part, and its first token
  int64_t n_read_ = 0, n_visual_ = 0;
  PictureSource* pictures_ = nullptr;
  int64_t t_ms_ = 0, t_part_ms_ = 0;
  bool in_part_ = false;          // of pictures
  Conversation* talk_ = nullptr;  // nullptr: the parts are no turn of a conversation
  size_t n_heads_ = 0;            // of parts_
};

}  // namespace weir
