// SPDX-License-Identifier: Apache-2.0
// Questions about pictures, from files: a folder with a JSON object a line and the pictures that the lines name.
//
//   image, images or frames   the pictures shown before the question, relative to the folder: a name or a list of
//                             names. None: nothing new is shown, the question is about what was shown before
//   question                  required
//   answer or answers         required: a text, or a list of texts any of which is right
//   lead                      words before the pictures
//   stream                    number of the stream the line belongs to; lines of one stream stand together. 0 if absent
//   clip                      number of what is shown, from 0 on; if absent, one more with every line that shows
//                             something
//   distance                  clips between the one that is asked about and the one shown last; 0 if absent
//   kind                      what accuracies are told apart by; if absent `present` where distance is 0, else `memory`
//   aside                     true: the question leaves no trace in the stream
//   metric                    how `weir eval videotasks` scores it (eval/text_tasks.h); if absent, the answer must be
//   one
//                             of the right ones
//   poll                      lines of a stream with one number ask again and again: only the first that is answered
//   with
//                             yes counts, and is right if its own answer is yes
//
// Other keys are ignored. tools/train/make_streams.py writes such folders, and easy-VQA's is one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weir {

struct PictureQuestion {
  int64_t stream = 0, clip = 0, distance = 0;
  std::vector<std::string> pictures;  // paths, the folder's included
  std::string lead, question, kind;
  std::vector<std::string> answers;  // at least one
  bool aside = false;
  std::string metric;  // of TextScore(), or empty
  int64_t poll = -1;   // -1: none
};

// Paths begin with `folder`. kCorrupt names the line that lacks something, whose values have the wrong type, whose
// pictures lie outside the folder (an absolute name, `..`, a network address), or that shows nothing where nothing was
// shown before.
Result<std::vector<PictureQuestion>> ParsePictureQuestions(std::string_view jsonl, const std::string& folder);

// The streams in order: consecutive lines with the same number.
std::vector<std::span<const PictureQuestion>> SplitStreams(std::span<const PictureQuestion> questions);

}  // namespace weir
