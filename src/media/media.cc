// SPDX-License-Identifier: Apache-2.0
#include "media/media.h"

#include <unistd.h>

#include <fmt/core.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "media/child.h"
#include "media/decoder_sandbox.h"
#include "media/ppm.h"
#include "media/source.h"

namespace weir {
namespace {

constexpr int64_t kMaxProbeBytes = 1 << 20;

std::vector<std::string> Command(const std::string& program, std::initializer_list<const char*> options,
                                 const OpenSource& source) {
  std::vector<std::string> argv = {program, "-hide_banner", "-loglevel", "error"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), source.arguments.begin(), source.arguments.end());
  return argv;
}

ChildLimits PictureLimits(const MediaOptions& options) {
  return {options.wall_ms, 0, options.cpu_s, options.memory_bytes};
}

// The largest block that a decoder may allocate, by the size that the source declares: no pixel format takes 16 bytes a
// pixel, and the rest is for tables. A few KiB of a compressed comment may stand for any number of bytes.
constexpr int64_t kMaxBlockBytesAPixel = 16, kMaxTableBytes = 64 << 20;

void AddMaxBlock(const MediaInfo& info, std::vector<std::string>* argv) {
  const int64_t bytes = kMaxTableBytes + kMaxBlockBytesAPixel * info.width * info.height;
  argv->insert(argv->begin() + 1, {"-max_alloc", std::to_string(bytes)});
}

// What the decoder says of a source, in words for those who do not know it; anything else stays as it is.
std::string InPlainWords(const std::string& said) {
  constexpr std::pair<std::string_view, const char*> kWords[] = {
      {"401 Unauthorized", "the source wants a user and a password, or others than these"},
      {"403 Forbidden", "the source does not let this user in"},
      {"404 Not Found", "the source has nothing under this name"},
      {"Connection refused", "nobody answers at this address"},
      {"Failed to resolve hostname", "there is no host of this name"},
      {"No route to host", "the host cannot be reached"},
      {"Network is unreachable", "the host cannot be reached"},
      {"Connection timed out", "the host does not answer"},
      {"not found for input stream", "there is no decoder for this kind of video"},
      {"Invalid data found when processing input", "this is no picture or video, or it is damaged"},
  };
  for (const auto& [part, words] : kWords) {
    if (said.find(part) != std::string::npos) return words;
  }
  return said;
}

// Adds the source's name to a child's error. Decoders repeat the names of their sources.
// `confined`: the decoder ran in a sandbox, which may be why it failed.
Status About(const std::string& source, const Status& status, bool confined) {
  if (status.ok()) return status;
  const std::string name = WithoutPassword(source);
  std::string what = InPlainWords(status.message());
  if (confined && what.find("ermission denied") != what.npos)
    what += " (without its sandbox it has more rights: --no-media-sandbox)";
  for (size_t at = 0; name != source && (at = what.find(source, at)) != std::string::npos; at += name.size()) {
    what.replace(at, source.size(), name);
  }
  return Status(status.code(), name + ": " + what);
}

Result<std::unique_ptr<Child>> StartDecoder(const std::vector<std::string>& argv, const OpenSource& input,
                                            const ChildLimits& limits, bool confined) {
  const Sandbox sandbox = DecoderSandbox(argv[0], input);
  auto child = Child::Start(argv, input.fd, limits, ChildErrors::kKept, confined ? &sandbox : nullptr);
  if (child.status().code() != StatusCode::kNotFound) return child;
  return NotFound("{}; images and video need ffmpeg and ffprobe installed", child.status().message());
}

// "30000/1001"
double Ratio(const std::string& text) {
  const size_t slash = text.find('/');
  const double top = std::strtod(text.c_str(), nullptr);
  const double bottom = slash == std::string::npos ? 1 : std::strtod(text.c_str() + slash + 1, nullptr);
  const double ratio = top / bottom;
  return std::isfinite(ratio) && ratio > 0 ? ratio : 0;
}

std::string Text(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

int64_t Whole(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

Status CheckSize(const std::string& source, int64_t width, int64_t height, int64_t max_pixels) {
  if (width < 1 || height < 1) {
    return Corrupt("{}: a picture of {} x {} pixels", source, width, height);
  }
  if (width > kMaxPictureSide || height > kMaxPictureSide || width * height > max_pixels) {
    return Unsupported("{}: {} x {} pixels are more than the {} that are accepted", source, width, height, max_pixels);
  }
  return Status();
}

// A bound on a decoder's output, whatever it declared before.
int64_t MaxDecoded(const MediaOptions& options) { return std::min(options.max_pixels, options.max_decoded_pixels); }

Status CheckMaxSide(int32_t max_side) {
  if (max_side >= 0 && max_side <= kMaxPictureSide) return Status();
  return InvalidArgument("pictures of at most {} pixels a side; 0 to {} are possible", max_side, kMaxPictureSide);
}

// Filters that end with shrinking to `max_side`, if there is such a limit; empty: none.
std::string WithMaxSide(std::string filters, int32_t max_side) {
  if (max_side == 0) return filters;
  if (!filters.empty()) filters += ",";
  return filters + fmt::format("scale=w='min({},iw)':h='min({},ih)':force_original_aspect_ratio=decrease:flags=bicubic",
                               max_side, max_side);
}

Result<MediaInfo> ParseProbe(const std::string& source, const std::string& text, const std::string& complaint,
                             const MediaOptions& options) {
  const nlohmann::json root = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return Corrupt("{}: ffprobe's answer is not JSON", source);
  MediaInfo out;
  const nlohmann::json format = root.value("format", nlohmann::json::object());
  if (format.is_object()) {
    out.format = Text(format, "format_name");
    const double seconds = std::strtod(Text(format, "duration").c_str(), nullptr);
    if (seconds > 0 && seconds < 1e12) out.duration_ms = std::llround(seconds * 1000);
  }
  bool has_video = false;
  const nlohmann::json streams = root.value("streams", nlohmann::json::array());
  for (const nlohmann::json& stream : streams) {
    if (!stream.is_object()) continue;
    const std::string type = Text(stream, "codec_type");
    out.has_audio = out.has_audio || type == "audio";
    if (type != "video" || has_video) continue;
    has_video = true;
    out.codec = Text(stream, "codec_name");
    out.fps = Ratio(Text(stream, "avg_frame_rate"));
    const int64_t width = Whole(stream, "width"), height = Whole(stream, "height");
    if (width == 0 && height == 0) {
      return Corrupt("{}: not even its size can be told: {}", source, complaint);
    }
    WEIR_RETURN_IF_ERROR(CheckSize(source, width, height, options.max_pixels));
    out.width = static_cast<int32_t>(width);
    out.height = static_cast<int32_t>(height);
  }
  if (!has_video) {
    return out.has_audio ? Unsupported("{} has sound but no picture", source)
                         : Corrupt("{} has no picture in it", source);
  }
  return out;
}

PpmRead ReadsFrom(Child& child, const std::atomic<bool>* stop) {
  return [&child, stop](uint8_t* to, int64_t n) { return child.Read(to, n, stop); };
}

// A file that is already in the decoder's output format: it is read here, which saves two processes per picture. False:
// it is in another format, or damaged, and the decoder should report it. The descriptor is then at its beginning again.
bool ReadPpmFile(int fd, const PpmAllocate& allocate) {
  const auto from_file = [fd](uint8_t* to, int64_t n) -> Result<int64_t> {
    const ssize_t got = read(fd, to, static_cast<size_t>(n));
    if (got < 0) return IoError("not readable");
    return static_cast<int64_t>(got);
  };
  const Result<bool> whole = ReadPpm(from_file, allocate);
  if (whole.ok() && *whole) return true;
  lseek(fd, 0, SEEK_SET);
  return false;
}

}  // namespace

Result<MediaInfo> ProbeMedia(const std::string& source, const MediaOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const OpenSource input, OpenMediaSource(source, /*again=*/true));
  std::vector<std::string> argv = Command(options.ffprobe, {}, input);
  for (const char* word :
       {"-show_entries", "stream=codec_type,codec_name,width,height,avg_frame_rate:format=format_name,duration", "-of",
        "json"}) {
    argv.push_back(word);
  }
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Child> child,
                        StartDecoder(argv, input, PictureLimits(options), options.sandbox));
  std::string text;
  std::array<uint8_t, 4096> piece;
  while (true) {
    const Result<int64_t> got = child->Read(piece.data(), std::ssize(piece));
    if (!got.ok()) return About(source, got.status(), options.sandbox);
    if (*got == 0) break;
    if (std::ssize(text) + *got > kMaxProbeBytes) return Corrupt("{}: ffprobe's answer is longer than a MiB", source);
    text.append(reinterpret_cast<const char*>(piece.data()), static_cast<size_t>(*got));
  }
  WEIR_RETURN_IF_ERROR(About(source, child->Finish(), options.sandbox));
  return ParseProbe(source, text, child->Complaint(), options);
}

Result<Image> DecodeImage(const std::string& source, Ledger& ledger, const MediaOptions& options) {
  WEIR_RETURN_IF_ERROR(CheckMaxSide(options.max_side));
  WEIR_ASSIGN_OR_RETURN(const OpenSource input, OpenMediaSource(source));
  Image out;
  const auto allocate = [&](int64_t width, int64_t height) -> Result<uint8_t*> {
    WEIR_RETURN_IF_ERROR(CheckSize(source, width, height, MaxDecoded(options)));
    out.width = static_cast<int32_t>(width);
    out.height = static_cast<int32_t>(height);
    out.pixels = HostBuffer();
    WEIR_ASSIGN_OR_RETURN(out.pixels, HostBuffer::Allocate(ledger, MemTag::kVision, 3 * width * height));
    return out.pixels.data();
  };
  if (!input.once && input.fd >= 0 && options.max_side == 0 && ReadPpmFile(input.fd, allocate)) return out;
  std::vector<std::string> argv = Command(options.ffmpeg, {"-nostdin", "-threads", "1"}, input);
  if (!input.once) {
    WEIR_ASSIGN_OR_RETURN(const MediaInfo info, ProbeMedia(source, options));
    AddMaxBlock(info, &argv);
  }
  const std::string filters = WithMaxSide("", options.max_side);
  if (!filters.empty()) argv.insert(argv.end(), {"-vf", filters});
  for (const char* word :
       {"-map", "0:v:0", "-frames:v", "1", "-f", "image2pipe", "-c:v", "ppm", "-pix_fmt", "rgb24", "pipe:1"}) {
    argv.push_back(word);
  }
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Child> child,
                        StartDecoder(argv, input, PictureLimits(options), options.sandbox));
  const Result<bool> read = ReadPpm(ReadsFrom(*child, nullptr), allocate);
  if (!read.ok()) return About(source, read.status(), options.sandbox);
  const Status finished = child->Finish();
  if (!*read) {
    return finished.ok() ? Corrupt("{}: ffmpeg found no picture in it", source)
                         : About(source, finished, options.sandbox);
  }
  return out;
}

Result<std::unique_ptr<FrameReader>> FrameReader::Open(const std::string& source, Ledger& ledger,
                                                       const FrameOptions& options) {
  if (!(options.fps > 0 && options.fps <= 1000)) {
    return InvalidArgument("{:g} frames a second; more than 0 and at most 1000 are possible", options.fps);
  }
  WEIR_RETURN_IF_ERROR(CheckMaxSide(options.media.max_side));
  WEIR_ASSIGN_OR_RETURN(const OpenSource input, OpenMediaSource(source));
  std::vector<std::string> argv = options.real_time && !input.live
                                      ? Command(options.media.ffmpeg, {"-nostdin", "-threads", "1", "-re"}, input)
                                      : Command(options.media.ffmpeg, {"-nostdin", "-threads", "1"}, input);
  if (!input.once) {
    WEIR_ASSIGN_OR_RETURN(const MediaInfo info, ProbeMedia(source, options.media));
    AddMaxBlock(info, &argv);
    const double n_frames = static_cast<double>(info.duration_ms) / 1000 * options.fps;
    if (options.max_frames > 0 && n_frames > static_cast<double>(options.max_frames)) {
      return InvalidArgument("{}: {} s at {:g} frames a second are more than {} frames; ask for fewer, or send parts",
                             source, info.duration_ms / 1000, options.fps, options.max_frames);
    }
  }
  // Rounding up makes frame k the last picture with source time <= k / fps.
  const std::string filter = WithMaxSide(fmt::format("fps={:.9g}:round=up", options.fps), options.media.max_side);
  for (const char* word :
       {"-map", "0:v:0", "-vf", filter.c_str(), "-f", "image2pipe", "-c:v", "ppm", "-pix_fmt", "rgb24", "pipe:1"}) {
    argv.push_back(word);
  }
  std::unique_ptr<FrameReader> out(new FrameReader(ledger, options));
  out->source_ = source;
  // A stream never ends, so its wall time is not limited, only its silence.
  const ChildLimits limits = {0, options.media.wall_ms, options.cpu_s, options.media.memory_bytes};
  WEIR_ASSIGN_OR_RETURN(out->child_, StartDecoder(argv, input, limits, options.media.sandbox));
  return out;
}

Result<bool> FrameReader::Next(Frame* frame, const std::atomic<bool>* stop) {
  if (!status_.ok()) return status_;
  if (ended_) return false;
  Result<bool> read = ReadFrame(frame, stop);
  if (read.ok() && *read) return true;
  ended_ = true;
  if (!read.ok()) status_ = About(source_, read.status(), options_.media.sandbox);
  child_.reset();
  pixels_ = HostBuffer();
  return status_.ok() ? Result<bool>(false) : Result<bool>(status_);
}

Result<bool> FrameReader::ReadFrame(Frame* frame, const std::atomic<bool>* stop) {
  const auto allocate = [&](int64_t width, int64_t height) -> Result<uint8_t*> {
    WEIR_RETURN_IF_ERROR(CheckSize("frame", width, height, MaxDecoded(options_.media)));
    const int64_t bytes = 3 * width * height;
    if (bytes > pixels_.bytes()) {
      pixels_ = HostBuffer();  // freed first: two frames are never held
      WEIR_ASSIGN_OR_RETURN(pixels_, HostBuffer::Allocate(ledger_, MemTag::kVision, bytes));
    }
    frame->width = static_cast<int32_t>(width);
    frame->height = static_cast<int32_t>(height);
    return pixels_.data();
  };
  const Result<bool> more = ReadPpm(ReadsFrom(*child_, stop), allocate);
  if (more.status().code() == StatusCode::kCorrupt && options_.cpu_s > 0) {
    // A killed decoder stops in the middle of a picture: the reason it was killed is the better error.
    const Status finished = child_->Finish();
    return finished.code() == StatusCode::kIo ? finished : more.status();
  }
  WEIR_RETURN_IF_ERROR(more.status());
  if (!*more) {
    const Status finished = child_->Finish();
    if (n_frames_ == 0) return finished.ok() ? Corrupt("ffmpeg found no frame in it") : finished;
    // A file ends where its damage begins: everything before it was good. A killed child is still an error.
    if (!finished.ok() && finished.code() != StatusCode::kCorrupt) return finished;
    return false;
  }
  frame->index = n_frames_;
  frame->t_src_ms = std::llround(static_cast<double>(n_frames_) * 1000.0 / options_.fps);
  frame->rgb = pixels_.data();
  ++n_frames_;
  return true;
}

}  // namespace weir
