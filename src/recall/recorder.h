// SPDX-License-Identifier: Apache-2.0
// Cuts what a session reads into blocks and puts them into an archive. The frame of a chat template is no text: control
// tokens, and the name of a role that follows one ("user", "assistant"), belong to a block without words.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "engine/session/stream_listener.h"
#include "recall/block.h"
#include "text/stream.h"
#include "text/tokenizer.h"

namespace weir {

// Learns which rows a block that is being cut consists of.
class RowWatcher {
 public:
  virtual ~RowWatcher() = default;
  // A row joined the block. Its slots are the from_end-th newest of the pot, in every group.
  virtual void Row(const Block& so_far, int64_t from_end) = 0;
  // The block was given up.
  virtual void Dropped() = 0;
};

class Recorder final : public StreamListener {
 public:
  // `tokenizer` and `rows` must outlive it; `sink` receives every block. A picture's rows are gathered in `rows`; one
  // that does not fit is left out.
  using Sink = std::function<void(const Block&)>;
  Recorder(const Tokenizer& tokenizer, Sink sink, std::span<uint16_t> rows);

  // nullptr: nobody. Must outlive the recorder.
  void SetRowWatcher(RowWatcher* watcher) { watcher_ = watcher; }

  void Arrived(const Arrival& arrival) override;
  // Hands the last, shorter block over, so that it can be found.
  void Flush();
  // Forgets what was not handed over: the session was reset or restored.
  void Drop();

 private:
  void Begin(const Arrival& arrival, int64_t seq);
  void AddPicture(const Arrival& arrival);
  // Of the text behind a control token, what is not the name of a role.
  void AddText(std::string_view piece);
  void EndFrame();
  void End();
  void Forget();

  Sink sink_;
  RowWatcher* watcher_ = nullptr;
  StreamDecoder decoder_;
  Block block_;  // that is being filled: text of text_
  const Tokenizer& tokenizer_;
  std::string text_, piece_;
  bool in_frame_ = false;  // behind a control token, and what followed may be the name of a role:
  std::string frame_;
  const std::span<uint16_t> rows_;
  size_t n_numbers_ = 0;  // of rows_, of the picture that is being read
};

}  // namespace weir
