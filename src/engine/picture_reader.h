// SPDX-License-Identifier: Apache-2.0
// Pictures and video for one session that has an encoder to itself, from files and cameras.
//
// Everything it holds is part of the session's plan and reserved in its ledger: the encoder's working memory, the
// pixels of one picture at a time, frames that wait, what is kept of frames. What that comes to is known before the
// session is made:
//
//   encoder = LoadedEncoder::Load(...)
//   session_options.beside = PictureReader::Plan(encoder, room, prune);
//   session = Session::Make(...);  reader = PictureReader::Make(encoder, session, room, prune);
//
// Sessions that share an encoder use PictureEncoder and FrameStore themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/frame_store.h"
#include "engine/picture_encoder.h"
#include "engine/session.h"
#include "media/media.h"

namespace weir {

// How large pictures and frames may be.
struct PictureRoom {
  // The longer and the shorter side of the largest; either way up.
  int32_t max_side = 0, min_side = 0;
  int32_t n_waiting = 0;  // frames that may wait, ready for the encoder
  // Room for both.
  void Include(int32_t width, int32_t height);
};

class PictureReader {
 public:
  // What SessionOptions::beside must hold. Errors of PictureEncoder::PrunerBytes().
  static Result<std::vector<PlanItem>> Plan(const Encoder& encoder, const PictureRoom& room,
                                            const PrunerSpec& prune = {});
  // Encoder and session must outlive it. Errors of PictureEncoder::Make(); kOverBudget when the session's plan did not
  // hold Plan().
  static Result<std::unique_ptr<PictureReader>> Make(Encoder& encoder, Session& session, const PictureRoom& room,
                                                     const PrunerSpec& prune = {});

  // Reads a picture into the stream. Errors as DecodeImage() and Session::AppendEmbeddings() have them; a picture
  // larger than the room is kUnsupported, or shrunk first where media.max_side says so.
  Status ReadPicture(const std::string& source, const MediaOptions& media, const Session::AppendOptions& append);

  // Reads a video's frames into the stream, one after the other; a frame's rows get its own time behind
  // append.t_src_ms, or behind the stream's newest slot where that is later. Gives how many there were. `on_frame`, if
  // it is set, is called after each. Errors as FrameReader has them; frames before the error stay read. Where frames
  // are kept together, the video is a whole: what was kept before is recalled first, and what became of the video at
  // its end; then it is forgotten. A prompt that ends with the video ends once, behind the last frame.
  Result<int64_t> ReadVideo(const std::string& source, const FrameOptions& frames, const Session::AppendOptions& append,
                            const std::function<void(const Frame& frame)>& on_frame = nullptr);

  // A picture or frame that is there already. kUnsupported when it is larger than the room. REQUIRES: its memory is the
  // caller's.
  Status ReadPixels(const RgbView& picture, Modality modality, const Session::AppendOptions& append);
  // Floats of a frame made ready for the encoder (Prepare), and what it becomes.
  int64_t n_prepared() const { return pictures_->n_prepared(); }
  // May be called from another thread while the session answers. Errors of Preprocess().
  Status Prepare(const RgbView& frame, float* out) { return pictures_->Prepare(frame, session_.ledger(), out); }
  Status ReadPrepared(const float* prepared, const Session::AppendOptions& append) {
    return frames_->ReadPrepared(*pictures_, prepared, session_, append);
  }
  // Before a question: FrameStore::Recall().
  Status Recall(const Session::AppendOptions& append) { return frames_->Recall(*pictures_, session_, append); }

  // `media` with the room's limit on what a picture may be once it is decoded.
  MediaOptions Limited(const MediaOptions& media) const;

  const EncoderConfig& config() const { return pictures_->config(); }
  const PictureRoom& room() const { return room_; }
  const PictureEncoder& pictures() const { return *pictures_; }
  FrameStore& frames() { return *frames_; }
  Session& session() const { return session_; }

 private:
  PictureReader(Session& session, const PictureRoom& room) : session_(session), room_(room) {}

  Session& session_;
  const PictureRoom room_;
  std::unique_ptr<PictureEncoder> pictures_;
  std::unique_ptr<FrameStore> frames_;
};

}  // namespace weir
