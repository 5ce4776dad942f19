// SPDX-License-Identifier: Apache-2.0
// What ffmpeg and ffprobe may reach: themselves, their libraries and the source, which is open already. Those that the
// user named by an address also the network, a camera its device.
#pragma once

#include <string>

#include "base/sandbox.h"
#include "media/source.h"

namespace weir {

// program: as it is started; looked up in PATH if it has no slash.
Sandbox DecoderSandbox(const std::string& program, const OpenSource& source);

}  // namespace weir
