// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/from_json.h"

namespace weir::jinja {

Value FromJson(const Json& json, bool given) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<int64_t>();
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)) return json.get<int64_t>();
      return json.get<double>();
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return Text(json.get_ref<const std::string&>(), given);
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const Json& item : json) items.push_back(FromJson(item, given));
      return MakeSeq(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<std::pair<Value, Value>> items;
      for (const auto& [key, item] : json.items()) items.emplace_back(Text(key, given), FromJson(item, given));
      return MakeDict(std::move(items));
    }
    default:
      return None{};
  }
}

}  // namespace weir::jinja
