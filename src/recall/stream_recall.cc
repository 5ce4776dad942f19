// SPDX-License-Identifier: Apache-2.0
#include "recall/stream_recall.h"

#include <cstdlib>

#include "engine/fingerprint.h"

namespace weir {

ArchiveOptions ToArchiveOptions(const RecallOptions& recall, const LoadedModel& model) {
  return {.dir = recall.dir,
          .temp_dir = recall.temp_dir,
          .disk_bytes = recall.disk_bytes,
          .model_hash = ModelHash(model.file()),
          .tokenizer_hash = TokenizerHash(model.tokenizer())};
}

Status AddRecall(const RecallOptions& recall, const LoadedModel& model, SessionOptions* options) {
  if (!recall.on()) return Status();
  if (recall.tokens == 0 || recall.tokens < -1) return InvalidArgument("recall needs room for at least one token");
  WEIR_ASSIGN_OR_RETURN(const int64_t archive_bytes, Archive::MemoryBytes(ToArchiveOptions(recall, model)));
  options->excerpt_slots = recall.tokens;
  options->beside.push_back({MemTag::kOther, "recall: buffers of the archive", archive_bytes});
  return Status();
}

Result<std::unique_ptr<StreamRecall>> StreamRecall::Make(const RecallOptions& options, const LoadedModel& model,
                                                         Session& session) {
  const ArchiveOptions archive = ToArchiveOptions(options, model);
  const bool exists = !options.dir.empty() && Archive::Exists(options.dir);
  WEIR_ASSIGN_OR_RETURN(auto opened, exists ? Archive::Open(archive, session.ledger())
                                            : Archive::Make(archive, session.ledger()));
  return Around(std::move(opened), options, model, session);
}

std::unique_ptr<StreamRecall> StreamRecall::Around(std::unique_ptr<Archive> archive, const RecallOptions& options,
                                                   const LoadedModel& model, Session& session) {
  std::unique_ptr<StreamRecall> out(new StreamRecall(session));
  out->archive_ = std::move(archive);
  // What cannot be kept is counted by the archive, and said in its notes.
  out->recorder_ = std::make_unique<Recorder>(
      model.tokenizer(), [to = out->archive_.get()](const Block& block) { (void)to->Append(block); },
      /*pictures=*/false);
  out->recaller_ = std::make_unique<Recaller>(options.spec, *out->archive_, model.tokenizer(), out->recorder_.get());
  session.SetListener(out->recorder_.get());
  return out;
}

StreamRecall::~StreamRecall() {
  session_.SetListener(nullptr);
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
