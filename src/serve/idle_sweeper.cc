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

IdleSweeper::IdleSweeper(Host& host, const Handover& handover, std::chrono::seconds idle)
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
  bool found = true;
  const auto end_one = [&] {
    StreamSession* const stream = host_.sessions().FindIdle(idle_);
    found = stream != nullptr;
    if (!found) return Status();
    if (handover_.enabled() && !handover_.Write(host_, *stream).ok()) {
      stream->used_at = Clock::now();  // kept; retried after another idle period
      return Status();
    }
    host_.metrics().CountExpired();
    if (!handover_.enabled()) {
      host_.threads().Forget(stream->id);
      if (host_.mqtt() != nullptr) host_.mqtt()->Forget(stream->id, "");
    }
    host_.sessions().Erase(stream->id);
    return Status();
  };
  while (found && CallEngine(host_, end_one).ok()) {
  }
}

}  // namespace weir
