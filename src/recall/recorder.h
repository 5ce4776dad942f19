// SPDX-License-Identifier: Apache-2.0
// Cuts what a session reads into blocks and puts them into an archive.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/session/stream_listener.h"
#include "recall/block.h"
#include "text/stream.h"
#include "text/tokenizer.h"

namespace weir {

class Recorder final : public StreamListener {
 public:
  // `tokenizer` must outlive it; `sink` receives every block. With `pictures`, also those of pictures and frames.
  using Sink = std::function<void(const Block&)>;
  Recorder(const Tokenizer& tokenizer, Sink sink, bool pictures);

  void Arrived(const Arrival& arrival) override;
  // Hands the last, shorter block over, so that it can be found.
  void Flush();
  // Forgets what was not handed over: the session was reset or restored.
  void Drop();

  // Largest memory of the object, for rows of n_embd.
  static int64_t MemoryBytes(int64_t n_embd, int64_t max_rows);

 private:
  void Begin(const Arrival& arrival, int64_t seq);
  void End();

  Sink sink_;
  const bool pictures_;
  StreamDecoder decoder_;
  Block block_;  // that is being filled: text of text_
  std::string text_, piece_;
  std::vector<uint16_t> rows_;
};

}  // namespace weir
