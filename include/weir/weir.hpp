// SPDX-License-Identifier: Apache-2.0
// The C++ API of Weir: RAII handles and exceptions around weir.h, which documents everything else.
#ifndef WEIR_WEIR_HPP_
#define WEIR_WEIR_HPP_

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "weir/weir.h"

namespace weir {

// The message is weir_last_error(); status() returns the status code.
class Error : public std::runtime_error {
 public:
  explicit Error(weir_status status) : std::runtime_error(weir_last_error()), status_(status) {}
  weir_status status() const { return status_; }

 private:
  weir_status status_;
};

inline void Check(weir_status status) {
  if (status != WEIR_OK) throw Error(status);
}

// What was brought back for an answer: see "recall" in weir.h.
struct Passage {
  std::int64_t seq = 0, end = 0, t_ms = 0;
  double score = 0;
  std::string text;
};

// Must outlive its sessions.
class ModelHandle {
 public:
  explicit ModelHandle(const std::string& path, weir_model_options options = WEIR_MODEL_OPTIONS_INIT) {
    weir_model* model = nullptr;
    Check(weir_model_open(path.c_str(), &options, &model));
    model_.reset(model);
  }
  weir_model* get() const { return model_.get(); }

  weir_model_info info() const {
    weir_model_info out = WEIR_MODEL_INFO_INIT;
    Check(weir_model_describe(get(), &out));
    return out;
  }
  std::vector<std::int32_t> Encode(const std::string& text, bool add_special = true) const {
    std::size_t n = 0;
    Check(weir_model_encode(get(), text.data(), text.size(), add_special, nullptr, 0, &n));
    std::vector<std::int32_t> ids(n);
    Check(weir_model_encode(get(), text.data(), text.size(), add_special, ids.data(), n, &n));
    return ids;
  }
  std::string Decode(const std::vector<std::int32_t>& ids) const {
    std::size_t n = 0;
    Check(weir_model_decode(get(), ids.data(), ids.size(), nullptr, 0, &n));
    std::string text(n, '\0');
    Check(weir_model_decode(get(), ids.data(), ids.size(), &text[0], n, &n));
    return text;
  }

 private:
  struct Close {
    void operator()(weir_model* model) const { weir_model_close(model); }
  };
  std::unique_ptr<weir_model, Close> model_;
};

class SessionHandle {
 public:
  explicit SessionHandle(const ModelHandle& model, weir_session_options options = WEIR_SESSION_OPTIONS_INIT) {
    weir_session* session = nullptr;
    Check(weir_session_open(model.get(), &options, &session));
    session_.reset(session);
  }
  weir_session* get() const { return session_.get(); }

  void Append(const std::string& text, std::uint32_t flags = 0) {
    Check(weir_session_append_text(get(), text.data(), text.size(), flags));
  }
  void Append(const std::vector<std::int32_t>& ids, std::uint32_t flags = 0) {
    Check(weir_session_append_tokens(get(), ids.data(), ids.size(), flags));
  }
  // Returns the whole text. `on_text` receives it piece by piece and may return false to stop; it must not throw.
  using OnText = std::function<bool(const std::string&)>;
  std::string Generate(weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT, const OnText& on_text = nullptr) {
    Sink sink{{}, on_text};
    Check(weir_session_generate(get(), &options, &Sink::Take, &sink, nullptr, nullptr));
    return sink.text;
  }

  // A chat: see "chats" in weir.h.
  void BeginChat(const std::string& system, std::uint32_t flags = WEIR_PINNED) {
    Check(weir_session_begin_chat(get(), system.data(), system.size(), flags));
  }
  void Say(const std::string& text, std::uint32_t flags = 0) {
    Check(weir_session_say(get(), text.data(), text.size(), flags));
  }
  std::string Ask(const std::string& question, weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT,
                  const OnText& on_text = nullptr) {
    Sink sink{{}, on_text};
    Check(weir_session_ask(get(), question.data(), question.size(), &options, &Sink::Take, &sink, nullptr, nullptr));
    return sink.text;
  }
  void SeeFile(const std::string& path, std::uint32_t flags = 0) {
    Check(weir_session_see_file(get(), path.c_str(), flags));
  }
  // `rgb`: 3 bytes per pixel, line by line. t_ms as for weir_session_see_pixels().
  void SeePixels(const std::uint8_t* rgb, std::int32_t width, std::int32_t height, std::int64_t t_ms = -1,
                 std::uint32_t flags = 0) {
    Check(weir_session_see_pixels(get(), rgb, width, height, t_ms, flags));
  }
  // Returns the number of frames read.
  std::int64_t SeeVideo(const std::string& path, double frames_per_s = 1, std::uint32_t flags = 0) {
    std::int64_t n = 0;
    Check(weir_session_see_video(get(), path.c_str(), frames_per_s, flags, &n));
    return n;
  }
  weir_counters counters() const {
    weir_counters out = WEIR_COUNTERS_INIT;
    Check(weir_session_counters(get(), &out));
    return out;
  }
  // Recall.
  weir_recall_report recall_report() const {
    weir_recall_report out = WEIR_RECALL_REPORT_INIT;
    Check(weir_session_recalled(get(), &out));
    return out;
  }
  std::vector<Passage> Recalled() const {
    std::vector<Passage> out(static_cast<std::size_t>(recall_report().n_passages));
    for (std::size_t i = 0; i < out.size(); ++i) {
      weir_passage one = WEIR_PASSAGE_INIT;
      Check(weir_session_recalled_passage(get(), i, &one));
      out[i] = {one.seq, one.end, one.t_ms, one.score, std::string(one.text, one.n_bytes)};
    }
    return out;
  }
  void Flush() { Check(weir_session_flush(get())); }
  void CopyArchive(const std::string& folder) { Check(weir_session_copy_archive(get(), folder.c_str())); }
  void Reset() { Check(weir_session_reset(get())); }
  std::vector<std::uint8_t> Save() const {
    std::size_t n = 0;
    Check(weir_session_save(get(), nullptr, 0, &n));
    std::vector<std::uint8_t> bytes(n);
    Check(weir_session_save(get(), bytes.data(), n, &n));
    return bytes;
  }
  void Restore(const std::vector<std::uint8_t>& bytes) {
    Check(weir_session_restore(get(), bytes.data(), bytes.size()));
  }

 private:
  // Collects the text of an answer.
  struct Sink {
    std::string text;
    const OnText& on_text;
    static int Take(const char* text, std::size_t n, void* user) {
      Sink& to = *static_cast<Sink*>(user);
      to.text.append(text, n);
      return to.on_text && !to.on_text(std::string(text, n)) ? 1 : 0;
    }
  };
  struct Close {
    void operator()(weir_session* session) const { weir_session_close(session); }
  };
  std::unique_ptr<weir_session, Close> session_;
};

}  // namespace weir

#endif  // WEIR_WEIR_HPP_
