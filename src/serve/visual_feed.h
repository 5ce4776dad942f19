// SPDX-License-Identifier: Apache-2.0
// Decodes the pictures and videos of one request in order, on its own thread, while the engine does other work.
//
// At most one decoded picture waits, so that the memory is that of one lane however long a video is. The destructor
// does not wait for a decoder: the thread returns its lane when its child process has ended.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "chat/picture_source.h"
#include "engine/frame_store.h"
#include "serve/event_pictures.h"
#include "serve/shared_vision.h"
#include "serve/visual_input.h"

namespace weir {

class VisualFeed : public PictureSource {
 public:
  // How frames that are kept together are treated.
  enum class Videos {
    kWhole,    // a video is read in its place: recalled at its end, then forgotten
    kOfStream  // its frames join those of the stream, which a question recalls
  };
  // Each input is a part. `kept` and `pictures` are the session's (nullptr: it has none); they and `vision` must
  // outlive the feed. The feed's thread calls `wake` whenever the source becomes ready, never after this object is
  // destroyed. kIo if no thread can be created.
  static Result<std::unique_ptr<VisualFeed>> Start(SharedVision& vision, DecodeLanes::Lane lane, FrameStore& kept,
                                                   Videos videos, EventPictures* pictures,
                                                   std::vector<VisualInput> inputs, std::function<void()> wake);
  ~VisualFeed() override;

  bool Ready() override;
  // Errors of media/media.h, with the field that holds the picture; kInvalidArgument if there are more pictures and
  // frames, or decoding takes longer, than DecodeOptions allow.
  Result<std::optional<int64_t>> ReadNext(Session& session, const Session::AppendOptions& append) override;

 private:
  struct State;
  VisualFeed(SharedVision& vision, FrameStore& kept, Videos videos, EventPictures* pictures,
             std::shared_ptr<State> state)
      : vision_(vision), kept_(kept), videos_(videos), pictures_(pictures), state_(std::move(state)) {}
  // begin_ms: when the part began.
  Status ReadItem(bool is_frame, const RgbView& picture, int64_t begin_ms, Session& session,
                  const Session::AppendOptions& append);
  Status EndPart(Session& session, const Session::AppendOptions& append);

  SharedVision& vision_;
  FrameStore& kept_;
  const Videos videos_;
  EventPictures* const pictures_;
  const std::shared_ptr<State> state_;
  bool in_video_ = false;  // frames of the current part were read
};

// Rewords a decoder's error about a file in memory as an error about the request's field `where`.
Status AboutField(const Status& status, const std::string& path, const std::string& where);

}  // namespace weir
