// SPDX-License-Identifier: Apache-2.0
// Admission control: which kinds of stream sessions a request may create, how many bytes one needs, and whether the
// budget still has them.
//
// A session's whole plan is reserved in the host's ledger before the session is made, so the budget admits exactly as
// many sessions as fit, and a refusal states the figures.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/ledger.h"
#include "recall/stream_recall.h"
#include "serve/host_options.h"
#include "serve/session_table.h"
#include "serve/shared_vision.h"
#include "text/chat_template.h"

namespace weir {

class Admission {
 public:
  // All arguments must outlive it. `chat` is nullptr for a model without a chat template, `vision` is nullptr without
  // an encoder.
  Admission(LoadedModel& model, const ChatTemplate* chat, const HostOptions& options, SharedVision* vision,
            Ledger& ledger)
      : model_(model), chat_(chat), defaults_(options), vision_(vision), ledger_(ledger) {}

  // The default options with another policy or pot; an empty policy and pot 0 keep the defaults. kInvalidArgument for a
  // policy that names a profile (requests open no files) or has more than 4 KiB with its options written out. With
  // room for what `recall` needs.
  Result<SessionOptions> OptionsFor(const std::string& policy, int64_t pot, const RecallOptions& recall) const;
  // Bytes of a session's queue for live video; 0 without an encoder.
  int64_t QueueBytes(int n_waiting) const;
  // Bytes of what the events of a session's rules take beside the session; 0 without rules.
  int64_t EventBytes(const SessionOptions& options) const;
  // False if such a session would not fit even into an unused budget.
  bool CouldFit(const SessionOptions& options) const;
  // `n_waiting`: frames of a live video that may wait; 0: no live video. kOverBudget, with figures, if the budget is
  // too small. [engine]
  Result<std::unique_ptr<StreamSession>> Make(const SessionOptions& options, int n_waiting, std::string id) const;

 private:
  LoadedModel& model_;
  const ChatTemplate* const chat_;
  const HostOptions& defaults_;
  SharedVision* const vision_;
  Ledger& ledger_;
};

// kInvalidArgument for a policy of more than 4 KiB. Error messages repeat policies, and a snapshot stores its session's
// policy with every option written out. The limit is the same for all sources of a policy, so that any server can take
// over another server's sessions.
Status CheckPolicyLength(const std::string& policy);

}  // namespace weir
