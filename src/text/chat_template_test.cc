// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/build_paths.h"
#include "text/vocab_test_util.h"

namespace weir {
namespace {

nlohmann::json Golden() {
  std::ifstream in(SourceDir() + "/tests/golden/template/cases.json");
  return nlohmann::json::parse(in);
}

std::vector<ChatMessage> Messages(const nlohmann::json& list) {
  std::vector<ChatMessage> out;
  for (const auto& m : list) out.push_back({m["role"], m["content"]});
  return out;
}

TEST(ChatTemplate, RendersWhatJinjaRenders) {
  const auto golden = Golden();
  int n = 0;
  for (const auto& format : golden["formats"]) {
    const std::string name = format["name"];
    auto chat = ChatTemplate::Detect(format["jinja"].get<std::string>(), golden["bos"], golden["eos"]);
    ASSERT_TRUE(chat.ok()) << name << ": " << chat.status().message();
    EXPECT_EQ(chat->name(), name);
    for (const auto& c : format["cases"]) {
      const auto pieces = chat->Render(Messages(c["messages"]), c["generation"]);
      if (c["text"].is_null()) {
        EXPECT_FALSE(pieces.ok()) << name << " " << c;
        continue;
      }
      ASSERT_TRUE(pieces.ok()) << name << ": " << pieces.status().message();
      EXPECT_EQ(JoinPieces(*pieces), c["text"].get<std::string>()) << name << " " << c["messages"];
      ++n;
    }
  }
  EXPECT_GT(n, 200);
}

// The native formats are a short cut: the programs themselves, run, print the same bytes.
TEST(ChatTemplate, KnownFormatsAreTheirProgramsRun) {
  const auto golden = Golden();
  int n = 0;
  for (const auto& format : golden["formats"]) {
    const std::string name = format["name"];
    const auto program =
        ChatProgram::Make(format["jinja"].get<std::string>(), {golden["bos"], golden["eos"], {golden["eos"]}}, "");
    ASSERT_TRUE(program.ok()) << name << ": " << program.status().message();
    for (const auto& c : format["cases"]) {
      const auto pieces = program->Render(Messages(c["messages"]), c["generation"]);
      EXPECT_EQ(pieces.ok(), !c["text"].is_null()) << name << c;
      if (!pieces.ok()) continue;
      EXPECT_EQ(JoinPieces(*pieces), c["text"].get<std::string>()) << name << " " << c["messages"];
      ++n;
    }
  }
  EXPECT_GT(n, 200);
}

constexpr char kOdd[] =
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ '[sys]' + messages[0].content | trim + '[/sys]' }}"
    "{% set messages = messages[1:] %}{% endif %}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content | trim }}"
    "{{ '<|done|>\n' if m.role == 'assistant' else '<|over|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if quick is true %}<|fast|>{% endif %}{% endif %}";

TEST(ChatTemplate, AnyOtherProgramIsRun) {
  const ChatWords words = {"<s>", "</s>", {"</s>", "<|done|>"}};
  const auto chat = ChatTemplate::Detect(kOdd, words);
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_EQ(chat->name(), "jinja");
  EXPECT_TRUE(chat->includes_bos());
  EXPECT_TRUE(chat->Reads("quick"));
  const std::vector<ChatMessage> messages = {{"system", " Be brief. "}, {"user", "<|over|>One?"}};
  const auto pieces = chat->Render(messages, true);
  ASSERT_TRUE(pieces.ok()) << pieces.status().message();
  EXPECT_EQ(JoinPieces(*pieces), "<s>[sys]Be brief.[/sys]<|user|><|over|>One?<|over|>\n<|assistant|>");
  std::string contents;
  for (const TextPiece& piece : *pieces) contents += piece.parse_special ? "" : piece.text;
  EXPECT_EQ(contents, "Be brief.<|over|>One?") << "a role builds control tokens, a content does not";
  const auto quick = chat->Render(messages, true, {.named = "{\"quick\": true}", .tools = ""});
  ASSERT_TRUE(quick.ok());
  EXPECT_EQ(JoinPieces(*quick), JoinPieces(*pieces) + "<|fast|>");
  const auto always = ChatTemplate::Detect(kOdd, words, "{\"quick\": true}");
  ASSERT_TRUE(always.ok());
  EXPECT_EQ(JoinPieces(*always->Render(messages, true)), JoinPieces(*quick));
  EXPECT_FALSE(ChatTemplate::Detect(kOdd, words, "[1]").ok());
  EXPECT_FALSE(
      ChatTemplate::FromName("chatml", "", "")->Render(messages, true, {.named = "{\"a\": 1}", .tools = ""}).ok());
}

// Turn by turn it is the same text as the whole conversation.
TEST(ChatRounds, AProgramThatIsRunIsSplitAtItsTurns) {
  const std::string no_system =
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
      "{{ m.role[0] ~ ': ' ~ m.content }}{{ '\n' if m.role == 'user' else eos_token }}{% endfor %}"
      "{% if add_generation_prompt %}a: {% endif %}";
  for (const std::string& source : {std::string(kOdd), no_system}) {
    const auto chat = ChatTemplate::Detect(source, ChatWords{"<s>", "</s>", {"</s>", "<|done|>"}});
    ASSERT_TRUE(chat.ok()) << chat.status().message();
    for (const bool with_system : {false, true}) {
      ChatRounds rounds(*chat);
      std::vector<ChatMessage> messages;
      std::optional<std::string> system;
      if (with_system) system = "Be brief.";
      if (with_system) messages.push_back({"system", *system});
      std::string joined = JoinPieces(rounds.System(system));
      for (const char* user : {"one", "two", "three"}) {
        messages.push_back({"user", user});
        joined += JoinPieces(rounds.User(user));
        if (!with_system || source != no_system) {
          EXPECT_EQ(joined, JoinPieces(*chat->Render(messages, true)));
        } else {  // it has no place of its own: it is in front of the first user's words
          EXPECT_TRUE(joined.starts_with("u: Be brief.\n\none\na: ")) << joined;
        }
        messages.push_back({"assistant", "yes"});
        joined += "yes" + JoinPieces(rounds.EndAnswer(false));
      }
      const std::string end = source == no_system ? "" : "\n";
      EXPECT_EQ(JoinPieces(rounds.EndAnswer(true)), end) << "what follows the end token that the model wrote";
    }
  }
}

// Only messages may hold users' text, and none of it may be in a piece that parses control tokens.
TEST(ChatTemplate, MessagesAreNeverParsed) {
  const auto golden = Golden();
  for (const auto& format : golden["formats"]) {
    auto chat = ChatTemplate::Detect(format["jinja"].get<std::string>(), golden["bos"], golden["eos"]);
    ASSERT_TRUE(chat.ok());
    const auto pieces = chat->Render(
        {{"system", "SYS<|im_end|>"}, {"user", "USR[/INST]</s>"}, {"assistant", "ANS{eos}"}, {"user", "END"}}, true);
    ASSERT_TRUE(pieces.ok()) << pieces.status().message();
    std::string contents;
    for (const TextPiece& p : *pieces) {
      if (!p.parse_special) contents += p.text;
      for (const char* mine : {"SYS", "USR", "ANS", "END"}) {
        // "[SYSTEM_PROMPT]" and "<<SYS>>" are the formats' own.
        if (p.parse_special && std::string(mine) != "SYS") {
          EXPECT_EQ(p.text.find(mine), std::string::npos) << p.text;
        }
      }
    }
    EXPECT_NE(contents.find("SYS<|im_end|>"), std::string::npos);
    EXPECT_NE(contents.find("USR[/INST]</s>ANS{eos}"), std::string::npos);
  }
}

TEST(ChatRounds, JoinedAreTheWholeRendering) {
  const auto golden = Golden();
  for (const auto& format : golden["formats"]) {
    const std::string name = format["name"];
    auto chat = ChatTemplate::Detect(format["jinja"].get<std::string>(), golden["bos"], golden["eos"]);
    ASSERT_TRUE(chat.ok());
    if (name == "deepseek-r1")
      continue;  // the prompt for an answer begins with reasoning, which no later rendering
                 // has
    for (const bool with_system : {false, true}) {
      // These formats move the system text to the last user message, which a stream cannot do.
      if (with_system && name.rfind("mistral-v3", 0) == 0) continue;
      std::vector<ChatMessage> messages;
      ChatRounds rounds(*chat);
      std::optional<std::string> system;
      if (with_system) {
        system = "Be brief.";
        messages.push_back({"system", *system});
      }
      std::string joined = JoinPieces(rounds.System(system));
      for (const char* user : {"one", "two", "three"}) {
        messages.push_back({"user", user});
        joined += JoinPieces(rounds.User(user));
        const auto whole = chat->Render(messages, true);
        ASSERT_TRUE(whole.ok());
        EXPECT_EQ(joined, JoinPieces(*whole)) << name;
        // Formats without a generation prompt leave the space before the answer to the model.
        const std::string answer = std::string("yes, ") + user;
        const auto empty = chat->Render({{"user", "u"}}, true),
                   asked = chat->Render({{"user", "u"}, {"assistant", "X"}}, true);
        const std::string lead = JoinPieces(*asked).substr(JoinPieces(*empty).size());
        joined += lead.substr(0, lead.find('X')) + answer + JoinPieces(rounds.EndAnswer(false));
        messages.push_back({"assistant", answer});
      }
    }
  }
}

// A turn without its content is the text around it, wherever the turn is.
TEST(ChatRounds, ATurnIsSplitAtItsContent) {
  const auto golden = Golden();
  for (const auto& format : golden["formats"]) {
    auto chat = ChatTemplate::Detect(format["jinja"].get<std::string>(), golden["bos"], golden["eos"]);
    ASSERT_TRUE(chat.ok());
    for (const std::optional<std::string>& system : {std::optional<std::string>(), std::optional<std::string>("SYS")}) {
      ChatRounds whole(*chat), split(*chat);
      (void)whole.System(system);
      (void)split.System(system);
      for (int turn = 0; turn < 3; ++turn) {
        const AroundContent around = split.Turn();
        EXPECT_EQ(JoinPieces(around.before) + "USR" + JoinPieces(around.after), JoinPieces(whole.User("USR")))
            << format["name"] << ", turn " << turn;
      }
    }
  }
}

TEST(SplitAtContent, ATemplateThatLosesTheContentIsAnError) {
  const std::vector<TextPiece> kept = {{"<user>text", true}, {"text", false}, {"<end>", true}},
                               lost = {{"<user>text", true}, {"another", false}, {"<end>", true}};
  const auto around = SplitAtContent(kept, "text");
  ASSERT_TRUE(around.ok());
  EXPECT_EQ(JoinPieces(around->before), "<user>text");
  EXPECT_EQ(JoinPieces(around->after), "<end>");
  EXPECT_EQ(SplitAtContent(lost, "text").status().code(), StatusCode::kInternal);
  EXPECT_FALSE(SplitAtContent({}, "text").ok());
}

TEST(ChatRounds, LeavesOutAnEndTokenThatWasRead) {
  auto chat = ChatTemplate::FromName("chatml", "", "");
  ASSERT_TRUE(chat.ok());
  ChatRounds rounds(*chat);
  EXPECT_EQ(JoinPieces(rounds.EndAnswer(true)), "\n");
  EXPECT_EQ(JoinPieces(rounds.EndAnswer(false)), "<|im_end|>\n");
}

TEST(ChatTemplate, ThoughtsThatAreAChoiceAreNotDeepSeekR1) {
  EXPECT_FALSE(
      ChatTemplate::Detect("{{'<｜Assistant｜>'}}{%- if not thinking %}{{'</think>'}}{% endif %}", "", "").ok());
}

TEST(ChatTemplate, Phi4WithAFixedSystemTextIsNotPhi4) {
  EXPECT_FALSE(ChatTemplate::Detect("<|im_start|>system<|im_sep|>You are Phi, a language model", "", "").ok());
}

TEST(ChatTemplate, NoneIsTheTextAlone) {
  auto chat = ChatTemplate::FromName("none", "<s>", "</s>");
  ASSERT_TRUE(chat.ok());
  const auto pieces = chat->Render({{"user", "Once upon a time"}}, true);
  ASSERT_TRUE(pieces.ok());
  EXPECT_EQ(JoinPieces(*pieces), "Once upon a time");
  EXPECT_FALSE(chat->includes_bos());
}

TEST(ChatTemplate, UnknownOnesSayWhatIsKnown) {
  const auto by_name = ChatTemplate::FromName("chatmi", "", "");
  ASSERT_FALSE(by_name.ok());
  const auto by_program = ChatTemplate::Detect("{% for m in messages %}{{ m.secret_sauce }}{% endfor %}", "", "");
  ASSERT_FALSE(by_program.ok());
  for (const auto& status : {by_name.status(), by_program.status()}) {
    EXPECT_NE(status.message().find("--chat-template"), std::string::npos);
    for (const char* name : {"chatml", "smollm2", "llama2", "llama3", "vicuna", "mistral", "zephyr", "gemma", "phi3",
                             "deepseek2", "deepseek-r1", "none"}) {
      EXPECT_NE(status.message().find(name), std::string::npos) << name;
      EXPECT_TRUE(ChatTemplate::FromName(name, "", "").ok()) << name;
    }
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
  EXPECT_FALSE(ChatTemplate::FromName("llama2", "", "")->Render({}, true).ok());
  EXPECT_FALSE(ChatTemplate::FromName("llama2", "", "")->Render({{"tool", "x"}}, true).ok());
}

TEST(ChatTemplate, ControlTokensOfUsersStayText) {
  testing::MetadataBuilder b;
  std::vector<std::string> tokens = {"<|im_start|>", "<|im_end|>"};
  std::vector<int32_t> types = {3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(testing::SpellBytes(std::string(1, static_cast<char>(byte))));
    types.push_back(1);
  }
  b.Add("tokenizer.ggml.model", "gpt2").Add("tokenizer.ggml.pre", "smollm").Add("tokenizer.ggml.tokens", tokens);
  b.Add("tokenizer.ggml.token_type", types).Add("tokenizer.ggml.merges", std::vector<std::string>{});
  b.Add("tokenizer.ggml.bos_token_id", 0).Add("tokenizer.ggml.eos_token_id", 1);
  b.Add("tokenizer.chat_template", "{{ '<|im_start|>' }}");
  const std::vector<uint8_t> bytes = b.Build();
  const auto file = GgufFile::Parse(bytes, "memory");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto tokenizer = Tokenizer::Load(**file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto chat = ChatTemplate::ForFile(**file, **tokenizer, "");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  const auto pieces = chat->Render({{"user", "<|im_end|>"}}, true);
  ASSERT_TRUE(pieces.ok());
  const auto ids = (*tokenizer)->EncodePieces(*pieces, !chat->includes_bos());
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 0), 2);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 1);
  EXPECT_EQ((*tokenizer)->Decode(ids, true), JoinPieces(*pieces));
  EXPECT_EQ((*tokenizer)->Decode(ids), "user\n<|im_end|>\nassistant\n");
}

}  // namespace
}  // namespace weir
