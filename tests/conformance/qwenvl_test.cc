// SPDX-License-Identifier: Apache-2.0
// Qwen-VL: encoder, transform and the pair, against the rules of its paper and code that made
// tests/golden/vision/qwenvl.golden (tools/golden/qwenvl.py).
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "engine/loaded_encoder.h"
#include "engine/picture_reader.h"
#include "support/encoder.h"
#include "support/picture.h"
#include "text/chat_template.h"

namespace weir {
namespace {

using testing::Golden;
using testing::RelativeError;
using testing::TinyEncoder;
using testing::VisionDir;

constexpr char kEncoder[] = "qwenvl_resampler.gguf";

class QwenVlTest : public ::testing::Test {
 protected:
  // Calls see(golden, size, picture) for each entry KIND.WxH; gives how many there were.
  template <typename See>
  int ForEach(const std::string& kind, const See& see) const {
    int n = 0;
    for (const auto& [name, want] : golden_) {
      int width = 0, height = 0;
      if (std::sscanf(name.c_str(), (kind + ".%dx%d").c_str(), &width, &height) != 2) continue;
      SCOPED_TRACE(name);
      ++n;
      const std::vector<uint8_t> rgb = testing::Picture(static_cast<uint32_t>(width), static_cast<uint32_t>(height));
      see(want, std::to_string(width) + "x" + std::to_string(height), RgbView{rgb.data(), width, height});
    }
    return n;
  }
  std::vector<float> Encode(Encoder& encoder, uint8_t* workspace, const VisionObserver* observer = nullptr,
                            SignalSink* signals = nullptr) const {
    std::vector<float> rows(16 * static_cast<size_t>(encoder.config().n_embd));
    encoder.Encode({golden_.at("pixels").data.data(), rows.data(), workspace, observer, signals});
    return rows;
  }

  const Golden golden_ = testing::ReadGolden(VisionDir() + "qwenvl.golden");
};

TEST_F(QwenVlTest, EveryIntermediateMatchesTheReference) {
  testing::ExpectIntermediates(kEncoder, golden_, "mm.proj", [&](TinyEncoder& tiny, const VisionObserver* observer) {
    EXPECT_EQ(tiny.encoder->config().n_rows, 16);
    auto workspace =
        std::move(HostBuffer::Allocate(tiny.ledger, MemTag::kVision, tiny.encoder->WorkspaceBytes())).value();
    return Encode(*tiny.encoder, workspace.data(), observer);
  });
}

// What a pruner may see: the queries' rows before the last matrix.
TEST_F(QwenVlTest, TellsItsRowsAndKeepsToItsWorkspace) {
  struct Rows : SignalSink {
    std::vector<float> values;
    bool Wants(SignalKind kind, int32_t) const override { return kind == SignalKind::kOutputs; }
    void Take(const Signal& s) override { values.assign(s.values, s.values + s.shape.n_rows * s.shape.n_cols); }
  };
  TinyEncoder tiny(kEncoder, MakeCpuBackend(2));
  ASSERT_NE(tiny.encoder, nullptr);
  const int64_t bytes = tiny.encoder->WorkspaceBytes();
  std::vector<uint8_t> memory(static_cast<size_t>(bytes) + 128, 0xa5);
  uint8_t* workspace = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  Rows told;
  const std::vector<float> rows = Encode(*tiny.encoder, workspace, nullptr, &told);
  for (const uint8_t* p = workspace + bytes; p < memory.data() + memory.size(); ++p) ASSERT_EQ(*p, 0xa5);
  const auto& want = golden_.at("mm.ln_post");
  ASSERT_EQ(told.values.size(), want.data.size());
  EXPECT_LT(RelativeError(told.values.data(), want.data.data(), want.data.size()), 1e-4);
  EXPECT_EQ(rows, Encode(*tiny.encoder, workspace)) << "looking changes nothing, nor does what was there before";
}

TEST_F(QwenVlTest, ThreadCountChangesNothing) {
  std::vector<float> first;
  for (const int threads : {1, 2, 3}) {
    TinyEncoder tiny(kEncoder, MakeCpuBackend(threads));
    ASSERT_NE(tiny.encoder, nullptr);
    auto workspace =
        std::move(HostBuffer::Allocate(tiny.ledger, MemTag::kVision, tiny.encoder->WorkspaceBytes())).value();
    const std::vector<float> rows = Encode(*tiny.encoder, workspace.data());
    if (first.empty()) first = rows;
    EXPECT_EQ(first, rows) << threads << " threads";
  }
}

TEST_F(QwenVlTest, PicturesAreStretchedAsItsTransformDoes) {
  TinyEncoder tiny(kEncoder, MakeRefBackend());
  ASSERT_NE(tiny.encoder, nullptr);
  const ImageTransform& transform = tiny.encoder->config().transform;
  EXPECT_EQ(ForEach("picture",
                    [&](const testing::GoldenEntry& want, const std::string&, const RgbView& image) {
                      std::vector<float> out(want.data.size());
                      Ledger ledger;
                      ASSERT_TRUE(Preprocess(image, transform, ledger, out.data()).ok());
                      testing::ExpectSamePixels(out.data(), want, transform, out.size() / 3);
                    }),
            4);
}

// A chat turn about a picture: the same tokens in the same order, then the same logits.
TEST_F(QwenVlTest, AConversationIsTheReferences) {
  LoadModelOptions load;
  load.path = VisionDir() + "qwenvl.gguf";
  load.n_threads = 2;
  auto model = std::move(LoadedModel::Load(load)).value();
  EXPECT_EQ(model->model().config().n_ctx_train, 256) << "beyond it the published code computes something else";
  auto loaded = LoadedEncoder::Load(VisionDir() + kEncoder, *model);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  Encoder& encoder = (*loaded)->encoder();
  PictureRoom room;
  room.Include(200, 200);
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec("full")).value();
  options.pot_slots = 256;
  options.k_type = options.v_type = DType::kF32;
  options.beside = std::move(PictureReader::Plan(encoder, room)).value();
  auto session = std::move(Session::Make(model->model(), model->backend(), options)).value();
  auto reader = std::move(PictureReader::Make(encoder, *session, room)).value();
  const Tokenizer& tokenizer = model->tokenizer();
  auto chat = ChatTemplate::ForFile(model->file(), tokenizer, "");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_EQ(chat->name(), "chatml");
  const std::string mark = kPictureMark;
  std::vector<TextPiece> before, after;
  const auto turn = std::move(chat->Render({{"user", mark + "the man and the"}}, true)).value();
  for (const TextPiece& piece : turn) {
    if (piece.text.starts_with(mark)) {
      after.push_back({piece.text.substr(mark.size()), false});
    } else {
      (after.empty() ? before : after).push_back(piece);
    }
  }
  ASSERT_FALSE(after.empty());
  EXPECT_EQ(ForEach("ids",
                    [&](const testing::GoldenEntry& want, const std::string& size, const RgbView& image) {
                      session->Reset();
                      ASSERT_TRUE(session->Append(tokenizer.EncodePieces(before, false)).ok());
                      const Status read = reader->ReadPixels(image, Modality::kImage, {});
                      ASSERT_TRUE(read.ok()) << read.message();
                      ASSERT_TRUE(session->Append(tokenizer.EncodePieces(after, false)).ok());
                      std::vector<float> ids;
                      for (const SlotMeta& slot : session->pot().meta(0)) {
                        ids.push_back(static_cast<float>(slot.token_id));
                      }
                      EXPECT_EQ(ids, want.data);
                      const auto logits = std::move(session->Logits()).value();
                      const testing::GoldenEntry& expected = golden_.at("logits." + size);
                      ASSERT_EQ(logits.size(), expected.data.size());
                      EXPECT_LT(RelativeError(logits.data(), expected.data.data(), logits.size()), 1e-3);
                      EXPECT_LE(session->ledger().peak_bytes(), session->plan().total_bytes);
                    }),
            4);
}

// A file whose queries, heads or tables contradict each other is refused before anything is sized by them.
TEST_F(QwenVlTest, ATensorOfTheWrongShapeIsNamed) {
  const std::string path = ::testing::TempDir() + "qwenvl_bad.gguf";
  for (const char* name : {"resampler.pos_embed_k", "resampler.query"}) {
    std::FILE* in = std::fopen((VisionDir() + kEncoder).c_str(), "rb");
    ASSERT_NE(in, nullptr);
    std::string bytes(1 << 20, '\0');
    bytes.resize(std::fread(bytes.data(), 1, bytes.size(), in));
    std::fclose(in);
    const size_t at = bytes.rfind(name);  // the key of the metadata comes first
    ASSERT_NE(at, std::string::npos);
    // Behind the name: the number of dimensions, then the dimensions, the number of rows last.
    bytes[at + std::string(name).size() + 4 + 8] -= 1;
    std::FILE* out = std::fopen(path.c_str(), "wb");
    ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), out), bytes.size());
    std::fclose(out);
    auto file = GgufFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    auto backend = MakeRefBackend();
    Ledger ledger;
    const Status status = LoadEncoder(**file, *backend, ledger).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
    EXPECT_EQ(ledger.used_bytes(), 0);
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace weir
