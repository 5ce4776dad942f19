// The C interface over the engine: checks handles and sizes, translates, and lets nothing thrown out.
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "chat/generate.h"
#include "chat/probe.h"
#include "engine/loaded_model.h"
#include "engine/session.h"
#include "weir/weir.h"

struct weir_model {
  std::unique_ptr<weir::LoadedModel> loaded;
};
struct weir_session {
  weir_model* model = nullptr;
  std::unique_ptr<weir::Session> session;
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
    return Answer(Internal("%s", error.what()));
  } catch (...) {
    return Answer(Internal("something was thrown"));
  }
}

const Status kNull = InvalidArgument("a pointer that must not be NULL is NULL");

// A caller's struct as this build knows it: what an older header lacks has its default.
template <typename T>
Status Read(const T* given, T* out) {
  if (given == nullptr) return Status();
  if (given->struct_bytes < sizeof(size_t) || given->struct_bytes > 4096) {
    return InvalidArgument("struct_bytes is %zu; use the INIT macro", given->struct_bytes);
  }
  std::memcpy(out, given, std::min(given->struct_bytes, sizeof(T)));
  return Status();
}

// And back: as much as the caller has room for.
template <typename T>
Status Write(T value, T* out) {
  if (out == nullptr) return kNull;
  const size_t room = out->struct_bytes;
  if (room < sizeof(size_t) || room > 4096) {
    return InvalidArgument("struct_bytes is %zu; use the INIT macro", room);
  }
  std::memcpy(out, &value, std::min(room, sizeof(T)));
  out->struct_bytes = room;
  return Status();
}

Status Append(weir_session* session, std::span<const int32_t> ids, uint32_t flags) {
  if ((flags & ~uint32_t{WEIR_PINNED | WEIR_END_OF_PROMPT | WEIR_SPECIAL}) != 0) {
    return InvalidArgument("flags %u are not known", flags);
  }
  Session::AppendOptions append;
  append.pinned = (flags & WEIR_PINNED) != 0;
  append.end_of_prompt = (flags & WEIR_END_OF_PROMPT) != 0;
  return session->session->Append(ids, append);
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
    *model = out.release();
    return Status();
  });
}

void weir_model_close(weir_model* model) { delete model; }

weir_status weir_model_describe(const weir_model* model, weir_model_info* info) {
  return Guarded([&]() -> Status {
    if (model == nullptr || info == nullptr) return kNull;
    const weir::ModelConfig& config = model->loaded->model().config();
    return weir::Write<weir_model_info>({sizeof(weir_model_info), config.n_vocab, config.n_embd, config.n_layers,
                                         config.n_ctx_train, model->loaded->ledger().used_bytes()},
                                        info);
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
        return weir::InvalidArgument("token %d is outside the vocabulary of %d", ids[i], n_vocab);
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
    auto made = std::make_unique<weir_session>();
    made->model = model;
    WEIR_ASSIGN_OR_RETURN(made->session, weir::Session::Make(model->loaded->model(), model->loaded->backend(), out));
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
    weir::SamplerOptions sampling;
    sampling.temperature = given.temperature;
    sampling.top_k = given.top_k;
    sampling.top_p = given.top_p;
    sampling.min_p = given.min_p;
    sampling.seed = given.seed;
    WEIR_ASSIGN_OR_RETURN(weir::Sampler sampler, weir::Sampler::Create(sampling));
    std::atomic<bool> stop{false};
    weir::GenerateOptions generate;
    generate.max_tokens = given.max_tokens;
    generate.ignore_eos = given.ignore_end != 0;
    generate.stop = &stop;
    WEIR_ASSIGN_OR_RETURN(const weir::GenerateResult result,
                          weir::Generate(*session->session, sampler, session->model->loaded->tokenizer(), generate,
                                         [&](const std::string& text) {
                                           if (on_text != nullptr && on_text(text.data(), text.size(), user) != 0) {
                                             stop = true;
                                           }
                                         }));
    if (n_tokens != nullptr) *n_tokens = result.tokens.size();
    if (end != nullptr) *end = static_cast<weir_end>(result.reason);
    return Status();
  });
}
static_assert(static_cast<int>(weir::StopReason::kEndOfGeneration) == WEIR_ENDED &&
                  static_cast<int>(weir::StopReason::kPotFull) == WEIR_POT_FULL,
              "the two lists are one");

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
    return Status();
  });
}

weir_status weir_session_save(const weir_session* session, uint8_t* bytes, size_t capacity, size_t* n_bytes) {
  return Guarded([&]() -> Status {
    if (session == nullptr || n_bytes == nullptr || (bytes == nullptr && capacity > 0)) return kNull;
    *n_bytes = static_cast<size_t>(session->session->state_bytes());
    if (*n_bytes > capacity) return Status();
    weir::SpanSink sink({bytes, capacity});
    return session->session->Save(sink);
  });
}

weir_status weir_session_restore(weir_session* session, const uint8_t* bytes, size_t n_bytes) {
  return Guarded([&]() -> Status {
    if (session == nullptr || (bytes == nullptr && n_bytes > 0)) return kNull;
    return session->session->Restore({bytes, n_bytes});
  });
}

}  // extern "C"
