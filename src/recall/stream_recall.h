// SPDX-License-Identifier: Apache-2.0
// Everything that recall adds to one session: an archive, a recorder that fills it, and a recaller that searches it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/memory.h"
#include "base/status.h"
#include "engine/loaded_model.h"
#include "engine/session.h"
#include "recall/archive.h"
#include "recall/block_vectors.h"
#include "recall/question_vectors.h"
#include "recall/recaller.h"
#include "recall/recorder.h"
#include "recall/spec.h"

namespace weir {

struct RecallOptions {
  RecallSpec spec;                        // without a selector: no recall
  std::string dir;                        // of the archive; "": files without names, gone with the process
  int64_t disk_bytes = int64_t{2} << 30;  // the archive's largest size: beyond it the oldest is deleted
  std::string temp_dir = "/var/tmp";      // for those
  int32_t max_rows = 0;                   // of the largest picture that is kept; 0: pictures are not
  int32_t tokens = -1;                    // room for excerpts; -1: a quarter of the pot
  bool on() const { return spec.info != nullptr; }
};

// Of the archive of a model's session.
ArchiveOptions ToArchiveOptions(const RecallOptions& recall, const LoadedModel& model);

// Adds what recall needs to a session's plan. kInvalidArgument for a quota that is too small.
Status AddRecall(const RecallOptions& recall, const LoadedModel& model, SessionOptions* options);

class StreamRecall {
 public:
  // For a session that was planned with AddRecall(). Both must outlive the object. An archive in `dir` is continued if
  // there is one, and made otherwise. Errors of Archive::Open() and Make().
  static Result<std::unique_ptr<StreamRecall>> Make(const RecallOptions& options, const LoadedModel& model,
                                                    Session& session);
  // The same around an archive that was opened or forked, whose memory is in the session's ledger.
  static Result<std::unique_ptr<StreamRecall>> Around(std::unique_ptr<Archive> archive, const RecallOptions& options,
                                                      const LoadedModel& model, Session& session);
  ~StreamRecall();
  StreamRecall(const StreamRecall&) = delete;
  StreamRecall& operator=(const StreamRecall&) = delete;

  Recaller& recaller() { return *recaller_; }
  Archive& archive() { return *archive_; }
  // Of the stored keys and values. REQUIRES: RecallSpec::needs_vectors().
  const VectorShape& vector_shape() const { return reader_->vectors().shape; }

  // While paused, what the session reads is not kept: a question that leaves no trace.
  void Pause(bool paused);
  // Hands everything read so far to the operating system. Call it at the end of every call that reads.
  void Flush();
  // Where the stream is, for a saved session; and back there, for a restored one.
  ArchivePoint SavePoint();
  Status CutTo(const ArchivePoint& point);

 private:
  explicit StreamRecall(Session& session) : session_(session) {}

  Session& session_;
  Reservation search_;  // memory of the selector
  HostBuffer rows_;     // of a picture that comes, as half-precision numbers; of one that is read again
  std::unique_ptr<Archive> archive_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<BlockVectors> vectors_;   // nullptr: no keys are kept
  std::unique_ptr<QuestionReader> reader_;  // for them
  std::unique_ptr<Recaller> recaller_;
};

}  // namespace weir
