// SPDX-License-Identifier: Apache-2.0
#include "serve/admission.h"

#include <ctime>
#include <optional>
#include <utility>

#include "chat/probe.h"

namespace weir {
namespace {

constexpr size_t kMaxPolicyBytes = 1 << 12;

SessionOptions WithRules(SessionOptions options) {
  if (options.aside_slots > 0) options.beside.push_back(SessionRules::Room(options.aside_slots));
  return options;
}

}  // namespace

Status CheckPolicyLength(const std::string& policy) {
  if (policy.size() <= kMaxPolicyBytes) return Status();
  return InvalidArgument("a policy with all its options may have at most {} bytes; this one has {}", kMaxPolicyBytes,
                         policy.size());
}

Result<SessionOptions> Admission::OptionsFor(const std::string& policy, int64_t pot,
                                             const RecallOptions& recall) const {
  SessionOptions out = defaults_.session;
  WEIR_RETURN_IF_ERROR(AddRecall(recall, model_, &out));
  if (pot > 0) out.pot_slots = static_cast<int32_t>(pot);
  if (policy.empty()) return out;
  WEIR_RETURN_IF_ERROR(CheckPolicyLength(policy));
  WEIR_ASSIGN_OR_RETURN(out.policy, ParsePolicySpec(policy, Profiles::kRefused));
  WEIR_RETURN_IF_ERROR(CheckPolicyLength(out.policy.text));
  // The server's draft guesses for the sessions that can take a guess back.
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Policy> made, out.policy.Make());
  if (!ReadAhead::Suits(model_.model().config().attention, NeedsOf(*made, out))) out.draft = {};
  out.probe.clear();
  out.max_probe = 0;
  WEIR_RETURN_IF_ERROR(PrepareProbe(model_.tokenizer(), chat_, std::nullopt, &out));
  return out;
}

int64_t Admission::QueueBytes(int n_waiting) const {
  return vision_ == nullptr || n_waiting == 0 ? 0 : FrameQueue::Bytes(vision_->encoder->config(), n_waiting);
}

int64_t Admission::EventBytes(const SessionOptions& options) const {
  return SessionRules::BytesBeside(options, vision_ == nullptr ? nullptr : &vision_->encoder->config());
}

bool Admission::CouldFit(const SessionOptions& options) const {
  const auto plan = PlanSession(model_.model(), model_.backend(), WithRules(options));
  return !plan.ok() || plan->total_bytes + EventBytes(options) <= ledger_.budget_bytes();
}

Result<std::unique_ptr<StreamSession>> Admission::Make(const SessionOptions& options, int n_waiting,
                                                       std::string id) const {
  const SessionOptions with_rules = WithRules(options);
  WEIR_ASSIGN_OR_RETURN(const SessionPlan plan, PlanSession(model_.model(), model_.backend(), with_rules));
  const int64_t needed = plan.total_bytes + QueueBytes(n_waiting) + EventBytes(options);
  const int64_t free = ledger_.budget_bytes() - ledger_.used_bytes();
  auto bytes = ledger_.Reserve(MemTag::kOther, plan.total_bytes);
  if (!bytes.ok() || needed > free) {
    return OverBudget(
        "this session needs {} bytes; {} of the budget of {} are free: delete a session, ask for a smaller "
        "pot, or start the server with a larger --budget",
        needed, free, ledger_.budget_bytes());
  }
  std::shared_ptr<FrameQueue> frames;
  if (QueueBytes(n_waiting) > 0) {
    WEIR_ASSIGN_OR_RETURN(frames, FrameQueue::Make(*vision_, n_waiting, ledger_));
  }
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Make(model_.model(), model_.backend(), with_rules));
  std::unique_ptr<SessionRules> rules;
  if (options.aside_slots > 0) {
    const PlanItem room = SessionRules::Room(options.aside_slots);
    WEIR_ASSIGN_OR_RETURN(Reservation of_rules, session->ledger().Reserve(room.tag, room.bytes));
    WEIR_ASSIGN_OR_RETURN(std::shared_ptr<EventRing> ring, EventRing::Make(ledger_));
    std::shared_ptr<EventPictures> pictures;
    if (vision_ != nullptr) {
      WEIR_ASSIGN_OR_RETURN(pictures, EventPictures::Make(vision_->encoder->config().transform, ledger_));
    }
    rules =
        std::make_unique<SessionRules>(model_.tokenizer(), std::move(of_rules), std::move(ring), std::move(pictures));
  }
  std::unique_ptr<FrameStore> kept_frames;
  if (vision_ != nullptr) {
    WEIR_ASSIGN_OR_RETURN(kept_frames, FrameStore::Make(defaults_.encoder->encoder(), session->ledger()));
  }
  const bool prunes = vision_ != nullptr && defaults_.prune.info != nullptr;
  return std::unique_ptr<StreamSession>(new StreamSession{
      .id = std::move(id),
      .session = std::move(session),
      .conversation = Conversation(model_.tokenizer(), chat_),
      .options = options,
      .reservation = *std::move(bytes),
      .created_s = static_cast<int64_t>(std::time(nullptr)),
      .kept_frames = std::move(kept_frames),
      .recall = nullptr,
      .rules = std::move(rules),
      .frames = std::move(frames),
      .rows_pruned = prunes ? std::optional<int64_t>(0) : std::nullopt,
  });
}

}  // namespace weir
