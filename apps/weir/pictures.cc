// SPDX-License-Identifier: Apache-2.0
#include "pictures.h"

#include <sys/stat.h>

#include <fmt/core.h>
#include <cstdio>

#include "print.h"
#include "text/picture_marks.h"

namespace weir::app {
namespace {

// Probing a pipe or a camera for its size would consume its first pictures.
bool CanBeAsked(const std::string& source) {
  struct stat info {};
  return stat(source.c_str(), &info) != 0 ? source.find("://") == std::string::npos && source != "-"
                                          : !S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode);
}

}  // namespace

void AddEncoderFlags(CLI::App& app, PictureFlags* flags) {
  app.add_option("--mmproj", flags->mmproj, "the model's vision encoder, an `mmproj` file (-mm)")
      ->check(NotEmpty())
      ->type_name("FILE");
  app.add_option(
         "--prune", flags->prune,
         "pruner that selects which picture tokens the language model sees: NAME[:key=value,...], see `weir pruners`")
      ->check(NotEmpty())
      ->type_name("NAME");
  app.add_option("--max-side", flags->max_side,
                 "shrink pictures and frames to at most this many pixels on the longer side; 0 = keep their size (2048 "
                 "for sources whose size is not known in advance)")
      ->check(Between(0, 1 << 14))
      ->capture_default_str()
      ->type_name("PIXELS");
  app.add_option("--media-timeout", flags->timeout_s,
                 "maximum wait for ffmpeg to deliver a picture or the next video frame")
      ->check(Between(1, 1 << 20))
      ->capture_default_str()
      ->type_name("SECONDS");
  AddMediaSandboxFlag(app, &flags->sandbox);
}

void AddMediaSandboxFlag(CLI::App& app, bool* sandbox) {
  app.add_flag(
      "!--no-media-sandbox", *sandbox,
      "let ffmpeg reach what this program reaches; without it, itself and the source alone. For an ffmpeg that "
      "cannot start so, as those of snap packages");
}

Result<PrunerSpec> ToPruner(const PictureFlags& flags) {
  if (flags.prune.empty()) return PrunerSpec();
  if (flags.mmproj.empty()) return InvalidArgument("--prune works on pictures, which need --mmproj FILE");
  return ParsePrunerSpec(flags.prune);
}

void AddFpsFlag(CLI::App& app, PictureFlags* flags) {
  app.add_option("--fps", flags->fps, "video frames to read per second")
      ->check(CLI::Range(1e-6, 1000.0).description(""))
      ->capture_default_str();
}

void AddPictureFlags(CLI::App& app, PictureFlags* flags) {
  app.add_option("--image", flags->images, "picture to read; may be repeated")
      ->check(NotEmpty())
      ->expected(1)
      ->take_all()
      ->type_name("FILE");
  app.add_option("--video", flags->videos, "video, pipe or camera to read frame by frame; may be repeated")
      ->check(NotEmpty())
      ->expected(1)
      ->take_all()
      ->type_name("FILE");
  AddFpsFlag(app, flags);
}

MediaOptions ToMediaOptions(const PictureFlags& flags) {
  MediaOptions options;
  options.max_side = flags.max_side;
  options.wall_ms = int64_t{1000} * flags.timeout_s;
  options.sandbox = flags.sandbox;
  return options;
}

FrameOptions ToFrameOptions(const PictureFlags& flags) {
  FrameOptions options;
  options.media = ToMediaOptions(flags);
  options.fps = flags.fps;
  return options;
}

Result<std::unique_ptr<LoadedEncoder>> LoadPictureEncoder(const PictureFlags& flags, LoadedModel& model) {
  if (!flags.mmproj.empty()) return LoadedEncoder::Load(flags.mmproj, model);
  if (flags.images.empty() && flags.videos.empty()) return std::unique_ptr<LoadedEncoder>();
  return InvalidArgument("pictures need the model's vision encoder: --mmproj FILE");
}

Result<PictureRoom> MeasurePictures(PictureFlags* flags, bool more_later) {
  PictureRoom room;
  bool unknown = more_later;
  for (const std::vector<std::string>* sources : {&flags->images, &flags->videos}) {
    for (const std::string& source : *sources) {
      if (!CanBeAsked(source)) {
        unknown = true;
        continue;
      }
      WEIR_ASSIGN_OR_RETURN(const MediaInfo info, ProbeMedia(source, ToMediaOptions(*flags)));
      if (flags->max_side == 0) room.Include(info.width, info.height);
    }
  }
  if (unknown && flags->max_side == 0) flags->max_side = kUnknownSide;
  if (flags->max_side > 0) room.Include(flags->max_side, flags->max_side);
  return room;
}

void PrintEncoder(const LoadedEncoder& encoder, const PictureReader& reader) {
  const EncoderConfig& config = reader.config();
  const std::string& name = config.name.empty() ? encoder.file().path() : config.name;
  const std::string more = !config.in_parts() ? "" : fmt::format(" ({} with tiles)", config.max_rows());
  Print(stderr, "vision   {} ({}), {} tokens a picture{}, weights {}, pictures up to {} x {} pixels\n", Printable(name),
        config.projector, config.n_rows, more, BytesText(encoder.ledger().used_bytes()), reader.room().max_side,
        reader.room().min_side);
  if (reader.pictures().pruner().info != nullptr) {
    Print(stderr, "pruner   {}, keeps {} of a picture's {} tokens\n", reader.pictures().pruner().info->name,
          reader.pictures().n_rows(), config.n_rows);
  }
}

std::string PrunedText(const PictureReader& reader) {
  if (reader.pictures().pruner().info == nullptr) return "";
  return fmt::format("{} rows of pictures pruned", CountText(reader.pictures().n_pruned()));
}

Result<std::string> MarkPictures(const std::string& prompt, size_t n) {
  const std::string mark = kPictureMark;
  size_t n_found = 0;
  for (size_t at = prompt.find(mark); at != std::string::npos; at = prompt.find(mark, at + mark.size())) ++n_found;
  if (n_found != 0 && n_found != n) {
    return InvalidArgument("the prompt marks {} places with {}, but there are {} pictures and videos", n_found,
                           kPictureMark, n);
  }
  std::string out;
  for (size_t i = n_found; i < n; ++i) out += mark;
  return out + prompt;
}

std::vector<std::vector<TextPiece>> SplitAtMarks(const std::vector<TextPiece>& pieces) {
  return SplitAtMark(pieces, kPictureMark);
}

Status ReadSource(PictureReader& reader, const PictureFlags& flags, size_t index,
                  const Session::AppendOptions& append) {
  if (index < flags.images.size()) return reader.ReadPicture(flags.images[index], ToMediaOptions(flags), append);
  return reader.ReadVideo(flags.videos[index - flags.images.size()], ToFrameOptions(flags), append).status();
}

}  // namespace weir::app
