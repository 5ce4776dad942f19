// SPDX-License-Identifier: Apache-2.0
#include "suites/picture_exam.h"

#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>

#include "base/clock.h"
#include "eval/policy_list.h"
#include "io/json.h"
#include "print.h"
#include "recall_flags.h"
#include "suites/resume.h"

namespace weir::app {

const char* const kContenders =
    "full;window;last_frames;streaming_llm;h2o;snapkv;inf_mllm;infinipot;infinipot_v;weir;streaming_vlm;a_vl;fastv";

namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

// What tells runs apart, in rows and in --resume.
constexpr const char* const kRunKeys[] = {"suite", "data", "model", "policy", "pot", "prune", "prompt", "settings"};

// DIR/questions.jsonl, DIR/streams.jsonl, or the file itself.
Result<std::vector<PictureQuestion>> ReadQuestions(const std::string& data) {
  std::string path = data, folder = std::filesystem::path(data).parent_path().string();
  std::error_code error;
  if (std::filesystem::is_directory(data, error)) {
    folder = data;
    path = data + "/questions.jsonl";
    if (!std::filesystem::exists(path, error)) path = data + "/streams.jsonl";
    if (!std::filesystem::exists(path, error)) {
      return NotFound("{} has neither questions.jsonl nor streams.jsonl", data);
    }
  }
  WEIR_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxFileBytes));
  auto questions = ParsePictureQuestions(text, folder.empty() ? "." : folder);
  if (!questions.ok()) return Corrupt("{}: {}", path, questions.status().message());
  return questions;
}

// How long streams of such questions become.
class Lengths {
 public:
  // `rows`: of a picture; `recalled`: of frames that are kept together, 0 where they are not.
  Lengths(const Tokenizer& tokenizer, const ChatTemplate* chat, const ViewerOptions& viewer, int32_t rows,
          int32_t recalled)
      : tokenizer_(tokenizer), chat_(chat), viewer_(viewer), rows_(rows), recalled_(recalled) {}

  // The longest prompt of a question that is asked by itself.
  int64_t Prompt(std::span<const PictureQuestion> questions) const {
    int64_t longest = 0, shown = 0;
    for (const PictureQuestion& q : questions) {
      if (!q.pictures.empty()) shown = Rows(q);
      longest = std::max(longest, shown + Words(q));
    }
    return longest;
  }
  // The longest stream, answers included.
  int64_t Stream(std::span<const PictureQuestion> questions) const {
    int64_t longest = 0;
    for (const std::span<const PictureQuestion> stream : SplitStreams(questions)) {
      int64_t n = 0;
      for (const PictureQuestion& q : stream) n += Rows(q) + Words(q) + Answer();
      longest = std::max(longest, n);
    }
    return longest;
  }
  // Tokens of the longest answer and of the words that end it.
  int64_t Answer() const {
    constexpr int64_t kMargin = 8;
    return std::max(viewer_.n_answer, viewer_.n_decode) + kMargin;
  }

 private:
  int64_t Words(const PictureQuestion& q) const {
    return Viewer::RoundTokens(tokenizer_, chat_, viewer_.form, q.lead, q.question);
  }
  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_;
  const ViewerOptions& viewer_;
  // Frames that are kept together become at most as many rows as all of them would alone, or as the memory has.
  int64_t Rows(const PictureQuestion& q) const {
    return q.pictures.empty() ? 0 : std::max<int64_t>(std::ssize(q.pictures) * rows_, recalled_);
  }
  const int32_t rows_, recalled_;
};

struct Sitting {
  const PictureEvalFlags& flags;
  const LoadedModel& model;
  const ChatTemplate* chat;
  const ViewerOptions& viewer;
  std::string data, prompt;
  const std::set<std::string>& finished;
  int64_t longest_prompt = 0;
  double full_ms_per_token = 0;  // of the run that keeps everything
};

Status OneRun(Sitting& sitting, const PictureExam& exam, const EvalRun& run, const PruneRun& prune, Encoder& encoder,
              EncodedPictures& rows) {
  const PictureEvalFlags& flags = sitting.flags;
  WEIR_ASSIGN_OR_RETURN(SessionOptions options, OptionsOf(flags.eval, run));
  options.pictures = true;
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Policy> policy, options.policy.Make());
  const PolicyNeeds needs = policy->Needs();
  if (!needs.evicts || (flags.share > 0 && needs.trims_prompt)) {
    GivePotForAll(run.policy, exam.longest_tokens, sitting.model.model().config(), &options);
  } else if (flags.share > 0) {
    options.pot_slots = static_cast<int32_t>(std::ceil(flags.share * static_cast<double>(sitting.longest_prompt)));
  }
  WEIR_RETURN_IF_ERROR(AddProbe(sitting.model, flags.eval.model, sitting.chat != nullptr, std::nullopt, &options));
  if (sitting.viewer.n_beams > 1) options.aside_slots = sitting.viewer.n_answer;
  if (sitting.viewer.video) options.beside = FrameStore::Plan(encoder);
  WEIR_ASSIGN_OR_RETURN(RecallOptions recall, ToRecallOptions(flags.eval.pot.recall));
  recall.max_rows = encoder.config().max_rows();
  WEIR_RETURN_IF_ERROR(AddRecall(recall, sitting.model, &options));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                        Session::Make(sitting.model.model(), sitting.model.backend(), options));
  std::unique_ptr<FrameStore> frames;
  if (sitting.viewer.video) {
    WEIR_ASSIGN_OR_RETURN(frames, FrameStore::Make(encoder, session->ledger()));
  }
  std::unique_ptr<StreamRecall> recalled;
  if (recall.on()) {
    WEIR_ASSIGN_OR_RETURN(recalled, StreamRecall::Make(recall, sitting.model, *session));
  }
  Json start = RowStart(exam.suite, "", flags.eval, options.policy.text, *session);
  start["data"] = sitting.data;
  start["prune"] = prune.spec.info != nullptr ? prune.spec.text : "none";
  start["method"] = prune.method;
  start["keep"] = prune.keep;
  start["prompt"] = sitting.prompt;
  if (recall.on()) start["recall"] = recall.spec.text;
  start["settings"] = exam.settings + fmt::format(" answer={} form={}", sitting.viewer.n_answer, sitting.viewer.form);
  const std::string what = fmt::format("{} {}, pot {}{}", exam.suite, run.policy, session->plan().pot_slots,
                                       prune.spec.info != nullptr ? (", " + prune.spec.text).c_str() : "");
  if (sitting.finished.contains(RowKey(start, kRunKeys))) {
    Print(stderr, "{}: already finished\n", what);
    return Status();
  }
  Viewer viewer(*session, rows, sitting.model.tokenizer(), sitting.chat, sitting.viewer, &StopFlag(), frames.get());
  viewer.SetRecall(recalled.get());
  ExamProgress progress(what);
  int64_t n_questions = 0;
  const Clock::time_point began = Clock::now();
  std::vector<Cell> cells;
  SuiteHooks hooks;
  hooks.progress = [&](int64_t done, int64_t total) { progress.Update(n_questions = done, total); };
  hooks.report = [&](const Cell& cell) { cells.push_back(cell); };
  Status status = exam.run(viewer, hooks);
  progress.Done(n_questions);
  const double seconds = SecondsSince(began);
  for (const Cell& cell : cells) {
    Json row = start;
    row["task"] = cell.task;
    PutCell(cell, *session, &row);
    PutCost(viewer.cost(), seconds, *session, &row);
    row["vision_bytes"] = rows.ledger().used_bytes();
    if (row.contains("ms_per_token")) {
      if (!needs.evicts && prune.spec.info == nullptr && sitting.full_ms_per_token == 0) {
        sitting.full_ms_per_token = row["ms_per_token"].get<double>();
      }
      if (sitting.full_ms_per_token > 0)
        row["latency_ratio"] = row["ms_per_token"].get<double>() / sitting.full_ms_per_token;
    }
    row["complete"] = status.ok();
    Print(stdout, "{}\n", JsonText(row));
  }
  WEIR_RETURN_IF_ERROR(FlushOutput());
  if (status.code() == StatusCode::kOverBudget) {
    Print(stderr, "weir: warning: {} stopped here: {}\n", run.policy, status.message());
    return Status();
  }
  return status;
}

}  // namespace

void AddPictureRunFlags(CLI::App& app, PictureEvalFlags* flags, const std::string& policies) {
  flags->eval.policies = {policies};
  flags->eval.prompt = "auto";
  AddRunFlags(app, &flags->eval);
  app.remove_option(app.get_option("--on-overflow"));
  AddEncoderFlags(app, &flags->pictures);
  app.get_option("--mmproj")->required();
  app.remove_option(app.get_option("--prune"));  // one pruner; here they come in lists, or are the suite's own
  app.add_option(
         "--data", flags->data,
         "questions: a folder with questions.jsonl or streams.jsonl and the pictures they name, or the file itself")
      ->required()
      ->type_name("FOLDER");
  app.add_option("--prompt", flags->eval.prompt,
                 "chat: use the model's chat template; completion: plain text; auto: the template if there is one")
      ->check(CLI::IsMember({"auto", "chat", "completion"}))
      ->capture_default_str();
  AddChatFlags(app, &flags->eval.model);
  app.add_option("--form", flags->form,
                 "wording of a question, where {question} stands for its text; default: the text itself in a chat "
                 "template, else 'Question: {question} Answer:'")
      ->type_name("TEXT");
  app.add_option("--answer", flags->viewer.n_answer, "maximum answer length in tokens")
      ->check(Between(1, 1 << 12))
      ->capture_default_str();
  app.add_option("--resume", flags->resume,
                 "rows of an earlier, interrupted run; what is complete there is not run again")
      ->type_name("ROWS.jsonl");
}

void AddFrameFlags(CLI::App& app, PictureEvalFlags* flags) {
  flags->viewer.video = true;
  app.add_option("--fps", flags->fps, "pictures per second; sets the times of the stream's frames")
      ->check(CLI::Range(1e-3, 1000.0).description(""))
      ->capture_default_str();
}

void AddPruneFlag(CLI::App& app, PictureEvalFlags* flags) {
  app.add_option("--prune", flags->prune,
                 "pruners to run, one run each: PRUNER[:key=value,...] or none, separated as in --policy")
      ->allow_extra_args(false)
      ->type_name("LIST");
}

Result<std::vector<PruneRun>> PruneRunsOf(const std::vector<std::string>& lists) {
  std::vector<PruneRun> out;
  for (const std::string& list : lists) {
    for (const std::string& text : SplitPolicyList(list)) {
      PruneRun run;
      if (text != "none") {
        WEIR_ASSIGN_OR_RETURN(run.spec, ParsePrunerSpec(text));
        run.keep = run.spec.keep();
        // Every option but `keep`, so that rows of one method make a line of a table.
        run.method = run.spec.text;
        const size_t at = run.method.find("keep="), end = std::min(run.method.find(',', at), run.method.size() - 1);
        if (at != std::string::npos) run.method.erase(at, end - at + 1);
        while (!run.method.empty() && (run.method.back() == ',' || run.method.back() == ':')) run.method.pop_back();
      }
      out.push_back(std::move(run));
    }
  }
  if (out.empty()) out.emplace_back();
  return out;
}

Status RunPictureExam(const PictureEvalFlags& flags, const MakePictureExam& make, const ChoosePruners& choose) {
  InstallStopHandler();
  WEIR_ASSIGN_OR_RETURN(const std::vector<EvalRun> runs, DistinctRunsOf(flags.eval));
  WEIR_ASSIGN_OR_RETURN(std::vector<PruneRun> pruners, PruneRunsOf(flags.prune));
  WEIR_ASSIGN_OR_RETURN(const std::set<std::string> finished, FinishedRows(flags.resume, kRunKeys));
  PictureExamInput input;
  WEIR_ASSIGN_OR_RETURN(input.questions, ReadQuestions(flags.data));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model, Load(flags.eval.model));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedEncoder> encoder, LoadPictureEncoder(flags.pictures, *model));
  if (choose) {
    WEIR_ASSIGN_OR_RETURN(pruners, choose(encoder->encoder()));
  }
  std::optional<ChatTemplate> chat;
  const std::string& named = flags.eval.model.chat_template;
  const bool has_template = !named.empty() || model->file().Has("tokenizer.chat_template");
  if (flags.eval.prompt == "chat" || (flags.eval.prompt == "auto" && has_template)) {
    WEIR_ASSIGN_OR_RETURN(
        chat, ChatTemplate::ForFile(model->file(), model->tokenizer(), named, flags.eval.model.chat_arguments));
  }
  ViewerOptions viewer = flags.viewer;
  viewer.form = !flags.form.empty() ? flags.form : chat ? "{question}" : "Question: {question} Answer:";
  viewer.frame_ms = std::max<int64_t>(1, std::llround(1000 / flags.fps));
  const std::filesystem::path data = flags.data;
  Sitting sitting{flags,
                  *model,
                  chat ? &*chat : nullptr,
                  viewer,
                  (data.has_filename() ? data : data.parent_path()).filename().string(),
                  chat ? "chat" : "completion",
                  finished};
  PictureFiles files(ToMediaOptions(flags.pictures));
  for (const PruneRun& prune : pruners) {
    WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<EncodedPictures> rows,
                          EncodedPictures::Make(files, encoder->encoder(), prune.spec));
    const Lengths lengths(model->tokenizer(), sitting.chat, viewer, rows->max_tokens(),
                          viewer.video ? encoder->encoder().config().n_recalled : 0);
    sitting.longest_prompt = lengths.Prompt(input.questions);
    input.longest_tokens = [&](std::span<const PictureQuestion> questions, bool apart) {
      return apart ? sitting.longest_prompt + lengths.Answer() : lengths.Stream(questions);
    };
    WEIR_ASSIGN_OR_RETURN(const PictureExam exam, make(input));
    for (const EvalRun& run : runs) WEIR_RETURN_IF_ERROR(OneRun(sitting, exam, run, prune, encoder->encoder(), *rows));
  }
  return Status();
}

}  // namespace weir::app
