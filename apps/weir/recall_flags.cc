// SPDX-License-Identifier: Apache-2.0
#include "recall_flags.h"

#include <fmt/core.h>
#include <cstdlib>

#include "base/utf8.h"
#include "print.h"

namespace weir::app {
namespace {

// The beginning of a passage, on one line.
std::string Beginning(const std::string& text) {
  constexpr size_t kMost = 72;
  std::string line;
  for (size_t at = 0; at < text.size() && line.size() < kMost;) {
    const auto n = static_cast<size_t>(DecodeUtf8(text, at).bytes);
    line += text[at] == '\n' ? std::string(" ") : text.substr(at, n);
    at += n;
  }
  return Printable(line) + (line.size() < text.size() ? " ..." : "");
}

}  // namespace

void AddRecallFlags(CLI::App& app, RecallFlags* flags) {
  app.add_option(
         "--recall", flags->spec,
         "keep everything read on disk, and bring back what a question is about: off, words, words:passages=3 ... "
         "(weir recall lists them)")
      ->type_name("SELECTOR")
      ->capture_default_str();
  app.add_option("--recall-dir", flags->dir, "folder of the archive; without it, a file that ends with the program")
      ->type_name("FOLDER");
  app.add_option("--recall-disk", flags->disk, "largest size of the archive; beyond it, its oldest part is deleted")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--recall-tokens", flags->tokens,
                 "room beside the pot for what is brought back; without it, a quarter of the pot")
      ->type_name("N")
      ->check(Between(1, 1 << 20));
}

Result<RecallOptions> ToRecallOptions(const RecallFlags& flags, bool exam) {
  RecallOptions out;
  WEIR_ASSIGN_OR_RETURN(out.spec, ParseRecallSpec(flags.spec, exam));
  if (!out.on() && (!flags.dir.empty() || flags.tokens != -1)) {
    return InvalidArgument("--recall-dir and --recall-tokens need --recall, for example --recall words");
  }
  out.dir = flags.dir;
  WEIR_ASSIGN_OR_RETURN(out.disk_bytes, ParseBytes(flags.disk));
  out.tokens = flags.tokens;
  if (const char* folder = std::getenv("TMPDIR"); folder != nullptr && *folder != '\0') out.temp_dir = folder;
  return out;
}

Result<RecallOptions> ToNewRecallOptions(const RecallFlags& flags, bool exam) {
  WEIR_ASSIGN_OR_RETURN(RecallOptions out, ToRecallOptions(flags, exam));
  if (!out.dir.empty() && Archive::Exists(out.dir)) {
    return InvalidArgument("{} has an archive already: name a new folder, or none", out.dir);
  }
  return out;
}

void PrintRecalled(const Recalled& recalled, int64_t n_seen) {
  if (recalled.passages.empty()) {
    Print(stderr, "recall   nothing{}\n",
          !recalled.failed.ok() ? ": " + Printable(recalled.failed.message())
          : recalled.too_large  ? std::string(": what matches is longer than its room (--recall-tokens)")
          : recalled.held       ? std::string(": the pot holds the best match")
          : recalled.gated      ? fmt::format(": the best match, {:.2f}, is below the gate", recalled.best_score)
                                : std::string(" matches"));
    return;
  }
  for (const RecalledPassage& passage : recalled.passages) {
    Print(stderr, "recall   token {} of {} (match {:.2f}): {}\n", CountText(passage.seq), CountText(n_seen),
          passage.score, Beginning(passage.text));
  }
}

void AddRecalled(const Recalled& recalled, nlohmann::ordered_json* json) {
  auto list = nlohmann::ordered_json::array();
  for (const RecalledPassage& passage : recalled.passages) {
    list.push_back({{"seq", passage.seq},
                    {"end", passage.seq_end},
                    {"t_ms", passage.t_ms},
                    {"score", passage.score},
                    {"text", passage.text}});
  }
  (*json)["recalled"] = std::move(list);
  if (!recalled.failed.ok()) (*json)["recall_failed"] = recalled.failed.message();
  if (recalled.gated) (*json)["recall_gated"] = recalled.best_score;
  if (recalled.too_large) (*json)["recall_too_large"] = true;
}

void PrintIfOff(StreamRecall& recall, ToldOff* told) {
  const auto tell = [](const Status& state, bool* once) {
    if (!state.ok() && !*once) Print(stderr, "weir: warning: {}\n", Printable(state.message()));
    *once |= !state.ok();
  };
  tell(recall.archive().state(), &told->blocks);
  tell(recall.archive().stores_state(), &told->stores);
}

void EndRecall(StreamRecall& recall, ToldOff* told) {
  (void)recall.SavePoint();
  PrintIfOff(recall, told);
}

void PrintArchiveNotes(StreamRecall& recall) {
  ToldOff told;
  PrintIfOff(recall, &told);
  const std::string notes = recall.archive().notes().Text();
  if (!notes.empty()) Print(stderr, "recall   {}\n", notes);
}

}  // namespace weir::app
