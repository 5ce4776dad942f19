// SPDX-License-Identifier: Apache-2.0
#include "io/json.h"

#include <fmt/core.h>
#include <array>
#include <cmath>

namespace weir {
namespace {

// Counts depth and values from the text alone, so that nothing is built for rejected text. Invalid JSON may be counted
// wrongly; the parser then rejects it.
Status CheckSize(std::string_view text) {
  int depth = 0;
  int64_t n_values = 1, n_keys = 0;
  std::array<int64_t, kMaxJsonDepth + 1> n_keys_at{};  // of the open object at each depth
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++n_values;
      if (++depth > kMaxJsonDepth) return InvalidArgument("the JSON is nested deeper than {}", kMaxJsonDepth);
      n_keys_at[static_cast<size_t>(depth)] = 0;
    } else if (c == ']' || c == '}') {
      if (--depth < 0) return InvalidArgument("the body is not valid JSON");
    } else if (c == ',') {
      if (++n_values > kMaxJsonValues) {
        return InvalidArgument("the JSON holds more than {} values", kMaxJsonValues);
      }
    } else if (c == ':') {
      if (++n_keys > kMaxJsonKeys) {
        return InvalidArgument("the JSON holds more than {} keys", kMaxJsonKeys);
      }
      if (++n_keys_at[static_cast<size_t>(depth)] > kMaxJsonKeysOfOne) {
        return InvalidArgument("an object of the JSON holds more than {} keys", kMaxJsonKeysOfOne);
      }
    }
  }
  return Status();
}

}  // namespace

Result<Json> ParseJsonObject(std::string_view text) {
  WEIR_RETURN_IF_ERROR(CheckSize(text));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument("the body is not valid JSON");
  if (!json.is_object()) return InvalidArgument("the body must be a JSON object");
  return json;
}

std::string JsonText(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) {
    const std::string name = where_.empty() ? "the body" : "'" + where_.substr(0, where_.size() - 1) + "'";
    status_ = InvalidArgument("{} must be an object", name);
  }
}

const Json* Fields::Get(const char* key) {
  known_.insert(key);
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void Fields::Get(const char* key, std::string* out) {
  const Json* value = Get(key);
  if (value == nullptr) return;
  if (!value->is_string()) return Fail(key, "must be a string");
  *out = value->get<std::string>();
}

void Fields::Get(const char* key, bool* out) {
  const Json* value = Get(key);
  if (value == nullptr) return;
  if (!value->is_boolean()) return Fail(key, "must be true or false");
  *out = value->get<bool>();
}

void Fields::Get(const char* key, int64_t* out, int64_t min, int64_t max) {
  const Json* value = Get(key);
  if (value == nullptr) return;
  // An unsigned number beyond INT64_MAX would turn negative.
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!fits || value->get<int64_t>() < min || value->get<int64_t>() > max) {
    return Fail(key, fmt::format("must be a whole number from {} to {}", min, max));
  }
  *out = value->get<int64_t>();
}

void Fields::Get(const char* key, float* out, double min, double max) {
  const Json* value = Get(key);
  if (value == nullptr) return;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= min && number <= max)) return Fail(key, fmt::format("must be a number from {:g} to {:g}", min, max));
  *out = static_cast<float>(number);
}

void Fields::Only(const char* key, const Json& only) {
  const Json* value = Get(key);
  if (value != nullptr && *value != only) Fail(key, "is not supported with any other value than " + JsonText(only));
}

void Fields::Fail(const char* key, const std::string& what) {
  if (status_.ok()) status_ = InvalidArgument("'{}{}' {}", where_, key, what);
}

void Fields::Take(const Status& status) {
  if (status_.ok()) status_ = status;
}

bool Fields::Has(const char* key) const {
  const auto it = object_.is_object() ? object_.find(key) : object_.end();
  return object_.is_object() && it != object_.end() && !it->is_null();
}

Status Fields::Done() const {
  if (!status_.ok()) return status_;
  for (const auto& [key, value] : object_.items()) {
    if (known_.find(key) == known_.end()) {
      return InvalidArgument("'{}{}' is not a known field", where_, key.substr(0, 64));
    }
  }
  return Status();
}

Result<std::vector<int32_t>> TokenIds(const Json& array, const std::string& key, int32_t n_vocab) {
  if (!array.is_array()) return InvalidArgument("'{}' must be a list of token ids", key);
  std::vector<int32_t> out;
  out.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const Json& value = array[i];
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= static_cast<uint64_t>(n_vocab)) {
      return InvalidArgument("'{}[{}]' must be a token id from 0 to {}", key, i, n_vocab - 1);
    }
    out.push_back(static_cast<int32_t>(value.get<uint64_t>()));
  }
  return out;
}

}  // namespace weir
