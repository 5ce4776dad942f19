// SPDX-License-Identifier: Apache-2.0
#include "engine/picture_reader.h"

#include <fmt/core.h>
#include <algorithm>
#include <utility>

namespace weir {
namespace {

// Pixels of the largest picture, and Preprocess()'s working memory, in either orientation: the size in a file does not
// include the rotation that it requests.
int64_t PictureBytes(const Encoder& encoder, const PictureRoom& room) {
  const ImageTransform& transform = encoder.config().transform;
  return PageRound(int64_t{3} * room.max_side * room.min_side) +
         std::max(PreprocessBytes(room.max_side, room.min_side, transform),
                  PreprocessBytes(room.min_side, room.max_side, transform));
}

}  // namespace

void PictureRoom::Include(int32_t width, int32_t height) {
  max_side = std::max({max_side, width, height});
  min_side = std::max(min_side, std::min(width, height));
}

Result<std::vector<PlanItem>> PictureReader::Plan(const Encoder& encoder, const PictureRoom& room,
                                                  const PrunerSpec& prune) {
  std::vector<PlanItem> items = {
      {MemTag::kVision, "input, work and rows of the vision encoder", ImageEncoder::Bytes(encoder)},
      {MemTag::kVision, fmt::format("a picture of up to {} x {} pixels", room.max_side, room.min_side),
       PictureBytes(encoder, room)}};
  for (PlanItem& item : FrameStore::Plan(encoder)) items.push_back(std::move(item));
  if (room.n_waiting > 0) {
    items.push_back({MemTag::kVision, fmt::format("{} frames that may wait", room.n_waiting),
                     room.n_waiting * PageRound(InputFloats(encoder.config().transform) * 4)});
  }
  WEIR_ASSIGN_OR_RETURN(const int64_t bytes, PictureEncoder::PrunerBytes(prune, encoder));
  if (bytes > 0) items.push_back({MemTag::kVision, "pruner " + prune.text, bytes});
  return items;
}

Result<std::unique_ptr<PictureReader>> PictureReader::Make(Encoder& encoder, Session& session, const PictureRoom& room,
                                                           const PrunerSpec& prune) {
  std::unique_ptr<PictureReader> out(new PictureReader(session, room));
  WEIR_ASSIGN_OR_RETURN(out->pictures_, PictureEncoder::Make(prune, encoder, session.ledger()));
  WEIR_ASSIGN_OR_RETURN(out->frames_, FrameStore::Make(encoder, session.ledger()));
  return out;
}

MediaOptions PictureReader::Limited(const MediaOptions& media) const {
  MediaOptions out = media;
  out.max_decoded_pixels = std::min(out.max_decoded_pixels, int64_t{room_.max_side} * room_.min_side);
  return out;
}

Status PictureReader::ReadPicture(const std::string& source, const MediaOptions& media,
                                  const Session::AppendOptions& append) {
  WEIR_ASSIGN_OR_RETURN(const Image image, DecodeImage(source, session_.ledger(), Limited(media)));
  return ReadPixels({image.rgb(), image.width, image.height}, Modality::kImage, append);
}

Result<int64_t> PictureReader::ReadVideo(const std::string& source, const FrameOptions& frames,
                                         const Session::AppendOptions& append,
                                         const std::function<void(const Frame& frame)>& on_frame) {
  FrameOptions options = frames;
  options.media = Limited(frames.media);
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<FrameReader> reader,
                        FrameReader::Open(source, session_.ledger(), options));
  Session::AppendOptions here = append;
  here.end_of_prompt = false;
  WEIR_RETURN_IF_ERROR(Recall(here));
  frames_->Forget();
  // A second video begins where the first one ended.
  const int64_t begin_ms = std::max(append.t_src_ms, session_.t_newest_ms());
  frames_->BeginAt(begin_ms);
  int64_t n_read = 0;
  const auto read = [&]() -> Status {
    for (Frame frame;; ++n_read) {
      WEIR_ASSIGN_OR_RETURN(const bool more, reader->Next(&frame, append.stop));
      if (!more) return Status();
      here.t_src_ms = begin_ms + frame.t_src_ms;
      WEIR_RETURN_IF_ERROR(ReadPixels({frame.rgb, frame.width, frame.height}, Modality::kVideo, here));
      if (on_frame) on_frame(frame);
    }
  };
  Status status = read();
  // What came before an error is read; unless it is to be remembered, nothing of it waits for another video.
  if (status.ok()) {
    status = Recall(here);
  } else if (status.code() != StatusCode::kCancelled) {
    (void)Interrupt(here);
  }
  if (status.ok() || !frames_->remembers()) frames_->Forget();
  WEIR_RETURN_IF_ERROR(status);
  if (append.end_of_prompt) WEIR_RETURN_IF_ERROR(session_.Append({}, append));
  return n_read;
}

Status PictureReader::ReadPixels(const RgbView& picture, Modality modality, const Session::AppendOptions& append) {
  if (std::max(picture.width, picture.height) > room_.max_side ||
      std::min(picture.width, picture.height) > room_.min_side) {
    return Unsupported("a picture of {} x {} pixels, where room was made for {} x {}", picture.width, picture.height,
                       room_.max_side, room_.min_side);
  }
  if (modality == Modality::kVideo) return frames_->Read(*pictures_, picture, session_, append);
  Session::AppendOptions before = append;
  before.end_of_prompt = false;
  WEIR_RETURN_IF_ERROR(Interrupt(before));
  return pictures_->Read(picture, modality, session_, append);
}

}  // namespace weir
