// SPDX-License-Identifier: Apache-2.0
// A model under test on pictures: reads pictures in rounds and answers questions about them greedily.
//
// A round is the user's turn of a chat template: words, pictures, a question. Models without a template (BLIP-2 with
// OPT) read the pictures, then a form with the question in it. As an Examinee (eval/examinee.h), a Viewer can ask
// aside: the session is saved before and restored after, and the stream has no trace of the question.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "chat/conversation.h"
#include "engine/frame_store.h"
#include "engine/session.h"
#include "eval/beam_search.h"
#include "eval/encoded_pictures.h"
#include "eval/examinee.h"
#include "recall/stream_recall.h"
#include "text/chat_template.h"
#include "text/sampler.h"
#include "text/tokenizer.h"

namespace weir {

struct ViewerOptions {
  // The form of a question; "{question}" is replaced by its words.
  std::string form = "{question}";
  int32_t n_answer = 8;  // longest answer in tokens
  // In questions asked aside, generation continues after the answer's end until there are this many tokens, so that the
  // cost per token can be measured on one-word answers. The answer is the text before its end.
  int32_t n_decode = 0;
  int64_t frame_ms = 1000;  // of the source, from a picture to the next
  bool video = false;       // pictures are frames of a video
  // Above 1: the best of so many beams instead of the likeliest token each time; the session then needs `n_answer`
  // slots for questions aside. Beams read all that is held.
  int32_t n_beams = 1;
  double length_penalty = 1;  // BeamOptions
};

struct ViewerReply {
  std::string text;
  // Share of the keys and values of all tokens so far, in all layers and heads, that the session held after the
  // question, before the answer.
  double stored_share = 0;
  double stored_visual_share = 0;  // of the pictures' alone; 0 without pictures
  int64_t kv_bytes = 0;            // of what was held
  // Share of them that a token of the answer read, mean over the tokens generated.
  double used_share = 0;
  double ms_per_token = 0;  // mean time to generate one
  Recalled recalled;        // what was brought back before the question
};

class Viewer {
 public:
  // `chat` may be nullptr. `frames` keeps the session's frames if they are frames of a video and the encoder makes rows
  // of several of them; a question then reads what is kept. All must outlive the object.
  Viewer(Session& session, EncodedPictures& pictures, const Tokenizer& tokenizer, const ChatTemplate* chat,
         const ViewerOptions& options, const std::atomic<bool>* stop, FrameStore* frames = nullptr);

  // From now on, what a question is about is brought back first. nullptr: nothing is. Must outlive the object.
  void SetRecall(StreamRecall* recall) { recall_ = recall; }
  // Resets the session; the words before the first turn are read with that turn.
  Status Begin();
  // Shows pictures at the beginning of a new turn, after `lead`.
  Status Show(std::string_view lead, std::span<const std::string> pictures);
  // Asks in the turn that Show() began, or in a new one; question and answer become part of the stream.
  Result<ViewerReply> Ask(const std::string& question);
  // Asks and leaves no trace.
  Result<ViewerReply> AskAside(const std::string& question);
  // Reads the question, and `answer` as if the model had given it.
  Status Tell(const std::string& question, const std::string& answer);

  // Tokens of the stream so far.
  int64_t n_tokens() const { return n_tokens_; }
  // The current source time: that of the next picture.
  int64_t t_ms() const { return n_pictures_ * options_.frame_ms; }
  const ViewerOptions& options() const { return options_; }
  const Session& session() const { return session_; }
  const ExamCost& cost() const { return cost_; }

  // Tokens of a stream's first round without its pictures, the answer not counted; later rounds have about as many.
  static int64_t RoundTokens(const Tokenizer& tokenizer, const ChatTemplate* chat, const std::string& form,
                             const std::string& lead, const std::string& question);

 private:
  Status ReadPicture(const std::string& path);
  // Reads pictures with `read` and counts their tokens.
  Status ReadVisual(const std::function<Status(const Session::AppendOptions&)>& read);
  Status ReadTokens(std::span<const int32_t> tokens, const Session::AppendOptions& options);
  Result<Recalled> Bring(const std::string& question);
  // Reads the rest of the turn, up to where the answer begins.
  Status ReadQuestion(const std::string& question);
  Result<ViewerReply> Answer(int32_t n_least);
  // Whether an answer ends with its last token.
  bool Ended(std::span<const int32_t> tokens) const;
  Result<BeamAnswer> BestOfBeams();
  void TakeShares(ViewerReply* reply) const;
  double UsedShare() const;

  Session& session_;
  EncodedPictures& pictures_;
  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_;
  const ViewerOptions options_;
  const std::atomic<bool>* stop_;
  FrameStore* const frames_;  // nullptr: none are kept
  StreamRecall* recall_ = nullptr;

  Conversation talk_;
  int64_t n_tokens_ = 0, n_pictures_ = 0;
  std::vector<uint8_t> mark_, frames_mark_;
  ExamCost cost_;
};

}  // namespace weir
