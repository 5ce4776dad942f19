// SPDX-License-Identifier: Apache-2.0
// GGUF files (versions 2 and 3, little-endian): metadata and tensors of a model, memory-mapped read-only.
//
// A GGUF file is untrusted input. Open() checks every count, offset, string and type against the file's size before
// anything is used or allocated. Afterwards every accessor is a plain look-up, and every tensor is inside the mapping.
// Errors name the file, the key or tensor, the byte offset, and the expected value.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "io/mmap.h"
#include "quant/dtype.h"

namespace weir {

// One metadata value. Integers of every width are widened to int64_t (uint64_t above INT64_MAX is refused), floats to
// double. Arrays are homogeneous; arrays of arrays are refused.
struct GgufValue {
  std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<double>, std::vector<bool>,
               std::vector<std::string>>
      v;
};

// One tensor of the file. Its data stays in the mapping.
struct GgufTensor {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;     // outermost first (the file stores innermost first); 1 to 4 entries, each >= 1
  const uint8_t* data = nullptr;  // at file_offset in the file, which starts at a page boundary (Parse(): at its bytes)
  int64_t bytes = 0;              // exactly the bytes the shape needs
  uint64_t file_offset = 0;  // a multiple of general.alignment, which is at least 8; no two tensors of a file overlap
};

class GgufFile {
 public:
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  // Maps and checks the file at `path`, and of a model in parts (NAME-00001-of-00003.gguf, as llama.cpp's gguf-split
  // writes them) all of them: `path` is the first one's, whose metadata counts. kInvalidArgument for another one's,
  // kNotFound when it does not exist, kIo when it cannot be read (a directory
  // included), kCorrupt when it is inconsistent or truncated, kUnsupported for another version, big-endian files,
  // arrays of arrays and tensor types this build lacks (named).
  static Result<std::unique_ptr<GgufFile>> Open(const std::string& path);
  // The same for bytes in memory, which must outlive the object (tests, fuzzers). `name` replaces the path in messages.
  // kUnsupported for a part of a model.
  static Result<std::unique_ptr<GgufFile>> Parse(std::span<const uint8_t> bytes, std::string name);

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  int64_t file_bytes() const;
  // When each part was last changed, in nanoseconds since 1970; 0: bytes in memory.
  std::vector<int64_t> changed_ns() const;
  int n_parts() const { return 1 + static_cast<int>(parts_.size()); }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  bool Has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }
  // Required values: kNotFound names the missing key, kCorrupt means a value of another type. Int accepts an integral
  // bool; Float accepts integers.
  Result<int64_t> Int(std::string_view key) const;
  Result<double> Float(std::string_view key) const;
  Result<bool> Bool(std::string_view key) const;
  Result<std::string> String(std::string_view key) const;
  // Optional values: `fallback` when the key is absent; still an error when it has another type.
  Result<int64_t> IntOr(std::string_view key, int64_t fallback) const;
  Result<double> FloatOr(std::string_view key, double fallback) const;
  Result<bool> BoolOr(std::string_view key, bool fallback) const;
  Result<std::string> StringOr(std::string_view key, std::string fallback) const;
  // Arrays: nullptr when absent or of another element type.
  const std::vector<int64_t>* IntArray(std::string_view key) const;
  const std::vector<double>* FloatArray(std::string_view key) const;
  const std::vector<std::string>* StringArray(std::string_view key) const;

  // nullptr when there is no such tensor.
  const GgufTensor* Tensor(std::string_view name) const;

  // Releases the mapped pages (after weights were packed elsewhere). Later reads still work; they read the file again.
  // No-op for Parse().
  void ReleasePages() const;

 private:
  GgufFile() = default;
  static Result<std::unique_ptr<GgufFile>> ParsePart(std::span<const uint8_t> bytes, std::string name);
  Status ParseAll();
  Status ParseChecked();
  // Of a file that is a model's first part: adds the tensors of the others.
  Status OpenParts();
  Status OpenPart(int i, int n, const std::string& path);

  std::string path_;
  uint32_t version_ = 0;
  std::span<const uint8_t> bytes_;
  MappedFile mapping_;             // empty when made by Parse()
  std::vector<MappedFile> parts_;  // but for the first, which is mapping_
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> tensor_index_;
};

}  // namespace weir
