#include "commands/catalogue.h"

#include <cstdio>

namespace weir::app {

void PrintCatalogueHead(const char* name, const char* summary, const char* paper) {
  std::printf("%s\n    %s\n", name, summary);
  if (paper[0] != '\0') std::printf("    %s\n", paper);
}

void PrintCatalogueOptions(const OptionOwner& owner) {
  const Options defaults = Options::Defaults(owner);
  for (const OptionInfo& option : owner.options) {
    std::printf("    %s=%s    %s%s%s\n", option.key, defaults.TextOf(option).c_str(), option.help,
                option.choices != nullptr ? ": " : "", option.choices != nullptr ? option.choices : "");
  }
}

}  // namespace weir::app
