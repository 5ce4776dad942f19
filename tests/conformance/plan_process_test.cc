// SPDX-License-Identifier: Apache-2.0
// The plan against the process itself: resident memory, as the kernel's page tables hold it, grows by what was planned.
//
// Every case runs in a child process of its own, so that neither freed pages nor other tests blur the figure.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/rng.h"
#include "engine/loaded_model.h"
#include "engine/picture_reader.h"
#include "engine/session.h"
#include "io/gguf_writer.h"
#include "io/snapshot.h"
#include "support/sanitizers.h"

namespace weir {
namespace {

struct Shape {
  const char* name;
  const char* architecture;
  int32_t n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff, n_vocab;
};

constexpr Shape kShapes[] = {
    {"wide_heads", "llama", 8, 512, 8, 8, 128, 1024, 8000},     // many bytes per slot, as Llama-2
    {"grouped", "llama", 30, 576, 9, 3, 64, 512, 4000},         // SmolLM2's attention
    {"few_kv_heads", "qwen2", 24, 448, 14, 2, 64, 640, 12000},  // Qwen2-0.5B's attention
};

// Random Q8_0 matrices, and F32 tensors of one value.
struct Weights {
  GgufWriter w;
  Rng rng{3};
  void Matrix(const std::string& name, int64_t rows, int64_t cols) {
    std::vector<uint8_t> data(static_cast<size_t>(rows * RowBytes(DType::kQ8_0, cols)));
    for (size_t block = 0; block < data.size(); block += 34) {
      data[block] = 0x00;  // scale 2^-9 as F16
      data[block + 1] = 0x18;
      for (size_t i = 2; i < 34; ++i) data[block + i] = static_cast<uint8_t>(rng.Next());
    }
    w.AddTensor(name, DType::kQ8_0, {rows, cols}, std::move(data));
  }
  void Constant(const std::string& name, const std::vector<int64_t>& shape, float value) {
    int64_t n = 1;
    for (const int64_t side : shape) n *= side;
    std::vector<float> v(static_cast<size_t>(n), value);
    std::vector<uint8_t> data(v.size() * 4);
    std::memcpy(data.data(), v.data(), data.size());
    w.AddTensor(name, DType::kF32, shape, std::move(data));
  }
};

// A language model in the given shape.
Status WriteModel(const Shape& s, const std::string& path) {
  Weights weights;
  GgufWriter& w = weights.w;
  const std::string a = s.architecture;
  w.SetString("general.architecture", a);
  w.Set<uint32_t>(a + ".block_count", s.n_layers);
  w.Set<uint32_t>(a + ".context_length", 8192);
  w.Set<uint32_t>(a + ".embedding_length", s.n_embd);
  w.Set<uint32_t>(a + ".feed_forward_length", s.n_ff);
  w.Set<uint32_t>(a + ".attention.head_count", s.n_heads);
  w.Set<uint32_t>(a + ".attention.head_count_kv", s.n_kv_heads);
  w.Set<uint32_t>(a + ".attention.key_length", s.head_dim);
  w.Set<uint32_t>(a + ".attention.value_length", s.head_dim);
  w.Set<uint32_t>(a + ".rope.dimension_count", s.head_dim);
  w.Set<float>(a + ".attention.layer_norm_rms_epsilon", 1e-5f);
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t cols) { weights.Matrix(name, rows, cols); };
  const auto ones = [&](const std::string& name, int64_t n, float value) { weights.Constant(name, {n}, value); };
  matrix("token_embd.weight", s.n_vocab, s.n_embd);
  ones("output_norm.weight", s.n_embd, 1);
  for (int32_t l = 0; l < s.n_layers; ++l) {
    const std::string blk = "blk." + std::to_string(l) + ".";
    const int64_t q = static_cast<int64_t>(s.n_heads) * s.head_dim,
                  kv = static_cast<int64_t>(s.n_kv_heads) * s.head_dim;
    ones(blk + "attn_norm.weight", s.n_embd, 1);
    matrix(blk + "attn_q.weight", q, s.n_embd);
    matrix(blk + "attn_k.weight", kv, s.n_embd);
    matrix(blk + "attn_v.weight", kv, s.n_embd);
    if (a == "qwen2") {
      ones(blk + "attn_q.bias", q, 0.1f);
      ones(blk + "attn_k.bias", kv, 0.1f);
      ones(blk + "attn_v.bias", kv, 0.1f);
    }
    matrix(blk + "attn_output.weight", s.n_embd, q);
    ones(blk + "ffn_norm.weight", s.n_embd, 1);
    matrix(blk + "ffn_gate.weight", s.n_ff, s.n_embd);
    matrix(blk + "ffn_up.weight", s.n_ff, s.n_embd);
    matrix(blk + "ffn_down.weight", s.n_embd, s.n_ff);
  }
  return w.WriteFile(path);
}

// A CLIP encoder of 257 rows, for models with embeddings of n_out.
constexpr int32_t kPictureSide = 224;
Status WriteEncoder(int32_t n_out, const std::string& path) {
  constexpr int64_t kEmbd = 256, kFf = 1024, kPatch = 14, kBlocks = 3;
  constexpr int64_t kRows = (kPictureSide / kPatch) * (kPictureSide / kPatch) + 1;
  Weights weights;
  GgufWriter& w = weights.w;
  const std::string v = "clip.vision.";
  w.SetString("general.architecture", "clip");
  w.SetString("clip.projector_type", "mlp");
  w.Set<bool>("clip.has_vision_encoder", true);
  w.Set<uint32_t>(v + "image_size", kPictureSide);
  w.Set<uint32_t>(v + "patch_size", kPatch);
  w.Set<uint32_t>(v + "embedding_length", kEmbd);
  w.Set<uint32_t>(v + "feed_forward_length", kFf);
  w.Set<uint32_t>(v + "block_count", kBlocks);
  w.Set<uint32_t>(v + "attention.head_count", 4);
  w.Set<float>(v + "attention.layer_norm_epsilon", 1e-5f);
  w.SetArray<double>(v + "image_mean", {0.5, 0.5, 0.5});
  w.SetArray<double>(v + "image_std", {0.5, 0.5, 0.5});
  const auto norm = [&](const std::string& name) {
    weights.Constant(name + ".weight", {kEmbd}, 1);
    weights.Constant(name + ".bias", {kEmbd}, 0);
  };
  weights.Constant("v.class_embd", {kEmbd}, 0.1f);
  weights.Constant("v.patch_embd.weight", {kEmbd, 3, kPatch, kPatch}, 0.01f);
  weights.Matrix("v.position_embd.weight", kRows, kEmbd);
  norm("v.pre_ln");
  for (int64_t l = 0; l < kBlocks; ++l) {
    const std::string blk = "v.blk." + std::to_string(l) + ".";
    norm(blk + "ln1");
    norm(blk + "ln2");
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_out"}) {
      weights.Matrix(blk + name + ".weight", kEmbd, kEmbd);
    }
    weights.Matrix(blk + "ffn_up.weight", kFf, kEmbd);
    weights.Matrix(blk + "ffn_down.weight", kEmbd, kFf);
  }
  weights.Matrix("mm.0.weight", n_out, kEmbd);
  weights.Matrix("mm.2.weight", n_out, n_out);
  return w.WriteFile(path);
}

// A field of a file of /proc that says "Name:  123 kB", in bytes.
int64_t ProcBytes(const char* path, const char* field) {
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return -1;
  char line[256];
  long long kib = -1;
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strncmp(line, field, std::strlen(field)) == 0) kib = std::strtoll(line + std::strlen(field), nullptr, 10);
  }
  std::fclose(file);
  return kib * 1024;
}

// Resident bytes, counted page by page. VmRSS and VmHWM are sums of counters that every thread or processor keeps back
// some hundreds of KiB of, which for a small pot is more than the bound of the test.
int64_t ResidentBytes() { return ProcBytes("/proc/self/smaps_rollup", "Rss:"); }
// Those that are no file's. How much of the program's code comes with a page that is used depends on where it was
// loaded, and differs by 256 KiB from one run to the next.
int64_t AnonymousBytes() { return ProcBytes("/proc/self/smaps_rollup", "Anonymous:"); }

// What a child reports: planned bytes, and the growth while the session lived of its resident memory and of their peak.
struct Measured {
  int64_t planned = 0, grown = 0, peak_grown = 0;
};
constexpr int64_t kCounterSlack = 1 << 20;  // how far VmHWM may stand from the truth

// What is measured. Without an encoder (empty): words alone.
struct Files {
  std::string model, encoder;
};

// A session that is saved and read again is as large as before, and was never larger.
bool ThroughAFile(Session& session) {
  const std::string path = ::testing::TempDir() + "weir_plan_" + std::to_string(getpid()) + ".weir";
  bool ok = false;
  if (const auto file = SnapshotWriter::Begin(path, "", session.state_bytes()); file.ok()) {
    ok = session.Save(**file).ok() && (*file)->Finish().ok();
  }
  if (const auto file = SnapshotReader::Open(path, INT64_MAX); ok) ok = file.ok() && session.Restore(**file).ok();
  std::remove(path.c_str());
  return ok;
}

// A session, with a picture reader where there is an encoder, reads a picture of the given size and then the tokens.
bool Live(Model& model, Backend& backend, Encoder* encoder, SessionOptions options, int32_t width, int32_t height,
          std::span<const int32_t> tokens, Measured* out) {
  PictureRoom room;
  room.Include(width, height);
  if (encoder != nullptr) options.beside = std::move(PictureReader::Plan(*encoder, room)).value();
  auto session = Session::Make(model, backend, options);
  if (!session.ok()) return false;
  out->planned = (*session)->plan().total_bytes;
  std::unique_ptr<PictureReader> reader;
  HostBuffer pixels;
  if (encoder != nullptr) {
    auto made = PictureReader::Make(*encoder, **session, room);
    auto memory = HostBuffer::Allocate((*session)->ledger(), MemTag::kVision, int64_t{3} * width * height);
    if (!made.ok() || !memory.ok()) return false;
    reader = std::move(made).value();
    pixels = std::move(memory).value();
    if (!reader->ReadPixels({pixels.data(), width, height}, Modality::kImage, {}).ok()) return false;
  }
  if (!(*session)->Append(tokens).ok() || !(*session)->Logits().ok()) return false;
  if (!ThroughAFile(**session)) return false;
  out->grown = AnonymousBytes();
  out->peak_grown = ProcBytes("/proc/self/status", "VmHWM:");
  return true;
}

bool MeasureHere(const Files& files, const char* policy, int32_t pot, Measured* out) {
  Ledger ledger;
  auto backend = MakeCpuBackend(2);
  auto file = GgufFile::Open(files.model);
  if (!file.ok()) return false;
  auto model = LoadModel(**file, *backend, ledger);
  if (!model.ok()) return false;
  (*file)->ReleasePages();
  std::unique_ptr<Encoder> encoder;
  if (!files.encoder.empty()) {
    auto encoder_file = GgufFile::Open(files.encoder);
    if (!encoder_file.ok()) return false;
    auto loaded = LoadEncoder(**encoder_file, *backend, ledger);
    if (!loaded.ok()) return false;
    encoder = std::move(loaded).value();
  }
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec(policy)).value();
  options.pot_slots = pot;
  std::vector<int32_t> tokens(static_cast<size_t>(pot) + pot / 2, 7);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 1000);
  // Worker stacks, the heap's first pages and lazily bound code belong to the program, not to the session.
  SessionOptions small = options;
  small.pot_slots = 16;
  if (!Live(**model, *backend, encoder.get(), small, 16, 16, {tokens.data(), 24}, out)) return false;
  std::FILE* clear = std::fopen("/proc/self/clear_refs", "w");
  if (clear == nullptr || std::fputs("5", clear) < 0) return false;  // resets the peak
  std::fclose(clear);
  const int64_t resident = ResidentBytes(), anonymous = AnonymousBytes();
  if (!Live(**model, *backend, encoder.get(), options, 640, 480, tokens, out)) return false;
  out->grown -= anonymous;
  out->peak_grown -= resident;
  return true;
}

bool Measure(const Files& files, const char* policy, int32_t pot, Measured* out) {
  int fds[2];
  if (pipe(fds) != 0) return false;
  const pid_t child = fork();
  if (child == 0) {
    Measured m;
    const bool ok = MeasureHere(files, policy, pot, &m);
    if (ok && write(fds[1], &m, sizeof(m)) != static_cast<ssize_t>(sizeof(m))) _exit(3);
    _exit(ok ? 0 : 2);
  }
  close(fds[1]);
  const bool got = read(fds[0], out, sizeof(*out)) == static_cast<ssize_t>(sizeof(*out));
  close(fds[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return got && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void Check(const std::string& name, const Files& files) {
  for (int32_t pot : {256, 512, 1024, 2048}) {
    Measured m;
    ASSERT_TRUE(Measure(files, "streaming_llm", pot, &m)) << name << " pot " << pot;
    const double ratio = static_cast<double>(m.grown) / static_cast<double>(m.planned);
    std::printf("%-14s pot %5d planned %10lld measured %10lld ratio %.4f\n", name.c_str(), pot,
                static_cast<long long>(m.planned), static_cast<long long>(m.grown), ratio);
    EXPECT_LT(ratio, 1.02) << name << " pot " << pot;
    if (files.encoder.empty()) {
      EXPECT_GT(ratio, 0.98) << name << " pot " << pot;
    }
    // The memory in which a picture is scaled is over once it has been read: only the peak knows of it.
    EXPECT_LT(m.peak_grown, m.planned * 1.02 + kCounterSlack) << name << " pot " << pot;
    EXPECT_GT(m.peak_grown, m.planned * 0.98 - kCounterSlack) << name << " pot " << pot;
  }
}

class PlanProcessTest : public ::testing::TestWithParam<Shape> {};

TEST_P(PlanProcessTest, PeakMemoryIsThePlan) {
  if (!testing::kOwnMemory) GTEST_SKIP() << "a sanitizer's own memory would be measured";
  const std::string path = ::testing::TempDir() + "weir_plan_" + GetParam().name + std::to_string(getpid()) + ".gguf";
  ASSERT_TRUE(WriteModel(GetParam(), path).ok());
  Check(GetParam().name, {path, ""});
  std::remove(path.c_str());
}

INSTANTIATE_TEST_SUITE_P(Shapes, PlanProcessTest, ::testing::ValuesIn(kShapes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PlanProcess, PicturesToo) {
  if (!testing::kOwnMemory) GTEST_SKIP() << "a sanitizer's own memory would be measured";
  const std::string path = ::testing::TempDir() + "weir_plan_pair_" + std::to_string(getpid());
  const Files files = {path + ".gguf", path + ".mmproj.gguf"};
  ASSERT_TRUE(WriteModel(kShapes[0], files.model).ok());
  ASSERT_TRUE(WriteEncoder(kShapes[0].n_embd, files.encoder).ok());
  Check("with an encoder", files);
  std::remove(files.model.c_str());
  std::remove(files.encoder.c_str());
}

TEST(PlanProcess, TheDefaultModelToo) {
  const char* path = std::getenv("WEIR_MODEL");
  if (path == nullptr) GTEST_SKIP() << "set WEIR_MODEL to a model file (scripts/fetch-model prints one)";
  Check("WEIR_MODEL", {path, ""});
}

}  // namespace
}  // namespace weir
