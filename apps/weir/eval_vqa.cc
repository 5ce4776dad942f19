// weir eval vqa, catp, avl: questions about pictures, each by itself; pruned pictures; stored and read shares.
#include "eval/answer_metrics.h"
#include "eval/picture_suite.h"
#include "eval_pictures.h"

namespace weir::app {
namespace {

struct VqaFlags {
  PictureEvalFlags run;
  PictureSuiteOptions options;
};

MakePictureExam MakeExam(const char* suite, const VqaFlags& flags) {
  return [suite, &flags](const PictureExamInput& input) -> Result<PictureExam> {
    PictureSuiteOptions options = flags.options;
    options.n = flags.run.eval.n;
    for (const std::string& metric : options.metrics) WEIR_RETURN_IF_ERROR(CheckAnswerMetric(metric));
    PictureExam exam;
    exam.suite = suite;
    exam.longest_tokens = input.longest_tokens(input.questions, true);
    exam.settings = StrFormat("n=%d decode=%d", options.n, flags.run.viewer.n_decode);
    for (const std::string& metric : options.metrics) exam.settings += " " + metric;
    exam.run = [&input, options](Viewer& viewer, const SuiteHooks& hooks) {
      return RunPictureSuite(viewer, input.questions, options, hooks);
    };
    return exam;
  };
}

void AddVqaFlags(CLI::App& sub, VqaFlags* flags, const std::string& policies) {
  AddPictureRunFlags(sub, &flags->run, policies);
  sub.add_option("--n", flags->run.eval.n, "questions, from the first on; 0 = all")
      ->check(Between(0, 1 << 30))
      ->capture_default_str();
  sub.add_option("--metric", flags->options.metrics,
                 "exact, vqa (VQA accuracy), anls, f1, rouge_l, cider (0 to 10); a row each")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("NAME,...");
}

// The table of the CATP paper: what is kept, by whom, with which layers voting.
Result<std::vector<PruneRun>> CatpRuns(const Encoder& encoder, const std::vector<double>& keeps) {
  const int32_t n_layers = encoder.ShapeOf(SignalKind::kQueryCross).n_layers;
  if (n_layers == 0) {
    return Unsupported("catp ranks the queries of a Q-Former by their cross-attention; this encoder has none");
  }
  std::vector<std::string> methods = {"catp:layers=all", "catp:layers=all,weights=image", "catp:layers=first"};
  for (int32_t layer = 1; layer < n_layers; ++layer) methods.push_back(StrFormat("catp:layers=%d", layer));
  methods.insert(methods.end(), {"l2", "self_attention"});
  std::vector<std::string> list = {"none"};
  for (const std::string& method : methods) {
    for (const double keep : keeps) {
      if (keep < 1)
        list.push_back(method + (method.find(':') == std::string::npos ? ":" : ",") + "keep=" + NumberText(keep));
    }
  }
  std::string joined;
  for (const std::string& one : list) joined += one + ";";
  return PruneRunsOf({joined});
}

// S, C, K, P and T of the A-VL paper's tables, beside the whole cache and other methods at about half of it.
constexpr const char* kAvlGrid =
    "full;a_vl:S=0.4,K=0;a_vl:S=0.4,C=0.3,K=3;a_vl:S=0.45,C=0.3,K=3;a_vl:S=0.45,C=0.3,K=3,P=0.9;"
    "a_vl:S=0.45,C=0.3,K=3,P=0.9,T=0.7;a_vl:S=0.4,C=0.3,K=3,P=0.9,T=0.5;fastv:K=2,R=0.5;fastv:K=2,R=0.75;h2o";

}  // namespace

void AddEvalVqa(CLI::App& app, int* code) {
  CLI::App* sub = app.add_subcommand("vqa", "questions about pictures of a folder, each by itself");
  auto flags = std::make_shared<VqaFlags>();
  AddVqaFlags(*sub, flags.get(), "full");
  AddPruneFlag(*sub, &flags->run);
  OnRun(*sub, code, [=] { return RunPictureExam(flags->run, MakeExam("vqa", *flags)); });
}

void AddEvalCatp(CLI::App& app, int* code) {
  CLI::App* sub = app.add_subcommand("catp", "the same with pruned pictures: CATP's variants and its baselines");
  auto flags = std::make_shared<VqaFlags>();
  auto keeps = std::make_shared<std::vector<double>>(std::vector<double>{0.5, 0.25, 0.125});
  AddVqaFlags(*sub, flags.get(), "full");
  sub->add_option("--keep", *keeps, "shares of a picture's rows that stay; all of them are always run")
      ->delimiter(',')
      ->check(CLI::Range(1e-6, 1.0).description(""))
      ->capture_default_str();
  OnRun(*sub, code, [=] {
    return RunPictureExam(flags->run, MakeExam("catp", *flags),
                          [keeps](const Encoder& encoder) { return CatpRuns(encoder, *keeps); });
  });
}

void AddEvalAvl(CLI::App& app, int* code) {
  CLI::App* sub =
      app.add_subcommand("avl", "the same with shares of pictures stored and read: A-VL beside FastV and H2O");
  auto flags = std::make_shared<VqaFlags>();
  flags->run.share = 0.5;
  flags->run.viewer.n_decode = 32;
  AddVqaFlags(*sub, flags.get(), kAvlGrid);
  sub->add_option("--share", flags->run.share,
                  "of the longest prompt: the pot of policies that forget when it is full; those that trim a prompt "
                  "themselves get room for all. 0 = --pot for all")
      ->check(CLI::Range(0.0, 1.0).description(""))
      ->capture_default_str();
  sub->add_option("--decode", flags->run.viewer.n_decode,
                  "tokens that are written for every question, the answer and what comes after its end: latency and "
                  "shares are their means")
      ->check(Between(0, 1 << 12))
      ->capture_default_str();
  OnRun(*sub, code, [=] { return RunPictureExam(flags->run, MakeExam("avl", *flags)); });
}

}  // namespace weir::app
