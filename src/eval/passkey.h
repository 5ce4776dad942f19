// SPDX-License-Identifier: Apache-2.0
// Passkey: a number stated once in endless filler (Mohtashami and Jaggi 2023, "Landmark Attention", arXiv 2305.16300,
// section 4.2; InfiniPot, arXiv 2410.01518, figure 4). Key uniform in 1..50000; score: the first integer of the answer.
//
// Filler is a loop of five short sentences, cut by tokens instead of characters, so that lengths are exact. After the
// key the filler restarts, as published.
#pragma once

#include <cstdint>
#include <vector>

#include "eval/examinee.h"
#include "eval/suite.h"

namespace weir {

struct PasskeyOptions {
  std::vector<int64_t> lengths = {1024, 2048, 4096};     // tokens from the beginning to the question
  std::vector<double> depths = {0, 0.25, 0.5, 0.75, 1};  // of the key, share of the filler
  std::vector<int64_t> key_at = {256};                   // growing streams: tokens before the key
  int32_t n = 10;                                        // trials per cell
  uint64_t seed = 0;
  int32_t n_answer = 16;
  // Growing: at every length a round ends, whose question and answer stay in the stream. The key is asked for once, in
  // a trial's last round; the rounds before it ask about the filler, so that no answer gives the key away.
  bool carry = false;
};

// The tokens of one stream of any length: task, filler, key, then filler from its beginning.
class PasskeyStream {
 public:
  PasskeyStream(const Examinee& examinee, uint64_t seed);
  int32_t key() const { return key_; }
  // Tokens before the key, n_before of them filler: the same in every stream.
  int64_t n_until_key(int64_t n_before) const { return static_cast<int64_t>(task_.size()) + n_before; }
  // The key's tokens in a stream that begins with token `begin`.
  SeqSpan KeySpan(int64_t begin, int64_t n_before) const {
    const int64_t seq = begin + n_until_key(n_before);
    return {seq, seq + static_cast<int64_t>(sentence_.size())};
  }
  // Tokens besides filler.
  int64_t n_fixed() const { return static_cast<int64_t>(task_.size() + sentence_.size()); }
  // Tokens [first, end) of the stream whose key sentence comes after n_before tokens of filler.
  std::vector<int32_t> Tokens(int64_t n_before, int64_t first, int64_t end) const;
  Question question() const;
  // Of a round that does not ask for the key.
  static Question FillerQuestion();

 private:
  int32_t key_ = 0;
  std::vector<int32_t> task_, sentence_, filler_;
};

// kInvalidArgument: no cells, or lengths that do not hold the key's sentence.
Status CheckPasskeyOptions(const PasskeyOptions& options, bool growing);
// The published protocol: every trial of every cell (`length`, `depth`) is a separate stream.
Status RunPasskeyGrid(Examinee& examinee, const PasskeyOptions& options, const SuiteHooks& hooks);
// One stream per trial and key position (`key_at`), asked aside at every length after the key: far cheaper, and closer
// to an endless stream. The text before a late key is read once for all trials. With `carry` every trial of every
// length is a stream of its own.
Status RunPasskeyGrowing(Examinee& examinee, const PasskeyOptions& options, const SuiteHooks& hooks);

}  // namespace weir
