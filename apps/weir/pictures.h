// SPDX-License-Identifier: Apache-2.0
// Picture and video support shared by `run`, `chat`, `watch` and `plan`: flags, the encoder file, sizes, places in a
// prompt.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "common.h"
#include "engine/loaded_encoder.h"
#include "engine/picture_reader.h"
#include "text/chat_template.h"

namespace weir::app {

struct PictureFlags {
  std::string mmproj, prune;
  std::vector<std::string> images, videos;  // as given; images come first in a prompt
  double fps = 1;
  int max_side = 0;  // 0: original size, if it is known in advance
  int timeout_s = 30;
  bool sandbox = true;
};
// --mmproj, limits on pictures, and the pruner.
void AddEncoderFlags(CLI::App& app, PictureFlags* flags);
void AddMediaSandboxFlag(CLI::App& app, bool* sandbox);
void AddFpsFlag(CLI::App& app, PictureFlags* flags);
// --image, --video, --fps.
void AddPictureFlags(CLI::App& app, PictureFlags* flags);

// How a source is read: `flags` as the library takes them.
MediaOptions ToMediaOptions(const PictureFlags& flags);
FrameOptions ToFrameOptions(const PictureFlags& flags);

// --prune; nothing is pruned without it. kInvalidArgument for a pruner without an encoder; errors of ParsePrunerSpec().
Result<PrunerSpec> ToPruner(const PictureFlags& flags);

// The encoder of --mmproj, or nullptr without one. kInvalidArgument for pictures without an encoder.
Result<std::unique_ptr<LoadedEncoder>> LoadPictureEncoder(const PictureFlags& flags, LoadedModel& model);
// Room for every source in the flags, by its size. For sources whose size is unknown (a pipe, a camera) or that are
// named later: --max-side or kUnknownSide, which is then set in *flags.
inline constexpr int kUnknownSide = 2048;
Result<PictureRoom> MeasurePictures(PictureFlags* flags, bool more_later);
// A line of the configuration on stderr.
void PrintEncoder(const LoadedEncoder& encoder, const PictureReader& reader);
// "16 rows of pictures pruned", for lines on stderr; empty without a pruner.
std::string PrunedText(const PictureReader& reader);

// A prompt with n marks (kPictureMark of text/chat_template.h): as it is where it has some (kInvalidArgument when they
// are more or fewer), else with all of them before it, as LLaVA was trained.
Result<std::string> MarkPictures(const std::string& prompt, size_t n);
// The pieces between the marks: n + 1 lists for n marks in the user's words.
std::vector<std::vector<TextPiece>> SplitAtMarks(const std::vector<TextPiece>& pieces);

// Reads source `index` of the flags (images first) into the session.
Status ReadSource(PictureReader& reader, const PictureFlags& flags, size_t index, const Session::AppendOptions& append);

}  // namespace weir::app
