// SPDX-License-Identifier: Apache-2.0
#include "recall/stream_recall.h"

#include <cstdlib>

#include "engine/fingerprint.h"

namespace weir {
namespace {

// Numbers of the largest picture.
int64_t PictureNumbers(const RecallOptions& recall, const LoadedModel& model) {
  return int64_t{recall.max_rows} * model.model().config().row_width();
}

int64_t PictureBytes(const RecallOptions& recall, const LoadedModel& model) {
  return PageRound(PictureNumbers(recall, model) * static_cast<int64_t>(sizeof(uint16_t) + sizeof(float)));
}

VectorShape ShapeOf(const RecallSpec& spec, const LoadedModel& model) {
  return VectorShape::Of(model.model().config().attention.pot(),
                         spec.options.Text("store") == "q8_0" ? DType::kQ8_0 : DType::kF16);
}

Status CheckVectors(const RecallOptions& recall, const LoadedModel& model, const SessionOptions& options) {
  const VectorShape shape = ShapeOf(recall.spec, model);
  for (const VectorShape::Head& head : shape.heads) {
    if (shape.kv_type != DType::kQ8_0 || head.dim % 32 == 0) continue;
    return InvalidArgument(
        "store=q8_0 needs heads of a multiple of 32 numbers, and this model's have {}; use store=f16", head.dim);
  }
  const AttentionLayout& layout = model.model().config().attention;
  if (layout.n_learned_positions > 0) {
    return Unsupported(
        "recall by keys and values needs positions that can be changed, and this model adds learned ones "
        "to its input; use --recall words");
  }
  if (recall.spec.restorer->needs_kv && layout.has_axes()) {
    return Unsupported("restore=kv does not know positions with three axes, which this model has; use restore=read");
  }
  if (recall.spec.restorer->needs_kv && layout.n_state > 0) {
    return Unsupported(
        "restore=kv puts keys and values back, which the layers of this model that keep a state would not read; use "
        "restore=read");
  }
  WEIR_ASSIGN_OR_RETURN(const auto policy, options.policy.Make());
  PotShape pot;
  pot.positions = policy->Needs().positions;
  return BlockVectors::Check(pot, model.backend().on_host());
}

}  // namespace

ArchiveOptions ToArchiveOptions(const RecallOptions& recall, const LoadedModel& model) {
  ArchiveOptions out = {.dir = recall.dir,
                        .temp_dir = recall.temp_dir,
                        .disk_bytes = recall.disk_bytes,
                        .model_hash = ModelHash(model.file()),
                        .tokenizer_hash = TokenizerHash(model.tokenizer()),
                        .n_embd = model.model().config().row_width(),
                        .max_rows = recall.max_rows};
  if (!recall.on()) return out;
  const VectorShape shape = ShapeOf(recall.spec, model);
  if (recall.spec.info->needs_keys) out.key_numbers = static_cast<int32_t>(shape.key_numbers());
  if (recall.spec.restorer->needs_kv) {
    out.kv_numbers = static_cast<int32_t>(shape.kv_numbers());
    out.kv_tokens = kKvTokens;
  }
  return out;
}

Status AddRecall(const RecallOptions& recall, const LoadedModel& model, SessionOptions* options) {
  if (!recall.on()) return Status();
  if (recall.tokens == 0 || recall.tokens < -1) return InvalidArgument("recall needs room for at least one token");
  WEIR_ASSIGN_OR_RETURN(const int64_t archive_bytes, Archive::MemoryBytes(ToArchiveOptions(recall, model)));
  options->excerpt_slots = recall.tokens;
  options->beside.push_back(
      {MemTag::kOther, "recall: buffers of the archive", archive_bytes + PictureBytes(recall, model)});
  options->beside.push_back({MemTag::kOther, "recall: a search", Recaller::MemoryBytes(recall.spec)});
  if (recall.spec.needs_vectors()) {
    WEIR_RETURN_IF_ERROR(CheckVectors(recall, model, *options));
    // An archive has the vectors of all layers, whatever the size of the pot that they come from and return to.
    options->windows_in_pot = true;
    options->beside.push_back({MemTag::kOther, "recall: keys of a block and of a question",
                               BlockVectors::MemoryBytes(ShapeOf(recall.spec, model)) +
                                   QuestionReader::MemoryBytes(model.model().config().attention)});
  }
  if (recall.spec.rerank() > 1) options->nll = true;
  return Status();
}

Result<std::unique_ptr<StreamRecall>> StreamRecall::Make(const RecallOptions& options, const LoadedModel& model,
                                                         Session& session) {
  const ArchiveOptions archive = ToArchiveOptions(options, model);
  const bool exists = !options.dir.empty() && Archive::Exists(options.dir);
  WEIR_ASSIGN_OR_RETURN(auto opened,
                        exists ? Archive::Open(archive, session.ledger()) : Archive::Make(archive, session.ledger()));
  return Around(std::move(opened), options, model, session);
}

Result<std::unique_ptr<StreamRecall>> StreamRecall::Around(std::unique_ptr<Archive> archive,
                                                           const RecallOptions& options, const LoadedModel& model,
                                                           Session& session) {
  std::unique_ptr<StreamRecall> out(new StreamRecall(session));
  out->archive_ = std::move(archive);
  WEIR_ASSIGN_OR_RETURN(out->search_, session.ledger().Reserve(MemTag::kOther, Recaller::MemoryBytes(options.spec)));
  WEIR_ASSIGN_OR_RETURN(out->rows_,
                        HostBuffer::Allocate(session.ledger(), MemTag::kOther, PictureBytes(options, model)));
  const auto n = static_cast<size_t>(PictureNumbers(options, model));
  const std::span<float> again(out->rows_.as<float>(), n);
  const std::span<uint16_t> coming(reinterpret_cast<uint16_t*>(out->rows_.as<float>() + n), n);
  if (options.spec.needs_vectors()) {
    const VectorShape shape = ShapeOf(options.spec, model);
    WEIR_ASSIGN_OR_RETURN(out->vectors_, BlockVectors::Make(session.pot(), *out->archive_, shape, session.ledger()));
    WEIR_ASSIGN_OR_RETURN(out->reader_, QuestionReader::Make(session, shape, session.ledger()));
  }
  // What cannot be kept is counted by the archive, and said in its notes.
  const auto keep = [to = out->archive_.get(), vectors = out->vectors_.get()](const Block& block) {
    const Status status = to->Append(block);
    if (vectors == nullptr) return;
    status.ok() ? vectors->Ended(block, to->newest_place()) : vectors->Dropped();
  };
  out->recorder_ = std::make_unique<Recorder>(model.tokenizer(), keep, coming);
  out->recorder_->SetRowWatcher(out->vectors_.get());
  out->recaller_ =
      std::make_unique<Recaller>(options.spec, *out->archive_, model.tokenizer(), out->recorder_.get(), again);
  if (out->reader_ != nullptr) out->recaller_->SetVectors(*out->reader_, *out->archive_);
  session.SetListener(out->recorder_.get());
  return out;
}

StreamRecall::~StreamRecall() {
  session_.SetListener(nullptr);
  if (recorder_ == nullptr) return;  // it could not be made
  recorder_->Flush();
  archive_->Flush();
}

void StreamRecall::Pause(bool paused) { session_.SetListener(paused ? nullptr : recorder_.get()); }

void StreamRecall::Flush() {
  recorder_->Flush();
  archive_->Flush();
}

ArchivePoint StreamRecall::SavePoint() {
  recorder_->Flush();
  return archive_->SavePoint();
}

Status StreamRecall::CutTo(const ArchivePoint& point) {
  recorder_->Drop();
  return archive_->CutTo(point);
}

}  // namespace weir
