// SPDX-License-Identifier: Apache-2.0
#include "io/gguf.h"

#include <fmt/core.h>
#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <numeric>
#include <type_traits>
#include <utility>

#include "io/gguf_format.h"

namespace weir {
namespace {

using Metadata = std::map<std::string, GgufValue, std::less<>>;

// A name from an untrusted file, sanitised for a one-line message.
std::string Quoted(std::string_view text) {
  constexpr size_t kMaxShown = 80;
  std::string out = "'";
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += text.size() > kMaxShown ? "...'" : "'";
  return out;
}

// Reads the bytes in order; no read goes past the end.
class Reader {
 public:
  Reader(std::span<const uint8_t> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  const char* path() const { return path_.c_str(); }
  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }
  uint64_t size() const { return bytes_.size(); }

  Status Take(uint64_t n, const char* what, const uint8_t** out) {
    if (n > remaining()) {
      return Corrupt("{}: at byte {}: {} needs {} bytes, the file has {} left", path(), position_, what, n,
                     remaining());
    }
    *out = bytes_.data() + position_;
    position_ += n;
    return Status();
  }

  template <typename T>
  Status Read(const char* what, T* out) {
    const uint8_t* bytes = nullptr;
    WEIR_RETURN_IF_ERROR(Take(sizeof(T), what, &bytes));
    std::memcpy(out, bytes, sizeof(T));
    return Status();
  }

  Status ReadString(const char* what, std::string* out) {
    uint64_t length = 0;
    WEIR_RETURN_IF_ERROR(Read(what, &length));
    const uint8_t* bytes = nullptr;
    WEIR_RETURN_IF_ERROR(Take(length, what, &bytes));
    out->assign(reinterpret_cast<const char*>(bytes), length);
    return Status();
  }

  // A count of items of at least min_bytes each, rejected when they cannot fit in the rest of the file: memory
  // allocated for them is therefore in proportion to the file's size.
  Status CheckCount(uint64_t count, uint64_t min_bytes, const std::string& what) {
    if (count > remaining() / min_bytes) {
      return Corrupt("{}: at byte {}: {} {} cannot fit in the {} bytes left", path(), position_, count, what,
                     remaining());
    }
    return Status();
  }

 private:
  std::span<const uint8_t> bytes_;
  const std::string& path_;
  uint64_t position_ = 0;
};

template <typename Stored, typename Wide>
Status ReadWidened(Reader& reader, uint64_t count, const std::string& what, GgufValue* out) {
  const uint8_t* bytes = nullptr;
  WEIR_RETURN_IF_ERROR(reader.Take(count * sizeof(Stored), what.c_str(), &bytes));
  std::vector<Wide> values(count);
  for (uint64_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, bytes + i * sizeof(Stored), sizeof(Stored));
    if constexpr (std::is_same_v<Stored, uint64_t>) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Corrupt("{}: {} holds {}, beyond a signed 64-bit integer", reader.path(), what, value);
      }
    }
    values[i] = static_cast<Wide>(value);
  }
  out->v = std::move(values);
  return Status();
}

Status ReadBools(Reader& reader, uint64_t count, const std::string& what, GgufValue* out) {
  const uint8_t* bytes = nullptr;
  WEIR_RETURN_IF_ERROR(reader.Take(count, what.c_str(), &bytes));
  std::vector<bool> values(count);
  for (uint64_t i = 0; i < count; ++i) {
    if (bytes[i] > 1) return Corrupt("{}: {}: {} is no truth value", reader.path(), what, bytes[i]);
    values[i] = bytes[i] != 0;
  }
  out->v = std::move(values);
  return Status();
}

Status ReadStrings(Reader& reader, uint64_t count, const std::string& what, GgufValue* out) {
  std::vector<std::string> values(count);
  for (std::string& value : values) WEIR_RETURN_IF_ERROR(reader.ReadString(what.c_str(), &value));
  out->v = std::move(values);
  return Status();
}

// `count` elements of one type, always as an array.
Status ReadElements(Reader& reader, GgufType type, uint64_t count, const std::string& what, GgufValue* out) {
  switch (type) {
    case GgufType::kUint8:
      return ReadWidened<uint8_t, int64_t>(reader, count, what, out);
    case GgufType::kInt8:
      return ReadWidened<int8_t, int64_t>(reader, count, what, out);
    case GgufType::kUint16:
      return ReadWidened<uint16_t, int64_t>(reader, count, what, out);
    case GgufType::kInt16:
      return ReadWidened<int16_t, int64_t>(reader, count, what, out);
    case GgufType::kUint32:
      return ReadWidened<uint32_t, int64_t>(reader, count, what, out);
    case GgufType::kInt32:
      return ReadWidened<int32_t, int64_t>(reader, count, what, out);
    case GgufType::kUint64:
      return ReadWidened<uint64_t, int64_t>(reader, count, what, out);
    case GgufType::kInt64:
      return ReadWidened<int64_t, int64_t>(reader, count, what, out);
    case GgufType::kFloat32:
      return ReadWidened<float, double>(reader, count, what, out);
    case GgufType::kFloat64:
      return ReadWidened<double, double>(reader, count, what, out);
    case GgufType::kBool:
      return ReadBools(reader, count, what, out);
    case GgufType::kString:
      return ReadStrings(reader, count, what, out);
    case GgufType::kArray:
      return Unsupported("{}: {} is an array of arrays", reader.path(), what);
  }
  return Corrupt("{}: at byte {}: {} has value type {}, which does not exist", reader.path(), reader.position(), what,
                 static_cast<unsigned>(type));
}

// The only element of an array of one.
GgufValue Single(GgufValue array) {
  return std::visit(
      [&array](auto& held) -> GgufValue {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::vector<bool>>) {
          return {static_cast<bool>(held.front())};
        } else if constexpr (std::is_same_v<Held, std::vector<int64_t>> || std::is_same_v<Held, std::vector<double>> ||
                             std::is_same_v<Held, std::vector<std::string>>) {
          return {std::move(held.front())};
        } else {
          return std::move(array);
        }
      },
      array.v);
}

Status ReadValue(Reader& reader, const std::string& what, GgufValue* out) {
  uint32_t type = 0;
  WEIR_RETURN_IF_ERROR(reader.Read(what.c_str(), &type));
  if (static_cast<GgufType>(type) != GgufType::kArray) {
    WEIR_RETURN_IF_ERROR(ReadElements(reader, static_cast<GgufType>(type), 1, what, out));
    *out = Single(std::move(*out));
    return Status();
  }
  uint32_t element = 0;
  uint64_t count = 0;
  WEIR_RETURN_IF_ERROR(reader.Read(what.c_str(), &element));
  WEIR_RETURN_IF_ERROR(reader.Read(what.c_str(), &count));
  const int64_t element_bytes = std::max<int64_t>(MinBytesOf(static_cast<GgufType>(element)), 1);
  WEIR_RETURN_IF_ERROR(reader.CheckCount(count, static_cast<uint64_t>(element_bytes), "elements of " + what));
  return ReadElements(reader, static_cast<GgufType>(element), count, what, out);
}

Status ReadHeader(Reader& reader, uint32_t* version, uint64_t* n_tensors, uint64_t* n_keys) {
  uint32_t magic = 0;
  WEIR_RETURN_IF_ERROR(reader.Read("the magic number", &magic));
  if (magic != kGgufMagic) return Corrupt("{}: not a GGUF file (it does not start with \"GGUF\")", reader.path());
  WEIR_RETURN_IF_ERROR(reader.Read("the version", version));
  if (*version != 2 && *version != 3) {
    if ((*version & 0xffff) == 0 && *version != 0) {
      return Unsupported("{}: a big-endian GGUF file; convert it to little-endian", reader.path());
    }
    return Unsupported("{}: GGUF version {}; this program reads versions 2 and 3", reader.path(), *version);
  }
  WEIR_RETURN_IF_ERROR(reader.Read("the number of tensors", n_tensors));
  return reader.Read("the number of keys", n_keys);
}

Status ReadMetadata(Reader& reader, uint64_t n_keys, Metadata* metadata) {
  constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;  // length, one byte of name, type, the smallest value
  WEIR_RETURN_IF_ERROR(reader.CheckCount(n_keys, kMinKeyBytes, "keys"));
  for (uint64_t i = 0; i < n_keys; ++i) {
    const uint64_t start = reader.position();
    std::string key;
    WEIR_RETURN_IF_ERROR(reader.ReadString("a key's name", &key));
    if (key.empty()) return Corrupt("{}: at byte {}: a key without a name", reader.path(), start);
    GgufValue value;
    WEIR_RETURN_IF_ERROR(ReadValue(reader, "key " + Quoted(key), &value));
    const auto [at, is_new] = metadata->try_emplace(std::move(key), std::move(value));
    if (!is_new) {
      return Corrupt("{}: at byte {}: key {} is there twice", reader.path(), start, Quoted(at->first));
    }
  }
  return Status();
}

// Fills shape and bytes; rejects sizes that overflow.
Status ReadShape(Reader& reader, const std::string& what, uint32_t n_dims, GgufTensor* tensor, int64_t* n_elements) {
  // Room for the widest element (4 bytes) and for adding offsets.
  constexpr uint64_t kMaxElements = static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / 8;
  uint64_t product = 1;
  for (uint32_t d = 0; d < n_dims; ++d) {
    uint64_t size = 0;
    WEIR_RETURN_IF_ERROR(reader.Read(what.c_str(), &size));
    if (size == 0 || size > kMaxElements / product) {
      return Corrupt("{}: at byte {}: {} has size {} in dimension {}", reader.path(), reader.position() - sizeof(size),
                     what, size, d);
    }
    product *= size;
    tensor->shape.push_back(static_cast<int64_t>(size));
  }
  // A scalar is stored without dimensions, equivalent to a row of one element.
  if (tensor->shape.empty()) tensor->shape.push_back(1);
  std::reverse(tensor->shape.begin(), tensor->shape.end());
  *n_elements = static_cast<int64_t>(product);
  return Status();
}

// Leaves in file_offset the offset within the data section, whose start is not known yet.
Status ReadTensorInfo(Reader& reader, int64_t alignment, GgufTensor* tensor) {
  const uint64_t start = reader.position();
  WEIR_RETURN_IF_ERROR(reader.ReadString("a tensor's name", &tensor->name));
  if (tensor->name.empty()) return Corrupt("{}: at byte {}: a tensor without a name", reader.path(), start);
  const std::string what = "tensor " + Quoted(tensor->name);
  uint32_t n_dims = 0;
  WEIR_RETURN_IF_ERROR(reader.Read(what.c_str(), &n_dims));
  if (n_dims > kGgufMaxDims) {
    return Corrupt("{}: at byte {}: {} has {} dimensions, at most {} are allowed", reader.path(), start, what, n_dims,
                   kGgufMaxDims);
  }
  int64_t n_elements = 0;
  WEIR_RETURN_IF_ERROR(ReadShape(reader, what, n_dims, tensor, &n_elements));
  uint32_t number = 0;
  WEIR_RETURN_IF_ERROR(reader.Read(what.c_str(), &number));
  const std::optional<GgufTensorType> type = FindGgufTensorType(number);
  if (!type) {
    return Unsupported("{}: at byte {}: {} has element type {}, which this program does not know", reader.path(),
                       reader.position() - 4, what, number);
  }
  if (!type->dtype) {
    return Unsupported("{}: at byte {}: {} has element type {}, which this program cannot use", reader.path(),
                       reader.position() - 4, what, type->name);
  }
  tensor->type = *type->dtype;
  const DTypeInfo& info = InfoOf(tensor->type);
  if (tensor->shape.back() % info.block_elements != 0) {
    return Corrupt("{}: at byte {}: {} has rows of {} elements, not a multiple of {}'s {}", reader.path(), start, what,
                   tensor->shape.back(), info.name, info.block_elements);
  }
  tensor->bytes = RowBytes(tensor->type, n_elements);
  WEIR_RETURN_IF_ERROR(reader.Read(what.c_str(), &tensor->file_offset));
  if (tensor->file_offset % static_cast<uint64_t>(alignment) != 0) {
    return Corrupt("{}: at byte {}: {} has data offset {}, not a multiple of the alignment {}", reader.path(),
                   reader.position() - 8, what, tensor->file_offset, alignment);
  }
  return Status();
}

// Turns offsets within the data section into addresses; checks that tensors are inside the file and do not overlap.
Status PlaceTensors(const Reader& reader, int64_t alignment, std::span<const uint8_t> bytes,
                    std::vector<GgufTensor>* tensors) {
  const uint64_t step = static_cast<uint64_t>(alignment);
  const uint64_t data_start = (reader.position() + step - 1) / step * step;
  for (GgufTensor& tensor : *tensors) {
    const uint64_t available = data_start <= bytes.size() ? bytes.size() - data_start : 0;
    const uint64_t needed = static_cast<uint64_t>(tensor.bytes);
    if (tensor.file_offset > available || needed > available - tensor.file_offset) {
      return Corrupt(
          "{}: tensor {}: {} bytes at data offset {} (data starts at byte {}) pass the file's end at byte {}; is the "
          "download complete?",
          reader.path(), Quoted(tensor.name), needed, tensor.file_offset, data_start, bytes.size());
    }
    tensor.file_offset += data_start;
    tensor.data = bytes.data() + tensor.file_offset;
  }
  std::vector<size_t> order(tensors->size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return (*tensors)[a].file_offset < (*tensors)[b].file_offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = (*tensors)[order[i - 1]];
    const GgufTensor& after = (*tensors)[order[i]];
    if (before.file_offset + static_cast<uint64_t>(before.bytes) > after.file_offset) {
      return Corrupt("{}: at byte {}: tensors {} and {} overlap", reader.path(), after.file_offset, Quoted(before.name),
                     Quoted(after.name));
    }
  }
  return Status();
}

}  // namespace

Result<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->path_ = path;
  WEIR_ASSIGN_OR_RETURN(file->mapping_, MappedFile::Open(path));
  file->bytes_ = file->mapping_.bytes();
  WEIR_RETURN_IF_ERROR(file->ParseAll());
  WEIR_RETURN_IF_ERROR(file->OpenParts());
  return file;
}

Status GgufFile::OpenParts() {
  WEIR_ASSIGN_OR_RETURN(const int64_t n, IntOr(kGgufSplitCountKey, 1));
  WEIR_ASSIGN_OR_RETURN(const int64_t number, IntOr(kGgufSplitNumberKey, 0));
  if (n == 0 || n == 1) return Status();  // 0: parts that were merged
  if (n < 1 || n > kGgufMaxParts || number < 0 || number >= n) {
    return Corrupt("{}: part {} of {}: a model has 1 to {} parts, counted from 0", path_, number, n, kGgufMaxParts);
  }
  const std::string end = GgufPartName(static_cast<int>(number), static_cast<int>(n));
  if (!path_.ends_with(end)) {
    return InvalidArgument("{}: the name of part {} of {} must end in {}, or the other parts are not found", path_,
                           number + 1, n, end);
  }
  const std::string stem = path_.substr(0, path_.size() - end.size());
  if (number != 0) {
    return InvalidArgument("{}: this is part {} of {}; name the first, {}{}", path_, number + 1, n, stem,
                           GgufPartName(0, static_cast<int>(n)));
  }
  for (int i = 1; i < n; ++i) {
    WEIR_RETURN_IF_ERROR(OpenPart(i, static_cast<int>(n), stem + GgufPartName(i, static_cast<int>(n))));
  }
  WEIR_ASSIGN_OR_RETURN(const int64_t n_tensors, IntOr(kGgufSplitTensorsKey, std::ssize(tensors_)));
  if (n_tensors == std::ssize(tensors_)) return Status();
  return Corrupt("{}: {} is {}, but its {} parts have {} tensors", path_, kGgufSplitTensorsKey, n_tensors, n,
                 tensors_.size());
}

Status GgufFile::OpenPart(int i, int n, const std::string& path) {
  auto mapping = MappedFile::Open(path);
  if (!mapping.ok()) {
    return Status(mapping.status().code(),
                  fmt::format("{}: part {} of {}: {}", path_, i + 1, n, mapping.status().message()));
  }
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> part, ParsePart(mapping->bytes(), path));
  WEIR_ASSIGN_OR_RETURN(const int64_t number, part->IntOr(kGgufSplitNumberKey, -1));
  WEIR_ASSIGN_OR_RETURN(const int64_t count, part->IntOr(kGgufSplitCountKey, -1));
  if (number != i || count != n) {
    return Corrupt("{}: its keys say part {} of {}, its name part {} of {}", path, number + 1, count, i + 1, n);
  }
  for (GgufTensor& tensor : part->tensors_) {
    if (!tensor_index_.try_emplace(tensor.name, tensors_.size()).second) {
      return Corrupt("{}: tensor {} is in an earlier part, too", path, Quoted(tensor.name));
    }
    tensors_.push_back(std::move(tensor));
  }
  parts_.push_back(*std::move(mapping));
  return Status();
}

int64_t GgufFile::file_bytes() const {
  int64_t n = static_cast<int64_t>(bytes_.size());
  for (const MappedFile& part : parts_) n += static_cast<int64_t>(part.bytes().size());
  return n;
}

std::vector<int64_t> GgufFile::changed_ns() const {
  std::vector<int64_t> out = {mapping_.changed_ns()};
  for (const MappedFile& part : parts_) out.push_back(part.changed_ns());
  return out;
}

void GgufFile::ReleasePages() const {
  mapping_.ReleasePages();
  for (const MappedFile& part : parts_) part.ReleasePages();
}

Result<std::unique_ptr<GgufFile>> GgufFile::ParsePart(std::span<const uint8_t> bytes, std::string name) {
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->path_ = std::move(name);
  file->bytes_ = bytes;
  WEIR_RETURN_IF_ERROR(file->ParseAll());
  return file;
}

Result<std::unique_ptr<GgufFile>> GgufFile::Parse(std::span<const uint8_t> bytes, std::string name) {
  WEIR_ASSIGN_OR_RETURN(auto file, ParsePart(bytes, std::move(name)));
  WEIR_ASSIGN_OR_RETURN(const int64_t n, file->IntOr(kGgufSplitCountKey, 1));
  if (n > 1) return Unsupported("{}: one of {} parts of a model, which is read from files only", file->path_, n);
  return file;
}

Status GgufFile::ParseAll() {
  // Unpacked strings take up to four times their bytes in the file: a huge malicious file can still need more memory
  // than there is.
  try {
    return ParseChecked();
  } catch (const std::bad_alloc&) {
    return OverBudget("{}: no memory left for its metadata", path_);
  }
}

Status GgufFile::ParseChecked() {
  Reader reader(bytes_, path_);
  uint64_t n_tensors = 0;
  uint64_t n_keys = 0;
  WEIR_RETURN_IF_ERROR(ReadHeader(reader, &version_, &n_tensors, &n_keys));
  WEIR_RETURN_IF_ERROR(ReadMetadata(reader, n_keys, &metadata_));
  WEIR_ASSIGN_OR_RETURN(const int64_t alignment, IntOr(kGgufAlignmentKey, kGgufDefaultAlignment));
  if (!IsGgufAlignment(alignment)) {
    return Corrupt("{}: {} is {}, not a power of two from 8 to {}", path_, kGgufAlignmentKey, alignment,
                   kGgufMaxAlignment);
  }
  constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;  // length, one byte of name, dimensions, type, offset
  WEIR_RETURN_IF_ERROR(reader.CheckCount(n_tensors, kMinTensorBytes, "tensors"));
  for (uint64_t i = 0; i < n_tensors; ++i) {
    const uint64_t start = reader.position();
    GgufTensor tensor;
    WEIR_RETURN_IF_ERROR(ReadTensorInfo(reader, alignment, &tensor));
    if (!tensor_index_.try_emplace(tensor.name, tensors_.size()).second) {
      return Corrupt("{}: at byte {}: tensor {} is there twice", path_, start, Quoted(tensor.name));
    }
    tensors_.push_back(std::move(tensor));
  }
  return PlaceTensors(reader, alignment, bytes_, &tensors_);
}

const GgufTensor* GgufFile::Tensor(std::string_view name) const {
  const auto at = tensor_index_.find(name);
  return at == tensor_index_.end() ? nullptr : &tensors_[at->second];
}

}  // namespace weir
