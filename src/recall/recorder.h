// SPDX-License-Identifier: Apache-2.0
// Cuts what a session reads into blocks and puts them into an archive.
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

class Recorder final : public StreamListener {
 public:
  // `tokenizer` and `rows` must outlive it; `sink` receives every block. A picture's rows are gathered in `rows`; one
  // that does not fit is left out.
  using Sink = std::function<void(const Block&)>;
  Recorder(const Tokenizer& tokenizer, Sink sink, std::span<uint16_t> rows);

  void Arrived(const Arrival& arrival) override;
  // Hands the last, shorter block over, so that it can be found.
  void Flush();
  // Forgets what was not handed over: the session was reset or restored.
  void Drop();

 private:
  void Begin(const Arrival& arrival, int64_t seq);
  void AddPicture(const Arrival& arrival);
  void End();

  Sink sink_;
  StreamDecoder decoder_;
  Block block_;  // that is being filled: text of text_
  std::string text_, piece_;
  const std::span<uint16_t> rows_;
  size_t n_numbers_ = 0;  // of rows_, of the picture that is being read
};

}  // namespace weir
