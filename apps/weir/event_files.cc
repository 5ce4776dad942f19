// SPDX-License-Identifier: Apache-2.0
#include "event_files.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "serve/png.h"

namespace weir::app {

int64_t EventFiles::Bytes() { return PageRound(3 * kMostPixels) + MostPngBytes(); }
int64_t EventFiles::MostPngBytes() { return PngBytes(kMostPixels); }

Status EventFiles::MakeFolder(const std::string& folder) {
  if (folder.size() > kMostFolderBytes) {
    return InvalidArgument("--pictures: a folder's name may have at most {} bytes, not {}", kMostFolderBytes,
                           folder.size());
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  return error ? IoError("--pictures {}: {}", folder, error.message()) : Status();
}

Result<std::unique_ptr<EventFiles>> EventFiles::Make(const std::string& folder, Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(HostBuffer pixels, HostBuffer::Allocate(ledger, MemTag::kVision, 3 * kMostPixels));
  WEIR_ASSIGN_OR_RETURN(Reservation rest, ledger.Reserve(MemTag::kVision, MostPngBytes()));
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char begun[32];
  std::strftime(begun, sizeof begun, "%Y%m%dT%H%M%SZ", &utc);
  std::string stem = (std::filesystem::path(folder) / fmt::format("{}-{}", begun, getpid())).string();
  return std::unique_ptr<EventFiles>(new EventFiles(std::move(stem), std::move(rest), std::move(pixels)));
}

std::string EventFiles::PathOf(int64_t event) const { return fmt::format("{}-{:06}.png", stem_, event); }

void EventFiles::See(const float* input, const ImageTransform& transform, PictureSize source) {
  size_ = CopySmall(input, transform, source, kMostPixels, pixels_.data());
}

Result<EventFiles::File> EventFiles::Write(int64_t event) {
  if (size_.width == 0) return File();
  WEIR_ASSIGN_OR_RETURN(std::string png, EncodePng({pixels_.data(), size_.width, size_.height}));
  std::string path = PathOf(event);
  std::FILE* const file = std::fopen(path.c_str(), "wbx");
  if (file == nullptr) return IoError("{}: {}", path, std::strerror(errno));
  const bool written = std::fwrite(png.data(), 1, png.size(), file) == png.size();
  if (std::fclose(file) != 0 || !written) {
    const int error = errno;
    (void)std::remove(path.c_str());
    return IoError("{}: {}", path, std::strerror(error));
  }
  if (event > kMostFiles) (void)std::remove(PathOf(event - kMostFiles).c_str());
  return File{std::move(path), std::move(png)};
}

}  // namespace weir::app
