// SPDX-License-Identifier: Apache-2.0
#include "media/media.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "media/memory_file.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

bool Installed() {
  static const bool installed = std::system("ffmpeg -version >/dev/null 2>&1 && ffprobe -version >/dev/null 2>&1") == 0;
  return installed;
}

class MediaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Installed()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
    folder_ = fs::temp_directory_path() / ("weir_media_test_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override {
    if (folder_.empty()) return;
    fs::remove_all(folder_);
    EXPECT_EQ(ledger_.used_bytes(), 0) << "pixels outlived their picture";
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child was left behind";
  }

  std::string Write(const std::string& name, const std::string& bytes) const {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  std::string Script(const std::string& name, const std::string& body) const {
    const std::string path = Write(name, "#!/bin/sh\n" + body);
    chmod(path.c_str(), 0755);
    return path;
  }
  // Both programs replaced by a misbehaving decoder.
  MediaOptions Broken(const std::string& body) const {
    MediaOptions options;
    options.ffmpeg = options.ffprobe = Script("broken", body);
    options.wall_ms = 300;
    return options;
  }
  void ExpectRefused(const std::string& path, StatusCode code, const std::string& part,
                     const MediaOptions& options = {}) {
    SCOPED_TRACE(path);
    FrameOptions frames;
    frames.media = options;
    const auto expect = [&](const Status& status) {
      EXPECT_EQ(status.code(), code) << status.message();
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
      EXPECT_EQ(status.message().find('\n'), std::string::npos);
    };
    expect(ProbeMedia(path, options).status());
    expect(DecodeImage(path, ledger_, options).status());
    auto reader = FrameReader::Open(path, ledger_, frames);
    if (!reader.ok()) return expect(reader.status());
    Frame frame;
    expect((*reader)->Next(&frame).status());
    expect((*reader)->Next(&frame).status());  // and again
  }

  fs::path folder_;
  Ledger ledger_;
};

// Frames until the end or an error, which fails the test.
int CountFrames(FrameReader& reader, Frame* frame) {
  for (int n = 0;; ++n) {
    const Result<bool> more = reader.Next(frame);
    EXPECT_TRUE(more.ok()) << more.status().message();
    if (!more.ok() || !*more) return n;
  }
}

uint8_t Pixel(int64_t x, int64_t y, int64_t c) { return static_cast<uint8_t>(7 * x + 31 * y + 85 * c); }

std::string Ppm(int64_t width, int64_t height) {
  std::string out = "P6\n" + std::to_string(width) + " " + std::to_string(height) + "\n255\n";
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < 3; ++c) out.push_back(static_cast<char>(Pixel(x, y, c)));
    }
  }
  return out;
}

// The same picture in a format that needs a decoder.
std::string CommentedPpm(int64_t width, int64_t height) { return Ppm(width, height).insert(3, "# a comment\n"); }

// A video of n grey frames at `fps`, frame k as bright as 16 + 2 k in video levels (16 to 235): uncompressed, so that
// every frame shows its number.
std::string GreyVideo(int n, int fps, int width = 32, int height = 16) {
  std::string out = "YUV4MPEG2 W" + std::to_string(width) + " H" + std::to_string(height) + " F" + std::to_string(fps) +
                    ":1 Ip A1:1 C420jpeg\n";
  for (int k = 0; k < n; ++k) {
    out += "FRAME\n";
    out.append(static_cast<size_t>(width) * static_cast<size_t>(height), static_cast<char>(16 + 2 * k));
    out.append(static_cast<size_t>(width * height / 2), static_cast<char>(128));
  }
  return out;
}

uint32_t Crc32(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

std::string BigEndian(uint32_t v) {
  return {static_cast<char>(v >> 24), static_cast<char>(v >> 16), static_cast<char>(v >> 8), static_cast<char>(v)};
}

std::string PngChunk(const std::string& type, const std::string& data) {
  return BigEndian(static_cast<uint32_t>(data.size())) + type + data + BigEndian(Crc32(type + data));
}

// The head of an 8-bit RGB picture with the beginning of its data.
std::string PngOfSize(uint32_t width, uint32_t height) {
  return std::string("\x89PNG\r\n\x1a\n", 8) +
         PngChunk("IHDR", BigEndian(width) + BigEndian(height) + std::string("\x08\x02\0\0\0", 5)) +
         PngChunk("IDAT", std::string("\x78\x9c\x01", 3)) + PngChunk("IEND", "");
}

// A zlib stream of n * 258 + 1 bytes 'a' in 13 n bits, without a checksum.
std::string ManyBytes(int n) {
  std::string out = "\x78\x9c";
  uint64_t bits = 0;
  int n_bits = 0;
  const auto put = [&](uint32_t code, int length) {  // its most significant bit first
    for (int i = length - 1; i >= 0; --i) bits |= static_cast<uint64_t>(code >> i & 1) << n_bits++;
    for (; n_bits >= 8; n_bits -= 8, bits >>= 8) out.push_back(static_cast<char>(bits & 0xFF));
  };
  put(0b110, 3);  // the last block, with fixed codes
  put(0x30 + 'a', 8);
  for (int i = 0; i < n; ++i) {
    put(0b11000101, 8);  // 258 bytes
    put(0, 5);           // as the one before
  }
  put(0, 7 + 8);
  return out;
}

std::string SilentWav() {
  const uint32_t n = 8000;
  const auto little = [](uint32_t v, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(v >> (8 * i)));
    return out;
  };
  return "RIFF" + little(36 + n, 4) + "WAVEfmt " + little(16, 4) + little(1, 2) + little(1, 2) + little(8000, 4) +
         little(8000, 4) + little(1, 2) + little(8, 2) + "data" + little(n, 4) + std::string(n, '\x80');
}

TEST_F(MediaTest, PictureBytes) {
  const std::string path = Write("a.ppm", Ppm(37, 23));
  const auto info = ProbeMedia(path);
  ASSERT_TRUE(info.ok()) << info.status().message();
  EXPECT_EQ(info->width, 37);
  EXPECT_EQ(info->height, 23);
  const auto image = DecodeImage(path, ledger_);
  ASSERT_TRUE(image.ok()) << image.status().message();
  ASSERT_EQ(image->width, 37);
  ASSERT_EQ(image->height, 23);
  for (int64_t y = 0; y < 23; ++y) {
    for (int64_t x = 0; x < 37; ++x) {
      for (int64_t c = 0; c < 3; ++c) ASSERT_EQ(image->rgb()[(y * 37 + x) * 3 + c], Pixel(x, y, c));
    }
  }
  EXPECT_EQ(ledger_.used_bytes(MemTag::kVision), PageRound(37 * 23 * 3));
}

// A name is only a name: neither an extension nor ffmpeg's patterns, protocols and options have a meaning.
TEST_F(MediaTest, StrangeNames) {
  for (const char* name :
       {"a.mp4", "a.txt", "noextension", "%03d.png", "a*b.jpg", "-y", "concat:a|b", "http:x", "two words", "a'b"}) {
    SCOPED_TRACE(name);
    const auto image = DecodeImage(Write(name, Ppm(4, 3)), ledger_);
    ASSERT_TRUE(image.ok()) << image.status().message();
    EXPECT_EQ(image->width, 4);
  }
}

TEST_F(MediaTest, FramesAtAnyRate) {
  const std::string path = Write("v.y4m", GreyVideo(40, 10));  // 4 s
  for (const double fps : {1.0, 2.0, 10.0, 20.0, 0.5}) {
    SCOPED_TRACE(fps);
    FrameOptions options;
    options.fps = fps;
    auto reader = FrameReader::Open(path, ledger_, options);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    Frame frame;
    int64_t n = 0;
    while (true) {
      const Result<bool> more = (*reader)->Next(&frame);
      ASSERT_TRUE(more.ok()) << more.status().message();
      if (!*more) break;
      EXPECT_EQ(frame.index, n);
      EXPECT_EQ(frame.t_src_ms, std::llround(1000.0 * static_cast<double>(n) / fps));
      EXPECT_EQ(frame.width, 32);
      EXPECT_EQ(frame.height, 16);
      // The picture visible at that moment: the film's frame at or before it, never a later one.
      const int64_t film = std::min<int64_t>(39, frame.t_src_ms / 100);
      EXPECT_NEAR(frame.rgb[0], 2.0 * static_cast<double>(film) * 255 / 219, 1.01) << "frame " << n;
      ++n;
    }
    EXPECT_NEAR(static_cast<double>(n), 4 * fps, 1);
    EXPECT_EQ(*(*reader)->Next(&frame), false);
  }
}

TEST_F(MediaTest, FramesShrink) {
  FrameOptions options;
  options.media.max_side = 20;
  auto reader = FrameReader::Open(Write("v.y4m", GreyVideo(3, 1, 64, 32)), ledger_, options);
  ASSERT_TRUE(reader.ok());
  Frame frame;
  ASSERT_TRUE((*reader)->Next(&frame).ok());
  EXPECT_EQ(frame.width, 20);
  EXPECT_EQ(frame.height, 10);
  // Small ones are not resized.
  auto small = FrameReader::Open(Write("w.y4m", GreyVideo(3, 1, 16, 8)), ledger_, options);
  ASSERT_TRUE((*small)->Next(&frame).ok());
  EXPECT_EQ(frame.width, 16);
}

TEST_F(MediaTest, NamedPipe) {
  const std::string path = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&path] { std::ofstream(path, std::ios::binary) << GreyVideo(4, 1); });
  auto reader = FrameReader::Open(path, ledger_, {});
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  Frame frame;
  EXPECT_EQ(CountFrames(**reader, &frame), 4);
  writer.join();
  EXPECT_EQ(ProbeMedia(path).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(MediaTest, AbandonedReaderLeavesNothing) {
  const std::string path = Write("v.y4m", GreyVideo(100, 10, 256, 256));
  FrameOptions options;
  options.fps = 10;
  for (int i = 0; i < 3; ++i) {
    auto reader = FrameReader::Open(path, ledger_, options);
    ASSERT_TRUE(reader.ok());
    Frame frame;
    ASSERT_TRUE((*reader)->Next(&frame).ok());
    EXPECT_EQ(ledger_.used_bytes(), PageRound(256 * 256 * 3));
  }
  EXPECT_EQ(ledger_.used_bytes(), 0);
}

TEST_F(MediaTest, HostileFiles) {
  ExpectRefused(Write("empty.png", ""), StatusCode::kCorrupt, "is empty");
  ExpectRefused(Write("noise.jpg", std::string(5000, '\x5a') + "noise"), StatusCode::kCorrupt, "");
  ExpectRefused(Write("sound.mp4", SilentWav()), StatusCode::kUnsupported, "sound but no picture");
  ExpectRefused(Write("large.y4m", "YUV4MPEG2 W10000 H10000 F1:1 Ip A1:1 C420jpeg\nFRAME\n"), StatusCode::kUnsupported,
                "10000 x 10000 pixels are more than");
  ExpectRefused(Write("larger.png", PngOfSize(30000, 30000)), StatusCode::kCorrupt, "size");
  ExpectRefused(Write("none.png", PngOfSize(0, 0)), StatusCode::kCorrupt, "");
  // Its header is right, its data is not: the size is known, the picture is not.
  const std::string headed = Write("small.png", PngOfSize(64, 64));
  EXPECT_TRUE(ProbeMedia(headed).ok());
  EXPECT_EQ(DecodeImage(headed, ledger_).status().code(), StatusCode::kCorrupt);
  ExpectRefused((folder_ / "absent.png").string(), StatusCode::kNotFound, "no such file");
  ExpectRefused(folder_.string(), StatusCode::kInvalidArgument, "is a folder");
  ExpectRefused("", StatusCode::kInvalidArgument, "needs a name");
  ExpectRefused("/dev/null", StatusCode::kInvalidArgument, "neither a file");
  // A list of files cannot reach the network or other files.
  ExpectRefused(Write("list.m3u8", "#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n"),
                StatusCode::kCorrupt, "");
}

// Truncated anywhere, a picture is rejected or decodes; nothing hangs, nothing leaks.
TEST_F(MediaTest, TruncatedFiles) {
  const std::string ppm = Ppm(64, 64);
  for (const size_t n : {size_t{1}, size_t{2}, size_t{7}, size_t{12}, size_t{13}, ppm.size() / 2}) {
    const auto image = DecodeImage(Write("cut.ppm", ppm.substr(0, n)), ledger_);
    EXPECT_FALSE(image.ok()) << n << " bytes";
    EXPECT_EQ(image.status().code(), StatusCode::kCorrupt) << image.status().message();
  }
  // A truncated film has the frames that it contains.
  const std::string video = GreyVideo(10, 1);
  auto reader = FrameReader::Open(Write("cut.y4m", video.substr(0, video.size() * 55 / 100)), ledger_, {});
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  Frame frame;
  EXPECT_EQ(CountFrames(**reader, &frame), 5);
}

TEST_F(MediaTest, LimitsAndLedger) {
  const std::string path = Write("a.ppm", Ppm(200, 100));
  MediaOptions options;
  options.max_pixels = 200 * 100 - 1;
  ExpectRefused(path, StatusCode::kUnsupported, "200 x 100 pixels are more than the 19999", options);
  Ledger small(200 * 100 * 3 - 1);
  EXPECT_EQ(DecodeImage(path, small).status().code(), StatusCode::kOverBudget);
  auto reader = FrameReader::Open(path, small, {});
  ASSERT_TRUE(reader.ok());
  Frame frame;
  EXPECT_EQ((*reader)->Next(&frame).status().code(), StatusCode::kOverBudget);
  EXPECT_EQ(small.used_bytes(), 0);
}

// Two frames a day apart are 86,400,000 at a thousand a second.
TEST_F(MediaTest, AVideoThatTakesTooMuchProcessorTimeIsEnded) {
  std::string video = GreyVideo(2, 1);
  const size_t rate = video.find(" F1:1 ");
  ASSERT_NE(rate, std::string::npos);
  video.replace(rate, 6, " F1:86400 ");
  FrameOptions options;
  options.fps = 1000;
  options.cpu_s = 1;
  auto reader = FrameReader::Open(Write("gap.y4m", video), ledger_, options);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  Result<bool> more = true;
  for (Frame frame; more.ok() && *more;) more = (*reader)->Next(&frame);
  EXPECT_EQ(more.status().code(), StatusCode::kIo) << more.status().message();
  EXPECT_NE(more.status().message().find("processor time"), std::string::npos) << more.status().message();
}

// 1.6 GB of comments in a few MB: what a picture of that size cannot need is not unpacked.
TEST_F(MediaTest, CommentsOfAPictureCostLittle) {
  const std::string bytes = ManyBytes(1'600'000);
  std::string png = PngOfSize(8, 8), comments;
  for (int i = 0; i < 4; ++i) comments += PngChunk("zTXt", "k" + std::to_string(i) + std::string(2, '\0') + bytes);
  const std::string pixels = std::string("\x78\x01\x01\xc8\0\x37\xff", 7) + std::string(200, '\0');  // stored
  png = png.substr(0, 33) + comments + PngChunk("IDAT", pixels) + PngChunk("IEND", "");
  MediaOptions options;
  options.cpu_s = 4;
  options.wall_ms = 600'000;
  const auto image = DecodeImage(Write("comments.png", png), ledger_, options);
  ASSERT_TRUE(image.ok()) << image.status().message();
  EXPECT_EQ(image->width, 8);
}

// A header of a few bytes may claim years.
TEST_F(MediaTest, AVideoThatDeclaresTooManyFramesIsRefusedAtOnce) {
  std::string video = GreyVideo(8, 1);
  video.replace(video.find(" F1:1 "), 6, " F1:1000000 ");
  const std::string path = Write("slow.y4m", video);
  FrameOptions options;
  options.max_frames = 10'000;
  const auto start = std::chrono::steady_clock::now();
  const Status refused = FrameReader::Open(path, ledger_, options).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << refused.message();
  EXPECT_NE(refused.message().find("8000000 s"), std::string::npos) << refused.message();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  options.fps = 0.001;
  EXPECT_TRUE(FrameReader::Open(path, ledger_, options).ok());
}

TEST_F(MediaTest, BadOptions) {
  const std::string path = Write("v.y4m", GreyVideo(3, 1));
  for (const double fps : {0.0, -1.0, 1001.0, std::nan("")}) {
    FrameOptions options;
    options.fps = fps;
    EXPECT_EQ(FrameReader::Open(path, ledger_, options).status().code(), StatusCode::kInvalidArgument);
  }
}

// Plain pixels need no decoder, and give the same result.
TEST_F(MediaTest, PlainPixelsAreReadAsTheyAre) {
  MediaOptions absent;
  absent.ffmpeg = absent.ffprobe = "/nonexistent/ffmpeg";
  const auto plain = DecodeImage(Write("a.ppm", Ppm(37, 23)), ledger_, absent);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  const auto decoded = DecodeImage(Write("b.ppm", CommentedPpm(37, 23)), ledger_);
  ASSERT_TRUE(decoded.ok()) << decoded.status().message();
  ASSERT_EQ(plain->width, 37);
  ASSERT_EQ(plain->height, decoded->height);
  EXPECT_EQ(std::memcmp(plain->rgb(), decoded->rgb(), 37 * 23 * 3), 0);
  MediaOptions shrunk;
  shrunk.max_side = 10;
  const auto small = DecodeImage(Write("a.ppm", Ppm(37, 23)), ledger_, shrunk);
  ASSERT_TRUE(small.ok()) << small.status().message();
  EXPECT_EQ(small->width, 10);
}

TEST_F(MediaTest, BrokenDecoders) {
  const std::string path = Write("a.ppm", CommentedPpm(8, 8));
  MediaOptions absent;
  absent.ffmpeg = absent.ffprobe = "/nonexistent/ffmpeg";
  ExpectRefused(path, StatusCode::kNotFound, "need ffmpeg and ffprobe installed", absent);
  const auto start = std::chrono::steady_clock::now();
  ExpectRefused(path, StatusCode::kIo, "was ended", Broken("sleep 60\n"));
  ExpectRefused(path, StatusCode::kIo, "signal 9", Broken("kill -9 $$\n"));
  ExpectRefused(path, StatusCode::kCorrupt, "", Broken("head -c 3000000 /dev/zero\n"));
  ExpectRefused(path, StatusCode::kCorrupt, "", Broken("exit 0\n"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

// The probe is truthful, the decoder is not.
TEST_F(MediaTest, LyingDecoders) {
  const std::string path = Write("a.ppm", CommentedPpm(8, 8));
  struct Case {
    const char* body;
    StatusCode code;
  };
  for (const Case& c : {Case{"printf 'P6\\n30000 30000\\n255\\n'; cat /dev/zero", StatusCode::kUnsupported},
                        Case{"printf 'P6\\n0 8\\n255\\n'", StatusCode::kCorrupt},
                        Case{"printf 'P6\\n-8 8\\n255\\n'", StatusCode::kCorrupt},
                        Case{"printf 'P6\\n99999999999999999999 8\\n255\\n'", StatusCode::kCorrupt},
                        Case{"printf 'P6\\n8 8\\n65535\\n'", StatusCode::kCorrupt},
                        Case{"printf 'P6\\n8 8\\n255\\nabc'", StatusCode::kCorrupt},
                        Case{"printf 'P6\\n8'", StatusCode::kCorrupt}, Case{"yes", StatusCode::kCorrupt},
                        Case{"printf ''", StatusCode::kCorrupt}, Case{"sleep 60", StatusCode::kIo}}) {
    SCOPED_TRACE(c.body);
    MediaOptions options;
    options.ffmpeg = Script("liar", c.body);
    options.wall_ms =
        c.code == StatusCode::kIo ? 1500 : 30000;  // the probe is the real one, and the machine may be busy
    const auto image = DecodeImage(path, ledger_, options);
    EXPECT_EQ(image.status().code(), c.code) << image.status().message();
    FrameOptions frames;
    frames.media = options;
    auto reader = FrameReader::Open(path, ledger_, frames);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    Frame frame;
    EXPECT_EQ((*reader)->Next(&frame).status().code(), c.code);
  }
}

TEST_F(MediaTest, ADecoderThatIsTakenOverReachesNothingElse) {
  Status sandbox;
  std::thread([&] { sandbox = EnterSandbox({}); }).join();
  if (!sandbox.ok()) GTEST_SKIP() << sandbox.message();
  const std::string path = Write("a.ppm", CommentedPpm(8, 8)), secret = Write("secret", "nobody may know");
  ExpectRefused(path, StatusCode::kCorrupt, "ermission denied (without its sandbox", Broken("cat " + secret + " >&2"));
  const std::string left = (folder_ / "left").string();
  ExpectRefused(path, StatusCode::kCorrupt, "ermission denied", Broken("echo x >" + left));
  EXPECT_FALSE(fs::exists(left));
  MediaOptions free = Broken("cat " + secret + " >&2; exit 1");
  free.sandbox = false;
  ExpectRefused(path, StatusCode::kCorrupt, "nobody may know", free);
}

TEST_F(MediaTest, BytesOfStrangersNameNoOtherFiles) {
  const std::string clip = Write("clip.y4m", GreyVideo(4, 2));
  for (const std::string& bytes : {"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nfile:" + clip + "\n#EXT-X-ENDLIST\n",
                                   std::string("ffconcat version 1.0\nfile clip.y4m\n")}) {
    const auto file = MemoryFile::Make(bytes);
    ASSERT_TRUE(file.ok()) << file.status().message();
    ExpectRefused(file->path(), StatusCode::kCorrupt, "whitelist");
  }
  const auto video = MemoryFile::Make(GreyVideo(4, 2)), picture = MemoryFile::Make("P6\n2 1\n255\nabcdef");
  ASSERT_TRUE(video.ok() && picture.ok());
  EXPECT_TRUE(ProbeMedia(video->path()).ok());
  EXPECT_TRUE(DecodeImage(picture->path(), ledger_).ok());
}

TEST_F(MediaTest, RealFiles) {
  const char* data = std::getenv("WEIR_DATA");
  if (data == nullptr || !fs::is_directory(fs::path(data) / "images")) {
    GTEST_SKIP() << "needs images/ and video/ in the folder that WEIR_DATA names";
  }
  const auto image = DecodeImage((fs::path(data) / "images/chelsea.png").string(), ledger_);
  ASSERT_TRUE(image.ok()) << image.status().message();
  EXPECT_EQ(image->width, 451);
  EXPECT_EQ(image->height, 300);
  const std::string film = (fs::path(data) / "video/bigbuckbunny.mp4").string();
  const auto info = ProbeMedia(film);
  ASSERT_TRUE(info.ok()) << info.status().message();
  EXPECT_EQ(info->codec, "h264");
  EXPECT_EQ(info->width, 1280);
  EXPECT_NEAR(info->fps, 25, 0.01);
  EXPECT_TRUE(info->has_audio);
  FrameOptions options;
  options.fps = 2;
  options.media.max_side = 336;
  auto reader = FrameReader::Open(film, ledger_, options);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  Frame frame;
  EXPECT_NEAR(CountFrames(**reader, &frame), 2 * static_cast<double>(info->duration_ms) / 1000, 1.5);
  EXPECT_EQ(frame.width, 336);
}

}  // namespace
}  // namespace weir
