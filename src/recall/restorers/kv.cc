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

#include "recall/restorers/restorer.h"

namespace weir {

extern const RestorerInfo kRead;

namespace {

class Kv final : public Restorer {
 public:
  explicit Kv(double again)
      : again_(again), read_(kRead.make(Options::Defaults({"recall", kRead.name, kRead.options}))) {}

  Result<std::vector<RecalledPassage>> Restore(const RestoreJob& job, std::span<const Passage> passages) override {
    std::vector<RecalledPassage> out;
    std::vector<Passage> without;  // keys and values: they are read
    int64_t n_left = job.n_left();
    std::vector<Passage> with;
    for (const Passage& passage : passages) {
      WEIR_ASSIGN_OR_RETURN(const int64_t n_tokens, Stored(job, passage));
      if (n_tokens == 0) {
        without.push_back(passage);
      } else if (n_tokens <= n_left) {
        n_left -= n_tokens;
        with.push_back(passage);
      }
    }
    std::ranges::sort(with, {}, &Passage::seq);
    for (const Passage& passage : with) {
      WEIR_ASSIGN_OR_RETURN(RecalledPassage back, Put(job, passage));
      out.push_back(std::move(back));
    }
    if (without.empty()) return out;
    WEIR_ASSIGN_OR_RETURN(const std::vector<RecalledPassage> read, read_->Restore(job, without));
    out.insert(out.end(), read.begin(), read.end());
    std::ranges::sort(out, {}, &RecalledPassage::seq);
    return out;
  }

 private:
  // Tokens of the passage, if the archive has keys and values of all of them; otherwise 0.
  static Result<int64_t> Stored(const RestoreJob& job, const Passage& passage) {
    int64_t n = 0, at = passage.seq;
    if (job.kv == nullptr) return n;
    WEIR_RETURN_IF_ERROR(job.kv->ScanRange({passage.seq, passage.seq_end}, [&](BlockPlace, const Block& block) {
      if (!IsKvRecord(block, job.shape) || block.seq != at) return false;
      at = block.seq_end();
      n += block.n_tokens;
      return at < passage.seq_end;
    }));
    return at == passage.seq_end ? n : 0;
  }

  Result<RecalledPassage> Put(const RestoreJob& job, const Passage& passage) const {
    RecalledPassage out = {passage.seq, passage.seq_end, passage.t_ms, passage.score, passage.n_rows, {}};
    std::vector<int32_t> ids;
    int64_t n_again = static_cast<int64_t>(std::ceil(again_ * static_cast<double>(passage.seq_end - passage.seq)));
    Status status;
    WEIR_RETURN_IF_ERROR(job.kv->ScanRange({passage.seq, passage.seq_end}, [&](BlockPlace, const Block& block) {
      status = PutBlock(job, block, &n_again, &ids);
      return status.ok();
    }));
    WEIR_RETURN_IF_ERROR(status);
    out.text = job.tokenizer.Decode(ids);
    return out;
  }

  // Reads the first *n_again tokens of text, and puts the others.
  static Status PutBlock(const RestoreJob& job, const Block& block, int64_t* n_again, std::vector<int32_t>* ids) {
    std::vector<SlotMeta> rows;
    std::vector<int32_t> again;
    for (int64_t i = 0; i < block.n_tokens; ++i) {
      const StoredToken token = TokenOf(block, job.shape, i);
      const bool text = block.modality == Modality::kText;
      if (text) ids->push_back(token.id);
      if (text && *n_again > 0 && rows.empty()) {
        again.push_back(token.id);
        --*n_again;
        continue;
      }
      rows.push_back({.token_id = token.id, .modality = block.modality, .row = token.row});
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
    const auto first = static_cast<int64_t>(again.size());
    return job.session.PutExcerpt(rows, [&](int32_t layer, int32_t head, uint8_t* keys, uint8_t* values) {
      const int64_t at = int64_t{layer} * pot.n_kv_heads + head;
      WriteStored(block, job.shape, at, false, first, pot.k_type, keys, scratch.data());
      WriteStored(block, job.shape, at, true, first, pot.v_type, values, scratch.data());
    });
  }

  const double again_;
  const std::unique_ptr<Restorer> read_;
};

constexpr OptionInfo kOptions[] = {
    {.key = "again",
     .fallback = 0,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "kv: share of a passage's tokens that are read again, its first ones"},
    TextOption("store", "f16", "kv: how keys and values are kept on disk", "f16|q8_0"),
};

}  // namespace

extern const RestorerInfo kKv;
const RestorerInfo kKv = {
    .name = "kv",
    .summary = "puts keys and values back that were stored when the passages were read",
    .source = "ReKV, arXiv 2503.00540; EPIC, arXiv 2410.15332",
    .options = kOptions,
    .needs_kv = true,
    .make = [](const Options& options) { return std::unique_ptr<Restorer>(new Kv(options.Number("again"))); },
};

}  // namespace weir
