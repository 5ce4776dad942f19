// SPDX-License-Identifier: Apache-2.0
// What the programs print for vision encoders: good ones, damaged ones, and ones that belong to another model.
#include <gtest/gtest.h>

#include <cmath>

#include "cli/refusal.h"

namespace weir::testing {
namespace {

class BadEncoderTest : public RefusalTest {
 protected:
  std::string InfoOf(const std::string& file, const Arguments& more = {}) {
    const RunResult run = Run(Join({"info", file}, more));
    EXPECT_EQ(run.code, 0) << run.err;
    return run.out;
  }
  void ExpectIn(const std::string& text, const Arguments& words) {
    for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
  }
  // Every command that takes an encoder refuses it in one line.
  void ExpectBad(const std::string& mmproj, const Arguments& words) {
    const std::string model = VisionPath("llava.gguf");
    ExpectError({"plan", "-m", model, "--mmproj", mmproj}, words);
    ExpectError({"run", "-m", model, "--mmproj", mmproj, "-p", "a"}, words);
    ExpectError({"chat", "-m", model, "--mmproj", mmproj}, words);
    ExpectError({"watch", "v.mp4", "-m", model, "--mmproj", mmproj}, words);
  }
};

TEST_F(BadEncoderTest, InfoTellsWhatAnEncoderIs) {
  ExpectIn(InfoOf(VisionPath("clip.gguf")), {"clip.vision.image_size = 37", "runs here: yes, as vision encoder mlp",
                                             "embedding size 48", "become 25 tokens", "pruners: l2\n"});
  ExpectIn(InfoOf(VisionPath("clip_next.gguf")), {"with tiles up to", "pruners: none"});
  ExpectIn(InfoOf(VisionPath("blip2.gguf")),
           {"encoder qformer", "embedding size 32", "become 12 tokens", "pruners: catp, l2, self_attention"});
  ExpectIn(InfoOf(VisionPath("flash_vstream.gguf")),
           {"become 16 tokens", "read together, as up to 80", "pruners: none"});
  const std::string llava = VisionPath("llava.gguf"), clip = VisionPath("clip.gguf");
  ExpectIn(InfoOf(llava, {"--mmproj", clip}), {"runs here: yes, as llama", "clip.gguf: yes, 25 tokens a picture"});
  ExpectIn(InfoOf(llava, {"--mmproj", VisionPath("blip2.gguf")}), {"blip2.gguf: no: ", "32", "48"});
  ExpectIn(InfoOf(llava, {"--mmproj", llava}), {"llava.gguf: no: ", "no vision encoder"});
  ExpectError({"info", clip, "--mmproj", clip}, {"itself a vision encoder"});
  ExpectError({"info", dir_.File("none.gguf")}, {"none.gguf"});
  EditedModel broken = EditedModel::FromFile(clip);
  broken.Remove("v.class_embd");
  ExpectIn(InfoOf(dir_.Write("bad.gguf", broken.Bytes())), {"runs here: no: ", "v.class_embd", "missing"});
}

TEST_F(BadEncoderTest, AnEncoderIsNoLanguageModel) {
  for (const Arguments& command : {Arguments{"plan"}, {"run", "-p", "a"}, {"chat"}}) {
    ExpectError(Join(command, {"-m", VisionPath("clip.gguf")}), {"clip.gguf", "--mmproj"});
  }
}

TEST_F(BadEncoderTest, DamagedFilesAreOneLine) {
  const std::string good = FileBytes(VisionPath("clip.gguf"));
  ExpectBad(dir_.File("none.gguf"), {"none.gguf"});
  ExpectBad(dir_.path(), {"directory"});
  for (const size_t n : {size_t{0}, size_t{20}, size_t{1000}, good.size() / 2, good.size() - 1}) {
    ExpectBad(dir_.Write("bad.gguf", good.substr(0, n)), {"bad.gguf"});
  }
  std::string strange = good;
  const std::string name = "mm.0.weight";
  const size_t type_at = strange.find(name) + name.size() + 4 + 2 * 8;
  ASSERT_EQ(strange[type_at], 0);  // F32
  strange[type_at] = 77;
  ExpectBad(dir_.Write("bad.gguf", strange), {name, "77"});
  EditedModel missing = EditedModel::FromFile(VisionPath("clip.gguf")), huge = missing, none = missing;
  missing.Remove("v.blk.1.attn_q.weight");
  ExpectBad(dir_.Write("bad.gguf", missing.Bytes()), {"v.blk.1.attn_q.weight", "missing"});
  huge.metadata["clip.vision.image_size"].v = int64_t{1} << 30;
  ExpectBad(dir_.Write("bad.gguf", huge.Bytes()), {"clip.vision.image_size"});
  none.Tensor("mm.2.weight").SetFloat(7, NAN);
  // A plan reads no weights.
  ExpectError({"run", "-m", VisionPath("llava.gguf"), "--mmproj", dir_.Write("bad.gguf", none.Bytes()), "-p", "a"},
              {"mm.2.weight"});
  ExpectBad(VisionPath("blip2.gguf"), {"do not belong together"});
}

// Every bit of the head counts: the program refuses or plans, it never crashes.
TEST_F(BadEncoderTest, FlippedBitsNeverCrash) {
  uint64_t state = 4711;
  int refused = 0;
  for (const char* name : {"blip2", "clip_next"}) {
    const std::string good = FileBytes(VisionPath(std::string(name) + ".gguf"));
    for (int round = 0; round < 25; ++round) {
      std::string bytes = good;
      for (int flips = 0; flips < 4; ++flips) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint64_t bit = (state >> 20) % (6000 * 8);
        bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
      }
      const RunResult run = Run({"info", dir_.Write("bad.gguf", bytes)});
      refused += run.code == 2 || run.out.find("runs here: no") != std::string::npos;
      EXPECT_TRUE(run.code == 0 || run.code == 2) << name << " round " << round << " signal " << run.signal << run.err;
    }
  }
  EXPECT_GT(refused, 25);
}

}  // namespace
}  // namespace weir::testing
