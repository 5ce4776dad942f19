// SPDX-License-Identifier: Apache-2.0
// Builds GGUF files (version 3): small models for tests, and the output of tools. Everything is held in memory until
// Bytes() or WriteFile(), so the largest file is bounded by memory; real models are converted elsewhere.
//
//   GgufWriter writer;
//   writer.SetString("general.architecture", "llama");
//   writer.Set<uint32_t>("llama.block_count", 2);
//   writer.AddTensor("token_embd.weight", DType::kF32, {n_vocab, n_embd}, bytes);
//   Status status = writer.WriteFile("tiny.gguf");
//
// Nothing is checked while the pieces are collected; Bytes() and WriteFile() check everything.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status.h"
#include "io/gguf_format.h"
#include "quant/dtype.h"

namespace weir {

// The GGUF type of a C++ type. Integers and floats of every width, and bool.
template <typename T>
constexpr GgufType GgufTypeOf() {
  if constexpr (std::is_same_v<T, bool>) return GgufType::kBool;
  if constexpr (std::is_same_v<T, float>) return GgufType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return GgufType::kFloat64;
  if constexpr (std::is_same_v<T, uint8_t>) return GgufType::kUint8;
  if constexpr (std::is_same_v<T, int8_t>) return GgufType::kInt8;
  if constexpr (std::is_same_v<T, uint16_t>) return GgufType::kUint16;
  if constexpr (std::is_same_v<T, int16_t>) return GgufType::kInt16;
  if constexpr (std::is_same_v<T, uint32_t>) return GgufType::kUint32;
  if constexpr (std::is_same_v<T, int32_t>) return GgufType::kInt32;
  if constexpr (std::is_same_v<T, uint64_t>) return GgufType::kUint64;
  if constexpr (std::is_same_v<T, int64_t>) return GgufType::kInt64;
}

class GgufWriter {
 public:
  // Tensors start at multiples of `alignment`; the key general.alignment is written unless it is the default.
  explicit GgufWriter(int64_t alignment = kGgufDefaultAlignment);

  template <typename T>
  void Set(std::string key, T value) {
    std::string out = Start(GgufTypeOf<T>());
    Append(value, &out);
    keys_.emplace_back(std::move(key), std::move(out));
  }
  template <typename T>
  void SetArray(std::string key, const std::vector<T>& values) {
    std::string out = StartArray(GgufTypeOf<T>(), values.size());
    for (const T value : values) Append(value, &out);
    keys_.emplace_back(std::move(key), std::move(out));
  }
  void SetString(std::string key, std::string_view value);
  void SetStrings(std::string key, const std::vector<std::string>& values);

  // `shape` outermost first, 1 to 4 sizes; `data` must have exactly the bytes that shape and type need.
  void AddTensor(std::string name, DType type, std::vector<int64_t> shape, std::vector<uint8_t> data);

  // The whole file. kInvalidArgument names a duplicate or empty key or tensor name, a tensor whose bytes do not match
  // its shape, or a bad alignment.
  Result<std::vector<uint8_t>> Bytes() const;
  // Writes the same to a file, replacing its contents. kIo when it cannot be written.
  Status WriteFile(const std::string& path) const;

 private:
  struct Tensor {
    std::string name;
    DType type;
    std::vector<int64_t> shape;
    std::vector<uint8_t> data;
  };

  template <typename T>
  static void Append(T value, std::string* out) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out->append(bytes, sizeof(T));
  }
  static void AppendString(std::string_view text, std::string* out);
  static std::string Start(GgufType type);
  static std::string StartArray(GgufType type, uint64_t count);
  Status Check() const;

  int64_t alignment_;
  std::vector<std::pair<std::string, std::string>> keys_;  // name; type and value as stored
  std::vector<Tensor> tensors_;
};

}  // namespace weir
