// SPDX-License-Identifier: Apache-2.0
#include "capi/own_policy.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <utility>

#include "policy/step.h"

namespace weir {

static_assert(sizeof(SlotMeta) == sizeof(weir_slot) && offsetof(SlotMeta, seq) == offsetof(weir_slot, seq) &&
                  offsetof(SlotMeta, t_src_ms) == offsetof(weir_slot, t_ms) &&
                  offsetof(SlotMeta, token_id) == offsetof(weir_slot, token_id) &&
                  offsetof(SlotMeta, modality) == offsetof(weir_slot, modality) &&
                  offsetof(SlotMeta, pinned) == offsetof(weir_slot, pinned) &&
                  offsetof(SlotMeta, row) == offsetof(weir_slot, row),
              "views show the pot's own metadata");

// Asks the caller of the C API.
class OwnPolicy : public Policy {
 public:
  OwnPolicy(OwnRule& rule, std::unique_ptr<Policy> like) : rule_(rule), like_(std::move(like)) {}

  PolicyNeeds Needs() const override { return rule_.needs_; }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    if (rule_.target_ != nullptr) return std::min(rule_.target_(n_slots, n_coming, rule_.user_), n_slots - n_coming);
    if (like_ != nullptr) return like_->TargetSlots(n_slots, n_coming);
    return StepTarget(0, n_slots, n_coming, rule_.needs_.min_slots - 1);
  }
  int32_t TargetAfterPrompt(int32_t n_slots) const override {
    return like_ == nullptr ? -1 : like_->TargetAfterPrompt(n_slots);
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    SelectAll({&view, 1}, n_keep, {keep, 1});
  }
  void SelectAfterPrompt(std::span<const SlotView> views, std::span<KeepSet> keeps) override {
    Show(views, keeps);
    Status failure;
    if (rule_.trim_(pointers_.data(), pointers_.size(), rule_.user_) != 0) {
      failure = Cancelled("the policy {} could not select at the end of a prompt", rule_.name_);
    } else {
      failure = CheckCounts(-1);
    }
    Take(std::move(failure), keeps);
  }
  void SelectRead(const SlotView& view, KeepSet* read) override {
    if (like_ != nullptr) like_->SelectRead(view, read);
  }

  void SelectAll(std::span<const SlotView> views, int32_t n_keep, std::span<KeepSet> keeps) override {
    Show(views, keeps);
    Status failure;
    if (rule_.select_(pointers_.data(), pointers_.size(), n_keep, rule_.user_) != 0) {
      failure = Cancelled("the policy {} could not select", rule_.name_);
    } else {
      failure = CheckCounts(n_keep);
    }
    Take(std::move(failure), keeps);
  }

 private:
  void Show(std::span<const SlotView> views, std::span<KeepSet> keeps) {
    shown_.resize(views.size());
    pointers_.resize(views.size());
    for (size_t i = 0; i < views.size(); ++i) {
      keeps[i].resize(views[i].slots.size());  // the caller writes into the engine's own list
      shown_[i] = Shown(views[i], keeps[i].data());
      pointers_[i] = &shown_[i];
    }
  }
  // Hands on what the caller chose.
  void Take(Status failure, std::span<KeepSet> keeps) {
    if (!failure.ok()) {
      // No slot is called -1: the engine refuses it before anything is forgotten.
      for (KeepSet& keep : keeps) keep.assign(1, -1);
      rule_.failure_ = std::move(failure);
      return;
    }
    for (size_t i = 0; i < keeps.size(); ++i) keeps[i].resize(shown_[i].n_kept);
  }
  static weir_view Shown(const SlotView& view, int32_t* keep) {
    const auto floats = [&](std::span<const float> values) { return values.empty() ? nullptr : values.data(); };
    weir_view out{};
    out.struct_bytes = sizeof(out);
    out.group = view.group;
    out.layer = view.layer;
    out.head = view.head;
    out.n_layers = view.n_layers;
    out.n_kv_heads = view.n_kv_heads;
    out.n_rows = view.n_rows;
    out.n_unscored = view.n_unscored;
    out.n_seen = view.n_seen;
    out.n_seen_visual = view.n_seen_visual;
    out.n_slots = view.slots.size();
    out.slots = reinterpret_cast<const weir_slot*>(view.slots.data());
    out.scores = floats(view.scores);
    out.nll = floats(view.nll);
    out.novelty = floats(view.novelty);
    out.visual = floats(view.visual);
    out.keep = keep;
    out.scenes = floats(view.scenes);
    return out;
  }
  // The engine allows fewer slots than it asked for; a caller that keeps fewer has made a mistake. n_keep: -1 for any
  // number.
  Status CheckCounts(int32_t n_keep) const {
    const bool shared = rule_.needs_.spread != 1;
    for (const weir_view& view : shown_) {
      if (n_keep < 0) {
        if (view.n_kept <= view.n_slots) continue;
        return InvalidArgument("the policy {} kept {} of {} slots in group {}", rule_.name_, view.n_kept, view.n_slots,
                               view.group);
      }
      const size_t wanted = std::min(view.n_slots, static_cast<size_t>(n_keep));
      if (view.n_kept > view.n_slots || (!shared && view.n_kept != wanted)) {
        return InvalidArgument("the policy {} kept {} of {} slots in group {}, where {} should stay", rule_.name_,
                               view.n_kept, view.n_slots, view.group, wanted);
      }
    }
    return Status();  // the engine checks the sum, the order and the pinned ones
  }

  OwnRule& rule_;
  const std::unique_ptr<Policy> like_;
  std::vector<weir_view> shown_;
  std::vector<weir_view*> pointers_;
};

Result<std::unique_ptr<Policy>> OwnRule::NewPolicy(OwnRule& rule) {
  std::unique_ptr<Policy> like;
  if (rule.like_) {
    WEIR_ASSIGN_OR_RETURN(like, rule.like_->Make());
  }
  return std::unique_ptr<Policy>(new OwnPolicy(rule, std::move(like)));
}

namespace {

// PolicyInfo::make is a plain function, as those of the built-in policies are: a rule's address comes as an option.
constexpr PolicyOptionInfo kOptions[] = {TextOption("rule", "", "where the rule is")};

template <typename To>
Result<To> OneOf(const char* field, int32_t value, std::initializer_list<std::pair<int32_t, To>> known) {
  for (const auto& [given, out] : known) {
    if (value == given) return out;
  }
  return InvalidArgument("weir_policy.{} is {}: it is none of its values", field, value);
}

Result<PolicyNeeds> NeedsOf(const weir_policy& given) {
  PolicyNeeds needs;
  Evidence& evidence = needs.evidence;
  WEIR_ASSIGN_OR_RETURN(needs.granularity, OneOf<Granularity>("share", given.share,
                                                              {{WEIR_ALL, Granularity::kGlobal},
                                                               {WEIR_LAYER, Granularity::kPerLayer},
                                                               {WEIR_HEAD, Granularity::kPerHead}}));
  WEIR_ASSIGN_OR_RETURN(needs.positions, OneOf<Positions>("positions", given.positions,
                                                          {{WEIR_CACHE, Positions::kCache},
                                                           {WEIR_RESET, Positions::kReset},
                                                           {WEIR_ABS, Positions::kAbs}}));
  WEIR_ASSIGN_OR_RETURN(evidence.rows, OneOf<EvidenceRows>("rows", given.rows,
                                                           {{WEIR_NO_ROWS, EvidenceRows::kNone},
                                                            {WEIR_LAST_ROWS, EvidenceRows::kLast},
                                                            {WEIR_ALL_ROWS, EvidenceRows::kAll},
                                                            {WEIR_PROBE_ROWS, EvidenceRows::kProbe}}));
  WEIR_ASSIGN_OR_RETURN(
      evidence.row_reduce,
      OneOf<RowReduce>("row_reduce", given.row_reduce, {{WEIR_SUM, RowReduce::kSum}, {WEIR_MAX, RowReduce::kMax}}));
  WEIR_ASSIGN_OR_RETURN(
      evidence.head_reduce,
      OneOf<HeadReduce>("head_reduce", given.head_reduce,
                        {{WEIR_MEAN, HeadReduce::kMean}, {WEIR_MAX, HeadReduce::kMax}, {WEIR_SUM, HeadReduce::kSum}}));
  WEIR_ASSIGN_OR_RETURN(evidence.vector, OneOf<VectorScore>("vector", given.vector,
                                                            {{WEIR_NO_VECTOR, VectorScore::kNone},
                                                             {WEIR_KEY_DIFF, VectorScore::kKeyDiff},
                                                             {WEIR_VALUE_NORM, VectorScore::kValueNorm}}));
  if (evidence.rows != EvidenceRows::kNone && evidence.vector != VectorScore::kNone) {
    return InvalidArgument("a policy ranks by attention (rows) or by vectors (vector), not by both");
  }
  if (evidence.vector != VectorScore::kNone && needs.granularity != Granularity::kPerHead) {
    return InvalidArgument("vectors belong to KV heads: weir_policy.share must be WEIR_HEAD");
  }
  if (evidence.rows != EvidenceRows::kNone && needs.granularity == Granularity::kGlobal) {
    return InvalidArgument("attention differs by layer: weir_policy.share must be WEIR_LAYER or WEIR_HEAD");
  }
  if (evidence.rows == EvidenceRows::kLast && (given.n_last < 1 || given.n_last > (1 << 16))) {
    return InvalidArgument("weir_policy.n_last is {}: 1 to 65,536 rows can vote", given.n_last);
  }
  if (evidence.rows == EvidenceRows::kProbe && (given.probe == nullptr || *given.probe == '\0')) {
    return InvalidArgument("WEIR_PROBE_ROWS needs weir_policy.probe, the text whose rows vote");
  }
  if (given.min_tokens < 0 || given.min_tokens > (1 << 20)) {
    return InvalidArgument("weir_policy.min_tokens is {}", given.min_tokens);
  }
  evidence.n_last = given.n_last;
  evidence.nll = given.nll == 0 ? Normaliser::kNone : given.nll == 2 ? Normaliser::kSampled : Normaliser::kExact;
  needs.min_slots = std::max(2, given.min_tokens);
  if (evidence.rows == EvidenceRows::kProbe) needs.probe = given.probe;
  return needs;
}

Result<std::unique_ptr<Policy>> MakeOwn(const PolicyOptions& options) {
  const std::string& text = options.Text("rule");
  uintptr_t address = 0;
  std::from_chars(text.data(), text.data() + text.size(), address);
  OwnRule& rule = *reinterpret_cast<OwnRule*>(address);  // OwnRule::Make() wrote it
  return OwnRule::NewPolicy(rule);
}

}  // namespace

Result<std::shared_ptr<OwnRule>> OwnRule::Make(const weir_policy& given) {
  if (given.name == nullptr || *given.name == '\0' || given.select == nullptr) {
    return InvalidArgument("weir_policy needs a name and select");
  }
  std::shared_ptr<OwnRule> out(new OwnRule);
  out->name_ = given.name;
  out->select_ = given.select;
  out->target_ = given.target;
  out->trim_ = given.trim;
  out->user_ = given.user;
  if (given.like != nullptr) {
    WEIR_ASSIGN_OR_RETURN(out->like_, ParsePolicySpec(given.like));
    WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Policy> like, out->like_->Make());
    out->needs_ = like->Needs();
    if (!out->needs_.evicts)
      return InvalidArgument("the policy {} selects nothing: nothing can be like it", given.like);
    if (given.trim != nullptr && !out->needs_.trims_prompt) {
      return InvalidArgument("weir_policy.trim is never asked: the policy {} drops nothing at the end of a prompt",
                             given.like);
    }
    // What is dropped is the caller's choice alone.
    out->needs_.trims_prompt = given.trim != nullptr;
    out->needs_.filter_layers = 0;
  } else {
    if (given.trim != nullptr) return InvalidArgument("weir_policy.trim needs `like`, a policy that trims");
    WEIR_ASSIGN_OR_RETURN(out->needs_, NeedsOf(given));
  }
  out->info_.name = out->name_.c_str();
  out->info_.summary = "a policy of the caller's";
  out->info_.options = kOptions;
  out->info_.make = &MakeOwn;
  const OptionOwner owner = {"policy", out->info_.name, kOptions};
  out->spec_.info = &out->info_;
  out->spec_.options = Options::Defaults(owner);
  const std::string address = std::to_string(reinterpret_cast<uintptr_t>(out.get()));
  WEIR_RETURN_IF_ERROR(out->spec_.options.Set(owner, kOptions[0], {address, true}));
  out->spec_.text = out->name_;
  return out;
}

}  // namespace weir
