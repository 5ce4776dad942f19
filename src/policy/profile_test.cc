// SPDX-License-Identifier: Apache-2.0
#include "policy/profile.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "policy/policy.h"

namespace weir {
namespace {

std::string Valid(const std::string& options = R"({"recent": 32, "b": 0.001})", const std::string& more = "") {
  return R"({"format":"weir-profile-1","policy":"inf_mllm","model":"M","pot":512,"options":)" + options + more + "}";
}

class ProfileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/weir-profile-XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    dir_ = path;
  }
  void TearDown() override {
    for (const std::string& file : files_) std::remove(file.c_str());
    rmdir(dir_.c_str());
  }
  std::string File(const std::string& name) {
    files_.push_back(dir_ + "/" + name);
    return files_.back();
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = File(name);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string dir_;
  std::vector<std::string> files_;
};

TEST_F(ProfileTest, WhatIsWrittenIsRead) {
  Profile profile;
  profile.policy = "infinipot";
  profile.model = "A \"model\" of \xc3\x84";
  profile.pot = 512;
  profile.options = {{"alpha", 0.1}, {"kernel", 5.0}, {"catalyst", std::string("what, \"if\"\n\\ {question}")}};
  profile.seed = 0xffffffffffffffffu;
  profile.kept_found = true;
  profile.tasks = {{"objective", 1.5, 0.25, 1.25, 0.125, 0.25, 0.0625}};
  const std::string path = File("p.json");
  ASSERT_TRUE(WriteProfile(path, profile).ok());
  EXPECT_NE(access((path + ".part").c_str(), F_OK), 0);
  const auto read = ReadProfile(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->policy, profile.policy);
  EXPECT_EQ(read->model, profile.model);
  EXPECT_EQ(read->pot, 512);
  EXPECT_EQ(read->options, profile.options);
  EXPECT_EQ(read->seed, profile.seed);
  EXPECT_TRUE(read->kept_found);
  ASSERT_EQ(read->tasks.size(), 1u);
  EXPECT_EQ(read->tasks[0].name, "objective");
  EXPECT_EQ(read->tasks[0].found_stderr, 0.125);
  EXPECT_EQ(read->tasks[0].gain, 0.25);
  EXPECT_NE(ProfileText(profile).find("A \\\"model\\\" of \xc3\x84\""), std::string::npos) << ProfileText(profile);
  EXPECT_NE(ProfileText(profile).find("\n    \"kernel\": 5\n  },\n"), std::string::npos) << ProfileText(profile);
}

TEST_F(ProfileTest, AnOldProfileIsReplacedOnlyByAWholeOne) {
  const std::string path = Write("p.json", "old");
  Profile profile;
  profile.pot = 1;
  profile.options["catalyst"] = std::string(static_cast<size_t>(kMaxProfileBytes), 'x');
  EXPECT_EQ(WriteProfile(path, profile).code(), StatusCode::kInvalidArgument);
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_EQ(text.str(), "old");
  EXPECT_EQ(WriteProfile(dir_ + "/no/p.json", {}).code(), StatusCode::kIo);
  EXPECT_EQ(WriteProfile(dir_, {}).code(), StatusCode::kIo);
  EXPECT_NE(access((dir_ + ".part").c_str(), F_OK), 0);
}

TEST_F(ProfileTest, RefusesWhatIsNoProfile) {
  ASSERT_TRUE(ParseProfile(Valid(), "x").ok()) << ParseProfile(Valid(), "x").status().message();
  const std::string deep(20000, '[');
  for (const std::string& bad :
       {std::string(),
        std::string("[]"),
        std::string("{"),
        Valid() + "x",
        deep,
        std::string("\xff\xfe"),
        Valid("[]"),
        Valid(R"({"b":null})"),
        Valid(R"({"b":true})"),
        Valid(R"({"b":[1]})"),
        Valid(R"({"b":1e999})"),
        Valid("{}", R"(,"seed":-1)"),
        Valid("{}", R"(,"seed":1.5)"),
        Valid("{}", R"(,"kept":"maybe")"),
        Valid("{}", R"(,"surprise":1)"),
        Valid("{}", R"(,"tasks":[])"),
        Valid("{}", R"(,"tasks":{"a":1})"),
        Valid("{}", R"(,"tasks":{"a":{"default":1}})"),
        Valid("{}", R"(,"pot":0)"),
        Valid("{}", R"(,"pot":-4)"),
        Valid("{}", R"(,"pot":2147483648)"),
        Valid("{}", R"(,"pot":"512")"),
        Valid("{}", R"(,"policy":7)"),
        std::string(R"({"format":"weir-profile-1","policy":"inf_mllm","model":"M","options":{}})"),
        std::string(R"({"format":"weir-profile-1","policy":"inf_mllm","pot":1,"options":{}})"),
        Valid() + std::string(static_cast<size_t>(kMaxProfileBytes), ' ')}) {
    EXPECT_EQ(ParseProfile(bad, "x").status().code(), StatusCode::kCorrupt) << bad.substr(0, 200);
  }
  EXPECT_EQ(ParseProfile(R"({"format":"weir-profile-9"})", "x").status().code(), StatusCode::kUnsupported);
}

TEST_F(ProfileTest, RefusesWhatIsNoFile) {
  EXPECT_EQ(ReadProfile(dir_ + "/none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadProfile(dir_).status().code(), StatusCode::kIo);
  EXPECT_EQ(ReadProfile("/dev/zero").status().code(), StatusCode::kIo);
  const std::string pipe = File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(ReadProfile(pipe).status().code(), StatusCode::kIo);
  const std::string large = Write("large", Valid() + std::string(1 << 20, ' '));
  EXPECT_EQ(ReadProfile(large).status().code(), StatusCode::kCorrupt);
}

TEST_F(ProfileTest, PoliciesTakeTheirOptionsFromIt) {
  const std::string path = Write("a, \"b\".json", Valid());
  const std::string quoted = "\"" + dir_ + "/a, \\\"b\\\".json\"";
  auto spec = ParsePolicySpec("inf_mllm:profile=" + quoted);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->text, "inf_mllm:recent=32,b=0.001,bias=fixed,old=0.05,votes=last,per_kv_head=off,capacity=0,step=0");
  EXPECT_EQ(spec->options.Int("recent"), 32);
  EXPECT_EQ(spec->profile, path);
  EXPECT_EQ(spec->profile_model, "M");
  EXPECT_EQ(spec->profile_pot, 512);
  EXPECT_TRUE(spec->given.empty());
  // The user's options win, on either side.
  for (const std::string& text : {"inf_mllm:recent=8,profile=" + quoted, "inf_mllm:profile=" + quoted + ",recent=8"}) {
    spec = ParsePolicySpec(text);
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    EXPECT_EQ(spec->text, "inf_mllm:recent=8,b=0.001,bias=fixed,old=0.05,votes=last,per_kv_head=off,capacity=0,step=0");
    EXPECT_EQ(spec->given, std::set<std::string>{"recent"});
  }
  // Another option is of the same profile still.
  const auto changed = WithOption(*ParsePolicySpec("inf_mllm:profile=" + quoted), "old", "0.1");
  ASSERT_TRUE(changed.ok()) << changed.status().message();
  EXPECT_EQ(changed->profile, path);
  EXPECT_EQ(changed->profile_model, "M");
  EXPECT_EQ(changed->profile_pot, 512);
  // The normalised text needs no file.
  EXPECT_EQ(ParsePolicySpec(spec->text)->text, spec->text);
  EXPECT_EQ(ParsePolicySpec(spec->text, Profiles::kRefused)->text, spec->text);
  for (const std::string& text : {"inf_mllm:profile=" + quoted, std::string("inf_mllm:recent=8,profile=/none")}) {
    EXPECT_EQ(ParsePolicySpec(text, Profiles::kRefused).status().code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_TRUE(ParsePolicySpec("infinipot:catalyst=\"the profile=here\"", Profiles::kRefused).ok());
}

TEST_F(ProfileTest, PoliciesRefuseWhatDoesNotFit) {
  const std::string path = Write("p.json", Valid());
  EXPECT_EQ(ParsePolicySpec("inf_mllm:profile=" + path + "x").status().code(), StatusCode::kNotFound);
  for (const std::string& bad : {"infinipot:profile=" + path, "inf_mllm:profile=" + path + ",profile=" + path,
                                 std::string("inf_mllm:profile="), std::string("inf_mllm:profile=\"\"")}) {
    EXPECT_EQ(ParsePolicySpec(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
  for (const char* options :
       {R"({"recents":1})", R"({"recent":1.5})", R"({"recent":0})", R"({"recent":"32"})", R"({"per_kv_head":1})",
        R"({"per_kv_head":"maybe"})", R"({"b":-1})", R"({"profile":"p.json"})"}) {
    const auto spec = ParsePolicySpec("inf_mllm:profile=" + Write("bad.json", Valid(options)));
    EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument) << options;
    EXPECT_NE(spec.status().message().find("bad.json"), std::string::npos) << spec.status().message();
  }
  Write("bad.json",
        R"({"format":"weir-profile-1","policy":"infinipot","model":"M","pot":1,"options":{"catalyst":"a\u0000b"}})");
  EXPECT_FALSE(ParsePolicySpec("infinipot:profile=" + dir_ + "/bad.json").ok());
}

TEST(SearchValues, AreAllowedAndNoOptionIsCalledProfile) {
  int n_searched = 0;
  for (const PolicyInfo* info : AllPolicyInfos()) {
    const auto spec = ParsePolicySpec(info->name);
    ASSERT_TRUE(spec.ok());
    for (const PolicyOptionInfo& option : info->options) {
      EXPECT_STRNE(option.key, "profile") << info->name;
      if (option.tune == nullptr) continue;
      ++n_searched;
      std::stringstream values(option.tune);
      int n = 0;
      for (std::string value; std::getline(values, value, '|'); ++n) {
        const auto changed = WithOption(*spec, option.key, value);
        ASSERT_TRUE(changed.ok()) << info->name << ": " << changed.status().message();
        EXPECT_TRUE(changed->Make().ok()) << changed->text;
        EXPECT_EQ(OptionText(*changed, option), value) << info->name;
      }
      EXPECT_GE(n, 2) << info->name << ": " << option.key;
    }
  }
  EXPECT_GE(n_searched, 10);
}

TEST(WithOption, ChangesOneAndChecksIt) {
  const auto spec = ParsePolicySpec("infinipot:alpha=0.25,catalyst=\"a, b\"");
  ASSERT_TRUE(spec.ok());
  const auto changed = WithOption(*spec, "ratio", "0.75");
  ASSERT_TRUE(changed.ok()) << changed.status().message();
  EXPECT_EQ(changed->options.Number("ratio"), 0.75);
  EXPECT_EQ(changed->options.Number("alpha"), 0.25);
  EXPECT_EQ(changed->options.Text("catalyst"), "a, b");
  EXPECT_EQ(changed->given, (std::set<std::string>{"alpha", "catalyst"}));
  for (const char* bad : {"2", "", "0.75,alpha=1", "x"}) EXPECT_FALSE(WithOption(*spec, "ratio", bad).ok()) << bad;
  EXPECT_FALSE(WithOption(*spec, "ratios", "0.75").ok());
}

}  // namespace
}  // namespace weir
