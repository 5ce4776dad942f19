// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval ruler: RULER's tasks, generated to any length.
#include <algorithm>
#include <memory>
#include <sstream>

#include "eval/ruler.h"
#include "suites/suite.h"
#include "suites/text_exam.h"

namespace weir::app {
namespace {

struct RulerFlags {
  TextExamFlags run;
  std::vector<int64_t> lengths = {4096};
  std::string essays, words, squad, hotpot;
};

constexpr int64_t kMaxMaterialBytes = int64_t{1} << 30;

Result<std::shared_ptr<const RulerDocuments>> ReadDocuments(const std::string& path,
                                                            Result<RulerDocuments> (*parse)(std::string_view)) {
  if (path.empty()) return std::shared_ptr<const RulerDocuments>();
  WEIR_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxMaterialBytes));
  auto documents = parse(text);
  if (!documents.ok()) return Corrupt("{}: {}", path, documents.status().message());
  return std::make_shared<const RulerDocuments>(std::move(*documents));
}

Result<std::shared_ptr<const RulerMaterial>> ReadMaterial(const RulerFlags& flags) {
  auto out = std::make_shared<RulerMaterial>();
  if (!flags.essays.empty()) {
    WEIR_ASSIGN_OR_RETURN(out->essays, ReadTextFile(flags.essays, kMaxMaterialBytes));
  }
  if (!flags.words.empty()) {
    WEIR_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.words, kMaxMaterialBytes));
    std::istringstream words(text);
    for (std::string word; words >> word;) out->words.push_back(word);
    std::ranges::sort(out->words);
    out->words.erase(std::unique(out->words.begin(), out->words.end()), out->words.end());
    if (out->words.size() < 64)
      return InvalidArgument("{}: {} different words; 64 are needed", flags.words, out->words.size());
  }
  WEIR_ASSIGN_OR_RETURN(out->squad, ReadDocuments(flags.squad, ParseSquad));
  WEIR_ASSIGN_OR_RETURN(out->hotpot, ReadDocuments(flags.hotpot, ParseHotpot));
  return std::shared_ptr<const RulerMaterial>(std::move(out));
}

Result<TextExam> MakeRulerExam(const RulerFlags& flags, const LoadedModel& model,
                               const std::function<int64_t(std::string_view)>& count) {
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<const RulerMaterial> material, ReadMaterial(flags));
  std::vector<std::string> names = flags.run.tasks;
  if (names.empty()) {
    names = RulerTaskNames();
    if (material->squad == nullptr) std::erase(names, "qa_1");
    if (material->hotpot == nullptr) std::erase(names, "qa_2");
  }
  TextExam out;
  for (const int64_t length : flags.lengths) {
    for (const std::string& name : names) {
      WEIR_ASSIGN_OR_RETURN(TextTask task, MakeRulerTask(name, length, flags.run.limit == 0 ? 500 : flags.run.limit,
                                                         flags.run.eval.seed, material, count));
      out.read_tokens += length * task.n;
      out.tasks.push_back(std::move(task));
    }
    out.longest_tokens = std::max(out.longest_tokens, length);
  }
  return out;
}

Action AddRuler(CLI::App& sub) {
  auto flags = std::make_shared<RulerFlags>();
  AddTextExamFlags(sub, &flags->run, 100);
  sub.add_option("--length", flags->lengths, "tokens of a prompt and its answer together")
      ->delimiter(',')
      ->check(Between(int64_t{1024}, int64_t{1} << 24))
      ->capture_default_str();
  sub.add_option("--essays", flags->essays, "text of the haystack; without it: generated prose")->type_name("FILE");
  sub.add_option("--words", flags->words, "words of task cwe; without it: our own")->type_name("FILE");
  sub.add_option("--squad", flags->squad, "SQuAD 2.0's dev-v2.0.json, for task qa_1")->type_name("FILE");
  sub.add_option("--hotpot", flags->hotpot, "HotpotQA's hotpot_dev_distractor_v1.json, for task qa_2")
      ->type_name("FILE");
  return [=] {
    std::function<int64_t(std::string_view)> count;
    return RunTextExam("ruler", flags->run, [&](const LoadedModel& model) {
      count = [&model](std::string_view text) {
        return std::ssize(model.tokenizer().Encode(text, {.add_special = false}));
      };
      return MakeRulerExam(*flags, model, count);
    });
  };
}

}  // namespace

extern const SuiteInfo kRuler;
const SuiteInfo kRuler = {.name = "ruler", .summary = "RULER's tasks, generated to any length", .add = AddRuler};

}  // namespace weir::app
