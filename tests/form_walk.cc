// SPDX-License-Identifier: Apache-2.0
// The other side of tools/golden/forms.py, and the cost of masks.
//
//     form_walk           reads a JSON object a line and answers one:
//                         {"kind", "text" or "choices", "spaces", "prefixes": [[byte ...] ...], "walks", "seed"} ->
//                         {"error"} or {"next": [bytes that may follow each prefix, -1 for the end; null: not a
//                         prefix], "answers": [text], "unfinished"}
//     form_walk bench     times masks with the vocabularies under WEIR_DATA
#include <algorithm>
#include <ctime>
#include <iostream>
#include <random>
#include <string>

#include "io/json.h"
#include "text/forms/form.h"
#include "text/vocab_test_util.h"

namespace weir {
namespace {

using testing::MetadataBuilder;
using testing::SpellBytes;

constexpr int kMaxSteps = 3000;  // tokens of a random answer

// Of this thread: other programs do not count.
double NowMicroseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}
double MicrosecondsSince(double start) { return NowMicroseconds() - start; }

std::shared_ptr<const FormVocab> SmallVocab() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.push_back(SpellBytes(std::string(1, static_cast<char>(b))));
  for (const char* word :
       {"the",  " a",   "\": \"", "\",",      "\"}",      "{\"", "\":",  "12",    "0.",   "}}",   "]}", ", \"", "\n  ",
        "null", "true", "false",  "\xC3\xA9", "\xE2\x82", "nul", "\\\"", "\\u00", "\":[", "],\"", "-1", "2024-"}) {
    tokens.push_back(SpellBytes(word));
  }
  std::vector<int32_t> types(tokens.size(), 1);
  MetadataBuilder b;
  b.Add("tokenizer.ggml.model", "gpt2").Add("tokenizer.ggml.pre", "gpt-2").Add("tokenizer.ggml.tokens", tokens);
  b.Add("tokenizer.ggml.token_type", types).Add("tokenizer.ggml.merges", std::vector<std::string>{"t h"});
  return FormVocab::Make(*testing::LoadFrom(b).value());
}

Result<std::shared_ptr<const Form>> FormOf(const Json& request, const std::shared_ptr<const FormVocab>& vocab) {
  FormBuilder builder(vocab);
  const std::string kind = request.at("kind");
  Result<FormBuilder::Part> part = InvalidArgument("unknown kind");
  const std::string text = request.value("text", "");
  if (kind == "json_schema") part = builder.JsonSchema(text, {request.value("spaces", true)});
  if (kind == "grammar") part = builder.Grammar(text);
  if (kind == "regex") part = builder.Regex(text);
  if (kind == "choices") part = builder.Choices(request.at("choices").get<std::vector<std::string>>());
  WEIR_RETURN_IF_ERROR(part.status());
  return builder.Build(*part);
}

Json Next(const std::shared_ptr<const Form>& form, const Json& prefix) {
  FormState state(form);
  std::string text;
  for (const Json& byte : prefix) text += static_cast<char>(byte.get<int>());
  if (!state.AcceptText(text).ok()) return nullptr;
  Json out = Json::array();
  if (state.CanEnd()) out.push_back(-1);
  for (int byte = 0; byte < 256; ++byte) {
    FormState copy = state;
    if (copy.AcceptText(std::string(1, static_cast<char>(byte))).ok()) out.push_back(byte);
  }
  return out;
}

// Random tokens, more often those that end something, so that answers end at all.
Result<std::string> RandomAnswer(const std::shared_ptr<const Form>& form, std::mt19937* random, bool* finished) {
  FormState state(form);
  std::string out;
  *finished = false;
  for (int step = 0; step < kMaxSteps; ++step) {
    WEIR_ASSIGN_OR_RETURN(const auto mask, state.Mask());
    if (state.CanEnd() && (mask->n_allowed == 0 || (*random)() % 3 == 0)) {
      *finished = true;
      return out;
    }
    if (mask->n_allowed == 0) return Internal("nothing may follow '{}'", out);
    std::vector<int32_t> allowed, ending;
    for (int32_t id = 0; id < form->vocab()->n_tokens(); ++id) {
      if (!mask->Allows(id)) continue;
      allowed.push_back(id);
      const std::string_view bytes = form->vocab()->Bytes(id);
      if (bytes == "\"" || bytes == "]" || bytes == "}" || bytes == "\"}" || bytes == "]}") ending.push_back(id);
    }
    const auto& from = !ending.empty() && (*random)() % 4 == 0 ? ending : allowed;
    const int32_t token = from[(*random)() % from.size()];
    WEIR_RETURN_IF_ERROR(state.Accept(token));
    out += form->vocab()->Bytes(token);
  }
  return out;
}

Json Answer(const Json& request, const std::shared_ptr<const FormVocab>& vocab) {
  const auto form = FormOf(request, vocab);
  if (!form.ok()) return {{"error", form.status().message()}};
  Json out = {{"next", Json::array()}, {"answers", Json::array()}, {"unfinished", 0}};
  for (const Json& prefix : request.value("prefixes", Json::array())) out["next"].push_back(Next(*form, prefix));
  std::mt19937 random(request.value("seed", 1u));
  for (int i = 0; i < request.value("walks", 0); ++i) {
    bool finished = false;
    const auto answer = RandomAnswer(*form, &random, &finished);
    if (!answer.ok()) return {{"error", answer.status().message()}};
    if (finished) {
      out["answers"].push_back(*answer);
    } else {
      out["unfinished"] = out["unfinished"].get<int>() + 1;
    }
  }
  return out;
}

int Walk() {
  const auto vocab = SmallVocab();
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << JsonText(Answer(Json::parse(line), vocab)) << std::endl;
  }
  return 0;
}

struct Sample {
  const char* name;
  FormSpec spec;
  std::string answer;
};

std::vector<Sample> Samples() {
  std::string words;
  for (int i = 0; i < 60; ++i) words += "Rivers carry what the mountains lose, grain by grain. ";
  const std::string people =
      R"({"type":"object","properties":{"people":{"type":"array","items":{"type":"object","properties":{
    "name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},"email":{"type":"string","format":"email"},
    "role":{"enum":["admin","user","guest"]},"notes":{"type":"string"}},"required":["name","age","role"],
    "additionalProperties":false}}},"required":["people"],"additionalProperties":false})";
  std::string list = "{\"people\": [";
  for (int i = 0; i < 12; ++i) {
    list += fmt::format(
        R"({}{{"name": "Maria Sklodowska {}", "age": {}, "email": "m.s@example.org", "role": "user", "notes": "Came from )"
        R"(Warsaw, stayed in Paris."}})",
        i ? ", " : "", i, 20 + i);
  }
  list += "]}";
  const std::string json =
      "root ::= value\nvalue ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
      "object ::= \"{\" ws (pair (\",\" ws pair)*)? \"}\"\npair ::= string \":\" ws value\n"
      "array ::= \"[\" ws (value (\",\" ws value)*)? \"]\"\n"
      "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | \"\\\\\" [\"\\\\/bfnrt])* \"\\\"\"\n"
      "number ::= \"-\"? [0-9]+ (\".\" [0-9]+)?\nws ::= [ \\t\\n]*\n";
  const auto spec = [](FormSpec::Kind kind, const std::string& text) {
    FormSpec out;
    out.kind = kind;
    out.text = text;
    return out;
  };
  FormSpec choice;
  choice.kind = FormSpec::Kind::kChoices;
  choice.choices = {"positive", "negative", "neutral"};
  return {
      {"schema, 12 records", spec(FormSpec::Kind::kJsonSchema, people), list},
      {"schema, any JSON", spec(FormSpec::Kind::kJsonSchema, "{}"), list},
      {"schema, maxLength 4000", spec(FormSpec::Kind::kJsonSchema, R"({"type":"string","maxLength":4000})"),
       "\"" + words + "\""},
      {"grammar, JSON", spec(FormSpec::Kind::kGrammar, json), list},
      {"expression, sentences", spec(FormSpec::Kind::kRegex, "([A-Z][a-z, ]+\\. )+"), words},
      {"choices", choice, "negative"},
  };
}

void Time(const std::string& name, const Tokenizer& tokenizer) {
  const auto begin = NowMicroseconds();
  const auto vocab = FormVocab::Make(tokenizer);
  std::cout << fmt::format("{}: {} tokens, tree of {} nodes in {:.0f} ms\n", name, tokenizer.n_tokens(),
                           vocab->nodes().size(), MicrosecondsSince(begin) / 1000);
  for (const Sample& sample : Samples()) {
    auto start = NowMicroseconds();
    const auto form = MakeForm(sample.spec, vocab);
    const double compile = MicrosecondsSince(start);
    if (!form.ok()) {
      std::cout << sample.name << ": " << form.status().message() << "\n";
      continue;
    }
    const std::vector<int32_t> tokens = tokenizer.Encode(sample.answer, {.add_special = false});
    const auto run = [&](double* first, double* mean, double* p95, double* most) {
      std::vector<double> times;
      FormState state(*form, tokenizer.has_space_prefix());
      for (const int32_t token : tokens) {
        start = NowMicroseconds();
        const bool ok = state.Mask().ok();
        const bool accepted = ok && state.Accept(token).ok();
        times.push_back(MicrosecondsSince(start));
        if (!accepted) {
          std::cout << sample.name << ": the sample does not have the form at token " << times.size() << "\n";
          return;
        }
      }
      *first = times[0];
      std::vector<double> rest(times.begin() + 1, times.end());
      std::sort(rest.begin(), rest.end());
      *mean = *p95 = *most = 0;
      if (rest.empty()) return;
      for (const double t : rest) *mean += t / static_cast<double>(rest.size());
      *p95 = rest[rest.size() * 95 / 100];
      *most = rest.back();
    };
    double first = 0, mean = 0, p95 = 0, most = 0, again = 0, first_again = 0, unused = 0;
    run(&first, &mean, &p95, &most);
    run(&first_again, &again, &unused, &unused);
    std::cout << fmt::format(
        "  {:24} {:4} tokens  form {:8.0f} us  first mask {:7.0f}  then mean {:7.1f}  95% {:7.1f}  most {:7.0f}  "
        "a second answer {:6.1f} us\n",
        sample.name, tokens.size(), compile, first, mean, p95, most, again);
  }
}

int Bench() {
  const auto qwen_vocab = testing::ReadData("tokenizers/qwen2/vocab.json"),
             qwen_merges = testing::ReadData("tokenizers/qwen2/merges.txt");
  const auto smol_vocab = testing::ReadData("tokenizers/smollm/vocab.json"),
             smol_merges = testing::ReadData("tokenizers/smollm/merges.txt");
  const auto spm = testing::ReadData("tokenizers/ggml-vocab-llama-spm.gguf");
  if (!qwen_vocab || !smol_vocab || !spm) {
    std::cout << "WEIR_DATA has no tokenizers\n";
    return 77;
  }
  const auto file = GgufFile::Parse({reinterpret_cast<const uint8_t*>(spm->data()), spm->size()}, "llama-spm");
  Time("32K (Llama 2, SentencePiece)", *Tokenizer::Load(**file).value());
  Time("49K (SmolLM2, BPE)",
       *testing::LoadFrom(testing::FromVocabJson(*smol_vocab, *smol_merges, "smollm", 17)).value());
  Time("151K (Qwen2, BPE)", *testing::LoadFrom(testing::FromVocabJson(*qwen_vocab, *qwen_merges, "qwen2", 0)).value());
  return 0;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return argc > 1 && std::string(argv[1]) == "bench" ? weir::Bench() : weir::Walk(); }
