// SPDX-License-Identifier: Apache-2.0
#include "engine/frame_feed.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/caught.h"
#include "media/source.h"

namespace weir {

Result<std::unique_ptr<FrameFeed>> FrameFeed::Start(PictureReader& reader, const std::string& source,
                                                    const Options& options) {
  const int32_t n_waiting = reader.room().n_waiting;
  if (n_waiting < 2) return InvalidArgument("a queue of {} frames; at least 2 are needed", n_waiting);
  std::unique_ptr<FrameFeed> out(new FrameFeed(reader, source, options));
  Ledger& ledger = reader.session().ledger();
  for (int32_t i = 0; i < n_waiting; ++i) {
    Slot& slot = out->slots_.emplace_back();
    WEIR_ASSIGN_OR_RETURN(slot.pixels, HostBuffer::Allocate(ledger, MemTag::kVision, reader.n_prepared() * 4));
    out->free_.push_back(i);
  }
  out->options_.frames.media = reader.Limited(options.frames.media);
  WEIR_RETURN_IF_ERROR(out->Open());
  try {
    out->thread_ = std::thread([feed = out.get()] { feed->Read(); });
  } catch (const std::system_error& e) {  // the system has no thread left
    return IoError("cannot start a thread for {}: {}", source, e.what());
  }
  return out;
}

Status FrameFeed::Open() {
  reader_.reset();  // frees its frame
  if (options_.still) change_.emplace(options_.still->least, options_.still->max_gap_ms);
  WEIR_ASSIGN_OR_RETURN(reader_, FrameReader::Open(source_, pictures_.session().ledger(), options_.frames));
  return Status();
}

FrameFeed::~FrameFeed() {
  stop_ = true;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

int FrameFeed::Claim() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto oldest = std::ranges::find_if(ready_, [](const Waiting& waiting) { return waiting.slot >= 0; });
  if (free_.empty() && options_.drop && oldest != ready_.end()) {
    free_.push_back(oldest->slot);
    const int64_t gap_ms = oldest->gap_ms;
    const auto next = ready_.erase(oldest);
    const auto frame = std::find_if(next, ready_.end(), [](const Waiting& waiting) { return waiting.slot >= 0; });
    (frame == ready_.end() ? gap_ms_ : frame->gap_ms) += gap_ms;
    ++counters_.dropped;
    // Frames that look like it were left out for its sake: they are not those of the frame before it.
    if (next != ready_.end() && next->slot < 0) {
      counters_.still -= next->n_still;
      counters_.dropped += next->n_still;
      ready_.erase(next);
    }
  }
  changed_.wait(lock, [this] { return !free_.empty() || stop_; });
  if (stop_) return -1;
  const int slot = free_.front();
  free_.pop_front();
  return slot;
}

void FrameFeed::Read() {
  Status status = Caught([this] { return ReadOnce(); });
  while (!stop_ && options_.reopen_ms > 0 && last_ms_ >= 0 && IsLiveSource(source_)) {
    if (!OpenAgain(std::move(status))) break;
    status = Caught([this] { return ReadOnce(); });
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  done_ = true;
  if (!stop_) status_ = std::move(status);
  changed_.notify_all();
}

bool FrameFeed::OpenAgain(Status why) {
  if (why.ok()) why = IoError("{} ended", WithoutPassword(source_));
  do {
    std::unique_lock<std::mutex> lock(mutex_);
    trouble_ = std::move(why);
    if (changed_.wait_for(lock, std::chrono::milliseconds(wait_ms_), [this] { return stop_.load(); })) return false;
    lock.unlock();
    wait_ms_ = std::min(2 * wait_ms_, options_.reopen_most_ms);
    why = Open();
  } while (!why.ok());
  return true;
}

Status FrameFeed::ReadOnce() {
  Frame frame;
  for (bool first = true; !stop_; first = false) {
    WEIR_ASSIGN_OR_RETURN(const bool more, reader_->Next(&frame, &stop_));
    if (!more) break;
    wait_ms_ = options_.reopen_ms;
    if (first && last_ms_ < 0) {
      first_at_ = Clock::now();
    } else if (first) {
      // Frames are numbered from 0 again, and the time that passed is that of this machine's clock.
      offset_ms_ = std::max(static_cast<int64_t>(MillisecondsSince(first_at_)), last_ms_ + 1);
      const std::lock_guard<std::mutex> lock(mutex_);
      gap_ms_ += offset_ms_ - last_ms_;
      ++counters_.gaps;
      trouble_ = Status();
    }
    frame.t_src_ms += offset_ms_;
    last_ms_ = frame.t_src_ms;
    if (change_ && !change_->Use(frame.rgb, frame.width, frame.height, frame.t_src_ms)) {
      PassOver(frame.t_src_ms);
      continue;
    }
    const int slot = Claim();
    if (slot < 0) break;
    slots_[static_cast<size_t>(slot)].t_src_ms = frame.t_src_ms;
    slots_[static_cast<size_t>(slot)].source = {frame.width, frame.height};
    WEIR_RETURN_IF_ERROR(pictures_.Prepare({frame.rgb, frame.width, frame.height},
                                           slots_[static_cast<size_t>(slot)].pixels.as<float>()));
    const std::lock_guard<std::mutex> lock(mutex_);
    ++counters_.arrived;
    ready_.push_back({.slot = slot, .gap_ms = std::exchange(gap_ms_, 0)});
    changed_.notify_all();
  }
  return Status();
}

void FrameFeed::PassOver(int64_t t_src_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++counters_.arrived;
  ++counters_.still;
  if (ready_.empty() || ready_.back().slot >= 0) ready_.push_back({});
  ++ready_.back().n_still;
  ready_.back().t_src_ms = t_src_ms;
  changed_.notify_all();
}

bool FrameFeed::Take(Prepared* frame, int64_t wait_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (taken_ >= 0) {
    free_.push_back(std::exchange(taken_, -1));
    changed_.notify_all();
  }
  changed_.wait_for(lock, std::chrono::milliseconds(wait_ms), [this] { return !ready_.empty() || done_; });
  if (ready_.empty()) return false;
  const Waiting next = ready_.front();
  ready_.pop_front();
  if (next.slot < 0) {
    *frame = {next.t_src_ms, nullptr, next.n_still, 0, {}};
    return true;
  }
  taken_ = next.slot;
  const Slot& slot = slots_[static_cast<size_t>(taken_)];
  *frame = {slot.t_src_ms, slot.pixels.as<float>(), 0, next.gap_ms, slot.source};
  return true;
}

Status FrameFeed::TakeTrouble() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(trouble_, Status());
}

bool FrameFeed::ended() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return done_ && ready_.empty();
}

Status FrameFeed::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

FrameFeed::Counters FrameFeed::counters() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Counters out = counters_;
  out.waiting = std::ranges::count_if(ready_, [](const Waiting& waiting) { return waiting.slot >= 0; });
  return out;
}

}  // namespace weir
