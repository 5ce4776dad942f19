// SPDX-License-Identifier: Apache-2.0
// What is wrong with a request is said by the name of its field, in every API; and the rarer fields that are taken.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/edited_model.h"
#include "cli/process.h"
#include "serve/openai_client.h"

namespace weir::testing {
namespace {

const std::string kChat = "/v1/chat/completions", kText = "/v1/completions", kResponses = "/v1/responses",
                  kMessages = "/v1/messages", kCount = "/v1/messages/count_tokens", kSessions = "/v1/sessions";

Json With(Json body, const Json& more) {
  body.update(more);
  return body;
}

const Json kFew = {{"temperature", 0}, {"max_tokens", 2}};
const Json kOllama = {{"stream", false}, {"options", {{"num_predict", 2}, {"temperature", 0}}}};
const Json kResponse = {{"max_output_tokens", 2}, {"temperature", 0}, {"store", false}};

// One message, whose content is a list of one part.
Json Part(const char* role, const Json& part) {
  return Json::array({{{"role", role}, {"content", Json::array({part})}}});
}

class BadRequestsTest : public OpenAiTest {
 protected:
  // `word`: what the message has.
  static void Refused(const std::string& path, const Json& body, const std::string& word, int status = 400) {
    const HttpAnswer answer = server_->Post(path, body);
    EXPECT_EQ(answer.status, status) << path << " " << body.dump().substr(0, 300) << "\n" << answer.body;
    EXPECT_NE(answer.body.find(word), std::string::npos) << word << ": " << body.dump().substr(0, 300) << "\n"
                                                         << answer.body;
  }
  static Json Taken(const std::string& path, const Json& body) {
    const HttpAnswer answer = server_->Post(path, body);
    EXPECT_EQ(answer.status, 200) << path << " " << body.dump() << "\n" << answer.body;
    return answer.json();
  }
};

TEST_F(BadRequestsTest, OpenAi) {
  const auto chat = [](const Json& more, const std::string& word) { Refused(kChat, Chat(more), word); };
  chat({{"stop", {"a", 7}}}, "'stop'");
  chat({{"stop", std::vector<std::string>(17, "a")}}, "'stop'");
  chat({{"stop", std::string(1025, 'a')}}, "'stop'");
  chat({{"messages", {7}}}, "'messages[0]'");
  chat({{"messages", std::vector<Json>(4097, kHello[0])}}, "'messages'");
  chat({{"messages", {{{"role", "user"}, {"content", 7}}}}}, "'messages[0].content'");
  chat({{"messages", Part("user", 7)}}, "'messages[0].content[0]'");
  chat({{"messages", Part("user", {{"type", "audio"}})}}, "'messages[0].content[0].type'");
  chat({{"messages", Part("user", {{"type", "text"}, {"text", 7}})}}, "'messages[0].content[0].text'");
  chat({{"messages", Part("user", {{"type", "text"}, {"words", "a"}})}}, "'messages[0].content[0].words'");
  chat({{"messages", {{{"role", "user"}, {"content", "a"}, {"refusal", "no"}}}}}, "'messages[0].refusal'");
  chat({{"messages", {{{"role", "tool"}, {"content", "a"}, {"tool_call_id", 7}}}}}, "'messages[0].tool_call_id'");
  chat({{"json_schema", 7}}, "'json_schema'");
  chat({{"guided_json", 7}}, "'guided_json'");
  chat({{"response_format", 7}}, "'response_format'");
  chat({{"response_format", {{"type", "json_object"}, {"schema", 7}}}}, "'response_format.schema'");
  chat({{"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", 7}}}}}},
       "'response_format.json_schema.schema'");
  chat({{"structured_outputs", {{"poem", 7}}}}, "'structured_outputs.poem'");
  chat({{"choices", std::vector<std::string>(10001, "a")}}, "'choices'");
  chat({{"modalities", {"audio"}}}, "'modalities'");
  chat({{"reasoning_effort", std::string(17, 'a')}}, "'reasoning_effort'");
  // Calls of tools, which only an assistant's message has.
  const auto call = [&](const Json& of_call, const std::string& word) {
    const Json message = {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array({of_call})}};
    chat({{"messages", {kHello[0], message}}}, word);
  };
  const Json function = {{"name", "f"}, {"arguments", "{}"}};
  call({{"type", "custom"}, {"function", function}}, "'messages[1].tool_calls[0].type'");
  call({{"id", std::string(129, 'a')}, {"function", function}}, "'messages[1].tool_calls[0].id'");
  call({{"function", {{"name", "a b"}}}}, "'messages[1].tool_calls[0].function.name'");
  const Json of_user = With(kHello[0], {{"tool_calls", {{{"function", function}}}}});
  chat({{"messages", {of_user}}}, "'messages[0].tool_calls'");
  const auto tool = [](const std::string& name, const Json& more) {
    return Json{{"type", "function"}, {"function", With({{"name", name}}, more)}};
  };
  Json large = Json::array();  // each within its bound
  for (int i = 0; i < 17; ++i) {
    large.push_back(tool("f" + std::to_string(i), {{"parameters", {{"x", std::string(63 << 10, 'a')}}}}));
  }
  chat({{"tools", large}}, "'tools' may have at most");
  const Json tools = Json::array({tool("f", {{"description", "Does it."}})});
  const auto chosen = [&](const Json& allowed) {
    return Json{{"tools", tools}, {"tool_choice", {{"type", "allowed_tools"}, {"allowed_tools", allowed}}}};
  };
  chat(chosen({{"mode", "never"}, {"tools", tools}}), "'tool_choice'");
  chat(chosen({{"tools", Json::array()}}), "'tool_choice'");
  chat(chosen({{"tools", {{{"type", "function"}, {"function", 7}}}}}), "'tool_choice'");
  chat(chosen({{"tools", {{{"type", "function"}, {"function", {{"name", 7}}}}}}}), "'tool_choice'");
  chat({{"tools", {tool("f", {{"description", 7}})}}}, "'tools[0].function.description'");
  for (const Json& choice : {Json("none"), Json("auto"), chosen({{"mode", "auto"}, {"tools", tools}})["tool_choice"],
                             Json{{"type", "function"}, {"function", {{"name", "f"}}}}}) {
    Taken(kChat, Chat({{"tools", tools}, {"tool_choice", choice}, {"reasoning_effort", "low"}}));
  }
  // Texts.
  Refused(kText, {{"prompt", std::vector<std::string>(257, "a")}}, "'prompt'");
  Refused(kText, With(kFew, {{"prompt", "a"}, {"grammar", "root ::= x"}}), "the answer's form");
  Refused(kText, {{"prompt", {{{"a", 1}}}}}, "'prompt'");
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages",
                           "/v1/messages/count_tokens", "/api/chat", "/api/generate", "/api/embed", "/api/embeddings",
                           "/api/show", "/v1/conversations"}) {
    const HttpAnswer answer = server_->PostText(path, "[");
    EXPECT_EQ(answer.status, 400) << path << ": " << answer.body;
  }
  // Questions to a session.
  const std::string ask =
      kSessions + "/" + server_->Post(kSessions, Json::object()).json()["id"].get<std::string>() + "/ask";
  Refused(ask, {{"question", ""}}, "'question'");
  Refused(ask, {{"question", std::string((1 << 16) + 1, 'a')}}, "'question'");
  Refused(ask, {{"question", "a"}, {"n", 2}}, "'n'");
  Refused(ask, {{"question", "a"}, {"top_logprobs", 2}}, "'top_logprobs'");
  Refused(ask, {{"question", "a"}, {"max_tokens", -1}, {"logprobs", true}}, "'max_tokens'");
}

TEST_F(BadRequestsTest, Anthropic) {
  const auto refused = [](const Json& more, const std::string& word) {
    Refused(kMessages, With(With(kFew, {{"messages", kHello}}), more), word);
  };
  refused({{"messages", {7}}}, "'messages[0]'");
  refused({{"messages", {{{"role", "user"}, {"content", 7}}}}}, "'messages[0].content'");
  refused({{"system", {{{"type", "image"}}}}}, "'system[0].type'");
  refused({{"tools", {{{"type", "web_search_20250305"}, {"name", "web_search"}}}}}, "'tools'");
  refused({{"tools", {7}}}, "'tools'");
  refused({{"tools", {{"first", {{"name", "f"}}}}}}, "'tools'");  // no list
  refused({{"thinking", {{"type", "loud"}}}}, "'thinking.type'");
  refused({{"thinking", 7}}, "'thinking'");
  refused({{"tool_choice", 7}}, "'tool_choice'");
  refused({{"output_format", {{"type", "text"}}}}, "'output_format'");
  refused({{"output_config", {{"verbosity", 1}}}}, "'output_config.verbosity'");
  refused({{"stop_sequences", {7}}}, "'stop_sequences'");
  const auto block = [&](const char* role, const Json& json, const std::string& word) {
    refused({{"messages", Part(role, json)}}, word);
  };
  block("user", 7, "'messages[0].content[0]'");
  block("user", {{"type", "image"}}, "'messages[0].content[0].source'");
  block("user", {{"type", "image"}, {"source", {{"type", "base64"}, {"data", "AAAA"}}}}, "--mmproj");
  block("user", {{"type", "tool_result"}, {"tool_use_id", 7}}, "'messages[0].content[0].tool_use_id'");
  block("user", {{"type", "tool_result"}, {"content", 7}}, "'messages[0].content[0].content'");
  block("user", {{"type", "tool_result"}, {"content", {{{"type", "video"}}}}},
        "'messages[0].content[0].content[0].type'");
  block("user", {{"type", "tool_result"}, {"content", {{{"type", "image"}}}}},
        "'messages[0].content[0].content[0].source'");
  block("assistant", {{"type", "image"}}, "'messages[0].content[0].type'");
  block("assistant", {{"type", "tool_use"}, {"name", "f"}, {"input", 7}}, "'messages[0].content[0].input'");
  // Taken: what a client sends back of earlier answers, and what steers an answer.
  const Json history = Json::array({kHello[0],
                                    {{"role", "assistant"},
                                     {"content",
                                      {{{"type", "thinking"}, {"thinking", "Hm."}, {"signature", "x"}},
                                       {{"type", "redacted_thinking"}, {"data", "x"}},
                                       {{"type", "text"}, {"text", "I look."}},
                                       {{"type", "tool_use"}, {"id", "a"}, {"name", "f"}, {"input", {{"x", 1}}}}}}},
                                    {{"role", "user"},
                                     {"content",
                                      {{{"type", "tool_result"},
                                        {"tool_use_id", "a"},
                                        {"is_error", true},
                                        {"content", {{{"type", "text"}, {"text", "no"}}}}},
                                       {{"type", "tool_result"}, {"tool_use_id", "b"}},
                                       {{"type", "text"}, {"text", "and the sea"}}}}}});
  const Json tools =
      Json::array({{{"name", "f"},
                    {"description", "Does it."},
                    {"strict", true},
                    {"input_schema", {{"type", "object"}, {"properties", {{"x", {{"type", "integer"}}}}}}}}});
  const Json body = With(kFew, {{"messages", history}, {"tools", tools}});
  for (const Json& choice :
       {Json{{"type", "auto"}}, Json{{"type", "none"}}, Json{{"type", "any"}, {"disable_parallel_tool_use", true}},
        Json{{"type", "tool"}, {"name", "f"}}}) {
    Taken(kMessages, With(body, {{"tool_choice", choice}}));
  }
  Refused(kMessages, With(body, {{"tool_choice", {{"type", "tool"}, {"name", "g"}}}}), "'tool_choice'");
  EXPECT_GT(Taken(kCount, body)["input_tokens"], Taken(kCount, {{"messages", kHello}})["input_tokens"]);
  Refused(kCount, {{"messages", kHello}, {"temperature", "x"}}, "'temperature'");
  Refused(kCount, {{"messages", 7}}, "'messages'");
  const Json schema = {{"type", "json_schema"}, {"schema", {{"enum", {"yes", "no"}}}}};
  for (const Json& more :
       {Json{{"output_format", schema}}, Json{{"output_config", {{"effort", "low"}, {"format", schema}}}}}) {
    const Json said = Taken(kMessages, With({{"messages", kHello}, {"max_tokens", 20}}, more));
    const std::string text = said["content"][0]["text"];
    EXPECT_TRUE(text == "\"yes\"" || text == "\"no\"") << text;
  }
  for (const char* type : {"adaptive", "disabled"}) {
    Taken(kMessages, With(kFew, {{"messages", kHello}, {"thinking", {{"type", type}}}}));
  }
}

TEST_F(BadRequestsTest, Responses) {
  const auto refused = [](const Json& more, const std::string& word, int status = 400) {
    Refused(kResponses, With(With(kResponse, {{"input", kHello}}), more), word, status);
  };
  const auto part = [&](const Json& json, const std::string& word) { refused({{"input", Part("user", json)}}, word); };
  refused({{"input", {7}}}, "'input[0]'");
  refused({{"input", {{{"role", "user"}, {"content", 7}}}}}, "'input[0].content'");
  part(7, "'input[0].content[0]'");
  part({{"type", "input_image"}}, "'input[0].content[0].image_url'");
  part({{"type", "input_image"}, {"image_url", "data:image/png;base64,AAAA"}}, "--mmproj");
  part({{"type", "input_text"}, {"text", 7}}, "'input[0].content[0].text'");
  refused({{"input", {{{"type", "function_call_output"}, {"call_id", "a"}}}}}, "'input[0].output'");
  refused({{"input", {{{"type", "function_call_output"}, {"call_id", "a"}, {"output", {{{"type", "input_file"}}}}}}}},
          "'input[0].output[0].type'");
  refused({{"input", {{{"type", "function_call"}, {"name", 7}}}}}, "'input[0].name'");
  refused({{"tools", {7}}}, "'tools'");
  refused({{"tools", {{"first", {{"type", "function"}, {"name", "f"}}}}}}, "'tools'");  // no list
  refused({{"text", {{"words", 1}}}}, "'text.words'");
  refused({{"reasoning", {{"speed", 1}}}}, "'reasoning.speed'");
  refused({{"reasoning", {{"effort", 7}}}}, "'reasoning.effort'");
  refused({{"conversation", {{"name", "x"}}}}, "'conversation.name'");
  refused({{"conversation", "s-0"}}, "there is no conversation", 404);
  refused({{"previous_response_id", "resp_0"}}, "there is no response", 404);
  refused({{"top_logprobs", 3}}, "'top_logprobs'");
  const Json tools = Json::array({{{"type", "function"}, {"name", "f"}, {"description", "Does it."}}});
  const auto allowed = [&](const Json& of_choice) {
    return Json{{"tools", tools}, {"tool_choice", {{"type", "allowed_tools"}, {"tools", of_choice}}}};
  };
  refused(allowed(7), "'tool_choice'");
  refused(allowed({7}), "'tool_choice'");
  refused(allowed({{{"type", "function"}, {"name", "g"}}}), "'tool_choice'");
  // Taken.
  const Json history = Json::array(
      {kHello[0],
       {{"type", "message"},
        {"role", "assistant"},
        {"content",
         {{{"type", "output_text"}, {"text", "I look."}, {"annotations", Json::array()}},
          {{"type", "refusal"}, {"refusal", "No."}}}}},
       {{"type", "reasoning"}, {"summary", Json::array()}},
       {{"type", "function_call"}, {"call_id", "a"}, {"name", "f"}, {"arguments", "{}"}},
       {{"type", "function_call"}, {"call_id", "b"}, {"name", "f"}, {"arguments", "{}"}},
       {{"type", "function_call_output"}, {"call_id", "a"}, {"output", {{{"type", "input_text"}, {"text", "2"}}}}},
       {{"type", "function_call_output"}, {"call_id", "b"}, {"output", "3"}},
       {{"role", "user"}, {"content", "and the sea"}}});
  const Json body = With(kResponse, {{"input", history}, {"tools", tools}});
  for (const Json& choice : {Json("auto"), Json{{"type", "function"}, {"name", "f"}},
                             Json{{"type", "allowed_tools"}, {"tools", {{{"type", "function"}, {"name", "f"}}}}}}) {
    EXPECT_EQ(Taken(kResponses, With(body, {{"tool_choice", choice}}))["tool_choice"], choice);
  }
  // Calls may come first, too.
  Taken(kResponses, With(kResponse, {{"input", {history[3], history[6], history[7]}}}));
  for (const Json& format : {Json{{"type", "text"}}, Json{{"type", "json_object"}}}) {
    const Json more = {{"input", "the man"}, {"text", {{"format", format}}}, {"reasoning", {{"effort", "low"}}}};
    EXPECT_EQ(Taken(kResponses, With(kResponse, more))["text"]["format"], format);
  }
  Refused("/v1/conversations", {{"items", {7}}}, "'items'");
  EXPECT_EQ(server_->Get("/v1/conversations/s-0").status, 404);
  EXPECT_EQ(server_->Delete("/v1/conversations/s-0").status, 404);
  EXPECT_EQ(server_->Delete(kResponses + "/resp_0").status, 404);
}

TEST_F(BadRequestsTest, Ollama) {
  const auto chat = [](const Json& message, const std::string& word) {
    Refused("/api/chat", With(kOllama, {{"messages", Json::array({With(kHello[0], message)})}}), word);
  };
  chat({{"content", 7}}, "'messages[0].content'");
  chat({{"images", 7}}, "'messages[0].images'");
  chat({{"images", {7}}}, "'messages[0].images'");
  chat({{"images", {"AAAA"}}, {"content", "look at [img] twice"}}, "--mmproj");
  chat({{"images", {"AAAA"}}, {"content", ""}}, "--mmproj");
  chat({{"role", "assistant"}, {"tool_calls", {7}}}, "'messages[0].tool_calls'");
  chat({{"role", "assistant"}, {"tool_calls", {{{"function", 7}}}}}, "'messages[0].tool_calls'");
  chat({{"role", "assistant"}, {"tool_calls", {{"first", {{"function", {{"name", "f"}}}}}}}},
       "'messages[0].tool_calls'");  // no list
  chat({{"tool_name", 7}}, "'messages[0].tool_name'");
  Refused("/api/chat", With(kOllama, {{"messages", kHello}, {"format", 7}}), "'format'");
  Refused("/api/chat", With(kOllama, {{"messages", kHello}, {"options", 7}}), "'options'");
  Refused("/api/generate", {{"prompt", "a"}, {"raw", true}, {"images", {"AAAA"}}}, "'images'");
  Refused("/api/generate", {{"prompt", "a"}, {"raw", true}, {"options", {{"stop", 7}}}}, "'options.stop'");
  Refused("/api/generate", {{"prompt", "a"}, {"images", {7}}}, "'images'");
  Refused("/api/embeddings", {{"prompt", {"a", "b"}}}, "'prompt'");
  Refused("/api/embed", {{"input", "a"}, {"dimensions", 3}}, "'dimensions'");
  Refused("/api/embed", {{"input", 7}}, "'input'");
  Refused("/api/show", {{"colour", 1}}, "'colour'");
  // Taken.
  const Json history =
      Json::array({kHello[0],
                   {{"role", "assistant"},
                    {"content", ""},
                    {"thinking", "Hm."},
                    {"tool_calls", {{{"function", {{"index", 0}, {"name", "f"}, {"arguments", {{"x", 1}}}}}}}}},
                   {{"role", "tool"}, {"tool_name", "f"}, {"tool_call_id", "call_0"}, {"content", "2"}}});
  Taken("/api/chat", With(kOllama, {{"messages", history}}));
  for (const Json& more :
       {Json{{"format", ""}}, Json{{"think", "low"}}, Json{{"think", false}}, Json{{"images", Json::array()}}}) {
    Taken("/api/generate", With(kOllama, With({{"prompt", "the man"}}, more)));
  }
  const Json of_json = {{"prompt", "the man"}, {"format", "json"}};
  EXPECT_EQ(Taken("/api/generate", With(kOllama, of_json))["response"].get<std::string>()[0], '{');
  const Json of_schema = {{"prompt", "the man"}, {"format", {{"enum", {7}}}}};
  EXPECT_EQ(Taken("/api/generate", With(kOllama, of_schema))["response"], "7");
}

TEST_F(BadRequestsTest, Infill) {
  EditedModel model("llama");
  model.metadata["tokenizer.ggml.prefix_token_id"].v = uint32_t{5};  // as older files name them
  model.metadata["tokenizer.ggml.suffix_token_id"].v = uint32_t{6};
  model.metadata["tokenizer.ggml.middle_token_id"].v = uint32_t{7};
  const TempDir dir;
  const ServerProcess server({"--pot", "96"}, dir.Write("fim.gguf", model.Bytes()));
  const auto refused = [&](const Json& body, const std::string& word) {
    const HttpAnswer answer = server.Post("/infill", body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_NE(answer.body.find(word), std::string::npos) << answer.body;
  };
  refused({{"prompt", 7}}, "'prompt'");
  refused({{"input_suffix", 7}}, "'input_suffix'");
  refused({{"input_extra", {{{"filename", "a"}}}}}, "'input_extra'");
  refused({{"input_extra", {{"first", {{"text", "a"}}}}}}, "'input_extra'");  // no list
  refused({{"response_fields", 7}}, "'response_fields'");
  refused({{"response_fields", {7}}}, "'response_fields'");
  refused({{"response_fields", std::vector<std::string>(65, "content")}}, "'response_fields'");
  refused({{"n", 2}}, "'n'");
  refused({{"n_predict", "x"}}, "'max_tokens'");
  EXPECT_EQ(server.PostText("/infill", "[").status, 400);
  Json body = {{"input_extra", {{{"filename", "a"}, {"text", "the sea"}}}},
               {"input_prefix", "the man"},
               {"samplers", {"top_k"}},
               {"n_predict", 3},
               {"ignore_eos", true},
               {"response_fields", {"content", "timings/prompt_n", "timings/none", "none/at_all"}}};
  const Json some = server.Post("/infill", body).json();
  EXPECT_EQ(some.size(), 2u) << some.dump();
  EXPECT_GT(some["timings/prompt_n"].get<int>(), 0);
  body.erase("response_fields");
  body.update({{"stream", true}, {"timings_per_token", true}});
  const std::vector<Json> events = server.Post("/infill", body).events();
  ASSERT_GT(events.size(), 1u);
  EXPECT_TRUE(events[0].contains("timings")) << events[0].dump();
}

TEST_F(BadRequestsTest, ContextProtocol) {
  const auto message = [](const std::string& method, const Json& params) {
    return Json{{"jsonrpc", "2.0"}, {"id", 1}, {"method", method}, {"params", params}};
  };
  const std::string id = server_->Post("/mcp", message("initialize", Json::object())).session_id;
  const auto call = [&](const Json& body) { return server_->PostWith("/mcp", body, {{"Mcp-Session-Id", id}}); };
  const auto use = [&](const std::string& name, const Json& arguments) {
    return call(message("tools/call", {{"name", name}, {"arguments", arguments}})).json()["result"];
  };
  EXPECT_EQ(call({{"jsonrpc", "2.0"}, {"id", 1}}).json()["error"]["code"], -32600);
  EXPECT_EQ(call({{"jsonrpc", "2.0"}, {"id", {1}}, {"method", "ping"}}).json()["error"]["code"], -32600);
  EXPECT_EQ(call({{"jsonrpc", "2.0"}, {"id", 1}, {"result", 7}}).status, 202);  // nothing was asked
  EXPECT_EQ(call(message("tools/call", {{"tool", "ask"}})).json()["error"]["code"], -32602);
  const Json scored = use("ask", {{"question", "a"}, {"logprobs", true}, {"max_tokens", 1}});
  EXPECT_EQ(scored["isError"], true) << scored.dump();
  EXPECT_EQ(use("ask", {{"question", 7}})["isError"], true);
  EXPECT_EQ(use("watch", {{"image", ""}})["isError"], true);
  EXPECT_EQ(use("watch", {{"image", "AAAA"}, {"t_ms", -1}})["isError"], true);
  EXPECT_EQ(server_->PostWith("/mcp", message("ping", Json::object()), {{"Mcp-Session-Id", "s-0"}}).status, 404);
  // Its own end, as the protocol has it.
  EXPECT_EQ(server_->Delete("/mcp").status, 404);
  EXPECT_EQ(server_->Delete(kSessions + "/" + id).status, 200);
}

}  // namespace
}  // namespace weir::testing
