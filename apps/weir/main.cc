// weir: one program, a file per subcommand.
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "backend/simd.h"
#include "common.h"

namespace {

// Names people type with one dash although they are longer than a letter; the command line library knows none such.
std::string LongName(const std::string& argument) {
  for (const auto& [one, two] : {std::pair{"-ctk", "--cache-type-k"},
                                 {"-ctv", "--cache-type-v"},
                                 {"-mm", "--mmproj"},
                                 {"-ngl", "--gpu-layers"},
                                 {"-sys", "--system"}}) {
    if (argument == one) return two;
  }
  return argument;
}

// Flags of other programs that would be read here as a row of one-letter flags, with what does the same.
weir::Status CheckForeign(const std::string& argument) {
  for (const auto& [flag, instead] :
       {std::pair{"-cnv", "`weir chat` talks in rounds"},
        {"-st", "`weir run --chat` answers one turn"},
        {"-fa", "attention is always computed in one pass; leave it away"},
        {"-hf", "models are files here; download one, and give it with -m"},
        {"-ub", "tokens read at once are -b"},
        {"-tb", "threads are -t, for reading and writing alike"},
        {"-np", "`weir serve` takes --answer-pots and --together"},
        {"-cb", "`weir serve` always answers several requests in one pass; leave it away"}}) {
    if (argument == flag)
      return weir::InvalidArgument("%s is not known here: %s (docs/from-llama-cpp.md)", flag, instead);
  }
  return {};
}

// What was wrong with the command line, in one line. The library's own sentence lists surplus words last first, and
// says of an unknown subcommand only that one is required.
std::string Explain(const CLI::App& app, const CLI::ParseError& error, std::span<char* const> arguments) {
  std::string text = error.what();
  if (const size_t end = text.find('\n'); end != std::string::npos) text.resize(end);
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  for (const char* argument : arguments) {
    if (extras && argument[0] == '-' && (text + ' ').find(' ' + std::string(argument) + ' ') != std::string::npos)
      return "'" + std::string(argument) + "' is no flag known here";
  }
  const std::vector<std::string> surplus = app.remaining(/*recurse=*/true);
  if (!surplus.empty() && (extras || error.get_name() == "RequiredError")) {
    return "'" + surplus.front() + "' is no subcommand or flag known here";
  }
  return text;
}

// WEIR_SIMD holds the kernels to less than the machine has.
weir::Status CheckSimd() {
  const char* level = std::getenv("WEIR_SIMD");
  if (level == nullptr || weir::LimitSimd(level)) return {};
  std::string names;
  for (const char* name : weir::SimdLevels()) names += std::string(names.empty() ? "" : ", ") + name;
  return weir::InvalidArgument("WEIR_SIMD is '%s'; this machine has %s", level, names.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (const weir::Status simd = CheckSimd(); !simd.ok()) return weir::app::Fail(simd);
  CLI::App app{
      "Runs language models over input that never ends, inside a memory budget that is fixed before the first token.\n"
      "Start with:  weir read BOOK.txt -m MODEL.gguf --pot 1024 --ask \"What happens to the whale?\""};
  app.name("weir");
  app.set_version_flag("--version", "weir " WEIR_VERSION);
  app.require_subcommand(1);
  int code = 0;
  weir::app::AddRun(app, &code);
  weir::app::AddChat(app, &code);
  weir::app::AddRead(app, &code);
  weir::app::AddWatch(app, &code);
  weir::app::AddPlan(app, &code);
  weir::app::AddInfo(app, &code);
  weir::app::AddPolicies(app, &code);
  weir::app::AddPruners(app, &code);
  weir::app::AddBench(app, &code);
  weir::app::AddEval(app, &code);
  weir::app::AddTrace(app, &code);
  weir::app::AddRemembers(app, &code);
  weir::app::AddTune(app, &code);
  weir::app::AddServe(app, &code);
  std::vector<std::string> arguments;  // the library takes them last first
  for (int i = argc - 1; i > 0; --i) {
    if (const weir::Status known = CheckForeign(argv[i]); !known.ok()) return weir::app::Fail(known);
    arguments.push_back(LongName(argv[i]));
  }
  try {
    app.parse(arguments);
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::string help = "weir";
    for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
      at = at->get_subcommands().front();
      help += " " + at->get_name();
    }
    return weir::app::Fail(weir::InvalidArgument(
        "%s (see %s --help)", Explain(app, e, {argv, static_cast<size_t>(argc)}).c_str(), help.c_str()));
  } catch (const std::exception& e) {  // nothing of ours throws; memory may run out
    return weir::app::Fail(weir::Internal("%s", e.what()));
  }
  if (const weir::Status written = weir::app::FlushOutput(); code == 0 && !written.ok())
    return weir::app::Fail(written);
  return code;
}
