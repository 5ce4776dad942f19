// SPDX-License-Identifier: Apache-2.0
// weir: one program, a file of commands/ per subcommand.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "backend/simd.h"
#include "commands/command.h"
#include "common.h"
#include "foreign_flags.h"
#include "memory_reserve.h"

namespace {

// Expands long names that users type with a single dash, which the command line library does not support.
std::string LongName(const std::string& argument) {
  for (const auto& [one, two] : {std::pair{"-ctk", "--cache-type-k"},
                                 {"-ctv", "--cache-type-v"},
                                 {"-hf", "--hf-repo"},
                                 {"-hfr", "--hf-repo"},
                                 {"-cd", "--ctx-size-draft"},
                                 {"-md", "--model-draft"},
                                 {"-mm", "--mmproj"},
                                 {"-ngl", "--gpu-layers"},
                                 {"-sys", "--system"}}) {
    if (argument == one) return two;
  }
  return argument;
}

// Whether the next word may be any text, one that looks like a flag included.
bool TakesText(std::string_view argument) {
  constexpr std::string_view kFlags[] = {"-p",   "--prompt", "--ask", "--when", "--then", "--system",
                                         "-sys", "--pin",    "-f",    "--file", "-m"};
  return std::find(std::begin(kFlags), std::end(kFlags), argument) != std::end(kFlags);
}

// The innermost command chosen so far, for example `weir eval ppl`.
const CLI::App& Chosen(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

// What was wrong with the command line, in one line. The library's own sentence lists surplus words last first, and
// says of an unknown subcommand only that one is required.
std::string Explain(const CLI::App& app, const CLI::ParseError& error, std::span<char* const> arguments) {
  for (size_t i = 1; i < arguments.size(); ++i) {
    const char* instead = TakesText(arguments[i - 1]) ? nullptr : weir::app::InsteadOf(arguments[i]);
    if (instead != nullptr && Chosen(app).get_option_no_throw(arguments[i]) == nullptr)
      return std::string(arguments[i]) + " is not a flag here: " + instead + " (see docs/from-llama-cpp.md)";
  }
  std::string text = error.what(), help = "--help)";
  if (const size_t end = text.find('\n'); end != std::string::npos) text.resize(end);
  for (const CLI::App* at = &Chosen(app); at != nullptr; at = at->get_parent()) help = at->get_name() + " " + help;
  help = " (see " + help;
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  for (const char* argument : arguments) {
    if (extras && argument[0] == '-' && (text + ' ').find(' ' + std::string(argument) + ' ') != std::string::npos)
      return "'" + std::string(argument) + "' is not a known flag here" + help;
  }
  const std::vector<std::string> surplus = app.remaining(/*recurse=*/true);
  if (!surplus.empty() && (extras || error.get_name() == "RequiredError")) {
    return "'" + surplus.front() + "' is not a known subcommand or flag here" + help;
  }
  return text + help;
}

// WEIR_SIMD limits the kernels to fewer instruction sets than the machine has.
weir::Status CheckSimd() {
  const char* level = std::getenv("WEIR_SIMD");
  if (level == nullptr || weir::LimitSimd(level)) return {};
  std::string names;
  for (const char* name : weir::SimdLevels()) names += std::string(names.empty() ? "" : ", ") + name;
  return weir::InvalidArgument("WEIR_SIMD is '{}'; this machine has {}", level, names);
}

// Every subcommand, under the heading of its group. Parsing sets *action to what the chosen one does.
void AddCommands(CLI::App& app, weir::app::Action* action) {
  using weir::app::CommandGroup;
  for (const auto& [group, heading] : {std::pair{CommandGroup::kAnswer, "Reading and answering"},
                                       {CommandGroup::kInspect, "Looking inside"},
                                       {CommandGroup::kMeasure, "Measuring"}}) {
    for (const weir::app::CommandInfo* command : weir::app::AllCommandInfos()) {
      if (command->group == group) AddSubcommand(app, *command, action)->group(heading);
    }
  }
}

int Run(int argc, char** argv) {
  if (const weir::Status simd = CheckSimd(); !simd.ok()) return weir::app::Fail(simd);
  CLI::App app{
      "Runs language models over input that never ends, inside a memory budget that is fixed before the first token.\n"
      "Start with:  weir read BOOK.txt -m MODEL.gguf --pot 1024 --ask \"What happens to the whale?\""};
  app.name("weir");
  app.set_version_flag("--version", "weir " WEIR_VERSION);
  app.require_subcommand(1);
  weir::app::Action action;
  AddCommands(app, &action);
  std::vector<std::string> arguments;
  bool flags_end = false;
  for (int i = 1; i < argc; ++i) {
    flags_end |= std::string_view(argv[i]) == "--";
    const bool is_text = flags_end || TakesText(argv[i - 1]);
    arguments.push_back(is_text ? argv[i] : LongName(argv[i]));
    // With two dashes it ends in an error, which Explain() words.
    if (!is_text && weir::app::WouldBeMisread(arguments.back())) arguments.back().insert(0, "-");
  }
  std::reverse(arguments.begin(), arguments.end());  // the library takes them last first
  weir::Status status;
  try {
    app.parse(arguments);
    status = action();
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return weir::app::Fail(weir::InvalidArgument("{}", Explain(app, e, {argv, static_cast<size_t>(argc)})));
  }
  if (status.ok()) status = weir::app::FlushOutput();
  return status.ok() ? 0 : weir::app::Fail(status);
}

}  // namespace

int main(int argc, char** argv) {
  weir::app::HoldMemoryReserve();
  try {
    return Run(argc, argv);
  } catch (const std::bad_alloc&) {  // our code does not throw, but memory may run out
    std::fputs("weir: error: the system has no memory left\n", stderr);
  } catch (const std::system_error& e) {
    std::fprintf(stderr, "weir: error: the system gives no thread: %s\n", e.what());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "weir: error: %s\n", e.what());
  }
  return 1;
}
