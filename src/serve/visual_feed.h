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
#include "serve/shared_eyes.h"
#include "serve/visual_input.h"

namespace weir {

class VisualFeed : public PictureSource {
 public:
  // Each input is a part. `wake` is called, in the feed's thread, whenever the source has become ready; never after
  // this object's end. kIo when the system has no thread left.
  static Result<std::unique_ptr<VisualFeed>> Start(SharedEyes& eyes, SharedEyes::Lane lane,
                                                   std::vector<VisualInput> inputs, std::function<void()> wake);
  ~VisualFeed() override;

  bool Ready() override;
  // Errors of media/media.h about the field that holds the picture, kInvalidArgument for more pictures and frames than
  // SharedEyesOptions allow, or for what takes longer to decode.
  Result<std::optional<int64_t>> ReadNext(Session& session, const Session::AppendOptions& append) override;

 private:
  struct State;
  VisualFeed(SharedEyes& eyes, std::shared_ptr<State> state) : eyes_(eyes), state_(std::move(state)) {}
  SharedEyes& eyes_;
  const std::shared_ptr<State> state_;
};

// What a decoder said of a file in memory, as an answer to whoever sent it in the field `where`.
Status AboutField(const Status& status, const std::string& path, const std::string& where);

}  // namespace weir
