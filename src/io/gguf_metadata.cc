// SPDX-License-Identifier: Apache-2.0
// Typed look-ups of GgufFile.
#include <iterator>
#include <optional>
#include <utility>

#include "io/gguf.h"

namespace weir {
namespace {

// The name of a value's type in messages.
const char* KindOf(const GgufValue& value) {
  static constexpr const char* kNames[] = {"an integer",
                                           "a number",
                                           "a truth value",
                                           "a string",
                                           "an array of integers",
                                           "an array of numbers",
                                           "an array of truth values",
                                           "an array of strings"};
  static_assert(std::size(kNames) == std::variant_size_v<decltype(value.v)>);
  return kNames[value.v.index()];
}

template <typename T>
const T* Find(const GgufFile& file, std::string_view key) {
  const auto at = file.metadata().find(key);
  return at == file.metadata().end() ? nullptr : std::get_if<T>(&at->second.v);
}

// The value of a key through `convert`, which returns nothing for a value of another type.
template <typename T, typename Convert>
Result<T> Lookup(const GgufFile& file, std::string_view key, const char* expected, Convert convert) {
  const auto at = file.metadata().find(key);
  const std::string name(key);
  if (at == file.metadata().end()) return NotFound("{}: key '{}' is missing", file.path(), name);
  std::optional<T> value = convert(at->second);
  if (!value) {
    return Corrupt("{}: key '{}' is {}, expected {}", file.path(), name, KindOf(at->second), expected);
  }
  return *std::move(value);
}

}  // namespace

Result<int64_t> GgufFile::Int(std::string_view key) const {
  return Lookup<int64_t>(*this, key, "an integer", [](const GgufValue& value) -> std::optional<int64_t> {
    if (const auto* integer = std::get_if<int64_t>(&value.v)) return *integer;
    if (const auto* truth = std::get_if<bool>(&value.v)) return *truth ? 1 : 0;
    return std::nullopt;
  });
}

Result<double> GgufFile::Float(std::string_view key) const {
  return Lookup<double>(*this, key, "a number", [](const GgufValue& value) -> std::optional<double> {
    if (const auto* number = std::get_if<double>(&value.v)) return *number;
    if (const auto* integer = std::get_if<int64_t>(&value.v)) return static_cast<double>(*integer);
    return std::nullopt;
  });
}

Result<bool> GgufFile::Bool(std::string_view key) const {
  return Lookup<bool>(*this, key, "a truth value", [](const GgufValue& value) -> std::optional<bool> {
    if (const auto* truth = std::get_if<bool>(&value.v)) return *truth;
    return std::nullopt;
  });
}

Result<std::string> GgufFile::String(std::string_view key) const {
  return Lookup<std::string>(*this, key, "a string", [](const GgufValue& value) -> std::optional<std::string> {
    if (const auto* text = std::get_if<std::string>(&value.v)) return *text;
    return std::nullopt;
  });
}

Result<int64_t> GgufFile::IntOr(std::string_view key, int64_t fallback) const {
  if (!Has(key)) return fallback;
  return Int(key);
}

Result<double> GgufFile::FloatOr(std::string_view key, double fallback) const {
  if (!Has(key)) return fallback;
  return Float(key);
}

Result<bool> GgufFile::BoolOr(std::string_view key, bool fallback) const {
  if (!Has(key)) return fallback;
  return Bool(key);
}

Result<std::string> GgufFile::StringOr(std::string_view key, std::string fallback) const {
  if (!Has(key)) return fallback;
  return String(key);
}

const std::vector<int64_t>* GgufFile::IntArray(std::string_view key) const {
  return Find<std::vector<int64_t>>(*this, key);
}

const std::vector<double>* GgufFile::FloatArray(std::string_view key) const {
  return Find<std::vector<double>>(*this, key);
}

const std::vector<std::string>* GgufFile::StringArray(std::string_view key) const {
  return Find<std::vector<std::string>>(*this, key);
}

}  // namespace weir
