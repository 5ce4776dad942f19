// SPDX-License-Identifier: Apache-2.0
// The pictures and videos of one request, decoded one after the other by a thread of their own while the engine does
// something else.
//
// One decoded picture waits at a time, so that the memory is that of a lane however long a video is. Whoever drops the
// feed does not wait for a decoder: the thread gives its lane back when its child process has ended.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "chat/picture_source.h"
#include "engine/frame_store.h"
#include "serve/shared_vision.h"
#include "serve/visual_input.h"

namespace weir {

class VisualFeed : public PictureSource {
 public:
  // What becomes of frames that are kept together.
  enum class Videos {
    kWhole,    // a video is read where it stands: recalled at its end and forgotten
    kOfStream  // its frames join those of the stream, which a question recalls
  };
  // Each input is a part. `kept` is the session's; it and `vision` outlive the feed. `wake` is called, in the feed's
  // thread, whenever the source has become ready; never after this object's end. kIo when the system has no thread
  // left.
  static Result<std::unique_ptr<VisualFeed>> Start(SharedVision& vision, DecodeLanes::Lane lane, FrameStore& kept,
                                                   Videos videos, std::vector<VisualInput> inputs,
                                                   std::function<void()> wake);
  ~VisualFeed() override;

  bool Ready() override;
  // Errors of media/media.h about the field that holds the picture, kInvalidArgument for more pictures and frames than
  // DecodeOptions allow, or for what takes longer to decode.
  Result<std::optional<int64_t>> ReadNext(Session& session, const Session::AppendOptions& append) override;

 private:
  struct State;
  VisualFeed(SharedVision& vision, FrameStore& kept, Videos videos, std::shared_ptr<State> state)
      : vision_(vision), kept_(kept), videos_(videos), state_(std::move(state)) {}
  Status ReadItem(bool is_frame, const RgbView& picture, Session& session, const Session::AppendOptions& append);
  Status EndPart(Session& session, const Session::AppendOptions& append);

  SharedVision& vision_;
  FrameStore& kept_;
  const Videos videos_;
  const std::shared_ptr<State> state_;
  bool in_video_ = false;  // frames of the current part were read
};

// What a decoder said of a file in memory, as an answer to whoever sent it in the field `where`.
Status AboutField(const Status& status, const std::string& path, const std::string& where);

}  // namespace weir
