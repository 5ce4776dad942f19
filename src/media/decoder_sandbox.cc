// SPDX-License-Identifier: Apache-2.0
#include "media/decoder_sandbox.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "media/child.h"

namespace weir {
namespace {

// Programs, libraries and what the loader reads; nothing of any user's.
constexpr const char* kSystem[] = {"/usr",
                                   "/bin",
                                   "/sbin",
                                   "/lib",
                                   "/lib32",
                                   "/lib64",
                                   "/opt",
                                   "/nix/store",
                                   "/gnu/store",
                                   "/etc/alternatives",
                                   "/etc/ld.so.cache",
                                   "/etc/ld.so.conf",
                                   "/etc/ld.so.conf.d",
                                   "/etc/ld.so.preload",
                                   "/etc/localtime",
                                   "/dev/random",
                                   "/dev/urandom",
                                   "/dev/zero",
                                   "/sys/devices/system/cpu"};

// The parts of a list like PATH.
template <typename Fn>
void ForEachPart(const std::string& list, Fn fn) {
  for (std::string_view rest = list; !rest.empty();) {
    const size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0) fn(std::string(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

std::string Found(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  std::string out;
  std::error_code error;
  ForEachPart(ChildVariable("PATH"), [&](const std::string& folder) {
    if (out.empty() && std::filesystem::exists(folder + "/" + program, error)) out = folder + "/" + program;
  });
  return out;
}

}  // namespace

Sandbox DecoderSandbox(const std::string& program, const OpenSource& source) {
  Sandbox out;
  out.writable = {"/dev/null"};
  if (source.live) {
    // Names of hosts, certificates, devices: a person chose this source.
    out.readable = {"/"};
    out.writable = {"/dev"};
    out.network = true;
    return out;
  }
  out.readable.assign(std::begin(kSystem), std::end(kSystem));
  out.readable_fd = source.fd;
  ForEachPart(ChildVariable("LD_LIBRARY_PATH"), [&](std::string folder) { out.readable.push_back(std::move(folder)); });
  if (const std::string found = Found(program); !found.empty()) {
    // Where a package manager or an archive put it: PREFIX/bin/ffmpeg and PREFIX/lib.
    std::error_code error;
    const std::filesystem::path real = std::filesystem::canonical(found, error);
    if (!error) {
      out.readable.push_back(real.string());
      for (const char* folder : {"lib", "lib64"}) {
        out.readable.push_back((real.parent_path().parent_path() / folder).string());
      }
    }
  }
  return out;
}

}  // namespace weir
