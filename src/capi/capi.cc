// SPDX-License-Identifier: Apache-2.0
// The C API over chat and engine: checks handles and sizes, translates types, and catches all exceptions.
#include "capi/handles.h"

#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "chat/probe.h"
#include "engine/session/aside_room.h"
#include "io/json.h"
#include "kv/cache_types.h"
#include "recall/own_archive.h"
#include "rules/rule_room.h"

namespace weir {
namespace {

thread_local std::string last_error;

}  // namespace

weir_status Answer(const Status& status) {
  last_error = status.ok() ? "" : status.message();
  return static_cast<weir_status>(status.code());
}
static_assert(static_cast<int>(StatusCode::kInternal) == WEIR_INTERNAL &&
                  static_cast<int>(StatusCode::kIo) == WEIR_IO &&
                  static_cast<int>(StatusCode::kOverBudget) == WEIR_OVER_BUDGET,
              "the two lists are one");

Session::AppendOptions AppendOptionsFor(weir_session* session, bool pinned) {
  Session::AppendOptions append;
  append.pinned = pinned;
  append.t_src_ms = session->t_ms;
  if (session->on_progress == nullptr) return append;
  append.stop = &session->stop;
  append.progress = [session](int64_t n_done) { TellProgress(session, n_done); };
  return append;
}

Status EndFrames(weir_session* session) {
  return session->pictures == nullptr ? Status() : session->pictures->Interrupt(AppendOptionsFor(session, false));
}

void TellProgress(weir_session* session, int64_t n_done) {
  session->n_progress = n_done;
  if (session->on_progress != nullptr && session->on_progress(n_done, session->progress_user) != 0) {
    session->stop = true;
  }
}

namespace {

Status Append(weir_session* session, std::span<const int32_t> ids, uint32_t flags, float* nll = nullptr) {
  if ((flags & ~uint32_t{WEIR_PINNED | WEIR_END_OF_PROMPT | WEIR_SPECIAL}) != 0) {
    return InvalidArgument("flags {} are not known", flags);
  }
  WEIR_RETURN_IF_ERROR(EndFrames(session));
  Session::AppendOptions append = AppendOptionsFor(session, (flags & WEIR_PINNED) != 0);
  append.end_of_prompt = (flags & WEIR_END_OF_PROMPT) != 0;
  append.nll = nll;
  return session->session->Append(ids, append);
}

constexpr int32_t kDefaultPictureSide = 1024;

// Prepares reading a picture or video into the user's turn.
Result<Session::AppendOptions> BeginPicture(weir_session* session, uint32_t flags) {
  WEIR_RETURN_IF_ERROR(CheckPinFlag(flags));
  if (session->pictures == nullptr) return InvalidArgument("pictures need a vision encoder: weir_model_options.mmproj");
  WEIR_RETURN_IF_ERROR(OpenUserTurn(session));
  return AppendOptionsFor(session, (flags & WEIR_PINNED) != 0);
}

// Files larger than the session's room are shrunk to it.
MediaOptions MediaFor(const weir_session& session) {
  MediaOptions media;
  media.max_side = session.pictures->room().max_side;
  media.sandbox = session.opened.media_sandbox;
  return media;
}

// The header of a saved session: the sizes of its parts, which are the chat as JSON, the rules as JSON, the session,
// and the frames that its encoder keeps; and how far its archive goes.
struct SavedParts {
  char magic[8] = {'w', 'e', 'i', 'r', 'c', 'a', 'p', '4'};
  int64_t chat_bytes = 0, rule_bytes = 0, session_bytes = 0, frame_bytes = 0;
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

Result<DType> CacheType(const char* name, CachePart part) {
  return name == nullptr ? DType::kF16 : ParseCacheType(name, part);
}

Result<OpenedWith> OptionsFor(weir_model& model, const weir_session_options& given) {
  OpenedWith out;
  SessionOptions& options = out.options;
  if (given.own_policy != nullptr) {
    if (given.policy != nullptr) return InvalidArgument("weir_session_options has policy and own_policy; give one");
    weir_policy own = WEIR_POLICY_INIT;
    WEIR_RETURN_IF_ERROR(Read(given.own_policy, &own));
    WEIR_ASSIGN_OR_RETURN(out.rule, OwnRule::Make(own));
    options.policy = out.rule->spec();
  } else {
    WEIR_ASSIGN_OR_RETURN(options.policy, ParsePolicySpec(given.policy == nullptr ? "weir" : given.policy));
  }
  options.pot_slots = given.pot_tokens;
  options.budget_bytes = given.budget_bytes;
  options.chunk_rows = given.chunk_tokens;
  options.nll = given.likelihoods != 0;
  WEIR_ASSIGN_OR_RETURN(options.k_type, CacheType(given.k_type, CachePart::kKeys));
  WEIR_ASSIGN_OR_RETURN(options.v_type, CacheType(given.v_type, CachePart::kValues));
  options.max_guesses = given.lookup;
  if (model.draft != nullptr && given.draft_most >= 0) {
    options.draft.model = &model.draft->model();
    if (given.draft_most > 0) options.draft.most = given.draft_most;
  } else if (given.draft_most > 0) {
    return InvalidArgument("draft_most needs a draft model: weir_model_options.draft");
  }
  if (given.never_forget != 0) options.on_overflow = OnOverflow::kError;
  options.aside_slots = given.rule_tokens;
  WEIR_RETURN_IF_ERROR(PrepareProbe(model.loaded->tokenizer(), nullptr, std::nullopt, &options));
  if (given.prune != nullptr) {
    if (model.encoder == nullptr) return InvalidArgument("prune needs a vision encoder: weir_model_options.mmproj");
    WEIR_ASSIGN_OR_RETURN(out.prune, ParsePrunerSpec(given.prune));
  }
  options.pictures = model.encoder != nullptr;
  if (given.picture_side < 0) return InvalidArgument("picture_side is {}", given.picture_side);
  if (model.encoder != nullptr) {
    const int32_t side = given.picture_side > 0 ? given.picture_side : kDefaultPictureSide;
    out.room.Include(side, side);
    WEIR_ASSIGN_OR_RETURN(options.beside, PictureReader::Plan(model.encoder->encoder(), out.room, out.prune));
  }
  WEIR_ASSIGN_OR_RETURN(out.recall, RecallFor(given));
  WEIR_RETURN_IF_ERROR(AddRecall(out.recall, *model.loaded, &options));
  out.form_bytes = given.form_bytes;
  out.media_sandbox = given.no_media_sandbox == 0;
  WEIR_RETURN_IF_ERROR(AddForms(out.form_bytes, &options));
  if (options.aside_slots > 0) options.beside.push_back(RuleRoom(kMaxRules, options.aside_slots));
  return out;
}

// A session without its archive.
Result<std::unique_ptr<weir_session>> MakeSession(weir_model& model, OpenedWith opened) {
  auto out = std::make_unique<weir_session>(model);
  out->opened = std::move(opened);
  const OpenedWith& with = out->opened;
  WEIR_ASSIGN_OR_RETURN(out->session, Session::Make(model.loaded->model(), model.loaded->backend(), with.options));
  WEIR_ASSIGN_OR_RETURN(out->forms, FormMemory::Make(with.form_bytes, *out->session));
  if (model.encoder != nullptr) {
    WEIR_ASSIGN_OR_RETURN(out->pictures,
                          PictureReader::Make(model.encoder->encoder(), *out->session, with.room, with.prune));
  }
  if (with.options.aside_slots > 0) {
    const PlanItem room = RuleRoom(kMaxRules, with.options.aside_slots);
    WEIR_ASSIGN_OR_RETURN(out->rule_room, out->session->ledger().Reserve(room.tag, room.bytes));
    out->rules.emplace(model.loaded->tokenizer());
  }
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
int32_t weir_abi(void) { return WEIR_ABI; }

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
    if (given.packed != nullptr) load.packed_folder = given.packed;
    auto out = std::make_unique<weir_model>();
    WEIR_ASSIGN_OR_RETURN(out->loaded, weir::LoadedModel::Load(load));
    out->form_vocab.emplace(out->loaded->tokenizer(), out->form_ledger);
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
    if (given.draft != nullptr) {
      WEIR_ASSIGN_OR_RETURN(out->draft, weir::LoadedDraft::Load(given.draft, *out->loaded));
    }
    *model = out.release();
    return Status();
  });
}

void weir_model_close(weir_model* model) {
  if (model != nullptr) weir::ModelShare::Release(model);
}

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
    out.weight_bytes = model->loaded->ledger().used_bytes() +
                       (encoder == nullptr ? 0 : encoder->ledger().used_bytes()) +
                       (model->draft == nullptr ? 0 : model->draft->ledger().used_bytes());
    out.has_chat = model->chat ? 1 : 0;
    out.has_vision = encoder == nullptr ? 0 : 1;
    out.tokens_a_picture = encoder == nullptr ? 0 : encoder->encoder().config().max_rows();
    out.bos_id = model->loaded->tokenizer().bos_id();
    out.eos_id = model->loaded->tokenizer().eos_id();
    out.weights_mapped = model->loaded->maps_weights() ? 1 : 0;
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
    WEIR_ASSIGN_OR_RETURN(weir::OpenedWith opened, weir::OptionsFor(*model, given));
    WEIR_ASSIGN_OR_RETURN(auto made, weir::MakeSession(*model, std::move(opened)));
    if (made->opened.recall.on()) {
      WEIR_ASSIGN_OR_RETURN(made->recall,
                            weir::StreamRecall::Make(made->opened.recall, *model->loaded, *made->session));
    }
    *session = made.release();
    return Status();
  });
}

weir_status weir_session_fork(weir_session* session, const char* recall_dir, weir_session** fork) {
  return weir::Changing(session, [&]() -> Status {
    if (fork == nullptr) return kNull;
    *fork = nullptr;
    WEIR_RETURN_IF_ERROR(weir::CheckNoAnswer(*session));
    const bool recalls = session->recall != nullptr;
    if (recall_dir != nullptr && !recalls) return weir::kNoRecall;
    weir::OpenedWith opened = session->opened;
    opened.recall.dir = recall_dir == nullptr ? "" : recall_dir;
    WEIR_ASSIGN_OR_RETURN(auto made, weir::MakeSession(*session->model, std::move(opened)));
    WEIR_RETURN_IF_ERROR(made->session->CopyFrom(*session->session));
    if (made->pictures != nullptr) made->pictures->frames().CopyFrom(session->pictures->frames());
    if (recalls) {
      session->recall->Flush();
      const std::string& dir = made->opened.recall.dir;
      WEIR_ASSIGN_OR_RETURN(auto archive, session->recall->archive().Fork(dir, made->session->ledger()));
      WEIR_ASSIGN_OR_RETURN(made->recall, weir::StreamRecall::Around(std::move(archive), made->opened.recall,
                                                                     *session->model->loaded, *made->session));
    }
    made->talk = session->talk;
    made->rules = session->rules;
    made->recalled = session->recalled;
    made->t_ms = session->t_ms;
    *fork = made.release();
    return Status();
  });
}

void weir_session_close(weir_session* session) {
  if (session != nullptr && session->trace != nullptr) (void)weir_session_trace(session, nullptr);
  delete session;
}

weir_status weir_session_describe(const weir_session* session, weir_session_info* info) {
  return Guarded([&]() -> Status {
    if (session == nullptr || info == nullptr) return kNull;
    const weir::SessionPlan& plan = session->session->plan();
    return weir::Write<weir_session_info>(
        {sizeof(weir_session_info), plan.pot_slots, plan.chunk_rows, plan.pot.n_layers, plan.pot.n_kv_heads,
         plan.pot.n_groups(), session->session->policy().text.c_str()},
        info);
  });
}

weir_status weir_session_on_progress(weir_session* session, weir_progress_callback on_progress, void* user) {
  return Guarded([&]() -> Status {
    if (session == nullptr) return kNull;
    session->on_progress = on_progress;
    session->progress_user = user;
    return Status();
  });
}

weir_status weir_session_set_time(weir_session* session, int64_t t_ms) {
  return Guarded([&]() -> Status {
    if (session == nullptr) return kNull;
    if (t_ms < 0) return weir::InvalidArgument("a stream time of {} ms: it must not be negative", t_ms);
    session->t_ms = t_ms;
    return Status();
  });
}

weir_status weir_session_append_tokens(weir_session* session, const int32_t* ids, size_t n_ids, uint32_t flags) {
  return weir::Reading(session, [&]() -> Status {
    if (ids == nullptr && n_ids > 0) return kNull;
    if ((flags & WEIR_SPECIAL) != 0) return weir::InvalidArgument("WEIR_SPECIAL is for texts");
    return weir::Append(session, {ids, n_ids}, flags);
  });
}

weir_status weir_session_append_text(weir_session* session, const char* text, size_t n_bytes, uint32_t flags) {
  return weir::Reading(session, [&]() -> Status {
    if (text == nullptr && n_bytes > 0) return kNull;
    weir::EncodeOptions options;
    options.add_special = options.parse_special = (flags & WEIR_SPECIAL) != 0;
    const std::vector<int32_t> ids =
        session->model->loaded->tokenizer().Encode(std::string_view(text, n_bytes), options);
    return weir::Append(session, ids, flags);
  });
}

weir_status weir_session_score(weir_session* session, const int32_t* ids, size_t n_ids, uint32_t flags, float* nll) {
  return weir::Reading(session, [&]() -> Status {
    if ((ids == nullptr || nll == nullptr) && n_ids > 0) return kNull;
    if ((flags & WEIR_SPECIAL) != 0) return weir::InvalidArgument("WEIR_SPECIAL is for texts");
    if (!session->opened.options.nll) {
      return weir::InvalidArgument("the session was opened without weir_session_options.likelihoods");
    }
    return weir::Append(session, {ids, n_ids}, flags, nll);
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

weir_status weir_session_see_file(weir_session* session, const char* path, uint32_t flags) {
  return weir::Reading(session, [&]() -> Status {
    if (path == nullptr) return kNull;
    WEIR_ASSIGN_OR_RETURN(const weir::Session::AppendOptions append, weir::BeginPicture(session, flags));
    WEIR_RETURN_IF_ERROR(session->pictures->ReadPicture(path, weir::MediaFor(*session), append));
    return weir::CheckRules(session);
  });
}

weir_status weir_session_see_pixels(weir_session* session, const uint8_t* rgb, int32_t width, int32_t height,
                                    int64_t t_ms, uint32_t flags) {
  return weir::Reading(session, [&]() -> Status {
    if (rgb == nullptr) return kNull;
    if (width < 1 || height < 1 || t_ms < -1) {
      return weir::InvalidArgument("a picture of {} x {} pixels at {} ms", width, height, t_ms);
    }
    WEIR_ASSIGN_OR_RETURN(weir::Session::AppendOptions append, weir::BeginPicture(session, flags));
    if (t_ms >= 0) append.t_src_ms = t_ms;
    const weir::Modality modality = t_ms < 0 ? weir::Modality::kImage : weir::Modality::kVideo;
    WEIR_RETURN_IF_ERROR(session->pictures->ReadPixels({rgb, width, height}, modality, append));
    return weir::CheckRules(session);
  });
}

weir_status weir_session_see_video(weir_session* session, const char* path, double frames_per_s, uint32_t flags,
                                   int64_t* n_frames) {
  return weir::Reading(session, [&]() -> Status {
    if (path == nullptr) return kNull;
    if (n_frames != nullptr) *n_frames = 0;
    WEIR_ASSIGN_OR_RETURN(weir::Session::AppendOptions append, weir::BeginPicture(session, flags));
    append.stop = &session->stop;
    weir::FrameOptions frames;
    frames.media = weir::MediaFor(*session);
    frames.fps = frames_per_s;
    Status checked;
    const auto seen = [&](const weir::Frame&) {
      if (n_frames != nullptr) ++*n_frames;
      checked = weir::CheckRules(session);
      if (!checked.ok()) session->stop = true;  // before the next frame
    };
    const Status read = session->pictures->ReadVideo(path, frames, append, seen).status();
    return checked.ok() ? read : checked;
  });
}

weir_status weir_session_counters(const weir_session* session, weir_counters* counters) {
  return Guarded([&]() -> Status {
    if (session == nullptr || counters == nullptr) return kNull;
    const weir::Session& of = *session->session;
    const weir::SessionCounters now = of.counters();
    return weir::Write<weir_counters>({sizeof(weir_counters), now.seen, now.kept, now.dropped, now.selections,
                                       of.plan().total_bytes, of.n_guessed(), of.n_guessed_right()},
                                      counters);
  });
}

weir_status weir_session_slots(const weir_session* session, int32_t group, const weir_slot** slots, size_t* n_slots) {
  return Guarded([&]() -> Status {
    if (session == nullptr || slots == nullptr || n_slots == nullptr) return kNull;
    const weir::Pot& pot = session->session->pot();
    if (group < 0 || group >= pot.shape().n_groups()) {
      return weir::InvalidArgument("group {} of {}", group, pot.shape().n_groups());
    }
    const std::span<const weir::SlotMeta> meta = pot.meta(group);
    *slots = reinterpret_cast<const weir_slot*>(meta.data());
    *n_slots = meta.size();
    return Status();
  });
}

weir_status weir_session_trace(weir_session* session, const char* path) {
  return Guarded([&]() -> Status {
    if (session == nullptr) return kNull;
    if (path == nullptr) {
      session->session->SetTrace(nullptr);
      const std::unique_ptr<weir::TraceWriter> trace = std::move(session->trace);
      return trace == nullptr ? Status() : trace->Close(session->session->pot(), session->session->n_seen());
    }
    if (session->trace != nullptr) return weir::InvalidArgument("a trace is being written; NULL ends it");
    const weir::LoadedModel& loaded = *session->model->loaded;
    weir::TraceInfo info;
    info.model = loaded.model().config().name.empty() ? loaded.file().path() : loaded.model().config().name;
    info.policy = session->session->policy().text;
    info.pot = session->session->plan().pot;
    info.piece = [&loaded](int32_t id) { return loaded.tokenizer().TokenBytes(id, /*show_special=*/true); };
    WEIR_ASSIGN_OR_RETURN(session->trace, weir::TraceWriter::Open(path, std::move(info)));
    session->session->SetTrace(session->trace.get());
    return Status();
  });
}

weir_status weir_session_reset(weir_session* session) {
  return weir::Changing(session, [&]() -> Status {
    session->answer.reset();
    session->session->Reset();
    if (session->trace != nullptr) WEIR_RETURN_IF_ERROR(session->trace->Restarted());
    if (session->pictures != nullptr) session->pictures->frames().Forget();
    session->talk.reset();
    if (session->rules) session->rules.emplace(session->model->loaded->tokenizer());
    session->recalled = {};
    session->t_ms = 0;
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
    WEIR_RETURN_IF_ERROR(weir::CheckNoAnswer(*session));
    const std::string chat = session->talk ? weir::JsonText(session->talk->Save()) : "";
    const bool has_rules = session->rules && !session->rules->empty();
    const std::string rules = has_rules ? weir::JsonText(session->rules->Save()) : "";
    weir::FrameStore* const frames = session->pictures == nullptr ? nullptr : &session->pictures->frames();
    weir::SavedParts parts;
    parts.session_bytes = session->session->state_bytes();
    parts.frame_bytes = frames == nullptr ? 0 : frames->state_bytes();
    parts.chat_bytes = std::ssize(chat);
    parts.rule_bytes = std::ssize(rules);
    *n_bytes =
        sizeof(parts) + chat.size() + rules.size() + static_cast<size_t>(parts.session_bytes + parts.frame_bytes);
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
    for (const std::string& json : {chat, rules}) {
      WEIR_RETURN_IF_ERROR(sink.Write({reinterpret_cast<const uint8_t*>(json.data()), json.size()}));
    }
    WEIR_RETURN_IF_ERROR(session->session->Save(sink));
    return parts.frame_bytes == 0 ? Status() : frames->Save(sink);
  });
}

weir_status weir_session_restore(weir_session* session, const uint8_t* bytes, size_t n_bytes) {
  return weir::Changing(session, [&]() -> Status {
    if (bytes == nullptr && n_bytes > 0) return kNull;
    weir::SavedParts parts;
    const weir::Status wrong = weir::InvalidArgument("these bytes are not a session that weir_session_save() wrote");
    if (n_bytes < sizeof(parts) || std::memcmp(bytes, parts.magic, sizeof(parts.magic)) != 0) return wrong;
    std::memcpy(&parts, bytes, sizeof(parts));
    int64_t left = static_cast<int64_t>(n_bytes - sizeof(parts));
    for (const int64_t part : {parts.chat_bytes, parts.rule_bytes, parts.session_bytes, parts.frame_bytes}) {
      if (part < 0 || part > left) return wrong;
      left -= part;
    }
    weir::FrameStore* const frames = session->pictures == nullptr ? nullptr : &session->pictures->frames();
    if (left != 0 || (parts.frame_bytes > 0 && (frames == nullptr || !frames->keeps()))) return wrong;
    WEIR_RETURN_IF_ERROR(weir::CheckArchive(*session, parts));
    const uint8_t* at = bytes + sizeof(parts);
    const auto read_json = [&at](int64_t n) {
      const std::string_view text(reinterpret_cast<const char*>(at), static_cast<size_t>(n));
      at += n;
      return weir::ParseJsonObject(text);
    };
    const weir_model& model = *session->model;
    std::optional<weir::Conversation> talk;
    if (parts.chat_bytes > 0) {
      WEIR_ASSIGN_OR_RETURN(const weir::Json saved, read_json(parts.chat_bytes));
      WEIR_ASSIGN_OR_RETURN(
          talk, weir::Conversation::Restore(model.loaded->tokenizer(), model.chat ? &*model.chat : nullptr, saved));
    }
    std::optional<weir::RuleSet> rules;
    if (session->rules) rules.emplace(model.loaded->tokenizer());
    if (parts.rule_bytes > 0) {
      if (!rules || !talk) return wrong;
      WEIR_ASSIGN_OR_RETURN(const weir::Json saved, read_json(parts.rule_bytes));
      WEIR_RETURN_IF_ERROR(rules->Restore(saved, *talk, weir::AsideRoom(session->session->plan())));
    }
    weir::SpanSource of_frames({at + parts.session_bytes, static_cast<size_t>(parts.frame_bytes)});
    if (frames != nullptr) WEIR_RETURN_IF_ERROR(frames->Check(of_frames));
    of_frames.Rewind();
    WEIR_RETURN_IF_ERROR(session->session->Restore({at, static_cast<size_t>(parts.session_bytes)}));
    session->answer.reset();
    session->talk = std::move(talk);
    session->rules = std::move(rules);
    session->recalled = {};
    session->t_ms = std::max<int64_t>(session->session->t_newest_ms(), 0);
    if (session->recall != nullptr) WEIR_RETURN_IF_ERROR(session->recall->CutTo(parts.point()));
    return frames == nullptr ? Status() : frames->Restore(of_frames);
  });
}

}  // extern "C"
