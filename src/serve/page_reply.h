// SPDX-License-Identifier: Apache-2.0
// Answers with a file of the web page.
#pragma once

#include <string_view>

#include "serve/http_server.h"

namespace weir {

// The file of that name (serve/page.h), with the headers that let it load nothing from elsewhere and run no script that
// is not a file of the page; 404 if there is none.
void SendPageFile(std::string_view name, httplib::Response& response);

}  // namespace weir
