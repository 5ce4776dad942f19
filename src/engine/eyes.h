// Eyes: a vision encoder beside a session, so that pictures and frames become tokens of its stream.
//
// Everything they hold is part of the session's plan and reserved in its ledger: the encoder's working memory, the
// pixels of one picture at a time, frames that wait. What that comes to is known before the session is made:
//
//   encoder = LoadedEncoder::Load(...)
//   session_options.beside = Eyes::Plan(encoder, room);
//   session = Session::Make(...);  eyes = Eyes::Make(encoder, session, room);
//
// Some encoders make rows of all frames together (FrameMemory): frames are then taken in without a token, and Recall()
// reads what they have become, before a question.
//
// A pruner (prune/pruner.h) may thin out the rows of every picture and frame before the session reads them: the same
// PrunerSpec then goes to Plan() and Make().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ledger.h"
#include "base/status.h"
#include "engine/loaded_model.h"
#include "engine/pruned_encoder.h"
#include "engine/session.h"
#include "media/media.h"
#include "vision/encoder.h"

namespace weir {

// An `mmproj` file made ready: mapped, checked, weights prepared in the language model's backend, or beside a device,
// in the CPU's, where the encoder needs that (EncoderInfo::host_only).
class LoadedEncoder {
 public:
  // kInvalidArgument when the file is no encoder, one whose rows are not as wide as the model's embeddings, or one
  // whose words around pictures the model's vocabulary does not have; otherwise errors as LoadEncoder() has them.
  // `model` must outlive it.
  static Result<std::unique_ptr<LoadedEncoder>> Load(const std::string& path, LoadedModel& model);

  Encoder& encoder() const { return *encoder_; }
  const GgufFile& file() const { return *file_; }
  // Bytes of the prepared weights.
  const Ledger& ledger() const { return ledger_; }

 private:
  LoadedEncoder() = default;
  Ledger ledger_;  // first: outlives the weights
  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Encoder> encoder_;
};

// How large pictures and frames may be.
struct PictureRoom {
  // The longer and the shorter side of the largest; either way up.
  int32_t max_side = 0, min_side = 0;
  int32_t n_waiting = 0;  // frames that may wait, ready for the encoder
  // Room for both.
  void Include(int32_t width, int32_t height);
};

class Eyes {
 public:
  // What SessionOptions::beside must hold, without and with a pruner. Errors of PrunedEncoder::PrunerBytes().
  static std::vector<PlanItem> Plan(const Encoder& encoder, const PictureRoom& room);
  static Result<std::vector<PlanItem>> Plan(const Encoder& encoder, const PictureRoom& room, const PrunerSpec& prune);

  // Encoder and session must outlive it. Errors of PrunedEncoder::Make(); kOverBudget when the session's plan did not
  // hold Plan().
  static Result<std::unique_ptr<Eyes>> Make(Encoder& encoder, Session& session, const PictureRoom& room,
                                            const PrunerSpec& prune = {});

  // Reads a picture into the stream. Errors as DecodeImage() and Session::AppendEmbeddings() have them; a picture
  // larger than the room is kUnsupported, or shrunk first where media.max_side says so.
  Status ReadPicture(const std::string& source, const MediaOptions& media, const Session::AppendOptions& append);

  // Reads a video's frames into the stream, one after the other; a frame's rows get its own time behind
  // append.t_src_ms, or behind the stream's newest slot where that is later. Gives how many there were. `on_frame`, if
  // it is set, is called after each. Errors as FrameReader has them; frames before the error stay read. Where frames
  // are kept together, those kept before are forgotten, and what became of the video's is recalled at its end: not when
  // an error ends it before. A prompt that ends with it ends once, behind the last frame.
  Result<int64_t> ReadVideo(const std::string& source, const FrameOptions& frames, const Session::AppendOptions& append,
                            const std::function<void(const Frame& frame)>& on_frame = nullptr);

  // A picture that is there already. REQUIRES: its memory is the caller's.
  Status ReadPixels(const RgbView& picture, Modality modality, const Session::AppendOptions& append);
  // Floats of a frame made ready for the encoder (Prepare), and what it becomes.
  int64_t n_prepared() const;
  // May be called from another thread while the session answers. Errors of Preprocess().
  Status Prepare(const RgbView& frame, float* out);
  Status ReadPrepared(const float* prepared, const Session::AppendOptions& append);

  // Reads what is kept of frames, where the encoder keeps them together and one came since the last time; nothing
  // otherwise. Rows have the newest frame's time. Errors of Session::AppendEmbeddings().
  Status Recall(const Session::AppendOptions& append);
  // Forgets the frames that are kept; what was read of them stays read.
  void Forget();

  // `media` with the room's limit on what a picture may be once it is decoded.
  MediaOptions Limited(const MediaOptions& media) const;

  const EncoderConfig& config() const { return config_; }
  const PictureRoom& room() const { return room_; }
  // Who thins out rows (PrunerSpec::info is nullptr: nobody), how many of a picture's stay, and how many were pruned so
  // far, of all pictures and frames.
  const PrunerSpec& prune() const { return encoder_->spec(); }
  int32_t n_rows() const { return encoder_->n_rows(); }
  int64_t n_pruned() const { return encoder_->n_pruned(); }
  Session& session() const { return session_; }

 private:
  Eyes(const EncoderConfig& config, Session& session, const PictureRoom& room)
      : config_(config), session_(session), room_(room) {}
  // Before a frame is taken into the memory: makes room in it.
  Status MakeRoomForFrame(const Session::AppendOptions& append);
  // Reads the encoder's last picture: rows, and the words between them.
  Status ReadParts(std::span<const float> rows, Modality modality, const Session::AppendOptions& append);

  const EncoderConfig& config_;
  Session& session_;
  const PictureRoom room_;
  std::unique_ptr<PrunedEncoder> encoder_;
  HostBuffer memory_bytes_;
  std::unique_ptr<FrameMemory> memory_;  // in memory_bytes_; nullptr: frames are read one by one
  int64_t newest_frame_ms_ = 0;          // of those in memory_
};

}  // namespace weir
