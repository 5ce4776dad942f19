// weir policies, weir pruners: the catalogues, with options and defaults.
#include <cstdio>

#include "common.h"
#include "policy/policy.h"
#include "prune/pruner.h"

namespace weir::app {
namespace {

void PrintHead(const char* name, const char* summary, const char* paper) {
  std::printf("%s\n    %s\n", name, summary);
  if (paper[0] != '\0') std::printf("    %s\n", paper);
}

// As they stand after the name.
void PrintOptions(const OptionOwner& owner) {
  const Options defaults = Options::Defaults(owner);
  for (const OptionInfo& option : owner.options) {
    std::printf("    %s=%s    %s%s%s\n", option.key, defaults.TextOf(option).c_str(), option.help,
                option.choices != nullptr ? ": " : "", option.choices != nullptr ? option.choices : "");
  }
}

}  // namespace

void AddPolicies(CLI::App& app, int* code) {
  CLI::App* sub = app.add_subcommand("policies", "list the eviction policies with their options and defaults");
  sub->callback([code] {
    for (const PolicyInfo* info : AllPolicyInfos()) {
      PrintHead(info->name, info->summary, info->paper);
      if (auto policy = info->make(ParsePolicySpec(info->name)->options); policy.ok()) {
        const PolicyNeeds needs = (*policy)->Needs();
        std::printf("    positions %s, smallest pot %d%s\n", PositionsName(needs.positions), needs.min_slots,
                    needs.probe.empty() ? "" : " and the catalyst's tokens");
      }
      PrintOptions({"policy", info->name, info->options});
    }
    *code = 0;
  });
}

void AddPruners(CLI::App& app, int* code) {
  CLI::App* sub = app.add_subcommand("pruners", "list who may thin out pictures (--prune), with options and defaults");
  sub->callback([code] {
    for (const PrunerInfo* info : AllPrunerInfos()) {
      PrintHead(info->name, info->summary, info->paper);
      PrintOptions({"pruner", info->name, {&kKeepOption, 1}});
      PrintOptions({"pruner", info->name, info->options});
    }
    *code = 0;
  });
}

}  // namespace weir::app
