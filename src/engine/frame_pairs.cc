// SPDX-License-Identifier: Apache-2.0
#include "engine/frame_pairs.h"

#include <fmt/core.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace weir {
namespace {

constexpr int64_t kMostPlaces = int64_t{1} << 40;

bool AllFinite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace

int64_t FramePairs::Bytes(const Encoder& encoder) {
  const EncoderConfig& config = encoder.config();
  return config.pairing.on ? InputFloats(config.transform) * 4 : 0;
}

void FramePairs::Keep(const float* frame, int64_t t_ms, bool pinned) {
  const PictureSize size = InputSize(frame, config_.transform);
  state_.waits = 1;
  state_.waits_ms = t_ms;
  state_.pinned = pinned ? 1 : 0;
  state_.width = size.width;
  state_.height = size.height;
  std::copy_n(frame, n_floats(state_), frame_);
  SetInputSize(size, config_.transform, frame_);
}

Status FramePairs::Take(PictureEncoder& pictures, const RgbView& frame, Session& session,
                        const Session::AppendOptions& append) {
  WEIR_ASSIGN_OR_RETURN(const float* const prepared, pictures.images().Prepare(frame));
  return TakePrepared(pictures, prepared, session, append);
}

Status FramePairs::TakePrepared(PictureEncoder& pictures, const float* frame, Session& session,
                                const Session::AppendOptions& append) {
  const PictureSize size = InputSize(frame, config_.transform);
  if (state_.waits != 0 && size.width == state_.width && size.height == state_.height) {
    return Read(pictures, frame, append.t_src_ms, session, append);
  }
  WEIR_RETURN_IF_ERROR(Settle(pictures, session, append));
  Keep(frame, append.t_src_ms, append.pinned);
  return Status();
}

Status FramePairs::Settle(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append) {
  return state_.waits == 0 ? Status() : Read(pictures, nullptr, state_.waits_ms, session, append);
}

Status FramePairs::Close(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append) {
  WEIR_RETURN_IF_ERROR(Settle(pictures, session, append));
  Session::AppendOptions inside = append;
  inside.end_of_prompt = false;
  inside.of_picture = true;
  if (std::exchange(state_.open, 0) != 0 && state_.n_seen == session.n_seen()) {
    const PictureWords& words = config_.words;
    WEIR_RETURN_IF_ERROR(session.Append(words.tokens[static_cast<size_t>(words.close)], inside));
  }
  // Nothing of the video is left: streams that continue alike are saved alike.
  state_ = {.begin_ms = state_.begin_ms};
  return append.end_of_prompt ? session.Append({}, append) : Status();
}

VideoPlace FramePairs::PlaceOf(const PicturePart& rows, int64_t n_seen) {
  const double per_second = config_.pairing.steps_per_second;
  VideoPlace place;
  if (state_.open != 0 && state_.n_seen == n_seen && state_.n_rows == rows.n_rows && state_.columns == rows.columns) {
    const auto since = static_cast<double>(state_.waits_ms - state_.first_ms);
    const int64_t moment =
        per_second == 0 ? state_.moment + 1 : static_cast<int64_t>(std::floor(since * per_second / 1000));
    // Not more steps than the pair before has rows: positions never outnumber tokens.
    const int64_t most = std::min<int64_t>(state_.n_rows, kMaxSteps);
    place.steps = static_cast<int32_t>(std::clamp<int64_t>(moment - state_.moment, 0, most));
    state_.moment = std::max(state_.moment, moment);
    state_.time += place.steps;
    place.time = state_.time;
    place.back = state_.extent;
  } else {
    state_.first_ms = state_.waits_ms;
    state_.moment = state_.time = state_.extent = 0;
  }
  state_.open = 1;
  state_.n_rows = rows.n_rows;
  state_.columns = rows.columns;
  const int64_t columns = std::min(rows.columns, rows.n_rows);
  const int64_t lines = (int64_t{rows.n_rows} + rows.columns - 1) / rows.columns;
  state_.extent = std::max({state_.extent, state_.time + 1, lines, columns});
  return place;
}

std::vector<int32_t> FramePairs::WordsBefore(bool begins, bool was_open, double seconds) const {
  const PictureWords& words = config_.words;
  std::vector<int32_t> out;
  const auto add = [&](int32_t index) {
    const std::vector<int32_t>& tokens = words.tokens[static_cast<size_t>(index)];
    out.insert(out.end(), tokens.begin(), tokens.end());
  };
  if (begins && was_open) add(words.close);
  if (words.time >= 0) {
    add(words.time + PictureWords::kBeforeTime);
    for (const char c : fmt::format("{:.1f}", std::max(seconds, 0.0))) {
      add(words.time + (c == '.' ? PictureWords::kPoint : PictureWords::kZero + (c - '0')));
    }
    add(words.time + PictureWords::kAfterTime);
  }
  if (begins) add(words.open);
  return out;
}

Status FramePairs::Read(PictureEncoder& pictures, const float* second, int64_t second_ms, Session& session,
                        const Session::AppendOptions& append) {
  WEIR_ASSIGN_OR_RETURN(const std::span<const float> rows, pictures.EncodePair(frame_, second));
  const auto part = std::ranges::find_if(pictures.parts(), [](const PicturePart& p) { return p.n_rows > 0; });
  const bool was_open = state_.open != 0 && state_.n_seen == session.n_seen();
  const VideoPlace place = config_.pairing.one_video ? PlaceOf(*part, session.n_seen()) : VideoPlace();
  const bool begins = place.steps < 0;
  const double seconds =
      (static_cast<double>(state_.waits_ms - state_.begin_ms) + static_cast<double>(second_ms - state_.begin_ms)) /
      2000;
  Session::AppendOptions here = append;
  here.t_src_ms = second_ms;
  here.pinned = append.pinned || state_.pinned != 0;
  here.of_picture = true;
  here.end_of_prompt = false;
  state_.waits = state_.width = state_.height = state_.pinned = 0;
  state_.waits_ms = 0;
  int64_t n_done = 0;
  if (append.progress) here.progress = [&](int64_t n) { append.progress(n_done + n); };
  const std::vector<int32_t> words = WordsBefore(begins, was_open, seconds);
  if (!words.empty()) WEIR_RETURN_IF_ERROR(session.Append(words, here));
  n_done = std::ssize(words);
  here.columns = part->columns;
  here.video = place;
  WEIR_RETURN_IF_ERROR(session.AppendEmbeddings(rows, Modality::kVideo, here));
  n_done += part->n_rows;
  if (config_.pairing.one_video) {
    state_.n_seen = session.n_seen();
    return Status();
  }
  here.columns = 1;
  here.video = VideoPlace();
  return session.Append(config_.words.tokens[static_cast<size_t>(config_.words.close)], here);
}

int64_t FramePairs::state_bytes() const { return static_cast<int64_t>(sizeof(State)) + 4 * n_floats(state_); }

Status FramePairs::Save(ByteSink& sink) const {
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span(&state_, 1))));
  return sink.Write(BytesOf(std::span<const float>(frame_, static_cast<size_t>(n_floats(state_)))));
}

bool FramePairs::IsPossible(const State& state) const {
  for (const int64_t t_ms : {state.begin_ms, state.waits_ms, state.first_ms}) {
    if (t_ms < -kMostFrameMs || t_ms > kMostFrameMs) return false;
  }
  for (const int64_t n : {state.moment, state.time, state.extent, state.n_seen}) {
    if (n < 0 || n > kMostFrameMs) return false;
  }
  if (state.time > kMostPlaces || state.extent > kMostPlaces) return false;
  for (const int32_t yes : {state.waits, state.open, state.pinned}) {
    if (yes < 0 || yes > 1) return false;
  }
  if (state.n_rows < 0 || state.n_rows > kMaxColumns || state.columns < 0 || state.columns > kMaxColumns) return false;
  if (state.waits == 0) return state.width == 0 && state.height == 0;
  const int32_t factor = config_.transform.factor;
  if (state.width < factor || state.height < factor || state.width % factor != 0 || state.height % factor != 0) {
    return false;
  }
  return int64_t{state.width / factor} * (state.height / factor) <= config_.n_rows;
}

Status FramePairs::Check(ByteSource& source) const {
  State state;
  WEIR_RETURN_IF_ERROR(source.Read(BytesOf(std::span(&state, 1))));
  if (!IsPossible(state)) return NotSavedFrames();
  std::array<float, 512> some;
  for (int64_t left = n_floats(state); left > 0;) {
    const std::span<float> part = std::span<float>(some).first(static_cast<size_t>(std::min<int64_t>(left, 512)));
    WEIR_RETURN_IF_ERROR(source.Read(BytesOf(part)));
    if (!AllFinite(part)) return NotSavedFrames();
    left -= std::ssize(part);
  }
  return Status();
}

Status FramePairs::Restore(ByteSource& source) {
  state_ = {};
  State state;
  WEIR_RETURN_IF_ERROR(source.Read(BytesOf(std::span(&state, 1))));
  if (!IsPossible(state)) return NotSavedFrames();
  const std::span<float> frame(frame_, static_cast<size_t>(n_floats(state)));
  WEIR_RETURN_IF_ERROR(source.Read(BytesOf(frame)));
  if (!AllFinite(frame)) return NotSavedFrames();
  SetInputSize({state.width, state.height}, config_.transform, frame_);
  state_ = state;
  return Status();
}

void FramePairs::CopyFrom(const FramePairs& other) {
  if (this == &other) return;
  state_ = other.state_;
  std::copy_n(other.frame_, n_floats(state_), frame_);
  SetInputSize({state_.width, state_.height}, config_.transform, frame_);
}

}  // namespace weir
