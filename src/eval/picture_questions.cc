// SPDX-License-Identifier: Apache-2.0
#include "eval/picture_questions.h"

#include <algorithm>

#include "eval/text_tasks.h"
#include "io/json.h"

namespace weir {
namespace {

// An untrusted file may only name pictures in its folder: no devices, no URLs, no path out of the folder.
bool LiesInside(const std::string& name) {
  if (name.empty() || name.front() == '/' || name.find("://") != std::string::npos ||
      name.find('\0') != std::string::npos) {
    return false;
  }
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    if (name.compare(at, end - at, "..") == 0) return false;
    at = end + 1;
  }
  return true;
}

// Reads a line's keys; remembers whether one had a value of the wrong type.
class Line {
 public:
  explicit Line(const Json& row) : row_(row) {}
  bool has(const char* key) const { return row_.contains(key); }
  bool good() const { return good_; }
  void Text(const char* key, std::string* out) {
    if (!has(key)) return;
    if (row_[key].is_string()) {
      *out = row_[key].get<std::string>();
    } else {
      good_ = false;
    }
  }
  void Number(const char* key, int64_t* out) {
    if (!has(key)) return;
    const Json& value = row_[key];
    constexpr int64_t kMost = int64_t{1} << 40;
    if (value.is_number_integer() && value >= 0 && value <= kMost) {
      *out = value.get<int64_t>();
    } else {
      good_ = false;
    }
  }
  void Flag(const char* key, bool* out) {
    if (!has(key)) return;
    if (row_[key].is_boolean()) {
      *out = row_[key].get<bool>();
    } else {
      good_ = false;
    }
  }
  // A text or a list of texts.
  void Texts(const char* key, std::vector<std::string>* out) {
    if (!has(key)) return;
    const Json& value = row_[key];
    if (value.is_string()) return out->push_back(value.get<std::string>());
    if (!value.is_array()) good_ = false;
    for (const Json& text : value) {
      if (!text.is_string()) {
        good_ = false;
        return;
      }
      out->push_back(text.get<std::string>());
    }
  }

 private:
  const Json& row_;
  bool good_ = true;
};

}  // namespace

Result<std::vector<PictureQuestion>> ParsePictureQuestions(std::string_view jsonl, const std::string& folder) {
  std::vector<PictureQuestion> out;
  long long n_line = 0;
  for (size_t at = 0; at < jsonl.size();) {
    const size_t end = std::min(jsonl.find('\n', at), jsonl.size());
    const std::string_view text = jsonl.substr(at, end - at);
    at = end + 1;
    ++n_line;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Json row = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object()) return Corrupt("line {} is no JSON object", n_line);
    PictureQuestion q;
    Line line(row);
    line.Number("stream", &q.stream);
    const PictureQuestion* before = !out.empty() && out.back().stream == q.stream ? &out.back() : nullptr;
    std::vector<std::string> names;
    for (const char* key : {"image", "images", "frames"}) line.Texts(key, &names);
    for (const char* key : {"answer", "answers"}) line.Texts(key, &q.answers);
    q.clip = before == nullptr ? 0 : before->clip + (names.empty() ? 0 : 1);
    line.Number("clip", &q.clip);
    line.Number("distance", &q.distance);
    line.Text("question", &q.question);
    line.Text("lead", &q.lead);
    q.kind = q.distance == 0 ? "present" : "memory";
    line.Text("kind", &q.kind);
    line.Flag("aside", &q.aside);
    line.Text("metric", &q.metric);
    line.Number("poll", &q.poll);
    if (!line.good() || q.question.empty() || q.answers.empty()) {
      return Corrupt("line {} is no question: expected `question`, `answer` or `answers`, and `image` or `frames`",
                     n_line);
    }
    if (!q.metric.empty()) {
      if (const auto score = TextScore(q.metric, "", q.answers); !score.ok()) {
        return Corrupt("line {}: {}", n_line, score.status().message());
      }
    }
    for (const std::string& name : names) {
      if (!LiesInside(name)) return Corrupt("line {}: the picture '{}' is not inside the folder", n_line, name);
      q.pictures.push_back(folder + "/" + name);
    }
    if (names.empty() && before == nullptr) {
      return Corrupt("line {} asks about a picture, and none was shown in its stream", n_line);
    }
    out.push_back(std::move(q));
  }
  if (out.empty()) return Corrupt("the file holds no questions");
  return out;
}

std::vector<std::span<const PictureQuestion>> SplitStreams(std::span<const PictureQuestion> questions) {
  std::vector<std::span<const PictureQuestion>> out;
  for (size_t begin = 0; begin < questions.size();) {
    size_t end = begin;
    while (end < questions.size() && questions[end].stream == questions[begin].stream) ++end;
    out.push_back(questions.subspan(begin, end - begin));
    begin = end;
  }
  return out;
}

}  // namespace weir
