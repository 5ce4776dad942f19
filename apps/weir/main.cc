// weir: one program, a file per subcommand.
#include <cstdlib>
#include <exception>
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
                                 {"-ngl", "--gpu-layers"}}) {
    if (argument == one) return two;
  }
  return argument;
}

// What was wrong with the command line, in one line. The library's own sentence lists surplus words last first, and
// says of an unknown subcommand only that one is required.
std::string Explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> surplus = app.remaining(/*recurse=*/true);
  if (!surplus.empty() && (error.get_name() == "RequiredError" || error.get_name() == "ExtrasError")) {
    return "'" + surplus.front() + "' is no subcommand or flag known here";
  }
  std::string text = error.what();
  if (const size_t end = text.find('\n'); end != std::string::npos) text.resize(end);
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
  for (int i = argc - 1; i > 0; --i) arguments.push_back(LongName(argv[i]));
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
    return weir::app::Fail(weir::InvalidArgument("%s (see %s --help)", Explain(app, e).c_str(), help.c_str()));
  } catch (const std::exception& e) {  // nothing of ours throws; memory may run out
    return weir::app::Fail(weir::Internal("%s", e.what()));
  }
  if (const weir::Status written = weir::app::FlushOutput(); code == 0 && !written.ok())
    return weir::app::Fail(written);
  return code;
}
