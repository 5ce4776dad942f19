// SPDX-License-Identifier: Apache-2.0
#include "media/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "media/memory_file.h"

namespace weir {
namespace {

// Picture and video formats that cannot refer to other files: those of browsers and cameras.
constexpr const char* kSelfContainedFormats =
    "png_pipe,jpeg_pipe,webp_pipe,bmp_pipe,tiff_pipe,pgm_pipe,ppm_pipe,gif,mov,matroska,avi,mpegts,mpeg,ogg,flv,"
    "yuv4mpegpipe";

// Those that a web server may send: one stream, which names no other.
constexpr const char* kStreamFormats = "mpjpeg,mpegts,mjpeg,h264,hevc,flv,matroska,mov,ogg,yuv4mpegpipe";

bool Begins(const std::string& source, std::initializer_list<std::string_view> kinds) {
  return std::ranges::any_of(kinds, [&](std::string_view kind) { return source.starts_with(kind); });
}

}  // namespace

std::string WithoutPassword(const std::string& source) {
  const size_t kind = source.find("://");
  if (kind == std::string::npos) return source;
  const size_t begin = kind + 3, at = source.substr(0, source.find('/', begin)).rfind('@');
  return at == std::string::npos || at < begin ? source : source.substr(0, begin) + "..." + source.substr(at);
}

OpenSource::OpenSource(OpenSource&& other) noexcept
    : fd(std::exchange(other.fd, -1)),
      owned(other.owned),
      once(other.once),
      live(other.live),
      arguments(std::move(other.arguments)) {}

OpenSource::~OpenSource() {
  if (owned && fd >= 0) close(fd);
}

bool IsLiveSource(const std::string& source) {
  return Begins(source, {"rtsp://", "rtsps://", "http://", "https://", "/dev/video"});
}

Result<OpenSource> OpenMediaSource(const std::string& source, bool again) {
  OpenSource out;
  const Status only_once = InvalidArgument("{} can be read only once, and asking what it is would use it up", source);
  if (source.empty()) return InvalidArgument("a picture or video needs a name");
  if (source.find('\0') != std::string::npos) return InvalidArgument("the name of a picture or video has a zero byte");
  if (Begins(source, {"http://", "https://"})) {
    out.live = out.once = true;
    out.arguments = {
        "-protocol_whitelist", "http,https,tcp,tls,crypto", "-format_whitelist", kStreamFormats, "-i", source};
    return out;
  }
  if (Begins(source, {"rtsp://", "rtsps://"})) {
    out.live = out.once = true;
    out.arguments = {
        "-protocol_whitelist", "rtsp,rtsps,rtp,srtp,udp,tcp,tls,crypto", "-rtsp_transport", "tcp", "-i", source};
    return out;
  }
  const std::vector<std::string> local = {"-protocol_whitelist", "file,pipe", "-i"};
  const auto local_input = [&local](const char* input) {
    std::vector<std::string> arguments = local;
    arguments.push_back(input);
    return arguments;
  };
  if (source == "-") {
    if (again) return only_once;
    out.fd = STDIN_FILENO;
    out.once = true;
    out.arguments = local_input("pipe:0");
    return out;
  }
  struct stat info;
  if (stat(source.c_str(), &info) != 0) {
    if (const size_t kind = source.find("://"); kind != std::string::npos && kind > 0) {
      return Unsupported(
          "{}: addresses of the kind {}:// are not supported; a picture or video is a file, a named pipe, a camera "
          "(/dev/video0), an rtsp://, rtsps://, http:// or https:// stream, or - for standard input",
          WithoutPassword(source), source.substr(0, kind));
    }
    return errno == ENOENT || errno == ENOTDIR ? NotFound("{}: no such file", source)
                                               : IoError("{}: {}", source, std::strerror(errno));
  }
  if (S_ISDIR(info.st_mode)) return InvalidArgument("{} is a folder, not a picture or video", source);
  if (S_ISCHR(info.st_mode) && source.starts_with("/dev/video")) {
    if (again) return only_once;
    out.live = out.once = true;
    out.arguments = {"-f", "v4l2", "-i", source};
    return out;
  }
  if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode)) {
    return InvalidArgument("{} is neither a file nor a pipe nor a camera (/dev/video*)", source);
  }
  if (S_ISREG(info.st_mode) && info.st_size == 0) return Corrupt("{} is empty", source);
  if (S_ISFIFO(info.st_mode) && again) return only_once;
  out.fd = open(source.c_str(), O_RDONLY | O_CLOEXEC);
  if (out.fd < 0) return IoError("{}: cannot open: {}", source, std::strerror(errno));
  out.owned = true;
  out.once = S_ISFIFO(info.st_mode);
  // A file is passed by its descriptor, so that ffmpeg can seek in it.
  out.arguments = local_input(out.once ? "pipe:0" : "file:/dev/fd/0");
  if (MemoryFile::Names(source)) {
    out.arguments.insert(out.arguments.begin(), {"-format_whitelist", kSelfContainedFormats});
  }
  return out;
}

}  // namespace weir
