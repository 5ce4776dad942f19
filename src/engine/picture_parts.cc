// SPDX-License-Identifier: Apache-2.0
#include "engine/picture_parts.h"

namespace weir {

Status AppendParts(const EncoderConfig& config, std::span<const PicturePart> parts, std::span<const float> rows,
                   Modality modality, Session& session, const Session::AppendOptions& append) {
  int64_t n_done = 0;
  size_t at = 0;
  Session::AppendOptions here = append;
  if (append.progress) here.progress = [&](int64_t n) { append.progress(n_done + n); };
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    if (parts[i].words >= 0) {
      const std::vector<int32_t>& words = config.words.tokens[static_cast<size_t>(parts[i].words)];
      here.of_picture = true;
      here.end_of_prompt = append.end_of_prompt && last && parts[i].n_rows == 0;
      WEIR_RETURN_IF_ERROR(session.Append(words, here));
      n_done += std::ssize(words);
    }
    if (parts[i].n_rows == 0) continue;
    const size_t n = static_cast<size_t>(parts[i].n_rows) * static_cast<size_t>(config.n_embd);
    here.end_of_prompt = append.end_of_prompt && last;
    here.columns = parts[i].columns;
    WEIR_RETURN_IF_ERROR(session.AppendEmbeddings(rows.subspan(at, n), modality, here));
    at += n;
    n_done += parts[i].n_rows;
  }
  return Status();
}

}  // namespace weir
