// SPDX-License-Identifier: Apache-2.0
#include "serve/page_reply.h"

#include <algorithm>
#include <string>

#include "serve/page.h"
#include "serve/reply.h"

namespace weir {

void SendPageFile(std::string_view name, httplib::Response& response) {
  const auto files = PageFiles();
  const auto file = std::ranges::find(files, name, &PageFile::name);
  if (file == files.end()) return SendError({404, "", "the page has no file of this name"}, response);
  // No other site may frame it, and no markup that a model or a text smuggles in could run or load anything.
  response.set_header("Content-Security-Policy",
                      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                      "img-src 'self' data: blob:; media-src blob:; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'");
  response.set_header("Referrer-Policy", "no-referrer");
  response.set_header("X-Content-Type-Options", "nosniff");
  response.set_header("Cache-Control", "no-cache");
  response.set_content(file->body.data(), file->body.size(), file->type);
}

}  // namespace weir
