// SPDX-License-Identifier: Apache-2.0
// A good model file taken apart, so that a test can break one thing and write it back.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "io/gguf.h"
#include "io/gguf_writer.h"
#include "quant/format.h"
#include "support/build_paths.h"

namespace weir::testing {

inline std::string ModelPath(const std::string& name) { return SourceDir() + "/tests/golden/models/" + name + ".gguf"; }

inline std::string VisionPath(const std::string& file) { return SourceDir() + "/tests/golden/vision/" + file; }

inline std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct EditedTensor {
  std::string name;
  DType type;
  std::vector<int64_t> shape;  // outermost first
  std::vector<uint8_t> data;

  // Element i of an F32 tensor becomes `value`.
  void SetFloat(size_t i, float value) { std::memcpy(data.data() + i * 4, &value, 4); }
};

struct EditedModel {
  std::map<std::string, GgufValue> metadata;
  std::vector<EditedTensor> tensors;

  EditedModel() = default;
  explicit EditedModel(const std::string& name) : EditedModel(FromFile(ModelPath(name))) {}
  static EditedModel FromFile(const std::string& path) {
    EditedModel out;
    auto file = GgufFile::Open(path);
    if (!file.ok()) {
      ADD_FAILURE() << file.status().message();
      return out;
    }
    out.metadata.insert((*file)->metadata().begin(), (*file)->metadata().end());
    for (const GgufTensor& t : (*file)->tensors())
      out.tensors.push_back({t.name, t.type, t.shape, {t.data, t.data + t.bytes}});
    return out;
  }

  EditedTensor& Tensor(const std::string& name) {
    const auto at = std::find_if(tensors.begin(), tensors.end(), [&](const EditedTensor& t) { return t.name == name; });
    if (at != tensors.end()) return *at;
    ADD_FAILURE() << "the model has no tensor " << name;
    static EditedTensor nothing;
    return nothing;
  }

  void Remove(const std::string& name) {
    std::erase_if(tensors, [&](const EditedTensor& t) { return t.name == name; });
  }

  // Stores an F32 tensor as `type`.
  EditedTensor& Convert(const std::string& name, DType type) {
    EditedTensor& tensor = Tensor(name);
    const int64_t n = tensor.shape.back(), rows = static_cast<int64_t>(tensor.data.size()) / 4 / n;
    std::vector<uint8_t> out(static_cast<size_t>(rows * RowBytes(type, n)));
    std::vector<float> row(static_cast<size_t>(n));
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(row.data(), tensor.data.data() + r * n * 4, static_cast<size_t>(n) * 4);
      EncodeRow(type, row.data(), n, out.data() + r * RowBytes(type, n));
    }
    tensor.type = type;
    tensor.data = std::move(out);
    return tensor;
  }

  std::string Bytes() const {
    GgufWriter writer;
    for (const auto& [key, value] : metadata) {
      std::visit(
          [&, &key = key](const auto& v) {
            using T = std::decay_t<decltype(v)>;
            if constexpr (std::is_same_v<T, std::string>) {
              writer.SetString(key, v);
            } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
              writer.SetStrings(key, v);
            } else if constexpr (std::is_arithmetic_v<T>) {
              writer.Set(key, v);
            } else {
              writer.SetArray(key, v);
            }
          },
          value.v);
    }
    for (const EditedTensor& t : tensors) writer.AddTensor(t.name, t.type, t.shape, t.data);
    auto bytes = writer.Bytes();
    if (!bytes.ok()) {
      ADD_FAILURE() << bytes.status().message();
      return "";
    }
    return {bytes->begin(), bytes->end()};
  }
};

// The language model of the tiny BLIP-2 with the vocabulary of the tiny LLaVA: both have 320 tokens.
inline EditedModel SpeakingOpt() {
  EditedModel opt = EditedModel::FromFile(VisionPath("blip2_opt.gguf"));
  for (const auto& [key, value] : EditedModel::FromFile(VisionPath("llava.gguf")).metadata) {
    if (key.starts_with("tokenizer.")) opt.metadata[key] = value;
  }
  return opt;
}

}  // namespace weir::testing
