// SPDX-License-Identifier: Apache-2.0
#include "text/forms/json_formats.h"

namespace weir::forms {
namespace {

// Each reads a part of what its RFC allows, the part that is in common use: what is read is always valid.
#define WEIR_YEAR "([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
#define WEIR_LEAP "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define WEIR_DATE                                                                                            \
  "(" WEIR_YEAR                                                                                              \
  "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))" \
  "|" WEIR_LEAP "-02-29)"
#define WEIR_TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define WEIR_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define WEIR_IPV4 "(" WEIR_BYTE "\\.){3}" WEIR_BYTE
#define WEIR_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
// 253 characters at most.
#define WEIR_HOST WEIR_LABEL "(\\." WEIR_LABEL "){0,2}(\\.[A-Za-z0-9]([A-Za-z0-9-]{0,59}[A-Za-z0-9])?)?"
#define WEIR_HEX "[0-9A-Fa-f]"
#define WEIR_GROUP WEIR_HEX "{1,4}"
#define WEIR_PATH_CHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%" WEIR_HEX "{2})"

constexpr struct {
  std::string_view name, expression;
} kFormats[] = {
    {"date", WEIR_DATE},
    {"time", WEIR_TIME},
    {"date-time", WEIR_DATE "T" WEIR_TIME},
    {"duration",
     "P([0-9]{1,9}W|[0-9]{1,9}D(T([0-9]{1,9}H)([0-9]{1,9}M([0-9]{1,9}S)?)?)?|"
     "[0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?|"
     "T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))"},
    {"uuid", WEIR_HEX "{8}-" WEIR_HEX "{4}-" WEIR_HEX "{4}-" WEIR_HEX "{4}-" WEIR_HEX "{12}"},
    {"email", "[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,30})?@" WEIR_LABEL "(\\." WEIR_LABEL "){0,2}\\.[A-Za-z]{2,24}"},
    {"hostname", WEIR_HOST},
    {"ipv4", WEIR_IPV4},
    {"ipv6", "((" WEIR_GROUP ":){7}" WEIR_GROUP "|(" WEIR_GROUP ":){1,7}:|(" WEIR_GROUP ":){1,6}:" WEIR_GROUP
             "|(" WEIR_GROUP ":){1,5}(:" WEIR_GROUP "){1,2}|(" WEIR_GROUP ":){1,4}(:" WEIR_GROUP "){1,3}|(" WEIR_GROUP
             ":){1,3}(:" WEIR_GROUP "){1,4}|(" WEIR_GROUP ":){1,2}(:" WEIR_GROUP "){1,5}|" WEIR_GROUP ":(:" WEIR_GROUP
             "){1,6}|:(:" WEIR_GROUP "){1,7}|::)"},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]{0,15}://" WEIR_HOST "(:[0-9]{1,5})?(/" WEIR_PATH_CHAR "*)*(\\?(" WEIR_PATH_CHAR
            "|[/?])*)?(#(" WEIR_PATH_CHAR "|[/?])*)?"},
};

constexpr std::string_view kOthers[] = {
    "idn-email",    "idn-hostname", "uri-reference",         "iri",   "iri-reference",
    "uri-template", "json-pointer", "relative-json-pointer", "regex",
};

}  // namespace

Format FindFormat(std::string_view name) {
  for (const auto& format : kFormats) {
    if (format.name == name) return {FormatKind::kHeld, format.expression};
  }
  for (const std::string_view other : kOthers) {
    if (other == name) return {FormatKind::kNotHeld, {}};
  }
  return {FormatKind::kUnknown, {}};
}

}  // namespace weir::forms
