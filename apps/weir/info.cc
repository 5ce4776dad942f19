// weir info: what a model file is, without loading its weights.
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "common.h"

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

Status Info(const std::string& path, bool tensors) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
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
  // Whether it would run is the question people ask; answered by binding every tensor, without weights.
  ModelFlags flags;
  flags.path = path;
  auto model = Load(flags, /*plan_only=*/true);
  if (model.ok()) {
    std::printf("runs here: yes, as %s; weights in memory %s\n",
                Printable((*model)->model().config().architecture).c_str(),
                BytesText((*model)->ledger().used_bytes()).c_str());
  } else {
    std::printf("runs here: no: %s\n", Printable(model.status().message()).c_str());
  }
  return Status();
}

}  // namespace

void AddInfo(CLI::App& app, int* code) {
  CLI::App* sub = app.add_subcommand("info", "show a model file's metadata and tensors, and whether it runs here");
  auto path = std::make_shared<std::string>();
  auto tensors = std::make_shared<bool>(false);
  sub->add_option("model,-m,--model", *path, "model file (GGUF)")->required()->type_name("FILE");
  sub->add_flag("--tensors", *tensors, "list every tensor");
  sub->callback([=] {
    const Status status = Info(*path, *tensors);
    *code = status.ok() ? 0 : Fail(status);
  });
}

}  // namespace weir::app
