// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// Flash-VStream ("Flash-VStream: Memory-Based Real-Time Understanding for Long Video Streams", 2406.08085,
// section 3.2): CLIP, and the STAR memory of a video's frames in front of LLaVA's projector. Of every frame t, whose
// patches' rows are averaged to grids of different sizes,
//
//   spatial    the newest frames, at the finest grid
//   temporal   centroids c_j, of w_j frames each: weighted k-means of the centroids so far and the new frame
//   abstract   m = (1 - a) m + a softmax(W_q m . W_k e / sqrt(n)) e: rows that drift towards what they attend to
//   retrieved  of the frames not yet forgotten those nearest to the centroids of the largest clusters, at the finest
//   grid
//
// and a question reads abstract, temporal, retrieved, spatial: the same number of rows after a minute or a day. A
// picture is read at the finest grid.
//
// The paper leaves open how k-means begins and what an empty cluster becomes; published code draws both at random. Here
// it begins with all rows but one, that one being the lighter of the pair whose merging costs least (Ward), and an
// empty cluster stays where it was, with weight 0. Clusters weigh what they hold, as in the paper; published code for
// streams counts every centroid as one frame again, and looks retrieved frames up by the cluster's number.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "base/workspace.h"
#include "model/weights.h"
#include "vision/clip_tower.h"
#include "vision/encoder.h"

namespace weir {
namespace {

constexpr int kMostSteps = 10;         // of k-means
constexpr double kTolerance = 1e-4;    // k-means stops when all centroids together move less than this
constexpr double kClearly = 1 - 1e-4;  // a smaller difference of squared distances is rounding error
constexpr int64_t kMostRows = 1 << 16;
constexpr int64_t kMostFrames = int64_t{1} << 50;  // that a restored stream may have: counting continues from it

// Averages squares of [from, from, d] to [to, to, d].
void Pool(const float* x, int64_t from, int64_t to, int64_t d, float* out) {
  const int64_t side = from / to;
  const float share = 1.0f / static_cast<float>(side * side);
  for (int64_t i = 0; i < to * to; ++i, out += d) {
    std::fill_n(out, d, 0.0f);
    for (int64_t s = 0; s < side * side; ++s) {
      const float* row = x + ((i / to * side + s / side) * from + i % to * side + s % side) * d;
      for (int64_t j = 0; j < d; ++j) out[j] += row[j];
    }
    for (int64_t j = 0; j < d; ++j) out[j] *= share;
  }
}

double Distance2(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

class FlashVstream final : public Encoder {
 public:
  explicit FlashVstream(Backend& backend) : Encoder(backend) {}

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
  friend class StarMemory;
  struct Part {
    int64_t side = 0, n = 0;  // rows along a side of a frame's grid; number of frames or of their centroids
    int64_t rows() const { return side * side; }
  };
  struct Buffers {
    ClipTower::Buffers tower;
    float* pooled;  // [spatial rows, d]
  };
  Buffers LayOut(Workspace* space) const {
    Buffers b;
    b.tower = tower_.LayOut(backend_, n_hidden_, n_hidden_, space);
    b.pooled = space->Floats(spatial_.rows() * tower_.n_embd());
    return b;
  }
  Status ReadMetadata(const GgufFile& file);
  // Rows of CLIP's width -> rows of the language model's.
  void Project(const Buffers& b, const float* rows, int64_t n, const EncodeArgs& args) const;
  void ProjectQuery(const Buffers& b, const LinearWeights& w, const float* rows, int64_t n, float* out) const {
    LinearRows(backend_, rows, n, tower_.n_embd(), w, false, out, b.tower.blocks.scratch);
  }

  ClipTower tower_;
  int64_t n_hidden_ = 0;  // columns between the projector's two layers
  Part spatial_, temporal_, abstract_;
  int64_t n_retrieved_ = 0, n_buffer_ = 0, n_key_ = 0;  // frames; frames not yet forgotten; columns of queries and keys
  float update_ratio_ = 0;
  LinearWeights mm0_, mm2_, wq_, wk_;
};

class StarMemory final : public FrameMemory {
 public:
  StarMemory(const FlashVstream& encoder, uint8_t* memory) : m_(encoder) {
    Workspace space(memory);
    LayOut(&space);
  }
  static int64_t Bytes(const FlashVstream& encoder) {
    StarMemory plan(encoder, nullptr);
    Workspace space(nullptr);
    plan.LayOut(&space);
    return space.used();
  }

  void Take(const EncodeArgs& args) override;
  int32_t n_rows() const override {
    if (!fresh_) return 0;
    return static_cast<int32_t>(n_abstract_ * m_.abstract_.rows() + n_temporal_ * m_.temporal_.rows() +
                                (Retrieved() + Spatial()) * m_.spatial_.rows());
  }
  bool full() const override { return false; }
  void Recall(const EncodeArgs& args) override;

 protected:
  Progress progress() const override { return {n_seen_, fresh_}; }
  bool Become(const Progress& progress) override;
  std::vector<Numbers> InUse() const override;

 private:
  void LayOut(Workspace* space) {
    const int64_t d = m_.tower_.n_embd();
    frames_ = space->Floats(m_.n_buffer_ * m_.spatial_.rows() * d);
    temporal_ = space->Floats((m_.temporal_.n + 1) * temporal_cols());
    next_ = space->Floats(m_.temporal_.n * temporal_cols());
    weight_ = reinterpret_cast<double*>(space->Bytes((m_.temporal_.n + 1) * 8));
    next_weight_ = reinterpret_cast<double*>(space->Bytes(m_.temporal_.n * 8));
    label_ = reinterpret_cast<int32_t*>(space->Bytes((m_.temporal_.n + 1) * 4));
    abstract_ = space->Floats((m_.abstract_.n + 1) * m_.abstract_.rows() * d);  // the new frame last
    query_ = space->Floats(m_.abstract_.n * m_.abstract_.rows() * m_.n_key_);
    key_ = space->Floats(m_.abstract_.rows() * m_.n_key_);
    share_ = space->Floats(m_.abstract_.rows());
    rows_ = space->Floats(m_.config().n_recalled * d);
  }
  int64_t temporal_cols() const { return m_.temporal_.rows() * m_.tower_.n_embd(); }
  int64_t Buffered() const { return std::min(n_seen_, m_.n_buffer_); }
  int64_t Spatial() const { return std::min(n_seen_, m_.spatial_.n); }
  // A single frame is not shown twice.
  int64_t Retrieved() const { return n_seen_ < 2 ? 0 : std::min(n_temporal_, m_.n_retrieved_); }
  // Frame t of the stream, one of the newest n_buffer.
  float* Frame(int64_t t) const { return frames_ + t % m_.n_buffer_ * m_.spatial_.rows() * m_.tower_.n_embd(); }
  void Cluster();
  void Drift(const FlashVstream::Buffers& b);
  int64_t Nearest(const float* centroid);

  const FlashVstream& m_;
  int64_t n_seen_ = 0, n_temporal_ = 0, n_abstract_ = 0;
  bool fresh_ = false;  // a frame was added since Recall()
  float *frames_ = nullptr, *temporal_ = nullptr, *next_ = nullptr, *abstract_ = nullptr, *query_ = nullptr,
        *key_ = nullptr, *share_ = nullptr, *rows_ = nullptr;
  double *weight_ = nullptr, *next_weight_ = nullptr;
  int32_t* label_ = nullptr;
};

bool StarMemory::Become(const Progress& progress) {
  if (progress.n_taken < 0 || progress.n_taken > kMostFrames || (progress.fresh && progress.n_taken == 0)) return false;
  n_seen_ = progress.n_taken;
  n_temporal_ = std::min(n_seen_, m_.temporal_.n);
  n_abstract_ = std::min(n_seen_, m_.abstract_.n);
  fresh_ = progress.fresh;
  return true;
}

std::vector<FrameMemory::Numbers> StarMemory::InUse() const {
  const auto floats = [](float* data, int64_t n) { return Numbers{{data, static_cast<size_t>(n)}, {}}; };
  const int64_t d = m_.tower_.n_embd();
  return {floats(frames_, Buffered() * m_.spatial_.rows() * d),
          floats(temporal_, n_temporal_ * temporal_cols()),
          floats(abstract_, n_abstract_ * m_.abstract_.rows() * d),
          {{}, {weight_, static_cast<size_t>(n_temporal_)}}};
}

void StarMemory::Take(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const FlashVstream::Buffers b = m_.LayOut(&space);
  const int64_t d = m_.tower_.n_embd();
  const float* patches = m_.tower_.Run(m_.backend_, b.tower, args.pixels, args.observer);
  float* const frame = Frame(n_seen_);
  Pool(patches, m_.tower_.n_side(), m_.spatial_.side, d, frame);
  Pool(frame, m_.spatial_.side, m_.temporal_.side, d, temporal_ + n_temporal_ * temporal_cols());
  weight_[n_temporal_] = 1;
  if (n_temporal_ < m_.temporal_.n) {
    ++n_temporal_;
  } else {
    Cluster();
  }
  Pool(frame, m_.spatial_.side, m_.abstract_.side, d, abstract_ + n_abstract_ * m_.abstract_.rows() * d);
  if (n_abstract_ < m_.abstract_.n) {
    ++n_abstract_;
  } else {
    Drift(b);
  }
  ++n_seen_;
  fresh_ = true;
}

// n_temporal_ + 1 weighted rows become n_temporal_ centroids.
void StarMemory::Cluster() {
  const int64_t n = n_temporal_, cols = temporal_cols();
  const auto row = [&](int64_t i) { return temporal_ + i * cols; };
  int64_t without = n;
  double cheapest = -1;
  for (int64_t i = 0; i <= n; ++i) {
    for (int64_t j = i + 1; j <= n; ++j) {
      const double both = weight_[i] + weight_[j];
      const double cost = both > 0 ? weight_[i] * weight_[j] / both * Distance2(row(i), row(j), cols) : 0;
      if (cheapest >= 0 && cost >= cheapest) continue;
      cheapest = cost;
      without = weight_[i] < weight_[j] ? i : j;
    }
  }
  for (int64_t c = 0; c < n; ++c) std::memcpy(next_ + c * cols, row(c + (c >= without)), cols * 4);
  for (int step = 0; step < kMostSteps; ++step) {
    for (int64_t i = 0; i <= n; ++i) {
      double best = 0;
      for (int64_t c = 0; c < n; ++c) {
        const double d2 = Distance2(row(i), next_ + c * cols, cols);
        if (c > 0 && d2 >= best) continue;
        best = d2;
        label_[i] = static_cast<int32_t>(c);
      }
    }
    double moved = 0;
    for (int64_t c = 0; c < n; ++c) {
      next_weight_[c] = 0;
      for (int64_t i = 0; i <= n; ++i) next_weight_[c] += label_[i] == c ? weight_[i] : 0;
      if (next_weight_[c] <= 0) continue;
      double moved2 = 0;
      for (int64_t j = 0; j < cols; ++j) {
        double sum = 0;
        for (int64_t i = 0; i <= n; ++i) sum += label_[i] == c ? weight_[i] * row(i)[j] : 0;
        const double to = sum / next_weight_[c], by = to - next_[c * cols + j];
        moved2 += by * by;
        next_[c * cols + j] = static_cast<float>(to);
      }
      moved += std::sqrt(moved2);
    }
    if (moved < kTolerance) break;
  }
  std::memcpy(temporal_, next_, n * cols * 4);
  std::copy_n(next_weight_, n, weight_);
}

// Every row of the abstract memory moves by update_ratio towards the mean of the new frame's rows that it attends to.
void StarMemory::Drift(const FlashVstream::Buffers& b) {
  const int64_t d = m_.tower_.n_embd(), n_new = m_.abstract_.rows(), n = n_abstract_ * n_new;
  const float* e = abstract_ + n * d;
  m_.ProjectQuery(b, m_.wk_, e, n_new, key_);
  for (int64_t from = 0; from < n; from += m_.tower_.n_patches()) {
    const int64_t rows = std::min(m_.tower_.n_patches(), n - from);
    m_.ProjectQuery(b, m_.wq_, abstract_ + from * d, rows, query_ + from * m_.n_key_);
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(m_.n_key_));
  for (int64_t i = 0; i < n; ++i) {
    float largest = 0;
    for (int64_t j = 0; j < n_new; ++j) {
      share_[j] = 0;
      for (int64_t c = 0; c < m_.n_key_; ++c) share_[j] += query_[i * m_.n_key_ + c] * key_[j * m_.n_key_ + c];
      largest = j == 0 ? share_[j] : std::max(largest, share_[j]);
    }
    double sum = 0;
    for (int64_t j = 0; j < n_new; ++j) sum += share_[j] = std::exp(scale * (share_[j] - largest));
    float* const row = abstract_ + i * d;
    for (int64_t c = 0; c < d; ++c) row[c] *= 1 - m_.update_ratio_;
    for (int64_t j = 0; j < n_new; ++j) {
      const float by = m_.update_ratio_ * share_[j] / static_cast<float>(sum);
      for (int64_t c = 0; c < d; ++c) row[c] += by * e[j * d + c];
    }
  }
}

// The buffered frame nearest to a centroid. Two frames that form a cluster are equally near to it, up to rounding: then
// the older one.
int64_t StarMemory::Nearest(const float* centroid) {
  const int64_t d = m_.tower_.n_embd();
  int64_t nearest = 0;
  double best = -1;
  float* const pooled = next_;  // free between frames
  for (int64_t t = n_seen_ - Buffered(); t < n_seen_; ++t) {
    Pool(Frame(t), m_.spatial_.side, m_.temporal_.side, d, pooled);
    const double d2 = Distance2(pooled, centroid, temporal_cols());
    if (best >= 0 && d2 >= best * kClearly) continue;
    best = d2;
    nearest = t;
  }
  return nearest;
}

void StarMemory::Recall(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const FlashVstream::Buffers b = m_.LayOut(&space);
  const int64_t d = m_.tower_.n_embd(), n = n_rows();
  float* to = rows_;
  const auto add = [&](const float* rows, int64_t count) {
    std::memcpy(to, rows, static_cast<size_t>(count * d) * 4);
    to += count * d;
  };
  add(abstract_, n_abstract_ * m_.abstract_.rows());
  add(temporal_, n_temporal_ * m_.temporal_.rows());
  // The largest cluster first, the first among equals; label_ is free between frames.
  for (int64_t j = 0; j < n_temporal_; ++j) label_[j] = static_cast<int32_t>(j);
  std::sort(label_, label_ + n_temporal_,
            [&](int32_t x, int32_t y) { return weight_[x] != weight_[y] ? weight_[x] > weight_[y] : x < y; });
  for (int64_t j = 0; j < Retrieved(); ++j) {
    add(Frame(Nearest(temporal_ + label_[j] * temporal_cols())), m_.spatial_.rows());
  }
  for (int64_t t = n_seen_ - Spatial(); t < n_seen_; ++t) add(Frame(t), m_.spatial_.rows());
  if (args.observer != nullptr) (*args.observer)("mm.star", n, d, rows_);
  m_.Project(b, rows_, n, args);
  fresh_ = false;
}

Status FlashVstream::ReadMetadata(const GgufFile& file) {
  const std::string key = "clip.vision.frames.";
  config_.projector = "flash_vstream";
  WEIR_ASSIGN_OR_RETURN(config_.name, file.StringOr("general.name", ""));
  WEIR_RETURN_IF_ERROR(tower_.ReadMetadata(file, &config_.transform));
  int64_t from = tower_.n_side();
  for (const auto& [name, part] :
       {std::pair{"spatial", &spatial_}, std::pair{"temporal", &temporal_}, std::pair{"abstract", &abstract_}}) {
    WEIR_ASSIGN_OR_RETURN(part->side, BoundedInt(file, key + name + "_side", 1, from));
    WEIR_ASSIGN_OR_RETURN(part->n, BoundedInt(file, key + name + "_count", 1, 1 << 12));
    if (from % part->side != 0) {
      return Corrupt("{}: {}{}_side is {}, which {} rows a side do not divide into", file.path(), key, name, part->side,
                     from);
    }
    if (part == &spatial_) from = part->side;  // the others are averages of it
  }
  WEIR_ASSIGN_OR_RETURN(n_retrieved_, BoundedInt(file, key + "retrieved_count", 0, temporal_.n));
  WEIR_ASSIGN_OR_RETURN(n_buffer_, BoundedInt(file, key + "buffer_count", spatial_.n, 1 << 16));
  WEIR_ASSIGN_OR_RETURN(n_key_, BoundedInt(file, key + "key_length", 1, 1 << 16));
  WEIR_ASSIGN_OR_RETURN(const double ratio, file.Float(key + "update_ratio"));
  if (!(ratio >= 0 && ratio <= 1)) {
    return Corrupt("{}: {}update_ratio is {:g}, expected 0 to 1", file.path(), key, ratio);
  }
  update_ratio_ = static_cast<float>(ratio);
  const int64_t n =
      abstract_.n * abstract_.rows() + temporal_.n * temporal_.rows() + (n_retrieved_ + spatial_.n) * spatial_.rows();
  if (n > kMostRows) {
    return Unsupported("{}: a memory of {} rows; 65,536 are possible", file.path(), n);
  }
  config_.n_recalled = static_cast<int32_t>(n);
  config_.n_side = static_cast<int32_t>(spatial_.side);
  config_.n_rows = static_cast<int32_t>(spatial_.rows());
  return Status();
}

Status FlashVstream::Load(const GgufFile& file, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(ReadMetadata(file));
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(tower_.Load(file, loader));
  WEIR_RETURN_IF_ERROR(LoadMlpProjector(file, loader, tower_.n_embd(), &mm0_, &mm2_));
  n_hidden_ = mm0_.w->n_out();
  config_.n_embd = static_cast<int32_t>(mm2_.w->n_out());
  WEIR_RETURN_IF_ERROR(loader.Load("mm.abstract_q", n_key_, tower_.n_embd(), &wq_));
  WEIR_RETURN_IF_ERROR(loader.Load("mm.abstract_k", n_key_, tower_.n_embd(), &wk_));
  return loader.Finish();
}

void FlashVstream::Project(const Buffers& b, const float* rows, int64_t n, const EncodeArgs& args) const {
  const int64_t d = tower_.n_embd(), n_out = config_.n_embd, most = tower_.n_patches();
  float* const wide = b.tower.blocks.wide;
  for (int64_t from = 0; from < n; from += most) {
    const int64_t part = std::min(most, n - from);
    LinearRows(backend_, rows + from * d, part, d, mm0_, false, wide, b.tower.blocks.scratch);
    if (args.observer != nullptr && n <= most) (*args.observer)("mm.0", n, n_hidden_, wide);
    backend_.Gelu({GeluKind::kErf, wide, wide, part * n_hidden_});
    LinearRows(backend_, wide, part, n_hidden_, mm2_, false, args.out + from * n_out, b.tower.blocks.scratch);
  }
  if (args.observer != nullptr) (*args.observer)("mm.2", n, n_out, args.out);
}

void FlashVstream::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Buffers b = LayOut(&space);
  const float* patches = tower_.Run(backend_, b.tower, args.pixels, args.observer);
  Pool(patches, tower_.n_side(), spatial_.side, tower_.n_embd(), b.pooled);
  if (args.observer != nullptr) (*args.observer)("mm.pool", spatial_.rows(), tower_.n_embd(), b.pooled);
  Project(b, b.pooled, spatial_.rows(), args);
}

int64_t FlashVstream::FrameMemoryBytes() const { return StarMemory::Bytes(*this); }

std::unique_ptr<FrameMemory> FlashVstream::MakeFrameMemory(uint8_t* memory) {
  return std::make_unique<StarMemory>(*this, memory);
}

}  // namespace

extern const EncoderInfo kFlashVstream;
const EncoderInfo kFlashVstream = {
    .name = "flash_vstream",
    .projector = "flash_vstream",
    .models = "Flash-VStream (CLIP, STAR memory of a video's frames)",
    .load = LoadEncoderAs<FlashVstream>,
    .host_only = true,
};

}  // namespace weir
