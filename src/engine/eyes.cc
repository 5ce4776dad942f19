#include "engine/eyes.h"

#include <algorithm>
#include <utility>

#include "engine/picture_parts.h"

namespace weir {
namespace {

// Pixels of the largest picture, and what Preprocess() asks for beside them. Either way up: a rotation that a file asks
// for is not part of what it says of its size.
int64_t PictureBytes(const Encoder& encoder, const PictureRoom& room) {
  const ImageTransform& transform = encoder.config().transform;
  return PageRound(int64_t{3} * room.max_side * room.min_side) +
         std::max(PreprocessBytes(room.max_side, room.min_side, transform),
                  PreprocessBytes(room.min_side, room.max_side, transform));
}

int64_t InputBytes(const Encoder& encoder) { return PageRound(InputFloats(encoder.config().transform) * 4); }

// The encoder's words in the model's vocabulary.
Result<std::vector<std::vector<int32_t>>> WordTokens(const PictureWords& words, const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> out;
  for (const std::string& text : words.text) {
    const TextPiece piece = {text, true};
    out.push_back(tokenizer.EncodePieces({&piece, 1}, false));
    if (out.size() == 1 && out.front().size() != 1) {
      return InvalidArgument("the model's vocabulary has no token %s, which this encoder's pictures need",
                             text.c_str());
    }
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<LoadedEncoder>> LoadedEncoder::Load(const std::string& path, LoadedModel& model) {
  std::unique_ptr<LoadedEncoder> out(new LoadedEncoder);
  WEIR_ASSIGN_OR_RETURN(out->file_, GgufFile::Open(path));
  WEIR_ASSIGN_OR_RETURN(const EncoderInfo* info, FindEncoder(*out->file_));
  Backend& backend = info->host_only ? model.host_backend() : model.backend();
  WEIR_ASSIGN_OR_RETURN(out->encoder_, LoadEncoder(*out->file_, backend, out->ledger_));
  const int32_t rows = out->encoder_->config().n_embd, wanted = model.model().config().n_embd;
  if (rows != wanted) {
    return InvalidArgument("%s makes rows of %d numbers, %s reads rows of %d: they do not belong together",
                           path.c_str(), rows, model.file().path().c_str(), wanted);
  }
  WEIR_ASSIGN_OR_RETURN(std::vector<std::vector<int32_t>> words,
                        WordTokens(out->encoder_->config().words, model.tokenizer()));
  out->encoder_->SetWordTokens(std::move(words));
  return out;
}

void PictureRoom::Include(int32_t width, int32_t height) {
  max_side = std::max({max_side, width, height});
  min_side = std::max(min_side, std::min(width, height));
}

std::vector<PlanItem> Eyes::Plan(const Encoder& encoder, const PictureRoom& room) {
  std::vector<PlanItem> items = {
      {MemTag::kVision, "input, work and rows of the vision encoder", ImageEncoder::Bytes(encoder)},
      {MemTag::kVision, StrFormat("a picture of up to %d x %d pixels", room.max_side, room.min_side),
       PictureBytes(encoder, room)}};
  if (const int64_t bytes = encoder.FrameMemoryBytes(); bytes > 0) {
    items.push_back({MemTag::kVision, "what is kept of a video's frames", PageRound(bytes)});
  }
  if (room.n_waiting > 0) {
    items.push_back(
        {MemTag::kVision, StrFormat("%d frames that may wait", room.n_waiting), room.n_waiting * InputBytes(encoder)});
  }
  return items;
}

Result<std::vector<PlanItem>> Eyes::Plan(const Encoder& encoder, const PictureRoom& room, const PrunerSpec& prune) {
  std::vector<PlanItem> items = Plan(encoder, room);
  WEIR_ASSIGN_OR_RETURN(const int64_t bytes, PrunedEncoder::PrunerBytes(prune, encoder));
  if (bytes > 0) items.push_back({MemTag::kVision, "pruner " + prune.text, bytes});
  return items;
}

Result<std::unique_ptr<Eyes>> Eyes::Make(Encoder& encoder, Session& session, const PictureRoom& room,
                                         const PrunerSpec& prune) {
  std::unique_ptr<Eyes> out(new Eyes(encoder.config(), session, room));
  WEIR_ASSIGN_OR_RETURN(out->encoder_, PrunedEncoder::Make(prune, encoder, session.ledger()));
  if (const int64_t bytes = encoder.FrameMemoryBytes(); bytes > 0) {
    WEIR_ASSIGN_OR_RETURN(out->memory_bytes_, HostBuffer::Allocate(session.ledger(), MemTag::kVision, bytes));
    out->memory_ = encoder.MakeFrameMemory(out->memory_bytes_.data());
  }
  return out;
}

MediaOptions Eyes::Limited(const MediaOptions& media) const {
  MediaOptions out = media;
  out.max_decoded_pixels = std::min(out.max_decoded_pixels, int64_t{room_.max_side} * room_.min_side);
  return out;
}

Status Eyes::ReadPicture(const std::string& source, const MediaOptions& media, const Session::AppendOptions& append) {
  WEIR_ASSIGN_OR_RETURN(const Image image, DecodeImage(source, session_.ledger(), Limited(media)));
  return ReadPixels({image.rgb(), image.width, image.height}, Modality::kImage, append);
}

Result<int64_t> Eyes::ReadVideo(const std::string& source, const FrameOptions& frames,
                                const Session::AppendOptions& append,
                                const std::function<void(const Frame& frame)>& on_frame) {
  Forget();
  FrameOptions options = frames;
  options.media = Limited(frames.media);
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<FrameReader> reader,
                        FrameReader::Open(source, session_.ledger(), options));
  // A second video begins where the first one ended.
  const int64_t begin_ms = std::max(append.t_src_ms, session_.t_newest_ms());
  Frame frame;
  for (int64_t n_read = 0;; ++n_read) {
    WEIR_ASSIGN_OR_RETURN(const bool more, reader->Next(&frame, append.stop));
    Session::AppendOptions here = append;
    here.end_of_prompt = false;
    if (!more) {
      WEIR_RETURN_IF_ERROR(Recall(here));
      if (append.end_of_prompt) WEIR_RETURN_IF_ERROR(session_.Append({}, append));
      return n_read;
    }
    here.t_src_ms = begin_ms + frame.t_src_ms;
    WEIR_RETURN_IF_ERROR(ReadPixels({frame.rgb, frame.width, frame.height}, Modality::kVideo, here));
    if (on_frame) on_frame(frame);
  }
}

Status Eyes::ReadPixels(const RgbView& picture, Modality modality, const Session::AppendOptions& append) {
  if (std::max(picture.width, picture.height) > room_.max_side ||
      std::min(picture.width, picture.height) > room_.min_side) {
    return Unsupported("a picture of %d x %d pixels, where room was made for %d x %d", picture.width, picture.height,
                       room_.max_side, room_.min_side);
  }
  if (memory_ != nullptr && modality == Modality::kVideo) {
    WEIR_RETURN_IF_ERROR(MakeRoomForFrame(append));
    return encoder_->images().TakeFrame(picture, *memory_);
  }
  WEIR_ASSIGN_OR_RETURN(const std::span<const float> rows, encoder_->Encode(picture));
  return ReadParts(rows, modality, append);
}

Status Eyes::ReadParts(std::span<const float> rows, Modality modality, const Session::AppendOptions& append) {
  return AppendParts(config_, encoder_->parts(), rows, modality, session_, append);
}

int64_t Eyes::n_prepared() const { return InputFloats(config().transform); }

Status Eyes::Prepare(const RgbView& frame, float* out) {
  return Preprocess(frame, config().transform, session_.ledger(), out);
}

Status Eyes::ReadPrepared(const float* prepared, const Session::AppendOptions& append) {
  if (memory_ != nullptr) {
    WEIR_RETURN_IF_ERROR(MakeRoomForFrame(append));
    encoder_->images().TakePixels(prepared, *memory_);
    return Status();
  }
  WEIR_ASSIGN_OR_RETURN(const std::span<const float> rows, encoder_->EncodePixels(prepared));
  return ReadParts(rows, Modality::kVideo, append);
}

Status Eyes::MakeRoomForFrame(const Session::AppendOptions& append) {
  if (memory_->full()) {
    Session::AppendOptions inside = append;
    inside.end_of_prompt = false;  // more frames follow
    WEIR_RETURN_IF_ERROR(Recall(inside));
  }
  newest_frame_ms_ = append.t_src_ms;
  return Status();
}

Status Eyes::Recall(const Session::AppendOptions& append) {
  if (memory_ == nullptr || memory_->n_rows() == 0) return Status();
  Session::AppendOptions here = append;
  here.t_src_ms = newest_frame_ms_;
  const std::span<const float> rows = encoder_->images().Recall(*memory_);
  return AppendParts(config_, encoder_->images().parts(), rows, Modality::kVideo, session_, here);
}

void Eyes::Forget() {
  if (memory_ != nullptr) memory_->Clear();
}

}  // namespace weir
