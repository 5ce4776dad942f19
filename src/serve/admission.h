// SPDX-License-Identifier: Apache-2.0
// The room of admission: which kinds of stream sessions a request may ask for, what one needs, and whether the budget
// still has it.
//
// A session's whole plan is reserved in the host's ledger before it is made, so that the budget admits exactly as many
// as it holds, and a request that is refused is told in figures.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/ledger.h"
#include "serve/host_options.h"
#include "serve/session_table.h"
#include "serve/shared_vision.h"
#include "text/chat_template.h"

namespace weir {

class Admission {
 public:
  // All of them outlive it. `chat` is nullptr for a model without a chat template, `vision` without an encoder.
  Admission(LoadedModel& model, const ChatTemplate* chat, const HostOptions& options, SharedVision* vision,
            Ledger& ledger)
      : model_(model), chat_(chat), defaults_(options), vision_(vision), ledger_(ledger) {}

  // The default kind with another policy or pot; an empty policy and pot 0 are the default's. kInvalidArgument for a
  // policy that names a profile (requests open no files) or has more than 4 KiB with its options written out.
  Result<SessionOptions> OptionsFor(const std::string& policy, int64_t pot) const;
  // Of a session's queue for a live video; 0 without an encoder.
  int64_t QueueBytes(int n_waiting) const;
  // False when the budget has no room for such a session even if nothing else used it.
  bool CouldFit(const SessionOptions& options) const;
  // `n_waiting`: frames of a live video that may wait; 0: no live video. kOverBudget with figures when the budget lacks
  // the bytes. [engine]
  Result<std::unique_ptr<StreamSession>> Make(const SessionOptions& options, int n_waiting, std::string id) const;

 private:
  LoadedModel& model_;
  const ChatTemplate* const chat_;
  const HostOptions& defaults_;
  SharedVision* const vision_;
  Ledger& ledger_;
};

// kInvalidArgument for a policy of more than 4 KiB. Errors repeat policies, and a snapshot names its session's with
// every option written out; the limit is the same wherever a policy comes from: what one server makes, any other can
// take over.
Status CheckPolicyLength(const std::string& policy);

}  // namespace weir
