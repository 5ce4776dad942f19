// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir info: describes a model file or a vision encoder without loading its weights, and says whether the two fit
// together.
#include <fmt/core.h>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/command.h"
#include "common.h"
#include "engine/loaded_encoder.h"
#include "engine/picture_reader.h"
#include "engine/plan_backend.h"
#include "print.h"

namespace weir::app {
namespace {

std::string ValueText(const GgufValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value.v)) return std::to_string(*i);
  if (const auto* d = std::get_if<double>(&value.v)) return fmt::format("{:g}", *d);
  if (const auto* b = std::get_if<bool>(&value.v)) return *b ? "true" : "false";
  if (const auto* s = std::get_if<std::string>(&value.v)) {
    // Escaped a second time: JSON does not escape DEL, C1 controls and bidirectional marks.
    const std::string shown = nlohmann::json(*s).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (shown.size() <= 72) return Printable(shown);
    size_t end = 69;  // not inside a character
    while ((static_cast<unsigned char>(shown[end]) & 0xC0) == 0x80) --end;
    return Printable(shown.substr(0, end)) + "...";
  }
  const size_t n = std::visit(
      [](const auto& v) -> size_t {
        if constexpr (requires { v.size(); }) return v.size();
        return 0;
      },
      value.v);
  return fmt::format("[{} values]", n);
}

void PrintEncoder(const GgufFile& file) {
  PlanBackend backend(MakeCpuBackend(1));
  Ledger ledger;
  const auto loaded = LoadEncoder(file, backend, ledger);
  if (!loaded.ok()) {
    Print(stdout, "runs here: no: {}\n", Printable(loaded.status().message()));
    return;
  }
  const Encoder& encoder = **loaded;
  const EncoderConfig& config = encoder.config();
  Print(stdout, "runs here: yes, as vision encoder {}, for models with embedding size {}; weights in memory {}\n",
        Printable(config.projector), config.n_embd, BytesText(ledger.used_bytes()));
  if (AnySize(config.transform)) {
    Print(stdout, "pictures: of any size, up to {} tokens", config.n_rows);
  } else {
    Print(stdout, "pictures: {} x {} pixels become {} tokens", config.transform.size, config.transform.size,
          config.n_rows);
  }
  if (config.in_parts()) Print(stdout, ", with tiles up to {}", config.max_rows());
  if (config.n_recalled > 0) {
    Print(stdout, "; a video's frames are read together, as up to {} tokens, and kept in {}", config.n_recalled,
          BytesText(encoder.FrameMemoryBytes()));
  }
  Print(stdout, "; work for each session {}\n", BytesText(ImageEncoder::Bytes(encoder)));
  std::string pruners;
  for (const PrunerInfo* info : AllPrunerInfos()) {
    const Result<PrunerSpec> spec = ParsePrunerSpec(info->name);
    if (spec.ok() && PictureEncoder::PrunerBytes(*spec, encoder).ok()) {
      pruners += (pruners.empty() ? "" : ", ") + std::string(info->name);
    }
  }
  Print(stdout, "pruners: {}\n", pruners.empty() ? "none" : pruners);
}

// Says whether the model would run, by binding every tensor without its weights.
void PrintModel(const std::string& path, const std::string& mmproj) {
  ModelFlags flags;
  flags.path = path;
  const auto model = Load(flags, /*plan_only=*/true);
  if (!model.ok()) {
    Print(stdout, "runs here: no: {}\n", Printable(model.status().message()));
    return;
  }
  Print(stdout, "runs here: yes, as {}; weights in memory {}\n", Printable((*model)->model().config().architecture),
        BytesText((*model)->ledger().used_bytes()));
  if (mmproj.empty()) return;
  const auto encoder = LoadedEncoder::Load(mmproj, **model);
  if (encoder.ok()) {
    Print(stdout, "with {}: yes, {} tokens a picture\n", Printable(mmproj), (*encoder)->encoder().config().n_rows);
  } else {
    Print(stdout, "with {}: no: {}\n", Printable(mmproj), Printable(encoder.status().message()));
  }
}

Status Info(const std::string& path, const std::string& mmproj, bool tensors) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  if (IsEncoder(*file) && !mmproj.empty()) {
    return InvalidArgument("{} is itself a vision encoder; use --mmproj with its language model", path);
  }
  const std::string parts = file->n_parts() > 1 ? fmt::format("{} parts, ", file->n_parts()) : "";
  Print(stdout, "{}: GGUF version {}, {}{}, {} tensors\n", Printable(path), file->version(), parts,
        BytesText(file->file_bytes()), file->tensors().size());
  std::map<std::string, std::pair<int64_t, int64_t>> types;
  for (const GgufTensor& tensor : file->tensors()) {
    auto& [count, bytes] = types[InfoOf(tensor.type).name];
    ++count;
    bytes += tensor.bytes;
  }
  for (const auto& [name, entry] : types) {
    Print(stdout, "  {:<5} {:5} tensors {:>12}\n", name, entry.first, BytesText(entry.second));
  }
  for (const auto& [key, value] : file->metadata()) {
    Print(stdout, "  {} = {}\n", Printable(key), ValueText(value));
  }
  if (tensors) {
    for (const GgufTensor& tensor : file->tensors()) {
      std::string shape;
      for (int64_t n : tensor.shape) shape += (shape.empty() ? "" : " x ") + std::to_string(n);
      Print(stdout, "  {:<40} {:<5} {}\n", Printable(tensor.name), InfoOf(tensor.type).name, shape);
    }
  }
  if (IsEncoder(*file)) {
    PrintEncoder(*file);
  } else {
    PrintModel(path, mmproj);
  }
  return Status();
}

Action AddInfo(CLI::App& sub) {
  auto path = std::make_shared<std::string>(), mmproj = std::make_shared<std::string>();
  auto tensors = std::make_shared<bool>(false);
  sub.add_option("model,-m,--model", *path, "model file (GGUF) or vision encoder, with or without -m")
      ->required()
      ->type_name("FILE");
  sub.add_option("--mmproj", *mmproj, "check whether this vision encoder belongs to the model (-mm)")
      ->check(NotEmpty())
      ->type_name("FILE");
  sub.add_flag("--tensors", *tensors, "list every tensor");
  return [=] { return Info(*path, *mmproj, *tensors); };
}

}  // namespace

extern const CommandInfo kInfo;
const CommandInfo kInfo = {.name = "info",
                           .summary = "show a model file's metadata and tensors, and whether it runs here",
                           .group = CommandGroup::kInspect,
                           .add = AddInfo};

}  // namespace weir::app
