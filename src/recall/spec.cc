// SPDX-License-Identifier: Apache-2.0
#include "recall/spec.h"

#include <vector>

namespace weir {
namespace {

constexpr OptionInfo kOptions[] = {
    {.key = "passages", .fallback = 2, .min = 1, .max = 16, .integral = true, .help = "passages brought back at most"},
    {.key = "gate",
     .fallback = 0.3,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "nothing is brought back that matches less of the question"},
    {.key = "margin",
     .fallback = 0.8,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "nor what matches less than this share of the best match, which the pot may hold"},
    {.key = "near",
     .fallback = 64,
     .min = 0,
     .max = 1 << 20,
     .integral = true,
     .help = "nor what is so many tokens back or fewer and in the pot; small models copy better from close by"},
    {.key = "context",
     .fallback = 1,
     .min = 0,
     .max = 64,
     .integral = true,
     .help = "sentences of a passage before and after the one that matches best"},
    {.key = "answers",
     .fallback = 0,
     .min = 0,
     .max = 1,
     .integral = true,
     .help = "1: the model's own answers may be brought back"},
    {.key = "rerank",
     .fallback = 0,
     .min = 0,
     .max = 16,
     .integral = true,
     .help = "so many of the best passages are tried one by one, and ranked by how likely they make the question"},
    TextOption("restore", "read", "how passages come back; `weir recall` lists the ways"),
};

}  // namespace

std::span<const OptionInfo> CommonRecallOptions() {
  static const std::vector<OptionInfo> all = [] {
    std::vector<OptionInfo> out(std::begin(kOptions), std::end(kOptions));
    for (const RestorerInfo* info : AllRestorerInfos()) {
      out.insert(out.end(), info->options.begin(), info->options.end());
    }
    return out;
  }();
  return all;
}

Result<RecallSpec> ParseRecallSpec(std::string_view text, bool exam) {
  if (text == "off") return RecallSpec();
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  RecallSpec spec;
  std::string known;
  for (const SelectorInfo* info : AllSelectorInfos()) {
    if (name == info->name) spec.info = info;
    if (exam || !info->exam) known += ", " + std::string(info->name);
  }
  if (spec.info == nullptr) return NotFound("no selector of recall is called '{}'; there are: off{}", name, known);
  if (spec.info->exam && !exam) {
    return InvalidArgument("the selector '{}' has to be told where the answer is: only weir eval can do that", name);
  }
  const std::span<const OptionInfo> common = CommonRecallOptions();
  std::vector<OptionInfo> options(common.begin(), common.end());
  options.insert(options.end(), spec.info->options.begin(), spec.info->options.end());
  const OptionOwner owner = {"recall", spec.info->name, options};
  spec.options = Options::Defaults(owner);
  if (colon != std::string_view::npos) {
    WEIR_ASSIGN_OR_RETURN(const std::vector<GivenOption> given, SplitOptions(owner, text.substr(colon + 1)));
    for (const GivenOption& option : given) {
      WEIR_RETURN_IF_ERROR(spec.options.Set(owner, *option.option, option.value));
    }
  }
  const std::string& restore = spec.options.Text("restore");
  known.clear();
  for (const RestorerInfo* info : AllRestorerInfos()) {
    if (restore == info->name) spec.restorer = info;
    known += (known.empty() ? "" : ", ") + std::string(info->name);
  }
  if (spec.restorer == nullptr) return NotFound("nothing restores as '{}'; there are: {}", restore, known);
  spec.text = spec.options.Describe(owner);
  return spec;
}

}  // namespace weir
