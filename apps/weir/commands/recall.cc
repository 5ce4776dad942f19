// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir recall: the selectors of --recall with their options; or a search by hand, of an archive or of a text file.
//
// A search reads what lies on disk, needs no model, and changes nothing: the session that fills the archive may be
// running.
#include <sys/stat.h>

#include <fmt/core.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/catalogue.h"
#include "commands/command.h"
#include "common.h"
#include "io/json.h"
#include "print.h"
#include "recall/archive.h"
#include "recall/file_blocks.h"
#include "recall/passage_text.h"
#include "recall/restorers/restorer.h"
#include "recall/spec.h"

namespace weir::app {
namespace {

struct RecallSearchFlags {
  std::string place, words, spec = "words", output = "text";
  int n_passages = 5;
};

Status ListSelectors() {
  for (const SelectorInfo* info : AllSelectorInfos()) {
    PrintCatalogueHead(info->name, info->summary, info->source);
    PrintCatalogueOptions({"recall", info->name, info->options});
  }
  PrintCatalogueHead("SELECTOR:KEY=VALUE", "options of every selector", "");
  PrintCatalogueOptions({"recall", "SELECTOR", CommonRecallOptions()});
  for (const RestorerInfo* info : AllRestorerInfos()) {
    PrintCatalogueHead(("restore=" + std::string(info->name)).c_str(), info->summary, info->source);
  }
  return Status();
}

// What is searched: an archive, or a file whose bytes take the place of tokens.
struct Searched {
  Ledger ledger;
  std::unique_ptr<Archive> archive;
  std::unique_ptr<FileBlocks> file;
  int64_t n_blocks = 0, n_all = 0, t_newest_ms = 0;
  BlockSource& blocks() const { return archive != nullptr ? static_cast<BlockSource&>(*archive) : *file; }
  const char* unit() const { return archive != nullptr ? "token" : "byte"; }
};

Result<std::unique_ptr<Searched>> OpenSearched(const std::string& place) {
  struct stat info {};
  if (stat(place.c_str(), &info) != 0) return IoError("cannot read {}: {}", place, std::strerror(errno));
  auto out = std::make_unique<Searched>();
  if (S_ISDIR(info.st_mode)) {
    ArchiveOptions options;
    options.dir = place;
    WEIR_ASSIGN_OR_RETURN(out->archive, Archive::OpenReadOnly(options, out->ledger));
    WEIR_RETURN_IF_ERROR(out->archive->ScanText(out->archive->begin(), [&](BlockPlace, const Block& block) {
      ++out->n_blocks;
      out->t_newest_ms = block.t_ms;
      return true;
    }));
    out->n_all = out->archive->seq_end();
    return out;
  }
  if (!S_ISREG(info.st_mode)) return InvalidArgument("{} is neither an archive's folder nor a text file", place);
  WEIR_ASSIGN_OR_RETURN(out->file, FileBlocks::Open(place));
  out->n_all = info.st_size;
  out->file->ReadTo(0, 0);
  out->file->ReadTo(out->n_all, out->n_all);
  return out;
}

std::string MomentText(int64_t t_ms) {
  return fmt::format("{}:{:02}:{:02}", t_ms / 3600000, t_ms / 60000 % 60, t_ms / 1000 % 60);
}

// Of an archive, in words or as JSON.
void DescribeArchive(const Searched& in, nlohmann::ordered_json* json) {
  const Archive& archive = *in.archive;
  const std::string notes = archive.notes().Text();
  if (json != nullptr) {
    (*json)["archive"] = {
        {"begin", archive.seq_begin()},     {"end", archive.seq_end()},           {"blocks", in.n_blocks},
        {"segments", archive.n_segments()}, {"disk_bytes", archive.disk_bytes()}, {"t_ms", in.t_newest_ms}};
    if (!notes.empty()) (*json)["archive"]["notes"] = notes;
    return;
  }
  Print(stderr, "archive  tokens {} to {} in {} blocks, {} segment{}, {}\n", CountText(archive.seq_begin()),
        CountText(archive.seq_end()), CountText(in.n_blocks), CountText(archive.n_segments()),
        archive.n_segments() == 1 ? "" : "s", BytesText(archive.disk_bytes()));
  if (!notes.empty()) Print(stderr, "         {}\n", Printable(notes));
}

Status SearchByHand(const RecallSearchFlags& flags) {
  WEIR_ASSIGN_OR_RETURN(const RecallSpec spec, ParseRecallSpec(flags.spec));
  if (spec.info == nullptr) return InvalidArgument("--recall off searches nothing; `weir recall` lists what does");
  if (spec.info->needs_keys) {
    return InvalidArgument("{} asks a model, which a search by hand has not; use --recall words", spec.info->name);
  }
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Searched> in, OpenSearched(flags.place));
  const bool json = flags.output == "json";
  nlohmann::ordered_json out;
  if (flags.words.empty()) {
    if (in->archive == nullptr) {
      return InvalidArgument("say what to look for in {}: weir recall {} \"words\"", flags.place, flags.place);
    }
    DescribeArchive(*in, json ? &out : nullptr);
    if (json) Print(stdout, "{}\n", JsonText(out));
    return Status();
  }
  RecallQuery query;
  query.text = flags.words;
  query.held_from = INT64_MAX;  // no pot holds anything
  query.n_seen = in->n_all;
  query.t_now_ms = in->t_newest_ms;
  query.answers = spec.answers();
  query.most = flags.n_passages;
  WEIR_ASSIGN_OR_RETURN(const std::vector<Passage> found, spec.info->make(spec.options)->Select(query, in->blocks()));
  out["passages"] = nlohmann::ordered_json::array();
  for (const Passage& passage : found) {
    WEIR_ASSIGN_OR_RETURN(const std::string text, PassageText(passage, in->blocks()));
    if (text.empty()) continue;  // deleted since
    if (json) {
      out["passages"].push_back({{in->archive != nullptr ? "seq" : "byte", passage.seq},
                                 {"end", passage.seq_end},
                                 {"t_ms", passage.t_ms},
                                 {"score", passage.score},
                                 {"text", text}});
      continue;
    }
    Print(stdout, "{} {} of {}{}, match {:.2f}\n{}\n\n", in->unit(), CountText(passage.seq), CountText(in->n_all),
          passage.t_ms > 0 ? ", " + MomentText(passage.t_ms) : "", passage.score, Printable(text, /*lines=*/true));
  }
  if (json) {
    if (in->archive != nullptr) DescribeArchive(*in, &out);
    Print(stdout, "{}\n", JsonText(out));
    return Status();
  }
  if (found.empty()) Print(stderr, "nothing there matches\n");
  if (in->archive != nullptr) DescribeArchive(*in, nullptr);
  return FlushOutput();
}

Action AddRecallCommand(CLI::App& sub) {
  auto flags = std::make_shared<RecallSearchFlags>();
  CLI::Option* const place =
      sub.add_option("place", flags->place,
                     "the folder of --recall-dir, or a text file; without it, the selectors are listed")
          ->check(NotEmpty())
          ->type_name("FOLDER|FILE");
  sub.add_option("words", flags->words, "what to look for; without it, what the archive holds is said")
      ->type_name("WORDS");
  sub.add_option("-n,--passages", flags->n_passages, "passages at most, the best first")
      ->check(Between(1, 256))
      ->capture_default_str()
      ->type_name("N");
  sub.add_option("--recall", flags->spec, "selector, and options as key=value")
      ->capture_default_str()
      ->type_name("SELECTOR");
  sub.add_option("-o,--output", flags->output, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  return [=] { return place->count() == 0 ? ListSelectors() : SearchByHand(*flags); };
}

}  // namespace

extern const CommandInfo kRecall;
const CommandInfo kRecall = {.name = "recall",
                             .summary = "list what finds earlier passages, or search an archive or a text by hand",
                             .group = CommandGroup::kInspect,
                             .add = AddRecallCommand};

}  // namespace weir::app
