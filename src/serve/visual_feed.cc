// SPDX-License-Identifier: Apache-2.0
#include "serve/visual_feed.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "base/caught.h"
#include "base/clock.h"
#include "media/memory_file.h"

namespace weir {
namespace {

struct Item {
  enum class Kind { kNone, kPicture, kFrame, kEndOfPart, kError };
  Kind kind = Kind::kNone;
  RgbView picture;
  int64_t t_ms = 0;  // from the beginning of its part
  Status status;
};

}  // namespace

// Shared by the thread and the feed; the picture that `item` refers to stays valid until the item is taken.
struct VisualFeed::State {
  State(SharedVision& vision, DecodeLanes::Lane lane, std::vector<VisualInput> inputs, std::function<void()> wake)
      : vision(vision), lane(std::move(lane)), inputs(std::move(inputs)), wake(std::move(wake)) {}

  // Publishes an item and waits until it was taken. False if it will not be taken any more.
  bool Show(Item next) {
    std::unique_lock<std::mutex> lock(mutex);
    if (stop) return false;
    item = std::move(next);
    changed.notify_all();
    wake();
    changed.wait(lock, [this] { return stop || item.kind == Item::Kind::kNone; });
    return !stop;
  }
  // Runs a decoder and measures its time.
  template <typename Decoder>
  auto Timed(Decoder decode) {
    const auto start = Clock::now();
    auto out = decode();
    decoding += Clock::now() - start;
    return out;
  }
  // Counts one more picture or frame, within the limit. Frames that only repeat the last one count too, because the
  // encoder runs for them.
  Status CountOne(const std::string& where);
  Status Decode(const VisualInput& input);
  Status DecodePicture(const VisualInput& input, size_t index);
  Status DecodeVideo(const VisualInput& input);
  void Run() {
    for (VisualInput& input : inputs) {
      const Status status = Caught([&] { return Decode(input); });
      Item last;
      last.kind = status.ok() ? Item::Kind::kEndOfPart : Item::Kind::kError;
      last.status = status;
      if (!Show(std::move(last)) || !status.ok()) return;
      input.files.clear();
    }
  }

  SharedVision& vision;
  DecodeLanes::Lane lane;
  std::vector<VisualInput> inputs;
  const std::function<void()> wake;
  int64_t n_pictures = 0;  // and frames
  Clock::duration decoding{};
  std::mutex mutex;
  std::condition_variable changed;
  Item item;                      // under mutex
  std::atomic<bool> stop{false};  // set under mutex
};

Status AboutField(const Status& status, const std::string& path, const std::string& where) {
  if (status.ok()) return status;
  std::string message = status.message();
  const std::string name = "'" + where + "'";
  if (message.starts_with(path + ": ")) message.erase(0, path.size() + 2);
  for (size_t at; (at = message.find(path)) != std::string::npos;) message.replace(at, path.size(), "it");
  // A decoder that exceeded its limits is the request's fault; a missing decoder is the server's.
  const StatusCode code = status.code() == StatusCode::kIo         ? StatusCode::kUnsupported
                          : status.code() == StatusCode::kNotFound ? StatusCode::kIo
                                                                   : status.code();
  return Status(code, name + " cannot be read: " + message);
}

Status VisualFeed::State::CountOne(const std::string& where) {
  const DecodeOptions& options = vision.lanes->options();
  if (++n_pictures > options.max_frames) {
    return InvalidArgument(
        "'{}' exceeds the {} pictures and frames of one request: ask for fewer per second, or send parts", where,
        options.max_frames);
  }
  if (decoding > std::chrono::seconds(options.decode_s)) {
    return InvalidArgument(
        "'{}' takes too long: decoding the pictures and videos of one request may take {} s; "
        "send parts",
        where, options.decode_s);
  }
  return Status();
}

Status VisualFeed::State::DecodePicture(const VisualInput& input, size_t index) {
  const bool is_frame = input.kind == VisualInput::Kind::kFrames;
  const std::string where = is_frame ? input.where + ".frames[" + std::to_string(index) + "]" : input.where;
  WEIR_RETURN_IF_ERROR(CountOne(where));
  WEIR_ASSIGN_OR_RETURN(const MemoryFile file, MemoryFile::Make(input.files[index]));
  const auto image = Timed([&] { return DecodeImage(file.path(), lane.ledger(), vision.lanes->media()); });
  if (!image.ok()) return AboutField(image.status(), file.path(), where);
  Item next;
  next.kind = is_frame ? Item::Kind::kFrame : Item::Kind::kPicture;
  next.picture = {image->rgb(), image->width, image->height};
  if (is_frame) {
    next.t_ms = input.t_ms[index];
    WEIR_RETURN_IF_ERROR(
        AboutField(vision.encoder->Prepare(next.picture, lane.ledger(), lane.prepared()), file.path(), where));
  }
  return Show(std::move(next)) ? Status() : Cancelled("nobody waits for this any more");
}

Status VisualFeed::State::DecodeVideo(const VisualInput& input) {
  WEIR_ASSIGN_OR_RETURN(const MemoryFile file, MemoryFile::Make(input.files[0]));
  const auto about = [&](const Status& status) { return AboutField(status, file.path(), input.where); };
  FrameOptions options;
  options.media = vision.lanes->media();
  options.fps = input.fps;
  options.max_frames = vision.lanes->options().max_frames;
  const int64_t spent_s = std::chrono::duration_cast<std::chrono::seconds>(decoding).count();
  options.cpu_s = std::max<int64_t>(1, vision.lanes->options().decode_s - spent_s);
  auto reader = Timed([&] { return FrameReader::Open(file.path(), lane.ledger(), options); });
  if (!reader.ok()) return about(reader.status());
  Frame frame;
  for (;;) {
    const Result<bool> more = Timed([&] { return (*reader)->Next(&frame, &stop); });
    if (!more.ok()) return about(more.status());
    if (!*more) return Status();
    WEIR_RETURN_IF_ERROR(CountOne(input.where));
    Item next;
    next.kind = Item::Kind::kFrame;
    next.t_ms = frame.t_src_ms;
    next.picture = {frame.rgb, frame.width, frame.height};
    WEIR_RETURN_IF_ERROR(
        about(vision.encoder->Prepare({frame.rgb, frame.width, frame.height}, lane.ledger(), lane.prepared())));
    if (!Show(std::move(next))) return Cancelled("nobody waits for this any more");
  }
}

Status VisualFeed::State::Decode(const VisualInput& input) {
  if (input.kind == VisualInput::Kind::kVideo) return DecodeVideo(input);
  for (size_t i = 0; i < input.files.size(); ++i) WEIR_RETURN_IF_ERROR(DecodePicture(input, i));
  return Status();
}

Result<std::unique_ptr<VisualFeed>> VisualFeed::Start(SharedVision& vision, DecodeLanes::Lane lane, FrameStore& kept,
                                                      Videos videos, EventPictures* pictures,
                                                      std::vector<VisualInput> inputs, std::function<void()> wake) {
  auto state = std::make_shared<State>(vision, std::move(lane), std::move(inputs), std::move(wake));
  try {
    std::thread([state]() mutable {
      state->Run();
      state.reset();
    }).detach();
  } catch (const std::system_error& e) {
    return IoError("cannot start a thread to decode pictures: {}", e.what());
  }
  return std::unique_ptr<VisualFeed>(new VisualFeed(vision, kept, videos, pictures, std::move(state)));
}

VisualFeed::~VisualFeed() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
}

bool VisualFeed::Ready() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->item.kind != Item::Kind::kNone;
}

Status VisualFeed::ReadItem(bool is_frame, const RgbView& picture, int64_t begin_ms, Session& session,
                            const Session::AppendOptions& append) {
  if (!is_frame) {
    WEIR_RETURN_IF_ERROR(kept_.Interrupt(*vision_.encoder, session, append));
    WEIR_RETURN_IF_ERROR(vision_.encoder->Read(picture, Modality::kImage, session, append));
    if (pictures_ != nullptr) pictures_->See(picture);
    ++vision_.counts.pictures_read;
    return Status();
  }
  if (!in_video_ && videos_ == Videos::kWhole) {
    kept_.Forget();
    kept_.BeginAt(begin_ms);
  }
  in_video_ = true;
  WEIR_RETURN_IF_ERROR(kept_.ReadPrepared(*vision_.encoder, state_->lane.prepared(), session, append));
  if (pictures_ != nullptr) pictures_->See(state_->lane.prepared(), {picture.width, picture.height});
  ++vision_.counts.frames_read;
  return Status();
}

Status VisualFeed::EndPart(Session& session, const Session::AppendOptions& append) {
  if (!std::exchange(in_video_, false) || videos_ != Videos::kWhole) return Status();
  WEIR_RETURN_IF_ERROR(kept_.Recall(*vision_.encoder, session, append));
  kept_.Forget();
  return Status();
}

Result<std::optional<int64_t>> VisualFeed::ReadNext(Session& session, const Session::AppendOptions& append) {
  State& state = *state_;
  Item item;
  {
    std::unique_lock<std::mutex> lock(state.mutex);
    state.changed.wait(lock, [&] { return state.item.kind != Item::Kind::kNone; });
    item = state.item;
  }
  if (item.kind == Item::Kind::kError) return item.status;
  Session::AppendOptions here = append;
  Status status;
  if (item.t_ms > kMaxMoment - here.t_src_ms) {
    status = InvalidArgument("streams end at {} ms; this video is longer", kMaxMoment);
  } else {
    here.t_src_ms += item.t_ms;
  }
  if (status.ok()) {
    status = item.kind == Item::Kind::kEndOfPart
                 ? EndPart(session, append)
                 : ReadItem(item.kind == Item::Kind::kFrame, item.picture, append.t_src_ms, session, here);
  }
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.item = Item();
    state.changed.notify_all();
  }
  WEIR_RETURN_IF_ERROR(status);
  if (item.kind == Item::Kind::kEndOfPart) return std::optional<int64_t>();
  return std::optional<int64_t>(here.t_src_ms);
}

}  // namespace weir
