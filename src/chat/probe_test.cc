// SPDX-License-Identifier: Apache-2.0
// In every chat template a probe follows the text like a user's words: untrimmed, and with the template's words after
// it.
#include "chat/probe.h"

#include <gtest/gtest.h>

#include "support/loaded.h"

namespace weir {
namespace {

class ProbeTest : public testing::TinyLlamaTest {
 protected:
  std::vector<int32_t> Plain(const std::string& text) const {
    return tokenizer().EncodePieces(std::vector<TextPiece>{{text, false}}, false);
  }
  std::vector<int32_t> Probe(const std::string& catalyst, const ChatTemplate* chat, std::string_view question = "") {
    PolicyNeeds needs;
    needs.evidence.rows = EvidenceRows::kProbe;
    needs.probe = catalyst;
    needs.probe_in_template = true;
    auto probe = ProbeTokens(needs, tokenizer(), chat, question);
    EXPECT_TRUE(probe.ok()) << probe.status().message();
    return probe.ok() ? *probe : std::vector<int32_t>();
  }
};

bool BeginsWith(const std::vector<int32_t>& all, const std::vector<int32_t>& head) {
  return all.size() >= head.size() && std::equal(head.begin(), head.end(), all.begin());
}

TEST_F(ProbeTest, EveryTemplateLeavesItWhole) {
  for (const char* name : {"chatml",      "llama2",     "llama3",
                           "llama3.1",    "vicuna",     "vicuna-newline",
                           "mistral-v1",  "mistral-v3", "mistral-v3-tekken",
                           "mistral-v7",  "zephyr",     "gemma",
                           "phi3",        "phi4",       "phi4-mini",
                           "deepseek2",   "deepseek",   "deepseek3",
                           "deepseek-r1", "smolvlm",    "none"}) {
    SCOPED_TRACE(name);
    const auto chat = ChatTemplate::FromName(name, "<s>", "</s>");
    ASSERT_TRUE(chat.ok()) << chat.status().message();
    // Templates trim user text; a probe is not user text.
    EXPECT_TRUE(BeginsWith(Probe("\n\nthe man and the sea ", &*chat), Plain("\n\nthe man and the sea ")));
    EXPECT_TRUE(BeginsWith(Probe("say {question}", &*chat, " the sea \n"), Plain("say  the sea \n")));
    // Without words of its own, a probe has nothing of a conversation's beginning.
    const auto turn = chat->Render({{"user", "text"}}, true);
    ASSERT_TRUE(turn.ok());
    const auto content = std::find_if(turn->begin(), turn->end(),
                                      [](const TextPiece& p) { return !p.parse_special && p.text == "text"; });
    ASSERT_NE(content, turn->end());
    const std::vector<TextPiece> tail(content + 1, turn->end());
    if (!tail.empty()) {
      EXPECT_EQ(Probe("{question}", &*chat), tokenizer().EncodePieces(tail, false));
    }
  }
}

TEST_F(ProbeTest, WithoutATemplateItIsItsWords) {
  EXPECT_EQ(Probe("the man", nullptr), Plain("the man"));
  PolicyNeeds needs;
  needs.evidence.rows = EvidenceRows::kProbe;
  EXPECT_EQ(ProbeTokens(needs, tokenizer(), nullptr, "").status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(ProbeTokens(PolicyNeeds(), tokenizer(), nullptr, "")->empty());
}

}  // namespace
}  // namespace weir
