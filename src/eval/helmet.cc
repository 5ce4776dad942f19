// SPDX-License-Identifier: Apache-2.0
#include "eval/helmet.h"

#include <utility>

#include "eval/json_rows.h"

namespace weir {
namespace {

using nlohmann::json;

constexpr int kShots = 2;
constexpr int32_t kValueTokens = 100, kRagTokens = 20;

Result<TextSample> KvSample(const json& row) {
  TextSample out;
  WEIR_ASSIGN_OR_RETURN(out.context, TextOf(row, "context"));
  TextQuestion question;
  WEIR_ASSIGN_OR_RETURN(const std::string key, TextOf(row, "question"));
  question.answers = TextsOf(row, "answer");
  if (question.answers.empty()) return Corrupt("no `answer`");
  question.text = "\n\nExtract the value corresponding to the specified key in the JSON object below.\n\n";
  if (!row.contains("demos") || !row["demos"].is_array() || row["demos"].size() < kShots) {
    return Corrupt("no list `demos` of {} or more", kShots);
  }
  for (size_t i = 0; i < kShots; ++i) {
    const json& demo = row["demos"][i];
    if (!demo.is_array() || demo.size() != 2 || !demo[0].is_string() || !demo[1].is_string()) {
      return Corrupt("a demo that is no pair of texts");
    }
    question.text +=
        "Key: " + demo[0].get<std::string>() + "\nCorresponding value: " + demo[1].get<std::string>() + "\n\n";
  }
  question.text += "Key: " + key;
  question.lead = "\nCorresponding value:";
  out.questions = {std::move(question)};
  return out;
}

Result<TextSample> RagSample(const json& row) {
  TextSample out;
  TextQuestion question;
  WEIR_ASSIGN_OR_RETURN(const std::string asked, TextOf(row, "question"));
  question.answers = TextsOf(row, "answers");
  if (question.answers.empty()) return Corrupt("no `answers`");
  if (!row.contains("ctxs") || !row["ctxs"].is_array()) return Corrupt("no list `ctxs`");
  out.context =
      "Use the given documents to write a concise and short answer to the question. Write your answer in the following "
      "format:\nAnswer: [answer]\n\n";
  bool first = true;
  for (const json& passage : row["ctxs"]) {
    WEIR_ASSIGN_OR_RETURN(const std::string title, TextOf(passage, "title"));
    WEIR_ASSIGN_OR_RETURN(const std::string text, TextOf(passage, "text"));
    out.context += (first ? "" : "\n\n") + ("Document (Title: " + title) + "): " + text;
    first = false;
  }
  question.text = "\n\nQuestion: " + asked;
  question.lead = "\nAnswer:";
  out.questions = {std::move(question)};
  return out;
}

}  // namespace

Result<TextTask> ParseHelmetKv(const std::string& name, std::string_view jsonl) {
  WEIR_ASSIGN_OR_RETURN(std::vector<TextSample> samples, SamplesOf(jsonl, KvSample));
  return TaskOf(name, "sub_em", kValueTokens, std::move(samples));
}

Result<TextTask> ParseHelmetRag(const std::string& name, std::string_view jsonl) {
  WEIR_ASSIGN_OR_RETURN(std::vector<TextSample> samples, SamplesOf(jsonl, RagSample));
  return TaskOf(name, "sub_em", kRagTokens, std::move(samples));
}

}  // namespace weir
