// SPDX-License-Identifier: Apache-2.0
#include "recall/stream_recall.h"

#include <cstdlib>

#include "engine/fingerprint.h"

namespace weir {
namespace {

// Numbers of the largest picture.
int64_t PictureNumbers(const RecallOptions& recall, const LoadedModel& model) {
  return int64_t{recall.max_rows} * model.model().config().n_embd;
}

int64_t PictureBytes(const RecallOptions& recall, const LoadedModel& model) {
  return PageRound(PictureNumbers(recall, model) * static_cast<int64_t>(sizeof(uint16_t) + sizeof(float)));
}

}  // namespace

ArchiveOptions ToArchiveOptions(const RecallOptions& recall, const LoadedModel& model) {
  return {.dir = recall.dir,
          .temp_dir = recall.temp_dir,
          .disk_bytes = recall.disk_bytes,
          .model_hash = ModelHash(model.file()),
          .tokenizer_hash = TokenizerHash(model.tokenizer()),
          .n_embd = model.model().config().n_embd,
          .max_rows = recall.max_rows};
}

Status AddRecall(const RecallOptions& recall, const LoadedModel& model, SessionOptions* options) {
  if (!recall.on()) return Status();
  if (recall.tokens == 0 || recall.tokens < -1) return InvalidArgument("recall needs room for at least one token");
  WEIR_ASSIGN_OR_RETURN(const int64_t archive_bytes, Archive::MemoryBytes(ToArchiveOptions(recall, model)));
  options->excerpt_slots = recall.tokens;
  options->beside.push_back(
      {MemTag::kOther, "recall: buffers of the archive", archive_bytes + PictureBytes(recall, model)});
  options->beside.push_back({MemTag::kOther, "recall: a search", Recaller::MemoryBytes(recall.spec)});
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
  // What cannot be kept is counted by the archive, and said in its notes.
  out->recorder_ = std::make_unique<Recorder>(
      model.tokenizer(), [to = out->archive_.get()](const Block& block) { (void)to->Append(block); }, coming);
  out->recaller_ =
      std::make_unique<Recaller>(options.spec, *out->archive_, model.tokenizer(), out->recorder_.get(), again);
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
