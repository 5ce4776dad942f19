// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// Chat-UniVi ("Chat-UniVi: Unified Visual Representation Empowers Large Language Models with Image and Video
// Understanding", 2311.08046, section 3.1 and 3.2): CLIP, its patches' rows merged to fewer and fewer clusters
// (vision/dpc_knn.h), all levels in sequence, through one matrix. A video's frames are first clustered into events by
// the means of their rows, and the clusters of an event's frames are merged again, so that every event is as many rows
// as a picture.
//
// The published code reads at most 64 frames of a video. Here a longer one is read in parts of that many.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "base/workspace.h"
#include "model/weights.h"
#include "vision/clip_tower.h"
#include "vision/dpc_knn.h"
#include "vision/encoder.h"

namespace weir {
namespace {

constexpr int kLevels = 3;
constexpr int64_t kNeighbours[kLevels] = {5, 3, 3};
constexpr int64_t kEventNeighbours = 5;
constexpr int64_t kMostRows = 1 << 16;

// Published code: fewer neighbours if there are few clusters.
int64_t Neighbours(int64_t k, int64_t n_clusters) {
  return k > n_clusters ? std::min<int64_t>(3, std::max<int64_t>(n_clusters / 2, 1)) : k;
}

class ChatUnivi final : public Encoder {
 public:
  explicit ChatUnivi(Backend& backend) : Encoder(backend) {}

  Status Load(const GgufFile& file, Ledger& ledger);
  int64_t WorkspaceBytes() const override {
    Workspace space(nullptr);
    LayOut(&space);
    return space.used();
  }
  void Encode(const EncodeArgs& args) override;
  int64_t FrameMemoryBytes() const override;
  std::unique_ptr<FrameMemory> MakeFrameMemory(uint8_t* memory) override;

 private:
  friend class EventMemory;
  struct Buffers {
    ClipTower::Buffers tower;
    float* merged;     // [n_rows, d]: all levels
    int32_t* cluster;  // [n_patches]
    void* scratch;
  };
  Buffers LayOut(Workspace* space) const {
    Buffers b;
    b.tower = tower_.LayOut(backend_, tower_.n_embd(), 0, space);
    b.merged = space->Floats(config_.n_rows * tower_.n_embd());
    b.cluster = reinterpret_cast<int32_t*>(space->Bytes(tower_.n_patches() * 4));
    b.scratch = space->Bytes(ClusterScratchBytes(tower_.n_patches(), levels_[0]));
    return b;
  }
  Status ReadMetadata(const GgufFile& file);
  // Writes a picture's rows of every level, in sequence, to b.merged; returns the patches' rows.
  const float* Merge(const EncodeArgs& args, const Buffers& b) const;
  void Project(const Buffers& b, const float* rows, int64_t n, const EncodeArgs& args) const;

  ClipTower tower_;
  int64_t levels_[kLevels] = {};                 // clusters of each, decreasing
  int64_t frames_per_event_ = 0, n_buffer_ = 0;  // n_buffer_: the most frames that are read together
  LinearWeights projection_;
};

class EventMemory final : public FrameMemory {
 public:
  EventMemory(const ChatUnivi& encoder, uint8_t* memory) : m_(encoder) {
    Workspace space(memory);
    LayOut(&space);
  }
  static int64_t Bytes(const ChatUnivi& encoder) {
    EventMemory plan(encoder, nullptr);
    Workspace space(nullptr);
    plan.LayOut(&space);
    return space.used();
  }

  void Take(const EncodeArgs& args) override;
  int32_t n_rows() const override {
    return static_cast<int32_t>((n_frames_ <= 2 ? n_frames_ : Events()) * m_.config().n_rows);
  }
  bool full() const override { return n_frames_ == m_.n_buffer_; }
  void Recall(const EncodeArgs& args) override;

 protected:
  Progress progress() const override { return {n_frames_, n_frames_ > 0}; }
  bool Become(const Progress& progress) override;
  std::vector<Numbers> InUse() const override;

 private:
  void LayOut(Workspace* space) {
    const int64_t d = m_.tower_.n_embd(), most = m_.n_buffer_ * m_.levels_[0];
    frames_ = space->Floats(m_.n_buffer_ * m_.config().n_rows * d);
    means_ = space->Floats(m_.n_buffer_ * d);
    rows_ = space->Floats(m_.config().n_recalled * d);
    together_ = space->Floats(most * d);
    event_ = reinterpret_cast<int32_t*>(space->Bytes(m_.n_buffer_ * 4));
    cluster_ = reinterpret_cast<int32_t*>(space->Bytes(most * 4));
    scratch_ = space->Bytes(ClusterScratchBytes(most, std::max(m_.levels_[0], m_.n_buffer_)));
  }
  int64_t Events() const { return (n_frames_ + m_.frames_per_event_ - 1) / m_.frames_per_event_; }

  const ChatUnivi& m_;
  int64_t n_frames_ = 0;
  float* frames_ = nullptr;    // [n_buffer, n_rows, d]: every frame's rows of all levels
  float* means_ = nullptr;     // [n_buffer, d], of the patches
  float* rows_ = nullptr;      // [n_recalled, d]
  float* together_ = nullptr;  // [n_buffer * levels[0], d]: a level's rows of an event's frames
  int32_t *event_ = nullptr, *cluster_ = nullptr;
  void* scratch_ = nullptr;
};

bool EventMemory::Become(const Progress& progress) {
  if (progress.n_taken < 0 || progress.n_taken > m_.n_buffer_ || progress.fresh != (progress.n_taken > 0)) return false;
  n_frames_ = progress.n_taken;
  return true;
}

std::vector<FrameMemory::Numbers> EventMemory::InUse() const {
  const int64_t d = m_.tower_.n_embd();
  return {{{frames_, static_cast<size_t>(n_frames_ * m_.config().n_rows * d)}, {}},
          {{means_, static_cast<size_t>(n_frames_ * d)}, {}}};
}

void EventMemory::Take(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const ChatUnivi::Buffers b = m_.LayOut(&space);
  const int64_t d = m_.tower_.n_embd(), n = m_.tower_.n_patches(), n_rows = m_.config().n_rows;
  const float* patches = m_.Merge(args, b);
  std::memcpy(frames_ + n_frames_ * n_rows * d, b.merged, static_cast<size_t>(n_rows * d) * 4);
  float* const mean = means_ + n_frames_ * d;
  for (int64_t j = 0; j < d; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += patches[i * d + j];
    mean[j] = static_cast<float>(sum / static_cast<double>(n));
  }
  ++n_frames_;
}

void EventMemory::Recall(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const ChatUnivi::Buffers b = m_.LayOut(&space);
  const int64_t d = m_.tower_.n_embd(), n_frame = m_.config().n_rows, n = n_rows();
  if (n_frames_ <= 2) {  // read as pictures
    std::memcpy(rows_, frames_, static_cast<size_t>(n * d) * 4);
  } else {
    const int64_t n_events = Events();
    ClusterRows(means_, n_frames_, d, n_events, Neighbours(kEventNeighbours, n_events), event_, scratch_);
    float* to = rows_;
    // Events in the order in which they begin.
    for (int64_t first = 0; first < n_frames_; ++first) {
      if (std::find(event_, event_ + first, event_[first]) != event_ + first) continue;
      for (int64_t level = 0, before = 0; level < kLevels; before += m_.levels_[level++]) {
        const int64_t n_level = m_.levels_[level];
        int64_t n_together = 0;
        for (int64_t t = first; t < n_frames_; ++t) {
          if (event_[t] != event_[first]) continue;
          std::memcpy(together_ + n_together * d, frames_ + (t * n_frame + before) * d,
                      static_cast<size_t>(n_level * d) * 4);
          n_together += n_level;
        }
        ClusterRows(together_, n_together, d, n_level, Neighbours(kNeighbours[level], n_level), cluster_, scratch_);
        MergeRows(together_, n_together, d, cluster_, n_level, to);
        to += n_level * d;
      }
    }
  }
  if (args.observer != nullptr) (*args.observer)("mm.merged", n, d, rows_);
  m_.Project(b, rows_, n, args);
  n_frames_ = 0;
}

Status ChatUnivi::ReadMetadata(const GgufFile& file) {
  const std::string key = "clip.vision.frames.";
  config_.projector = "chat_univi";
  WEIR_ASSIGN_OR_RETURN(config_.name, file.StringOr("general.name", ""));
  WEIR_RETURN_IF_ERROR(tower_.ReadMetadata(file, &config_.transform));
  const std::vector<int64_t>* levels = file.IntArray(key + "clusters");
  bool sane = levels != nullptr && levels->size() == kLevels;
  int64_t most = tower_.n_patches(), n = 0;
  for (int i = 0; sane && i < kLevels; n += levels_[i++]) {
    levels_[i] = (*levels)[static_cast<size_t>(i)];
    sane = levels_[i] >= 1 && levels_[i] <= most;
    most = levels_[i];
  }
  if (!sane) {
    return Corrupt("{}: {}clusters must be three numbers that fall from at most {}", file.path(), key,
                   tower_.n_patches());
  }
  WEIR_ASSIGN_OR_RETURN(frames_per_event_, BoundedInt(file, key + "per_event", 1, 1 << 12));
  WEIR_ASSIGN_OR_RETURN(n_buffer_, BoundedInt(file, key + "buffer_count", 3, 1 << 12));
  const int64_t n_events = std::max<int64_t>(2, (n_buffer_ + frames_per_event_ - 1) / frames_per_event_);
  if (n * n_events > kMostRows) {
    return Unsupported("{}: {} rows of {} frames; 65,536 are possible", file.path(), n * n_events, n_buffer_);
  }
  config_.n_rows = static_cast<int32_t>(n);
  config_.n_recalled = static_cast<int32_t>(n * n_events);
  return Status();
}

Status ChatUnivi::Load(const GgufFile& file, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(ReadMetadata(file));
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(tower_.Load(file, loader));
  const GgufTensor* projection = file.Tensor("mm.0.weight");
  const int64_t n_out = projection == nullptr ? 1 : projection->shape.front();
  if (n_out > (1 << 17)) {
    return Corrupt("{}: a projection to {} columns", file.path(), n_out);
  }
  config_.n_embd = static_cast<int32_t>(n_out);
  WEIR_RETURN_IF_ERROR(loader.Load("mm.0", n_out, tower_.n_embd(), &projection_));
  return loader.Finish();
}

const float* ChatUnivi::Merge(const EncodeArgs& args, const Buffers& b) const {
  const int64_t d = tower_.n_embd();
  const float* const patches = tower_.Run(backend_, b.tower, args.pixels, args.observer);
  const float* from = patches;
  float* to = b.merged;
  for (int64_t level = 0, n = tower_.n_patches(); level < kLevels; n = levels_[level++]) {
    const int64_t n_level = levels_[level];
    ClusterRows(from, n, d, n_level, Neighbours(kNeighbours[level], n_level), b.cluster, b.scratch);
    MergeRows(from, n, d, b.cluster, n_level, to);
    from = to;
    to += n_level * d;
  }
  return patches;
}

void ChatUnivi::Project(const Buffers& b, const float* rows, int64_t n, const EncodeArgs& args) const {
  const int64_t d = tower_.n_embd(), n_out = config_.n_embd, most = tower_.n_patches();
  for (int64_t from = 0; from < n; from += most) {
    LinearRows(backend_, rows + from * d, std::min(most, n - from), d, projection_, false, args.out + from * n_out,
               b.tower.blocks.scratch);
  }
  if (args.observer != nullptr) (*args.observer)("mm.0", n, n_out, args.out);
}

void ChatUnivi::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Buffers b = LayOut(&space);
  Merge(args, b);
  if (args.observer != nullptr) (*args.observer)("mm.merged", config_.n_rows, tower_.n_embd(), b.merged);
  Project(b, b.merged, config_.n_rows, args);
}

int64_t ChatUnivi::FrameMemoryBytes() const { return EventMemory::Bytes(*this); }

std::unique_ptr<FrameMemory> ChatUnivi::MakeFrameMemory(uint8_t* memory) {
  return std::make_unique<EventMemory>(*this, memory);
}

}  // namespace

extern const EncoderInfo kChatUnivi;
const EncoderInfo kChatUnivi = {
    .name = "chat_univi",
    .projector = "chat_univi",
    .models = "Chat-UniVi (CLIP, patches and frames merged to clusters)",
    .load = LoadEncoderAs<ChatUnivi>,
    .host_only = true,
};

}  // namespace weir
