// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "base/ascii.h"
#include "base/utf8.h"
#include "text/special_tokens.h"
#include "text/stream.h"
#include "text/token_model.h"

namespace weir {
namespace {

// Texts that end an answer in the model families known today, whatever the file's eos id says.
constexpr std::string_view kEndTexts[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<turn|>",
    "<EOT>",
    "[EOS]",
    "[EOT]",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
};
// Those of them that end a turn, in the order in which a file without an eot id is searched for one.
constexpr std::string_view kTurnTexts[] = {"<|eot_id|>",    "<|im_end|>", "<|end|>",
                                           "<end_of_turn>", "<turn|>",    "<end_of_utterance>"};

// Gives tokens the scores with which pairs are joined in the order of the merges, "left right" each: minus the rank of
// the first merge that makes the token, minus infinity where none does: nothing is joined to it.
void ScoreByMerges(const std::vector<std::string>& merges, Vocab* vocab) {
  std::ranges::fill(vocab->score, -std::numeric_limits<float>::infinity());
  for (size_t rank = merges.size(); rank-- > 0;) {
    const std::string& merge = merges[rank];
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos) continue;
    const int32_t id = vocab->Find(merge.substr(0, space) + merge.substr(space + 1));
    if (id >= 0) vocab->score[static_cast<size_t>(id)] = -static_cast<float>(rank);
  }
}

}  // namespace

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::Load(const GgufFile& file) {
  std::unique_ptr<Tokenizer> out(new Tokenizer);
  WEIR_RETURN_IF_ERROR(out->LoadVocab(file));
  WEIR_RETURN_IF_ERROR(out->LoadSpecialIds(file));
  WEIR_RETURN_IF_ERROR(out->LoadModel(file));
  out->FindEndTokens();
  return out;
}

Status Tokenizer::LoadVocab(const GgufFile& file) {
  const auto* tokens = file.StringArray("tokenizer.ggml.tokens");
  if (!tokens || tokens->empty()) {
    return NotFound("{}: tokenizer.ggml.tokens is missing: the file has no vocabulary", file.path());
  }
  if (tokens->size() > static_cast<size_t>(INT32_MAX) / 8) return Corrupt("tokenizer.ggml.tokens: too many entries");
  vocab_ = std::make_unique<Vocab>();
  vocab_->text = *tokens;
  const size_t n = tokens->size();

  vocab_->score.assign(n, 0.0f);
  if (file.Has("tokenizer.ggml.scores")) {
    const auto* scores = file.FloatArray("tokenizer.ggml.scores");
    if (!scores || scores->size() != n) {
      return Corrupt("tokenizer.ggml.scores: expected {} floats, one for each token", n);
    }
    for (size_t i = 0; i < n; ++i) {
      const auto score = static_cast<float>((*scores)[i]);
      if (!std::isfinite(score)) return Corrupt("tokenizer.ggml.scores[{}] is not finite", i);
      vocab_->score[i] = score;
    }
  }
  vocab_->type.assign(n, TokenType::kNormal);
  if (file.Has("tokenizer.ggml.token_type")) {
    const auto* types = file.IntArray("tokenizer.ggml.token_type");
    if (!types || types->size() != n) {
      return Corrupt("tokenizer.ggml.token_type: expected {} integers, one for each token", n);
    }
    for (size_t i = 0; i < n; ++i) {
      const int64_t type = (*types)[i];
      // 0 is "undefined" in the numbering; files use it for ordinary tokens.
      if (type < 0 || type > 6) {
        return Corrupt("tokenizer.ggml.token_type[{}] is {}; expected 0 to 6", i, type);
      }
      if (type > 0) vocab_->type[i] = static_cast<TokenType>(type);
    }
  }
  vocab_->by_text.reserve(n);
  for (size_t i = 0; i < n; ++i) vocab_->by_text.insert_or_assign(vocab_->text[i], static_cast<int32_t>(i));
  // Some converters fail to mark these; they do not occur as ordinary text.
  for (const std::string_view text : kEndTexts) {
    const int32_t id = text.starts_with("<|") || text.starts_with("<end_of") ? vocab_->Find(text) : -1;
    if (id >= 0 && vocab_->type[id] == TokenType::kNormal) vocab_->type[id] = TokenType::kControl;
  }
  return Status();
}

Status Tokenizer::LoadSpecialIds(const GgufFile& file) {
  const struct {
    const char* key;
    int32_t* id;
  } fields[] = {
      {"tokenizer.ggml.bos_token_id", &bos_id_},
      {"tokenizer.ggml.eos_token_id", &eos_id_},
      {"tokenizer.ggml.eot_token_id", &eot_id_},
      {"tokenizer.ggml.eom_token_id", &eom_id_},
      {"tokenizer.ggml.unknown_token_id", &unknown_id_},
      {"tokenizer.ggml.padding_token_id", nullptr},  // nothing here pads; checked anyway
  };
  for (const auto& field : fields) {
    WEIR_ASSIGN_OR_RETURN(const int64_t id, file.IntOr(field.key, -1));
    // Some converters write 2^32 - 1 for "none".
    const int64_t clean = id == 0xFFFFFFFF ? -1 : id;
    if (clean < -1 || clean >= vocab_->size()) {
      return Corrupt("{} is {}; the vocabulary has {} tokens", field.key, id, vocab_->size());
    }
    if (field.id != nullptr) *field.id = static_cast<int32_t>(clean);
  }
  return Status();
}

Status Tokenizer::LoadModel(const GgufFile& file) {
  WEIR_ASSIGN_OR_RETURN(const std::string model, file.String("tokenizer.ggml.model"));
  SpaceOptions space;
  if (model == "gpt2") {
    const auto* merges = file.StringArray("tokenizer.ggml.merges");
    if (!merges) return NotFound("tokenizer.ggml.merges is missing; a 'gpt2' tokenizer needs it");
    WEIR_ASSIGN_OR_RETURN(const std::string pre, file.StringOr("tokenizer.ggml.pre", "default"));
    WEIR_ASSIGN_OR_RETURN(model_, MakeBpe(*vocab_, *merges, pre, &add_bos_));
    is_byte_level_ = true;
  } else if (model == "llama" || model == "t5" || model == "gemma4") {
    if (model == "gemma4") {
      const auto* merges = file.StringArray("tokenizer.ggml.merges");
      if (!merges) return NotFound("tokenizer.ggml.merges is missing; a 'gemma4' tokenizer needs it");
      ScoreByMerges(*merges, vocab_.get());
    } else if (!file.Has("tokenizer.ggml.scores")) {
      return NotFound("tokenizer.ggml.scores is missing; a '{}' tokenizer needs it", model);
    }
    const bool is_spm = model != "t5";
    // The GGUF convention's defaults for missing keys.
    if (!file.Has("tokenizer.ggml.unknown_token_id")) unknown_id_ = is_spm ? 0 : 2;
    if (unknown_id_ >= vocab_->size()) unknown_id_ = -1;
    if (is_spm && bos_id_ < 0 && vocab_->size() > 2) bos_id_ = 1;
    if (is_spm && eos_id_ < 0 && vocab_->size() > 2) eos_id_ = 2;
    if (!is_spm && eos_id_ < 0 && vocab_->size() > 2) eos_id_ = 1;
    add_bos_ = is_spm;
    add_eos_ = !is_spm;
    space.unknown_id = unknown_id_;
    WEIR_ASSIGN_OR_RETURN(space.add_space_prefix, file.BoolOr("tokenizer.ggml.add_space_prefix", true));
    WEIR_ASSIGN_OR_RETURN(space.remove_extra_whitespaces,
                          file.BoolOr("tokenizer.ggml.remove_extra_whitespaces", false));
    has_space_prefix_ = space.add_space_prefix;
    if (is_spm) {
      WEIR_ASSIGN_OR_RETURN(model_, MakeSpm(*vocab_, space));
    } else {
      std::string charsmap;
      if (file.Has("tokenizer.ggml.precompiled_charsmap")) {
        const auto* bytes = file.IntArray("tokenizer.ggml.precompiled_charsmap");
        if (!bytes) return Corrupt("tokenizer.ggml.precompiled_charsmap is not an array of bytes");
        charsmap.reserve(bytes->size());
        for (const int64_t b : *bytes) charsmap.push_back(static_cast<char>(b & 0xFF));
      }
      WEIR_ASSIGN_OR_RETURN(model_, MakeUnigram(*vocab_, space, std::move(charsmap)));
    }
  } else {
    return Unsupported("tokenizer.ggml.model is '{}'; known models are gpt2, llama, gemma4 and t5",
                       model.substr(0, 64));
  }
  WEIR_ASSIGN_OR_RETURN(add_bos_, file.BoolOr("tokenizer.ggml.add_bos_token", add_bos_));
  WEIR_ASSIGN_OR_RETURN(add_eos_, file.BoolOr("tokenizer.ggml.add_eos_token", add_eos_));
  add_bos_ = add_bos_ && bos_id_ >= 0;
  add_eos_ = add_eos_ && eos_id_ >= 0;

  // Phi-3 was trained with white space removed after its control tokens; no metadata indicates it, only the name.
  WEIR_ASSIGN_OR_RETURN(std::string name, file.StringOr("general.name", ""));
  name = AsciiLower(name);
  const bool is_phi3 = name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
  control_and_user_ = std::make_unique<SpecialTokens>();
  user_ = std::make_unique<SpecialTokens>();
  for (int32_t id = 0; id < vocab_->size(); ++id) {
    const TokenType type = vocab_->type[id];
    const std::string& text = vocab_->text[id];
    const bool skips = is_phi3 && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
    if (type == TokenType::kUserDefined) user_->Add(text, id, skips);
    if (type == TokenType::kUserDefined || type == TokenType::kControl || type == TokenType::kUnknown) {
      control_and_user_->Add(text, id, skips);
    }
  }
  return Status();
}

void Tokenizer::FindEndTokens() {
  // In gpt-oss' format a message's end does not end the answer: thoughts are a message of their own.
  const int32_t call = vocab_->Find("<|call|>"), back = vocab_->Find("<|return|>");
  if (call >= 0 && back >= 0 && vocab_->Find("<|channel|>") >= 0) {
    end_ids_ = {call, back};
    if (eos_id_ >= 0 && eos_id_ != vocab_->Find("<|end|>")) end_ids_.push_back(eos_id_);
    eot_id_ = back;
    std::sort(end_ids_.begin(), end_ids_.end());
    end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
    return;
  }
  if (eot_id_ < 0) {
    for (const std::string_view text : kTurnTexts) {
      if (eot_id_ < 0) eot_id_ = vocab_->Find(text);
    }
  }
  for (const int32_t id : {eos_id_, eot_id_, eom_id_}) {
    if (id >= 0) end_ids_.push_back(id);
  }
  for (const std::string_view text : kEndTexts) {
    const int32_t id = vocab_->Find(text);
    // Where "</s>" is an ordinary word piece, as in vocabularies of source code, it does not end an answer.
    if (id >= 0 && vocab_->type[id] != TokenType::kNormal) end_ids_.push_back(id);
  }
  std::sort(end_ids_.begin(), end_ids_.end());
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
}

bool Tokenizer::IsEndOfGeneration(int32_t id) const { return std::binary_search(end_ids_.begin(), end_ids_.end(), id); }

std::vector<int32_t> Tokenizer::Encode(std::string_view text, const EncodeOptions& options,
                                       EncodeReport* report) const {
  StreamEncoder encoder(*this, options);
  std::vector<int32_t> ids;
  encoder.Push(text, &ids);
  encoder.Finish(&ids);
  if (report) {
    report->n_replaced += encoder.report().n_replaced;
    report->n_dropped_bytes += encoder.report().n_dropped_bytes;
  }
  return ids;
}

std::vector<int32_t> Tokenizer::EncodePieces(std::span<const TextPiece> pieces, bool add_special,
                                             EncodeReport* report) const {
  EncodeReport local;
  if (!report) report = &local;
  std::string text;
  std::vector<std::pair<size_t, size_t>> control_ranges;
  for (const TextPiece& piece : pieces) {
    const size_t begin = text.size();
    text += SanitizeUtf8(piece.text, &report->n_replaced);
    if (!piece.parse_special || text.size() == begin) continue;
    if (!control_ranges.empty() && control_ranges.back().second == begin) {
      control_ranges.back().second = text.size();
    } else {
      control_ranges.emplace_back(begin, text.size());
    }
  }
  std::vector<int32_t> ids;
  if (add_special && add_bos_) ids.push_back(bos_id_);
  EncodeCore(text, control_ranges, &ids, report);
  if (add_special && add_eos_) ids.push_back(eos_id_);
  return ids;
}

void Tokenizer::EncodeCore(std::string_view text, std::span<const std::pair<size_t, size_t>> control_ranges,
                           std::vector<int32_t>* ids, EncodeReport* report) const {
  // The next special token at or after `from`: a control token wholly inside a range, or a user-defined one anywhere.
  // The ranges passed so far and a pending user-defined token are kept between calls.
  SpecialTokens::Match ahead = user_->Find(text, 0, text.size());
  size_t range = 0;
  const auto next = [&](size_t from) {
    if (ahead.id >= 0 && ahead.pos < from) ahead = user_->Find(text, from, text.size());
    SpecialTokens::Match best = ahead;
    while (range < control_ranges.size() && control_ranges[range].second <= from) ++range;
    for (size_t r = range; r < control_ranges.size() && control_ranges[r].first <= best.pos; ++r) {
      const auto [begin, end] = control_ranges[r];
      const SpecialTokens::Match m = control_and_user_->Find(text.substr(0, end), std::max(from, begin), end);
      if (m.id < 0) continue;
      if (m.pos < best.pos || (m.pos == best.pos && m.bytes > best.bytes)) best = m;
      break;
    }
    return best;
  };
  size_t pos = 0;
  while (pos < text.size()) {
    const SpecialTokens::Match match = next(pos);
    const size_t end = std::min(match.pos, text.size());
    FragmentState state;
    if (end > pos) model_->Encode(text.substr(pos, end - pos), false, &state, ids, report);
    if (match.id < 0) break;
    ids->push_back(match.id);
    pos = end + match.bytes;
    if (control_and_user_->SkipsSpacesAfter(match.id)) {
      while (pos < text.size() && std::isspace(static_cast<unsigned char>(text[pos]))) ++pos;
    }
  }
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool show_special) const {
  StreamDecoder decoder(*this, {.show_special = show_special});
  std::string out;
  for (const int32_t id : ids) decoder.Push(id, &out);
  decoder.Finish(&out);
  return out;
}

int32_t Tokenizer::n_tokens() const { return vocab_->size(); }
const std::string& Tokenizer::TokenText(int32_t id) const { return vocab_->text[id]; }

TokenType Tokenizer::Type(int32_t id) const {
  return id >= 0 && id < vocab_->size() ? vocab_->type[id] : TokenType::kUnused;
}

std::string Tokenizer::TokenBytes(int32_t id, bool show_special) const {
  if (id < 0 || id >= vocab_->size()) return "";
  const std::string& text = vocab_->text[id];
  switch (vocab_->type[id]) {
    case TokenType::kControl:
    case TokenType::kUnknown:
      return show_special ? text : "";
    case TokenType::kUserDefined:
      return is_byte_level_ ? text : UnescapeSpaces(text);
    case TokenType::kByte: {
      const int byte = ParseByteToken(text);
      return byte >= 0 ? std::string(1, static_cast<char>(byte)) : text;
    }
    case TokenType::kUnused:
      return "";
    case TokenType::kNormal:
      break;
  }
  return model_->Bytes(text);
}

}  // namespace weir
