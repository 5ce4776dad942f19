// SPDX-License-Identifier: Apache-2.0
// Seconds that a vision encoder needs for a picture, with what prepares it left out.
//
//   encode_bench MMPROJ.gguf [-t THREADS] [-r REPETITIONS] [--side PIXELS]
//
// A row of JSON with the median; the first repetition warms up and is not counted. tools/shapes/eyes.py writes files of
// real shapes with random weights; bench/peer/eyes.py compares with llama.cpp.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "io/gguf.h"
#include "vision/encoder.h"
#include "vision/preprocess.h"

namespace weir {
namespace {

struct Flags {
  std::string file;
  int threads = 2, repetitions = 5, side = 0;
};

Status Run(const Flags& flags) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(flags.file));
  Ledger ledger;
  const std::unique_ptr<Backend> backend = MakeCpuBackend(flags.threads);
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Encoder> encoder, LoadEncoder(*file, *backend, ledger));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<ImageEncoder> images, ImageEncoder::Make(*encoder, ledger));
  const ImageTransform& transform = encoder->config().transform;
  const int side = flags.side > 0 ? flags.side : transform.size;
  if (side <= 0) return InvalidArgument("{} takes pictures of any size: --side says which", flags.file);
  std::vector<uint8_t> pixels(static_cast<size_t>(side) * side * 3);
  Rng rng(1);
  for (uint8_t& value : pixels) value = static_cast<uint8_t>(rng.Below(256));
  std::vector<float> input(static_cast<size_t>(InputFloats(transform)));
  WEIR_RETURN_IF_ERROR(Preprocess({pixels.data(), side, side}, transform, ledger, input.data()));
  std::vector<double> seconds;
  size_t n_rows = 0;
  for (int k = 0; k <= flags.repetitions; ++k) {
    const auto start = Clock::now();
    n_rows = images->EncodePixels(input.data()).size() / static_cast<size_t>(encoder->config().n_embd);
    if (k > 0) seconds.push_back(SecondsSince(start));
  }
  std::sort(seconds.begin(), seconds.end());
  fmt::print(
      "{{\"file\": \"{}\", \"side\": {}, \"rows\": {}, \"threads\": {}, \"seconds\": {:.5f}, \"least\": {:.5f}, "
      "\"largest\": {:.5f}}}\n",
      flags.file.substr(flags.file.find_last_of('/') + 1), side, n_rows, flags.threads, seconds[seconds.size() / 2],
      seconds.front(), seconds.back());
  return Status();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  CLI::App app("Seconds that a vision encoder needs for a picture.");
  weir::Flags flags;
  app.add_option("file", flags.file, "mmproj file")->required();
  app.add_option("-t,--threads", flags.threads)->check(CLI::Range(1, 1024));
  app.add_option("-r,--repetitions", flags.repetitions)->check(CLI::Range(1, 1000));
  app.add_option("--side", flags.side, "of the picture, in pixels")->check(CLI::Range(1, 4096));
  CLI11_PARSE(app, argc, argv);
  const weir::Status status = weir::Run(flags);
  if (!status.ok()) fmt::print(stderr, "encode_bench: {}\n", status.message());
  return status.ok() ? 0 : 1;
}
