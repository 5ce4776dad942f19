// SPDX-License-Identifier: Apache-2.0
// What readers of dialects have in common: a text that arrives in pieces, the search for markers in it, and attempts
// that may be given up.
//
// A reader is a state and Step(), which takes bytes from the front of rest(). A step may only do what no later byte can
// change, so that it does not matter where the text was cut.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/dialects/dialect.h"

namespace weir {

class TextReader : public DialectReader {
 public:
  void Push(std::string_view text) final;
  void Finish() final;

 protected:
  explicit TextReader(PartSink& sink) : sink_(sink) {}
  // Does one step; false if it can do no more without further text. `last`: there is none.
  virtual bool Step(bool last) = 0;
  // Back to reading content; called when an attempt is given up.
  virtual void Restart() = 0;

  std::string_view rest() const { return std::string_view(text_).substr(at_); }
  void Take(size_t n);
  void SkipSpace();
  // Takes everything before the first of `markers`, which goes to *out, and the marker; returns its index. kNoMarker if
  // there is none: then what may become one stays. kTooLong if *out is longer than `most` before one comes. Of markers
  // that begin at one place the longest counts.
  static constexpr int kNoMarker = -1, kTooLong = -2;
  int ScanTo(std::span<const std::string_view> markers, bool last, std::string* out, size_t most = SIZE_MAX);
  // Whether rest() begins with the text.
  enum class Begins { kNo, kMaybe, kYes };
  Begins At(std::string_view text, bool last) const;

  // From here on what is taken is kept, with `marker` before it, until it is certain to be a call.
  void Try(std::string_view marker);
  bool trying() const { return trying_; }
  void Commit();
  // It was none: what was kept is content.
  void GiveUp();

  PartSink& sink_;

 private:
  std::string text_;
  size_t at_ = 0;  // what is before was taken
  std::string kept_;
  bool trying_ = false;
};

// Whether a text can be the name of a tool.
bool IsToolName(std::string_view text);
inline constexpr size_t kMaxToolNameBytes = 256;
// Without white space at both ends.
std::string_view Trimmed(std::string_view text);

}  // namespace weir
