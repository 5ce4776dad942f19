// SPDX-License-Identifier: Apache-2.0
#include "budget/life.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "budget/counted_memory.h"
#include "budget/dice.h"
#include "chat/generate.h"
#include "chat/probe.h"
#include "engine/loaded_draft.h"
#include "engine/loaded_encoder.h"
#include "engine/loaded_model.h"
#include "engine/picture_reader.h"
#include "engine/session.h"
#include "engine/step_batch.h"
#include "io/snapshot.h"
#include "ops/kv_slots.h"
#include "recall/stream_recall.h"
#include "support/golden.h"
#include "support/picture.h"

namespace weir::testing {
namespace {

// Of tests/golden/vision: a model and encoders whose rows it reads.
constexpr std::array<const char*, 2> kPairs[] = {
    {"llava", "clip"},
    {"llava", "clip_next"},
    {"llava", "flash_vstream"},
    {"llava", "chat_univi"},
    {"gemma3_text", "gemma3_vision"},
    {"internvl_qwen2", "internvl"},
    {"lfm2_text", "lfm2_vision"},
    {"mistral3_text", "mistral3_pixtral"},
    {"qwen2vl", "qwen2vl_merger"},
    {"qwen25vl", "qwen25vl_merger"},
    {"qwen3vl_deepstack", "qwen3vl_merger"},
    {"qwen35_axes", "qwen35_merger"},
    {"qwenvl", "qwenvl_resampler"},
    {"smolvlm", "idefics3"},
};
constexpr int32_t kMostSide = 96;
constexpr int kFrames = 6;  // of the video

// A field of /proc/self/smaps_rollup, in bytes.
int64_t AnonymousBytes() {
  std::FILE* file = std::fopen("/proc/self/smaps_rollup", "r");
  if (file == nullptr) return 0;
  char line[256];
  long long kib = 0;
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strncmp(line, "Anonymous:", 10) == 0) kib = std::strtoll(line + 10, nullptr, 10);
  }
  std::fclose(file);
  return kib * 1024;
}

std::string Sentences(Dice& dice) {
  constexpr const char* kWho[] = {"heron", "miller", "clerk", "otter", "smith"};
  constexpr const char* kWhere[] = {"Alder", "Birch", "Cedar", "Rowan"};
  std::string out;
  for (int i = 0; i < 200; ++i) {
    out += fmt::format("The {} of {} keeps {} keys. ", dice.Of(kWho), dice.Of(kWhere), dice.Int(0, 999));
  }
  return out;
}

// One option with a value that may suit.
std::string OptionValueOf(const OptionInfo& option, int32_t pot, Dice& dice) {
  if (option.choices != nullptr) return dice.OfChoices(option.choices);
  if (option.text != nullptr) return dice.Chance(0.5) ? "\"Note this.\"" : "\"What of {question} matters, and why?\"";
  if (option.tune != nullptr && dice.Chance(0.4)) return dice.OfChoices(option.tune);
  const double low = std::max(option.min, -1e3), high = std::min(option.max, std::max(1e3, low));
  if (dice.Chance(0.1)) return NumberText(dice.Chance(0.5) ? option.min : high);
  if (option.integral) {
    const auto least = static_cast<int64_t>(std::ceil(low));
    return fmt::format("{}", std::clamp<int64_t>(dice.LogInt(1, std::max(2, pot / 4)) - 1, least,
                                                 std::max(least, static_cast<int64_t>(high))));
  }
  return NumberText(low + dice.Uniform() * (std::min(high, low + 4) - low));
}

std::string PolicyText(int32_t pot, Dice& dice) {
  const PolicyInfo& info = *dice.Of(AllPolicyInfos());
  std::string out = info.name;
  char between = ':';
  const double share = dice.Chance(0.4) ? 0 : 0.3;
  for (const OptionInfo& option : info.options) {
    if (!dice.Chance(share)) continue;
    out += fmt::format("{}{}={}", between, option.key, OptionValueOf(option, pot, dice));
    between = ',';
  }
  return out;
}

std::string RecallText(Dice& dice) {
  constexpr const char* kSelectors[] = {"words", "keys", "both", "last", "random", "time"};
  std::string out =
      fmt::format("{}:passages={},gate={}", dice.Of(kSelectors), dice.Int(1, 8), dice.Chance(0.7) ? 0 : 0.3);
  if (dice.Chance(0.3)) out += ",restore=kv";
  if (dice.Chance(0.2)) out += ",store=q8_0";
  if (dice.Chance(0.3)) out += fmt::format(",rerank={}", dice.Int(1, 8));
  if (dice.Chance(0.3)) out += fmt::format(",near={}", dice.Int(0, 40));
  if (dice.Chance(0.3)) out += ",answers=1";
  return out;
}

// A session and what works with it.
struct Stream {
  std::unique_ptr<Session> session;
  std::unique_ptr<PictureReader> reader;
  std::unique_ptr<StreamRecall> recall;
  std::vector<HostBuffer> waiting;
  ~Stream() {
    waiting.clear();
    recall.reset();
    reader.reset();
  }
};

class Life {
 public:
  Life(uint64_t seed, std::string folder, Verdict* verdict)
      : dice_(seed), folder_(std::move(folder)), verdict_(*verdict) {}

  void Run() {
    const Status status = Prepare();
    if (!status.ok()) {
      const bool answer = status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kUnsupported ||
                          status.code() == StatusCode::kOverBudget;
      return answer ? Refuse(status) : Break("before the plan: " + status.message());
    }
    const Result<SessionPlan> plan = PlanSession(loaded_->model(), loaded_->backend(), options_);
    if (!plan.ok()) {
      return plan.status().code() == StatusCode::kInternal ? Break(plan.status().message()) : Refuse(plan.status());
    }
    verdict_.planned = plan->total_bytes;
    if (options_.budget_bytes > 0 && plan->total_bytes > options_.budget_bytes) return Break("the plan is over budget");
    pages_before_ = AnonymousBytes();
    ResetTakenPeak();
    taken_before_ = TakenBytes();
    if (!MakeStream(&first_)) return;
    if (first_.session->plan().total_bytes != plan->total_bytes) return Break("the session has another plan");
    if (options_.beside.empty() && first_.session->ledger().used_bytes() != plan->total_bytes) {
      return Break(fmt::format("the ledger holds {} of {} planned bytes", first_.session->ledger().used_bytes(),
                               plan->total_bytes));
    }
    const auto n_steps = static_cast<int32_t>(dice_.Int(3, 12));
    Check("making it");
    while (ok_ && verdict_.n_steps < n_steps) Step();
    verdict_.n_selections = static_cast<int32_t>(first_.session->counters().selections);
    verdict_.n_guessed = static_cast<int32_t>(first_.session->n_guessed());
    if (ok_) {
      forks_.clear();
      first_.session->SetTrace(nullptr);
      trace_.reset();
    }
    if (ok_) verdict_.kind = Verdict::kHeld;
  }

 private:
  // ---- what is drawn

  Status Prepare() {
    const bool pair = dice_.Chance(0.35);
    std::string name = "models/" + dice_.Of(GoldenModels()), encoder;
    if (pair) {
      const auto& drawn = dice_.Of(kPairs);
      name = std::string("vision/") + drawn[0];
      encoder = std::string("vision/") + drawn[1];
    }
    const std::string golden = SourceDir() + "/tests/golden/";
    LoadModelOptions load;
    load.path = golden + name + ".gguf";
    load.n_threads = static_cast<int>(dice_.Int(1, 3));
    Say(fmt::format("{}, {} threads", pair ? name + " + " + encoder : name, load.n_threads));
    WEIR_ASSIGN_OR_RETURN(loaded_, LoadedModel::Load(load));
    WEIR_RETURN_IF_ERROR(DrawPot());
    if (pair) {
      WEIR_ASSIGN_OR_RETURN(encoder_, LoadedEncoder::Load(golden + encoder + ".gguf", *loaded_));
      WEIR_RETURN_IF_ERROR(DrawPictures());
    }
    if (dice_.Chance(0.3)) WEIR_RETURN_IF_ERROR(DrawRecall());
    if (dice_.Chance(0.1)) {
      auto draft = LoadedDraft::Load(load.path, *loaded_);
      if (draft.ok()) {
        draft_ = std::move(draft).value();
        options_.draft = {.model = &draft_->model(),
                          .most = static_cast<int32_t>(dice_.Int(1, 8)),
                          .sure = static_cast<float>(dice_.Uniform()),
                          .pot_slots = dice_.Chance(0.5) ? 0 : static_cast<int32_t>(dice_.LogInt(16, 60'000))};
        Say(fmt::format("a draft of {} in {}", options_.draft.most, options_.draft.pot_slots));
      }
    }
    WEIR_RETURN_IF_ERROR(PrepareProbe(
        loaded_->tokenizer(), nullptr,
        dice_.Chance(0.7) ? std::optional<std::string_view>("Who keeps the keys?") : std::nullopt, &options_));
    if (dice_.Chance(0.2)) options_.max_probe += static_cast<int32_t>(dice_.Int(0, 20));
    WEIR_RETURN_IF_ERROR(DrawBudget());
    DrawTexts();
    return Status();
  }

  Status DrawPot() {
    const AttentionLayout& layout = loaded_->model().config().attention;
    options_.pot_slots = static_cast<int32_t>(dice_.Chance(0.04) ? dice_.LogInt(700, 20'000) : dice_.LogInt(6, 700));
    if (dice_.Chance(0.3)) options_.chunk_rows = static_cast<int32_t>(dice_.LogInt(1, 300));
    const std::string policy = PolicyText(options_.pot_slots, dice_);
    Say(policy);
    WEIR_ASSIGN_OR_RETURN(options_.policy, ParsePolicySpec(policy, Profiles::kRefused));
    // Types of blocks where heads hold them; now and then where they do not, to be refused.
    const bool blocks = layout.pot().head_dim % 32 == 0 || dice_.Chance(0.02);
    const auto type = [&] { return blocks ? dice_.Of(kSlotTypes) : dice_.Chance(0.5) ? DType::kF16 : DType::kF32; };
    if (dice_.Chance(0.7)) options_.k_type = type(), options_.v_type = dice_.Chance(0.3) ? type() : options_.k_type;
    if (dice_.Chance(0.1)) options_.on_overflow = OnOverflow::kError;
    options_.nll = dice_.Chance(0.2);
    if (dice_.Chance(0.3)) options_.max_guesses = static_cast<int32_t>(dice_.LogInt(1, 16));
    options_.always_guess = dice_.Chance(0.5);
    if (dice_.Chance(0.15)) options_.excerpt_slots = static_cast<int32_t>(dice_.Int(-1, 60));
    if (dice_.Chance(0.25)) options_.aside_slots = static_cast<int32_t>(dice_.LogInt(1, 80));
    if (dice_.Chance(0.2)) options_.state_marks = static_cast<int32_t>(dice_.LogInt(1, 8));
    options_.windows_in_pot = dice_.Chance(0.2);
    options_.watch_attention = dice_.Chance(0.1);
    Say(fmt::format("pot {}, chunk {}, keys {}, values {}{}{}, {} guesses, {} for excerpts, {} aside, {} marks{}{}",
                    options_.pot_slots, options_.chunk_rows, InfoOf(options_.k_type).name, InfoOf(options_.v_type).name,
                    options_.on_overflow == OnOverflow::kError ? ", never forgets" : "", options_.nll ? ", nll" : "",
                    options_.max_guesses, options_.excerpt_slots, options_.aside_slots, options_.state_marks,
                    options_.windows_in_pot ? ", windows in the pot" : "",
                    options_.watch_attention ? ", watched" : ""));
    return Status();
  }

  Status DrawPictures() {
    const Encoder& encoder = encoder_->encoder();
    room_.Include(static_cast<int32_t>(dice_.Int(8, kMostSide)), static_cast<int32_t>(dice_.Int(8, kMostSide)));
    if (dice_.Chance(0.3)) room_.n_waiting = static_cast<int32_t>(dice_.Int(1, 4));
    if (dice_.Chance(0.3)) {
      const auto spec =
          ParsePrunerSpec(fmt::format("{}:keep={:.2f}", dice_.Of(AllPrunerInfos())->name, dice_.Uniform()));
      if (spec.ok() && PictureEncoder::PrunerBytes(*spec, encoder).ok()) prune_ = *spec;
    }
    Say(fmt::format("pictures of {} x {}, {} wait, pruner {}", room_.max_side, room_.min_side, room_.n_waiting,
                    prune_.info != nullptr ? prune_.text : "none"));
    WEIR_ASSIGN_OR_RETURN(options_.beside, PictureReader::Plan(encoder, room_, prune_));
    return Status();
  }

  Status DrawRecall() {
    const std::string text = RecallText(dice_);
    Say("recall " + text);
    const auto spec = ParseRecallSpec(text);
    if (!spec.ok()) return spec.status();
    recall_.spec = *spec;
    recall_.temp_dir = folder_;
    if (dice_.Chance(0.5)) recall_.dir = folder_ + "/archive";
    if (dice_.Chance(0.3)) recall_.disk_bytes = int64_t{1} << dice_.Int(20, 26);
    if (encoder_ != nullptr && dice_.Chance(0.6)) recall_.max_rows = encoder_->encoder().config().max_rows();
    recall_.tokens = dice_.Chance(0.5) ? -1 : static_cast<int32_t>(dice_.LogInt(8, 200));
    return AddRecall(recall_, *loaded_, &options_);
  }

  // Bytes in place of a pot, or as well.
  Status DrawBudget() {
    if (!dice_.Chance(0.35)) return Status();
    WEIR_ASSIGN_OR_RETURN(const SessionPlan plan, PlanSession(loaded_->model(), loaded_->backend(), options_));
    options_.budget_bytes = dice_.Chance(0.5) ? plan.minimum_bytes + dice_.LogInt(1, plan.total_bytes)
                                              : plan.total_bytes + dice_.Int(0, 20'000);
    if (dice_.Chance(0.5)) options_.pot_slots = 0;
    Say(fmt::format("a budget of {}", options_.budget_bytes));
    return Status();
  }

  // What is read, made before anything is counted.
  void DrawTexts() {
    const int32_t n_vocab = loaded_->model().config().n_vocab;
    text_ = loaded_->tokenizer().Encode(Sentences(dice_));
    question_ = loaded_->tokenizer().Encode("How many keys does the heron of Alder keep?", {.add_special = false});
    for (std::vector<int32_t>* ids : {&text_, &question_}) {
      std::erase_if(*ids, [&](int32_t id) { return id < 0 || id >= n_vocab; });
      if (ids->empty()) ids->push_back(0);
    }
    noise_.resize(4096);
    for (int32_t& id : noise_) id = static_cast<int32_t>(dice_.Int(0, n_vocab - 1));
    while (text_.size() < 4096) text_.insert(text_.end(), text_.begin(), text_.begin() + std::ssize(text_) / 2 + 1);
    nll_.resize(noise_.size());
    saved_.reserve(4096);
    if (encoder_ == nullptr) return;
    picture_ = Picture(kMostSide, kMostSide);
    if (dice_.Chance(0.1)) {
      const int32_t width = room_.max_side / 2 * 2, height = room_.min_side / 2 * 2;
      std::ofstream video(folder_ + "/video.y4m", std::ios::binary);
      video << "YUV4MPEG2 W" << width << " H" << height << " F2:1 Ip C420jpeg\n";
      for (int i = 0; i < kFrames; ++i) {
        video << "FRAME\n" << std::string(static_cast<size_t>(width * height * 3 / 2), static_cast<char>(40 * i));
      }
      video_ = folder_ + "/video.y4m";
      Say("a video");
    }
  }

  // ---- what is made

  bool MakeStream(Stream* out) {
    auto session = Session::Make(loaded_->model(), loaded_->backend(), options_);
    if (!session.ok()) return Break("Session::Make: " + session.status().message()), false;
    out->session = std::move(session).value();
    if (out != &first_) return true;
    if (encoder_ != nullptr) {
      auto reader = PictureReader::Make(encoder_->encoder(), *out->session, room_, prune_);
      if (!reader.ok()) return Break("PictureReader::Make: " + reader.status().message()), false;
      out->reader = std::move(reader).value();
      for (int32_t i = 0; i < room_.n_waiting; ++i) {
        auto frame = HostBuffer::Allocate(out->session->ledger(), MemTag::kVision, out->reader->n_prepared() * 4);
        if (!frame.ok()) return Break("a waiting frame: " + frame.status().message()), false;
        out->waiting.push_back(std::move(frame).value());
      }
    }
    if (recall_.on()) {
      auto recall = StreamRecall::Make(recall_, *loaded_, *out->session);
      if (!recall.ok()) return Break("StreamRecall::Make: " + recall.status().message()), false;
      out->recall = std::move(recall).value();
    }
    if (options_.watch_attention || dice_.Chance(0.15)) {
      TraceInfo info;
      info.model = "drawn";
      info.policy = out->session->policy().text;
      info.pot = out->session->pot().shape();
      info.all_scores = dice_.Chance(0.5);
      info.attention_rows = options_.watch_attention ? 20 : 0;
      auto trace = TraceWriter::Open(folder_ + "/trace.jsonl", std::move(info));
      if (!trace.ok()) return Break("TraceWriter::Open: " + trace.status().message()), false;
      trace_ = std::move(trace).value();
      out->session->SetTrace(trace_.get());
      Say("traced");
    }
    return true;
  }

  // ---- what is done

  struct Way {
    const char* name;
    double weight;
    Status (Life::*go)();
  };

  void Step() {
    static constexpr Way kWays[] = {
        {"reading", 4, &Life::Read},
        {"a picture", 3, &Life::See},
        {"a question", 4, &Life::Ask},
        {"asking aside", 1, &Life::Aside},
        {"saving", 1, &Life::SaveRestore},
        {"a fork", 1, &Life::Fork},
        {"a fork's end", 0.4, &Life::Join},
        {"going back", 0.5, &Life::GoBack},
        {"a new start", 0.2, &Life::Reset},
        {"a batch", 0.7, &Life::Batch},
        {"a probe", 0.3, &Life::Probe},
        {"a video", 0.6, &Life::Watch},
        {"an answer's likelihood", 0.4, &Life::Score},
    };
    double all = 0;
    for (const Way& way : kWays) all += way.weight;
    double at = dice_.Uniform() * all;
    const Way* way = kWays;
    while (at >= way->weight && way + 1 < std::end(kWays)) at -= (way++)->weight;
    ++verdict_.n_steps;
    planned_before_ = Planned();
    const Status status = (this->*way->go)();
    if (!status.ok()) {
      ++verdict_.n_failed_steps;
      const bool refused = status.message().find("of the budget of") != std::string::npos;
      const bool slots = status.code() == StatusCode::kOverBudget && !refused;
      if (!slots) Break(fmt::format("{}: {}", way->name, status.message()));
    }
    Check(way->name);
  }

  std::span<const int32_t> Some(int64_t most) {
    const std::vector<int32_t>& from = dice_.Chance(0.6) ? text_ : noise_;
    const int64_t n = dice_.LogInt(1, std::clamp<int64_t>(most, 1, 2000));
    return {from.data() + dice_.Int(0, 2000), static_cast<size_t>(n)};
  }
  Session::AppendOptions Now() {
    now_ms_ = std::max(now_ms_, first_.session->t_newest_ms() == Session::kNoTime ? 0 : first_.session->t_newest_ms());
    now_ms_ += dice_.Int(0, 3000);
    Session::AppendOptions append;
    append.t_src_ms = now_ms_;
    return append;
  }

  Status Read() {
    Session::AppendOptions append = Now();
    append.pinned = dice_.Chance(0.05);
    append.end_of_prompt = dice_.Chance(0.5);
    if (options_.nll) append.nll = nll_.data();
    Status status;
    // A large pot is filled by a few of these.
    const int32_t n_slots = first_.session->plan().pot_slots;
    for (int32_t left = append.pinned ? 1 : 1 + n_slots / 2000; left > 0 && status.ok(); --left) {
      status = first_.session->Append(Some(append.pinned ? 4 : 2 * n_slots + 8), append);
    }
    if (first_.recall != nullptr) first_.recall->Flush();
    return status;
  }

  Status See() {
    if (first_.reader == nullptr) return Read();
    ++verdict_.n_pictures;
    const Modality modality = dice_.Chance(0.5) ? Modality::kImage : Modality::kVideo;
    int32_t width = room_.max_side, height = room_.min_side;
    if (dice_.Chance(0.5))
      width = static_cast<int32_t>(dice_.Int(4, width)), height = static_cast<int32_t>(dice_.Int(4, height));
    if (dice_.Chance(0.3)) std::swap(width, height);
    Session::AppendOptions append = Now();
    append.end_of_prompt = dice_.Chance(0.3);
    WEIR_ASSIGN_OR_RETURN(const HostBuffer pixels,
                          HostBuffer::Allocate(first_.session->ledger(), MemTag::kVision, int64_t{3} * width * height));
    std::memcpy(pixels.data(), picture_.data(), static_cast<size_t>(3 * width * height));
    const RgbView view{pixels.data(), width, height};
    Status status;
    if (!first_.waiting.empty() && modality == Modality::kVideo) {
      float* const prepared = dice_.Of(first_.waiting).as<float>();
      WEIR_RETURN_IF_ERROR(first_.reader->Prepare(view, prepared));
      status = first_.reader->ReadPrepared(prepared, append);
    } else {
      status = first_.reader->ReadPixels(view, modality, append);
    }
    if (first_.recall != nullptr) first_.recall->Flush();
    return status;
  }

  Status Watch() {
    if (video_.empty()) return Read();
    FrameOptions frames;
    frames.fps = 2;
    frames.media.wall_ms = 3'600'000;  // on a machine that does other things, a child may wait
    WEIR_ASSIGN_OR_RETURN(const int64_t n, first_.reader->ReadVideo(video_, frames, Now()));
    verdict_.n_pictures += static_cast<int32_t>(n);
    if (first_.recall != nullptr) first_.recall->Flush();
    return Status();
  }

  Status Ask() {
    Session& session = *first_.session;
    if (first_.recall != nullptr) {
      WEIR_ASSIGN_OR_RETURN(
          const Recalled recalled,
          first_.recall->recaller().Bring(session, "How many keys does the heron of Alder keep?", Now().t_src_ms));
      verdict_.n_recalled += !recalled.passages.empty();
      ++verdict_.n_searched;
    }
    const Status answered = Answer();
    if (first_.recall != nullptr) {
      WEIR_RETURN_IF_ERROR(first_.recall->recaller().TakeBack(session));
      first_.recall->Flush();
    }
    return answered;
  }
  Status Answer() {
    Session& session = *first_.session;
    if (first_.reader != nullptr) WEIR_RETURN_IF_ERROR(first_.reader->Recall(Now()));
    const int64_t n_answer = dice_.LogInt(1, 60);
    const std::span<const int32_t> question = dice_.Chance(0.5) ? std::span<const int32_t>(question_) : Some(30);
    if (dice_.Chance(0.8)) WEIR_RETURN_IF_ERROR(session.BeginRound(question, n_answer));
    Session::AppendOptions append = Now();
    append.end_of_prompt = true;
    WEIR_RETURN_IF_ERROR(session.Append(question, append));
    SamplerOptions how;
    how.temperature = dice_.Chance(0.6) ? 0 : 1;
    how.seed = 7;
    WEIR_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(how));
    GenerateOptions generate;
    generate.max_tokens = n_answer;
    generate.ignore_eos = dice_.Chance(0.7);
    generate.t_src_ms = append.t_src_ms;
    return Generate(session, sampler, loaded_->tokenizer(), generate, [](const std::string&) {}).status();
  }

  Status Aside() {
    const int32_t most = options_.aside_slots;
    if (most < 2) return Read();
    if (first_.session->n_seen() == 0) WEIR_RETURN_IF_ERROR(Read());
    const std::span<const int32_t> head = Some(most - 1);
    std::vector<std::vector<int32_t>> tails;
    for (int64_t i = dice_.Int(1, 3); i > 0; --i) {
      const std::span<const int32_t> tail = Some(std::max<int64_t>(1, most - std::ssize(head)));
      if (std::ssize(tail) + std::ssize(head) <= most) tails.emplace_back(tail.begin(), tail.end());
    }
    const Status status = first_.session->AskAside(head, tails, [](size_t, std::span<const float>) {});
    // A window in slots of its own may see fewer tokens than the question has.
    return status.code() == StatusCode::kInvalidArgument ? Status() : status;
  }

  Status SaveRestore() {
    const std::string path = folder_ + "/saved.weir";
    Session& session = *first_.session;
    {
      WEIR_ASSIGN_OR_RETURN(const auto file, SnapshotWriter::Begin(path, "", session.state_bytes()));
      WEIR_RETURN_IF_ERROR(session.Save(*file));
      WEIR_RETURN_IF_ERROR(file->Finish(false));
    }
    WEIR_ASSIGN_OR_RETURN(const auto file, SnapshotReader::Open(path, INT64_MAX));
    ++verdict_.n_restored;
    if (forks_.empty() || dice_.Chance(0.6)) return session.Restore(*file);
    return forks_.back().session->Restore(*file);
  }

  Status Fork() {
    if (forks_.size() >= 3) return Join();
    forks_.emplace_back();
    if (!MakeStream(&forks_.back())) return Status();
    ++verdict_.n_forks;
    Session& fork = *forks_.back().session;
    WEIR_RETURN_IF_ERROR(fork.CopyFrom(*first_.session));
    Session::AppendOptions append = Now();
    return fork.Append(Some(fork.plan().pot_slots), append);
  }
  Status Join() {
    if (forks_.empty()) return Read();
    if (dice_.Chance(0.3)) {
      const Status status = first_.session->CopyFrom(*forks_.front().session);
      if (!status.ok()) return status;
    }
    forks_.pop_front();
    return Status();
  }

  Status GoBack() {
    Session& session = *first_.session;
    const int64_t n = session.RewindPoint(dice_.Int(0, session.n_rewindable()), session.n_seen());
    session.Rewind(n);
    return Read();
  }
  Status Reset() {
    first_.session->Reset();
    return Read();
  }

  Status Probe() {
    if (first_.session->plan().probe_slots == 0) return Read();
    return first_.session->SetProbe(Some(first_.session->plan().probe_slots));
  }

  // The newest token of every stream, in one pass.
  Status Batch() {
    if (forks_.empty()) return Fork();
    std::vector<StepBatch::Step> steps = {{first_.session.get(), Some(1)[0], Now().t_src_ms, Status()}};
    for (Stream& fork : forks_) {
      const int64_t t_ms = std::max(now_ms_, fork.session->t_newest_ms());
      if (fork.session->n_seen() > 0) steps.push_back({fork.session.get(), Some(1)[0], t_ms, Status()});
    }
    Ledger ledger;
    const StepBatch::Shape shape = StepBatch::ShapeFor(first_.session->plan(), std::ssize(steps));
    const int64_t bytes = StepBatch::Bytes(loaded_->model(), loaded_->backend(), shape);
    {
      WEIR_ASSIGN_OR_RETURN(const auto batch, StepBatch::Make(loaded_->model(), loaded_->backend(), shape, ledger));
      for (int i = 0; i < 3; ++i) batch->Append(steps);
      if (ledger.peak_bytes() != bytes) return Internal("a batch of {} bytes took {}", bytes, ledger.peak_bytes());
      CheckTaken("a batch", bytes);
    }
    ResetTakenPeak();
    for (const StepBatch::Step& step : steps) WEIR_RETURN_IF_ERROR(step.status);
    return Status();
  }

  Status Score() {
    if (!options_.nll) return Read();
    Session::AppendOptions append = Now();
    append.nll = nll_.data();
    append.generated = true;
    return first_.session->Append(Some(20), append);
  }

  // ---- what must hold

  int64_t Planned() const {
    int64_t out = first_.session->plan().total_bytes;
    for (const Stream& fork : forks_) out += fork.session != nullptr ? fork.session->plan().total_bytes : 0;
    return out;
  }
  int64_t Used() const {
    int64_t out = first_.session->ledger().used_bytes();
    for (const Stream& fork : forks_) out += fork.session != nullptr ? fork.session->ledger().used_bytes() : 0;
    return out;
  }
  // `more`: bytes of another ledger.
  void CheckTaken(const char* when, int64_t more) {
    const int64_t n_sessions = 1 + std::ssize(forks_), most = n_sessions * kBeyondPlan;
    const int64_t now = TakenBytes() - taken_before_ - Used() - more;
    // Of a step that ends a fork: it was there at the beginning.
    const int64_t peak = TakenPeak() - taken_before_ - std::max(Planned(), planned_before_) - more;
    const int64_t pages = AnonymousBytes() - pages_before_ - Planned() - more;
    verdict_.most_beyond = std::max({verdict_.most_beyond, now, peak});
    verdict_.most_pages_beyond = std::max(verdict_.most_pages_beyond, pages);
    if (now > most) Break(fmt::format("after {}: {} bytes taken beside the ledger's {}", when, now, Used()));
    if (peak > most) Break(fmt::format("in {}: {} bytes taken beside the plan's {}", when, peak, Planned()));
    if (pages > most) Break(fmt::format("after {}: {} bytes of pages beside the plan's {}", when, pages, Planned()));
  }
  void Check(const char* when) {
    const auto check = [&](const Stream& stream) {
      if (stream.session == nullptr) return;
      const Ledger& ledger = stream.session->ledger();
      const int64_t planned = stream.session->plan().total_bytes;
      if (ledger.used_bytes() > planned || ledger.peak_bytes() > planned || ledger.budget_bytes() != planned) {
        Break(fmt::format("after {}: the ledger holds {}, held {}, of {}", when, ledger.used_bytes(),
                          ledger.peak_bytes(), planned));
      }
    };
    check(first_);
    for (const Stream& fork : forks_) check(fork);
    CheckTaken(when, 0);
    ResetTakenPeak();
  }

  void Say(const std::string& words) {
    const size_t at = std::strlen(verdict_.drawn);
    std::snprintf(verdict_.drawn + at, sizeof(verdict_.drawn) - at, "%s%s", at > 0 ? "; " : "", words.c_str());
  }
  void Refuse(const Status& status) {
    verdict_.kind = Verdict::kRefused;
    std::snprintf(verdict_.broken, sizeof(verdict_.broken), "%s", status.message().c_str());
  }
  void Break(const std::string& what) {
    if (!ok_) return;
    ok_ = false;
    verdict_.kind = Verdict::kBroken;
    std::snprintf(verdict_.broken, sizeof(verdict_.broken), "%s", what.c_str());
  }

  Dice dice_;
  const std::string folder_;
  Verdict& verdict_;
  bool ok_ = true;
  std::unique_ptr<LoadedModel> loaded_;
  std::unique_ptr<LoadedEncoder> encoder_;
  std::unique_ptr<LoadedDraft> draft_;
  SessionOptions options_;
  RecallOptions recall_;
  PictureRoom room_;
  PrunerSpec prune_;
  std::vector<int32_t> text_, noise_, question_;
  std::vector<float> nll_;
  std::vector<uint8_t> picture_, saved_;
  std::string video_;
  int64_t taken_before_ = 0, pages_before_ = 0, planned_before_ = 0, now_ms_ = 0;
  std::unique_ptr<TraceWriter> trace_;
  Stream first_;
  std::deque<Stream> forks_;
};

}  // namespace

void Live(uint64_t seed, const std::string& folder, Verdict* verdict) { Life(seed, folder, verdict).Run(); }

}  // namespace weir::testing
