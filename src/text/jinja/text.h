// SPDX-License-Identifier: Apache-2.0
// A string whose bytes know where they come from: written in the template, or given with the request.
//
// The tokenizer recognises control tokens only in what a template wrote. Every operation of the language carries the
// origin of each byte along (a slice, a trim, a replacement, a join), so that a message cannot forge a control token
// whatever a template does to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weir::jinja {

class Text {
 public:
  struct Run {
    size_t begin = 0, end = 0;  // bytes
    bool given = false;
  };

  Text() = default;
  explicit Text(std::string bytes, bool given = false) : bytes_(std::move(bytes)), given_(given && !bytes_.empty()) {}

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // What it takes in memory.
  int64_t cost() const { return static_cast<int64_t>(bytes_.size() + runs_.size() * sizeof(Mark)); }

  // Of the filters `safe` and `escape`: adding another text to this one escapes that for HTML, as Python's Markup does.
  // No operation but `+` keeps it.
  bool is_markup() const { return is_markup_; }
  void set_markup() { is_markup_ = true; }

  void Append(std::string_view bytes, bool given);
  void Append(const Text& other);
  // Bytes [begin, end) of another text. REQUIRES: begin <= end <= other.size().
  void AppendPart(const Text& other, size_t begin, size_t end);
  Text Part(size_t begin, size_t end) const;

  // The origin of the byte at `pos`; of the last byte if `pos` is behind it; false for an empty text.
  bool GivenAt(size_t pos) const;
  bool AnyGiven() const { return given_ || !runs_.empty(); }
  // The text as runs of one origin, in order.
  std::vector<Run> Runs() const;

 private:
  // Ends of the runs, whose origins alternate. Empty for a text of one origin.
  struct Mark {
    size_t end;
    bool given;
  };
  size_t RunOf(size_t pos) const;
  std::string bytes_;
  std::vector<Mark> runs_;
  bool given_ = false;  // of a text of one origin
  bool is_markup_ = false;
};

}  // namespace weir::jinja
