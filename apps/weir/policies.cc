// weir policies: the catalogue, with options and defaults.
#include <cstdio>

#include "common.h"
#include "policy/policy.h"

namespace weir::app {
namespace {

// As it would be written inside double quotes.
std::string Quoted(const char* text) {
  std::string out;
  for (; *text != '\0'; ++text) {
    if (*text == '\n') {
      out += "\\n";
    } else {
      if (*text == '"' || *text == '\\') out += '\\';
      out += *text;
    }
  }
  return out;
}

}  // namespace

void AddPolicies(CLI::App& app, int* code) {
  CLI::App* sub = app.add_subcommand("policies", "list the eviction policies with their options and defaults");
  sub->callback([code] {
    for (const PolicyInfo* info : AllPolicyInfos()) {
      std::printf("%s\n    %s\n", info->name, info->summary);
      if (info->paper[0] != '\0') std::printf("    %s\n", info->paper);
      if (auto policy = info->make(ParsePolicySpec(info->name)->options); policy.ok()) {
        const PolicyNeeds needs = (*policy)->Needs();
        std::printf("    positions %s, smallest pot %d\n", PositionsName(needs.positions), needs.min_slots);
      }
      for (const PolicyOptionInfo& option : info->options) {
        if (option.text == nullptr) {
          std::printf("    %s=%g    %s\n", option.key, option.fallback, option.help);
        } else {
          std::printf("    %s=\"%s\"    %s%s%s\n", option.key, Quoted(option.text).c_str(), option.help,
                      option.choices != nullptr ? ": " : "", option.choices != nullptr ? option.choices : "");
        }
      }
    }
    *code = 0;
  });
}

}  // namespace weir::app
