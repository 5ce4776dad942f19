// SPDX-License-Identifier: Apache-2.0
#include "serve/openai_request.h"

#include <sys/random.h>

#include <fmt/core.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "serve/form_request.h"
#include "serve/form_store.h"
#include "serve/tool_request.h"
#include "text/picture_marks.h"

namespace weir {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 31;
constexpr int64_t kMaxQuestionBytes = 1 << 16;  // encoded on the engine's thread; longer texts must be appended
constexpr int64_t kMaxScored = 1 << 17;         // log-likelihoods of one request; each takes half a KiB
constexpr int64_t kMaxEchoed = 8 << 20;         // bytes of prompts that one answer repeats
constexpr int64_t kMaxAnswers = 16;             // to one prompt
constexpr size_t kMaxMessages = 4096, kMaxPrompts = 256, kMaxStops = 16, kMaxStopBytes = 1024;

uint64_t RandomSeed() {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed)) return 1;
  return seed;
}

void GetStops(Fields& fields, std::vector<std::string>* stops) {
  const Json* value = fields.Get("stop");
  if (value == nullptr) return;
  if (value->is_string()) {
    stops->push_back(value->get<std::string>());
  } else if (value->is_array()) {
    for (const Json& stop : *value) {
      if (!stop.is_string()) return fields.Fail("stop", "must be a string or a list of strings");
      stops->push_back(stop.get<std::string>());
    }
  } else {
    return fields.Fail("stop", "must be a string or a list of strings");
  }
  if (stops->size() > kMaxStops) fields.Fail("stop", fmt::format("may have at most {} strings", kMaxStops));
  for (const std::string& stop : *stops) {
    if (stop.size() > kMaxStopBytes) fields.Fail("stop", fmt::format("may have at most {} bytes each", kMaxStopBytes));
  }
}

// {"ID": BIAS ...}
void GetBias(Fields& fields, int32_t n_vocab, std::map<int32_t, float>* bias) {
  const Json* value = fields.Get("logit_bias");
  if (value == nullptr) return;
  const std::string wrong =
      fmt::format("must map token ids from 0 to {}, as text, to numbers from -100 to 100", n_vocab - 1);
  if (!value->is_object()) return fields.Fail("logit_bias", wrong);
  for (const auto& [key, number] : value->items()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const double given = number.is_number() ? number.get<double>() : NAN;
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= n_vocab ||
        !(std::fabs(given) <= 100)) {
      return fields.Fail("logit_bias", wrong);
    }
    (*bias)[id] = static_cast<float>(given);
  }
}

// llama-server's list of sampling steps. Ours are these, in this order; llama-server's other steps are off by default.
void CheckSamplers(Fields& fields) {
  const Json* value = fields.Get("samplers");
  if (value == nullptr) return;
  Json steps = Json::array();
  if (value->is_array()) {
    for (const Json& step : *value) {
      if (step != "dry" && step != "top_n_sigma" && step != "typ_p" && step != "xtc") steps.push_back(step);
    }
  }
  const Json ours = {"penalties", "top_k", "top_p", "min_p", "temperature"};
  if (steps != ours) fields.Fail("samplers", "may only list the fixed steps of this server: " + JsonText(ours));
}

// What a request gives the chat template beside messages and tools. A template that is not run takes no arguments, so
// only values without effect are accepted then.
ChatArguments GetArguments(const Host& host, Fields& fields) {
  ChatArguments out;
  const bool runs = host.chat() != nullptr && host.chat()->has_program();
  if (const Json* value = fields.Get("chat_template_kwargs"); value != nullptr) {
    Fields inner(*value, "chat_template_kwargs.");
    if (runs && value->is_object()) {
      bool any = false;
      for (const auto& [key, argument] : value->items()) {
        const bool read = host.chat()->Reads(key);
        any |= read;
        inner.Ignore(key.c_str());
        if (key == "messages" || key == "tools" || key == "add_generation_prompt") {
          inner.Fail(key.c_str(), "is not an argument of templates");
        } else if (!read && key != "enable_thinking") {  // clients send this one to every model
          inner.Fail(key.substr(0, 64).c_str(), "is not read by this model's chat template");
        }
      }
      if (any) out.named = JsonText(*value);
    } else {
      bool think = true;
      inner.Get("enable_thinking", &think);
      if (!think) {  // no effect on a template that does not know it
        const auto jinja = host.model().file().StringOr("tokenizer.chat_template", "");
        if (!jinja.ok() || jinja->find("enable_thinking") != std::string::npos) {
          inner.Fail("enable_thinking", "must be true: this model's chat template always enables thinking");
        }
      }
    }
    if (const Status bad = inner.Done(); !bad.ok()) fields.Take(bad);
  }
  return out;
}

// Likelihoods of an answer that is not streamed are kept until its end.
Status CheckScored(size_t n_answers, CompletionRequest* request) {
  if (!request->logprobs || request->stream) return Status();
  const int64_t max_tokens = request->answers[0].max_tokens < 0 ? kMaxTokens : request->answers[0].max_tokens;
  const double most = static_cast<double>(max_tokens) * (1 + request->n_top) * static_cast<double>(n_answers);
  if (most > static_cast<double>(kMaxScored)) {
    return InvalidArgument(
        "'max_tokens' with 'logprobs' may ask for at most {} likelihoods unless the answer is streamed", kMaxScored);
  }
  request->n_likelihoods = static_cast<int64_t>(most);
  return Status();
}

// Messages whose contents have `mark` in place of each picture or video, and the pictures and videos in the same order.
struct Messages {
  std::vector<ChatMessage> list;
  std::vector<VisualInput> visuals;
  std::string mark;
};

// The text of all parts of a message's content, as far as they are well-formed.
std::string WordsOf(const Json& message) {
  if (!message.is_object()) return "";
  const auto content = message.find("content");
  if (content == message.end()) return "";
  if (content->is_string()) return content->get<std::string>();
  std::string words;
  for (const Json& part : *content) {
    if (part.is_string()) words += part.get_ref<const std::string&>();
    if (!part.is_object()) continue;
    const auto text = part.find("text");
    if (text != part.end() && text->is_string()) words += text->get_ref<const std::string&>();
  }
  return words;
}

// A mark that no message contains: the usual one, which templates know, if possible; otherwise one with more
// underscores than occur in any message.
std::string UnusedMark(const Json& messages) {
  const std::string usual = kPictureMark, end = usual.substr(usual.find_first_not_of("<_"));
  size_t longest = 0;
  bool is_said = false;
  for (const Json& message : messages) {
    const std::string words = WordsOf(message);
    for (size_t at = 0; (at = words.find(end, at)) != std::string::npos; at += end.size()) {
      size_t begin = at;
      while (begin > 0 && words[begin - 1] == '_') --begin;
      if (begin == 0 || words[begin - 1] != '<') continue;
      longest = std::max(longest, at - begin);
      is_said |= at - begin + 1 == usual.size() - end.size();
    }
  }
  return is_said ? "<" + std::string(longest + 1, '_') + end : usual;
}

// {"type": "image_url" ...} or a video.
Status GetVisual(Fields& part, const std::string& type, const std::string& where, Messages* out) {
  const Json* const value = part.Get(type.c_str());
  if (value == nullptr) part.Fail(type.c_str(), "is missing");
  WEIR_RETURN_IF_ERROR(part.Done());
  const std::string name = where + type;
  auto input = type == "input_video" ? ParseVideo(*value, name) : ParsePicture(*value, name);
  WEIR_RETURN_IF_ERROR(input.status());
  out->visuals.push_back(*std::move(input));
  return Status();
}

// A string, or a list of texts, pictures and videos. `sees`: pictures are allowed in this role.
Status GetContent(const Json& message, const std::string& where, bool sees, Messages* out, std::string* text) {
  const auto it = message.find("content");
  if (it == message.end() || it->is_null()) return InvalidArgument("'{}content' is missing", where);
  if (it->is_string()) {
    *text = it->get<std::string>();
    return Status();
  }
  if (!it->is_array()) return InvalidArgument("'{}content' must be a string or a list of parts", where);
  for (size_t i = 0; i < it->size(); ++i) {
    if ((*it)[i].is_string()) {  // as some clients write a text
      *text += (*it)[i].get_ref<const std::string&>();
      continue;
    }
    const std::string part_where = where + "content[" + std::to_string(i) + "].";
    Fields part((*it)[i], part_where);
    std::string type, words;
    part.Get("type", &type);
    if (type == "image_url" || type == "input_video") {
      if (!sees)
        part.Fail("type", "must be \"text\": only user messages may have pictures, and the server needs --mmproj");
      WEIR_RETURN_IF_ERROR(GetVisual(part, type, part_where, out));
      *text += out->mark;
      continue;
    }
    if (type != "text") part.Fail("type", "must be \"text\", \"image_url\" or \"input_video\"");
    part.Get("text", &words);
    WEIR_RETURN_IF_ERROR(part.Done());
    *text += words;
  }
  return Status();
}

// Fields of a message beside its content: calls of tools, what they belong to, a model's thoughts.
Status GetMore(Fields& message, const ChatTemplate& chat, const std::string& where, ChatMessage* out) {
  Json more = Json::object();
  std::string text;
  if (const Json* const calls = message.Get("tool_calls"); calls != nullptr && !calls->empty()) {
    if (out->role != "assistant") message.Fail("tool_calls", "may only be an assistant's");
    WEIR_ASSIGN_OR_RETURN(more["tool_calls"], CheckedCalls(*calls, where));
    if (!message.Has("content")) more["content"] = nullptr;
  }
  const bool thinks = chat.Reads("reasoning_content") || chat.Reads("thinking");
  for (const char* key : {"tool_call_id", "name", "reasoning_content"}) {
    message.Get(key, &text);
    if (!message.Has(key)) continue;
    // A name matters where it names a tool; elsewhere it never did.
    if (std::string_view(key) == "reasoning_content" ? out->role == "assistant" && thinks : out->role == "tool") {
      more[key] = text;
    }
  }
  if (!more.empty()) out->more = JsonText(more);
  return message.Done();
}

Result<Messages> GetMessages(const Host& host, Fields& fields) {
  const Json* list = fields.Get("messages");
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMaxMessages) {
    return InvalidArgument("'messages' must be a list of 1 to {} messages", kMaxMessages);
  }
  Messages out;
  if (host.vision() != nullptr) out.mark = UnusedMark(*list);
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string where = "messages[" + std::to_string(i) + "].";
    Fields message((*list)[i], where);
    ChatMessage read;
    message.Get("role", &read.role);
    (void)message.Get("content");
    message.Only("refusal", nullptr);
    message.Only("audio", nullptr);
    message.Only("function_call", nullptr);
    if (read.role != "system" && read.role != "developer" && read.role != "user" && read.role != "assistant" &&
        read.role != "tool") {
      message.Fail("role", "must be system, developer, user, assistant or tool");
    }
    WEIR_RETURN_IF_ERROR(GetMore(message, *host.chat(), where, &read));
    if (read.role == "developer" && !host.chat()->Reads("developer")) read.role = "system";
    const bool sees = host.vision() != nullptr && read.role == "user";
    const bool calls_alone = !message.Has("content") && message.Has("tool_calls") && !read.more.empty();
    if (!calls_alone) {
      WEIR_RETURN_IF_ERROR(GetContent((*list)[i], where, sees, &out, &read.content));
    }
    out.list.push_back(std::move(read));
  }
  return out;
}

// The system message is pinned if that leaves at least half of the pot for everything else.
std::vector<PromptPart> WithPinnedSystem(const Host& host, const std::vector<ChatMessage>& messages,
                                         std::vector<int32_t> tokens) {
  if (messages[0].role != "system") return {{std::move(tokens), false, false, false}};
  ChatRounds rounds(*host.chat());
  const std::vector<int32_t> system =
      host.tokenizer().EncodePieces(rounds.System(messages[0].content), !host.chat()->includes_bos());
  const auto seam = std::mismatch(system.begin(), system.end(), tokens.begin(), tokens.end()).second;
  const bool fits = (seam - tokens.begin()) * 2 <= host.plan().pot_slots - host.plan().probe_slots;
  if (!fits) return {{std::move(tokens), false, false, false}};
  return {{{tokens.begin(), seam}, true, false, false}, {{seam, tokens.end()}, false, false, false}};
}

// The text pieces up to the start of the answer. If the last message is the assistant's, the answer continues it, as
// with llama-server; *begun is then its text, which is not in the pieces.
Result<std::vector<TextPiece>> Rendered(const ChatTemplate& chat, const std::vector<ChatMessage>& messages,
                                        const ChatArguments& arguments, std::string* begun) {
  begun->clear();
  if (messages.size() < 2 || messages.back().role != "assistant" || !messages.back().more.empty()) {
    return chat.Render(messages, true, arguments);
  }
  *begun = messages.back().content;
  return chat.Render({messages.begin(), messages.end() - 1}, true, arguments);
}

// The prompt of a conversation for an answer pot: words, and pictures in their places.
// *reading says how the answer is to be taken apart.
Result<std::vector<PromptPart>> ChatPrompt(const Host& host, const Messages& messages, const ChatArguments& arguments,
                                           const ToolRequest& tools, std::optional<ReadingOptions>* reading) {
  const Tokenizer& tokenizer = host.tokenizer();
  const bool add_special = !host.chat()->includes_bos();
  std::string begun;
  WEIR_ASSIGN_OR_RETURN(std::vector<TextPiece> pieces, Rendered(*host.chat(), messages.list, arguments, &begun));
  *reading = ReadingOf(host, tools, pieces, begun);
  if (!begun.empty()) pieces.push_back({std::move(begun), false});
  if (messages.visuals.empty()) {
    return WithPinnedSystem(host, messages.list, tokenizer.EncodePieces(pieces, add_special));
  }
  const auto words = SplitAtMark(pieces, messages.mark);
  if (words.size() != messages.visuals.size() + 1) return Internal("the chat template lost the place of a picture");
  std::vector<int32_t> head = tokenizer.EncodePieces(words[0], add_special);
  const bool ends = add_special && tokenizer.add_eos() && !head.empty();
  if (ends) head.pop_back();  // the end of the text is the end of its last words
  std::vector<PromptPart> out = WithPinnedSystem(host, messages.list, std::move(head));
  for (size_t i = 1; i < words.size(); ++i) {
    out.push_back({{}, false, false, true});
    out.push_back({tokenizer.EncodePieces(words[i], false), false, false, false});
  }
  if (ends) out.back().tokens.push_back(tokenizer.eos_id());
  return out;
}

// One prompt of a completion. `text` receives the text to echo; nullptr: no echo.
Result<std::vector<int32_t>> PromptTokens(const Host& host, const Json& prompt, const std::string& key,
                                          bool parse_special, std::string* text) {
  if (prompt.is_string()) {
    if (text != nullptr) *text = prompt.get_ref<const std::string&>();
    return host.tokenizer().Encode(prompt.get_ref<const std::string&>(), {.parse_special = parse_special});
  }
  WEIR_ASSIGN_OR_RETURN(std::vector<int32_t> ids, TokenIds(prompt, key, host.tokenizer().n_tokens()));
  if (text != nullptr) *text = host.tokenizer().Decode(ids);
  return ids;
}

}  // namespace

void GetSampling(Fields& fields, const AnswerDefaults& defaults, int32_t n_vocab, CompletionRequest* request) {
  request->answers.resize(1);
  AnswerRequest& answer = request->answers[0];
  answer.sampler = defaults.sampler;
  SamplerOptions& sampler = answer.sampler;
  fields.Get("temperature", &sampler.temperature, 0, 100);
  fields.Get("top_p", &sampler.top_p, 0, 1);
  int64_t top_k = sampler.top_k, last_n = sampler.repeat_last_n, seed = -1;
  fields.Get("top_k", &top_k, -1, INT32_MAX);
  fields.Get("min_p", &sampler.min_p, 0, 1);
  fields.Get("repeat_penalty", &sampler.repeat_penalty, 0.01, 100);
  fields.Get("repeat_last_n", &last_n, -1, 1 << 20);
  fields.Get("seed", &seed, INT64_MIN, INT64_MAX);
  if (!fields.Has("seed")) {
    sampler.seed = defaults.seed.value_or(RandomSeed());
  } else {  // -1: a different seed each time, as in llama-server
    sampler.seed = seed == -1 ? RandomSeed() : static_cast<uint64_t>(seed);
  }
  sampler.top_k = static_cast<int32_t>(top_k);
  if (sampler.top_p <= 0) {  // greedy, whatever top_k is
    sampler.top_k = 1;
    sampler.top_p = 1;
  }
  sampler.repeat_last_n = static_cast<int32_t>(last_n);
  answer.max_tokens = defaults.max_tokens;
  fields.Get("max_tokens", &answer.max_tokens, -1, kMaxTokens);
  fields.Get("ignore_eos", &answer.ignore_eos);
  GetStops(fields, &answer.stop_texts);
  fields.Get("stream", &request->stream);
  if (const Json* options = fields.Get("stream_options"); options != nullptr) {
    Fields inner(*options, "stream_options.");
    inner.Get("include_usage", &request->include_usage);
    if (const Status bad = inner.Done(); !bad.ok()) fields.Take(bad);
    if (!request->stream) fields.Fail("stream_options", "needs 'stream' to be true");
  }
  fields.Ignore("model");
  fields.Ignore("user");
  fields.Ignore("metadata");
  fields.Ignore("safety_identifier");
  fields.Ignore("prompt_cache_key");
  fields.Get("timings_per_token", &request->timings_per_token);
  // Fields that llama-server's clients send: a session always continues, and clients have no pot of their own.
  fields.Ignore("cache_prompt");
  fields.Ignore("id_slot");
  CheckSamplers(fields);
  int64_t n = 1;
  fields.Get("n", &n, 1, kMaxAnswers);
  request->n = static_cast<int>(n);
  fields.Get("frequency_penalty", &answer.logits.frequency_penalty, -2, 2);
  fields.Get("presence_penalty", &answer.logits.presence_penalty, -2, 2);
  GetBias(fields, n_vocab, &answer.logits.bias);
}

namespace {

// Messages and what the template is given beside them; the tools are part of one of the two.
struct Asked {
  Messages messages;
  ChatArguments arguments;
  ToolRequest tools;
};

Result<Asked> GetAsked(const Host& host, Fields& fields) {
  Asked out;
  GetTools(fields, &out.tools);
  out.arguments = GetArguments(host, fields);
  (void)fields.Get("messages");
  WEIR_RETURN_IF_ERROR(fields.Done());
  if (host.chat() == nullptr) {
    return InvalidArgument(
        "this model has no chat template: start the server with --chat-template, or use /v1/completions");
  }
  WEIR_ASSIGN_OR_RETURN(out.messages, GetMessages(host, fields));
  OfferTools(host, out.tools, &out.arguments, &out.messages.list);
  return out;
}

Status MakeForm(const Host& host, const std::optional<FormSpec>& spec, AnswerRequest* answer) {
  if (!spec) return Status();
  auto form = host.forms().Get(*spec);
  if (!form.ok()) {
    return Status(form.status().code(), fmt::format("the answer's form: {}", form.status().message()));
  }
  answer->form = *std::move(form);
  return Status();
}

// What a chat says beside what it asks.
Result<CompletionRequest> GetChatOptions(const Host& host, Fields& fields, const AnswerDefaults& defaults) {
  CompletionRequest out;
  GetSampling(fields, defaults, host.tokenizer().n_tokens(), &out);
  AnswerRequest& answer = out.answers[0];
  fields.Get("max_completion_tokens", &answer.max_tokens, -1, kMaxTokens);
  fields.Get("cache_prompt", &answer.cache_prompt);
  int64_t n_top = 0;
  fields.Get("logprobs", &out.logprobs);
  fields.Get("top_logprobs", &n_top, 0, 20);
  if (n_top > 0 && !out.logprobs) fields.Fail("top_logprobs", "needs 'logprobs' to be true");
  out.n_top = static_cast<int>(n_top);
  answer.n_logprobs = out.logprobs ? out.n_top : -1;
  fields.Ignore("service_tier");
  fields.Ignore("store");  // chats are not stored
  fields.Only("modalities", Json::array({"text"}));
  out.echoes.emplace_back();
  return out;
}

}  // namespace

Result<CompletionRequest> ParseChat(const Host& host, const Json& body, const AnswerDefaults& defaults) {
  Fields fields(body);
  WEIR_ASSIGN_OR_RETURN(CompletionRequest out, GetChatOptions(host, fields, defaults));
  const std::optional<FormSpec> form = GetForm(fields);
  WEIR_ASSIGN_OR_RETURN(Asked asked, GetAsked(host, fields));
  WEIR_RETURN_IF_ERROR(CheckScored(static_cast<size_t>(out.n), &out));
  AnswerRequest& answer = out.answers[0];
  WEIR_ASSIGN_OR_RETURN(answer.prompt, ChatPrompt(host, asked.messages, asked.arguments, asked.tools, &answer.reading));
  WEIR_RETURN_IF_ERROR(HoldAnswer(host, asked.tools, form, &answer));
  answer.visuals = std::move(asked.messages.visuals);
  return out;
}

Result<std::string> RenderChat(const Host& host, const Json& body) {
  Fields fields(body);
  WEIR_RETURN_IF_ERROR(GetChatOptions(host, fields, {}).status());
  (void)GetForm(fields);  // not a part of the prompt
  WEIR_ASSIGN_OR_RETURN(const Asked asked, GetAsked(host, fields));
  std::string begun;
  WEIR_ASSIGN_OR_RETURN(const std::vector<TextPiece> pieces,
                        Rendered(*host.chat(), asked.messages.list, asked.arguments, &begun));
  return JoinPieces(pieces) + begun;
}

Result<CompletionRequest> ParseCompletion(const Host& host, const Json& body, const AnswerDefaults& defaults) {
  Fields fields(body);
  CompletionRequest out;
  AnswerDefaults of_texts = defaults;
  of_texts.max_tokens = 16;
  GetSampling(fields, of_texts, host.tokenizer().n_tokens(), &out);
  int64_t n_top = -1;
  bool echo = false, parse_special = false;
  fields.Get("logprobs", &n_top, 0, 20);
  fields.Get("echo", &echo);
  fields.Get("parse_special", &parse_special);
  fields.Only("suffix", "");
  fields.Only("best_of", 1);
  fields.Get("cache_prompt", &out.answers[0].cache_prompt);
  const Json* prompt = fields.Get("prompt");
  const std::optional<FormSpec> form = GetForm(fields);
  WEIR_RETURN_IF_ERROR(fields.Done());
  WEIR_RETURN_IF_ERROR(MakeForm(host, form, &out.answers[0]));
  out.logprobs = n_top >= 0;
  out.n_top = std::max(0, static_cast<int>(n_top));
  AnswerRequest& answer = out.answers[0];
  answer.n_logprobs = static_cast<int>(n_top);
  answer.score_prompt = echo && out.logprobs;

  const auto bad = [] {
    return InvalidArgument("'prompt' must be a string, a list of strings, token ids, or lists of them");
  };
  if (prompt == nullptr || (!prompt->is_string() && !prompt->is_array()) || prompt->empty()) return bad();
  std::vector<const Json*> prompts = {prompt};
  const bool many = prompt->is_array() && !(*prompt)[0].is_number();
  if (many) {
    prompts.clear();
    if (prompt->size() > kMaxPrompts) return InvalidArgument("'prompt' may have at most {} prompts", kMaxPrompts);
    for (const Json& one : *prompt) prompts.push_back(&one);
  }
  WEIR_RETURN_IF_ERROR(CheckScored(prompts.size() * static_cast<size_t>(out.n), &out));
  const AnswerRequest same = answer;
  int64_t n_scored = 0, n_echoed = 0;
  out.answers.clear();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string key = many ? "prompt[" + std::to_string(i) + "]" : "prompt";
    if (!prompts[i]->is_string() && !prompts[i]->is_array()) return bad();
    AnswerRequest one = same;
    std::string text;
    WEIR_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                          PromptTokens(host, *prompts[i], key, parse_special, echo ? &text : nullptr));
    if (tokens.empty()) return InvalidArgument("'{}' contains no tokens", key);
    if (one.score_prompt && (n_scored += std::ssize(tokens) * (1 + out.n_top) * out.n) > kMaxScored) {
      return InvalidArgument("'echo' with 'logprobs' may return at most {} likelihoods: send fewer tokens at once",
                             kMaxScored);
    }
    if ((n_echoed += std::ssize(text) * out.n) > kMaxEchoed) {
      return InvalidArgument("'echo' may repeat at most {} bytes: leave it out, or ask for fewer answers at once",
                             kMaxEchoed);
    }
    one.prompt.push_back({std::move(tokens), false, false, false});
    out.answers.push_back(std::move(one));
    out.echoes.push_back(std::move(text));
  }
  out.n_likelihoods += n_scored;
  return out;
}

Result<CompletionRequest> ParseAsk(const Host& host, const Json& body, const AnswerDefaults& defaults) {
  Fields fields(body);
  CompletionRequest out;
  GetSampling(fields, defaults, host.tokenizer().n_tokens(), &out);
  AnswerRequest& answer = out.answers[0];
  int64_t n_top = 0;
  fields.Get("logprobs", &out.logprobs);
  fields.Get("top_logprobs", &n_top, 0, 20);
  out.n_top = static_cast<int>(n_top);
  answer.n_logprobs = out.logprobs ? out.n_top : -1;
  if (out.n != 1)
    fields.Fail("n", "must be 1: the answer becomes part of the session; fork the session for more answers");
  if (n_top > 0 && !out.logprobs) fields.Fail("top_logprobs", "needs 'logprobs' to be true");
  fields.Get("question", &answer.question);
  if (answer.question.empty()) fields.Fail("question", "must not be empty");
  if (std::ssize(answer.question) > kMaxQuestionBytes) {
    fields.Fail("question", fmt::format("may have at most {} bytes; append longer texts first", kMaxQuestionBytes));
  }
  ToolRequest tools;  // a session has none
  GetReasoningFormat(fields, &tools);
  const std::optional<FormSpec> form = GetForm(fields);
  WEIR_RETURN_IF_ERROR(fields.Done());
  WEIR_RETURN_IF_ERROR(CheckScored(1, &out));
  std::vector<TextPiece> before;
  if (host.chat() != nullptr) before = ChatRounds(*host.chat()).Turn().after;
  answer.reading = ReadingOf(host, tools, before, "");
  WEIR_RETURN_IF_ERROR(HoldAnswer(host, tools, form, &answer));
  out.echoes.emplace_back();
  return out;
}

}  // namespace weir
