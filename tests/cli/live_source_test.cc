// SPDX-License-Identifier: Apache-2.0
// weir watch over a stream that breaks off and comes back: it is opened again, the gap is marked and the clock goes on.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "cli/edited_model.h"
#include "cli/refusal.h"
#include "support/pictures.h"

namespace weir::testing {
namespace {

using nlohmann::json;

std::string Repeated(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

// A camera behind a web server: to each connection a second of video in real time, five frames; then it hangs up. To
// the second it says that it has no camera.
class Camera {
 public:
  Camera() {
    signal(SIGPIPE, SIG_IGN);
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t n = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), n), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &n), 0);
    url_ = "http://me:secret@127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/live";
    thread_ = std::thread([this] { Serve(); });
  }
  ~Camera() {
    stop_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  const std::string& url() const { return url_; }
  int n_asked() const { return n_asked_; }

 private:
  void Serve() {
    const std::string video = Y4mBytes(5, 5);
    const size_t head = video.find("FRAME"), frame = (video.size() - head) / 5;
    for (int fd; !stop_ && (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; close(fd)) {
      char request[4096];
      if (read(fd, request, sizeof(request)) <= 0) continue;
      const bool there = ++n_asked_ != 2;
      std::string answer = there ? "HTTP/1.0 200 OK\r\nContent-Type: video/x-yuv4mpeg\r\n\r\n" + video.substr(0, head)
                                 : "HTTP/1.0 404 Not Found\r\n\r\n";
      bool open = write(fd, answer.data(), answer.size()) > 0 && there;
      for (size_t i = 0; i < 5 && open && !stop_; ++i) {
        open = write(fd, video.data() + head + i * frame, frame) > 0;
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
      }
    }
  }

  int listener_ = -1;
  std::string url_;
  std::atomic<bool> stop_{false};
  std::atomic<int> n_asked_{0};
  std::thread thread_;
};

TEST(LiveSourceTest, ABrokenStreamIsOpenedAgain) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  Camera camera;
  RunOptions options;
  options.silent_end = true;
  options.interrupt_after_ms = 8000;
  const RunResult run =
      RunWeir({"watch", camera.url(), "-m", VisionPath("llava.gguf"), "--mmproj", VisionPath("clip.gguf"), "--fps", "5",
               "--pot", "128", "--policy", "streaming_llm", "--when", "what is it => the man", "-o", "json"},
              options);
  EXPECT_EQ(run.code, 130) << run.err;
  EXPECT_GE(camera.n_asked(), 3);
  int64_t n_gaps = 0, t_ms = 0;
  json report;
  for (const std::string& line : Lines(run.out)) {
    const json row = json::parse(line, nullptr, false);
    ASSERT_TRUE(row.is_object()) << line;
    if (row["type"] == "report") report = row;
    if (row["type"] != "gap") continue;
    ++n_gaps;
    EXPECT_GE(row["gap_ms"], 300);
    EXPECT_GT(row["t_ms"], t_ms);
    t_ms = row["t_ms"];
  }
  ASSERT_GE(n_gaps, 1) << run.out << run.err;
  ASSERT_TRUE(report.is_object()) << run.out << run.err;
  EXPECT_EQ(report["gaps"], n_gaps);
  EXPECT_GE(report["frames_arrived"], 6);
  EXPECT_GE(t_ms, 1800) << "a second of video, and the time that it was away";
  EXPECT_NE(run.err.find("trying again"), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("secret"), std::string::npos) << run.err;
}

// What never was there is no gap.
TEST(LiveSourceTest, AStreamThatNeverCameIsAnError) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  const RunResult run = RunWeir({"watch", "http://me:secret@127.0.0.1:1/live", "-m", VisionPath("llava.gguf"),
                                 "--mmproj", VisionPath("clip.gguf"), "--pot", "128", "--when", "what => sea"});
  EXPECT_NE(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("127.0.0.1:1/live"), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("secret"), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("0x"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("nobody answers at this address"), std::string::npos) << run.err;
}

// One line, which says what to do, and nothing of the decoder.
TEST(LiveSourceTest, SourcesAndRulesThatCannotBe) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  const TempDir folder;
  // Pictures of a kind that nobody decodes.
  const std::string avi = folder.File("a.avi");
  ASSERT_EQ(std::system(("ffmpeg -v error -f lavfi -i testsrc=size=64x64:rate=2:duration=2 -c:v mjpeg " + avi).c_str()),
            0);
  std::string bytes = FileBytes(avi);
  for (size_t at = 0; (at = bytes.find("MJPG", at)) != std::string::npos;) bytes.replace(at, 4, "ZZZZ");
  const std::string unknown = folder.Write("unknown.avi", bytes);
  const std::string noise = folder.Write("noise.mp4", std::string(3000, '\x9b'));
  std::vector<std::string> many;
  for (int i = 0; i < 10000; ++i) many.insert(many.end(), {"--when", "what => " + std::to_string(i)});
  const std::string kinds = "an rtsp://, rtsps://, http:// or https:// stream";
  for (const auto& [source, more, words] : std::vector<std::tuple<std::string, std::vector<std::string>, std::string>>{
           {"ftp://host/a", {}, kinds},
           {"srt://host", {}, kinds},
           {"file:///etc/passwd", {}, kinds},
           {unknown, {}, "no decoder for this kind of video"},
           {noise, {}, "no picture or video, or it is damaged"},
           {avi, {"--when", std::string(1001, 'x')}, "at most 1000 are possible"},
           {avi, {"--when", "what " + Repeated("is ", 300) + "=> it"}, "say it in fewer words"},
           {avi, many, "64 rules are possible"}}) {
    std::vector<std::string> arguments = {
        "watch",  source,   "-m",         VisionPath("llava.gguf"), "--mmproj", VisionPath("clip.gguf"), "--pot", "128",
        "--fast", "--when", "what => sea"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult run = RunWeir(arguments);
    EXPECT_NE(run.code, 0) << source;
    const std::vector<std::string> lines = Lines(run.err);
    ASSERT_FALSE(lines.empty()) << source;
    EXPECT_NE(lines.back().find(words), std::string::npos) << run.err;
    EXPECT_EQ(lines.back().find("weir: error: "), 0u) << run.err;
    EXPECT_EQ(lines.back().find("ffmpeg"), std::string::npos) << run.err;
    EXPECT_EQ(lines.back().find("/dev/fd"), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace weir::testing
