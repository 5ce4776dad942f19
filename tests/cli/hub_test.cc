// SPDX-License-Identifier: Apache-2.0
// -hf OWNER/NAME[:FILE]: models where the site's own tool and llama.cpp put them, and that tool as a stand-in that
// copies a model into its cache.
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/refusal.h"

namespace weir::testing {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

class HubTest : public RefusalTest {
 protected:
  HubTest() {
    fs::create_directories(dir_.File("bin"));
    fs::create_directories(dir_.File("llama"));
    setenv("HF_HUB_CACHE", dir_.File("hub").c_str(), 1);
    setenv("LLAMA_CACHE", dir_.File("llama").c_str(), 1);
    setenv("PATH", (dir_.File("bin") + ":/usr/bin:/bin").c_str(), 1);
  }
  ~HubTest() override {
    unsetenv("HF_HUB_CACHE");
    unsetenv("LLAMA_CACHE");
    setenv("PATH", path_.c_str(), 1);
  }
  // A program called `hf`, which first notes its arguments.
  void MakeTool(const std::string& script) {
    const std::string path = dir_.Write("bin/hf", "#!/bin/sh\necho \"$@\" >> '" + Calls() + "'\n" + script);
    ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  }
  std::string Calls() const { return dir_.File("bin/calls"); }
  // A snapshot's file as huggingface_hub leaves it: a link to a blob named by `blob`.
  void AddSnapshot(const std::string& name, const std::string& blob, const std::string& revision = "aaaa") {
    const fs::path folder = fs::path(dir_.File("hub")) / "models--some.body--tiny-GGUF";
    const fs::path link = folder / "snapshots" / revision / name;
    fs::create_directories(link.parent_path());
    fs::create_directories(folder / "blobs");
    fs::create_directories(folder / "refs");
    std::ofstream(folder / "refs" / "main") << "aaaa";
    if (!fs::exists(folder / "blobs" / blob)) fs::copy_file(ModelPath("llama"), folder / "blobs" / blob);
    fs::create_symlink(folder / "blobs" / blob, link);
  }
  Arguments WithHub(const std::string& name, const Arguments& more = {}) {
    return Join({"run", "-hf", name, "-p", "the", "-n", "4", "--temp", "0"}, more);
  }
  void ExpectRuns(const Arguments& arguments) {
    const RunResult run = Run(arguments), want = Run(RunTiny());
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(run.out, want.out);
  }

  const std::string path_ = getenv("PATH");
};

TEST_F(HubTest, WhatIsNotThereIsNotFetchedUnasked) {
  MakeTool("exit 0\n");
  ExpectError(WithHub("some.body/tiny-GGUF:tiny-Q8_0.gguf"), {"hf download some.body/tiny-GGUF tiny-Q8_0.gguf",
                                                              dir_.File("hub"), dir_.File("llama"), "--hf-download"});
  ExpectError(WithHub("some.body/tiny-GGUF:Q8_0"), {"hf download some.body/tiny-GGUF --include '*Q8_0*.gguf'"});
  ExpectError(WithHub("some.body/tiny-GGUF"), {"hf download some.body/tiny-GGUF --include '*Q4_K_M*.gguf'"});
  EXPECT_FALSE(fs::exists(Calls()));
}

TEST_F(HubTest, WhatWasDownloadedBeforeRuns) {
  AddSnapshot("tiny-Q8_0.gguf", "b1");
  ExpectRuns(WithHub("some.body/tiny-GGUF"));
  ExpectRuns(WithHub("some.body/tiny-GGUF:tiny-Q8_0.gguf"));
  ExpectRuns(WithHub("some.body/tiny-GGUF:q8_0"));
  AddSnapshot("mmproj-tiny-F16.gguf", "b2");           // an encoder is no model
  AddSnapshot("tiny-Q4_0.gguf", "b3", "bbbb");         // an older revision's
  AddSnapshot("deep/tiny-00002-of-00002.gguf", "b4");  // a part that is not the first
  ExpectRuns(WithHub("some.body/tiny-GGUF"));
  AddSnapshot("deep/tiny-Q8_0_L.gguf", "b5");
  ExpectRuns(WithHub("some.body/tiny-GGUF:Q8_0"));
  ExpectRuns(WithHub("some.body/tiny-GGUF:deep/tiny-Q8_0_L.gguf"));
  ExpectError(WithHub("some.body/tiny-GGUF"), {"deep/tiny-Q8_0_L.gguf, tiny-Q8_0.gguf", "name one"});
  ExpectError(WithHub("some.body/tiny-GGUF:Q4_0"), {"hf download"});
  const RunResult plan = Run({"plan", "-hf", "some.body/tiny-GGUF:Q8_0", "--pot", "32"});
  EXPECT_NE(plan.out.find("snapshots/aaaa/tiny-Q8_0.gguf"), std::string::npos) << plan.err << plan.out;
}

TEST_F(HubTest, LlamaCppsCacheToo) {
  fs::copy_file(ModelPath("llama"), dir_.File("llama/some.body_tiny-GGUF_tiny-Q8_0.gguf"));
  ExpectRuns(WithHub("some.body/tiny-GGUF:tiny-Q8_0.gguf"));
  ExpectRuns(WithHub("some.body/tiny-GGUF:Q8_0"));
  ExpectError(WithHub("some.body/tiny:Q8_0"), {"hf download"});
}

TEST_F(HubTest, TheToolDownloadsWhenAsked) {
  const std::string folder = dir_.File("hub") + "/models--some.body--tiny-GGUF";
  const auto copies_to = [&](const std::string& blob) {
    return "set -e\nd='" + folder + "'\nmkdir -p $d/blobs $d/refs $d/snapshots/aaaa\ncp '" + ModelPath("llama") +
           "' $d/blobs/m\nb=" + blob + "\nmv $d/blobs/m $d/blobs/$b\nln -sf ../../blobs/$b $d/snapshots/aaaa/$4\n" +
           "printf aaaa > $d/refs/main\necho $d/snapshots/aaaa/$4\n";
  };
  MakeTool(copies_to("$(sha256sum $d/blobs/m | cut -c1-64)").replace(0, 0, "set -- x $@\n"));
  const Arguments wanted = WithHub("some.body/tiny-GGUF:tiny-Q8_0.gguf", {"--hf-download"});
  ExpectRuns(wanted);
  EXPECT_EQ(ReadAll(Calls()), "download some.body/tiny-GGUF tiny-Q8_0.gguf\n");
  ExpectRuns(wanted);  // it is there now
  EXPECT_EQ(ReadAll(Calls()), "download some.body/tiny-GGUF tiny-Q8_0.gguf\n");
  fs::remove_all(folder);
  MakeTool(copies_to(std::string(64, 'a')).replace(0, 0, "set -- x $@\n"));
  ExpectError(wanted, {"SHA-256", std::string(64, 'a').c_str(), "delete"}, /*before=*/true);
}

// All parts of a model are asked for, and their checksums compared.
TEST_F(HubTest, ModelsInParts) {
  fs::create_directories(dir_.File("hub"));
  const std::string first = "tiny-00001-of-00002.gguf", second = "tiny-00002-of-00002.gguf";
  const Arguments wanted = WithHub("some.body/tiny-GGUF:" + first, {"--hf-download"});
  const std::string folder = dir_.File("hub") + "/models--some.body--tiny-GGUF";
  MakeTool("set -e\nd='" + folder + "'\nmkdir -p $d/blobs $d/refs $d/snapshots/aaaa\ncp '" + ModelPath("llama") +
           "' $d/blobs/m\nb=$(sha256sum $d/blobs/m | cut -c1-64)\nmv $d/blobs/m $d/blobs/$b\nbad=" +
           std::string(64, 'b') + "\necho other > $d/blobs/$bad\nln -sf ../../blobs/$b $d/snapshots/aaaa/" + first +
           "\nln -sf ../../blobs/$bad $d/snapshots/aaaa/" + second + "\nprintf aaaa > $d/refs/main\n");
  ExpectError(wanted, {"SHA-256", second.c_str(), std::string(64, 'b').c_str()}, /*before=*/true);
  EXPECT_EQ(ReadAll(Calls()), "download some.body/tiny-GGUF " + first + " " + second + "\n");
}

TEST_F(HubTest, NamesToolsAndDownloadsThatFail) {
  const Arguments wanted = WithHub("some.body/tiny-GGUF:tiny-Q8_0.gguf", {"--hf-download"});
  setenv("PATH", dir_.File("bin").c_str(), 1);
  ExpectError(wanted, {"cannot run `hf download some.body/tiny-GGUF tiny-Q8_0.gguf`", "huggingface_hub"}, true);
  setenv("PATH", (dir_.File("bin") + ":/usr/bin:/bin").c_str(), 1);
  MakeTool("echo no network >&2\nexit 3\n");
  ExpectError(wanted, {"ended with status 3"}, true);
  MakeTool("exit 0\n");
  ExpectError(wanted, {"brought no such file", "https://huggingface.co/some.body/tiny-GGUF"}, true);
  for (const char* name : {"tiny", "/tiny", "a/b/c", "-a/b", "a/..", "../b", "a/b:", "a/b:../c.gguf", "a/b:/etc/c.gguf",
                           "a/b:-x.gguf", "a/b:c//d.gguf", "a/b c", ""}) {
    ExpectError(WithHub(name), {"-hf", "OWNER/NAME"});
  }
  ExpectError(RunTiny({"-hf", "a/b"}), {"--hf-repo", "--model"});
  ExpectError(RunTiny({"--hf-download"}), {"--hf-repo"});
  ExpectError({"run", "-p", "the"}, {"--model is required"});
  ExpectError(RunTiny({"-hff", "x.gguf"}), {"-hff", "OWNER/NAME:FILE"});
}

}  // namespace
}  // namespace weir::testing
