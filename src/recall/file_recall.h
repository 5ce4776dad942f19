// SPDX-License-Identifier: Apache-2.0
// Recall for a session that reads one text file, which stays where it is: the file is the archive, nothing is copied.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/ledger.h"
#include "base/status.h"
#include "engine/session.h"
#include "recall/file_blocks.h"
#include "recall/recaller.h"
#include "recall/spec.h"
#include "text/tokenizer.h"

namespace weir {

class FileRecall {
 public:
  // Adds what Make() reserves to a session's plan, and room for excerpts: `tokens` as RecallOptions::tokens. Does
  // nothing for a spec without a selector. kInvalidArgument for room for no token.
  static Status Plan(const RecallSpec& spec, int32_t tokens, SessionOptions* options);
  // For a session that was planned with Plan(). `session` and `tokenizer` must outlive the object. Errors of
  // FileBlocks::Open(); kOverBudget.
  static Result<std::unique_ptr<FileRecall>> Make(const std::string& path, const RecallSpec& spec,
                                                  const Tokenizer& tokenizer, Session& session);

  Recaller& recaller() { return recaller_; }
  FileBlocks& file() { return *file_; }

 private:
  FileRecall(std::unique_ptr<FileBlocks> file, const RecallSpec& spec, const Tokenizer& tokenizer, Reservation bytes)
      : bytes_(std::move(bytes)), file_(std::move(file)), recaller_(spec, *file_, tokenizer, nullptr) {}

  Reservation bytes_;
  std::unique_ptr<FileBlocks> file_;
  Recaller recaller_;
};

}  // namespace weir
