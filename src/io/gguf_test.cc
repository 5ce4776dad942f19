// SPDX-License-Identifier: Apache-2.0
#include "io/gguf.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "io/gguf_format.h"
#include "io/gguf_writer.h"

namespace weir {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes Ramp(size_t n, uint8_t first) {
  Bytes out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(first + i);
  return out;
}

// A file with every value type and several tensors, the last of which ends at the file's end without padding.
Bytes SmallFile() {
  GgufWriter writer;
  writer.SetString("general.architecture", "llama");
  writer.Set<uint8_t>("a.u8", 255);
  writer.Set<int8_t>("a.i8", -128);
  writer.Set<uint16_t>("a.u16", 65535);
  writer.Set<int16_t>("a.i16", -32768);
  writer.Set<uint32_t>("a.u32", 4294967295u);
  writer.Set<int32_t>("a.i32", -7);
  writer.Set<uint64_t>("a.u64", 9223372036854775807ull);
  writer.Set<int64_t>("a.i64", -9223372036854775807ll - 1);
  writer.Set<float>("a.f32", 1.5f);
  writer.Set<double>("a.f64", 1e300);
  writer.Set<bool>("a.bool", true);
  writer.Set<bool>("a.no", false);
  writer.SetArray<uint16_t>("b.ints", {1, 2, 65535});
  writer.SetArray<float>("b.floats", {0.25f, -4.0f});
  writer.SetArray<bool>("b.bools", {true, false, true});
  writer.SetStrings("b.strings", {"", "one", std::string("a\0b", 3)});
  writer.SetArray<int32_t>("b.empty", {});
  writer.AddTensor("matrix", DType::kF32, {3, 5}, Ramp(60, 0));
  writer.AddTensor("cube", DType::kF16, {2, 3, 4}, Ramp(48, 100));
  writer.AddTensor("blocks", DType::kQ8_0, {2, 64}, Ramp(136, 50));
  writer.AddTensor("tail", DType::kI32, {8}, Ramp(32, 200));
  Result<Bytes> bytes = writer.Bytes();
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  return *std::move(bytes);
}

Status StatusOf(const Bytes& bytes) { return GgufFile::Parse(bytes, "test.gguf").status(); }

// Reads everything a caller could read; under a sanitizer this proves that all accepted data exists.
uint64_t TouchAll(const GgufFile& file) {
  uint64_t sum = file.version();
  for (const auto& [key, value] : file.metadata()) {
    sum += key.size() + value.v.index() + file.IntOr(key, 0).ok() + file.FloatOr(key, 0).ok();
    if (const auto* strings = file.StringArray(key)) {
      for (const std::string& text : *strings) sum += text.size();
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    EXPECT_EQ(file.Tensor(tensor.name), &tensor);
    for (int64_t i = 0; i < tensor.bytes; ++i) sum += tensor.data[i];
  }
  return sum;
}

// The pieces of a hand-made file.
struct Raw {
  Bytes bytes;
  template <typename T>
  Raw& Put(T value) {
    const auto* first = reinterpret_cast<const uint8_t*>(&value);
    bytes.insert(bytes.end(), first, first + sizeof(T));
    return *this;
  }
  Raw& Text(const std::string& text) {
    Put<uint64_t>(text.size());
    bytes.insert(bytes.end(), text.begin(), text.end());
    return *this;
  }
  Raw& Head(uint64_t n_tensors, uint64_t n_keys, uint32_t version = 3) {
    return Put(kGgufMagic).Put(version).Put(n_tensors).Put(n_keys);
  }
  Raw& Tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    Text(name).Put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t size : dims) Put(size);
    return Put(type).Put(offset);
  }
  Raw& Pad(size_t data_bytes) {
    bytes.resize((bytes.size() + 31) / 32 * 32 + data_bytes);
    return *this;
  }
};

void ExpectError(const Raw& raw, StatusCode code, const std::string& needle) {
  const Status status = StatusOf(raw.bytes);
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(needle), std::string::npos) << status.message() << "\nlacks: " << needle;
  EXPECT_EQ(status.message().rfind("test.gguf: ", 0), 0u) << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
}

TEST(GgufTest, RoundTripKeepsValuesAndTensors) {
  const Bytes bytes = SmallFile();
  const auto file = GgufFile::Parse(bytes, "test.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const GgufFile& gguf = **file;
  EXPECT_EQ(gguf.version(), 3u);
  EXPECT_EQ(gguf.file_bytes(), static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(*gguf.String("general.architecture"), "llama");
  EXPECT_EQ(*gguf.Int("a.u8"), 255);
  EXPECT_EQ(*gguf.Int("a.i8"), -128);
  EXPECT_EQ(*gguf.Int("a.u16"), 65535);
  EXPECT_EQ(*gguf.Int("a.i16"), -32768);
  EXPECT_EQ(*gguf.Int("a.u32"), 4294967295);
  EXPECT_EQ(*gguf.Int("a.i32"), -7);
  EXPECT_EQ(*gguf.Int("a.u64"), INT64_MAX);
  EXPECT_EQ(*gguf.Int("a.i64"), INT64_MIN);
  EXPECT_EQ(*gguf.Float("a.f32"), 1.5);
  EXPECT_EQ(*gguf.Float("a.f64"), 1e300);
  EXPECT_EQ(*gguf.Float("a.i32"), -7.0);
  EXPECT_EQ(*gguf.Int("a.bool"), 1);
  EXPECT_EQ(*gguf.Int("a.no"), 0);
  EXPECT_TRUE(*gguf.Bool("a.bool"));
  EXPECT_EQ(*gguf.IntArray("b.ints"), (std::vector<int64_t>{1, 2, 65535}));
  EXPECT_EQ(*gguf.FloatArray("b.floats"), (std::vector<double>{0.25, -4.0}));
  EXPECT_EQ(std::get<std::vector<bool>>(gguf.metadata().at("b.bools").v), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(*gguf.StringArray("b.strings"), (std::vector<std::string>{"", "one", std::string("a\0b", 3)}));
  EXPECT_TRUE(gguf.IntArray("b.empty")->empty());

  ASSERT_EQ(gguf.tensors().size(), 4u);
  const GgufTensor* cube = gguf.Tensor("cube");
  ASSERT_NE(cube, nullptr);
  EXPECT_EQ(cube->type, DType::kF16);
  EXPECT_EQ(cube->shape, (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(Bytes(cube->data, cube->data + cube->bytes), Ramp(48, 100));
  const GgufTensor* blocks = gguf.Tensor("blocks");
  EXPECT_EQ(blocks->bytes, 136);
  EXPECT_EQ(blocks->file_offset % 32, 0u);
  EXPECT_EQ(Bytes(blocks->data, blocks->data + 136), Ramp(136, 50));
  EXPECT_EQ(gguf.Tensor("absent"), nullptr);
}

TEST(GgufTest, LookupsSayWhatIsWrong) {
  const Bytes bytes = SmallFile();
  const auto file = GgufFile::Parse(bytes, "test.gguf");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->Int("no.key").status().code(), StatusCode::kNotFound);
  EXPECT_EQ((*file)->Int("no.key").status().message(), "test.gguf: key 'no.key' is missing");
  EXPECT_EQ((*file)->Int("a.f32").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ((*file)->String("a.u8").status().message(), "test.gguf: key 'a.u8' is an integer, expected a string");
  EXPECT_EQ((*file)->Bool("b.bools").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(*(*file)->IntOr("no.key", 5), 5);
  EXPECT_EQ(*(*file)->FloatOr("no.key", 0.5), 0.5);
  EXPECT_FALSE(*(*file)->BoolOr("no.key", false));
  EXPECT_EQ(*(*file)->StringOr("no.key", "x"), "x");
  EXPECT_EQ((*file)->IntOr("general.architecture", 5).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ((*file)->BoolOr("general.architecture", true).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ((*file)->FloatOr("general.architecture", 1).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ((*file)->StringOr("a.u8", "x").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ((*file)->IntArray("b.floats"), nullptr);
  EXPECT_EQ((*file)->FloatArray("no.key"), nullptr);
}

TEST(GgufTest, EveryTruncationIsAnError) {
  const Bytes bytes = SmallFile();
  ASSERT_TRUE(StatusOf(bytes).ok());
  for (size_t n = 0; n < bytes.size(); ++n) {
    // A copy of exactly n bytes, so that a sanitizer detects any read past them.
    const Status status = StatusOf(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)));
    ASSERT_EQ(status.code(), StatusCode::kCorrupt) << n << " bytes: " << status.message();
  }
}

TEST(GgufTest, FlippedBitsNeverCrash) {
  const Bytes good = SmallFile();
  std::mt19937 rng(1234);
  int accepted = 0;
  int refused = 0;
  uint64_t sum = 0;
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes = good;
    const int flips = 1 + static_cast<int>(rng() % 4);
    for (int i = 0; i < flips; ++i) bytes[rng() % bytes.size()] ^= static_cast<uint8_t>(1u << rng() % 8);
    const auto file = GgufFile::Parse(bytes, "test.gguf");
    ++(file.ok() ? accepted : refused);
    if (file.ok()) sum += TouchAll(**file);
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
  EXPECT_GT(sum, 0u);
}

// All single-byte extremes: counts and lengths become huge, types unknown.
TEST(GgufTest, ExtremeBytesNeverCrash) {
  const Bytes good = SmallFile();
  for (size_t at = 0; at < good.size(); ++at) {
    for (const size_t width : {1, 4, 8}) {
      for (const uint8_t value : {0x00, 0x7f, 0x80, 0xff}) {
        Bytes bytes = good;
        for (size_t i = at; i < std::min(at + width, bytes.size()); ++i) bytes[i] = value;
        const auto file = GgufFile::Parse(bytes, "test.gguf");
        if (file.ok()) TouchAll(**file);
      }
    }
  }
}

TEST(GgufTest, HeaderErrors) {
  ExpectError(Raw().Put<uint32_t>(0x12345678).Pad(64), StatusCode::kCorrupt, "not a GGUF file");
  ExpectError(Raw().Head(0, 0, 1), StatusCode::kUnsupported, "GGUF version 1");
  ExpectError(Raw().Head(0, 0, 4), StatusCode::kUnsupported, "GGUF version 4");
  ExpectError(Raw().Head(0, 0, 0x03000000), StatusCode::kUnsupported, "big-endian");
  EXPECT_TRUE(StatusOf(Raw().Head(0, 0, 2).bytes).ok());
  EXPECT_TRUE(StatusOf(Raw().Head(0, 0, 3).bytes).ok());
}

TEST(GgufTest, CountsThatCannotFitAreRefusedBeforeMemoryIsTaken) {
  ExpectError(Raw().Head(0, UINT64_MAX).Pad(64), StatusCode::kCorrupt, "18446744073709551615 keys");
  ExpectError(Raw().Head(UINT64_MAX, 0).Pad(64), StatusCode::kCorrupt, "18446744073709551615 tensors");
  ExpectError(Raw().Head(0, 1).Put<uint64_t>(UINT64_MAX).Pad(64), StatusCode::kCorrupt, "a key's name");
  for (const uint32_t type : {0u, 4u, 6u, 7u, 8u, 10u, 12u}) {
    ExpectError(Raw().Head(0, 1).Text("k").Put<uint32_t>(9).Put(type).Put<uint64_t>(uint64_t{1} << 61).Pad(64),
                StatusCode::kCorrupt, "elements of key 'k'");
  }
}

TEST(GgufTest, MetadataErrors) {
  ExpectError(Raw().Head(0, 1).Text("k").Put<uint32_t>(13).Pad(64), StatusCode::kCorrupt, "value type 13");
  ExpectError(Raw().Head(0, 1).Text("k").Put<uint32_t>(9).Put<uint32_t>(77).Put<uint64_t>(1).Pad(64),
              StatusCode::kCorrupt, "value type 77");
  ExpectError(Raw().Head(0, 1).Text("k").Put<uint32_t>(9).Put<uint32_t>(9).Put<uint64_t>(1).Pad(64),
              StatusCode::kUnsupported, "array of arrays");
  ExpectError(Raw().Head(0, 1).Text("k").Put<uint32_t>(7).Put<uint8_t>(2).Pad(64), StatusCode::kCorrupt, "truth value");
  ExpectError(Raw().Head(0, 1).Text("k").Put<uint32_t>(10).Put<uint64_t>(UINT64_MAX).Pad(64), StatusCode::kCorrupt,
              "18446744073709551615");
  ExpectError(Raw().Head(0, 1).Text("").Put<uint32_t>(7).Put<uint8_t>(1).Pad(64), StatusCode::kCorrupt,
              "key without a name");
  ExpectError(Raw().Head(0, 2).Text("k").Put<uint32_t>(7).Put<uint8_t>(1).Text("k").Put<uint32_t>(7).Put<uint8_t>(1),
              StatusCode::kCorrupt, "key 'k' is there twice");
  // Names from the file cannot forge a second line or a terminal sequence.
  ExpectError(Raw().Head(0, 1).Text("bad\n\x1b[31m").Put<uint32_t>(13).Pad(64), StatusCode::kCorrupt,
              "'bad\\x0a\\x1b[31m'");
}

TEST(GgufTest, AlignmentErrors) {
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 1u << 31}) {
    ExpectError(Raw().Head(0, 1).Text("general.alignment").Put<uint32_t>(4).Put(alignment).Pad(64),
                StatusCode::kCorrupt, "general.alignment");
  }
  ExpectError(Raw().Head(0, 1).Text("general.alignment").Put<uint32_t>(8).Text("32").Pad(64), StatusCode::kCorrupt,
              "general.alignment");
  GgufWriter writer(4096);
  writer.AddTensor("a", DType::kF32, {1}, Ramp(4, 1));
  writer.AddTensor("b", DType::kF32, {1}, Ramp(4, 1));
  const auto bytes = writer.Bytes();
  ASSERT_TRUE(bytes.ok());
  const auto file = GgufFile::Parse(*bytes, "test.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->Tensor("b")->file_offset, 8192u);
}

TEST(GgufTest, TensorErrors) {
  constexpr uint32_t kF32 = 0;
  constexpr uint32_t kQ4K = 12;
  const auto one = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    return Raw().Head(1, 0).Tensor("w", dims, type, offset).Pad(1024);
  };
  EXPECT_TRUE(StatusOf(one({256}, kF32, 0).bytes).ok());
  ExpectError(one({257}, kF32, 0), StatusCode::kCorrupt, "tensor 'w': 1028 bytes");
  ExpectError(one({256}, kF32, 32), StatusCode::kCorrupt, "is the download complete?");
  ExpectError(one({1}, kF32, UINT64_MAX - 31), StatusCode::kCorrupt, "pass the file's end");
  ExpectError(one({1}, kF32, 4), StatusCode::kCorrupt, "not a multiple of the alignment 32");
  ExpectError(one({1, 0}, kF32, 0), StatusCode::kCorrupt, "size 0 in dimension 1");
  ExpectError(one({uint64_t{1} << 32, uint64_t{1} << 32}, kF32, 0), StatusCode::kCorrupt, "in dimension 1");
  ExpectError(one({UINT64_MAX}, kF32, 0), StatusCode::kCorrupt, "in dimension 0");
  ExpectError(one({uint64_t{1} << 59}, kF32, 0), StatusCode::kCorrupt, "2305843009213693952 bytes");
  ExpectError(one({1, 1, 1, 1, 1}, kF32, 0), StatusCode::kCorrupt, "5 dimensions");
  ExpectError(one({128, 2}, kQ4K, 0), StatusCode::kCorrupt, "rows of 128 elements, not a multiple of Q4_K's 256");
  ExpectError(one({256}, 9, 0), StatusCode::kUnsupported, "element type Q8_1");
  ExpectError(one({256}, 42, 0), StatusCode::kUnsupported, "element type Q2_0");
  ExpectError(one({256}, 4711, 0), StatusCode::kUnsupported, "element type 4711");
  ExpectError(Raw().Head(1, 0).Tensor("", {1}, kF32, 0).Pad(64), StatusCode::kCorrupt, "tensor without a name");
  ExpectError(Raw().Head(2, 0).Tensor("w", {1}, kF32, 0).Tensor("w", {1}, kF32, 32).Pad(64), StatusCode::kCorrupt,
              "tensor 'w' is there twice");
  ExpectError(Raw().Head(2, 0).Tensor("a", {9}, kF32, 0).Tensor("b", {1}, kF32, 32).Pad(64), StatusCode::kCorrupt,
              "tensors 'a' and 'b' overlap");
  // Order in the file is free.
  EXPECT_TRUE(StatusOf(Raw().Head(2, 0).Tensor("a", {1}, kF32, 32).Tensor("b", {8}, kF32, 0).Pad(64).bytes).ok());
}

TEST(GgufTest, ErrorsNameTheByteThatIsWrong) {
  const size_t type_at = Raw().Head(1, 0).Text("w").Put<uint32_t>(1).Put<uint64_t>(256).bytes.size();
  const auto one = [](uint32_t type, uint64_t offset) {
    return Raw().Head(1, 0).Tensor("w", {256}, type, offset).Pad(1024);
  };
  ExpectError(one(9, 0), StatusCode::kUnsupported,
              fmt::format("at byte {}: tensor 'w' has element type Q8_1", type_at));
  ExpectError(one(4711, 0), StatusCode::kUnsupported, fmt::format("at byte {}: tensor 'w' has element", type_at));
  ExpectError(one(0, 4), StatusCode::kCorrupt, fmt::format("at byte {}: tensor 'w' has data offset 4", type_at + 4));
  // Of a long name its beginning is shown, and that it is not all.
  const std::string name(80, 'k');
  for (const std::string& more : {"", "k"}) {
    ExpectError(Raw().Head(0, 1).Text(name + more).Put<uint32_t>(13).Pad(64), StatusCode::kCorrupt,
                "'" + name + (more.empty() ? "'" : "...'"));
  }
}

TEST(GgufTest, ScalarTensorIsARowOfOne) {
  const Raw raw = Raw().Head(1, 0).Tensor("s", {}, 0, 0).Pad(4);
  const auto file = GgufFile::Parse(raw.bytes, "test.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->Tensor("s")->shape, std::vector<int64_t>{1});
  EXPECT_EQ((*file)->Tensor("s")->bytes, 4);
}

TEST(GgufTest, WriterRefusesWhatTheReaderWould) {
  const auto refused = [](const std::function<void(GgufWriter&)>& fill, const std::string& needle) {
    GgufWriter writer;
    fill(writer);
    const Status status = writer.Bytes().status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(needle), std::string::npos) << status.message();
  };
  refused([](GgufWriter& w) { w.AddTensor("t", DType::kF32, {2}, Ramp(7, 0)); }, "needs 8 bytes and has 7");
  refused([](GgufWriter& w) { w.AddTensor("t", DType::kQ4_0, {31}, Ramp(18, 0)); }, "whole blocks of Q4_0");
  refused([](GgufWriter& w) { w.AddTensor("t", DType::kF32, {}, {}); }, "0 dimensions");
  refused([](GgufWriter& w) { w.AddTensor("t", DType::kF32, {INT64_MAX, 4}, {}); }, "dimension");
  refused([](GgufWriter& w) { w.AddTensor("", DType::kF32, {1}, Ramp(4, 0)); }, "needs a name");
  refused(
      [](GgufWriter& w) {
        w.Set("k", 1);
        w.Set("k", 2);
      },
      "given twice");
  EXPECT_FALSE(GgufWriter(12).Bytes().ok());
}

class GgufPathTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "weir-gguf-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const char* name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

TEST_F(GgufPathTest, WrittenFilesOpen) {
  GgufWriter writer;
  writer.Set<uint32_t>("answer", 42);
  writer.AddTensor("w", DType::kF32, {2, 4}, Ramp(32, 3));
  ASSERT_TRUE(writer.WriteFile(Path("a.gguf")).ok());
  const auto file = GgufFile::Open(Path("a.gguf"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->path(), Path("a.gguf"));
  const GgufTensor* w = (*file)->Tensor("w");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(w->data) % 32, 0u);
  EXPECT_EQ(Bytes(w->data, w->data + 32), Ramp(32, 3));
  (*file)->ReleasePages();
  EXPECT_EQ(Bytes(w->data, w->data + 32), Ramp(32, 3));
  EXPECT_EQ(writer.WriteFile(Path("no/such/folder.gguf")).code(), StatusCode::kIo);
  errno = 0;
  const Status full = writer.WriteFile("/dev/full");
  EXPECT_EQ(full.code(), StatusCode::kIo);
  EXPECT_NE(full.message().find(std::strerror(ENOSPC)), std::string::npos) << full.message();
}

TEST_F(GgufPathTest, WhatIsNoFileIsRefused) {
  const auto expect = [](const std::string& path, StatusCode code, const std::string& needle) {
    const Status status = GgufFile::Open(path).status();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(needle), std::string::npos) << status.message();
    EXPECT_EQ(status.message().rfind(path, 0), 0u) << status.message();
  };
  expect(Path("absent.gguf"), StatusCode::kNotFound, "no such file");
  expect(folder_.string(), StatusCode::kIo, "directory");
  std::ofstream(Path("empty.gguf")).close();
  expect(Path("empty.gguf"), StatusCode::kCorrupt, "empty");
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  expect(Path("pipe"), StatusCode::kIo, "not an ordinary file");
  std::ofstream(Path("secret.gguf")) << "GGUF";
  expect(Path("secret.gguf"), StatusCode::kCorrupt, "the version");
  if (::geteuid() != 0) {  // root may read everything
    ASSERT_EQ(::chmod(Path("secret.gguf").c_str(), 0), 0);
    expect(Path("secret.gguf"), StatusCode::kIo, "cannot open");
  }
}

TEST(GgufDataTest, PublishedVocabulariesParse) {
  const char* data = std::getenv("WEIR_DATA");
  if (data == nullptr) GTEST_SKIP() << "set WEIR_DATA to the folder of evaluation data to run this test";
  const std::filesystem::path folder = std::filesystem::path(data) / "tokenizers";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << folder << " is not there";
  int parsed = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const auto file = GgufFile::Open(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto* tokens = (*file)->StringArray("tokenizer.ggml.tokens");
    ASSERT_NE(tokens, nullptr) << entry.path();
    EXPECT_GE(tokens->size(), 32000u) << entry.path();
    TouchAll(**file);
    ++parsed;
  }
  EXPECT_GT(parsed, 0) << "no .gguf file in " << folder;
}

// A model in three parts, as gguf-split writes it: the first has the metadata and a tensor.
class GgufPartsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "parts_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    for (int i = 0; i < 3; ++i) Write(i, i, 3, fmt::format("tensor{}", i));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(int i) const { return folder_ + "/model" + GgufPartName(i, 3); }
  void Write(int i, int number, int count, const std::string& tensor, int n_tensors = 3) {
    GgufWriter writer;
    if (i == 0) writer.SetString("general.architecture", "llama");
    writer.Set<uint16_t>(kGgufSplitNumberKey, static_cast<uint16_t>(number));
    writer.Set<uint16_t>(kGgufSplitCountKey, static_cast<uint16_t>(count));
    if (i == 0) writer.Set<int32_t>(kGgufSplitTensorsKey, n_tensors);
    writer.AddTensor(tensor, DType::kI32, {8}, Ramp(32, static_cast<uint8_t>(10 * i)));
    ASSERT_TRUE(writer.WriteFile(Path(i)).ok());
  }
  std::string Refusal(const std::string& path) const {
    const auto file = GgufFile::Open(path);
    return file.ok() ? "" : file.status().message();
  }

  std::string folder_;
};

TEST_F(GgufPartsTest, AreOneFile) {
  const auto file = GgufFile::Open(Path(0));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->n_parts(), 3);
  EXPECT_EQ((*file)->tensors().size(), 3u);
  int64_t n_bytes = 0;
  for (int i = 0; i < 3; ++i) {
    const GgufTensor* const tensor = (*file)->Tensor(fmt::format("tensor{}", i));
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->data[1], 10 * i + 1);
    n_bytes += static_cast<int64_t>(std::filesystem::file_size(Path(i)));
  }
  EXPECT_EQ((*file)->file_bytes(), n_bytes);
  EXPECT_EQ(*(*file)->String("general.architecture"), "llama");
  (*file)->ReleasePages();
  EXPECT_EQ((*file)->Tensor("tensor2")->data[1], 21);
}

TEST_F(GgufPartsTest, AreRefusedUnlessTheyFitTogether) {
  EXPECT_NE(Refusal(Path(1)).find("part 2 of 3; name the first, " + Path(0)), std::string::npos) << Refusal(Path(1));
  std::filesystem::copy_file(Path(0), folder_ + "/renamed.gguf");
  EXPECT_NE(Refusal(folder_ + "/renamed.gguf").find("must end in -00001-of-00003.gguf"), std::string::npos);
  Write(2, 1, 3, "tensor2");
  EXPECT_NE(Refusal(Path(0)).find("its keys say part 2 of 3, its name part 3 of 3"), std::string::npos);
  Write(2, 2, 4, "tensor2");
  EXPECT_NE(Refusal(Path(0)).find("its keys say part 3 of 4"), std::string::npos);
  Write(2, 2, 3, "tensor0");
  EXPECT_NE(Refusal(Path(0)).find("tensor 'tensor0' is in an earlier part, too"), std::string::npos);
  Write(2, 2, 3, "tensor2");
  Write(0, 0, 3, "tensor0", 4);
  EXPECT_NE(Refusal(Path(0)).find("split.tensors.count is 4, but its 3 parts have 3"), std::string::npos);
  Write(0, 0, 3, "tensor0");
  EXPECT_EQ(Refusal(Path(0)), "");
  std::filesystem::resize_file(Path(2), std::filesystem::file_size(Path(2)) - 1);
  EXPECT_NE(Refusal(Path(0)).find("is the download complete?"), std::string::npos);
  std::filesystem::remove(Path(2));
  EXPECT_NE(Refusal(Path(0)).find("part 3 of 3: "), std::string::npos) << Refusal(Path(0));
  EXPECT_EQ(GgufFile::Open(Path(0)).status().code(), StatusCode::kNotFound);
  for (const auto& [number, count] : {std::pair(7, 3), std::pair(3, 3), std::pair(0, 65535)}) {
    Write(0, number, count, "tensor0");
    EXPECT_NE(Refusal(Path(0)), "") << number << " of " << count;
  }
}

TEST_F(GgufPartsTest, MergedPartsAreOneFile) {
  Write(0, 0, 0, "tensor0", 1);
  EXPECT_EQ(Refusal(Path(0)), "");
}

}  // namespace
}  // namespace weir
