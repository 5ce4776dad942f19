// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir mcp: an endless memory for an agent, over the Model Context Protocol on standard input and output.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "answer.h"
#include "commands/command.h"
#include "common.h"
#include "print.h"
#include "recall_flags.h"
#include "serve/answer_job.h"
#include "serve/mcp.h"

namespace weir::app {
namespace {

constexpr size_t kMaxLineBytes = 8 << 20;

struct McpFlags {
  SamplingFlags sampling;
  std::string mmproj;
  int predict = 1024;
};

// The next line of standard input, without its end; false at the end. *too_long: it had more than kMaxLineBytes, which
// were skipped.
bool NextLine(std::string* line, bool* too_long) {
  line->clear();
  *too_long = false;
  for (int c; (c = std::getc(stdin)) != EOF;) {
    if (c == '\n') return true;
    if (line->size() < kMaxLineBytes) {
      line->push_back(static_cast<char>(c));
    } else {
      *too_long = true;
    }
  }
  return !line->empty();
}

// The messages of the protocol are the only output.
Status Send(const Json& message) {
  const std::string text = JsonText(message) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return IoError("cannot write to standard output");
  }
  return Status();
}

Status RunMcp(const ModelFlags& model_flags, const PotFlags& pot_flags, const McpFlags& flags) {
  ServerOptions options;
  WEIR_ASSIGN_OR_RETURN(options.host.session, ToSessionOptions(pot_flags));
  WEIR_ASSIGN_OR_RETURN(options.host.recall, ToRecallOptions(pot_flags.recall));
  if (options.host.recall.on()) options.host.recall_disk_total = options.host.recall.disk_bytes;
  WEIR_RETURN_IF_ERROR(flags.sampling.sampler.Validate());
  options.answers.sampler = flags.sampling.sampler;
  if (flags.sampling.seed >= 0) options.answers.seed = static_cast<uint64_t>(flags.sampling.seed);
  options.answers.max_tokens = flags.predict;
  options.host.chat_template = model_flags.chat_template;
  options.host.chat_arguments = model_flags.chat_arguments;
  options.host.answer_pots = 1;
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model, Load(model_flags));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedDraft> draft,
                        LoadDraft(pot_flags.guesses, *model, &options.host.session));
  std::unique_ptr<LoadedEncoder> encoder;
  if (!flags.mmproj.empty()) {
    WEIR_ASSIGN_OR_RETURN(encoder, LoadedEncoder::Load(flags.mmproj, *model));
    options.host.encoder = encoder.get();
  }
  options.host.model_name = ModelName(*model);
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Host> host,
                        Host::Make(*model, options.host, &AnswerJob::AdvanceTogether));
  Print(stderr, "weir: memory of {} tokens; waiting for messages on standard input\n", host->plan().pot_slots);
  McpServer server(*host, options);
  std::string line;
  for (bool too_long = false; NextLine(&line, &too_long);) {
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    if (too_long) {
      WEIR_RETURN_IF_ERROR(
          Send(McpServer::NotAMessage(InvalidArgument("a message may have at most {} bytes", kMaxLineBytes))));
      continue;
    }
    const auto message = McpServer::Parse(line);
    if (!message.ok()) {
      WEIR_RETURN_IF_ERROR(Send(McpServer::NotAMessage(message.status())));
      continue;
    }
    if (const auto answer = server.Answer(*message, [] { return true; })) WEIR_RETURN_IF_ERROR(Send(*answer));
  }
  return Status();
}

Action AddMcp(CLI::App& sub) {
  auto model = std::make_shared<ModelFlags>();
  auto pot = std::make_shared<PotFlags>();
  auto flags = std::make_shared<McpFlags>();
  AddModelFlags(sub, model.get());
  AddChatFlags(sub, model.get());
  AddPotFlags(sub, pot.get());
  AddGuessFlags(sub, &pot->guesses);
  AddRecallFlags(sub, &pot->recall);
  AddSamplingFlags(sub, &flags->sampling);
  sub.add_option("-n,--predict", flags->predict, "maximum answer length in tokens if a call sets no limit")
      ->check(Between(-1, 1 << 30))
      ->capture_default_str();
  sub.add_option("--mmproj", flags->mmproj, "the model's vision encoder, an `mmproj` file, for the tool `watch`")
      ->check(NotEmpty())
      ->type_name("FILE");
  return [=] { return RunMcp(*model, *pot, *flags); };
}

}  // namespace

extern const CommandInfo kMcp;
const CommandInfo kMcp = {.name = "mcp",
                          .summary = "give an agent an endless memory, over the Model Context Protocol",
                          .group = CommandGroup::kAnswer,
                          .add = AddMcp};

}  // namespace weir::app
