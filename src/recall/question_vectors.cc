// SPDX-License-Identifier: Apache-2.0
#include "recall/question_vectors.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

namespace weir {
namespace {

int64_t Heads(const AttentionLayout& layout) { return int64_t{layout.n_layers} * layout.n_heads; }
int64_t Numbers(const AttentionLayout& layout) { return Heads(layout) * layout.head_dim; }
int64_t Bytes(const AttentionLayout& layout) { return (2 * Numbers(layout) + 4 * Heads(layout)) * 4; }

// The layer of "blk.12.q"; -1 for another tensor.
int32_t QueryLayer(std::string_view name) {
  if (!name.starts_with("blk.") || !name.ends_with(".q")) return -1;
  int32_t layer = -1;
  const auto [end, error] = std::from_chars(name.data() + 4, name.data() + name.size() - 2, layer);
  return error == std::errc() && end == name.data() + name.size() - 2 ? layer : -1;
}

}  // namespace

int64_t QuestionReader::MemoryBytes(const AttentionLayout& layout) { return PageRound(Bytes(layout)); }

Result<std::unique_ptr<QuestionReader>> QuestionReader::Make(const Session& session, const VectorShape& shape,
                                                             Ledger& ledger) {
  const AttentionLayout& layout = session.model().config().attention;
  auto out = std::make_unique<QuestionReader>();
  WEIR_ASSIGN_OR_RETURN(out->memory_, HostBuffer::Allocate(ledger, MemTag::kOther, Bytes(layout)));
  const auto n = static_cast<size_t>(Numbers(layout));
  out->question_ = {out->memory_.as<float>(), n};
  out->nothing_ = {out->memory_.as<float>() + n, n};
  out->vectors_ = {.shape = shape,
                   .n_heads = layout.n_heads,
                   .scale = layout.scale,
                   .question = out->question_,
                   .nothing = out->nothing_,
                   .scratch = {out->memory_.as<float>() + 2 * n, static_cast<size_t>(4 * Heads(layout))}};
  return out;
}

Status QuestionReader::Mean(Session& session, std::span<const int32_t> tokens, std::span<float> out) {
  std::ranges::fill(out, 0.0f);
  const int64_t width = int64_t{vectors_.n_heads} * vectors_.shape.head_dim;
  const TensorObserver observer = [&](const std::string& name, int64_t n_rows, int64_t n_cols, const float* data) {
    const int32_t layer = QueryLayer(name);
    if (layer < 0 || layer >= vectors_.shape.n_layers || n_cols != width) return;
    float* const to = out.data() + layer * width;
    for (int64_t row = 0; row < n_rows; ++row) {
      for (int64_t i = 0; i < width; ++i) to[i] += data[row * width + i];
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
