#include "serve/shared_eyes.h"

#include <algorithm>
#include <iterator>

#include "engine/picture_parts.h"

namespace weir {
namespace {

int64_t PreparedBytes(const Encoder& encoder) { return PageRound(InputFloats(encoder.config().transform) * 4); }

// What making a picture ready takes beside the picture and the result.
int64_t WorkBytes(const Encoder& encoder, int32_t max_side) {
  return PreprocessBytes(max_side, max_side, encoder.config().transform);
}

int64_t LaneBytes(const Encoder& encoder, int32_t max_side) {
  return PageRound(int64_t{3} * max_side * max_side) + WorkBytes(encoder, max_side) + PreparedBytes(encoder);
}

Result<int64_t> EngineBytes(const Encoder& encoder, const SharedEyesOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const int64_t pruner, PrunedEncoder::PrunerBytes(options.prune, encoder));
  return ImageEncoder::Bytes(encoder) + pruner + WorkBytes(encoder, options.max_side);
}

}  // namespace

SharedEyes::Lane::~Lane() {
  if (eyes_ == nullptr) return;
  // Told under the lock: whoever waits for the last lane may be the end of the eyes.
  const std::lock_guard<std::mutex> lock(eyes_->mutex_);
  eyes_->lanes_[index_].taken = false;
  eyes_->freed_.notify_all();
}

SharedEyes::~SharedEyes() {
  std::unique_lock<std::mutex> lock(mutex_);
  freed_.wait(lock, [this] {
    return std::none_of(lanes_.begin(), lanes_.end(), [](const Place& lane) { return lane.taken; });
  });
}

Result<int64_t> SharedEyes::Bytes(const Encoder& encoder, const SharedEyesOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const int64_t engine, EngineBytes(encoder, options));
  return engine + options.lanes * LaneBytes(encoder, options.max_side);
}

Result<std::unique_ptr<SharedEyes>> SharedEyes::Make(Encoder& encoder, const SharedEyesOptions& options,
                                                     Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(const int64_t engine, EngineBytes(encoder, options));
  WEIR_ASSIGN_OR_RETURN(const int64_t all, Bytes(encoder, options));
  std::unique_ptr<SharedEyes> out(new SharedEyes(encoder.config(), options, engine));
  WEIR_ASSIGN_OR_RETURN(out->reservation_, ledger.Reserve(MemTag::kVision, all));
  WEIR_ASSIGN_OR_RETURN(out->encoder_, PrunedEncoder::Make(options.prune, encoder, out->engine_ledger_));
  out->lanes_.resize(static_cast<size_t>(options.lanes));
  for (Place& lane : out->lanes_) {
    lane.ledger = std::make_unique<Ledger>(LaneBytes(encoder, options.max_side));
    WEIR_ASSIGN_OR_RETURN(lane.prepared, HostBuffer::Allocate(*lane.ledger, MemTag::kVision, PreparedBytes(encoder)));
  }
  return out;
}

SharedEyes::Ticket::Ticket(SharedEyes& eyes) : eyes_(eyes) {
  const std::lock_guard<std::mutex> lock(eyes_.mutex_);
  number_ = eyes_.next_ticket_++;
}

void SharedEyes::Ticket::StepAside() {
  const std::lock_guard<std::mutex> lock(eyes_.mutex_);
  if (eyes_.line_.erase(number_) > 0) eyes_.freed_.notify_all();
}

std::optional<SharedEyes::Lane> SharedEyes::TakeLane(const Ticket& ticket, std::chrono::milliseconds wait) {
  const auto is_free = [](const Place& lane) { return !lane.taken; };
  std::unique_lock<std::mutex> lock(mutex_);
  const auto place = line_.insert(ticket.number_).first;
  const auto is_my_turn = [&] {
    return std::distance(line_.begin(), place) < std::count_if(lanes_.begin(), lanes_.end(), is_free);
  };
  if (!freed_.wait_for(lock, wait, is_my_turn)) return std::nullopt;
  line_.erase(place);
  const auto lane = std::find_if(lanes_.begin(), lanes_.end(), is_free);
  lane->taken = true;
  return Lane(this, static_cast<size_t>(lane - lanes_.begin()));
}

MediaOptions SharedEyes::media() const {
  MediaOptions out;
  out.max_side = options_.max_side;
  out.max_decoded_pixels = int64_t{options_.max_side} * options_.max_side;
  out.wall_ms = options_.timeout_ms;
  return out;
}

int64_t SharedEyes::n_prepared() const { return InputFloats(config().transform); }

Status SharedEyes::Prepare(const RgbView& frame, Ledger& work, float* out) const {
  return Preprocess(frame, config().transform, work, out);
}

Status SharedEyes::ReadPicture(const RgbView& picture, Session& session, const Session::AppendOptions& append) {
  WEIR_ASSIGN_OR_RETURN(const std::span<const float> rows, encoder_->Encode(picture));
  WEIR_RETURN_IF_ERROR(AppendParts(config(), encoder_->parts(), rows, Modality::kImage, session, append));
  ++counts_.pictures_read;
  return Status();
}

Status SharedEyes::ReadFrame(const float* prepared, Session& session, const Session::AppendOptions& append) {
  if (config().n_recalled > 0) {
    return Unsupported("this encoder keeps a video's frames together, which only weir run, chat and watch do");
  }
  WEIR_ASSIGN_OR_RETURN(const std::span<const float> rows, encoder_->EncodePixels(prepared));
  WEIR_RETURN_IF_ERROR(AppendParts(config(), encoder_->parts(), rows, Modality::kVideo, session, append));
  ++counts_.frames_read;
  return Status();
}

}  // namespace weir
