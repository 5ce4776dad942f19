// SPDX-License-Identifier: Apache-2.0
#include "eval/ruler.h"

#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/rng.h"
#include "eval/haystack.h"
#include "eval/words.h"

namespace weir {
namespace {

enum class Hay { kNoise, kEssay, kNeedle };
enum class Kind { kNeedles, kVariables, kCommonWords, kFrequentWords, kSquad, kHotpot };
enum class Value { kWords, kNumbers, kUuids };

struct TaskInfo {
  const char* name;
  Kind kind;
  int32_t n_answer;  // tokens that are generated
  Hay hay = Hay::kNoise;
  Value keys = Value::kWords, values = Value::kNumbers;
  int n_keys = 1, n_values = 1, n_queries = 1;
};

constexpr TaskInfo kTasks[] = {
    {"niah_single_1", Kind::kNeedles, 128},
    {"niah_single_2", Kind::kNeedles, 128, Hay::kEssay},
    {"niah_single_3", Kind::kNeedles, 128, Hay::kEssay, Value::kWords, Value::kUuids},
    {"niah_multikey_1", Kind::kNeedles, 128, Hay::kEssay, Value::kWords, Value::kNumbers, 4},
    {"niah_multikey_2", Kind::kNeedles, 128, Hay::kNeedle},
    {"niah_multikey_3", Kind::kNeedles, 128, Hay::kNeedle, Value::kUuids, Value::kUuids},
    {"niah_multivalue", Kind::kNeedles, 128, Hay::kEssay, Value::kWords, Value::kNumbers, 1, 4},
    {"niah_multiquery", Kind::kNeedles, 128, Hay::kEssay, Value::kWords, Value::kNumbers, 4, 1, 4},
    {"vt", Kind::kVariables, 30},
    {"cwe", Kind::kCommonWords, 120},
    {"fwe", Kind::kFrequentWords, 50},
    {"qa_1", Kind::kSquad, 32},
    {"qa_2", Kind::kHotpot, 32},
};

constexpr int kHops = 4;                // assignments of a chain after its first
constexpr int kCommon = 10;             // words that are asked for
constexpr int64_t kShortLength = 4096;  // below it the published steps and counts are smaller

template <class T>
void Shuffle(Rng& rng, std::vector<T>* items) {
  for (size_t i = items->size(); i > 1; --i) std::swap((*items)[i - 1], (*items)[rng.Below(i)]);
}

// k different numbers below n, in the order drawn. REQUIRES: k <= n.
std::vector<int64_t> Sample(Rng& rng, int64_t n, int64_t k) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  for (int64_t i = 0; i < k; ++i) std::swap(all[i], all[i + static_cast<int64_t>(rng.Below(n - i))]);
  all.resize(static_cast<size_t>(k));
  return all;
}

std::string Letters(Rng& rng, int n, char first) {
  std::string out;
  for (int i = 0; i < n; ++i) out += static_cast<char>(first + static_cast<char>(rng.Below(26)));
  return out;
}

std::vector<std::string> DistinctLetters(Rng& rng, int64_t n, int length, char first) {
  std::vector<std::string> out;
  std::set<std::string> seen;
  while (std::ssize(out) < n) {
    if (std::string word = Letters(rng, length, first); seen.insert(word).second) out.push_back(std::move(word));
  }
  return out;
}

std::string Draw(Rng& rng, Value kind) {
  const auto pick = [&](std::span<const std::string_view> words) {
    return std::string(words[rng.Below(words.size())]);
  };
  if (kind == Value::kNumbers) return std::to_string(1'000'000 + rng.Below(9'000'000));
  if (kind == Value::kWords) {
    const std::string adjective = pick(Adjectives());
    return adjective + "-" + pick(Nouns());
  }
  // A UUID of version 4.
  const uint64_t high = (rng.Next() & 0xffffffffffff0fff) | 0x4000,
                 low = (rng.Next() & 0x3fffffffffffffff) | 0x8000000000000000;
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, high >> 16 & 0xffff, high & 0xffff, low >> 48,
                     low & 0xffffffffffff);
}

const char* NameOf(Value kind) {
  return kind == Value::kNumbers ? "numbers" : kind == Value::kWords ? "words" : "uuids";
}

std::string Join(std::span<const std::string> parts, std::string_view between) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) out += (i == 0 ? "" : std::string(between)) + parts[i];
  return out;
}

// "1. word 2. word"
std::string Numbered(std::span<const std::string> words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) out += fmt::format("{}{}. {}", i == 0 ? "" : " ", i + 1, words[i]);
  return out;
}

constexpr const char* kNoiseSentence =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

// Essays as words, repeated as often as needed.
class Essays {
 public:
  explicit Essays(std::string_view text) : prose_(Haystack::Prose(1)), endless_(text.empty()) { Add(text); }

  // The first n words as sentences.
  std::vector<std::string> Sentences(int64_t n) {
    while (endless_ && std::ssize(words_) < n) Add(prose_.NextBytes(1 << 16));
    std::vector<std::string> out;
    std::string sentence;
    for (int64_t i = 0; i < n; ++i) {
      const std::string& word = words_[i % std::ssize(words_)];
      sentence += (sentence.empty() ? "" : " ") + word;
      const size_t last = word.find_last_not_of("\"')]");
      if (last != std::string::npos && std::string_view(".?!").find(word[last]) != std::string_view::npos) {
        out.push_back(std::exchange(sentence, ""));
      }
    }
    if (!sentence.empty()) out.push_back(std::move(sentence));
    return out;
  }

 private:
  void Add(std::string_view text) {
    std::string word;
    for (const char c : text) {
      if (c == ' ' || (c >= '\t' && c <= '\r')) {
        if (!word.empty()) words_.push_back(std::exchange(word, ""));
      } else {
        word += c;
      }
    }
    if (!word.empty()) words_.push_back(std::move(word));
  }
  Haystack prose_;
  const bool endless_;
  std::vector<std::string> words_;
};

// Sentences with `needles` between them, at depths in steps of a fortieth of the whole.
std::string HideInEssay(Rng& rng, const std::vector<std::string>& sentences, const std::vector<std::string>& needles) {
  std::vector<int64_t> depths;
  for (const int64_t step : Sample(rng, 40, std::ssize(needles))) {
    depths.push_back(static_cast<int64_t>(std::nearbyint(100.0 * static_cast<double>(step) / 39)));
  }
  std::ranges::sort(depths);
  std::vector<std::string> out;
  size_t at = 0;
  const auto add = [&](size_t end) {
    std::vector<std::string> part(sentences.begin() + static_cast<int64_t>(at),
                                  sentences.begin() + static_cast<int64_t>(end));
    out.push_back(Join(part, " "));
    at = end;
  };
  for (size_t i = 0; i < needles.size(); ++i) {
    add(static_cast<size_t>(static_cast<double>(sentences.size()) * (static_cast<double>(depths[i]) / 100)));
    out.push_back(needles[i]);
  }
  add(sentences.size());
  return Join(out, " ");
}

// Makes samples of one task and length.
class Maker {
 public:
  Maker(const TaskInfo& task, int64_t length, uint64_t seed, std::shared_ptr<const RulerMaterial> material,
        const std::function<int64_t(std::string_view)>& count)
      : task_(task), length_(length), seed_(seed), material_(std::move(material)), count_(count) {
    if (task.hay == Hay::kEssay) essays_.emplace(material_->essays);
    if (task.kind == Kind::kCommonWords) LoadWords();
  }

  // Chooses the size of the haystack: the largest with which a first sample fits.
  Status Fit() {
    if (task_.kind == Kind::kFrequentWords) return FitFrequent();
    const int64_t low = std::max(Step(), Least());
    // The published search begins with three times an estimate.
    int64_t probe = std::max(low, task_.kind == Kind::kCommonWords ? 100 * Step() : Step());
    if (const int64_t most = Most(); most > 0) probe = std::min(probe, most);
    const double each =
        static_cast<double>(count_(Whole(Make(probe, 0)))) / static_cast<double>(std::max<int64_t>(probe, 1));
    int64_t high = std::max<int64_t>(static_cast<int64_t>(3 * static_cast<double>(length_) / each), 2 * low);
    if (const int64_t most = Most(); most > 0) high = std::min(high, most);
    size_ = Largest(low, high);
    // Lengths with less room than a step, which the published program does not know.
    if (size_ == 0) size_ = Largest(Least(), low - 1);
    if (size_ > 0) return Status();
    return InvalidArgument("{} does not fit into {} tokens; give more", task_.name, length_);
  }

  // A sample whose material makes it too long gets a smaller haystack.
  Result<TextSample> Sample(int64_t i) const {
    const int64_t step = task_.kind == Kind::kFrequentWords ? std::max<int64_t>(Room() / 32, 1) : Step();
    for (int64_t size = size_; size >= Least() && size > 0; size -= std::min(step, std::max<int64_t>(size / 8, 1))) {
      TextSample sample = Make(size, i);
      if (Fits(sample)) return sample;
    }
    return InvalidArgument("{}: sample {} does not fit into {} tokens", task_.name, i, length_);
  }

 private:
  // Of the sizes from low to high one with which the first sample fits and a larger one does not; 0: none fits.
  int64_t Largest(int64_t low, int64_t high) const {
    int64_t out = 0;
    while (low <= high) {
      const int64_t middle = (low + high) / 2;
      if (Fits(Make(middle, 0))) {
        out = middle;
        low = middle + 1;
      } else {
        high = middle - 1;
      }
    }
    return out;
  }
  bool IsShort() const { return length_ < kShortLength; }
  int64_t Room() const { return length_ - task_.n_answer; }
  int64_t Step() const {
    switch (task_.kind) {
      case Kind::kNeedles:
        return task_.hay == Hay::kEssay ? 500 : IsShort() ? 5 : 25;
      case Kind::kVariables:
        return IsShort() ? 5 : 10;
      default:
        return 10;
    }
  }
  int64_t Least() const {
    const int64_t needles = std::max(task_.n_keys, task_.n_queries) * task_.n_values;
    switch (task_.kind) {
      case Kind::kNeedles:
        return task_.hay == Hay::kEssay ? 1 : needles;
      case Kind::kVariables:
        return kHops + 1;
      case Kind::kCommonWords:
        return kCommon;
      case Kind::kHotpot:
        return 10;  // the documents of a question
      default:
        return 1;
    }
  }
  // Words of `words_`; 0: no bound.
  int64_t Most() const { return task_.kind == Kind::kCommonWords ? std::ssize(words_) : 0; }
  static std::string Whole(const TextSample& sample) {
    return sample.context + sample.questions[0].text + sample.questions[0].lead;
  }
  bool Fits(const TextSample& sample) const { return count_(Whole(sample)) + task_.n_answer <= length_; }

  TextSample Make(int64_t size, int64_t i) const {
    Rng rng = TrialRng(seed_ * 1'000'003 + static_cast<uint64_t>(length_) * 31 + static_cast<uint64_t>(&task_ - kTasks),
                       static_cast<uint64_t>(i));
    switch (task_.kind) {
      case Kind::kNeedles:
        return Needles(rng, size);
      case Kind::kVariables:
        return Variables(rng, size);
      case Kind::kCommonWords:
        return CommonWords(rng, size);
      case Kind::kFrequentWords:
        return FrequentWords(rng, size);
      default:
        return Documents(rng, size, i);
    }
  }

  TextSample Needles(Rng& rng, int64_t size) const {
    const char* const values_name = NameOf(task_.values);
    const auto say = [&](const std::string& key, const std::string& value) {
      return fmt::format("One of the special magic {} for {} is: {}.", values_name, key, value);
    };
    const int n_keys = std::max(task_.n_keys, task_.n_queries);
    std::vector<std::string> keys, needles;
    std::vector<std::vector<std::string>> values;
    for (int k = 0; k < n_keys; ++k) {
      keys.push_back(Draw(rng, task_.keys));
      values.emplace_back();
      for (int v = 0; v < task_.n_values; ++v) {
        values.back().push_back(Draw(rng, task_.values));
        needles.push_back(say(keys.back(), values.back().back()));
      }
    }
    Shuffle(rng, &needles);
    std::string context;
    if (task_.hay == Hay::kEssay) {
      context = HideInEssay(rng, essays_->Sentences(size), needles);
    } else {
      std::vector<std::string> lines(static_cast<size_t>(size), kNoiseSentence);
      if (task_.hay == Hay::kNeedle) {
        for (std::string& line : lines) {
          const std::string key = Draw(rng, task_.keys);
          line = say(key, Draw(rng, task_.values));
        }
      }
      std::vector<int64_t> places = weir::Sample(rng, size, std::ssize(needles));
      std::ranges::sort(places, std::greater<>());
      for (size_t n = 0; n < needles.size(); ++n) lines.insert(lines.begin() + places[n], needles[n]);
      context = Join(lines, "\n");
    }
    TextQuestion question;
    std::vector<std::string> asked;
    for (const int64_t k : weir::Sample(rng, n_keys, task_.n_queries)) {
      asked.push_back(keys[k]);
      question.answers.insert(question.answers.end(), values[k].begin(), values[k].end());
    }
    std::string query = asked.back();
    if (asked.size() > 1) {
      query = Join(std::span(asked).first(asked.size() - 1), ", ") + ", and " + asked.back();
    }
    const bool one = task_.n_queries * task_.n_values == 1;
    const std::string thing =
        one ? std::string(values_name).substr(0, std::string(values_name).size() - 1) : values_name;
    TextSample out;
    out.context = fmt::format(
        "{} special magic {} {} hidden within the following text. Make sure to memorize it. I will quiz you about the "
        "{} "
        "afterwards.\n",
        one ? "A" : "Some", thing, one ? "is" : "are", thing);
    out.context += context;
    question.text = fmt::format("\nWhat {} the special magic {} for {} mentioned in the provided text?",
                                one ? "is" : "are all", thing, query);
    question.lead =
        fmt::format(" The special magic {} for {} mentioned in the provided text {}", thing, query, one ? "is" : "are");
    out.questions = {std::move(question)};
    return out;
  }

  struct Chain {
    std::string context, question, lead;
    std::vector<std::string> names;
  };
  static Chain MakeChain(Rng& rng, int64_t size, int n_letters) {
    Chain out;
    out.names = DistinctLetters(rng, kHops + 1, n_letters, 'A');
    const std::string value = std::to_string(10'000 + rng.Below(89'999));
    std::vector<std::string> lines(static_cast<size_t>(size), kNoiseSentence);
    std::vector<int64_t> places = weir::Sample(rng, size, kHops + 1);
    std::ranges::sort(places);
    for (int64_t j = 0; j <= kHops; ++j) {
      const std::string said =
          j == 0 ? "VAR " + out.names[0] + " = " + value : "VAR " + out.names[j] + " = VAR " + out.names[j - 1] + " ";
      lines.insert(lines.begin() + places[j] + j, said);
    }
    out.context =
        "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n" + Join(lines, "\n");
    out.question = "\nQuestion: Find all variables that are assigned the value " + value + " in the text above.";
    out.lead = fmt::format(
        " Answer: According to the chain(s) of variable assignment in the text above, {} variables are assigned the "
        "value {}, they are: ",
        kHops + 1, value);
    return out;
  }
  TextSample Variables(Rng& rng, int64_t size) const {
    // An example of at most 500 tokens comes first; the generator finds so many lines for it.
    constexpr int64_t kExampleLines = 13;
    const Chain example = MakeChain(rng, kExampleLines, 3), asked = MakeChain(rng, size, 5);
    TextSample out;
    out.context =
        example.context + example.question + example.lead + " " + Join(example.names, " ") + "\n\n" + asked.context;
    out.questions = {{asked.question, asked.lead, asked.names}};
    return out;
  }

  struct WordList {
    std::string text;
    std::vector<std::string> common;
  };
  WordList MakeWordList(Rng& rng, int64_t n_words, int n_common, int n_uncommon) const {
    WordList out;
    std::vector<std::string> list;
    int64_t i = 0;
    for (const int64_t word : weir::Sample(rng, std::ssize(words_), n_words)) {
      const bool common = i++ < kCommon;
      if (common) out.common.push_back(words_[word]);
      list.insert(list.end(), static_cast<size_t>(common ? n_common : n_uncommon), words_[word]);
    }
    Shuffle(rng, &list);
    out.text =
        "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that "
        "appear most often.\n" +
        Numbered(list);
    return out;
  }
  TextSample CommonWords(Rng& rng, int64_t size) const {
    const std::string question = "\nQuestion: What are the 10 most common words in the above list?",
                      lead = " Answer: The top 10 words that appear most often in the list are:";
    const WordList example = IsShort() ? MakeWordList(rng, 20, 3, 1) : MakeWordList(rng, 40, 10, 3),
                   asked = IsShort() ? MakeWordList(rng, size, 6, 1) : MakeWordList(rng, size, 30, 3);
    TextSample out;
    out.context = example.text + question + lead + " " + Numbered(example.common) + "\n" + asked.text;
    out.questions = {{question, lead, asked.common}};
    return out;
  }
  // Our words, and beyond them words of three syllables.
  void LoadWords() {
    words_ = material_->words;
    if (!words_.empty()) return;
    std::set<std::string> seen;
    for (const std::span<const std::string_view> list : {Nouns(), Adjectives(), People()}) {
      for (const std::string_view word : list) {
        if (seen.insert(std::string(word)).second) words_.emplace_back(word);
      }
    }
    // Three occurrences of a word are at least nine tokens.
    Rng rng(1);
    const auto syllable = [&] {
      const char consonant = "bdfgklmnprstvz"[rng.Below(14)];
      return std::string({consonant, "aeiou"[rng.Below(5)]});
    };
    while (std::ssize(words_) < length_ / 9) {
      std::string word;
      for (int i = 0; i < 3; ++i) word += syllable();
      if (seen.insert(word).second) words_.push_back(std::move(word));
    }
  }

  TextSample FrequentWords(Rng& rng, int64_t size) const {
    // The rank's share of a zeta distribution whose exponent is 2.
    constexpr double kZeta2 = std::numbers::pi * std::numbers::pi / 6;
    std::vector<std::string> vocabulary = DistinctLetters(rng, std::max<int64_t>(Room() / 50, 8), 6, 'a');
    vocabulary[0] = "...";
    std::vector<std::string> words;
    for (int64_t k = 0; k < std::ssize(vocabulary); ++k) {
      const double rank = static_cast<double>(k + 1);
      const double share = static_cast<double>(size) / (rank * rank) / kZeta2;
      words.insert(words.end(), static_cast<size_t>(share), vocabulary[k]);
    }
    Shuffle(rng, &words);
    TextSample out;
    out.context =
        "Read the following coded text and track the frequency of each coded word. Find the three most frequently "
        "appeared coded words. " +
        Join(words, " ");
    out.questions = {
        {"\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the three most "
         "frequently appeared words in the above coded text?",
         " Answer: According to the coded text above, the three most frequently appeared words are:",
         {vocabulary[1], vocabulary[2], vocabulary[3]}}};
    return out;
  }
  Status FitFrequent() {
    const int64_t room = Room(), step = std::max<int64_t>(room / 32, 1);
    if (room < 256) return InvalidArgument("{} does not fit into {} tokens; give more", task_.name, length_);
    size_ = room / 6;
    while (count_(Whole(Make(size_, 0))) < room) size_ += step;
    size_ -= step;
    return Status();
  }

  TextSample Documents(Rng& rng, int64_t size, int64_t i) const {
    const RulerDocuments& all = task_.kind == Kind::kSquad ? *material_->squad : *material_->hotpot;
    const RulerQuestion& asked = all.questions[i % std::ssize(all.questions)];
    const int64_t n_needed = std::ssize(asked.documents), n_more = std::ssize(asked.more), n = std::ssize(all.texts);
    std::vector<int64_t> shown(asked.documents.begin(), asked.documents.end());
    if (size < n) {
      if (size - n_needed > n_more) {
        shown.insert(shown.end(), asked.more.begin(), asked.more.end());
        const std::set<int64_t> taken(shown.begin(), shown.end());
        std::vector<int64_t> others;
        for (int64_t d = 0; d < n; ++d) {
          if (!taken.contains(d)) others.push_back(d);
        }
        for (const int64_t d : weir::Sample(rng, std::ssize(others),
                                            std::clamp<int64_t>(size - n_needed - n_more, 0, std::ssize(others)))) {
          shown.push_back(others[d]);
        }
      } else {
        for (const int64_t d : weir::Sample(rng, n_more, std::clamp<int64_t>(size - n_needed, 0, n_more))) {
          shown.push_back(asked.more[d]);
        }
      }
    } else {
      shown.clear();
      for (int64_t d = 0; d < size; ++d) shown.push_back(d % n);
    }
    Shuffle(rng, &shown);
    const std::string ask =
        "Answer the question based on the given documents. Only give me the answer and do not output any other words.";
    TextSample out;
    out.context = ask + "\n\nThe following are given documents.\n\n";
    for (size_t d = 0; d < shown.size(); ++d) {
      out.context += fmt::format("{}Document {}:\n", d == 0 ? "" : "\n\n", d + 1) + all.texts[shown[d]];
    }
    out.questions = {{"\n\n" + ask + "\n\nQuestion: " + asked.text, " Answer:", asked.answers}};
    return out;
  }

  const TaskInfo& task_;
  const int64_t length_;
  const uint64_t seed_;
  const std::shared_ptr<const RulerMaterial> material_;
  const std::function<int64_t(std::string_view)>& count_;
  mutable std::optional<Essays> essays_;
  std::vector<std::string> words_;
  int64_t size_ = 0;  // of the haystack: sentences, words or documents
};

}  // namespace

std::vector<std::string> RulerTaskNames() {
  std::vector<std::string> out;
  for (const TaskInfo& task : kTasks) out.emplace_back(task.name);
  return out;
}

Result<TextTask> MakeRulerTask(const std::string& name, int64_t length, int64_t n, uint64_t seed,
                               std::shared_ptr<const RulerMaterial> material,
                               const std::function<int64_t(std::string_view)>& count) {
  const auto task = std::ranges::find_if(kTasks, [&](const TaskInfo& one) { return name == one.name; });
  if (task == std::end(kTasks)) {
    return NotFound("RULER has no task '{}'; it has {}", name, Join(RulerTaskNames(), ", "));
  }
  const bool squad = task->kind == Kind::kSquad;
  if (squad || task->kind == Kind::kHotpot) {
    const auto& documents = squad ? material->squad : material->hotpot;
    if (documents == nullptr)
      return InvalidArgument("{} needs the published file of {}", name, squad ? "SQuAD" : "HotpotQA");
  }
  auto maker = std::make_shared<Maker>(*task, length, seed, std::move(material), count);
  WEIR_RETURN_IF_ERROR(maker->Fit());
  TextTask out;
  out.name = name;
  out.metric = squad || task->kind == Kind::kHotpot ? "part" : "all";
  out.numbers = {{"length", static_cast<double>(length)}};
  out.n = n;
  out.n_answer = task->n_answer;
  out.sample = [maker](int64_t i) { return maker->Sample(i); };
  return out;
}

}  // namespace weir
