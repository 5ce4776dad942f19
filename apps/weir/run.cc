// weir run: one prompt, one answer.
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "answer.h"
#include "progress.h"

namespace weir::app {
namespace {

constexpr int64_t kLargestPrompt = int64_t{1} << 30;

struct RunFlags {
  std::string prompt, file, system;
  bool chat = false;
};

Status Run(ModelFlags& model_flags, PotFlags& pot_flags, AnswerFlags& answer, const PinFlags& pins,
           const RunFlags& flags) {
  std::string prompt = flags.prompt;
  if (!flags.file.empty()) {
    WEIR_ASSIGN_OR_RETURN(prompt, ReadTextFile(flags.file, kLargestPrompt));
  }
  if (prompt.empty()) return InvalidArgument("the prompt is empty; give one with -p TEXT or -f FILE");
  WEIR_ASSIGN_OR_RETURN(const std::string pin, PinText(pins));
  WEIR_ASSIGN_OR_RETURN(Sampler sampler, MakeSampler(&answer));
  WEIR_ASSIGN_OR_RETURN(const Setup setup, MakeSetup(model_flags, pot_flags, SamplingText(answer), {flags.chat, ""}));
  const Tokenizer& tokenizer = setup.model->tokenizer();
  Session& session = *setup.session;

  EncodeReport report;
  std::vector<int32_t> tokens;
  std::vector<TextPiece> pieces, system, head;
  const std::string head_text = pin.empty() ? "" : pin + "\n\n";
  bool add_special = true;
  if (flags.chat) {
    WEIR_ASSIGN_OR_RETURN(const ChatTemplate chat,
                          ChatTemplate::ForFile(setup.model->file(), tokenizer, model_flags.chat_template));
    std::vector<ChatMessage> messages;
    if (!flags.system.empty()) messages.push_back({"system", flags.system});
    messages.push_back({"user", head_text + prompt});
    WEIR_ASSIGN_OR_RETURN(pieces, chat.Render(messages, true));
    messages.back().content = kContent;
    WEIR_ASSIGN_OR_RETURN(head, chat.Render(messages, true));
    WEIR_ASSIGN_OR_RETURN(AroundContent around, SplitAtContent(head));
    head = std::move(around.before);
    std::optional<std::string> system_text;
    if (!flags.system.empty()) system_text = flags.system;
    system = ChatRounds(chat).System(system_text);
    add_special = !chat.includes_bos();
  } else {
    pieces.push_back({head_text + prompt, false});
  }
  head.push_back({head_text, false});
  tokens = tokenizer.EncodePieces(pieces, add_special, &report);
  PrintReport(report, "the prompt");
  if (tokens.empty()) return InvalidArgument("the prompt holds no token this model knows");
  const PinnedPart part = FindPins(tokenizer, pins, system, !flags.system.empty(), head, add_special, tokens);
  WEIR_RETURN_IF_ERROR(CheckPins(session, pot_flags, pins, part.end - part.begin, !flags.system.empty()));

  const auto start = std::chrono::steady_clock::now();
  Progress progress("read", Progress::kAuto);
  Session::AppendOptions append;
  append.stop = &StopFlag();
  append.end_of_prompt = true;
  append.progress = [&](int64_t done) { progress.Update(done, session); };
  WEIR_RETURN_IF_ERROR(AppendPinned(session, tokens, part, append));
  const double read_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  progress.Done();
  for (int32_t id : tokens) sampler.Accept(id);
  WEIR_ASSIGN_OR_RETURN(const GenerateResult result,
                        Answer(session, sampler, tokenizer, answer, answer.output == "text"));
  WEIR_RETURN_IF_ERROR(FinishTrace(setup.trace.get(), session));
  if (answer.output == "json") {
    const double rate = static_cast<double>(tokens.size()) / read_s;
    std::printf("%s\n", JsonText(AnswerJson(session, result, rate, read_s * 1000 + result.first_token_ms)).c_str());
  } else {
    std::printf("\n");
    WEIR_RETURN_IF_ERROR(FlushOutput());  // before the figures on stderr
  }
  std::fprintf(stderr, "speed    read %zu tokens at %.1f tokens/s, wrote %zu at %.1f tokens/s\n", tokens.size(),
               static_cast<double>(tokens.size()) / read_s, result.tokens.size(), result.tokens_per_s);
  PrintMemoryLine(session);
  if (result.reason == StopReason::kStopped) return Cancelled("stopped; the answer so far is above");
  return CheckNotCut(result, session);
}

}  // namespace

void AddRun(CLI::App& app, int* code) {
  CLI::App* sub = app.add_subcommand("run", "continue one prompt (or answer it as a chat turn, with --chat)");
  auto model = std::make_shared<ModelFlags>();
  auto pot = std::make_shared<PotFlags>();
  auto answer = std::make_shared<AnswerFlags>();
  auto pins = std::make_shared<PinFlags>();
  auto flags = std::make_shared<RunFlags>();
  answer->n_predict = 256;
  AddModelFlags(*sub, model.get());
  CLI::Option* prompt = sub->add_option("-p,--prompt", flags->prompt, "the prompt");
  sub->add_option("-f,--file", flags->file, "read the prompt from FILE; - is standard input")
      ->excludes(prompt)
      ->type_name("FILE");
  CLI::Option* chat = sub->add_flag("--chat", flags->chat, "wrap the prompt in the model's chat template");
  sub->add_option("--system", flags->system, "system message")->needs(chat);
  sub->add_option("--chat-template", model->chat_template,
                  "template to use instead of the file's: chatml, llama3, gemma ...")
      ->needs(chat);
  AddPotFlags(*sub, pot.get());
  AddTraceFlag(*sub, pot.get());
  AddPinFlags(*sub, pins.get());
  AddAnswerFlags(*sub, answer.get(), true);
  sub->callback([=] {
    InstallStopHandler();
    const Status status = Run(*model, *pot, *answer, *pins, *flags);
    *code = status.ok() ? 0 : Fail(status);
  });
}

}  // namespace weir::app
