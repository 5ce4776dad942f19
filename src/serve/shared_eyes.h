// One vision encoder for all sessions of a server.
//
// Pictures go two ways. Decoding (ffmpeg, and making a frame ready for the encoder) is done by threads of requests, in
// one of a few lanes: each has memory for one picture, so that what decoding takes is known before the first request.
// Encoding is done on the engine's thread, in memory that all sessions share, and its rows are read by one session at
// once.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ledger.h"
#include "base/memory.h"
#include "engine/pruned_encoder.h"
#include "engine/session.h"
#include "media/media.h"
#include "vision/encoder.h"

namespace weir {

struct SharedEyesOptions {
  int32_t max_side = 1024;      // pictures are shrunk to so many pixels on their longer side
  int lanes = 2;                // pictures and videos that are decoded at once
  int64_t max_frames = 10'000;  // pictures and frames of one request, repeated ones included
  int64_t timeout_ms = 30'000;  // for a picture, or a video's next frame
  int64_t decode_s = 600;       // for decoding all pictures and videos of one request
  PrunerSpec prune;             // who thins out the rows of every picture and frame
};

// So far, of all sessions.
struct EyesCounts {
  std::atomic<int64_t> pictures_read{0}, frames_read{0};
  std::atomic<int64_t> frames_arrived{0}, frames_dropped{0};  // of live videos
};

class SharedEyes {
 public:
  // Bytes that Make() reserves under kVision. Errors of PrunedEncoder::PrunerBytes().
  static Result<int64_t> Bytes(const Encoder& encoder, const SharedEyesOptions& options);
  // kOverBudget, errors of Bytes(). `encoder` and `ledger` outlive it.
  static Result<std::unique_ptr<SharedEyes>> Make(Encoder& encoder, const SharedEyesOptions& options, Ledger& ledger);
  // Waits until every lane was given back.
  ~SharedEyes();

  // A place to decode one picture at a time. Move-only; gives itself back.
  class Lane {
   public:
    Lane(Lane&& other) noexcept : eyes_(std::exchange(other.eyes_, nullptr)), index_(other.index_) {}
    Lane& operator=(Lane&& other) noexcept {
      std::swap(eyes_, other.eyes_);
      std::swap(index_, other.index_);
      return *this;
    }
    ~Lane();
    // Has room for the pixels of a picture, a frame made ready, and what that takes.
    Ledger& ledger() const { return *eyes_->lanes_[index_].ledger; }
    // [n_prepared()], for a frame made ready.
    float* prepared() const { return eyes_->lanes_[index_].prepared.as<float>(); }

   private:
    friend class SharedEyes;
    Lane(SharedEyes* eyes, size_t index) : eyes_(eyes), index_(index) {}
    SharedEyes* eyes_;
    size_t index_;
  };
  // A place in the line for a lane, in the order in which tickets are drawn. Whoever does not ask with his (any more,
  // or for now) holds up nobody. Any thread; one at a time. Does not outlive the eyes.
  class Ticket {
   public:
    explicit Ticket(SharedEyes& eyes);
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    ~Ticket() { StepAside(); }
    // Others may go first until a lane is asked for again.
    void StepAside();

   private:
    friend class SharedEyes;
    SharedEyes& eyes_;
    uint64_t number_;
  };
  // Any thread. Nullopt when it is not this ticket's turn (for that long); it then stays in the line. One lane a
  // ticket.
  std::optional<Lane> TakeLane(const Ticket& ticket, std::chrono::milliseconds wait);

  // How files of requests are read: shrunk, and limited.
  MediaOptions media() const;
  const SharedEyesOptions& options() const { return options_; }
  EyesCounts& counts() const { return counts_; }
  const EncoderConfig& config() const { return config_; }
  // Rows of a picture that sessions read, where it is not looked at in tiles.
  int32_t n_rows() const { return encoder_->n_rows(); }
  int64_t n_prepared() const;
  // Makes a frame ready, in any thread. Errors of Preprocess().
  Status Prepare(const RgbView& frame, Ledger& work, float* out) const;

  // [engine] Rows that were pruned so far, of all sessions.
  int64_t n_pruned() const { return encoder_->n_pruned(); }
  // [engine] Reads a picture, or a frame made ready, into a session. Errors of PrunedEncoder::Encode() and
  // Session::AppendEmbeddings().
  Status ReadPicture(const RgbView& picture, Session& session, const Session::AppendOptions& append);
  Status ReadFrame(const float* prepared, Session& session, const Session::AppendOptions& append);

 private:
  struct Place {
    std::unique_ptr<Ledger> ledger;
    HostBuffer prepared;
    bool taken = false;  // under mutex_
  };
  SharedEyes(const EncoderConfig& config, const SharedEyesOptions& options, int64_t engine_bytes)
      : config_(config), options_(options), engine_ledger_(engine_bytes) {}

  const EncoderConfig& config_;
  const SharedEyesOptions options_;
  mutable EyesCounts counts_;
  Reservation reservation_;  // of everything below
  Ledger engine_ledger_;
  std::unique_ptr<PrunedEncoder> encoder_;
  std::mutex mutex_;
  std::condition_variable freed_;  // a lane, or a place in the line
  std::vector<Place> lanes_;
  uint64_t next_ticket_ = 0;  // under mutex_, as is the line: numbers of tickets that would take a lane now
  std::set<uint64_t> line_;
};

}  // namespace weir
