// SPDX-License-Identifier: Apache-2.0
// Untrusted JSON: checked before it is built, and read field by field with messages that name the field.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weir {

using Json = nlohmann::ordered_json;

// Limits for a text, whatever its size in bytes: a parsed value takes more memory than its text.
inline constexpr int kMaxJsonDepth = 32;
inline constexpr int64_t kMaxJsonValues = 1 << 20;
inline constexpr int64_t kMaxJsonKeys = 1 << 16;
inline constexpr int64_t kMaxJsonKeysOfOne = 1 << 11;  // of one object, where look-up is linear

// Parses an object. kInvalidArgument for text that is not JSON, not an object, not UTF-8, too deep or has too many
// values.
Result<Json> ParseJsonObject(std::string_view text);

// One line; invalid UTF-8 becomes U+FFFD.
std::string JsonText(const Json& json);

// Reads the fields of one object. Each Get() marks its field as known and leaves *out unchanged when the field is
// absent or null. The first error is kept. Done() returns it, or an error that names an unknown field.
//
// Messages begin with the field's path in single quotes: 'messages[2].content'.
class Fields {
 public:
  // REQUIRES: `object` outlives this. `where` is the prefix of field names: "stream_options.".
  explicit Fields(const Json& object, std::string where = {});

  void Get(const char* key, std::string* out);
  void Get(const char* key, bool* out);
  void Get(const char* key, int64_t* out, int64_t min, int64_t max);
  void Get(const char* key, float* out, double min, double max);
  // The value itself; nullptr when absent or null.
  const Json* Get(const char* key);
  // Accepted with any value, and ignored.
  void Ignore(const char* key) { known_.insert(key); }
  // For fields that support only one value: absent, null or equal to `only`.
  void Only(const char* key, const Json& only);
  // "'where.key' <what>".
  void Fail(const char* key, const std::string& what);
  // Records another error.
  void Take(const Status& status);
  // Present and not null.
  bool Has(const char* key) const;

  Status Done() const;

 private:
  const Json& object_;
  const std::string where_;
  std::set<std::string, std::less<>> known_;
  Status status_;
};

// [number, ...] -> ids in [0, n_vocab). kInvalidArgument names `key` and the index.
Result<std::vector<int32_t>> TokenIds(const Json& array, const std::string& key, int32_t n_vocab);

}  // namespace weir
