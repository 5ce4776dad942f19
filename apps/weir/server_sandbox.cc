// SPDX-License-Identifier: Apache-2.0
#include "server_sandbox.h"

#include <filesystem>
#include <iterator>
#include <system_error>

#include "media/decoder_sandbox.h"

namespace weir::app {
namespace {

namespace fs = std::filesystem;

// What the C library reads to find hosts, what TLS reads, and what says how much memory and how many processors there
// are.
constexpr const char* kMachine[] = {
    "/etc/resolv.conf", "/etc/hosts",           "/etc/host.conf", "/etc/nsswitch.conf",
    "/etc/gai.conf",    "/etc/services",        "/etc/ssl",       "/etc/ca-certificates",
    "/etc/pki",         "/run/systemd/resolve", "/proc/self",     "/proc/meminfo",
    "/proc/cpuinfo",    "/sys/devices/system",  "/sys/kernel/mm", "/sys/fs/cgroup"};

std::string FolderOf(const std::string& file) {
  const std::string folder = fs::path(file).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

Sandbox ServerSandbox(const ServerPaths& paths) {
  // ffmpeg is started from here, and has no rights that this program lacks.
  Sandbox out = DecoderSandbox("ffmpeg", OpenSource());
  out.network = true;
  out.readable.insert(out.readable.end(), std::begin(kMachine), std::end(kMachine));
  for (const std::string& path : paths.read) {
    if (path.empty()) continue;
    out.readable.push_back(path);
    // A model in parts has the others beside it, and links of a cache lead elsewhere.
    std::error_code error;
    if (const fs::path real = fs::canonical(path, error); !error) out.readable.push_back(FolderOf(real.string()));
  }
  for (const std::string& path : paths.write) {
    if (path.empty()) continue;
    std::error_code error;
    out.writable.push_back(fs::is_directory(path, error) ? path : FolderOf(path));
  }
  return out;
}

}  // namespace weir::app
