// SPDX-License-Identifier: Apache-2.0
// The files of questions that RULER's last two tasks are made of.
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "eval/ruler.h"

namespace weir {
namespace {

using nlohmann::json;

const json* Find(const json& object, const char* key, json::value_t type) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(key);
  return at != object.end() && at->type() == type ? &*at : nullptr;
}
const json* List(const json& object, const char* key) { return Find(object, key, json::value_t::array); }
const json* Text(const json& object, const char* key) { return Find(object, key, json::value_t::string); }

// Texts without doubles, sorted, and the place of each.
struct Shelf {
  std::map<std::string, int32_t> place;
  void Add(std::string text) { place.emplace(std::move(text), 0); }
  std::vector<std::string> Sort() {
    std::vector<std::string> out;
    for (auto& [text, at] : place) {
      at = static_cast<int32_t>(out.size());
      out.push_back(text);
    }
    return out;
  }
};

Status Check(const RulerDocuments& documents) {
  if (documents.questions.empty()) return Corrupt("no question with an answer");
  return Status();
}

}  // namespace

Result<RulerDocuments> ParseSquad(std::string_view text) {
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const json* const articles = List(root, "data");
  if (articles == nullptr) return Corrupt("no list `data`: expected SQuAD's layout");
  Shelf shelf;
  for (const json& article : *articles) {
    const json* const paragraphs = List(article, "paragraphs");
    if (paragraphs == nullptr) return Corrupt("an article without a list `paragraphs`");
    for (const json& paragraph : *paragraphs) {
      const json* const context = Text(paragraph, "context");
      if (context == nullptr || List(paragraph, "qas") == nullptr) {
        return Corrupt("a paragraph without `context` and `qas`");
      }
      shelf.Add(*context);
    }
  }
  RulerDocuments out;
  out.texts = shelf.Sort();
  for (const json& article : *articles) {
    std::vector<int32_t> of_article;
    for (const json& paragraph : article["paragraphs"]) {
      of_article.push_back(shelf.place[paragraph["context"].get<std::string>()]);
    }
    for (const json& paragraph : article["paragraphs"]) {
      const int32_t own = shelf.place[paragraph["context"].get<std::string>()];
      for (const json& asked : paragraph["qas"]) {
        const json *const question = Text(asked, "question"), *const answers = List(asked, "answers");
        if (question == nullptr || answers == nullptr) return Corrupt("a question without `question` and `answers`");
        if (const json* no = Find(asked, "is_impossible", json::value_t::boolean); no != nullptr && *no) continue;
        RulerQuestion one;
        one.text = *question;
        for (const json& answer : *answers) {
          const json* const said = Text(answer, "text");
          if (said == nullptr) return Corrupt("an answer without `text`");
          one.answers.push_back(*said);
        }
        one.documents = {own};
        for (const int32_t other : of_article) {
          if (other != own) one.more.push_back(other);
        }
        if (!one.answers.empty()) out.questions.push_back(std::move(one));
      }
    }
  }
  WEIR_RETURN_IF_ERROR(Check(out));
  return out;
}

Result<RulerDocuments> ParseHotpot(std::string_view text) {
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_array()) return Corrupt("no list: expected HotpotQA's layout");
  Shelf shelf;
  std::vector<std::vector<std::string>> needed;
  for (const json& asked : root) {
    const json* const context = List(asked, "context");
    if (context == nullptr || Text(asked, "question") == nullptr || Text(asked, "answer") == nullptr) {
      return Corrupt("a sample without `question`, `answer` and `context`");
    }
    std::vector<std::string>& mine = needed.emplace_back();
    for (const json& document : *context) {
      if (!document.is_array() || document.size() != 2 || !document[0].is_string() || !document[1].is_array()) {
        return Corrupt("a `context` that is no list of a title and sentences");
      }
      std::string whole = document[0].get<std::string>() + "\n";
      for (const json& sentence : document[1]) {
        if (!sentence.is_string()) return Corrupt("a `context` that is no list of a title and sentences");
        whole += sentence.get<std::string>();
      }
      shelf.Add(whole);
      mine.push_back(std::move(whole));
    }
  }
  RulerDocuments out;
  out.texts = shelf.Sort();
  for (size_t i = 0; i < needed.size(); ++i) {
    RulerQuestion one;
    one.text = root[i]["question"];
    one.answers = {root[i]["answer"].get<std::string>()};
    for (const std::string& document : needed[i]) one.documents.push_back(shelf.place[document]);
    out.questions.push_back(std::move(one));
  }
  WEIR_RETURN_IF_ERROR(Check(out));
  return out;
}

}  // namespace weir
