// SPDX-License-Identifier: Apache-2.0
#include "serve/idle_sweeper.h"

#include "base/caught.h"
#include "base/clock.h"
#include "serve/call_job.h"
#include "serve/thread_book.h"

namespace weir {
namespace {

constexpr std::chrono::milliseconds kLookForIdle{20};  // how soon the destructor is noticed
constexpr std::chrono::seconds kBetween{1};

}  // namespace

IdleSweeper::IdleSweeper(Host& host, Handover& handover, std::chrono::seconds idle)
    : host_(host), handover_(handover), idle_(idle) {
  if (idle_.count() <= 0) return;
  thread_ = std::thread([this] {
    for (auto next = Clock::now(); !ended_; std::this_thread::sleep_for(kLookForIdle)) {
      if (Clock::now() < next) continue;
      (void)Tried([this] { Sweep(); });  // what was not done is done the next time
      next = Clock::now() + kBetween;
    }
  });
}

IdleSweeper::~IdleSweeper() {
  ended_ = true;
  if (thread_.joinable()) thread_.join();
}

// One session at a time, so that other jobs run on the engine in between.
void IdleSweeper::Sweep() {
  std::string id;
  const auto end_one = [&] {
    StreamSession* const stream = host_.sessions().FindIdle(idle_);
    id = stream == nullptr ? "" : stream->id;
    if (id.empty()) return Status();
    if (handover_.enabled()) {
      stream->used_at = Clock::now();  // one that cannot be written is kept, and tried after another idle period
      return Status();
    }
    host_.metrics().CountExpired();
    host_.threads().Forget(id);
    if (host_.mqtt() != nullptr) host_.mqtt()->Forget(id, "");
    host_.sessions().Erase(id);
    return Status();
  };
  while (!ended_ && CallEngine(host_, end_one).ok() && !id.empty()) {
    if (!handover_.enabled()) continue;
    const auto left = handover_.LeaveIdle(host_, id);
    if (left.ok() && *left) host_.metrics().CountExpired();
  }
}

}  // namespace weir
