// SPDX-License-Identifier: Apache-2.0
// A policy whose rule is a function of the C API's caller (weir_policy).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "policy/policy.h"
#include "weir/weir.h"

namespace weir {

// What the caller declared, and its functions. A session that runs it, and the spec of every fork, refer to this
// object.
class OwnRule {
 public:
  // kInvalidArgument for a declaration that no session could honour; errors of ParsePolicySpec() for `like`.
  static Result<std::shared_ptr<OwnRule>> Make(const weir_policy& given);
  OwnRule(const OwnRule&) = delete;
  OwnRule& operator=(const OwnRule&) = delete;

  // A policy by the caller's name, whose objects ask the caller. The rule must outlive every copy.
  const PolicySpec& spec() const { return spec_; }
  // Why the latest selection failed, once: a policy itself cannot return it. Ok if it did not.
  Status TakeFailure() { return std::exchange(failure_, Status()); }
  // A policy object for one session. Errors of the policy that it is like.
  static Result<std::unique_ptr<Policy>> NewPolicy(OwnRule& rule);

 private:
  friend class OwnPolicy;
  OwnRule() = default;

  std::string name_;
  weir_select_callback select_ = nullptr;
  weir_target_callback target_ = nullptr;
  weir_trim_callback trim_ = nullptr;
  void* user_ = nullptr;
  std::optional<PolicySpec> like_;
  PolicyNeeds needs_;
  PolicyInfo info_{};
  PolicySpec spec_;
  Status failure_;
};

}  // namespace weir
