// SPDX-License-Identifier: Apache-2.0
// The files of models and encoders among the goldens with bytes of their heads changed: refused, or running within a
// bound of memory. tests/conformance/flipped_bits_test.cc does the same with bits turned by chance.
//
// Input: one byte choosing the file, then changes (three bytes of place, one of value, each).
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/session.h"
#include "io/gguf.h"
#include "support/build_paths.h"
#include "text/tokenizer.h"
#include "vision/encoder.h"

namespace {

constexpr int64_t kBudget = int64_t{64} << 20;

struct Good {
  std::vector<uint8_t> bytes;
  size_t head_bytes = 0;  // everything before the first tensor
};

std::vector<Good> GoodFiles() {
  std::vector<std::string> paths;
  for (const std::string& folder :
       {weir::SourceDir() + "/tests/golden/models", weir::SourceDir() + "/tests/golden/vision"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".gguf") paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Good> out;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    Good good;
    good.bytes.assign(std::istreambuf_iterator<char>(file), {});
    good.head_bytes = good.bytes.size();
    const auto parsed = weir::GgufFile::Parse(good.bytes, path);
    if (!parsed.ok()) std::abort();
    for (const weir::GgufTensor& tensor : (*parsed)->tensors()) {
      good.head_bytes = std::min(good.head_bytes, static_cast<size_t>(tensor.file_offset));
    }
    out.push_back(std::move(good));
  }
  if (out.empty()) std::abort();
  return out;
}

weir::Status RunEncoder(const weir::GgufFile& file, weir::Backend& backend, weir::Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(const auto encoder, weir::LoadEncoder(file, backend, ledger));
  WEIR_ASSIGN_OR_RETURN(const auto images, weir::ImageEncoder::Make(*encoder, ledger));
  const std::vector<uint8_t> pixels(61 * 23 * 3, 100);
  WEIR_ASSIGN_OR_RETURN(const std::span<float> rows, images->Encode({pixels.data(), 61, 23}));
  int64_t n_rows = 0;
  for (const weir::PicturePart& part : images->parts()) n_rows += part.n_rows;
  if (std::ssize(rows) != n_rows * images->config().n_embd) std::abort();
  return weir::Status();
}

weir::Status RunModel(const weir::GgufFile& file, weir::Backend& backend, weir::Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(const auto tokenizer, weir::Tokenizer::Load(file));
  std::vector<int32_t> ids = tokenizer->Encode("A line, <|im_start|>and\n\xF0\x9F\x98\x80  another.", {});
  tokenizer->Decode(ids, true);
  WEIR_ASSIGN_OR_RETURN(const auto model, weir::LoadModel(file, backend, ledger));
  weir::SessionOptions options;
  WEIR_ASSIGN_OR_RETURN(options.policy, weir::ParsePolicySpec("streaming_llm"));
  options.pot_slots = 16;
  options.chunk_rows = 4;
  WEIR_ASSIGN_OR_RETURN(const weir::SessionPlan plan, weir::PlanSession(*model, backend, options));
  if (plan.total_bytes > kBudget) return weir::OverBudget("more than a session of this model needs");
  WEIR_ASSIGN_OR_RETURN(const auto session, weir::Session::Make(*model, backend, options));
  ids.resize(12, 1);
  WEIR_RETURN_IF_ERROR(session->Append(ids));
  return session->Logits().status();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<Good> good_files = GoodFiles();
  static const std::unique_ptr<weir::Backend> backend = weir::MakeCpuBackend(1);
  if (size < 1) return 0;
  const Good& good = good_files[data[0] % good_files.size()];
  std::vector<uint8_t> bytes = good.bytes;
  for (size_t at = 1; at + 4 <= size; at += 4) {
    const uint32_t place = data[at] | data[at + 1] << 8 | data[at + 2] << 16;
    bytes[place % good.head_bytes] = data[at + 3];
  }
  const auto file = weir::GgufFile::Parse(bytes, "fuzz");
  if (!file.ok()) return 0;
  weir::Ledger ledger(kBudget);
  const weir::Status status =
      weir::IsEncoder(**file) ? RunEncoder(**file, *backend, ledger) : RunModel(**file, *backend, ledger);
  if (!status.ok() && status.message().find('\n') != std::string::npos) std::abort();
  return 0;
}
