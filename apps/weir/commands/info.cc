// weir-plugin: command
// weir info: what a model file or a vision encoder is, without loading its weights, and whether the two belong
// together.
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/command.h"
#include "common.h"
#include "engine/loaded_encoder.h"
#include "engine/picture_reader.h"
#include "engine/plan_backend.h"

namespace weir::app {
namespace {

std::string ValueText(const GgufValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value.v)) return std::to_string(*i);
  if (const auto* d = std::get_if<double>(&value.v)) return StrFormat("%g", *d);
  if (const auto* b = std::get_if<bool>(&value.v)) return *b ? "true" : "false";
  if (const auto* s = std::get_if<std::string>(&value.v)) {
    // Escaped a second time: JSON leaves DEL, C1 controls and marks of direction as they are.
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
  return StrFormat("[%zu values]", n);
}

void PrintEncoder(const GgufFile& file) {
  PlanBackend backend(MakeCpuBackend(1));
  Ledger ledger;
  const auto loaded = LoadEncoder(file, backend, ledger);
  if (!loaded.ok()) {
    std::printf("runs here: no: %s\n", Printable(loaded.status().message()).c_str());
    return;
  }
  const Encoder& encoder = **loaded;
  const EncoderConfig& config = encoder.config();
  std::printf("runs here: yes, as vision encoder %s, beside models with embeddings of %d; weights in memory %s\n",
              Printable(config.projector).c_str(), config.n_embd, BytesText(ledger.used_bytes()).c_str());
  std::printf("pictures: %d x %d pixels become %d tokens", config.transform.size, config.transform.size, config.n_rows);
  if (!config.grids.empty()) std::printf(", with tiles up to %d", config.max_rows());
  if (config.n_recalled > 0) {
    std::printf("; a video's frames are read together, as up to %d tokens, and kept in %s", config.n_recalled,
                BytesText(encoder.FrameMemoryBytes()).c_str());
  }
  std::printf("; work for each session %s\n", BytesText(ImageEncoder::Bytes(encoder)).c_str());
  std::string pruners;
  for (const PrunerInfo* info : AllPrunerInfos()) {
    const Result<PrunerSpec> spec = ParsePrunerSpec(info->name);
    if (spec.ok() && PictureEncoder::PrunerBytes(*spec, encoder).ok()) {
      pruners += (pruners.empty() ? "" : ", ") + std::string(info->name);
    }
  }
  std::printf("pruners: %s\n", pruners.empty() ? "none" : pruners.c_str());
}

// Whether it would run is the question people ask; answered by binding every tensor, without weights.
void PrintModel(const std::string& path, const std::string& mmproj) {
  ModelFlags flags;
  flags.path = path;
  const auto model = Load(flags, /*plan_only=*/true);
  if (!model.ok()) {
    std::printf("runs here: no: %s\n", Printable(model.status().message()).c_str());
    return;
  }
  std::printf("runs here: yes, as %s; weights in memory %s\n",
              Printable((*model)->model().config().architecture).c_str(),
              BytesText((*model)->ledger().used_bytes()).c_str());
  if (mmproj.empty()) return;
  const auto encoder = LoadedEncoder::Load(mmproj, **model);
  if (encoder.ok()) {
    std::printf("with %s: yes, %d tokens a picture\n", Printable(mmproj).c_str(),
                (*encoder)->encoder().config().n_rows);
  } else {
    std::printf("with %s: no: %s\n", Printable(mmproj).c_str(), Printable(encoder.status().message()).c_str());
  }
}

Status Info(const std::string& path, const std::string& mmproj, bool tensors) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  if (IsEncoder(*file) && !mmproj.empty()) {
    return InvalidArgument("%s is a vision encoder itself; --mmproj goes with its language model", path.c_str());
  }
  std::printf("%s: GGUF version %u, %s, %zu tensors\n", Printable(path).c_str(), file->version(),
              BytesText(file->file_bytes()).c_str(), file->tensors().size());
  std::map<std::string, std::pair<int64_t, int64_t>> types;
  for (const GgufTensor& tensor : file->tensors()) {
    auto& [count, bytes] = types[InfoOf(tensor.type).name];
    ++count;
    bytes += tensor.bytes;
  }
  for (const auto& [name, entry] : types) {
    std::printf("  %-5s %5lld tensors %12s\n", name.c_str(), static_cast<long long>(entry.first),
                BytesText(entry.second).c_str());
  }
  for (const auto& [key, value] : file->metadata()) {
    std::printf("  %s = %s\n", Printable(key).c_str(), ValueText(value).c_str());
  }
  if (tensors) {
    for (const GgufTensor& tensor : file->tensors()) {
      std::string shape;
      for (int64_t n : tensor.shape) shape += (shape.empty() ? "" : " x ") + std::to_string(n);
      std::printf("  %-40s %-5s %s\n", Printable(tensor.name).c_str(), InfoOf(tensor.type).name, shape.c_str());
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
  sub.add_option("model,-m,--model", *path, "model file (GGUF), or a vision encoder; as a word or as -m")
      ->required()
      ->type_name("FILE");
  sub.add_option("--mmproj", *mmproj, "whether this vision encoder belongs to the model (-mm)")
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
