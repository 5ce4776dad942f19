// weir: one program, a file per subcommand.
#include <cstdio>
#include <string>
#include <vector>

#include "common.h"

namespace {

// Names people type with one dash although they are longer than a letter; the command line library knows none such.
std::string LongName(const std::string& argument) {
  for (const auto& [one, two] : {std::pair{"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"}}) {
    if (argument == one) return two;
  }
  return argument;
}

}  // namespace

int main(int argc, char** argv) {
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
  weir::app::AddPlan(app, &code);
  weir::app::AddInfo(app, &code);
  weir::app::AddPolicies(app, &code);
  weir::app::AddBench(app, &code);
  weir::app::AddEval(app, &code);
  std::vector<std::string> arguments;  // the library takes them last first
  for (int i = argc - 1; i > 0; --i) arguments.push_back(LongName(argv[i]));
  try {
    app.parse(arguments);
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "weir: error: %s (see weir --help)\n", e.what());
    return 2;
  }
  return code;
}
