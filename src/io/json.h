// SPDX-License-Identifier: Apache-2.0
// JSON of strangers: checked before it is built, and read field by field with messages that name the field.
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

// What a text may hold, whatever its size in bytes: a value in memory is larger than its text.
inline constexpr int kMaxJsonDepth = 32;
inline constexpr int64_t kMaxJsonValues = 1 << 20;
inline constexpr int64_t kMaxJsonKeys = 1 << 16;
inline constexpr int64_t kMaxJsonKeysOfOne = 1 << 11;  // of one object, which looks them up one after another

// An object. kInvalidArgument for text that is no JSON, no object, no UTF-8, too deep or of too many values.
Result<Json> ParseJsonObject(std::string_view text);

// One line; bytes that are no UTF-8 become U+FFFD.
std::string JsonText(const Json& json);

// Reads the fields of one object. Each Get() marks its field as known and leaves *out alone when the field is absent or
// null; the first thing that is wrong stays. Done() gives it, or names a field nobody asked for.
//
// Messages begin with the field's name in single quotes, with the way to it: 'messages[2].content'.
class Fields {
 public:
  // REQUIRES: `object` outlives this. `where` is put before names: "stream_options.".
  explicit Fields(const Json& object, std::string where = {});

  void Get(const char* key, std::string* out);
  void Get(const char* key, bool* out);
  void Get(const char* key, int64_t* out, int64_t min, int64_t max);
  void Get(const char* key, float* out, double min, double max);
  // The value itself; nullptr when absent or null.
  const Json* Get(const char* key);
  // Accepted, whatever it holds, and without effect.
  void Ignore(const char* key) { known_.insert(key); }
  // For what only one value of is supported: absent, null or equal to `only`.
  void Only(const char* key, const Json& only);
  // "'where.key' <what>".
  void Fail(const char* key, const std::string& what);
  // Something else was wrong.
  void Take(const Status& status);
  // There, and not null.
  bool Has(const char* key) const;

  Status Done() const;

 private:
  const Json& object_;
  const std::string where_;
  std::set<std::string, std::less<>> known_;
  Status status_;
};

// [number, ...] -> ids of [0, n_vocab). kInvalidArgument names `key` and the place.
Result<std::vector<int32_t>> TokenIds(const Json& array, const std::string& key, int32_t n_vocab);

}  // namespace weir
