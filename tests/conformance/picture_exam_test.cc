// SPDX-License-Identifier: Apache-2.0
// A model under test on pictures: rounds follow the chat template, questions aside leave no trace, shares stored and
// read are right, suites count and score.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <tuple>

#include "chat/probe.h"
#include "engine/frame_store.h"
#include "engine/loaded_encoder.h"
#include "engine/picture_parts.h"
#include "engine/picture_reader.h"
#include "eval/picture_suite.h"
#include "eval/video_suite.h"
#include "support/build_paths.h"
#include "support/pictures.h"
#include "support/tiny.h"

namespace weir {
namespace {

constexpr int kRows = 25;  // of the tiny encoder

class PictureExamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
    folder_ = std::filesystem::temp_directory_path() / ("weir_picture_exam_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    const std::string vision = SourceDir() + "/tests/golden/vision/";
    LoadModelOptions load;
    load.path = vision + "llava.gguf";
    load.n_threads = 2;
    model_ = std::move(LoadedModel::Load(load)).value();
    encoder_ = std::move(LoadedEncoder::Load(vision + "clip.gguf", *model_)).value();
    chat_ = std::move(ChatTemplate::FromName("vicuna-newline", "<s>", "</s>")).value();
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  std::string Picture(int i) {
    const std::filesystem::path path = folder_ / (std::to_string(i) + ".ppm");
    if (!std::filesystem::exists(path)) {
      std::ofstream(path, std::ios::binary) << testing::PpmBytes(40, 30, 37 * i);
    }
    return path.string();
  }
  void Open(const std::string& policy, int32_t pot, const ViewerOptions& options = {}, bool in_chat = true) {
    viewer_.reset();
    SessionOptions session;
    session.policy = std::move(ParsePolicySpec(policy)).value();
    session.pot_slots = pot;
    ASSERT_TRUE(PrepareProbe(model_->tokenizer(), in_chat ? &*chat_ : nullptr, "", &session).ok());
    auto made = Session::Make(model_->model(), model_->backend(), session);
    ASSERT_TRUE(made.ok()) << policy << ": " << made.status().message();
    session_ = std::move(*made);
    if (files_ == nullptr) {
      files_ = std::make_unique<PictureFiles>(MediaOptions());
      rows_ = std::move(EncodedPictures::Make(*files_, encoder_->encoder(), PrunerSpec())).value();
    }
    viewer_ =
        std::make_unique<Viewer>(*session_, *rows_, model_->tokenizer(), in_chat ? &*chat_ : nullptr, options, nullptr);
    ASSERT_TRUE(viewer_->Begin().ok());
  }
  // What the pot holds, visual rows as [], special tokens spelled out.
  std::string Text() const {
    std::string out;
    std::vector<int32_t> ids;
    const auto flush = [&] {
      if (!ids.empty()) out += model_->tokenizer().Decode(ids, true);
      ids.clear();
    };
    for (const SlotMeta& slot : session_->pot().meta(0)) {
      if (slot.modality == Modality::kText) {
        ids.push_back(slot.token_id);
      } else if (slot.row == 0) {
        flush();
        out += "[]";
      }
    }
    flush();
    return out;
  }
  // Clips of one stream: two pictures and a question each, every second one about the clip before; behind the third and
  // the fifth something is asked aside.
  std::vector<PictureQuestion> Stream(int64_t number, int n_clips) {
    std::vector<PictureQuestion> out;
    for (int i = 0; i < n_clips; ++i) {
      PictureQuestion q;
      q.stream = number;
      q.clip = i;
      q.distance = i % 2;
      q.kind = i % 2 == 0 ? "present" : "back";
      q.pictures = {Picture(i), Picture(i + 1)};
      q.lead = "Clip " + std::to_string(i) + ":";
      q.question = "the man";
      q.answers = {"sea"};
      out.push_back(q);
      if (i != 2 && i != 4) continue;
      q.pictures.clear();
      q.kind = "recall";
      q.distance = i;
      q.aside = true;
      out.push_back(q);
    }
    return out;
  }

  std::filesystem::path folder_;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<LoadedEncoder> encoder_;
  std::optional<ChatTemplate> chat_;
  std::unique_ptr<PictureFiles> files_;
  std::unique_ptr<EncodedPictures> rows_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Viewer> viewer_;
};

TEST_F(PictureExamTest, RoundsAreTheTemplates) {
  Open("full", 512);
  const std::string picture = Picture(0);
  ASSERT_TRUE(viewer_->Show("Clip 1:", {&picture, 1}).ok());
  ASSERT_TRUE(viewer_->Tell("the man", "sea").ok());
  ASSERT_TRUE(viewer_->Tell("and the", "man").ok());
  ASSERT_TRUE(viewer_->Show("", {&picture, 1}).ok());
  ASSERT_TRUE(viewer_->Ask("who").ok());
  const std::string eos = model_->tokenizer().Decode(std::vector<int32_t>{model_->tokenizer().eos_id()}, true);
  const std::string wanted = "USER: Clip 1:[]the man\nASSISTANT: sea" + eos + "\nUSER: and the\nASSISTANT: man" + eos +
                             "\nUSER: []who\nASSISTANT:";
  std::string text = Text();
  if (const size_t at = text.find("USER"); at != std::string::npos) text.erase(0, at);  // BOS, or none
  EXPECT_EQ(text.substr(0, wanted.size()), wanted);
  EXPECT_EQ(viewer_->n_tokens(), session_->counters().seen);
}

// Told answers stand where a model would write them.
TEST_F(PictureExamTest, AToldAnswerIsAWordOfItsOwn) {
  ViewerOptions options;
  options.form = "Question: {question} Answer:";
  Open("full", 512, options, /*in_chat=*/false);
  ASSERT_TRUE(viewer_->Tell("who", "man").ok());
  EXPECT_NE(Text().find("Question: who Answer: man"), std::string::npos) << Text();
  options.form = "{question}\n";
  Open("full", 512, options, /*in_chat=*/false);
  ASSERT_TRUE(viewer_->Tell("who", "man").ok());
  EXPECT_NE(Text().find("who\nman"), std::string::npos) << Text();
}

// Pictures of several columns have them in an exam too: it reads what a session reads by itself.
TEST(PictureExam, ColumnsAreThePictures) {
  const std::string vision = SourceDir() + "/tests/golden/vision/";
  LoadModelOptions load;
  load.path = vision + "qwen2vl.gguf";
  auto model = std::move(LoadedModel::Load(load)).value();
  auto encoder = std::move(LoadedEncoder::Load(vision + "qwen2vl_merger.gguf", *model)).value();
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec("full")).value();
  options.pot_slots = 1024;
  auto session = std::move(Session::Make(model->model(), model->backend(), options)).value();
  PictureFiles files{MediaOptions()};
  auto rows = std::move(EncodedPictures::Make(files, encoder->encoder(), PrunerSpec())).value();
  const std::string path =
      std::filesystem::temp_directory_path() / ("weir_columns_" + std::to_string(getpid()) + ".ppm");
  std::ofstream(path, std::ios::binary) << testing::PpmBytes(120, 60, 5);
  Viewer viewer(*session, *rows, model->tokenizer(), nullptr, {}, nullptr);
  ASSERT_TRUE(viewer.Begin().ok());
  const Status shown = viewer.Show("", {&path, 1});
  ASSERT_TRUE(shown.ok()) << shown.message();
  const std::vector<SlotMeta> seen(session->pot().meta(0).begin(), session->pot().meta(0).end());
  session->Reset();
  const auto picture = rows->Get(path, false);
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  ASSERT_TRUE(AppendParts(rows->config(), picture->parts, picture->rows, Modality::kImage, *session, {}).ok());
  std::filesystem::remove(path);
  const std::span<const SlotMeta> alone = session->pot().meta(0);
  std::vector<int32_t> visual_exam, visual_alone;
  for (const SlotMeta& m : seen) {
    if (m.modality == Modality::kImage) visual_exam.push_back(m.token_id);
  }
  for (const SlotMeta& m : alone) {
    if (m.modality == Modality::kImage) visual_alone.push_back(m.token_id);
  }
  ASSERT_FALSE(visual_exam.empty());
  EXPECT_EQ(visual_exam, visual_alone);
  EXPECT_LT(visual_exam.front(), -1) << "more than one column";
}

// Where an encoder makes rows of all frames together, a question reads them; one that is asked aside leaves what was
// kept as it was.
TEST_F(PictureExamTest, FramesThatAreKeptAreReadByQuestions) {
  for (const auto& [name, n_first, n_second] :
       {std::tuple{"flash_vstream", 12 + 16 + 48, 80}, {"chat_univi", 21, 21}}) {
    SCOPED_TRACE(name);
    auto encoder =
        std::move(LoadedEncoder::Load(SourceDir() + "/tests/golden/vision/" + name + ".gguf", *model_)).value();
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec("streaming_llm")).value();
    options.pot_slots = 256;
    options.beside = FrameStore::Plan(encoder->encoder());
    auto session = std::move(Session::Make(model_->model(), model_->backend(), options)).value();
    auto frames = std::move(FrameStore::Make(encoder->encoder(), session->ledger())).value();
    EXPECT_EQ(session->ledger().used_bytes(), session->plan().total_bytes);
    PictureFiles files{MediaOptions()};
    auto rows = std::move(EncodedPictures::Make(files, encoder->encoder(), PrunerSpec())).value();
    ViewerOptions viewing;
    viewing.video = true;
    Viewer viewer(*session, *rows, model_->tokenizer(), &*chat_, viewing, nullptr, frames.get());
    const auto n_video = [&] { return session->counters().by[static_cast<size_t>(Modality::kVideo)].seen; };
    const auto sit = [&](bool aside) {
      std::vector<std::string> said;
      EXPECT_TRUE(viewer.Begin().ok());
      int shown = 0;
      for (const int n : {4, 3}) {
        std::vector<std::string> clip;
        for (int i = 0; i < n; ++i) clip.push_back(Picture(shown++));
        const int64_t before = n_video();
        EXPECT_TRUE(viewer.Show("Clip:", clip).ok());
        EXPECT_EQ(n_video(), before);
        for (int i = 0; aside && i < 2; ++i) {
          const auto reply = viewer.AskAside("the man");
          EXPECT_TRUE(reply.ok()) << reply.status().message();
          EXPECT_EQ(n_video(), before);
          EXPECT_TRUE(frames->fresh());
        }
        const auto reply = viewer.Ask("the man");
        EXPECT_TRUE(reply.ok()) << reply.status().message();
        EXPECT_EQ(n_video() - before, n == 4 ? n_first : n_second);
        EXPECT_EQ(viewer.n_tokens(), session->counters().seen);
        said.push_back(reply->text);
      }
      return std::pair(said, testing::LogitsOf(*session));
    };
    EXPECT_EQ(sit(true), sit(false));
    EXPECT_LE(session->ledger().peak_bytes(), session->plan().total_bytes);
  }
}

TEST_F(PictureExamTest, WithoutATemplateThePictureStandsBeforeTheForm) {
  ViewerOptions options;
  options.form = "Question: {question} Answer:";
  options.video = true;
  Open("full", 512, options, /*in_chat=*/false);
  const std::string pictures[] = {Picture(0), Picture(1)};
  ASSERT_TRUE(viewer_->Show("", pictures).ok());
  ASSERT_TRUE(viewer_->Ask("who").ok());
  EXPECT_NE(Text().find("[][]Question: who Answer:"), std::string::npos) << Text();
  EXPECT_EQ(session_->counters().by[static_cast<size_t>(Modality::kVideo)].seen, 2 * kRows);
  EXPECT_EQ(viewer_->t_ms(), 2000);
  EXPECT_EQ(session_->pot().meta(0)[static_cast<size_t>(session_->counters().kept - 1)].t_src_ms, 2000);
}

TEST_F(PictureExamTest, AsideLeavesNoTrace) {
  for (const char* policy : {"full", "weir", "a_vl", "h2o", "snapkv"}) {
    SCOPED_TRACE(policy);
    Open(policy, std::string(policy) == "full" ? 256 : 96);
    const std::string pictures[] = {Picture(0), Picture(1)};
    ASSERT_TRUE(viewer_->Show("Clip 1:", pictures).ok());
    const std::vector<float> before = testing::LogitsOf(*session_);
    const auto held = testing::Held(*session_);
    const int64_t n = viewer_->n_tokens();
    const auto first = viewer_->AskAside("the man");
    ASSERT_TRUE(first.ok()) << first.status().message();
    EXPECT_EQ(testing::LogitsOf(*session_), before);
    EXPECT_EQ(testing::Held(*session_), held);
    EXPECT_EQ(viewer_->n_tokens(), n);
    const auto again = viewer_->AskAside("the man"), stays = viewer_->Ask("the man");
    ASSERT_TRUE(again.ok() && stays.ok());
    EXPECT_EQ(again->text, first->text);
    EXPECT_EQ(stays->text, first->text);
    EXPECT_GT(viewer_->n_tokens(), n);
    ASSERT_TRUE(viewer_->Ask("and the").ok());
  }
}

TEST_F(PictureExamTest, SharesAreWhatIsStoredAndRead) {
  ViewerOptions options;
  options.n_decode = 9;  // three times K
  const auto reply = [&](const std::string& policy, int32_t pot) {
    Open(policy, pot, options);
    const std::string pictures[] = {Picture(0), Picture(1)};
    EXPECT_TRUE(viewer_->Show("Clip 1:", pictures).ok());
    auto out = viewer_->AskAside("the man and the sea");
    EXPECT_TRUE(out.ok()) << policy << ": " << out.status().message();
    return out.ok() ? *out : ViewerReply();
  };
  const ViewerReply full = reply("full", 256);
  EXPECT_DOUBLE_EQ(full.stored_share, 1);
  EXPECT_DOUBLE_EQ(full.stored_visual_share, 1);
  EXPECT_DOUBLE_EQ(full.used_share, 1);
  EXPECT_GT(full.ms_per_token, 0);
  const PotShape& shape = session_->pot().shape();
  const int64_t token_bytes =
      shape.n_heads_total() * (RowBytes(shape.k_type, shape.head_dim) + RowBytes(shape.v_type, shape.head_dim));
  EXPECT_EQ(full.kv_bytes % token_bytes, 0);
  const double n_prompt = static_cast<double>(full.kv_bytes / token_bytes), n_visual = 2 * kRows,
               n_text = n_prompt - n_visual;

  const ViewerReply half = reply("window", 40);
  EXPECT_LE(half.kv_bytes, 40 * token_bytes);
  EXPECT_NEAR(half.stored_share, static_cast<double>(half.kv_bytes) / static_cast<double>(full.kv_bytes), 1e-9);

  // Of 50 visual tokens 20 are stored; every third token reads them, the others a core of 10.
  const ViewerReply avl = reply("a_vl:S=0.4,C=0.2,K=3", 256);
  EXPECT_DOUBLE_EQ(avl.stored_visual_share, 0.4);
  EXPECT_NEAR(avl.stored_share, (20 + n_text) / n_prompt, 1e-9);
  double used = 0;
  for (int step = 0; step < 9; ++step) {
    const double n_seen = n_prompt + step + 1;
    used += ((step % 3 == 2 ? 20 : 10) + n_text + step + 1) / n_seen / 9;
  }
  EXPECT_NEAR(avl.used_share, used, 1e-9);
  EXPECT_DOUBLE_EQ(reply("a_vl:S=0.4,K=0", 256).stored_visual_share, 0.4);
}

TEST_F(PictureExamTest, PoliciesSitTheExamWithEqualBytes) {
  const std::vector<PictureQuestion> stream = Stream(0, 6);
  std::set<int64_t> kv_bytes;
  for (const char* policy : {"window", "last_frames", "streaming_llm", "h2o", "snapkv", "inf_mllm", "infinipot",
                             "infinipot_v", "weir", "streaming_vlm", "a_vl", "fastv"}) {
    SCOPED_TRACE(policy);
    ViewerOptions options;
    options.video = true;
    options.n_answer = 3;
    Open(policy, 128, options);
    int n = 0;
    const Status status = WatchStreams(*viewer_, stream, {}, {}, [&](const ScoredRound& round) {
      ++n;
      EXPECT_LE(session_->pot().n_used(), 128 * session_->pot().shape().spread);
      EXPECT_GE(round.tokens_back, round.question->distance * 2 * kRows);
    });
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(n, 8);
    kv_bytes.insert(session_->ledger().used_bytes(MemTag::kKv));
  }
  EXPECT_EQ(kv_bytes.size(), 1u);
}

TEST_F(PictureExamTest, StreamsAreScoredByRoundsKindsAndAges) {
  std::vector<PictureQuestion> questions = Stream(0, 5);
  for (PictureQuestion& q : Stream(1, 5)) questions.push_back(q);
  ViewerOptions options;
  options.n_answer = 3;
  options.video = true;
  options.frame_ms = 30000;  // a clip takes a minute
  for (const bool own : {true, false}) {
    SCOPED_TRACE(own);
    VideoSuiteOptions suite;
    suite.own_answers = own;
    // What the model says is made the right answer of some rounds: they must then be right, the others wrong.
    Open("weir", 160, options);
    std::vector<std::string> said;
    ASSERT_TRUE(
        WatchStreams(*viewer_, questions, suite, {}, [&](const ScoredRound& r) { said.push_back(r.answer); }).ok());
    ASSERT_EQ(said.size(), 14u);
    std::vector<PictureQuestion> known = questions;
    for (size_t i = 0; i < known.size(); ++i) {
      const bool right = known[i].kind == "recall";
      known[i].answers.front() = right ? said[i] : "no such words";
      // The right answer stays in the stream in the other mode: leave what changes it as it was.
      if (!own && !right) known[i].answers.front() = "sea";
    }
    std::map<std::string, Cell> cells;
    SuiteHooks hooks;
    hooks.report = [&](const Cell& cell) {
      cells[cell.labels[0].second +
            (cell.numbers.empty() ? "" : "/" + std::to_string(static_cast<int>(cell.numbers[0].second)))] = cell;
    };
    suite.rounds = {2, 5};
    Open("weir", 160, options);
    ASSERT_TRUE(RunVideoQa(*viewer_, known, suite, hooks).ok());
    EXPECT_EQ(cells["all/2"].score.n(), 4);
    EXPECT_EQ(cells["all/5"].score.n(), 14);
    EXPECT_EQ(cells["present/5"].score.n(), 6);
    EXPECT_EQ(cells["memory/5"].score.n(), 8);
    EXPECT_EQ(cells["recall/5"].score.n(), 4);
    EXPECT_EQ(cells.count("recall/2"), 0u);
    EXPECT_EQ(cells["recall/5"].score.mean(), 1);
    EXPECT_GT(cells["recall/5"].tokens_back.mean(), cells["back/5"].tokens_back.mean());
    EXPECT_EQ(cells["present/5"].tokens_back.mean(), 0);
    cells.clear();
    // Questions about minute 0 come after two minutes (one clip back), three and five.
    suite.ages = {3, 5};
    Open("weir", 160, options);
    ASSERT_TRUE(RunStreamVideo(*viewer_, known, suite, hooks).ok());
    EXPECT_EQ(cells["present"].score.n(), 6);
    EXPECT_EQ(cells["first_minute/3"].score.n(), 2);
    EXPECT_EQ(cells["first_minute/5"].score.n(), 2);
    EXPECT_EQ(cells["memory"].score.n(), 2);  // about the third minute; what was asked too soon counts nowhere
    EXPECT_EQ(cells["first_minute/5"].score.mean(), 1);
    EXPECT_GT(cells["first_minute/5"].more[0].second.mean(), cells["first_minute/3"].more[0].second.mean());
  }
  // Tasks: a cell for every kind, scored as a question says; of a poll that nobody answers with yes, the last line.
  std::vector<PictureQuestion> tasks = Stream(0, 5);
  std::vector<std::string> kinds;
  for (PictureQuestion& q : tasks) {
    q.aside = true;
    kinds.push_back(q.kind);
    q.metric = "digits";
    q.answers = {"12345"};
    if (q.kind == "present") q.poll = 7;
  }
  std::map<std::string, Cell> of_kind;
  SuiteHooks report;
  report.report = [&](const Cell& cell) { of_kind[cell.labels[0].second] = cell; };
  Open("weir", 160, options);
  ASSERT_TRUE(RunVideoTasks(*viewer_, tasks, {}, report).ok());
  const auto n_present = std::count(kinds.begin(), kinds.end(), "present");
  EXPECT_EQ(of_kind["present"].score.n(), 1);
  EXPECT_EQ(of_kind["present"].score.mean(), 0);
  EXPECT_EQ(of_kind["all"].score.n(), std::ssize(tasks) - n_present + 1);
  EXPECT_EQ(FirstRounds(questions, 1, 3).size(), 4u);  // and what is asked aside behind the third
  EXPECT_EQ(FirstRounds(questions, 0, 0).size(), 14u);
}

TEST_F(PictureExamTest, PicturesApartAreScoredByEveryMetric) {
  std::vector<PictureQuestion> questions;
  for (int i = 0; i < 4; ++i) {
    PictureQuestion q;
    if (i != 1) q.pictures = {Picture(i)};  // the second asks about the first one's picture
    q.question = i == 0 ? "the man" : "the sea";
    q.kind = i < 2 ? "shape" : "colour";
    q.answers = {"nothing"};
    questions.push_back(q);
  }
  Open("full", 256);
  std::vector<Cell> cells;
  SuiteHooks hooks;
  hooks.report = [&](const Cell& cell) { cells.push_back(cell); };
  PictureSuiteOptions options;
  options.metrics = {"exact", "anls", "cider"};
  ASSERT_TRUE(RunPictureSuite(*viewer_, questions, options, hooks).ok());
  ASSERT_EQ(cells.size(), 9u);  // all, and two kinds, three times
  EXPECT_EQ(cells[0].score.n(), 4);
  EXPECT_EQ(cells[1].score.n(), 2);
  EXPECT_EQ(cells[3].metric, "anls");
  EXPECT_EQ(cells[0].more[0].first, "stored_share");
  EXPECT_DOUBLE_EQ(cells[0].more[0].second.mean(), 1);
  // The pot was emptied for every picture.
  EXPECT_EQ(session_->counters().by[static_cast<size_t>(Modality::kImage)].seen, kRows);
  options.metrics = {"bleu"};
  EXPECT_EQ(RunPictureSuite(*viewer_, questions, options, hooks).code(), StatusCode::kUnsupported);
  options.metrics = {};
  EXPECT_EQ(RunPictureSuite(*viewer_, questions, options, hooks).code(), StatusCode::kInvalidArgument);
}

TEST_F(PictureExamTest, APictureIsDecodedOnceAndKeptWithinLimits) {
  const std::string path = Picture(0);
  PictureFiles files(MediaOptions(), 1 << 20), none(MediaOptions(), 0);
  const auto rows = std::move(EncodedPictures::Make(files, encoder_->encoder(), PrunerSpec())).value();
  const auto forgetful = std::move(EncodedPictures::Make(none, encoder_->encoder(), PrunerSpec(), 0)).value();
  const auto get = [&](EncodedPictures& from) {
    const auto got = from.Get(path, false);
    EXPECT_TRUE(got.ok()) << got.status().message();
    return got.ok() ? std::vector<float>(got->rows.begin(), got->rows.end()) : std::vector<float>();
  };
  const std::vector<float> first = get(*rows);
  EXPECT_EQ(first.size(), static_cast<size_t>(kRows * model_->model().config().n_embd));
  EXPECT_EQ(get(*forgetful), first);
  const int64_t used = rows->ledger().used_bytes();
  EXPECT_EQ(used, forgetful->ledger().used_bytes() + std::ssize(first) * 4);
  std::filesystem::remove(path);  // it must not be read again
  EXPECT_EQ(get(*rows), first);
  EXPECT_EQ(rows->ledger().used_bytes(), used);
  EXPECT_EQ(forgetful->Get(path, false).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace weir
