// weir-plugin: restorer
// SPDX-License-Identifier: Apache-2.0
// kv: keys and values that were stored when the passages were read come back into slots on top of the pot, in the order
// of the stream, without a pass through the model (after ReKV, arXiv 2503.00540). Above the first layer they carry what
// preceded them when they were read. A share of each passage's tokens may be read again, its first ones (EPIC, arXiv
// 2410.15332), which otherwise act as attention sinks.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "kv/axes.h"
#include "recall/passage_text.h"
#include "recall/restorers/restorer.h"
#include "text/stream.h"

namespace weir {

extern const RestorerInfo kReadRestorer;

namespace {

class Kv final : public Restorer {
 public:
  explicit Kv(const Options& options)
      : again_(options.Number("again")),
        frame_(options.Int("frame") != 0),
        read_(kReadRestorer.make(Options::Defaults({"recall", kReadRestorer.name, kReadRestorer.options}))) {}

  Result<std::vector<RecalledPassage>> Restore(const RestoreJob& job, std::span<const Passage> passages) override {
    std::vector<Stored> with;
    std::vector<Passage> without;  // keys and values: they are read
    // The words around an excerpt are read: without them a model of 135M parameters answers half as often.
    const int64_t n_frame =
        frame_ ? std::ssize(job.Encode(kExcerptBegin)) + std::ssize(job.Encode(kExcerptEnd)) : int64_t{0};
    int64_t n_left = job.n_left() - n_frame;
    for (const Passage& passage : passages) {
      WEIR_ASSIGN_OR_RETURN(Stored stored, Find(job, passage));
      const int64_t n_tokens = stored.seqs.end - stored.seqs.begin;
      if (n_tokens == 0) {
        without.push_back(passage);
      } else if (n_tokens <= n_left) {
        n_left -= n_tokens;
        with.push_back(std::move(stored));
      }
    }
    std::ranges::sort(with, {}, [](const Stored& stored) { return stored.seqs.begin; });
    std::vector<RecalledPassage> out;
    const bool framed =
        frame_ && std::ranges::any_of(with, [](const Stored& stored) { return stored.back.n_rows == 0; });
    if (framed) WEIR_RETURN_IF_ERROR(Say(job, kExcerptBegin));
    for (const Stored& stored : with) {
      WEIR_RETURN_IF_ERROR(Put(job, stored.seqs));
      out.push_back(stored.back);
    }
    if (framed) WEIR_RETURN_IF_ERROR(Say(job, kExcerptEnd));
    if (without.empty()) return out;
    WEIR_ASSIGN_OR_RETURN(const std::vector<RecalledPassage> read, read_->Restore(job, without));
    out.insert(out.end(), read.begin(), read.end());
    std::ranges::sort(out, {}, &RecalledPassage::seq);
    return out;
  }

 private:
  static Status Say(const RestoreJob& job, std::string_view text) {
    Session::AppendOptions append;
    append.excerpt = true;
    append.t_src_ms = job.t_ms;
    return job.session.Append(job.Encode(text), append);
  }

  struct Stored {
    SeqRange seqs;  // empty: the archive does not have keys and values of all of the passage
    RecalledPassage back;
  };

  // What of a passage comes back: of a text the sentences that `read` would read, which may lie partly in its
  // neighbours.
  static Result<Stored> Find(const RestoreJob& job, const Passage& passage) {
    Stored out;
    if (job.kv == nullptr) return out;
    const bool text_only = passage.n_rows == 0;
    const SeqRange wide = {passage.seq - (text_only ? kKvTokens : 0), passage.seq_end + (text_only ? kKvTokens : 0)};
    std::vector<size_t> ends;  // of each token's text
    std::string text;
    StreamDecoder decoder(job.tokenizer, {.at_start = false});
    int64_t first = passage.seq, end = passage.seq;  // of the unbroken run of tokens that holds the passage
    WEIR_RETURN_IF_ERROR(job.kv->ScanRange(wide, [&](BlockPlace, const Block& block) {
      if (!IsKvRecord(block, job.shape)) return false;
      const bool inside = block.seq < passage.seq_end && block.seq_end() > passage.seq;
      const bool fits = !text_only || inside || (block.modality == Modality::kText && block.role == Role::kInput);
      if (ends.empty() || block.seq != end || !fits) {
        if (end > passage.seq) return end < passage.seq_end;  // it ended behind the passage, or inside
        ends.clear();
        text.clear();
        first = end = block.seq;
        if (!fits) return true;
      }
      const int32_t n_vocab = job.session.model().config().n_vocab;
      for (int64_t i = 0; i < block.n_tokens; ++i) {
        const int32_t id = TokenOf(block, job.shape, i).id;
        const bool is_text = block.modality == Modality::kText;
        // The file may come from anywhere.
        if (is_text ? id < 0 || id >= n_vocab : id >= 0 || id < -kMaxColumns) return false;
        if (is_text) decoder.Push(id, &text);
        ends.push_back(text.size());
      }
      end = block.seq_end();
      return true;
    }));
    if (first > passage.seq || end < passage.seq_end || ends.empty()) return out;
    const auto behind = [&](int64_t seq) { return seq == first ? 0 : ends[static_cast<size_t>(seq - first) - 1]; };
    out.seqs = {passage.seq, passage.seq_end};
    std::string_view back = text;
    if (text_only) {
      back = WholeSentences(text, behind(passage.seq), behind(passage.seq_end));
      if (!passage.whole) back = AroundBestSentence(back, job.question, job.context);
      const auto at = static_cast<size_t>(back.data() - text.data());
      // The tokens that the words are part of.
      const auto from = std::ranges::upper_bound(ends, at);
      const auto to = std::ranges::lower_bound(ends, at + back.size());
      if (back.empty() || to == ends.end()) return Stored();
      out.seqs = {first + (from - ends.begin()), first + (to - ends.begin()) + 1};
    }
    out.back = {passage.seq, passage.seq_end, passage.t_ms, passage.score, passage.n_rows, std::string(back)};
    return out;
  }

  Status Put(const RestoreJob& job, SeqRange seqs) const {
    auto n_again = static_cast<int64_t>(std::ceil(again_ * static_cast<double>(seqs.end - seqs.begin)));
    Status status;
    WEIR_RETURN_IF_ERROR(job.kv->ScanRange(seqs, [&](BlockPlace, const Block& block) {
      status = PutBlock(job, block, seqs, &n_again);
      return status.ok();
    }));
    return status;
  }

  // Of the tokens of `seqs`, reads the first *n_again of text, and puts the others.
  static Status PutBlock(const RestoreJob& job, const Block& block, SeqRange seqs, int64_t* n_again) {
    std::vector<SlotMeta> rows;
    std::vector<int32_t> again;
    const int64_t first = std::max<int64_t>(0, seqs.begin - block.seq);
    const int64_t last = std::min<int64_t>(block.n_tokens, seqs.end - block.seq);
    for (int64_t i = first; i < last; ++i) {
      const StoredToken token = TokenOf(block, job.shape, i);
      if (block.modality == Modality::kText && *n_again > 0 && rows.empty()) {
        again.push_back(token.id);
        --*n_again;
      } else {
        rows.push_back({.token_id = token.id, .modality = block.modality, .row = token.row});
      }
    }
    if (!again.empty()) {
      Session::AppendOptions append;
      append.excerpt = true;
      append.t_src_ms = job.t_ms;
      WEIR_RETURN_IF_ERROR(job.session.Append(again, append));
    }
    if (rows.empty()) return Status();
    const PotShape& pot = job.session.pot().shape();
    std::vector<float> scratch(static_cast<size_t>(pot.head_dim));
    const int64_t from = first + std::ssize(again);
    return job.session.PutExcerpt(rows, [&](int32_t layer, int32_t head, uint8_t* keys, uint8_t* values) {
      const int64_t at = pot.head_index(layer, head);
      WriteStored(block, job.shape, at, false, {from, last}, pot.k_type, keys, scratch.data());
      WriteStored(block, job.shape, at, true, {from, last}, pot.v_type, values, scratch.data());
    });
  }

  const double again_;
  const bool frame_;
  const std::unique_ptr<Restorer> read_;
};

constexpr OptionInfo kOptions[] = {
    {.key = "again",
     .fallback = 0,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "kv: share of a passage's tokens that are read again, its first ones"},
    {.key = "frame",
     .fallback = 1,
     .min = 0,
     .max = 1,
     .integral = true,
     .help = "kv: 0 leaves out the words that tell the model where an excerpt begins and ends"},
    TextOption("store", "f16", "kv: how keys and values are kept on disk", "f16|q8_0"),
};

}  // namespace

extern const RestorerInfo kKvRestorer;
const RestorerInfo kKvRestorer = {
    .name = "kv",
    .summary = "puts keys and values back that were stored when the passages were read",
    .source = "ReKV, arXiv 2503.00540; EPIC, arXiv 2410.15332",
    .options = kOptions,
    .needs_kv = true,
    .make = [](const Options& options) { return std::unique_ptr<Restorer>(new Kv(options)); },
};

}  // namespace weir
