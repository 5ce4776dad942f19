// SPDX-License-Identifier: Apache-2.0
#include "eval/picture_questions.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

std::vector<PictureQuestion> Parse(const std::string& jsonl) {
  auto parsed = ParsePictureQuestions(jsonl, "folder");
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.ok() ? *parsed : std::vector<PictureQuestion>();
}

TEST(PictureQuestionsTest, EasyVqaAndListsOfAnswers) {
  const auto questions = Parse(R"({"image": "images/0.png", "question": "what is it?", "answer": "triangle"}

{"images": ["a.png", "b.png"], "question": "same?", "answers": ["no", "nope"], "source": 5}
)");
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[0].pictures, std::vector<std::string>{"folder/images/0.png"});
  EXPECT_EQ(questions[0].answers, std::vector<std::string>{"triangle"});
  EXPECT_EQ(questions[0].kind, "present");
  EXPECT_EQ(questions[1].pictures.size(), 2u);
  EXPECT_EQ(questions[1].answers.size(), 2u);
  EXPECT_EQ(questions[1].clip, 1);
}

TEST(PictureQuestionsTest, StreamsOfClips) {
  const auto questions = Parse(
      R"({"stream": 0, "clip": 0, "frames": ["0.ppm"], "lead": "Clip 1:", "question": "a?", "answer": "x", "kind": "present", "distance": 0}
{"stream": 0, "clip": 0, "frames": [], "question": "b?", "answer": "y"}
{"stream": 0, "frames": ["1.ppm"], "question": "c?", "answer": "z", "kind": "back", "distance": 1}
{"stream": 0, "question": "d?", "answer": "z", "distance": 1, "aside": true}
{"stream": 1, "frames": ["2.ppm"], "question": "e?", "answer": "z"}
)");
  ASSERT_EQ(questions.size(), 5u);
  EXPECT_EQ(questions[0].lead, "Clip 1:");
  EXPECT_EQ(questions[1].clip, 0);
  EXPECT_EQ(questions[2].clip, 1);
  EXPECT_EQ(questions[2].kind, "back");
  EXPECT_EQ(questions[3].kind, "memory");
  EXPECT_EQ(questions[3].clip, 1);
  EXPECT_TRUE(questions[3].aside);
  EXPECT_EQ(questions[4].clip, 0);
  const auto streams = SplitStreams(questions);
  ASSERT_EQ(streams.size(), 2u);
  EXPECT_EQ(streams[0].size(), 4u);
  EXPECT_EQ(streams[1].front().question, "e?");
}

TEST(PictureQuestionsTest, WhatIsNoQuestionIsRefusedWithItsLine) {
  const std::string good = R"({"image": "a.png", "question": "q", "answer": "a"})";
  const char* const kBad[] = {
      R"({"image": "a.png", "question": "q"})",
      R"({"image": "a.png", "answer": "a"})",
      R"({"image": "a.png", "question": "q", "answers": []})",
      R"({"image": "a.png", "question": "q", "answers": [1]})",
      R"({"image": 5, "question": "q", "answer": "a"})",
      R"({"image": {"a": 1}, "question": "q", "answer": "a"})",
      R"({"image": "a.png", "question": "q", "answer": "a", "distance": -1})",
      R"({"image": "a.png", "question": "q", "answer": "a", "clip": 1e300})",
      R"({"image": "a.png", "question": "q", "answer": "a", "distance": 18446744073709551615})",
      R"({"image": "a.png", "question": "q", "answer": "a", "aside": "yes"})",
      R"({"image": "/etc/passwd", "question": "q", "answer": "a"})",
      R"({"image": "../a.png", "question": "q", "answer": "a"})",
      R"({"image": "b/../../a.png", "question": "q", "answer": "a"})",
      R"({"image": "rtsp://host/a", "question": "q", "answer": "a"})",
      R"({"image": "", "question": "q", "answer": "a"})",
      R"({"stream": 7, "question": "q", "answer": "a"})",
      R"(["image"])",
      R"({"image": "a.png")",
  };
  for (const char* bad : kBad) {
    const auto parsed = ParsePictureQuestions(good + "\n" + bad + "\n", "folder");
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.status().code(), StatusCode::kCorrupt);
    EXPECT_NE(parsed.status().message().find("line 2"), std::string::npos) << parsed.status().message();
  }
  EXPECT_FALSE(ParsePictureQuestions("\n\n", "folder").ok());
  // Nested too deeply for a recursive parser's stack.
  for (const char* key : {"answers", "images"}) {
    const std::string deep = std::string(200000, '[') + std::string(200000, ']');
    const std::string line =
        std::string(R"({"image": "a.png", "question": "q", "answer": "a", ")") + key + "\": " + deep + "}";
    EXPECT_EQ(ParsePictureQuestions(line, "folder").status().code(), StatusCode::kCorrupt) << key;
  }
  EXPECT_TRUE(ParsePictureQuestions(R"({"image": "..a/b..png", "question": "q", "answer": "a"})", "folder").ok());
}

}  // namespace
}  // namespace weir
