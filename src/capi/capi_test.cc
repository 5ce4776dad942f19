// SPDX-License-Identifier: Apache-2.0
// The guarantees of the C API beyond the engine: no call crashes its caller, and sizes and lengths are respected.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/build_paths.h"
#include "support/pictures.h"
#include "weir/weir.h"
#include "weir/weir.hpp"

namespace {

const std::string kModel = weir::SourceDir() + "/tests/golden/models/llama.gguf";

class CapiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_EQ(weir_model_open(kModel.c_str(), nullptr, &model_), WEIR_OK); }
  static void TearDownTestSuite() { weir_model_close(model_); }
  void SetUp() override {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.policy = "streaming_llm";
    options.pot_tokens = 48;
    ASSERT_EQ(weir_session_open(model_, &options, &session_), WEIR_OK) << weir_last_error();
  }
  void TearDown() override { weir_session_close(session_); }
  static weir_model* model_;
  weir_session* session_ = nullptr;
};
weir_model* CapiTest::model_ = nullptr;

TEST_F(CapiTest, NullIsAnAnswer) {
  size_t n = 0;
  weir_model* model = nullptr;
  weir_session* session = nullptr;
  const float* logits = nullptr;
  weir_model_info info = WEIR_MODEL_INFO_INIT;
  weir_counters counters = WEIR_COUNTERS_INIT;
  EXPECT_EQ(weir_model_open(nullptr, nullptr, &model), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_model_open(kModel.c_str(), nullptr, nullptr), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_model_describe(nullptr, &info), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_model_describe(model_, nullptr), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_model_encode(model_, nullptr, 3, 0, nullptr, 0, &n), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_model_encode(model_, "a", 1, 0, nullptr, 5, &n), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_model_decode(nullptr, nullptr, 0, nullptr, 0, &n), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_open(nullptr, nullptr, &session), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_append_tokens(nullptr, nullptr, 0, 0), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_append_text(session_, nullptr, 1, 0), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_logits(session_, nullptr, &n), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_logits(session_, &logits, &n), WEIR_INVALID_ARGUMENT);  // nothing was read yet
  EXPECT_EQ(weir_session_generate(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_counters(nullptr, &counters), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_save(session_, nullptr, 4, &n), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_restore(session_, nullptr, 0), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_reset(nullptr), WEIR_INVALID_ARGUMENT);
  EXPECT_STRNE(weir_last_error(), "");
  weir_model_close(nullptr);
  weir_session_close(nullptr);
  EXPECT_EQ(weir_session_reset(session_), WEIR_OK);
  EXPECT_STREQ(weir_last_error(), "");
}

TEST_F(CapiTest, ReasonsAreToldByKind) {
  weir_model* model = reinterpret_cast<weir_model*>(1);
  EXPECT_EQ(weir_model_open("/there/is/none.gguf", nullptr, &model), WEIR_NOT_FOUND) << weir_last_error();
  EXPECT_EQ(model, nullptr);
  weir_session* session = nullptr;
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.policy = "nobody";
  EXPECT_EQ(weir_session_open(model_, &options, &session), WEIR_NOT_FOUND);
  EXPECT_NE(std::string(weir_last_error()).find("nobody"), std::string::npos);
  options.policy = "window";
  options.budget_bytes = 10;
  EXPECT_EQ(weir_session_open(model_, &options, &session), WEIR_OVER_BUDGET);
  options.budget_bytes = 0;
  options.struct_bytes = 0;
  EXPECT_EQ(weir_session_open(model_, &options, &session), WEIR_INVALID_ARGUMENT);
  const int32_t wrong[] = {1, 1 << 30};
  EXPECT_EQ(weir_session_append_tokens(session_, wrong, 2, 0), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_append_tokens(session_, wrong, 1, 64), WEIR_INVALID_ARGUMENT);
  size_t n = 0;
  EXPECT_EQ(weir_model_decode(model_, wrong, 2, nullptr, 0, &n), WEIR_INVALID_ARGUMENT);
}

// A caller that knows fewer fields than the library, and one that knows more.
TEST_F(CapiTest, StructsOfOtherSizes) {
  struct {
    size_t struct_bytes;
    int32_t n_vocab, after;
  } older = {sizeof(size_t) + sizeof(int32_t), 0, 77};
  ASSERT_EQ(weir_model_describe(model_, reinterpret_cast<weir_model_info*>(&older)), WEIR_OK);
  EXPECT_GT(older.n_vocab, 0);
  EXPECT_EQ(older.after, 77);
  struct {
    weir_model_info known;
    int64_t later;
  } newer = {WEIR_MODEL_INFO_INIT, 78};
  newer.known.struct_bytes = sizeof(newer);
  ASSERT_EQ(weir_model_describe(model_, &newer.known), WEIR_OK);
  EXPECT_EQ(newer.known.n_vocab, older.n_vocab);
  EXPECT_EQ(newer.known.struct_bytes, sizeof(newer));
  EXPECT_EQ(newer.later, 78);
}

// What a newer header lets a caller ask for is refused where it is not known, not left out in silence.
TEST_F(CapiTest, UnknownFieldsAreRefusedUnlessTheyAreZero) {
  struct {
    weir_session_options known;
    int64_t later;
  } newer = {WEIR_SESSION_OPTIONS_INIT, 0};
  newer.known.struct_bytes = sizeof(newer);
  newer.known.pot_tokens = 64;
  weir_session* session = nullptr;
  ASSERT_EQ(weir_session_open(model_, &newer.known, &session), WEIR_OK) << weir_last_error();
  weir_session_close(session);
  newer.later = int64_t{1} << 56;
  EXPECT_EQ(weir_session_open(model_, &newer.known, &session), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(session, nullptr);
  EXPECT_NE(std::string(weir_last_error()).find("newer library"), std::string::npos) << weir_last_error();
}

TEST_F(CapiTest, LengthsAreToldAndKept) {
  const char* text = "the man and the sea";
  size_t n = 0, n_bytes = 0;
  ASSERT_EQ(weir_model_encode(model_, text, std::strlen(text), 0, nullptr, 0, &n), WEIR_OK);
  ASSERT_GT(n, 2u);
  std::vector<int32_t> ids(n, -5);
  ASSERT_EQ(weir_model_encode(model_, text, std::strlen(text), 0, ids.data(), 2, &n_bytes), WEIR_OK);
  EXPECT_EQ(n_bytes, n);
  EXPECT_EQ(ids[2], -5);
  ASSERT_EQ(weir_model_encode(model_, text, std::strlen(text), 0, ids.data(), n, &n), WEIR_OK);
  char back[64] = "................";
  ASSERT_EQ(weir_model_decode(model_, ids.data(), n, back, 3, &n_bytes), WEIR_OK);
  EXPECT_EQ(n_bytes, std::strlen(text));
  EXPECT_EQ(std::string(back, 5), "the..");
  ASSERT_EQ(weir_session_append_tokens(session_, ids.data(), n, WEIR_PINNED | WEIR_END_OF_PROMPT), WEIR_OK);
  const float* logits = nullptr;
  ASSERT_EQ(weir_session_logits(session_, &logits, &n), WEIR_OK);
  for (size_t i = 0; i < n; ++i) ASSERT_TRUE(std::isfinite(logits[i]));
  ASSERT_EQ(weir_session_save(session_, nullptr, 0, &n), WEIR_OK);
  std::vector<uint8_t> state(n, 0xAA);
  ASSERT_EQ(weir_session_save(session_, state.data(), n - 1, &n), WEIR_OK);
  EXPECT_EQ(state, std::vector<uint8_t>(n, 0xAA));  // not in part
  ASSERT_EQ(weir_session_save(session_, state.data(), n, &n), WEIR_OK);
  EXPECT_EQ(weir_session_restore(session_, state.data(), n - 1), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_restore(session_, state.data(), n), WEIR_OK);
}

TEST_F(CapiTest, ACallbackStopsAnAnswer) {
  ASSERT_EQ(weir_session_append_text(session_, "the man", 7, WEIR_SPECIAL), WEIR_OK);
  weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
  options.max_tokens = 40;
  options.ignore_end = 1;
  int n_calls = 0;
  const auto third = [](const char*, size_t, void* user) { return ++*static_cast<int*>(user) == 3 ? 1 : 0; };
  size_t n_tokens = 0;
  weir_end end = WEIR_ENDED;
  ASSERT_EQ(weir_session_generate(session_, &options, third, &n_calls, &n_tokens, &end), WEIR_OK);
  EXPECT_EQ(n_calls, 3);
  EXPECT_EQ(end, WEIR_STOPPED);
  EXPECT_LT(n_tokens, 40u);
  options.top_p = 2;
  EXPECT_EQ(weir_session_generate(session_, &options, nullptr, nullptr, nullptr, nullptr), WEIR_INVALID_ARGUMENT);
}

// A chat with pins, whose session is saved in the middle of a turn.
TEST(CapiChat, RoundsGoOnFromASavedSession) {
  const weir::ModelHandle model(kModel);
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.pot_tokens = 96;
  weir::SessionHandle one(model, options), two(model, options);
  one.BeginChat("the man and the sea");
  EXPECT_THROW(one.BeginChat("again"), weir::Error);
  one.Say("the boat and the river");
  weir_generate_options writing = WEIR_GENERATE_OPTIONS_INIT;
  writing.temperature = 0;
  writing.max_tokens = 6;
  writing.ignore_end = 1;
  one.Ask("the man?", writing);
  one.Say("and the sea");
  const std::vector<std::uint8_t> saved = one.Save();
  two.Restore(saved);
  EXPECT_EQ(one.Ask("the boat?", writing), two.Ask("the boat?", writing));
  EXPECT_EQ(one.counters().seen, two.counters().seen);
  two.Reset();
  EXPECT_EQ(two.counters().seen, 0);
  two.BeginChat("");  // a new chat may begin
  std::vector<std::uint8_t> broken = saved;
  broken.pop_back();
  EXPECT_THROW(two.Restore(broken), weir::Error);
  broken = saved;
  broken[8] ^= 0x40;  // the length of a part
  EXPECT_THROW(two.Restore(broken), weir::Error);
  EXPECT_EQ(weir_session_say(one.get(), "a", 1, WEIR_SPECIAL), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_see_file(one.get(), "a.png", 0), WEIR_INVALID_ARGUMENT);  // there is no encoder
}

TEST(CapiChat, DevicesAreAskedByName) {
  weir_model* model = nullptr;
  weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
  options.device = "ref";
  ASSERT_EQ(weir_model_open(kModel.c_str(), &options, &model), WEIR_OK) << weir_last_error();
  weir_model_close(model);
  options.device = "nothing";
  EXPECT_EQ(weir_model_open(kModel.c_str(), &options, &model), WEIR_INVALID_ARGUMENT);
  options.device = nullptr;
  options.chat_template = "nobody's";
  EXPECT_EQ(weir_model_open(kModel.c_str(), &options, &model), WEIR_INVALID_ARGUMENT);
}

TEST(CapiChat, TemplatesAreGivenAsTextWithArguments) {
  weir_model* model = nullptr;
  weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
  // Shows what a user says only where it is told to.
  options.chat_template = "{% if shows %}{{ messages[-1].content }}{% endif %}";
  EXPECT_EQ(weir_model_open(kModel.c_str(), &options, &model), WEIR_UNSUPPORTED);
  options.chat_template_kwargs = "{\"shows\": true";
  EXPECT_EQ(weir_model_open(kModel.c_str(), &options, &model), WEIR_INVALID_ARGUMENT);
  options.chat_template_kwargs = "{\"shows\": true}";
  ASSERT_EQ(weir_model_open(kModel.c_str(), &options, &model), WEIR_OK) << weir_last_error();
  weir_model_close(model);
}

TEST(CapiPictures, PixelsAndFilesAreTheSamePicture) {
  weir_model_options model_options = WEIR_MODEL_OPTIONS_INIT;
  const std::string vision = weir::SourceDir() + "/tests/golden/vision/", mmproj = vision + "clip.gguf";
  model_options.mmproj = mmproj.c_str();
  const weir::ModelHandle model(vision + "llava.gguf", model_options);
  EXPECT_NE(model.info().has_vision, 0);
  EXPECT_GT(model.info().tokens_a_picture, 0);
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.pot_tokens = 256;
  options.picture_side = 64;
  const std::int32_t side = 48;
  std::vector<std::uint8_t> rgb(3 * side * side);
  for (std::size_t i = 0; i < rgb.size(); ++i) rgb[i] = static_cast<std::uint8_t>(i * 7);
  const std::string path = ::testing::TempDir() + "capi_picture.ppm";
  std::ofstream file(path, std::ios::binary);
  file << "P6\n" << side << ' ' << side << "\n255\n";
  file.write(reinterpret_cast<const char*>(rgb.data()), static_cast<std::streamsize>(rgb.size()));
  file.close();

  weir_generate_options writing = WEIR_GENERATE_OPTIONS_INIT;
  writing.temperature = 0;
  writing.max_tokens = 8;
  writing.ignore_end = 1;
  weir::SessionHandle one(model, options), two(model, options), three(model, options);
  one.SeePixels(rgb.data(), side, side);
  two.SeeFile(path);
  const std::string answer = one.Ask("what?", writing);
  EXPECT_EQ(answer, two.Ask("what?", writing));
  three.Restore(one.Save());
  EXPECT_EQ(one.Ask("and?", writing), three.Ask("and?", writing));
  EXPECT_THROW(one.SeePixels(rgb.data(), 0, side), weir::Error);
  one.SeePixels(rgb.data(), side, side, 5000, WEIR_PINNED);  // a frame
  EXPECT_EQ(weir_session_see_pixels(one.get(), rgb.data(), side, side, -2, 0), WEIR_INVALID_ARGUMENT);
  options.prune = "nobody";
  EXPECT_THROW(weir::SessionHandle(model, options), weir::Error);
}

// The first of two frames waits for the second one, for words, for an answer; it is saved and copied.
TEST(CapiPictures, TwoFramesAreReadAsOne) {
  weir_model_options model_options = WEIR_MODEL_OPTIONS_INIT;
  const std::string vision = weir::SourceDir() + "/tests/golden/vision/", mmproj = vision + "qwen25vl_merger.gguf";
  model_options.mmproj = mmproj.c_str();
  const weir::ModelHandle model(vision + "qwen25vl.gguf", model_options);
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.pot_tokens = 256;
  options.picture_side = 64;
  const std::int32_t side = 40;  // 4 x 4 rows
  std::vector<std::uint8_t> rgb(3 * side * side);
  for (std::size_t i = 0; i < rgb.size(); ++i) rgb[i] = static_cast<std::uint8_t>(i * 7);
  const auto n_video = [](const weir::SessionHandle& session) {
    const weir_slot* slots = nullptr;
    std::size_t n_slots = 0;
    EXPECT_EQ(weir_session_slots(session.get(), 0, &slots, &n_slots), WEIR_OK);
    int n = 0;
    for (std::size_t i = 0; i < n_slots; ++i) {
      if (slots[i].modality != 2) continue;
      ++n;
      EXPECT_EQ(-slots[i].token_id % 131072, 4) << "columns";
    }
    return n;
  };
  weir_generate_options writing = WEIR_GENERATE_OPTIONS_INIT;
  writing.temperature = 0;
  writing.max_tokens = 8;
  writing.ignore_end = 1;
  weir::SessionHandle one(model, options), two(model, options), three(model, options);
  one.SeePixels(rgb.data(), side, side, 0);
  EXPECT_EQ(n_video(one), 0);
  one.SeePixels(rgb.data(), side, side, 500);
  one.SeePixels(rgb.data(), side, side, 1000);
  EXPECT_EQ(n_video(one), 16);
  one.Say("so");
  EXPECT_EQ(n_video(one), 32);
  one.SeePixels(rgb.data(), side, side, 1500);
  one.Generate(writing);
  EXPECT_EQ(n_video(one), 48);
  two.SeePixels(rgb.data(), side, side, 0);
  three.Restore(two.Save());
  weir_session* raw = nullptr;
  ASSERT_EQ(weir_session_fork(two.get(), nullptr, &raw), WEIR_OK) << weir_last_error();
  std::string text;
  const auto keep = [](const char* piece, std::size_t n, void* to) {
    static_cast<std::string*>(to)->append(piece, n);
    return 0;
  };
  const std::string question = "what?", answer = two.Ask(question, writing);
  EXPECT_EQ(answer, three.Ask(question, writing));
  EXPECT_EQ(weir_session_ask(raw, question.data(), question.size(), &writing, keep, &text, nullptr, nullptr), WEIR_OK);
  EXPECT_EQ(answer, text);
  weir_session_close(raw);
  EXPECT_EQ(n_video(two), 16);
  EXPECT_EQ(n_video(three), 16);
}

class CapiRecall : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "capi_recall_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    first_ = folder_ + "/first";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static weir_session_options Options(const char* dir) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.policy = "streaming_llm";
    options.pot_tokens = 64;
    options.recall = "words:passages=1,gate=0";
    options.recall_dir = dir;
    options.recall_disk_bytes = 8 << 20;
    options.recall_tokens = 120;
    return options;
  }
  static weir_generate_options Writing() {
    weir_generate_options writing = WEIR_GENERATE_OPTIONS_INIT;
    writing.temperature = 0;
    writing.max_tokens = 6;
    writing.ignore_end = 1;
    return writing;
  }
  static void Tell(weir::SessionHandle& session) {
    session.Say("The harpoon lay in the attic. ");
    for (int i = 0; i < 40; ++i) session.Say("the man and the sea, ");
  }
  static weir_status RestoreStatus(weir::SessionHandle& session, const std::vector<std::uint8_t>& bytes) {
    return weir_session_restore(session.get(), bytes.data(), bytes.size());
  }

  const weir::ModelHandle model_{kModel};
  std::string folder_, first_;
};

TEST_F(CapiRecall, WhatLeftThePotIsBroughtBackForItsQuestion) {
  for (const char* dir : {first_.c_str(), static_cast<const char*>(nullptr)}) {
    std::filesystem::remove_all(first_);
    weir::SessionHandle session(model_, Options(dir));
    EXPECT_EQ(session.recall_report().n_passages, 0);
    Tell(session);
    const int64_t bytes = session.counters().bytes;
    session.Ask("Where in the attic is the harpoon?", Writing());
    const std::vector<weir::Passage> recalled = session.Recalled();
    ASSERT_EQ(recalled.size(), 1u);
    EXPECT_NE(recalled[0].text.find("The harpoon lay in the attic."), std::string::npos) << recalled[0].text;
    EXPECT_LT(recalled[0].seq, 64);
    EXPECT_GT(recalled[0].end, recalled[0].seq);
    EXPECT_GT(recalled[0].score, 0.5);
    const weir_recall_report report = session.recall_report();
    EXPECT_GT(report.n_tokens, 0);
    EXPECT_EQ(report.best_score, recalled[0].score);
    EXPECT_EQ(report.held | report.gated, 0);
    EXPECT_EQ(session.counters().bytes, bytes);
    // It was for that answer alone: the session can be saved, and the next question finds nothing of the kind.
    EXPECT_FALSE(session.Save().empty());
    session.Ask("the zeppelin?", Writing());
    EXPECT_TRUE(session.Recalled().empty());
    weir_passage passage = WEIR_PASSAGE_INIT;
    EXPECT_EQ(weir_session_recalled_passage(session.get(), 0, &passage), WEIR_INVALID_ARGUMENT);
    session.Flush();
    EXPECT_EQ(std::filesystem::exists(first_ + "/00000001.seg"), dir != nullptr);
    // Forgotten is deleted.
    session.Reset();
    Tell(session);
    session.Reset();
    session.Say("the boat ");
    session.Ask("Where in the attic is the harpoon?", Writing());
    EXPECT_TRUE(session.Recalled().empty());
  }
}

TEST_F(CapiRecall, ASavedSessionGoesOnWithItsArchive) {
  weir::SessionHandle one(model_, Options(first_.c_str()));
  Tell(one);
  const std::vector<std::uint8_t> saved = one.Save();
  const std::string copy = folder_ + "/copy", other = folder_ + "/other", empty = folder_ + "/empty";
  one.CopyArchive(copy);
  EXPECT_EQ(weir_session_copy_archive(one.get(), copy.c_str()), WEIR_INVALID_ARGUMENT);  // it is there already
  const std::string question = "Where in the attic is the harpoon?";
  const std::string answer = one.Ask(question, Writing());
  ASSERT_EQ(one.Recalled().size(), 1u);
  {
    weir::SessionHandle two(model_, Options(copy.c_str()));
    two.Restore(saved);
    EXPECT_EQ(two.Ask(question, Writing()), answer);
    ASSERT_EQ(two.Recalled().size(), 1u);
    EXPECT_EQ(two.Recalled()[0].text, one.Recalled()[0].text);
  }
  // Back to the place where it was saved: what was said since is deleted.
  one.Say("A zeppelin rose over the roof. ");
  one.Flush();
  one.Restore(saved);
  EXPECT_TRUE(one.Recalled().empty());
  one.Ask("a zeppelin over the roof?", Writing());
  for (const weir::Passage& passage : one.Recalled()) EXPECT_EQ(passage.text.find("zeppelin"), std::string::npos);
  one.Restore(saved);
  EXPECT_EQ(one.Ask(question, Writing()), answer);

  // Archives that are not its own are refused, and stay as they are.
  weir::SessionHandle fresh(model_, Options(empty.c_str())), nameless(model_, Options(nullptr));
  EXPECT_EQ(RestoreStatus(fresh, saved), WEIR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(weir_last_error()).find("archive"), std::string::npos) << weir_last_error();
  EXPECT_EQ(RestoreStatus(nameless, saved), WEIR_INVALID_ARGUMENT);
  weir::SessionHandle stranger(model_, Options(other.c_str()));
  for (int i = 0; i < 400; ++i) stranger.Say("the man has a lighthouse, ");
  stranger.Flush();
  const auto size = std::filesystem::file_size(other + "/00000001.seg");
  EXPECT_EQ(RestoreStatus(stranger, saved), WEIR_INVALID_ARGUMENT) << "another stream";
  EXPECT_EQ(std::filesystem::file_size(other + "/00000001.seg"), size);
  weir_session_options plain = Options(nullptr);
  plain.recall = nullptr;
  weir::SessionHandle without(model_, plain);
  EXPECT_EQ(RestoreStatus(without, saved), WEIR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(weir_last_error()).find("recall"), std::string::npos) << weir_last_error();
  EXPECT_EQ(RestoreStatus(nameless, without.Save()), WEIR_INVALID_ARGUMENT);
  std::vector<std::uint8_t> broken = saved;
  for (std::size_t at = 48; at < 72; at += 8) {  // how far the archive goes
    broken = saved;
    broken[at + 7] |= 0x80;  // negative
    EXPECT_EQ(RestoreStatus(one, broken), WEIR_INVALID_ARGUMENT) << at;
  }
}

TEST_F(CapiRecall, BadOptionsAreRefused) {
  const auto status = [&](weir_session_options options) {
    weir_session* session = nullptr;
    const weir_status out = weir_session_open(model_.get(), &options, &session);
    weir_session_close(session);
    return out;
  };
  weir_session_options options = Options(first_.c_str());
  options.recall = "nobody";
  EXPECT_EQ(status(options), WEIR_NOT_FOUND);
  options.recall = "words:passages=0";
  EXPECT_EQ(status(options), WEIR_INVALID_ARGUMENT);
  options.recall = nullptr;
  EXPECT_EQ(status(options), WEIR_INVALID_ARGUMENT);  // a folder for nothing
  options = Options(first_.c_str());
  options.recall_disk_bytes = 10;
  EXPECT_EQ(status(options), WEIR_INVALID_ARGUMENT);
  options.recall_disk_bytes = -1;
  EXPECT_EQ(status(options), WEIR_INVALID_ARGUMENT);
  options = Options("/there/is/no/such/folder");
  EXPECT_EQ(status(options), WEIR_IO);
  const std::string used = weir::SourceDir() + "/tests";
  options = Options(used.c_str());
  EXPECT_EQ(status(options), WEIR_INVALID_ARGUMENT);  // it holds other files
  EXPECT_FALSE(std::filesystem::exists(first_));
  options = Options(nullptr);
  options.recall = "off";
  weir::SessionHandle off(model_, options);
  weir_recall_report report = WEIR_RECALL_REPORT_INIT;
  weir_passage passage = WEIR_PASSAGE_INIT;
  EXPECT_EQ(weir_session_recalled(off.get(), &report), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_recalled_passage(off.get(), 0, &passage), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_flush(off.get()), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_copy_archive(off.get(), "x"), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_recalled(nullptr, &report), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_flush(nullptr), WEIR_INVALID_ARGUMENT);
}

TEST(CapiPictures, AVideoIsItsFramesInAFixedMemory) {
  if (!weir::testing::HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  weir_model_options model_options = WEIR_MODEL_OPTIONS_INIT;
  const std::string vision = weir::SourceDir() + "/tests/golden/vision/", mmproj = vision + "clip.gguf";
  model_options.mmproj = mmproj.c_str();
  const weir::ModelHandle model(vision + "llava.gguf", model_options);
  const std::int64_t rows = model.info().tokens_a_picture;
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.policy = "streaming_llm";
  options.pot_tokens = 64;
  options.picture_side = 64;
  const auto write = [](const std::string& name, const std::string& bytes) {
    const std::string path = ::testing::TempDir() + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  };
  const std::string clip = write("capi_clip.y4m", weir::testing::Y4mBytes(16, 4));
  const std::string no_clip = write("capi_no_clip.y4m", "this is no video\n");

  // Half of four seconds' frames are read; only the pot's are held, in the memory that the session has from the start.
  weir::SessionHandle session(model, options);
  session.BeginChat("look", WEIR_PINNED);
  const weir_counters before = session.counters();
  EXPECT_EQ(session.SeeVideo(clip, 2), 8);
  const weir_counters after = session.counters();
  EXPECT_GE(after.seen, before.seen + 8 * rows);
  EXPECT_LT(after.seen, before.seen + 9 * rows);  // words of the template, no ninth frame
  EXPECT_LE(after.kept, 64);
  EXPECT_EQ(after.dropped, after.seen - after.kept);
  EXPECT_GT(after.selections, before.selections);
  EXPECT_EQ(after.bytes, before.bytes);

  // No video: one line that names the file, no frame, and a session that goes on.
  std::int64_t n_frames = -1;
  EXPECT_EQ(weir_session_see_video(session.get(), no_clip.c_str(), 2, 0, &n_frames), WEIR_CORRUPT);
  const std::string why = weir_last_error();
  EXPECT_NE(why.find("capi_no_clip.y4m"), std::string::npos) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  EXPECT_EQ(n_frames, 0);
  EXPECT_EQ(weir_session_see_video(session.get(), "/there/is/no.mp4", 2, 0, &n_frames), WEIR_NOT_FOUND);
  EXPECT_EQ(weir_session_see_video(session.get(), clip.c_str(), 0, 0, &n_frames), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_see_video(session.get(), clip.c_str(), 2, WEIR_SPECIAL, &n_frames), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_see_video(session.get(), nullptr, 2, 0, &n_frames), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(session.counters().seen, after.seen);
  EXPECT_EQ(weir_session_see_video(session.get(), clip.c_str(), 1, 0, nullptr), WEIR_OK) << weir_last_error();
  // Four pinned frames do not fit; those before the error stay read and counted.
  EXPECT_EQ(weir_session_see_video(session.get(), clip.c_str(), 1, WEIR_PINNED, &n_frames), WEIR_OVER_BUDGET);
  EXPECT_GT(n_frames, 0);
  EXPECT_LT(n_frames, 4);
}

// A session is replaced as a whole or not at all: what cannot be restored of its frames spares its text too.
TEST(CapiPictures, ForgedFramesLeaveTheSessionAsItWas) {
  weir_model_options model_options = WEIR_MODEL_OPTIONS_INIT;
  const std::string vision = weir::SourceDir() + "/tests/golden/vision/", mmproj = vision + "flash_vstream.gguf";
  model_options.mmproj = mmproj.c_str();
  const weir::ModelHandle model(vision + "llava.gguf", model_options);
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.pot_tokens = 256;
  options.picture_side = 64;
  const std::int32_t side = 32;
  weir::SessionHandle one(model, options), two(model, options);
  for (int k = 0; k < 3; ++k) {
    const std::vector<std::uint8_t> rgb(3 * side * side, static_cast<std::uint8_t>(40 + 50 * k));
    one.SeePixels(rgb.data(), side, side, 1000 * k);
    if (k == 0) two.SeePixels(rgb.data(), side, side, 500);
  }
  two.Say("the sea");
  const std::vector<std::uint8_t> saved = one.Save(), before = two.Save();
  std::vector<std::uint8_t> forged = saved;
  const double no_weight = -1;
  std::memcpy(forged.data() + forged.size() - sizeof(no_weight), &no_weight, sizeof(no_weight));
  ASSERT_NE(forged, saved);
  EXPECT_EQ(weir_session_restore(two.get(), forged.data(), forged.size()), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(weir_last_error()).find('\n'), std::string::npos);
  EXPECT_EQ(two.Save(), before);
  two.Restore(saved);
  EXPECT_EQ(two.Save(), saved);
}

TEST(Capi, TheWrapperThrowsWhatTheLibraryAnswers) {
  try {
    weir::ModelHandle none("/there/is/none.gguf");
    FAIL() << "opened what is not there";
  } catch (const weir::Error& error) {
    EXPECT_EQ(error.status(), WEIR_NOT_FOUND);
    EXPECT_NE(std::string(error.what()).find("none.gguf"), std::string::npos);
  }
  EXPECT_EQ(std::string(weir_version()).find('.'), 1u);
}

}  // namespace
