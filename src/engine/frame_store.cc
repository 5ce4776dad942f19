// SPDX-License-Identifier: Apache-2.0
#include "engine/frame_store.h"

#include <cstring>

#include "engine/picture_parts.h"

namespace weir {
namespace {

constexpr char kFrameStoreMagic[8] = {'w', 'e', 'i', 'r', 'f', 'r', '0', '1'};

struct StateHeader {
  char magic[8];
  int64_t newest_ms;
};

Status ReadHeader(ByteSource& source, StateHeader* header) {
  WEIR_RETURN_IF_ERROR(source.Read(BytesOf(std::span(header, 1))));
  const bool ours = std::memcmp(header->magic, kFrameStoreMagic, sizeof(kFrameStoreMagic)) == 0 &&
                    header->newest_ms >= -kMostFrameMs && header->newest_ms <= kMostFrameMs;
  return ours ? Status() : NotSavedFrames();
}

}  // namespace

std::vector<PlanItem> FrameStore::Plan(const Encoder& encoder) {
  if (const int64_t bytes = encoder.FrameMemoryBytes(); bytes > 0) {
    return {{MemTag::kVision, "what is kept of a video's frames", PageRound(bytes)}};
  }
  if (const int64_t bytes = FramePairs::Bytes(encoder); bytes > 0) {
    return {{MemTag::kVision, "a frame that waits for the next one", PageRound(bytes)}};
  }
  return {};
}

Result<std::unique_ptr<FrameStore>> FrameStore::Make(Encoder& encoder, Ledger& ledger) {
  std::unique_ptr<FrameStore> out(new FrameStore);
  if (const int64_t bytes = encoder.FrameMemoryBytes(); bytes > 0) {
    WEIR_ASSIGN_OR_RETURN(out->bytes_, HostBuffer::Allocate(ledger, MemTag::kVision, bytes));
    out->memory_ = encoder.MakeFrameMemory(out->bytes_.data());
  } else if (const int64_t one = FramePairs::Bytes(encoder); one > 0) {
    WEIR_ASSIGN_OR_RETURN(out->bytes_, HostBuffer::Allocate(ledger, MemTag::kVision, one));
    out->pairs_ = std::make_unique<FramePairs>(encoder, out->bytes_.as<float>());
  }
  return out;
}

Status FrameStore::Took(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append) {
  newest_ms_ = append.t_src_ms;
  if (pairs_ == nullptr || !append.end_of_prompt) return Status();
  return fresh() ? Recall(pictures, session, append) : session.Append({}, append);
}

Status FrameStore::MakeRoom(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append) {
  if (!memory_->full()) return Status();
  Session::AppendOptions inside = append;
  inside.end_of_prompt = false;  // more frames follow
  return Recall(pictures, session, inside);
}

Status FrameStore::Read(PictureEncoder& pictures, const RgbView& frame, Session& session,
                        const Session::AppendOptions& append) {
  if (!keeps()) return pictures.Read(frame, Modality::kVideo, session, append);
  if (pairs_ != nullptr) {
    WEIR_RETURN_IF_ERROR(pairs_->Take(pictures, frame, session, append));
    return Took(pictures, session, append);
  }
  WEIR_RETURN_IF_ERROR(MakeRoom(pictures, session, append));
  WEIR_RETURN_IF_ERROR(pictures.images().TakeFrame(frame, *memory_));
  return Took(pictures, session, append);
}

Status FrameStore::ReadPrepared(PictureEncoder& pictures, const float* frame, Session& session,
                                const Session::AppendOptions& append) {
  if (!keeps()) return pictures.ReadPrepared(frame, Modality::kVideo, session, append);
  if (pairs_ != nullptr) {
    WEIR_RETURN_IF_ERROR(pairs_->TakePrepared(pictures, frame, session, append));
    return Took(pictures, session, append);
  }
  WEIR_RETURN_IF_ERROR(MakeRoom(pictures, session, append));
  pictures.images().TakePixels(frame, *memory_);
  return Took(pictures, session, append);
}

Status FrameStore::Recall(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append) {
  if (!fresh()) return Status();
  Session::AppendOptions here = append;
  here.t_src_ms = newest_ms_;
  if (pairs_ != nullptr) return pairs_->Close(pictures, session, here);
  const std::span<const float> rows = pictures.images().Recall(*memory_);
  return AppendParts(pictures.config(), pictures.images().parts(), rows, Modality::kVideo, session, here);
}

Status FrameStore::Settle(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append) {
  return pairs_ == nullptr ? Status() : pairs_->Settle(pictures, session, append);
}

void FrameStore::BeginAt(int64_t t_ms) {
  if (pairs_ != nullptr) pairs_->BeginAt(t_ms);
}

void FrameStore::Forget() {
  if (memory_ != nullptr) memory_->Clear();
  if (pairs_ != nullptr) pairs_->Forget();
  newest_ms_ = 0;
}

int64_t FrameStore::state_bytes() const {
  if (!keeps() || (memory_ != nullptr ? memory_->empty() : pairs_->empty())) return 0;
  return static_cast<int64_t>(sizeof(StateHeader)) +
         (memory_ != nullptr ? memory_->state_bytes() : pairs_->state_bytes());
}

Status FrameStore::Save(ByteSink& sink) const {
  if (state_bytes() == 0) return Status();
  StateHeader header = {};
  std::memcpy(header.magic, kFrameStoreMagic, sizeof(kFrameStoreMagic));
  header.newest_ms = newest_ms_;
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span<const StateHeader>(&header, 1))));
  return memory_ != nullptr ? memory_->Save(sink) : pairs_->Save(sink);
}

Status FrameStore::Check(ByteSource& source) {
  if (source.n_left() == 0) return Status();
  if (!keeps()) return NotSavedFrames();
  StateHeader header;
  WEIR_RETURN_IF_ERROR(ReadHeader(source, &header));
  WEIR_RETURN_IF_ERROR(memory_ != nullptr ? memory_->Check(source) : pairs_->Check(source));
  return source.n_left() == 0 ? Status() : NotSavedFrames();
}

Status FrameStore::Restore(ByteSource& source) {
  Forget();
  if (source.n_left() == 0) return Status();
  if (!keeps()) return NotSavedFrames();
  StateHeader header;
  WEIR_RETURN_IF_ERROR(ReadHeader(source, &header));
  Status status = memory_ != nullptr ? memory_->Restore(source) : pairs_->Restore(source);
  if (status.ok() && source.n_left() != 0) status = NotSavedFrames();
  if (!status.ok()) {
    Forget();
    return status;
  }
  newest_ms_ = header.newest_ms;
  return Status();
}

void FrameStore::CopyFrom(const FrameStore& other) {
  if (memory_ != nullptr && other.memory_ != nullptr) memory_->CopyFrom(*other.memory_);
  if (pairs_ != nullptr && other.pairs_ != nullptr) pairs_->CopyFrom(*other.pairs_);
  newest_ms_ = other.newest_ms_;
}

}  // namespace weir
