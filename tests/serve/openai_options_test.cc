// SPDX-License-Identifier: Apache-2.0
// Options of a request beyond the plain answer: several answers, biases, penalties, log-likelihoods.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cli/edited_model.h"
#include "cli/process.h"
#include "serve/openai_client.h"

namespace weir::testing {
namespace {

class OpenAiOptionsTest : public OpenAiTest {};

TEST_F(OpenAiOptionsTest, SeveralAnswersToOnePrompt) {
  const Json hot = Hot({{"max_tokens", 16}});
  std::vector<std::string> want;
  for (int k = 0; k < 3; ++k) {
    Json one = hot;
    one["seed"] = 3 + k;
    want.push_back(TextOf(server_->Post("/v1/chat/completions", Chat(one))));
  }
  Json body = hot;
  body["n"] = 3;
  const Json three = server_->Post("/v1/chat/completions", Chat(body)).json();
  ASSERT_EQ(three["choices"].size(), 3u);
  for (size_t k = 0; k < 3; ++k) EXPECT_EQ(three["choices"][k]["message"]["content"], want[k]) << k;
  const Json one = server_->Post("/v1/chat/completions", Chat(hot)).json();
  EXPECT_EQ(three["usage"]["prompt_tokens"], one["usage"]["prompt_tokens"]);
  EXPECT_EQ(three["usage"]["completion_tokens"], 48);
  body["stream"] = true;
  const HttpAnswer streamed = server_->Post("/v1/chat/completions", Chat(body));
  for (size_t k = 0; k < 3; ++k) EXPECT_EQ(StreamText(streamed, k), want[k]) << k;
  // Of several prompts: all answers to the first one come first.
  const Json text = Hot({{"prompt", {"the man", "a sea of"}}, {"n", 2}, {"echo", true}, {"max_tokens", 8}});
  const Json four = server_->Post("/v1/completions", text).json();
  ASSERT_EQ(four["choices"].size(), 4u);
  for (size_t k = 0; k < 4; ++k) {
    EXPECT_EQ(four["choices"][k]["text"].get<std::string>().rfind(k < 2 ? "the man" : "a sea of", 0), 0u) << k;
  }
  EXPECT_NE(four["choices"][0]["text"], four["choices"][1]["text"]);
}

TEST_F(OpenAiOptionsTest, BiasesAndPenalties) {
  const Json plain = Chat({{"logprobs", true}, {"max_tokens", 24}});
  const auto tokens = [&](const Json& more) {
    Json body = plain;
    body.update(more);
    const HttpAnswer answer = server_->Post("/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    std::vector<std::string> out;
    const Json json = answer.json();
    for (const Json& token : json["choices"][0]["logprobs"]["content"]) out.push_back(token["token"]);
    return out;
  };
  const std::vector<std::string> free = tokens(Json::object());
  const Json ids = server_->Post("/tokenize", {{"content", "man"}}).json()["tokens"];
  const std::string man = server_->Post("/detokenize", {{"tokens", {ids[0]}}}).json()["content"];
  const std::vector<std::string> pushed = tokens({{"logit_bias", {{std::to_string(ids[0].get<int>()), 100}}}});
  EXPECT_EQ(pushed, std::vector<std::string>(24, man));
  EXPECT_NE(free, pushed);
  // A penalty outweighs the bias when the token has been said often enough, and only then.
  const std::vector<std::string> tired =
      tokens({{"logit_bias", {{std::to_string(ids[0].get<int>()), 20}}}, {"frequency_penalty", 2}});
  EXPECT_EQ(tired[0], man);
  EXPECT_LT(std::count(tired.begin(), tired.end(), man), 24);
  EXPECT_LT(std::set<std::string>(pushed.begin(), pushed.end()).size(),
            std::set<std::string>(tired.begin(), tired.end()).size());
  // The log-likelihood reported for a token is the model's own, whatever the request's options.
  const auto first = [&](const Json& more) {
    Json body = Chat({{"logprobs", true}, {"top_logprobs", 2}, {"max_tokens", 1}});
    body.update(more);
    const Json json = server_->Post("/v1/chat/completions", body).json();
    return json["choices"][0]["logprobs"]["content"][0]["top_logprobs"];
  };
  EXPECT_EQ(first(Json::object()), first({{"logit_bias", {{std::to_string(ids[0].get<int>()), 50}}}}));
}

TEST(OpenAiDefaults, HoldWhereARequestNamesNothing) {
  const ServerProcess server({"--pot", "96", "--policy", "streaming_llm", "--temp", "1.5", "--top-k", "0", "--top-p",
                              "1", "--min-p", "0", "-s", "3", "-n", "5"});
  const auto ask = [&](const Json& more = Json::object()) {
    Json body = {{"messages", kHello}, {"ignore_eos", true}};
    body.update(more);
    return server.Post("/v1/chat/completions", body);
  };
  const HttpAnswer plain = ask();
  EXPECT_EQ(plain.json()["usage"]["completion_tokens"], 5);
  EXPECT_EQ(TextOf(plain), TextOf(ask(Hot())));
  EXPECT_EQ(TextOf(plain), TextOf(ask({{"seed", 3}})));
  EXPECT_NE(TextOf(plain), TextOf(ask({{"temperature", 0}})));
  // No limit: only the stop string ends it, after the tokens that would have been the limit.
  const std::string longer = TextOf(ask({{"max_tokens", 40}})), stop = Middle(longer);
  ASSERT_GT(longer.size(), 12u);
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    const HttpAnswer endless = ask({{name, -1}, {"stop", stop}});
    EXPECT_EQ(TextOf(endless), longer.substr(0, longer.find(stop))) << name;
    EXPECT_EQ(endless.json()["choices"][0]["finish_reason"], "stop");
  }
  const Json params = server.Get("/props").json()["default_generation_settings"]["params"];
  EXPECT_EQ(params["temperature"], 1.5);
  EXPECT_EQ(params["seed"], 3);
  EXPECT_EQ(params["n_predict"], 5);
}

TEST_F(OpenAiOptionsTest, ThePenaltyLooksBackAsFarAsItIsTold) {
  const Json ids = server_->Post("/tokenize", {{"content", "man"}}).json()["tokens"];
  const auto said = [&](int last_n) {
    return TextOf(
        server_->Post("/v1/chat/completions", Chat({{"repeat_penalty", 50},
                                                    {"repeat_last_n", last_n},
                                                    {"logit_bias", {{std::to_string(ids[0].get<int>()), 20}}}})));
  };
  EXPECT_EQ(said(-1), said(4096));
  EXPECT_NE(said(-1), said(0));
}

TEST_F(OpenAiOptionsTest, WhatClientsOfLlamaServerSayByHabit) {
  const std::string chat = "/v1/chat/completions", plain = TextOf(server_->Post(chat, Chat()));
  const Json steps = {"penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"};
  for (const Json& habit :
       {Json{{"cache_prompt", true}}, Json{{"id_slot", -1}}, Json{{"samplers", steps}},
        Json{{"chat_template_kwargs", Json::object()}}, Json{{"chat_template_kwargs", {{"enable_thinking", true}}}},
        Json{{"chat_template_kwargs", {{"enable_thinking", false}}}}}) {
    EXPECT_EQ(TextOf(server_->Post(chat, Chat(habit))), plain) << habit.dump();
  }
  const auto refused = [&](const ServerProcess& server, const Json& more, const std::string& param) {
    const HttpAnswer answer = server.Post(chat, Chat(more));
    EXPECT_EQ(answer.status, 400) << more.dump();
    EXPECT_EQ(answer.json()["error"]["param"], param) << answer.body;
  };
  refused(*server_, {{"samplers", {"temperature", "top_k"}}}, "samplers");
  refused(*server_, {{"samplers", "edkypmxt"}}, "samplers");
  refused(*server_, {{"chat_template_kwargs", {{"language", "de"}}}}, "chat_template_kwargs.language");
  refused(*server_, {{"chat_template_kwargs", 7}}, "chat_template_kwargs");
  refused(*server_, {{"chat_template_kwargs", {{"messages", 1}}}}, "chat_template_kwargs.messages");
  // A template that can switch thinking off is asked to.
  EditedModel thinker("llama");
  std::string& jinja = std::get<std::string>(thinker.metadata["tokenizer.chat_template"].v);
  jinja += "{% if enable_thinking is false %}{{ '<think></think>' }}{% endif %}";
  const TempDir dir;
  const ServerProcess server({"--pot", "96"}, dir.Write("thinker.gguf", thinker.Bytes()));
  const auto prompt = [&](const Json& more) {
    return server.Post("/apply-template", Chat(more)).json()["prompt"].get<std::string>();
  };
  EXPECT_EQ(prompt({{"chat_template_kwargs", {{"enable_thinking", false}}}}),
            prompt(Json::object()) + "<think></think>");
  EXPECT_EQ(prompt({{"chat_template_kwargs", {{"enable_thinking", true}}}}), prompt(Json::object()));
  EXPECT_EQ(server.Post(chat, Chat({{"chat_template_kwargs", {{"enable_thinking", false}}}})).status, 200);
  // The program's defaults may be given to all requests.
  const ServerProcess quiet({"--pot", "96", "--chat-template-kwargs", "{\"enable_thinking\": false}"},
                            dir.Write("thinker.gguf", thinker.Bytes()));
  EXPECT_EQ(quiet.Post("/apply-template", Chat()).json()["prompt"].get<std::string>(),
            prompt(Json::object()) + "<think></think>");
}

// A prompt that spells the chat template's words is the chat, but only where it is said to be trusted.
TEST_F(OpenAiOptionsTest, ControlTokensInAPromptAreLettersUnlessAskedFor) {
  const std::string prompt = server_->Post("/apply-template", {{"messages", kHello}}).json()["prompt"];
  Json body = {{"prompt", prompt}, {"max_tokens", 12}, {"temperature", 0}, {"ignore_eos", true}};
  const HttpAnswer letters = server_->Post("/v1/completions", body);
  body["parse_special"] = true;
  const HttpAnswer tokens = server_->Post("/v1/completions", body);
  const HttpAnswer chat = server_->Post("/v1/chat/completions", Chat());
  EXPECT_EQ(TextOf(tokens), TextOf(chat));
  EXPECT_EQ(tokens.json()["usage"], chat.json()["usage"]);
  EXPECT_GT(letters.json()["usage"]["prompt_tokens"].get<int>(), chat.json()["usage"]["prompt_tokens"].get<int>());
  body["parse_special"] = 1;
  EXPECT_EQ(server_->Post("/v1/completions", body).json()["error"]["param"], "parse_special");
}

TEST_F(OpenAiOptionsTest, AnAnswerThatWasBegunGoesOn) {
  Json messages = kHello;
  const std::string before = server_->Post("/apply-template", {{"messages", messages}}).json()["prompt"];
  messages.push_back({{"role", "assistant"}, {"content", "the boat and"}});
  const std::string prompt = server_->Post("/apply-template", {{"messages", messages}}).json()["prompt"];
  EXPECT_EQ(prompt, before + "the boat and");
  const Json body = {
      {"prompt", prompt}, {"parse_special", true}, {"max_tokens", 12}, {"temperature", 0}, {"ignore_eos", true}};
  EXPECT_EQ(TextOf(server_->Post("/v1/chat/completions", Chat({{"messages", messages}}))),
            TextOf(server_->Post("/v1/completions", body)));
  // What it said before is closed.
  messages.push_back(kHello[0]);
  const std::string later = server_->Post("/apply-template", {{"messages", messages}}).json()["prompt"];
  EXPECT_EQ(later.find("the boat and<|im_end|>"), before.size()) << later;
}

TEST_F(OpenAiOptionsTest, TimesAreTold) {
  const Json whole = server_->Post("/v1/chat/completions", Chat()).json();
  EXPECT_EQ(whole["timings"]["prompt_n"].get<int>() + whole["timings"]["cache_n"].get<int>(),
            whole["usage"]["prompt_tokens"]);
  EXPECT_EQ(whole["timings"]["predicted_n"], 12);
  EXPECT_GT(whole["timings"]["prompt_ms"].get<double>(), 0);
  EXPECT_GT(whole["timings"]["predicted_per_second"].get<double>(), 0);
  const auto events = server_->Post("/v1/chat/completions", Chat({{"stream", true}})).events();
  EXPECT_EQ(events.back()["timings"]["predicted_n"], 12);
}

TEST_F(OpenAiOptionsTest, WhatOtherServersServeIsRefusedInWords) {
  const HttpAnswer rank = server_->Post("/v1/rerank", {{"query", "a"}});
  EXPECT_EQ(rank.status, 404);
  EXPECT_NE(rank.json()["error"]["message"].get<std::string>().find("rank"), std::string::npos);
  EXPECT_NE(server_->Post("/completions", {{"prompt", "a"}}).body.find("/v1/completions"), std::string::npos);
}

// A template that only its marks tell the family of, with tools and their results; contents cannot speak for it.
TEST_F(OpenAiOptionsTest, ATemplateThatIsRunGetsToolsAndTheirResults) {
  EditedModel model("llama");
  model.metadata["tokenizer.chat_template"].v = std::string(
      "{# <tool_call> #}{% if tools %}[{{ tools[0].function.name }}]{% endif %}{% for m in messages %}"
      "{% if m.role == 'tool' %}<r {{ m.tool_call_id }}>{{ m.content }}{% else %}<{{ m.role[0] }}>{{ m.content or '' }}"
      "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endif "
      "%}{% endfor %}"
      "{% if add_generation_prompt %}<a>{% endif %}");
  const TempDir dir;
  const ServerProcess server({"--pot", "96"}, dir.Write("odd.gguf", model.Bytes()));
  const Json call = {{"id", "c1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{\"x\": 1}"}}}};
  const Json messages = {{{"role", "user"}, {"content", "the man"}},
                         {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}},
                         {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "7"}}};
  const Json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const HttpAnswer answer = server.Post("/apply-template", {{"messages", messages}, {"tools", tools}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["prompt"], "[f]<u>the man<a>f{\"x\": 1}<r c1>7<a>");
  const HttpAnswer none =
      server.Post("/apply-template", {{"messages", messages}, {"tools", tools}, {"tool_choice", "none"}});
  EXPECT_EQ(none.json()["prompt"], "<u>the man<a>f{\"x\": 1}<r c1>7<a>");
  for (const Json& more : {Json::object(), Json{{"tools", tools}}}) {
    Json body = {{"messages", messages}, {"max_tokens", 3}};
    body.update(more);
    EXPECT_EQ(server.Post("/v1/chat/completions", body).status, 200);
  }
  EXPECT_EQ(server.Post("/apply-template", {{"messages", messages}, {"tools", 7}}).status, 400);
  // A session reads its turns with the same words.
  const HttpAnswer made = server.Post("/v1/sessions", {{"system", "be kind"}});
  ASSERT_EQ(made.status, 201) << made.body;
  const std::string id = made.json()["id"];
  EXPECT_EQ(server.Post("/v1/sessions/" + id + "/ask", {{"question", "the man"}, {"max_tokens", 3}}).status, 200);
}

}  // namespace
}  // namespace weir::testing
