// SPDX-License-Identifier: Apache-2.0
// Cuts what a session reads into blocks and puts them into an archive.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/stream_listener.h"
#include "recall/block.h"
#include "text/stream.h"
#include "text/tokenizer.h"

namespace weir {

// Takes blocks. Archive is one (recall/archive.h).
class BlockSink {
 public:
  virtual ~BlockSink() = default;
  virtual void Append(const Block& block) = 0;
};

class Recorder final : public StreamListener {
 public:
  // Both must outlive it. With `pictures`, the rows of pictures and frames are kept too.
  Recorder(const Tokenizer& tokenizer, BlockSink& sink, bool pictures);

  void Arrived(const Arrival& arrival) override;
  // Hands the last, shorter block over, so that it can be found.
  void Flush();

  // Largest memory of the object, for rows of n_embd.
  static int64_t MemoryBytes(int64_t n_embd, int64_t max_rows);

 private:
  void Begin(const Arrival& arrival, int64_t seq);
  void End();

  const Tokenizer& tokenizer_;
  BlockSink& sink_;
  const bool pictures_;
  StreamDecoder decoder_;
  Block block_;  // that is being filled: text of text_
  std::string text_, piece_;
  std::vector<uint16_t> rows_;
};

}  // namespace weir
