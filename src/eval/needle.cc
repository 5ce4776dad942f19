// SPDX-License-Identifier: Apache-2.0
#include "eval/needle.h"

#include <algorithm>

#include "eval/haystack.h"
#include "eval/text_match.h"
#include "io/json.h"

namespace weir {
namespace {

bool Text(const Json& object, const char* key, std::string* out) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_string()) return false;
  *out = at->get<std::string>();
  return true;
}

bool Texts(const Json& object, const char* key, std::vector<std::string>* out) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_array() || at->empty()) return false;
  for (const Json& one : *at) {
    if (!one.is_string()) return false;
    out->push_back(one.get<std::string>());
  }
  return true;
}

// Bytes of haystack that hold about n_tokens: the share is measured on a piece of it.
int64_t BytesFor(const Examinee& examinee, std::string_view haystack, uint64_t start, int64_t n_tokens) {
  Haystack source = haystack.empty() ? Haystack::Prose(start) : Haystack::Of(haystack, start);
  const std::string piece = source.NextBytes(8192);
  const int64_t n = std::max<int64_t>(static_cast<int64_t>(examinee.Encode(piece).size()), 1);
  return static_cast<int64_t>(static_cast<double>(piece.size()) / static_cast<double>(n) *
                              static_cast<double>(std::max<int64_t>(n_tokens, 1)));
}

}  // namespace

std::vector<Needle> DefaultNeedles() {
  const auto make = [](const char* subject, const char* fact) {
    Needle needle;
    needle.needles = {std::string(subject) + " " + fact + "."};
    needle.question = "According to the text, how does this sentence end? " + std::string(subject) + " ...";
    needle.answer_prefix = subject;
    needle.answer = std::string(" ") + fact;
    needle.must_contain = {std::string(fact).substr(std::string(fact).find_last_of(' ') + 1)};
    return needle;
  };
  return {make("The favourite dish of the night watchman in Lisbon is", "grilled octopus"),
          make("The spare key of the lighthouse hangs behind the", "barometer"),
          make("The password of the chess club in Tromso is", "marzipan"),
          make("The only instrument that survived the flood was the", "bassoon"),
          make("The secret ingredient of grandmother's bread is", "cardamom"),
          make("The parrot of the harbour master answers to the name", "Copernicus")};
}

Result<std::vector<Needle>> ParseNeedles(std::string_view json) {
  const Json root = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return Corrupt("the needles are no JSON object");
  std::vector<Needle> out;
  for (const char* kind : {"single", "multi"}) {
    const auto list = root.find(kind);
    if (list == root.end()) continue;
    if (!list->is_array()) return Corrupt("`{}` of the needles is no list", kind);
    for (const Json& row : *list) {
      Needle needle;
      std::string one;
      if (!row.is_object() || !Text(row, "question", &needle.question) ||
          !Texts(row, "must_contain", &needle.must_contain) ||
          !(Text(row, "needle", &one) || Texts(row, "needles", &needle.needles))) {
        return Corrupt("needle {} of `{}` lacks `needle` or `needles`, `question` or `must_contain`",
                       static_cast<size_t>(&row - &list->front()), kind);
      }
      if (!one.empty()) needle.needles.push_back(std::move(one));
      const auto has_empty = [](const std::vector<std::string>& texts) {
        return std::find(texts.begin(), texts.end(), std::string()) != texts.end();
      };
      if (needle.needles.empty() || has_empty(needle.needles) || has_empty(needle.must_contain)) {
        return Corrupt("needle {} of `{}` hides an empty text or asks for one",
                       static_cast<size_t>(&row - &list->front()), kind);
      }
      std::vector<std::string> answers;
      if (Texts(row, "answers", &answers)) needle.answer = " " + answers[0];
      out.push_back(std::move(needle));
    }
  }
  if (out.empty()) return Corrupt("the file holds no needles");
  return out;
}

std::string HideNeedles(std::string_view haystack, const std::vector<std::string>& needles, double depth) {
  std::string out;
  size_t from = 0;
  const double step = (1 - depth) / static_cast<double>(std::max<size_t>(needles.size(), 1));
  for (size_t i = 0; i < needles.size(); ++i) {
    const double share = std::clamp(depth + step * static_cast<double>(i), 0.0, 1.0);
    size_t at = static_cast<size_t>(share * static_cast<double>(haystack.size()));
    if (at < haystack.size()) {
      while (at > from && (static_cast<unsigned char>(haystack[at]) & 0xc0) == 0x80) --at;
      const size_t period = at == 0 ? std::string_view::npos : haystack.rfind('.', at - 1);
      if (period != std::string_view::npos && period + 1 > from) at = period + 1;
    }
    at = std::max(at, from);
    out += haystack.substr(from, at - from);
    const std::string& needle = needles[i];
    const auto space = [](char c) { return c == ' ' || c == '\n'; };
    if (!out.empty() && !space(out.back()) && !needle.empty() && !space(needle.front())) out += ' ';
    out += needle;
    if (at < haystack.size() && !space(haystack[at]) && !space(out.back())) out += ' ';
    from = at;
  }
  out += haystack.substr(from);
  return out;
}

Status RunNeedle(Examinee& examinee, const NeedleOptions& options, const SuiteHooks& hooks) {
  if (options.needles.empty() || options.lengths.empty() || options.depths.empty() || options.n < 1) {
    return InvalidArgument("needles, lengths, depths and trials are needed");
  }
  for (const double depth : options.depths) {
    if (!(depth >= 0 && depth <= 1)) return InvalidArgument("a depth of {:g}: expected 0 to 1", depth);
  }
  int64_t asked = 0;
  for (const int64_t length : options.lengths) {
    if (length < 128) return InvalidArgument("a length of {} tokens: expected at least 128", length);
    for (const double depth : options.depths) {
      Cell cell;
      cell.task = "grid";
      cell.numbers = {{"length", static_cast<double>(length)}, {"depth", depth}};
      const auto trial = [&](int32_t t) -> Status {
        const Needle& needle = options.needles[static_cast<size_t>(t) % options.needles.size()];
        // The same haystack at every depth: depths are compared, not texts.
        Rng rng = TrialRng(options.seed, static_cast<uint64_t>(t));
        const uint64_t start = rng.Next();
        WEIR_RETURN_IF_ERROR(examinee.Begin());
        Question question;
        question.chat = "\n\n" + needle.question + " Answer in one short sentence.";
        question.completion = "\n\n" + (needle.answer_prefix.empty() ? "Question: " + needle.question + "\nAnswer:"
                                                                     : needle.answer_prefix);
        question.gold = needle.answer;
        question.n_answer = options.n_answer;
        WEIR_RETURN_IF_ERROR(examinee.Expect(question));
        int64_t n_needle = 0;
        for (const std::string& text : needle.needles) n_needle += static_cast<int64_t>(examinee.Encode(text).size());
        Haystack source = options.haystack.empty() ? Haystack::Prose(start) : Haystack::Of(options.haystack, start);
        std::string text;
        const int64_t n_bytes = BytesFor(examinee, options.haystack, start, length - n_needle - examinee.n_tokens());
        while (static_cast<int64_t>(text.size()) < n_bytes) text += source.Next();
        WEIR_RETURN_IF_ERROR(examinee.Read(HideNeedles(text, needle.needles, depth)));
        WEIR_ASSIGN_OR_RETURN(const Reply reply, examinee.MarkAndAsk(question));
        cell.score.Add(ContainsAll(reply.text, needle.must_contain) ? 1 : 0);
        if (reply.has_gold_nll) cell.gold_nll.Add(reply.gold_nll);
        if (hooks.progress) {
          hooks.progress(++asked, static_cast<int64_t>(options.lengths.size() * options.depths.size()) * options.n);
        }
        return Status();
      };
      Status status;
      for (int32_t t = 0; t < options.n && status.ok(); ++t) status = trial(t);
      ReportAll({cell}, hooks);
      WEIR_RETURN_IF_ERROR(status);
    }
  }
  return Status();
}

}  // namespace weir
