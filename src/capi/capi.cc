// SPDX-License-Identifier: Apache-2.0
// The C API over chat and engine: checks handles and sizes, translates types, and catches all exceptions.
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "chat/generate.h"
#include "chat/probe.h"
#include "chat/talk.h"
#include "engine/loaded_encoder.h"
#include "engine/loaded_model.h"
#include "engine/picture_reader.h"
#include "engine/session.h"
#include "io/json.h"
#include "recall/own_archive.h"
#include "recall/stream_recall.h"
#include "weir/weir.h"

struct weir_model {
  std::unique_ptr<weir::LoadedModel> loaded;
  std::unique_ptr<weir::LoadedEncoder> encoder;  // nullptr: no pictures
  std::optional<weir::ChatTemplate> chat;
  weir::Status no_chat;  // why there is none
};
struct weir_session {
  weir_model* model = nullptr;
  std::unique_ptr<weir::Session> session;
  std::unique_ptr<weir::PictureReader> pictures;  // nullptr without an encoder
  std::optional<weir::Conversation> talk;         // nullopt: no chat, or none yet
  std::unique_ptr<weir::StreamRecall> recall;     // nullptr without recall
  weir::Recalled recalled;                        // for the last question
};

namespace weir {
namespace {

thread_local std::string last_error;

weir_status Answer(const Status& status) {
  last_error = status.ok() ? "" : status.message();
  return static_cast<weir_status>(status.code());
}
static_assert(static_cast<int>(StatusCode::kInternal) == WEIR_INTERNAL &&
                  static_cast<int>(StatusCode::kIo) == WEIR_IO &&
                  static_cast<int>(StatusCode::kOverBudget) == WEIR_OVER_BUDGET,
              "the two lists are one");

template <typename Fn>
weir_status Guarded(Fn fn) {
  try {
    return Answer(fn());
  } catch (const std::bad_alloc&) {
    return Answer(Internal("out of memory"));
  } catch (const std::exception& error) {
    return Answer(Internal("{}", error.what()));
  } catch (...) {
    return Answer(Internal("something was thrown"));
  }
}

const Status kNull = InvalidArgument("a pointer that must not be NULL is NULL");

// Converts a caller's struct to this build's layout: fields that an older header lacks get their defaults.
template <typename T>
Status Read(const T* given, T* out) {
  if (given == nullptr) return Status();
  if (given->struct_bytes < sizeof(size_t) || given->struct_bytes > 4096) {
    return InvalidArgument("struct_bytes is {}; use the INIT macro", given->struct_bytes);
  }
  std::memcpy(out, given, std::min(given->struct_bytes, sizeof(T)));
  return Status();
}

// Converts back, as far as the caller's struct has room.
template <typename T>
Status Write(T value, T* out) {
  if (out == nullptr) return kNull;
  const size_t room = out->struct_bytes;
  if (room < sizeof(size_t) || room > 4096) {
    return InvalidArgument("struct_bytes is {}; use the INIT macro", room);
  }
  std::memcpy(out, &value, std::min(room, sizeof(T)));
  out->struct_bytes = room;
  return Status();
}

Status Append(weir_session* session, std::span<const int32_t> ids, uint32_t flags) {
  if ((flags & ~uint32_t{WEIR_PINNED | WEIR_END_OF_PROMPT | WEIR_SPECIAL}) != 0) {
    return InvalidArgument("flags {} are not known", flags);
  }
  Session::AppendOptions append;
  append.pinned = (flags & WEIR_PINNED) != 0;
  append.end_of_prompt = (flags & WEIR_END_OF_PROMPT) != 0;
  return session->session->Append(ids, append);
}

constexpr int32_t kDefaultPictureSide = 1024;

Status CheckPinFlag(uint32_t flags) {
  if ((flags & ~uint32_t{WEIR_PINNED}) == 0) return Status();
  return InvalidArgument("flags {}: WEIR_PINNED is the only one here", flags);
}

// The chat of a session; starts one without a system message if there is none.
Status EnsureChat(weir_session* session, const std::optional<std::string>& system, bool pinned) {
  if (session->talk) return Status();
  const weir_model& model = *session->model;
  if (!model.chat && model.no_chat.code() != StatusCode::kNotFound) return model.no_chat;
  Conversation talk(model.loaded->tokenizer(), model.chat ? &*model.chat : nullptr);
  Session::AppendOptions append;
  append.pinned = pinned;
  WEIR_RETURN_IF_ERROR(session->session->Append(talk.Begin(system), append));
  session->talk = std::move(talk);
  return Status();
}

// Calls `fn` with a Talk; the conversation returns to the session whatever the result.
template <typename Fn>
Status WithTalk(weir_session* session, Sampler& sampler, Fn fn) {
  Talk talk(*session->session, sampler, std::move(*session->talk));
  const Status status = fn(talk);
  session->talk = std::move(talk.conversation());
  return status;
}

Status OpenUserTurn(weir_session* session) {
  WEIR_RETURN_IF_ERROR(EnsureChat(session, std::nullopt, false));
  WEIR_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create({}));  // receives the tokens, but samples none
  return WithTalk(session, sampler, [](Talk& talk) { return talk.OpenTurn(); });
}

// Prepares reading a picture or video into the user's turn.
Result<Session::AppendOptions> BeginPicture(weir_session* session, uint32_t flags) {
  WEIR_RETURN_IF_ERROR(CheckPinFlag(flags));
  if (session->pictures == nullptr) return InvalidArgument("pictures need a vision encoder: weir_model_options.mmproj");
  WEIR_RETURN_IF_ERROR(OpenUserTurn(session));
  Session::AppendOptions append;
  append.pinned = (flags & WEIR_PINNED) != 0;
  return append;
}

// Files larger than the session's room are shrunk to it.
MediaOptions MediaFor(const weir_session& session) {
  MediaOptions media;
  media.max_side = session.pictures->room().max_side;
  return media;
}

Status WriteAnswer(weir_session* session, Sampler& sampler, const weir_generate_options& given,
                   weir_text_callback on_text, void* user, size_t* n_tokens, weir_end* end) {
  std::atomic<bool> stop{false};
  GenerateOptions generate;
  generate.max_tokens = given.max_tokens;
  generate.ignore_eos = given.ignore_end != 0;
  generate.stop = &stop;
  const auto take = [&](const std::string& text) {
    if (on_text != nullptr && on_text(text.data(), text.size(), user) != 0) stop = true;
  };
  WEIR_ASSIGN_OR_RETURN(const GenerateResult result,
                        Generate(*session->session, sampler, session->model->loaded->tokenizer(), generate, take));
  if (session->talk) session->talk->Answered(result.end_token_read);
  if (n_tokens != nullptr) *n_tokens = result.tokens.size();
  if (end != nullptr) *end = static_cast<weir_end>(result.reason);
  return Status();
}
static_assert(static_cast<int>(StopReason::kEndOfGeneration) == WEIR_ENDED &&
                  static_cast<int>(StopReason::kPotFull) == WEIR_POT_FULL,
              "the two lists are one");

Result<Sampler> SamplerFor(const weir_generate_options& given) {
  SamplerOptions sampling;
  sampling.temperature = given.temperature;
  sampling.top_k = given.top_k;
  sampling.top_p = given.top_p;
  sampling.min_p = given.min_p;
  sampling.seed = given.seed;
  return Sampler::Create(sampling);
}

// The header of a saved session: the sizes of its parts, which are the session, the frames that its encoder keeps, and
// the chat as JSON; and how far its archive goes.
struct SavedParts {
  char magic[8] = {'w', 'e', 'i', 'r', 'c', 'a', 'p', '3'};
  int64_t session_bytes = 0, frame_bytes = 0, chat_bytes = 0;
  int64_t has_archive = 0, archive_seq_end = 0, archive_segment = 0, archive_offset = 0;
  uint32_t archive_salt = 0, archive_sum = 0;

  ArchivePoint point() const {
    return {archive_seq_end, static_cast<int32_t>(archive_segment), archive_offset, archive_salt, archive_sum};
  }
};

const Status kNoRecall = InvalidArgument("the session was opened without recall: weir_session_options.recall");

Result<RecallOptions> RecallFor(const weir_session_options& given) {
  RecallOptions out;
  WEIR_ASSIGN_OR_RETURN(out.spec, ParseRecallSpec(given.recall == nullptr ? "off" : given.recall));
  if (!out.on() && given.recall_dir != nullptr) {
    return InvalidArgument("recall_dir needs recall, for example \"words\"");
  }
  if (given.recall_disk_bytes < 0 || given.recall_tokens < 0) {
    return InvalidArgument("recall_disk_bytes is {} and recall_tokens {}: they must not be negative",
                           given.recall_disk_bytes, given.recall_tokens);
  }
  if (given.recall_dir != nullptr) out.dir = given.recall_dir;
  if (given.recall_disk_bytes > 0) out.disk_bytes = given.recall_disk_bytes;
  if (given.recall_tokens > 0) out.tokens = given.recall_tokens;
  return out;
}

// Whether an archive may go on from where `parts` were saved.
Status CheckArchive(const weir_session& session, const SavedParts& parts) {
  if ((parts.has_archive != 0) != (session.recall != nullptr)) {
    return InvalidArgument("the saved session was opened {} recall, this one {}",
                           parts.has_archive != 0 ? "with" : "without", session.recall != nullptr ? "with" : "without");
  }
  if (session.recall == nullptr) return Status();
  if (parts.archive_seq_end < 0 || parts.archive_segment < 0 || parts.archive_segment > INT32_MAX ||
      parts.archive_offset < 0) {
    return InvalidArgument("these bytes are not a session that weir_session_save() wrote");
  }
  const Archive& archive = session.recall->archive();
  if (archive.n_segments() == 0 && parts.archive_seq_end > 0) {
    return InvalidArgument(
        "this session's archive is empty, the saved session's is not; open it with that recall_dir or a copy of it "
        "(weir_session_copy_archive)");
  }
  return CheckOwnArchive(*session.recall, parts.point());
}

}  // namespace
}  // namespace weir

using weir::Guarded;
using weir::kNull;
using weir::Status;

extern "C" {

const char* weir_last_error(void) { return weir::last_error.c_str(); }
const char* weir_version(void) { return WEIR_VERSION; }

weir_status weir_model_open(const char* path, const weir_model_options* options, weir_model** model) {
  return Guarded([&]() -> Status {
    if (path == nullptr || model == nullptr) return kNull;
    *model = nullptr;
    weir_model_options given = WEIR_MODEL_OPTIONS_INIT;
    WEIR_RETURN_IF_ERROR(weir::Read(options, &given));
    weir::LoadModelOptions load;
    load.path = path;
    load.n_threads = given.n_threads;
    if (given.device != nullptr) load.device = given.device;
    auto out = std::make_unique<weir_model>();
    WEIR_ASSIGN_OR_RETURN(out->loaded, weir::LoadedModel::Load(load));
    const std::string name = given.chat_template == nullptr ? "" : given.chat_template;
    auto chat = weir::ChatTemplate::ForFile(out->loaded->file(), out->loaded->tokenizer(), name,
                                            given.chat_template_kwargs == nullptr ? "" : given.chat_template_kwargs);
    if (chat.ok()) {
      out->chat = *std::move(chat);
    } else if (!name.empty() || given.chat_template_kwargs != nullptr) {
      return chat.status();
    } else {
      out->no_chat = chat.status();
    }
    if (given.mmproj != nullptr) {
      WEIR_ASSIGN_OR_RETURN(out->encoder, weir::LoadedEncoder::Load(given.mmproj, *out->loaded));
    }
    *model = out.release();
    return Status();
  });
}

void weir_model_close(weir_model* model) { delete model; }

weir_status weir_model_describe(const weir_model* model, weir_model_info* info) {
  return Guarded([&]() -> Status {
    if (model == nullptr || info == nullptr) return kNull;
    const weir::ModelConfig& config = model->loaded->model().config();
    const weir::LoadedEncoder* const encoder = model->encoder.get();
    weir_model_info out = WEIR_MODEL_INFO_INIT;
    out.n_vocab = config.n_vocab;
    out.n_embd = config.n_embd;
    out.n_layers = config.n_layers;
    out.n_ctx_train = config.n_ctx_train;
    out.weight_bytes = model->loaded->ledger().used_bytes() + (encoder == nullptr ? 0 : encoder->ledger().used_bytes());
    out.has_chat = model->chat ? 1 : 0;
    out.has_vision = encoder == nullptr ? 0 : 1;
    out.tokens_a_picture = encoder == nullptr ? 0 : encoder->encoder().config().max_rows();
    return weir::Write(out, info);
  });
}

weir_status weir_model_encode(const weir_model* model, const char* text, size_t n_bytes, int add_special, int32_t* ids,
                              size_t capacity, size_t* n_ids) {
  return Guarded([&]() -> Status {
    if (model == nullptr || n_ids == nullptr || (text == nullptr && n_bytes > 0) || (ids == nullptr && capacity > 0)) {
      return kNull;
    }
    weir::EncodeOptions options;
    options.add_special = add_special != 0;
    const std::vector<int32_t> out = model->loaded->tokenizer().Encode(std::string_view(text, n_bytes), options);
    std::copy_n(out.begin(), std::min(capacity, out.size()), ids);
    *n_ids = out.size();
    return Status();
  });
}

weir_status weir_model_decode(const weir_model* model, const int32_t* ids, size_t n_ids, char* text, size_t capacity,
                              size_t* n_bytes) {
  return Guarded([&]() -> Status {
    if (model == nullptr || n_bytes == nullptr || (ids == nullptr && n_ids > 0) || (text == nullptr && capacity > 0)) {
      return kNull;
    }
    const int32_t n_vocab = model->loaded->model().config().n_vocab;
    for (size_t i = 0; i < n_ids; ++i) {
      if (ids[i] < 0 || ids[i] >= n_vocab) {
        return weir::InvalidArgument("token {} is outside the vocabulary of {}", ids[i], n_vocab);
      }
    }
    const std::string out = model->loaded->tokenizer().Decode({ids, n_ids});
    std::copy_n(out.begin(), std::min(capacity, out.size()), text);
    *n_bytes = out.size();
    return Status();
  });
}

weir_status weir_session_open(weir_model* model, const weir_session_options* options, weir_session** session) {
  return Guarded([&]() -> Status {
    if (model == nullptr || session == nullptr) return kNull;
    *session = nullptr;
    weir_session_options given = WEIR_SESSION_OPTIONS_INIT;
    WEIR_RETURN_IF_ERROR(weir::Read(options, &given));
    weir::SessionOptions out;
    WEIR_ASSIGN_OR_RETURN(out.policy, weir::ParsePolicySpec(given.policy == nullptr ? "weir" : given.policy));
    out.pot_slots = given.pot_tokens;
    out.budget_bytes = given.budget_bytes;
    out.chunk_rows = given.chunk_tokens;
    if (given.never_forget != 0) out.on_overflow = weir::OnOverflow::kError;
    WEIR_RETURN_IF_ERROR(weir::PrepareProbe(model->loaded->tokenizer(), nullptr, std::nullopt, &out));
    weir::PrunerSpec prune;
    if (given.prune != nullptr) {
      if (model->encoder == nullptr)
        return weir::InvalidArgument("prune needs a vision encoder: weir_model_options.mmproj");
      WEIR_ASSIGN_OR_RETURN(prune, weir::ParsePrunerSpec(given.prune));
    }
    if (given.picture_side < 0) return weir::InvalidArgument("picture_side is {}", given.picture_side);
    weir::PictureRoom room;
    if (model->encoder != nullptr) {
      const int32_t side = given.picture_side > 0 ? given.picture_side : weir::kDefaultPictureSide;
      room.Include(side, side);
      WEIR_ASSIGN_OR_RETURN(out.beside, weir::PictureReader::Plan(model->encoder->encoder(), room, prune));
    }
    WEIR_ASSIGN_OR_RETURN(const weir::RecallOptions recall, weir::RecallFor(given));
    WEIR_RETURN_IF_ERROR(weir::AddRecall(recall, *model->loaded, &out));
    auto made = std::make_unique<weir_session>();
    made->model = model;
    WEIR_ASSIGN_OR_RETURN(made->session, weir::Session::Make(model->loaded->model(), model->loaded->backend(), out));
    if (model->encoder != nullptr) {
      WEIR_ASSIGN_OR_RETURN(made->pictures,
                            weir::PictureReader::Make(model->encoder->encoder(), *made->session, room, prune));
    }
    if (recall.on()) {
      WEIR_ASSIGN_OR_RETURN(made->recall, weir::StreamRecall::Make(recall, *model->loaded, *made->session));
    }
    *session = made.release();
    return Status();
  });
}

void weir_session_close(weir_session* session) { delete session; }

weir_status weir_session_append_tokens(weir_session* session, const int32_t* ids, size_t n_ids, uint32_t flags) {
  return Guarded([&]() -> Status {
    if (session == nullptr || (ids == nullptr && n_ids > 0)) return kNull;
    if ((flags & WEIR_SPECIAL) != 0) return weir::InvalidArgument("WEIR_SPECIAL is for texts");
    return weir::Append(session, {ids, n_ids}, flags);
  });
}

weir_status weir_session_append_text(weir_session* session, const char* text, size_t n_bytes, uint32_t flags) {
  return Guarded([&]() -> Status {
    if (session == nullptr || (text == nullptr && n_bytes > 0)) return kNull;
    weir::EncodeOptions options;
    options.add_special = options.parse_special = (flags & WEIR_SPECIAL) != 0;
    const std::vector<int32_t> ids =
        session->model->loaded->tokenizer().Encode(std::string_view(text, n_bytes), options);
    return weir::Append(session, ids, flags);
  });
}

weir_status weir_session_logits(weir_session* session, const float** logits, size_t* n_logits) {
  return Guarded([&]() -> Status {
    if (session == nullptr || logits == nullptr || n_logits == nullptr) return kNull;
    WEIR_ASSIGN_OR_RETURN(const std::span<float> out, session->session->Logits());
    *logits = out.data();
    *n_logits = out.size();
    return Status();
  });
}

weir_status weir_session_generate(weir_session* session, const weir_generate_options* options,
                                  weir_text_callback on_text, void* user, size_t* n_tokens, weir_end* end) {
  return Guarded([&]() -> Status {
    if (session == nullptr) return kNull;
    weir_generate_options given = WEIR_GENERATE_OPTIONS_INIT;
    WEIR_RETURN_IF_ERROR(weir::Read(options, &given));
    WEIR_ASSIGN_OR_RETURN(weir::Sampler sampler, weir::SamplerFor(given));
    return weir::WriteAnswer(session, sampler, given, on_text, user, n_tokens, end);
  });
}

weir_status weir_session_begin_chat(weir_session* session, const char* system, size_t n_bytes, uint32_t flags) {
  return Guarded([&]() -> Status {
    if (session == nullptr || (system == nullptr && n_bytes > 0)) return kNull;
    WEIR_RETURN_IF_ERROR(weir::CheckPinFlag(flags));
    if (session->talk) return weir::InvalidArgument("the chat has begun already");
    std::optional<std::string> text;
    if (system != nullptr) text.emplace(system, n_bytes);
    return weir::EnsureChat(session, text, (flags & WEIR_PINNED) != 0);
  });
}

weir_status weir_session_say(weir_session* session, const char* text, size_t n_bytes, uint32_t flags) {
  return Guarded([&]() -> Status {
    if (session == nullptr || (text == nullptr && n_bytes > 0)) return kNull;
    WEIR_RETURN_IF_ERROR(weir::CheckPinFlag(flags));
    WEIR_RETURN_IF_ERROR(weir::OpenUserTurn(session));
    weir::EncodeOptions options;
    options.add_special = false;
    const std::vector<int32_t> ids =
        session->model->loaded->tokenizer().Encode(std::string_view(text, n_bytes), options);
    WEIR_RETURN_IF_ERROR(weir::Append(session, ids, flags));
    if (!ids.empty()) session->talk->TextRead();
    return Status();
  });
}

weir_status weir_session_ask(weir_session* session, const char* question, size_t n_bytes,
                             const weir_generate_options* options, weir_text_callback on_text, void* user,
                             size_t* n_tokens, weir_end* end) {
  return Guarded([&]() -> Status {
    if (session == nullptr || (question == nullptr && n_bytes > 0)) return kNull;
    weir_generate_options given = WEIR_GENERATE_OPTIONS_INIT;
    WEIR_RETURN_IF_ERROR(weir::Read(options, &given));
    WEIR_ASSIGN_OR_RETURN(weir::Sampler sampler, weir::SamplerFor(given));
    WEIR_RETURN_IF_ERROR(weir::OpenUserTurn(session));
    if (session->pictures != nullptr) WEIR_RETURN_IF_ERROR(session->pictures->Recall({}));
    session->recalled = {};
    weir::Status status = weir::WithTalk(session, sampler, [&](weir::Talk& talk) {
      if (session->recall != nullptr) talk.SetRecaller(&session->recall->recaller());
      const weir::Status asked = talk.Ask(std::string(question == nullptr ? "" : question, n_bytes), given.max_tokens);
      session->recalled = talk.recalled();
      return asked;
    });
    if (status.ok()) status = weir::WriteAnswer(session, sampler, given, on_text, user, n_tokens, end);
    // Also after a question or an answer that failed: what was brought back was for it alone.
    const weir::Status back = session->session->TakeBackExcerpt();
    if (session->recall != nullptr) session->recall->Flush();
    return status.ok() ? back : status;
  });
}

weir_status weir_session_see_file(weir_session* session, const char* path, uint32_t flags) {
  return Guarded([&]() -> Status {
    if (session == nullptr || path == nullptr) return kNull;
    WEIR_ASSIGN_OR_RETURN(const weir::Session::AppendOptions append, weir::BeginPicture(session, flags));
    return session->pictures->ReadPicture(path, weir::MediaFor(*session), append);
  });
}

weir_status weir_session_see_pixels(weir_session* session, const uint8_t* rgb, int32_t width, int32_t height,
                                    int64_t t_ms, uint32_t flags) {
  return Guarded([&]() -> Status {
    if (session == nullptr || rgb == nullptr) return kNull;
    if (width < 1 || height < 1 || t_ms < -1) {
      return weir::InvalidArgument("a picture of {} x {} pixels at {} ms", width, height, t_ms);
    }
    WEIR_ASSIGN_OR_RETURN(weir::Session::AppendOptions append, weir::BeginPicture(session, flags));
    append.t_src_ms = std::max<int64_t>(t_ms, 0);
    const weir::Modality modality = t_ms < 0 ? weir::Modality::kImage : weir::Modality::kVideo;
    return session->pictures->ReadPixels({rgb, width, height}, modality, append);
  });
}

weir_status weir_session_see_video(weir_session* session, const char* path, double frames_per_s, uint32_t flags,
                                   int64_t* n_frames) {
  return Guarded([&]() -> Status {
    if (session == nullptr || path == nullptr) return kNull;
    if (n_frames != nullptr) *n_frames = 0;
    WEIR_ASSIGN_OR_RETURN(const weir::Session::AppendOptions append, weir::BeginPicture(session, flags));
    weir::FrameOptions frames;
    frames.media = weir::MediaFor(*session);
    frames.fps = frames_per_s;
    const auto count = [&](const weir::Frame&) {
      if (n_frames != nullptr) ++*n_frames;
    };
    return session->pictures->ReadVideo(path, frames, append, count).status();
  });
}

weir_status weir_session_counters(const weir_session* session, weir_counters* counters) {
  return Guarded([&]() -> Status {
    if (session == nullptr || counters == nullptr) return kNull;
    const weir::SessionCounters now = session->session->counters();
    return weir::Write<weir_counters>(
        {sizeof(weir_counters), now.seen, now.kept, now.dropped, now.selections, session->session->plan().total_bytes},
        counters);
  });
}

weir_status weir_session_reset(weir_session* session) {
  return Guarded([&]() -> Status {
    if (session == nullptr) return kNull;
    session->session->Reset();
    if (session->pictures != nullptr) session->pictures->frames().Forget();
    session->talk.reset();
    session->recalled = {};
    return session->recall == nullptr ? Status() : session->recall->CutTo({});
  });
}

weir_status weir_session_recalled(const weir_session* session, weir_recall_report* report) {
  return Guarded([&]() -> Status {
    if (session == nullptr || report == nullptr) return kNull;
    if (session->recall == nullptr) return weir::kNoRecall;
    const weir::Recalled& of = session->recalled;
    return weir::Write<weir_recall_report>({sizeof(weir_recall_report), std::ssize(of.passages), of.n_tokens,
                                            of.best_score, of.held ? 1 : 0, of.gated ? 1 : 0},
                                           report);
  });
}

weir_status weir_session_recalled_passage(const weir_session* session, size_t i, weir_passage* passage) {
  return Guarded([&]() -> Status {
    if (session == nullptr || passage == nullptr) return kNull;
    if (session->recall == nullptr) return weir::kNoRecall;
    const std::vector<weir::RecalledPassage>& all = session->recalled.passages;
    if (i >= all.size()) return weir::InvalidArgument("passage {} of {}", i, all.size());
    const weir::RecalledPassage& one = all[i];
    return weir::Write<weir_passage>(
        {sizeof(weir_passage), one.seq, one.seq_end, one.t_ms, one.score, one.text.data(), one.text.size()}, passage);
  });
}

weir_status weir_session_flush(weir_session* session) {
  return Guarded([&]() -> Status {
    if (session == nullptr) return kNull;
    if (session->recall == nullptr) return weir::kNoRecall;
    session->recall->Flush();
    return session->recall->archive().state();
  });
}

weir_status weir_session_copy_archive(weir_session* session, const char* folder) {
  return Guarded([&]() -> Status {
    if (session == nullptr || folder == nullptr) return kNull;
    if (session->recall == nullptr) return weir::kNoRecall;
    if (*folder == '\0') return weir::InvalidArgument("the copy of an archive needs a folder");
    session->recall->Flush();
    weir::Ledger ledger;  // the copy is closed at once: its memory is not the session's
    return session->recall->archive().Fork(folder, ledger).status();
  });
}

weir_status weir_session_save(const weir_session* session, uint8_t* bytes, size_t capacity, size_t* n_bytes) {
  return Guarded([&]() -> Status {
    if (session == nullptr || n_bytes == nullptr || (bytes == nullptr && capacity > 0)) return kNull;
    const std::string chat = session->talk ? weir::JsonText(session->talk->Save()) : "";
    weir::FrameStore* const frames = session->pictures == nullptr ? nullptr : &session->pictures->frames();
    weir::SavedParts parts;
    parts.session_bytes = session->session->state_bytes();
    parts.frame_bytes = frames == nullptr ? 0 : frames->state_bytes();
    parts.chat_bytes = std::ssize(chat);
    *n_bytes = sizeof(parts) + static_cast<size_t>(parts.session_bytes + parts.frame_bytes + parts.chat_bytes);
    if (*n_bytes > capacity) return Status();
    if (session->recall != nullptr) {
      const weir::ArchivePoint point = session->recall->SavePoint();
      parts.has_archive = 1;
      parts.archive_seq_end = point.seq_end;
      parts.archive_segment = point.segment;
      parts.archive_offset = point.offset;
      parts.archive_salt = point.salt;
      parts.archive_sum = point.sum;
    }
    weir::SpanSink sink({bytes, capacity});
    WEIR_RETURN_IF_ERROR(sink.Write({reinterpret_cast<const uint8_t*>(&parts), sizeof(parts)}));
    WEIR_RETURN_IF_ERROR(sink.Write({reinterpret_cast<const uint8_t*>(chat.data()), chat.size()}));
    WEIR_RETURN_IF_ERROR(session->session->Save(sink));
    return parts.frame_bytes == 0 ? Status() : frames->Save(sink);
  });
}

weir_status weir_session_restore(weir_session* session, const uint8_t* bytes, size_t n_bytes) {
  return Guarded([&]() -> Status {
    if (session == nullptr || (bytes == nullptr && n_bytes > 0)) return kNull;
    weir::SavedParts parts;
    const weir::Status wrong = weir::InvalidArgument("these bytes are not a session that weir_session_save() wrote");
    if (n_bytes < sizeof(parts) || std::memcmp(bytes, parts.magic, sizeof(parts.magic)) != 0) return wrong;
    std::memcpy(&parts, bytes, sizeof(parts));
    int64_t left = static_cast<int64_t>(n_bytes - sizeof(parts));
    for (const int64_t part : {parts.session_bytes, parts.frame_bytes, parts.chat_bytes}) {
      if (part < 0 || part > left) return wrong;
      left -= part;
    }
    weir::FrameStore* const frames = session->pictures == nullptr ? nullptr : &session->pictures->frames();
    if (left != 0 || (parts.frame_bytes > 0 && (frames == nullptr || !frames->keeps()))) return wrong;
    WEIR_RETURN_IF_ERROR(weir::CheckArchive(*session, parts));
    const uint8_t* at = bytes + sizeof(parts);
    std::optional<weir::Conversation> talk;
    if (parts.chat_bytes > 0) {
      const weir_model& model = *session->model;
      WEIR_ASSIGN_OR_RETURN(const weir::Json saved, weir::ParseJsonObject({reinterpret_cast<const char*>(at),
                                                                           static_cast<size_t>(parts.chat_bytes)}));
      WEIR_ASSIGN_OR_RETURN(
          talk, weir::Conversation::Restore(model.loaded->tokenizer(), model.chat ? &*model.chat : nullptr, saved));
    }
    at += parts.chat_bytes;
    weir::SpanSource of_frames({at + parts.session_bytes, static_cast<size_t>(parts.frame_bytes)});
    if (frames != nullptr) WEIR_RETURN_IF_ERROR(frames->Check(of_frames));
    of_frames.Rewind();
    WEIR_RETURN_IF_ERROR(session->session->Restore({at, static_cast<size_t>(parts.session_bytes)}));
    session->talk = std::move(talk);
    session->recalled = {};
    if (session->recall != nullptr) WEIR_RETURN_IF_ERROR(session->recall->CutTo(parts.point()));
    return frames == nullptr ? Status() : frames->Restore(of_frames);
  });
}

}  // extern "C"
