// SPDX-License-Identifier: Apache-2.0
// Reads pictures and video from files and cameras for one session with its own encoder.
//
// All its memory is part of the session's plan and reserved in its ledger: the encoder's working memory, the pixels of
// one picture at a time, waiting frames, kept frames. The total is known before the session is made:
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

// The maximum size of pictures and frames.
struct PictureRoom {
  // The longer and the shorter side of the largest, in either orientation.
  int32_t max_side = 0, min_side = 0;
  int32_t n_waiting = 0;  // prepared frames that may wait
  // Enlarges the room to include this size.
  void Include(int32_t width, int32_t height);
};

class PictureReader {
 public:
  // What SessionOptions::beside must contain. Errors of PictureEncoder::PrunerBytes().
  static Result<std::vector<PlanItem>> Plan(const Encoder& encoder, const PictureRoom& room,
                                            const PrunerSpec& prune = {});
  // Encoder and session must outlive it. Errors of PictureEncoder::Make(); kOverBudget if the session's plan did not
  // contain Plan().
  static Result<std::unique_ptr<PictureReader>> Make(Encoder& encoder, Session& session, const PictureRoom& room,
                                                     const PrunerSpec& prune = {});

  // Reads a picture into the stream. Errors of DecodeImage() and Session::AppendEmbeddings(); a picture larger than the
  // room is kUnsupported, unless media.max_side shrinks it first.
  Status ReadPicture(const std::string& source, const MediaOptions& media, const Session::AppendOptions& append);

  // Reads a video's frames into the stream in order and returns their number. The time of a frame's rows is
  // append.t_src_ms, or the time of the stream's newest slot if that is later, plus the frame's own time. `on_frame`,
  // if set, is called after each frame. Errors of FrameReader; frames before the error stay read. If frames are kept
  // together, the video is treated as a unit: frames kept before are recalled first, the video's are recalled at its
  // end and then forgotten. A prompt that ends with the video ends once, after the last frame.
  Result<int64_t> ReadVideo(const std::string& source, const FrameOptions& frames, const Session::AppendOptions& append,
                            const std::function<void(const Frame& frame)>& on_frame = nullptr);

  // Reads a picture or frame that is already decoded. kUnsupported if it is larger than the room. REQUIRES: the caller
  // owns its memory.
  Status ReadPixels(const RgbView& picture, Modality modality, const Session::AppendOptions& append);
  // The size in floats of a frame prepared for the encoder (Prepare), and the tokens it becomes.
  int64_t n_prepared() const { return pictures_->n_prepared(); }
  // May be called from another thread while the session generates. Errors of Preprocess().
  Status Prepare(const RgbView& frame, float* out) { return pictures_->Prepare(frame, session_.ledger(), out); }
  Status ReadPrepared(const float* prepared, const Session::AppendOptions& append) {
    return frames_->ReadPrepared(*pictures_, prepared, session_, append);
  }
  // Call before a question: FrameStore::Recall(); before other text: FrameStore::Interrupt(); when the next frame will
  // not come soon: FrameStore::Settle().
  Status Recall(const Session::AppendOptions& append) { return frames_->Recall(*pictures_, session_, append); }
  Status Interrupt(const Session::AppendOptions& append) { return frames_->Interrupt(*pictures_, session_, append); }
  Status Settle(const Session::AppendOptions& append) { return frames_->Settle(*pictures_, session_, append); }

  // `media` with the room's limit on the size of a decoded picture.
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
