// SPDX-License-Identifier: Apache-2.0
#include "engine/frame_store.h"

#include <cstring>

#include "engine/picture_parts.h"

namespace weir {
namespace {

constexpr char kFrameStoreMagic[8] = {'w', 'e', 'i', 'r', 'f', 'r', '0', '1'};
constexpr int64_t kMostMs = int64_t{1} << 60;  // the sum of two times does not overflow

struct StateHeader {
  char magic[8];
  int64_t newest_ms;
};

Status NotOurs() { return InvalidArgument("these bytes are not the saved frames of this encoder"); }

Status ReadHeader(ByteSource& source, StateHeader* header) {
  WEIR_RETURN_IF_ERROR(source.Read(BytesOf(std::span(header, 1))));
  const bool ours = std::memcmp(header->magic, kFrameStoreMagic, sizeof(kFrameStoreMagic)) == 0 &&
                    header->newest_ms >= -kMostMs && header->newest_ms <= kMostMs;
  return ours ? Status() : NotOurs();
}

}  // namespace

std::vector<PlanItem> FrameStore::Plan(const Encoder& encoder) {
  const int64_t bytes = encoder.FrameMemoryBytes();
  if (bytes == 0) return {};
  return {{MemTag::kVision, "what is kept of a video's frames", PageRound(bytes)}};
}

Result<std::unique_ptr<FrameStore>> FrameStore::Make(Encoder& encoder, Ledger& ledger) {
  std::unique_ptr<FrameStore> out(new FrameStore);
  if (const int64_t bytes = encoder.FrameMemoryBytes(); bytes > 0) {
    WEIR_ASSIGN_OR_RETURN(out->bytes_, HostBuffer::Allocate(ledger, MemTag::kVision, bytes));
    out->memory_ = encoder.MakeFrameMemory(out->bytes_.data());
  }
  return out;
}

Status FrameStore::MakeRoom(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append) {
  if (!memory_->full()) return Status();
  Session::AppendOptions inside = append;
  inside.end_of_prompt = false;  // more frames follow
  return Recall(pictures, session, inside);
}

Status FrameStore::Read(PictureEncoder& pictures, const RgbView& frame, Session& session,
                        const Session::AppendOptions& append) {
  if (memory_ == nullptr) return pictures.Read(frame, Modality::kVideo, session, append);
  WEIR_RETURN_IF_ERROR(MakeRoom(pictures, session, append));
  WEIR_RETURN_IF_ERROR(pictures.images().TakeFrame(frame, *memory_));
  newest_ms_ = append.t_src_ms;
  return Status();
}

Status FrameStore::ReadPrepared(PictureEncoder& pictures, const float* frame, Session& session,
                                const Session::AppendOptions& append) {
  if (memory_ == nullptr) return pictures.ReadPrepared(frame, Modality::kVideo, session, append);
  WEIR_RETURN_IF_ERROR(MakeRoom(pictures, session, append));
  pictures.images().TakePixels(frame, *memory_);
  newest_ms_ = append.t_src_ms;
  return Status();
}

Status FrameStore::Recall(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append) {
  if (!fresh()) return Status();
  Session::AppendOptions here = append;
  here.t_src_ms = newest_ms_;
  const std::span<const float> rows = pictures.images().Recall(*memory_);
  return AppendParts(pictures.config(), pictures.images().parts(), rows, Modality::kVideo, session, here);
}

void FrameStore::Forget() {
  if (memory_ != nullptr) memory_->Clear();
  newest_ms_ = 0;
}

int64_t FrameStore::state_bytes() const {
  if (memory_ == nullptr || memory_->empty()) return 0;
  return static_cast<int64_t>(sizeof(StateHeader)) + memory_->state_bytes();
}

Status FrameStore::Save(ByteSink& sink) const {
  if (state_bytes() == 0) return Status();
  StateHeader header = {};
  std::memcpy(header.magic, kFrameStoreMagic, sizeof(kFrameStoreMagic));
  header.newest_ms = newest_ms_;
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span<const StateHeader>(&header, 1))));
  return memory_->Save(sink);
}

Status FrameStore::Check(ByteSource& source) {
  if (source.n_left() == 0) return Status();
  if (memory_ == nullptr) return NotOurs();
  StateHeader header;
  WEIR_RETURN_IF_ERROR(ReadHeader(source, &header));
  WEIR_RETURN_IF_ERROR(memory_->Check(source));
  return source.n_left() == 0 ? Status() : NotOurs();
}

Status FrameStore::Restore(ByteSource& source) {
  Forget();
  if (source.n_left() == 0) return Status();
  if (memory_ == nullptr) return NotOurs();
  StateHeader header;
  WEIR_RETURN_IF_ERROR(ReadHeader(source, &header));
  Status status = memory_->Restore(source);
  if (status.ok() && source.n_left() != 0) status = NotOurs();
  if (!status.ok()) {
    Forget();
    return status;
  }
  newest_ms_ = header.newest_ms;
  return Status();
}

void FrameStore::CopyFrom(const FrameStore& other) {
  if (memory_ != nullptr && other.memory_ != nullptr) memory_->CopyFrom(*other.memory_);
  newest_ms_ = other.newest_ms_;
}

}  // namespace weir
