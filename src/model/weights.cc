// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <algorithm>
#include <cmath>

#include "ops/scaled_matrix.h"
#include "quant/format.h"

namespace weir {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

// As BoundedInt(), with a default for files without the key.
Result<int32_t> Bounded(const GgufFile& file, const std::string& key, int64_t min, int64_t max, int64_t fallback = -1) {
  if (fallback >= min && fallback <= max && !file.Has(key)) return static_cast<int32_t>(fallback);
  WEIR_ASSIGN_OR_RETURN(const int64_t value, BoundedInt(file, key, min, max));
  return static_cast<int32_t>(value);
}

// A number that is used as a divisor or raised to a power.
Status Positive(const GgufFile& file, const std::string& key, double value) {
  if (std::isfinite(value) && value > 0) return Status();
  return Corrupt("{}: {} is {:g}, expected a positive number", file.path(), key, value);
}

// Frequency factors: each of them divides a frequency.
Status LoadFactors(const GgufFile& file, WeightLoader& loader, const char* name, int64_t n, std::vector<float>* out) {
  if (!out->empty() || !loader.Has(name)) return Status();
  Vector factors;
  WEIR_RETURN_IF_ERROR(loader.Load(name, n, &factors));
  for (float factor : factors.data) {
    if (!(factor > 0))
      return Corrupt("{}: tensor {} holds the factor {:g}, expected positive numbers", file.path(), name, factor);
  }
  *out = std::move(factors.data);
  return Status();
}

// The matrices that make queries, keys and values are never stored as plain floats.
bool HasQuantisedAttention(const GgufFile& file) {
  const auto plain = [](const GgufTensor& t) {
    return t.name.find(".attn_") != std::string::npos && t.shape.size() > 1 && !IsBlocked(t.type);
  };
  return std::none_of(file.tensors().begin(), file.tensors().end(), plain);
}

// One number, or one for each layer, all of them equal but for zeros, unless layers may differ.
Status ReadFeedForwardLength(const GgufFile& file, const std::string& arch, DecoderTraits traits, DecoderMetadata* m) {
  // Files of some families with experts in every layer have only the experts' width.
  const std::string of_experts = arch + ".expert_feed_forward_length", of_all = arch + ".feed_forward_length";
  const bool everywhere = traits.experts && !file.Has(arch + ".leading_dense_block_count");
  const std::string& key = everywhere && !file.Has(of_all) && file.Has(of_experts) ? of_experts : of_all;
  const bool layers_differ = traits.layers_differ;
  const std::vector<int64_t>* by_layer = file.IntArray(key);
  if (by_layer == nullptr) {
    WEIR_ASSIGN_OR_RETURN(m->n_ff, Bounded(file, key, 8, 1 << 20));
    return Status();
  }
  if (std::ssize(*by_layer) != m->n_layers) {
    return Corrupt("{}: {} has {} entries for {} layers", file.path(), key, by_layer->size(), m->n_layers);
  }
  const int64_t most = *std::max_element(by_layer->begin(), by_layer->end());
  for (const int64_t n : *by_layer) {
    if (!layers_differ && n != 0 && n != most) {
      return Unsupported("{}: layers of widths {} and {} ({}) are not supported", file.path(), n, most, key);
    }
    m->feeds_forward.push_back(n != 0);
  }
  if (most < 8 || most > (1 << 20)) return Corrupt("{}: {} is {}, expected 8 to {}", file.path(), key, most, 1 << 20);
  m->n_ff = static_cast<int32_t>(most);
  return Status();
}

// KV heads: one number, or one for each layer, 0 where a layer does not attend.
Status ReadKvHeads(const GgufFile& file, const std::string& key, bool layers_differ, DecoderMetadata* m) {
  const std::vector<int64_t>* by_layer = file.IntArray(key);
  if (by_layer == nullptr) {
    WEIR_ASSIGN_OR_RETURN(m->n_kv_heads, Bounded(file, key, 1, m->n_heads, m->n_heads));
    return Status();
  }
  if (std::ssize(*by_layer) != m->n_layers) {
    return Corrupt("{}: {} has {} entries for {} layers", file.path(), key, by_layer->size(), m->n_layers);
  }
  for (const int64_t n : *by_layer) {
    if (n < 0 || n > m->n_heads) return Corrupt("{}: {} has {}, expected 0 to {}", file.path(), key, n, m->n_heads);
    if (!layers_differ && n > 0 && m->n_kv_heads > 0 && n != m->n_kv_heads) {
      return Unsupported("{}: layers with {} and with {} KV heads ({}) are not supported", file.path(), m->n_kv_heads,
                         n, key);
    }
    if (n > 0) m->n_kv_heads = std::max(m->n_kv_heads, static_cast<int32_t>(n));
    m->attends.push_back(n > 0);
  }
  if (m->n_kv_heads == 0) return Corrupt("{}: {} is 0 in every layer", file.path(), key);
  return Status();
}

}  // namespace

Result<const GgufTensor*> WeightLoader::Take(const std::string& name, const std::vector<int64_t>& shape) {
  const GgufTensor* tensor = file_.Tensor(name);
  if (tensor == nullptr) return NotFound("{}: tensor {} is missing", file_.path(), name);
  std::vector<int64_t> have = tensor->shape;
  while (have.size() > shape.size() && have.front() == 1) have.erase(have.begin());
  if (have != shape) {
    return Corrupt("{}: tensor {} has shape {}, expected {}", file_.path(), name, ShapeText(tensor->shape),
                   ShapeText(shape));
  }
  taken_.insert(name);
  return tensor;
}

Status WeightLoader::Load(const std::string& name, int64_t n_out, int64_t n_in, std::unique_ptr<Matrix>* out,
                          const std::vector<int32_t>& row_order) {
  WEIR_ASSIGN_OR_RETURN(const GgufTensor* tensor, Take(name, {n_out, n_in}));
  return Prepare(*tensor, tensor->data, n_out, n_in, out, row_order);
}

Status WeightLoader::LoadRows(const std::string& name, int64_t n_rows, int64_t n_in, int64_t first, int64_t n_out,
                              std::unique_ptr<Matrix>* out) {
  WEIR_ASSIGN_OR_RETURN(const GgufTensor* tensor, Take(name, {n_rows, n_in}));
  return Prepare(*tensor, tensor->data + first * RowBytes(tensor->type, n_in), n_out, n_in, out, {});
}

Status WeightLoader::LoadPicked(const std::string& name, int64_t n_rows, int64_t n_in,
                                const std::vector<int32_t>& picked, std::unique_ptr<Matrix>* out) {
  WEIR_ASSIGN_OR_RETURN(const GgufTensor* tensor, Take(name, {n_rows, n_in}));
  return Prepare(*tensor, tensor->data, std::ssize(picked), n_in, out, picked, n_rows);
}

Status WeightLoader::LoadTaps(const std::string& name, int64_t n_rows, int64_t n_taps, int64_t first, int64_t n,
                              Vector* out) {
  WEIR_ASSIGN_OR_RETURN(const GgufTensor* tensor, Take(name, {n_rows, n_taps}));
  if (n_taps % InfoOf(tensor->type).block_elements != 0) {
    return Unsupported("{}: tensor {} of type {} is not supported", file_.path(), name, InfoOf(tensor->type).name);
  }
  std::vector<float> row(static_cast<size_t>(n_taps)), values(static_cast<size_t>(n_taps * n));
  for (int64_t i = 0; i < n; ++i) {
    DecodeRow(tensor->type, tensor->data + (first + i) * RowBytes(tensor->type, n_taps), n_taps, row.data());
    for (int64_t t = 0; t < n_taps; ++t) values[static_cast<size_t>(t * n + i)] = row[static_cast<size_t>(t)];
  }
  return Keep(name, std::move(values), out);
}

Status WeightLoader::LoadVectors(const std::string& name, int64_t n_rows, int64_t n, Vector* out) {
  WEIR_ASSIGN_OR_RETURN(const GgufTensor* tensor, n_rows == 1 ? Take(name, {n}) : Take(name, {n_rows, n}));
  std::vector<float> values(static_cast<size_t>(n_rows * n));
  for (int64_t r = 0; r < n_rows; ++r) {
    DecodeRow(tensor->type, tensor->data + r * RowBytes(tensor->type, n), n, values.data() + r * n);
  }
  return Keep(name, std::move(values), out);
}

Status WeightLoader::LoadStack(const std::string& name, int64_t n, int64_t n_out, int64_t n_in,
                               std::unique_ptr<Matrix>* out) {
  WEIR_ASSIGN_OR_RETURN(const GgufTensor* tensor, Take(name, {n, n_out, n_in}));
  return Prepare(*tensor, tensor->data, n * n_out, n_in, out, {}, 0, {n, -1});
}

Status WeightLoader::LoadSlice(const std::string& name, int64_t n, int64_t at, int64_t n_out, int64_t n_in,
                               std::unique_ptr<Matrix>* out, int64_t n_rows) {
  WEIR_ASSIGN_OR_RETURN(const GgufTensor* tensor, Take(name, {n, n_out, n_in}));
  return Prepare(*tensor, tensor->data + at * n_out * RowBytes(tensor->type, n_in), n_rows < 0 ? n_out : n_rows, n_in,
                 out, {}, 0, {n, at});
}

Status WeightLoader::LoadTransposed(const std::string& name, int64_t n_rows, int64_t n_out, int64_t first, int64_t n_in,
                                    std::unique_ptr<Matrix>* out) {
  WEIR_ASSIGN_OR_RETURN(const GgufTensor* tensor, Take(name, {n_rows, n_out}));
  const int64_t row_bytes = RowBytes(tensor->type, n_out);
  std::vector<float> row(static_cast<size_t>(n_out)), columns(static_cast<size_t>(n_out * n_in));
  for (int64_t i = 0; i < n_in; ++i) {
    DecodeRow(tensor->type, tensor->data + (first + i) * row_bytes, n_out, row.data());
    for (int64_t o = 0; o < n_out; ++o) columns[static_cast<size_t>(o * n_in + i)] = row[static_cast<size_t>(o)];
  }
  GgufTensor turned = *tensor;
  turned.type = IsBlocked(tensor->type) ? DType::kF16 : tensor->type;
  std::vector<uint8_t> data(static_cast<size_t>(n_out * RowBytes(turned.type, n_in)));
  for (int64_t o = 0; o < n_out; ++o) {
    EncodeRow(turned.type, columns.data() + o * n_in, n_in, data.data() + o * RowBytes(turned.type, n_in));
  }
  return Prepare(turned, data.data(), n_out, n_in, out, {});
}

Status WeightLoader::LoadColumns(const std::string& name, int64_t n_out, int64_t n_in,
                                 const std::vector<int32_t>& order, std::unique_ptr<Matrix>* out) {
  WEIR_ASSIGN_OR_RETURN(const GgufTensor* tensor, Take(name, {n_out, n_in}));
  const int64_t row_bytes = RowBytes(tensor->type, n_in);
  GgufTensor moved = *tensor;
  moved.type = IsBlocked(tensor->type) ? DType::kF16 : tensor->type;
  const int64_t moved_bytes = RowBytes(moved.type, n_in);
  std::vector<float> from(static_cast<size_t>(n_in)), to(static_cast<size_t>(n_in));
  std::vector<uint8_t> data(static_cast<size_t>(n_out * moved_bytes));
  for (int64_t o = 0; o < n_out; ++o) {
    DecodeRow(tensor->type, tensor->data + o * row_bytes, n_in, from.data());
    for (size_t i = 0; i < to.size(); ++i) to[i] = from[static_cast<size_t>(order[i])];
    EncodeRow(moved.type, to.data(), n_in, data.data() + o * moved_bytes);
  }
  return Prepare(moved, data.data(), n_out, n_in, out, {});
}

Status WeightLoader::LoadKernel(const std::string& name, int64_t n_out, const std::vector<int64_t>& kernel,
                                std::unique_ptr<Matrix>* out) {
  std::vector<int64_t> shape = {n_out};
  shape.insert(shape.end(), kernel.begin(), kernel.end());
  WEIR_ASSIGN_OR_RETURN(const GgufTensor* tensor, Take(name, shape));
  int64_t n_in = 1;
  for (int64_t side : kernel) n_in *= side;
  return Prepare(*tensor, tensor->data, n_out, n_in, out, {});
}

void WeightLoader::Skip(const std::string& prefix) {
  for (const GgufTensor& tensor : file_.tensors()) {
    if (tensor.name.starts_with(prefix)) taken_.insert(tensor.name);
  }
}

Status WeightLoader::Prepare(const GgufTensor& tensor, const uint8_t* data, int64_t n_out, int64_t n_in,
                             std::unique_ptr<Matrix>* out, const std::vector<int32_t>& row_order, int64_t n_rows,
                             InStack place) {
  const std::string where = file_.path() + ": " + tensor.name;
  MatrixSource source;
  source.name = where.c_str();
  source.type = tensor.type;
  source.n_out = n_out;
  source.n_in = n_in;
  source.data = data;
  source.row_order = row_order.empty() ? nullptr : row_order.data();
  source.n_rows = n_rows;
  WEIR_ASSIGN_OR_RETURN(*out, backend_.PrepareMatrix(source, ledger_));
  // The prepared copy replaces the mapped pages immediately: loading never holds the weights twice.
  file_.ReleasePages();
  return AddScale(tensor, place, out);
}

Status WeightLoader::AddScale(const GgufTensor& tensor, InStack place, std::unique_ptr<Matrix>* out) {
  if (!tensor.name.starts_with("blk.") || !tensor.name.ends_with(".weight")) return Status();
  const std::string stem = tensor.name.substr(0, tensor.name.size() - std::string_view("weight").size());
  // What activations of four bits would be multiplied by; ours have eight, and a scale of their own.
  if (Has(stem + "input_scale")) WEIR_RETURN_IF_ERROR(Take(stem + "input_scale", {place.n}).status());
  if (!Has(stem + "scale")) return Status();
  if (!backend_.on_host()) {
    return Unsupported(
        "{}: weights with a scale of their own ({}scale) run on the CPU only; choose it with --device cpu",
        file_.path(), stem);
  }
  Vector all;
  WEIR_RETURN_IF_ERROR(Load(stem + "scale", place.n, &all));
  for (const float scale : all.data) {
    if (!(scale > 1e-30f && scale < 1e30f)) {
      return Corrupt("{}: tensor {}scale holds {:g}, expected a positive factor", file_.path(), stem, scale);
    }
  }
  if (place.at >= 0) all.data = {all.data[static_cast<size_t>(place.at)]};
  *out = std::make_unique<ScaledMatrix>(std::move(*out), std::move(all.data), std::move(all.reservation));
  return Status();
}

Status WeightLoader::Load(const std::string& name, int64_t n, Vector* out, const std::vector<int32_t>& row_order) {
  return LoadPart(name, n, 0, n, out, row_order);
}

Status WeightLoader::LoadPart(const std::string& name, int64_t n_all, int64_t first, int64_t n, Vector* out,
                              const std::vector<int32_t>& row_order) {
  WEIR_ASSIGN_OR_RETURN(const GgufTensor* tensor, Take(name, {n_all}));
  std::vector<float> all(static_cast<size_t>(n_all)), part(static_cast<size_t>(n));
  DecodeRow(tensor->type, tensor->data, n_all, all.data());
  for (int64_t i = 0; i < n; ++i) part[i] = all[first + (row_order.empty() ? i : row_order[i])];
  return Keep(name, std::move(part), out);
}

Status WeightLoader::Keep(const std::string& name, std::vector<float> values, Vector* out) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      return Corrupt("{}: tensor {} holds a value that is not finite at index {}", file_.path(), name, i);
    }
  }
  const int64_t n_bytes = std::ssize(values) * 4;
  WEIR_ASSIGN_OR_RETURN(out->reservation, ledger_.Reserve(MemTag::kWeights, n_bytes));
  out->data = std::move(values);
  WEIR_ASSIGN_OR_RETURN(out->device, backend_.Upload(ledger_, MemTag::kWeights, out->data.data(), n_bytes));
  return Status();
}

Status WeightLoader::Scale(float factor, Vector* vector) {
  for (float& x : vector->data) x *= factor;
  WEIR_ASSIGN_OR_RETURN(vector->device,
                        backend_.Upload(ledger_, MemTag::kWeights, vector->data.data(), std::ssize(vector->data) * 4));
  return Status();
}

Status WeightLoader::LoadOptional(const std::string& name, int64_t n, Vector* out,
                                  const std::vector<int32_t>& row_order) {
  return Has(name) ? Load(name, n, out, row_order) : Status();
}

Status WeightLoader::Fill(int64_t n, float value, Vector* out) {
  return Keep("", std::vector<float>(static_cast<size_t>(n), value), out);
}

Status WeightLoader::Load(const std::string& name, int64_t n, LayerNormWeights* out) {
  WEIR_RETURN_IF_ERROR(Load(name + ".weight", n, &out->w));
  return Load(name + ".bias", n, &out->b);
}

Status WeightLoader::Load(const std::string& name, int64_t n_out, int64_t n_in, LinearWeights* out) {
  WEIR_RETURN_IF_ERROR(Load(name + ".weight", n_out, n_in, &out->w));
  return LoadOptional(name + ".bias", n_out, &out->b);
}

Status WeightLoader::Finish() const {
  for (const GgufTensor& tensor : file_.tensors()) {
    if (!taken_.contains(tensor.name)) {
      return Corrupt("{}: tensor {} is unknown to this architecture; the file is newer than this build or damaged",
                     file_.path(), tensor.name);
    }
  }
  return Status();
}

Result<int64_t> BoundedInt(const GgufFile& file, const std::string& key, int64_t min, int64_t max) {
  WEIR_ASSIGN_OR_RETURN(const int64_t value, file.Int(key));
  if (value >= min && value <= max) return value;
  return Corrupt("{}: {} is {}, expected {} to {}", file.path(), key, value, min, max);
}

Result<int64_t> BoundedIntOr(const GgufFile& file, const std::string& key, int64_t min, int64_t max, int64_t fallback) {
  return file.Has(key) ? BoundedInt(file, key, min, max) : Result<int64_t>(fallback);
}

Result<DecoderMetadata> ReadDecoderMetadata(const GgufFile& file, const std::string& arch, DecoderTraits traits) {
  DecoderMetadata m;
  WEIR_ASSIGN_OR_RETURN(m.n_layers, Bounded(file, arch + ".block_count", 1, 1024));
  WEIR_ASSIGN_OR_RETURN(m.n_embd, Bounded(file, arch + ".embedding_length", 8, 1 << 17));
  WEIR_RETURN_IF_ERROR(ReadFeedForwardLength(file, arch, traits, &m));
  WEIR_ASSIGN_OR_RETURN(m.n_ctx_train, Bounded(file, arch + ".context_length", 1, 1 << 30));
  WEIR_ASSIGN_OR_RETURN(m.n_heads, Bounded(file, arch + ".attention.head_count", 1, 4096));
  WEIR_RETURN_IF_ERROR(ReadKvHeads(file, arch + ".attention.head_count_kv", traits.layers_differ, &m));
  int32_t value_dim = 0;
  if (!traits.own_head_sizes) {
    WEIR_ASSIGN_OR_RETURN(m.head_dim,
                          Bounded(file, arch + ".attention.key_length", 8, kMaxHeadDim, m.n_embd / m.n_heads));
    WEIR_ASSIGN_OR_RETURN(value_dim, Bounded(file, arch + ".attention.value_length", 8, kMaxHeadDim, m.head_dim));
  }
  const std::string rms_key = arch + ".attention.layer_norm_rms_epsilon";
  const std::string eps_key = file.Has(rms_key) ? rms_key : arch + ".attention.layer_norm_epsilon";
  if (!file.Has(eps_key)) {
    return NotFound("{}: key '{}' is missing, and so is '{}'", file.path(), rms_key, eps_key);
  }
  WEIR_ASSIGN_OR_RETURN(const double eps, file.Float(eps_key));
  if (!std::isfinite(eps) || eps < 0)
    return Corrupt("{}: {} is {:g}, expected a small positive number", file.path(), eps_key, eps);
  m.norm_eps = static_cast<float>(eps);
  if (m.n_heads % m.n_kv_heads != 0) {
    return Corrupt("{}: {} heads cannot be shared by {} KV heads", file.path(), m.n_heads, m.n_kv_heads);
  }
  if (value_dim != m.head_dim || m.head_dim % 8 != 0) {
    return Unsupported(
        "{}: keys of size {} ({}.attention.key_length) with values of size {} (value_length) are not supported; both "
        "must be equal and a multiple of 8",
        file.path(), m.head_dim, arch, value_dim);
  }
  if (!traits.experts && file.Has(arch + ".expert_count")) {
    WEIR_ASSIGN_OR_RETURN(const int64_t n_experts, file.Int(arch + ".expert_count"));
    if (n_experts > 0) {
      return Unsupported("{}: this architecture has no mixtures of experts (the file: {})", file.path(), n_experts);
    }
  }
  const GgufTensor* embedding = file.Tensor("token_embd.weight");
  if (embedding == nullptr) return NotFound("{}: tensor token_embd.weight is missing", file.path());
  const int64_t n_vocab = embedding->shape.front();
  if (embedding->shape.size() != 2 || n_vocab < 1 || n_vocab > (1 << 22)) {
    return Corrupt("{}: tensor token_embd.weight has shape {}, expected [vocabulary, {}]", file.path(),
                   ShapeText(embedding->shape), m.n_embd);
  }
  m.n_vocab = static_cast<int32_t>(n_vocab);
  const std::vector<std::string>* tokens = file.StringArray("tokenizer.ggml.tokens");
  if (tokens != nullptr && static_cast<int64_t>(tokens->size()) > n_vocab) {
    return Corrupt("{}: the tokenizer has {} tokens, the embedding only {} rows", file.path(), tokens->size(),
                   m.n_vocab);
  }
  return m;
}

Status FillConfig(const GgufFile& file, const char* arch, const DecoderMetadata& meta, ModelConfig* config) {
  config->architecture = arch;
  WEIR_ASSIGN_OR_RETURN(config->name, file.StringOr("general.name", ""));
  config->n_layers = meta.n_layers;
  config->n_embd = meta.n_embd;
  config->n_ff = meta.n_ff;
  config->n_vocab = meta.n_vocab;
  config->n_ctx_train = meta.n_ctx_train;
  AttentionLayout& attention = config->attention;
  attention.n_layers = meta.n_layers;
  attention.n_heads = meta.n_heads;
  attention.n_kv_heads = meta.n_kv_heads;
  attention.head_dim = meta.head_dim;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(meta.head_dim));
  attention.bf16 = HasQuantisedAttention(file);
  return Status();
}

Status SkipNextLayers(const GgufFile& file, const std::string& arch, WeightLoader& loader, DecoderMetadata* m) {
  WEIR_ASSIGN_OR_RETURN(const int64_t n_next,
                        BoundedIntOr(file, arch + ".nextn_predict_layers", 0, m->n_layers - 1, 0));
  for (int64_t i = 0; i < n_next; ++i) loader.Skip("blk." + std::to_string(--m->n_layers) + ".");
  return Status();
}

Result<RopeConfig> ReadRopeConfig(const GgufFile& file, const std::string& arch, const DecoderMetadata& meta,
                                  WeightLoader& loader) {
  RopeConfig rope;
  WEIR_ASSIGN_OR_RETURN(rope.n_rot, Bounded(file, arch + ".rope.dimension_count", 0, meta.head_dim, meta.head_dim));
  if (rope.n_rot % 2 != 0) return Corrupt("{}: {}.rope.dimension_count is odd", file.path(), arch);
  WEIR_ASSIGN_OR_RETURN(rope.freq_base, ReadFreqBase(file, arch + ".rope.freq_base"));
  const std::string scaling = arch + ".rope.scaling.";
  WEIR_ASSIGN_OR_RETURN(const std::string type, file.StringOr(scaling + "type", ""));
  // Old files name the factor of linear scaling rope.scale_linear and omit the type.
  WEIR_ASSIGN_OR_RETURN(const double old_factor, file.FloatOr(arch + ".rope.scale_linear", 0.0));
  WEIR_ASSIGN_OR_RETURN(double factor, file.FloatOr(scaling + "factor", old_factor));
  if (factor == 0.0) factor = 1.0;
  WEIR_RETURN_IF_ERROR(Positive(file, scaling + "factor", factor));
  rope.factor = factor;
  const std::string context_key = scaling + "original_context_length";
  WEIR_ASSIGN_OR_RETURN(rope.original_context, file.FloatOr(context_key, meta.n_ctx_train));
  if (type == "yarn" || type == "longrope") WEIR_RETURN_IF_ERROR(Positive(file, context_key, rope.original_context));
  WEIR_ASSIGN_OR_RETURN(rope.attn_factor, file.FloatOr(scaling + "attn_factor", 1.0));
  if (type == "yarn") {
    rope.scaling = RopeConfig::Scaling::kYarn;
    WEIR_ASSIGN_OR_RETURN(rope.yarn_ext_factor, file.FloatOr(scaling + "yarn_ext_factor", 1.0));
    WEIR_ASSIGN_OR_RETURN(rope.yarn_beta_fast, file.FloatOr(scaling + "yarn_beta_fast", 32.0));
    WEIR_ASSIGN_OR_RETURN(rope.yarn_beta_slow, file.FloatOr(scaling + "yarn_beta_slow", 1.0));
    // The published mscale_all_dim, with an mscale of 1: the magnitude is divided by one of its own.
    const std::string multiplier_key = scaling + "yarn_log_multiplier";
    WEIR_ASSIGN_OR_RETURN(const double multiplier, file.FloatOr(multiplier_key, 0.0));
    if (multiplier != 0.0) WEIR_RETURN_IF_ERROR(Positive(file, multiplier_key, multiplier));
    rope.attn_factor /= 1.0 + 0.1 * multiplier * std::log(std::max(factor, 1.0));
  } else if (type == "longrope") {
    rope.scaling = RopeConfig::Scaling::kLongRope;
  } else if (type == "linear" || (type.empty() && factor != 1.0)) {
    rope.scaling = RopeConfig::Scaling::kLinear;
  } else if (type.empty() || type == "none") {
    rope.factor = 1.0;
  } else {
    return Unsupported("{}: {}type '{}' is not supported; known: none, linear, yarn, longrope", file.path(), scaling,
                       type);
  }
  const int64_t half = rope.n_rot / 2;
  WEIR_RETURN_IF_ERROR(LoadFactors(file, loader, "rope_freqs.weight", half, &rope.freq_factors));
  WEIR_RETURN_IF_ERROR(LoadFactors(file, loader, "rope_factors_short.weight", half, &rope.freq_factors));
  WEIR_RETURN_IF_ERROR(LoadFactors(file, loader, "rope_factors_long.weight", half, &rope.freq_factors_long));
  return rope;
}

Result<float> ReadSoftCap(const GgufFile& file, const std::string& key, double fallback) {
  WEIR_ASSIGN_OR_RETURN(const double cap, file.FloatOr(key, fallback));
  if (cap != 0) WEIR_RETURN_IF_ERROR(Positive(file, key, cap));
  return static_cast<float>(cap);
}

Result<float> ReadScale(const GgufFile& file, const std::string& key, int32_t scaled_by) {
  WEIR_ASSIGN_OR_RETURN(const double scale, file.FloatOr(key, 1.0 / std::sqrt(static_cast<double>(scaled_by))));
  WEIR_RETURN_IF_ERROR(Positive(file, key, scale));
  return static_cast<float>(scale);
}

Result<float> ReadFactor(const GgufFile& file, const std::string& key) {
  WEIR_ASSIGN_OR_RETURN(const double factor, file.Float(key));
  const auto used = static_cast<float>(factor);  // which may be 0 or infinite where the file's is not
  WEIR_RETURN_IF_ERROR(Positive(file, key, std::isfinite(1 / used) ? used : 0.0));
  return used;
}

Result<float> ReadFactorOr0(const GgufFile& file, const std::string& key) {
  WEIR_ASSIGN_OR_RETURN(const double factor, file.FloatOr(key, 0.0));
  return factor == 0 ? Result<float>(0.0f) : ReadFactor(file, key);
}

Result<double> ReadFreqBase(const GgufFile& file, const std::string& key) {
  WEIR_ASSIGN_OR_RETURN(const double base, file.FloatOr(key, 10000.0));
  WEIR_RETURN_IF_ERROR(Positive(file, key, base));
  return base;
}

Status ReadWindows(const GgufFile& file, const std::string& arch, int32_t fallback, int32_t global_every,
                   AttentionLayout* layout) {
  const std::string key = arch + ".attention.sliding_window";
  WEIR_ASSIGN_OR_RETURN(const int32_t window, Bounded(file, key, 0, 1 << 30, fallback));
  const auto pattern = file.metadata().find(key + "_pattern");
  const auto* kinds = pattern != file.metadata().end() ? std::get_if<std::vector<bool>>(&pattern->second.v) : nullptr;
  if (kinds == nullptr) {
    WEIR_ASSIGN_OR_RETURN(global_every, Bounded(file, key + "_pattern", 0, 1024, global_every));
  } else if (std::ssize(*kinds) != layout->n_layers) {
    return Corrupt("{}: {}_pattern has {} entries, expected one for each of the {} layers", file.path(), key,
                   kinds->size(), layout->n_layers);
  }
  if (window == 0) return Status();
  layout->window = window;
  if (kinds != nullptr) {
    layout->window_layers = *kinds;
    return Status();
  }
  layout->window_layers.resize(static_cast<size_t>(layout->n_layers));
  for (int32_t l = 0; l < layout->n_layers; ++l) {
    layout->window_layers[l] = global_every == 0 || (l + 1) % global_every != 0;
  }
  return Status();
}

Status ReadAxes(const GgufFile& file, const std::string& arch, bool alternate, const Backend& backend,
                ModelConfig* config) {
  const std::string key = arch + ".rope.dimension_sections";
  if (!file.Has(key)) return NotFound("{}: key '{}' is missing", file.path(), key);
  // Files have a fourth number, which no model uses.
  const std::vector<int64_t>* sections = file.IntArray(key);
  const int64_t n_pairs = config->attention.rope.n_rot / 2;
  int64_t n_left = n_pairs;
  AxisPairs pairs;
  pairs.alternate = alternate;
  bool sane = sections != nullptr && sections->size() >= kAxes && sections->size() <= kAxes + 1;
  for (size_t i = 0; sane && i < sections->size(); ++i) {
    const int64_t n = (*sections)[i];
    sane = n >= 0 && n <= n_left && (i < kAxes || n == 0);
    // The last pair of those that lie kAxes apart.
    if (alternate && i > 0 && n > 0) sane = sane && static_cast<int64_t>(i) + kAxes * (n - 1) < n_pairs;
    n_left -= n;
    if (sane && i < kAxes) pairs.n[i] = static_cast<int32_t>(n);
  }
  if (!sane || n_left != 0) {
    return Corrupt("{}: {} must be three numbers that are {} together, half of {}.rope.dimension_count", file.path(),
                   key, n_pairs, arch);
  }
  if (backend.on_host()) {
    config->attention.axis_pairs = pairs;
  } else {
    config->no_pictures = "pictures' positions on three axes are not computed on " + backend.name();
  }
  return Status();
}

std::vector<int32_t> HalfSplitOrder(int32_t n_heads, int32_t head_dim, int32_t n_rot) {
  std::vector<int32_t> order(static_cast<size_t>(n_heads) * head_dim);
  for (int32_t h = 0; h < n_heads; ++h) {
    for (int32_t i = 0; i < head_dim; ++i) {
      int32_t from = i;
      if (i < n_rot / 2) {
        from = 2 * i;
      } else if (i < n_rot) {
        from = 2 * (i - n_rot / 2) + 1;
      }
      order[static_cast<size_t>(h) * head_dim + i] = h * head_dim + from;
    }
  }
  return order;
}

}  // namespace weir
