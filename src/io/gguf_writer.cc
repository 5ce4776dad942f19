// SPDX-License-Identifier: Apache-2.0
#include "io/gguf_writer.h"

#include <cerrno>
#include <cstdio>
#include <limits>
#include <set>

namespace weir {

GgufWriter::GgufWriter(int64_t alignment) : alignment_(alignment) {
  if (alignment != kGgufDefaultAlignment) Set(kGgufAlignmentKey, static_cast<uint32_t>(alignment));
}

void GgufWriter::SetString(std::string key, std::string_view value) {
  std::string out = Start(GgufType::kString);
  AppendString(value, &out);
  keys_.emplace_back(std::move(key), std::move(out));
}

void GgufWriter::SetStrings(std::string key, const std::vector<std::string>& values) {
  std::string out = StartArray(GgufType::kString, values.size());
  for (const std::string& value : values) AppendString(value, &out);
  keys_.emplace_back(std::move(key), std::move(out));
}

void GgufWriter::AddTensor(std::string name, DType type, std::vector<int64_t> shape, std::vector<uint8_t> data) {
  tensors_.push_back({std::move(name), type, std::move(shape), std::move(data)});
}

void GgufWriter::AppendString(std::string_view text, std::string* out) {
  Append(static_cast<uint64_t>(text.size()), out);
  out->append(text);
}

std::string GgufWriter::Start(GgufType type) {
  std::string out;
  Append(static_cast<uint32_t>(type), &out);
  return out;
}

std::string GgufWriter::StartArray(GgufType type, uint64_t count) {
  std::string out = Start(GgufType::kArray);
  Append(static_cast<uint32_t>(type), &out);
  Append(count, &out);
  return out;
}

Status GgufWriter::Check() const {
  if (!IsGgufAlignment(alignment_)) return InvalidArgument("alignment {} cannot be written", alignment_);
  std::set<std::string_view> seen;
  for (const auto& [key, value] : keys_) {
    if (key.empty()) return InvalidArgument("a key needs a name");
    if (!seen.insert(key).second) return InvalidArgument("key '{}' is given twice", key);
  }
  seen.clear();
  for (const Tensor& tensor : tensors_) {
    const char* name = tensor.name.c_str();
    if (tensor.name.empty()) return InvalidArgument("a tensor needs a name");
    if (!seen.insert(tensor.name).second) return InvalidArgument("tensor '{}' is given twice", name);
    if (tensor.shape.empty() || tensor.shape.size() > kGgufMaxDims) {
      return InvalidArgument("tensor '{}' has {} dimensions, not 1 to {}", name, tensor.shape.size(), kGgufMaxDims);
    }
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) {
      if (size < 1 || size > std::numeric_limits<int64_t>::max() / 8 / elements) {
        return InvalidArgument("tensor '{}' has a dimension of {}", name, size);
      }
      elements *= size;
    }
    if (tensor.shape.back() % InfoOf(tensor.type).block_elements != 0) {
      return InvalidArgument("tensor '{}' has rows of {} elements, not whole blocks of {}", name, tensor.shape.back(),
                             InfoOf(tensor.type).name);
    }
    const int64_t bytes = RowBytes(tensor.type, elements);
    if (static_cast<uint64_t>(bytes) != tensor.data.size()) {
      return InvalidArgument("tensor '{}' needs {} bytes and has {}", name, bytes, tensor.data.size());
    }
  }
  return Status();
}

Result<std::vector<uint8_t>> GgufWriter::Bytes() const {
  WEIR_RETURN_IF_ERROR(Check());
  std::string head;
  Append(kGgufMagic, &head);
  Append(kGgufVersion, &head);
  Append(static_cast<uint64_t>(tensors_.size()), &head);
  Append(static_cast<uint64_t>(keys_.size()), &head);
  for (const auto& [key, value] : keys_) {
    AppendString(key, &head);
    head += value;
  }
  const auto aligned = [this](uint64_t n) {
    return (n + static_cast<uint64_t>(alignment_) - 1) / static_cast<uint64_t>(alignment_) *
           static_cast<uint64_t>(alignment_);
  };
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    AppendString(tensor.name, &head);
    Append(static_cast<uint32_t>(tensor.shape.size()), &head);
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
      Append(static_cast<uint64_t>(*size), &head);
    }
    Append(InfoOf(tensor.type).gguf_number, &head);
    Append(offset, &head);
    offset += aligned(tensor.data.size());
  }
  std::vector<uint8_t> file(head.begin(), head.end());
  file.resize(aligned(file.size()));
  file.reserve(file.size() + offset);
  for (const Tensor& tensor : tensors_) {
    file.insert(file.end(), tensor.data.begin(), tensor.data.end());
    file.resize(aligned(file.size()));
  }
  return file;
}

Status GgufWriter::WriteFile(const std::string& path) const {
  WEIR_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, Bytes());
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return IoError("{}: cannot create: {}", path, std::strerror(errno));
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const int error = errno;
  // Closing flushes: a full disk may show up only here.
  if (std::fclose(file) != 0 || !written) {
    return IoError("{}: cannot write: {}", path, std::strerror(written ? errno : error));
  }
  return Status();
}

}  // namespace weir
