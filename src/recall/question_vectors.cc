// SPDX-License-Identifier: Apache-2.0
#include "recall/question_vectors.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

namespace weir {
namespace {

// Query heads of the layers that store.
std::vector<QuestionVectors::Head> HeadsOf(const AttentionLayout& layout) {
  std::vector<QuestionVectors::Head> out;
  int64_t n_kv = 0, first = 0;
  for (int32_t layer = 0; layer < layout.n_layers; ++layer) {
    if (!layout.stores(layer)) continue;
    const LayerHeads heads = layout.heads_of(layer);
    for (int32_t head = 0; head < heads.n_heads; ++head, first += heads.head_dim) {
      out.push_back({layout.pot_layer(layer), heads.head_dim, n_kv + head / (heads.n_heads / heads.n_kv_heads), first});
    }
    n_kv += heads.n_kv_heads;
  }
  return out;
}

int64_t Numbers(const std::vector<QuestionVectors::Head>& heads) {
  return heads.empty() ? 0 : heads.back().first + heads.back().dim;
}
int64_t Bytes(const std::vector<QuestionVectors::Head>& heads) {
  return (2 * Numbers(heads) + 4 * std::ssize(heads)) * 4;
}

// The block of "blk.12.q"; -1 for another tensor.
int32_t QueryBlock(std::string_view name) {
  if (!name.starts_with("blk.") || !name.ends_with(".q")) return -1;
  int32_t layer = -1;
  const auto [end, error] = std::from_chars(name.data() + 4, name.data() + name.size() - 2, layer);
  return error == std::errc() && end == name.data() + name.size() - 2 ? layer : -1;
}

}  // namespace

int64_t QuestionReader::MemoryBytes(const AttentionLayout& layout) { return PageRound(Bytes(HeadsOf(layout))); }

Result<std::unique_ptr<QuestionReader>> QuestionReader::Make(const Session& session, const VectorShape& shape,
                                                             Ledger& ledger) {
  const AttentionLayout& layout = session.model().config().attention;
  auto out = std::make_unique<QuestionReader>();
  std::vector<QuestionVectors::Head> heads = HeadsOf(layout);
  int32_t n_before = 0;
  for (int32_t layer = 0; layer < layout.n_layers; ++layer) {
    out->layers_.push_back(layout.stores(layer) ? n_before : -1);
    if (layout.stores(layer)) n_before += layout.heads_of(layer).n_heads;
  }
  WEIR_ASSIGN_OR_RETURN(out->memory_, HostBuffer::Allocate(ledger, MemTag::kOther, Bytes(heads)));
  const auto n = static_cast<size_t>(Numbers(heads));
  const size_t n_scratch = 4 * heads.size();
  out->question_ = {out->memory_.as<float>(), n};
  out->nothing_ = {out->memory_.as<float>() + n, n};
  out->vectors_ = {.shape = shape,
                   .heads = std::move(heads),
                   .scale = layout.scale,
                   .question = out->question_,
                   .nothing = out->nothing_,
                   .scratch = {out->memory_.as<float>() + 2 * n, n_scratch}};
  return out;
}

Status QuestionReader::Mean(Session& session, std::span<const int32_t> tokens, std::span<float> out) {
  std::ranges::fill(out, 0.0f);
  const TensorObserver observer = [&](const std::string& name, int64_t n_rows, int64_t n_cols, const float* data) {
    const int32_t block = QueryBlock(name);
    if (block < 0) return;
    // The first pass meets all blocks that attend, in order.
    if (blocks_.empty() || block > blocks_.back()) blocks_.push_back(block);
    const auto at = static_cast<size_t>(std::ranges::lower_bound(blocks_, block) - blocks_.begin());
    if (at >= layers_.size() || layers_[at] < 0) return;
    const auto first = vectors_.heads.begin() + layers_[at];
    const auto end = std::find_if(first, vectors_.heads.end(), [&](const auto& h) { return h.layer != first->layer; });
    if (n_cols != (end - first) * first->dim) return;
    float* const to = out.data() + first->first;
    for (int64_t row = 0; row < n_rows; ++row) {
      for (int64_t i = 0; i < n_cols; ++i) to[i] += data[row * n_cols + i];
    }
  };
  Session::AppendOptions append;
  append.excerpt = true;
  append.t_src_ms = std::max<int64_t>(session.t_newest_ms(), 0);
  append.observer = &observer;
  const Status status = session.Append(tokens, append);
  WEIR_RETURN_IF_ERROR(session.TakeBackExcerpt());
  for (float& one : out) one /= static_cast<float>(std::max<int64_t>(std::ssize(tokens), 1));
  return status;
}

Status QuestionReader::Read(Session& session, const Tokenizer& tokenizer, std::string_view question) {
  EncodeOptions plain;
  plain.add_special = false;
  std::vector<int32_t> tokens = tokenizer.Encode(question, plain);
  const auto most = static_cast<size_t>(session.plan().excerpt_slots);
  if (tokens.size() > most) tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(most));
  WEIR_RETURN_IF_ERROR(Mean(session, tokens, question_));
  tokens = tokenizer.Encode(" N/A", plain);
  if (tokens.size() > most) tokens.resize(most);
  return Mean(session, tokens, nothing_);
}

}  // namespace weir
