// SPDX-License-Identifier: Apache-2.0
// Files of one JSON object a line, as most published data sets of text are: what their readers share.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "eval/text_tasks.h"

namespace weir {

// A text under a key: kCorrupt names the key.
Result<std::string> TextOf(const nlohmann::json& row, const char* key);
// A text or a list of texts and numbers; empty where there is none.
std::vector<std::string> TextsOf(const nlohmann::json& row, const char* key);

// Every line that is not blank as a sample. kCorrupt names the line, with what `to_sample` says is missing.
Result<std::vector<TextSample>> SamplesOf(
    std::string_view jsonl, const std::function<Result<TextSample>(const nlohmann::json& row)>& to_sample);

// A task over samples.
TextTask TaskOf(std::string name, std::string metric, int32_t n_answer, std::vector<TextSample> samples);

// "\nA. first\nB. second ..."
std::string Lettered(const std::vector<std::string>& options);
// The letter and the text of the right one of four options. kCorrupt where it is none of them, or there are not four.
Result<std::vector<std::string>> RightOption(const std::vector<std::string>& options, const std::string& right);

// `text` with every mark such as {input} replaced; a mark of what was put in is left alone.
std::string Filled(std::string_view text, const std::vector<std::pair<std::string, std::string>>& marks);

}  // namespace weir
