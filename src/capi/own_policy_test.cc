// SPDX-License-Identifier: Apache-2.0
// Policies of a C caller: they see what the built-in ones see, decide as they do, and cannot break a session.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "support/build_paths.h"
#include "weir/weir.h"
#include "weir/weir.hpp"

namespace {

using Rule = std::function<int(weir_view* const* views, size_t n_views, int32_t n_keep)>;

int CallRule(weir_view* const* views, size_t n_views, int32_t n_keep, void* user) {
  return (*static_cast<Rule*>(user))(views, n_views, n_keep);
}

// The first four slots and the newest: streaming_llm's rule for streams whose first tokens are the pinned ones.
int HeadAndTail(weir_view* const* views, size_t n_views, int32_t n_keep) {
  for (size_t v = 0; v < n_views; ++v) {
    const auto n = static_cast<int32_t>(views[v]->n_slots);
    const int32_t keep = std::min(n_keep, n);
    for (int32_t i = 0; i < keep; ++i) views[v]->keep[i] = i < 4 ? i : n - keep + i;
    views[v]->n_kept = static_cast<size_t>(keep);
  }
  return 0;
}

class OwnPolicyTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = new weir::ModelHandle(weir::SourceDir() + "/tests/golden/models/llama.gguf");
  }
  static void TearDownTestSuite() { delete model_; }

  weir_policy Policy(Rule rule) {
    rule_ = std::move(rule);
    weir_policy out = WEIR_POLICY_INIT;
    out.name = "mine";
    out.select = CallRule;
    out.user = &rule_;
    return out;
  }
  static weir_session_options Options(const weir_policy* own) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.pot_tokens = 64;
    options.own_policy = own;
    return options;
  }
  static weir_status OpenStatus(const weir_policy& own) {
    const weir_session_options options = Options(&own);
    weir_session* session = nullptr;
    const weir_status out = weir_session_open(model_->get(), &options, &session);
    weir_session_close(session);
    return out;
  }
  static std::vector<std::int32_t> Ids(size_t n) {
    std::vector<std::int32_t> out;
    for (size_t i = 0; i < n; ++i) out.push_back(static_cast<std::int32_t>(5 + i * 7 % 40));
    return out;
  }
  static weir_status Read(const weir::SessionHandle& session, const std::vector<std::int32_t>& ids,
                          uint32_t flags = 0) {
    return weir_session_append_tokens(session.get(), ids.data(), ids.size(), flags);
  }
  static std::vector<std::int64_t> Seqs(const weir::SessionHandle& session, int32_t group) {
    const weir_slot* slots = nullptr;
    size_t n = 0;
    weir::Check(weir_session_slots(session.get(), group, &slots, &n));
    std::vector<std::int64_t> out;
    for (size_t i = 0; i < n; ++i) out.push_back(slots[i].seq);
    return out;
  }

  static weir::ModelHandle* model_;
  Rule rule_;
};
weir::ModelHandle* OwnPolicyTest::model_ = nullptr;

TEST_F(OwnPolicyTest, ItDecidesAsTheBuiltInOneDoes) {
  weir_policy own = Policy(HeadAndTail);
  own.like = "streaming_llm";
  weir::SessionHandle mine(*model_, Options(&own));
  weir_session_options options = Options(nullptr);
  options.policy = "streaming_llm";
  weir::SessionHandle built_in(*model_, options);
  for (size_t n : {100u, 3u, 61u, 250u}) {
    ASSERT_EQ(Read(mine, Ids(n)), WEIR_OK) << weir_last_error();
    ASSERT_EQ(Read(built_in, Ids(n)), WEIR_OK);
    ASSERT_EQ(Seqs(mine, 0), Seqs(built_in, 0));
  }
  EXPECT_GT(mine.counters().selections, 3);
  weir_generate_options writing = WEIR_GENERATE_OPTIONS_INIT;
  writing.temperature = 0;
  writing.max_tokens = 80;
  writing.ignore_end = 1;
  EXPECT_EQ(mine.Generate(writing), built_in.Generate(writing));
  EXPECT_EQ(mine.counters().seen, built_in.counters().seen);
  EXPECT_EQ(Seqs(mine, 0), Seqs(built_in, 0));
}

TEST_F(OwnPolicyTest, ItSeesWhatItDeclared) {
  int n_calls = 0;
  weir_policy own = Policy([&](weir_view* const* views, size_t n_views, int32_t n_keep) {
    ++n_calls;
    EXPECT_EQ(views[0]->struct_bytes, sizeof(weir_view));
    EXPECT_EQ(n_views, static_cast<size_t>(views[0]->n_layers * views[0]->n_kv_heads));
    for (size_t v = 0; v < n_views; ++v) {
      const weir_view& view = *views[v];
      EXPECT_EQ(view.layer, static_cast<int32_t>(v) / view.n_kv_heads);
      EXPECT_EQ(view.head, static_cast<int32_t>(v) % view.n_kv_heads);
      EXPECT_EQ(view.novelty, nullptr);
      EXPECT_GT(view.n_rows, 0);
      double attention = 0;
      for (size_t i = 0; i < view.n_slots; ++i) {
        attention += static_cast<double>(view.scores[i]);
        EXPECT_EQ(std::isinf(view.nll[i]), view.slots[i].seq == 0);
        EXPECT_EQ(view.slots[i].pinned != 0, view.slots[i].seq < 2);
        EXPECT_LT(view.slots[i].seq, view.n_seen);
        if (i > 0) EXPECT_LT(view.slots[i - 1].seq, view.slots[i].seq);
      }
      EXPECT_GT(attention, 0);
    }
    return HeadAndTail(views, n_views, n_keep);
  });
  own.share = WEIR_HEAD;
  own.rows = WEIR_ALL_ROWS;
  own.nll = 1;
  weir::SessionHandle session(*model_, Options(&own));
  ASSERT_EQ(Read(session, Ids(2), WEIR_PINNED), WEIR_OK);
  ASSERT_EQ(Read(session, Ids(200)), WEIR_OK) << weir_last_error();
  EXPECT_GT(n_calls, 2);
  EXPECT_EQ(Seqs(session, 0)[0], 0);

  own.rows = WEIR_NO_ROWS;
  own.vector = WEIR_KEY_DIFF;
  own.nll = 0;
  Rule check = [&](weir_view* const* views, size_t n_views, int32_t n_keep) {
    EXPECT_NE(views[0]->scores, nullptr);
    EXPECT_EQ(views[0]->nll, nullptr);
    return HeadAndTail(views, n_views, n_keep);
  };
  own.user = &check;
  weir::SessionHandle vectors(*model_, Options(&own));
  EXPECT_EQ(Read(vectors, Ids(200)), WEIR_OK) << weir_last_error();
}

TEST_F(OwnPolicyTest, ItsFailureIsTheCallsAndTheSessionGoesOn) {
  bool fails = true;
  weir_policy own = Policy([&](weir_view* const* views, size_t n_views, int32_t n_keep) {
    return fails ? 3 : HeadAndTail(views, n_views, n_keep);
  });
  weir::SessionHandle session(*model_, Options(&own));
  ASSERT_EQ(Read(session, Ids(60)), WEIR_OK);
  const auto held = Seqs(session, 0);
  EXPECT_EQ(Read(session, Ids(20)), WEIR_CANCELLED);
  EXPECT_NE(std::string(weir_last_error()).find("mine"), std::string::npos) << weir_last_error();
  EXPECT_EQ(Seqs(session, 0), held);
  EXPECT_EQ(session.counters().dropped, 0);
  fails = false;
  EXPECT_EQ(Read(session, Ids(20)), WEIR_OK) << weir_last_error();
  EXPECT_GT(session.counters().dropped, 0);
  // In the middle of an answer.
  fails = true;
  weir_generate_options writing = WEIR_GENERATE_OPTIONS_INIT;
  writing.max_tokens = 60;
  writing.ignore_end = 1;
  EXPECT_EQ(weir_session_generate(session.get(), &writing, nullptr, nullptr, nullptr, nullptr), WEIR_CANCELLED);
  fails = false;
  EXPECT_EQ(weir_session_generate(session.get(), &writing, nullptr, nullptr, nullptr, nullptr), WEIR_OK);
}

TEST_F(OwnPolicyTest, AWrongKeepSetForgetsNothing) {
  enum { kFewer, kMore, kFar, kTwice, kUnordered, kUnpinned, kNegative, kRight } what = kFewer;
  weir_policy own = Policy([&](weir_view* const* views, size_t n_views, int32_t n_keep) {
    HeadAndTail(views, n_views, n_keep);
    weir_view& view = *views[n_views - 1];
    switch (what) {
      case kFewer:
        --view.n_kept;
        break;
      case kMore:
        for (size_t i = 0; i < view.n_slots; ++i) view.keep[i] = static_cast<int32_t>(i);
        view.n_kept = view.n_slots;
        break;
      case kFar:
        view.keep[view.n_kept - 1] = static_cast<int32_t>(view.n_slots);
        break;
      case kTwice:
        view.keep[3] = view.keep[2];
        break;
      case kUnordered:
        std::swap(view.keep[2], view.keep[3]);
        break;
      case kUnpinned:
        for (size_t i = 0; i < view.n_kept; ++i) ++view.keep[i];
        view.keep[view.n_kept - 1] = static_cast<int32_t>(view.n_slots) - 1;
        for (size_t i = 0; i + 1 < view.n_kept; ++i) view.keep[i] = static_cast<int32_t>(i) + 1;
        break;
      case kNegative:
        view.keep[0] = -1;
        break;
      case kRight:
        break;
    }
    return 0;
  });
  own.share = WEIR_LAYER;
  weir::SessionHandle session(*model_, Options(&own));
  ASSERT_EQ(Read(session, Ids(1), WEIR_PINNED), WEIR_OK);
  ASSERT_EQ(Read(session, Ids(60)), WEIR_OK);
  const auto held = Seqs(session, 0);
  for (what = kFewer; what != kRight; what = static_cast<decltype(what)>(what + 1)) {
    EXPECT_EQ(Read(session, Ids(16)), WEIR_INVALID_ARGUMENT) << what << ": " << weir_last_error();
    EXPECT_EQ(Seqs(session, 0), held) << what;
  }
  EXPECT_EQ(Read(session, Ids(16)), WEIR_OK) << weir_last_error();
}

TEST_F(OwnPolicyTest, AForkAsksTheSameRuleAndASavedSessionKeepsItsName) {
  int n_calls = 0;
  weir_policy own = Policy([&](weir_view* const* views, size_t n_views, int32_t n_keep) {
    ++n_calls;
    return HeadAndTail(views, n_views, n_keep);
  });
  weir::SessionHandle session(*model_, Options(&own));
  ASSERT_EQ(Read(session, Ids(60)), WEIR_OK);
  weir_session* fork = nullptr;
  ASSERT_EQ(weir_session_fork(session.get(), nullptr, &fork), WEIR_OK) << weir_last_error();
  const auto ids = Ids(30);
  EXPECT_EQ(weir_session_append_tokens(fork, ids.data(), ids.size(), 0), WEIR_OK) << weir_last_error();
  EXPECT_GT(n_calls, 0);
  weir_session_close(fork);
  const std::vector<std::uint8_t> saved = session.Save();
  weir::SessionHandle same(*model_, Options(&own));
  same.Restore(saved);
  EXPECT_EQ(Seqs(same, 0), Seqs(session, 0));
  EXPECT_EQ(weir_session_reset(session.get()), WEIR_OK);
  EXPECT_EQ(Read(session, Ids(130)), WEIR_OK);
  weir_session_info info = WEIR_SESSION_INFO_INIT;
  ASSERT_EQ(weir_session_describe(session.get(), &info), WEIR_OK);
  EXPECT_STREQ(info.policy, "mine");
  EXPECT_EQ(info.pot_tokens, 64);
  EXPECT_EQ(info.n_groups, 1);
}

int TrimNothing(weir_view* const* views, size_t n_views, void*) {
  for (size_t v = 0; v < n_views; ++v) {
    for (size_t i = 0; i < views[v]->n_slots; ++i) views[v]->keep[i] = static_cast<int32_t>(i);
    views[v]->n_kept = views[v]->n_slots;
  }
  return 0;
}
int TrimToFour(weir_view* const* views, size_t n_views, void* user) {
  *static_cast<bool*>(user) = true;
  TrimNothing(views, n_views, nullptr);
  for (size_t v = 0; v < n_views; ++v) views[v]->n_kept = v == 0 ? 0 : 4;
  return 0;
}
int TrimTooMuch(weir_view* const* views, size_t, void*) {
  views[0]->n_kept = views[0]->n_slots + 1;
  return 0;
}
int TrimFails(weir_view* const*, size_t, void*) { return 1; }

// a_vl with a small share of text drops most of a text prompt; a policy like it must not, unless it says so.
TEST_F(OwnPolicyTest, TheEndOfAPromptIsItsOwn) {
  constexpr char kLike[] = "a_vl:T=0,text_min=4,heavy=0";
  weir_session_options options = Options(nullptr);
  options.policy = kLike;
  weir::SessionHandle built_in(*model_, options);
  ASSERT_EQ(Read(built_in, Ids(40), WEIR_END_OF_PROMPT), WEIR_OK) << weir_last_error();
  EXPECT_EQ(Seqs(built_in, 1).size(), 4u);

  weir_policy own = Policy(HeadAndTail);
  own.like = kLike;
  weir::SessionHandle mine(*model_, Options(&own));
  ASSERT_EQ(Read(mine, Ids(40), WEIR_END_OF_PROMPT), WEIR_OK) << weir_last_error();
  EXPECT_EQ(Seqs(mine, 1).size(), 40u);

  bool called = false;
  own.user = &called;
  own.trim = TrimToFour;
  weir::SessionHandle trims(*model_, Options(&own));
  ASSERT_EQ(Read(trims, Ids(40), WEIR_END_OF_PROMPT), WEIR_OK) << weir_last_error();
  EXPECT_TRUE(called);
  EXPECT_EQ(Seqs(trims, 0).size(), 0u);
  EXPECT_EQ(Seqs(trims, 1).size(), 4u);
  EXPECT_EQ(Read(trims, Ids(3)), WEIR_OK) << weir_last_error();

  for (const weir_trim_callback wrong : {TrimTooMuch, TrimFails}) {
    own.trim = wrong;
    weir::SessionHandle fails(*model_, Options(&own));
    EXPECT_EQ(Read(fails, Ids(40), WEIR_END_OF_PROMPT), wrong == TrimFails ? WEIR_CANCELLED : WEIR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(weir_last_error()).find("mine"), std::string::npos) << weir_last_error();
    EXPECT_EQ(Seqs(fails, 0).size(), 40u);
  }
}

TEST_F(OwnPolicyTest, DeclarationsAreChecked) {
  const weir_policy good = Policy(HeadAndTail);
  EXPECT_EQ(OpenStatus(good), WEIR_OK) << weir_last_error();
  weir_policy own = good;
  own.name = nullptr;
  EXPECT_EQ(OpenStatus(own), WEIR_INVALID_ARGUMENT);
  own = good;
  own.select = nullptr;
  EXPECT_EQ(OpenStatus(own), WEIR_INVALID_ARGUMENT);
  own = good;
  own.share = 3;
  EXPECT_EQ(OpenStatus(own), WEIR_INVALID_ARGUMENT);
  own = good;
  own.rows = WEIR_LAST_ROWS;  // of the whole pot at once
  EXPECT_EQ(OpenStatus(own), WEIR_INVALID_ARGUMENT);
  own.share = WEIR_LAYER;
  EXPECT_EQ(OpenStatus(own), WEIR_OK) << weir_last_error();
  own.n_last = 0;
  EXPECT_EQ(OpenStatus(own), WEIR_INVALID_ARGUMENT);
  own = good;
  own.vector = WEIR_VALUE_NORM;
  EXPECT_EQ(OpenStatus(own), WEIR_INVALID_ARGUMENT);
  own.share = WEIR_HEAD;
  EXPECT_EQ(OpenStatus(own), WEIR_OK) << weir_last_error();
  own.rows = WEIR_ALL_ROWS;
  EXPECT_EQ(OpenStatus(own), WEIR_INVALID_ARGUMENT);
  own = good;
  own.share = WEIR_HEAD;
  own.rows = WEIR_PROBE_ROWS;
  EXPECT_EQ(OpenStatus(own), WEIR_INVALID_ARGUMENT);
  own.probe = "the man and the sea";
  EXPECT_EQ(OpenStatus(own), WEIR_OK) << weir_last_error();
  own = good;
  own.min_tokens = 65;
  EXPECT_EQ(OpenStatus(own), WEIR_INVALID_ARGUMENT);
  own = good;
  own.like = "nobody";
  EXPECT_EQ(OpenStatus(own), WEIR_NOT_FOUND);
  own.like = "full";
  EXPECT_EQ(OpenStatus(own), WEIR_INVALID_ARGUMENT);
  own = good;
  own.trim = TrimNothing;
  EXPECT_EQ(OpenStatus(own), WEIR_INVALID_ARGUMENT);
  own.like = "h2o";
  EXPECT_EQ(OpenStatus(own), WEIR_INVALID_ARGUMENT);
  own.like = "fastv";
  EXPECT_EQ(OpenStatus(own), WEIR_OK) << weir_last_error();
  own = good;
  own.struct_bytes = 0;
  EXPECT_EQ(OpenStatus(own), WEIR_INVALID_ARGUMENT);
  weir_session_options options = Options(&good);
  options.policy = "window";
  weir_session* session = nullptr;
  EXPECT_EQ(weir_session_open(model_->get(), &options, &session), WEIR_INVALID_ARGUMENT);
}

}  // namespace
