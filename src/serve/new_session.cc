// SPDX-License-Identifier: Apache-2.0
#include "serve/new_session.h"

#include <memory>
#include <utility>
#include <vector>

#include "serve/call_job.h"
#include "serve/routes/common.h"
#include "serve/session_job.h"

namespace weir {

ApiError MakeSession(Host& host, const ServerOptions& options, const NewSession& wish,
                     const std::function<bool()>& wanted, Json* state) {
  const auto recall = host.recall().OptionsFor(wish.recall, wish.recall_disk, wish.recall_tokens);
  if (!recall.ok()) return FromStatus(recall.status());
  auto planned = host.admission().OptionsFor(wish.policy, wish.pot, *recall);
  if (!wish.id.empty() && host.sessions().Has(wish.id))
    return {409, "session_exists", "there is such a session already"};
  // An unknown policy is an invalid field, not 404.
  if (!planned.ok()) return {400, "", "'policy' is not usable: " + planned.status().message()};
  planned->aside_slots = static_cast<int32_t>(wish.rule_tokens);
  std::string id;
  std::vector<int32_t> head;
  const Status made = CallEngine(host, [&]() -> Status {
    WEIR_ASSIGN_OR_RETURN(StreamSession* const stream, host.Create(*planned, wish.n_waiting, wish.id));
    if (Status begun = host.recall().Begin(*recall, stream); !begun.ok()) {
      host.sessions().Erase(stream->id);
      return begun;
    }
    id = stream->id;
    head = stream->conversation.Begin(wish.system.empty() ? std::nullopt : std::optional<std::string>(wish.system));
    return Status();
  });
  if (!made.ok()) return AdmissionError(host, *planned, WithoutFolder(made, options.host.recall.dir));
  // Read step by step like any other text, so that other jobs continue.
  const auto job = std::make_shared<BeginJob>(host, id, std::move(head), wish.pin_system && !wish.system.empty());
  if (const Status posted = host.scheduler().PostAlways(job); !posted.ok()) return FromStatus(posted);
  for (;;) {
    if (auto result = job->events.Pop(kLookAtClient)) {
      if (result->ok()) {
        *state = **std::move(result);
        return host.Settle(id, {});
      }
      Status why = result->status();
      if (why.code() == StatusCode::kOverBudget || why.code() == StatusCode::kInvalidArgument) {
        why = InvalidArgument("'system' does not fit into the pot: {}", why.message());
      }
      return FromStatus(why);
    }
    if (!wanted()) job->Cancel();  // this also removes the session
  }
}

}  // namespace weir
