// SPDX-License-Identifier: Apache-2.0
#include "recall/file_recall.h"

#include <utility>

namespace weir {
namespace {

int64_t Bytes(const RecallSpec& spec) { return FileBlocks::MemoryBytes() + Recaller::MemoryBytes(spec); }

}  // namespace

Status FileRecall::Plan(const RecallSpec& spec, int32_t tokens, SessionOptions* options) {
  if (spec.info == nullptr) return Status();
  if (tokens == 0 || tokens < -1) return InvalidArgument("recall needs room for at least one token");
  options->excerpt_slots = tokens;
  if (spec.rerank() > 1) options->nll = true;
  options->beside.push_back({MemTag::kOther, "recall: buffers of the file, and a search", Bytes(spec)});
  return Status();
}

Result<std::unique_ptr<FileRecall>> FileRecall::Make(const std::string& path, const RecallSpec& spec,
                                                     const Tokenizer& tokenizer, Session& session) {
  WEIR_ASSIGN_OR_RETURN(Reservation bytes, session.ledger().Reserve(MemTag::kOther, Bytes(spec)));
  WEIR_ASSIGN_OR_RETURN(auto file, FileBlocks::Open(path));
  return std::unique_ptr<FileRecall>(new FileRecall(std::move(file), spec, tokenizer, std::move(bytes)));
}

}  // namespace weir
