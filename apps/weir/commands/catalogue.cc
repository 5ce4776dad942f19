// SPDX-License-Identifier: Apache-2.0
#include "commands/catalogue.h"
#include "print.h"

#include <cstdio>

namespace weir::app {

void PrintCatalogueHead(const char* name, const char* summary, const char* paper) {
  Print(stdout, "{}\n    {}\n", name, summary);
  if (paper[0] != '\0') Print(stdout, "    {}\n", paper);
}

void PrintCatalogueOptions(const OptionOwner& owner) {
  const Options defaults = Options::Defaults(owner);
  for (const OptionInfo& option : owner.options) {
    Print(stdout, "    {}={}    {}{}{}\n", option.key, defaults.TextOf(option), option.help,
          option.choices != nullptr ? ": " : "", option.choices != nullptr ? option.choices : "");
  }
}

}  // namespace weir::app
