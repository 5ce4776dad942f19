// SPDX-License-Identifier: Apache-2.0
#include "serve/frame_queue.h"

#include <algorithm>

namespace weir {

int64_t FrameQueue::Bytes(const EncoderConfig& config, int n_waiting) {
  return (n_waiting + 2) * PageRound(InputFloats(config.transform) * 4);
}

Result<std::shared_ptr<FrameQueue>> FrameQueue::Make(SharedVision& vision, int n_waiting, Ledger& ledger) {
  const int64_t bytes = Bytes(vision.encoder->config(), n_waiting);
  std::shared_ptr<FrameQueue> out(new FrameQueue(vision, bytes));
  WEIR_ASSIGN_OR_RETURN(out->reservation_, ledger.Reserve(MemTag::kVision, bytes));
  out->slots_.resize(static_cast<size_t>(n_waiting) + 2);
  for (size_t i = 0; i < out->slots_.size(); ++i) {
    WEIR_ASSIGN_OR_RETURN(out->slots_[i].pixels,
                          HostBuffer::Allocate(out->ledger_, MemTag::kVision, vision.encoder->n_prepared() * 4));
    out->free_.push_back(i);
  }
  return out;
}

void FrameQueue::GoOnFrom(const FrameCounters& before) {
  const std::lock_guard<std::mutex> lock(mutex_);
  counters_ = before;
  counters_.dropped += std::exchange(counters_.waiting, 0);
}

int64_t FrameQueue::Enter() {
  const std::lock_guard<std::mutex> lock(mutex_);
  undecoded_.push_back(next_number_);
  if (std::ssize(undecoded_) > n_waiting()) {
    undecoded_.pop_front();
    ++counters_.arrived;
    ++counters_.dropped;
    ++vision_.counts.frames_arrived;
    ++vision_.counts.frames_dropped;
  }
  return next_number_++;
}

bool FrameQueue::Waits(int64_t number) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::find(undecoded_.begin(), undecoded_.end(), number) != undecoded_.end();
}

bool FrameQueue::Leave(int64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::erase(undecoded_, number) > 0;
}

Status FrameQueue::Push(const RgbView& frame, int64_t t_ms, Ledger& work, bool* start) {
  *start = false;
  const std::lock_guard<std::mutex> one(arriving_);
  size_t slot = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) return std::exchange(status_, Status());
    if (t_ms < counters_.t_ms) {
      return InvalidArgument("'t_ms' goes back in time: the last frame was at {}", counters_.t_ms);
    }
    if (waiting_.size() + 2 == slots_.size()) {  // drop the oldest; one slot is the engine's, one ours
      free_.push_back(waiting_.front());
      waiting_.pop_front();
      ++counters_.dropped;
      ++vision_.counts.frames_dropped;
    }
    slot = free_.front();
    free_.pop_front();
  }
  const Status ready = vision_.encoder->Prepare(frame, work, slots_[slot].pixels.as<float>());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!ready.ok()) {
    free_.push_back(slot);
    return ready;
  }
  slots_[slot].t_ms = t_ms;
  slots_[slot].source = {frame.width, frame.height};
  counters_.t_ms = t_ms;
  ++counters_.arrived;
  ++vision_.counts.frames_arrived;
  waiting_.push_back(slot);
  *start = !read_;
  read_ = true;
  return Status();
}

Result<std::optional<int64_t>> FrameQueue::Read(FrameStore& kept, Session& session,
                                                const Session::AppendOptions& append, EventPictures* pictures) {
  size_t slot = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (waiting_.empty()) return std::optional<int64_t>();
    slot = waiting_.front();
    waiting_.pop_front();
  }
  Session::AppendOptions here = append;
  here.t_src_ms = slots_[slot].t_ms;
  const Status status = kept.ReadPrepared(*vision_.encoder, slots_[slot].pixels.as<float>(), session, here);
  if (status.ok() && pictures != nullptr) pictures->See(slots_[slot].pixels.as<float>(), slots_[slot].source);
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(slot);
  if (!status.ok()) {
    ++counters_.dropped;
    ++vision_.counts.frames_dropped;
    return status;
  }
  ++counters_.read;
  ++vision_.counts.frames_read;
  return std::optional<int64_t>(here.t_src_ms);
}

bool FrameQueue::Pause(const Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!status.ok()) {
    status_ = status;
    counters_.dropped += std::ssize(waiting_);
    vision_.counts.frames_dropped += std::ssize(waiting_);
    free_.insert(free_.end(), waiting_.begin(), waiting_.end());
    waiting_.clear();
  }
  read_ = !waiting_.empty();
  return read_;
}

FrameCounters FrameQueue::counters() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  FrameCounters out = counters_;
  out.waiting = std::ssize(waiting_);
  return out;
}

}  // namespace weir
