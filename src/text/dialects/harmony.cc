// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// gpt-oss: an answer is a list of messages, each on a channel. Thoughts come on one, calls go to functions, the answer
// is on the channel "final".
//
//     <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json
//     <|message|>{"a": 1}<|call|>
//
// The prompt ends behind the first <|start|>assistant. Format: cookbook.openai.com/articles/openai-harmony.
#include "text/dialects/call_writer.h"
#include "text/dialects/json_call.h"
#include "text/dialects/text_reader.h"
#include "text/tool_table.h"

namespace weir {
namespace {

constexpr std::string_view kMarkers[] = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>",
                                         "<|end|>",   "<|call|>",    "<|return|>"};
constexpr std::string_view kMessage[] = {"<|message|>"};
constexpr std::string_view kEnds[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"};
constexpr std::string_view kStarts[] = {"<|start|>", "<|channel|>"};
constexpr size_t kMaxHeader = 1024;
constexpr std::string_view kTo = "to=";

// The word behind `before`, up to a space or a marker.
std::string_view WordAfter(std::string_view text, std::string_view before) {
  const size_t at = text.find(before);
  if (at == text.npos) return {};
  text.remove_prefix(at + before.size());
  return text.substr(0, text.find_first_of(" \n\t<"));
}

class HarmonyReader final : public TextReader {
 public:
  HarmonyReader(const DialectOptions& options, PartSink& sink) : TextReader(sink), options_(options) { Try(""); }

 private:
  enum class Stage { kHeader, kBody, kBetween };
  enum class Body { kContent, kThoughts, kCall };

  bool Step(bool last) override {
    switch (stage_) {
      case Stage::kHeader:
        return ReadHeader(last);
      case Stage::kBody:
        return ReadBody(last);
      case Stage::kBetween:
        return ReadBetween(last);
    }
    return false;
  }

  // An answer without a header is content.
  void Restart() override {
    stage_ = Stage::kBody;
    body_ = Body::kContent;
  }

  bool ReadHeader(bool last) {
    if (first_) {
      const std::string_view words = Trimmed(rest());
      if (words.empty() && !last) return false;
      if (!last && words.size() < kTo.size() && kTo.starts_with(words)) return false;
      first_ = false;
      if (words.empty() || (words[0] != '<' && !words.starts_with(kTo))) {
        GiveUp();
        return true;
      }
    }
    const int found = ScanTo(kMessage, last, &header_, kMaxHeader);
    if (found == kNoMarker && !last) return false;
    if (found >= 0) {
      Commit();
      BeginBody();
      stage_ = Stage::kBody;
    } else {
      GiveUp();
    }
    header_.clear();
    return true;
  }

  void BeginBody() {
    const std::string_view channel = WordAfter(header_, "<|channel|>");
    std::string_view name = WordAfter(header_, kTo);
    const bool function = name.starts_with("functions.");
    if (function) name.remove_prefix(10);
    const bool known = options_.tools != nullptr && (function || options_.tools->Knows(name));
    if (known && IsToolName(name)) {
      body_ = Body::kCall;
      arguments_.Reset();
      in_arguments_ = options_.held;
      sink_.BeginCall(name);
    } else {
      body_ = channel == "analysis" && options_.thoughts_apart ? Body::kThoughts : Body::kContent;
    }
  }

  bool ReadBody(bool last) {
    std::string text;
    if (in_arguments_) {  // letters of a marker in them are letters
      if (rest().empty() && !last) return false;
      size_t n = 0;
      in_arguments_ = arguments_.Feed(rest(), &n, &text) == JsonArguments::State::kMore && !last;
      sink_.Arguments(text);
      Take(n);
      return true;
    }
    const int found = ScanTo(kEnds, last, &text);
    switch (body_) {
      case Body::kContent:
        sink_.Content(text);
        break;
      case Body::kThoughts:
        sink_.Reasoning(text);
        break;
      case Body::kCall:
        sink_.Arguments(text);
        break;
    }
    if (found < 0) {
      if (last && body_ == Body::kCall && !ended_) {  // the end token is no part of the text
        ended_ = true;
        sink_.EndCall();
      }
      return false;
    }
    if (body_ == Body::kCall) sink_.EndCall();
    Begin(kEnds[static_cast<size_t>(found)]);
    return true;
  }

  bool ReadBetween(bool last) {
    std::string text;
    const int found = ScanTo(kStarts, last, &text);
    sink_.Content(text);
    if (found < 0) return false;
    Begin(kStarts[static_cast<size_t>(found)]);
    return true;
  }

  // What follows a marker.
  void Begin(std::string_view marker) {
    if (marker != kStarts[0] && marker != kStarts[1]) {
      stage_ = Stage::kBetween;
      return;
    }
    Try(marker);
    stage_ = Stage::kHeader;
    header_ = marker == kStarts[1] ? marker : std::string_view();
  }

  const DialectOptions options_;
  Stage stage_ = Stage::kHeader;
  Body body_ = Body::kContent;
  std::string header_;
  bool first_ = true;  // of the answer, behind what the prompt says
  bool ended_ = false;
  JsonArguments arguments_;
  bool in_arguments_ = false;  // of a call that is held to a form
};

int Fits(std::string_view jinja) {
  return jinja.find("<|channel|>") != jinja.npos && jinja.find("<|start|>") != jinja.npos ? 30 : 0;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<HarmonyReader>(options, sink);
}

// Messages, each with a header; a call is the last one. In their words no header can begin.
Result<CallParts> Write(CallWriter& writer) {
  using Part = FormBuilder::Part;
  FormBuilder& builder = writer.builder();
  const Part channel = writer.Marker("<|channel|>"), message = writer.Marker("<|message|>");
  WEIR_ASSIGN_OR_RETURN(const Part words, builder.Without({std::begin(kEnds), std::end(kEnds)}));
  const auto said = [&](std::vector<std::string> channels) -> Result<Part> {
    WEIR_ASSIGN_OR_RETURN(const Part name, builder.Choices(std::move(channels)));
    return writer.Sequence({channel, name, message, words});
  };
  WEIR_ASSIGN_OR_RETURN(const Part before, said({"analysis", "commentary"}));
  WEIR_ASSIGN_OR_RETURN(const Part any, said({"analysis", "commentary", "final"}));
  const Part next =
      writer.Sequence({before, writer.Marker("<|end|>"), writer.Marker("<|start|>"), writer.Text("assistant")});
  const Part many = builder.Repeated(next, 0, forms::kNoMax);
  WEIR_ASSIGN_OR_RETURN(const Part json, builder.Choices({" json", " code"}));
  const Part constrained =
      writer.Sequence({writer.Maybe(writer.Text(" ")), writer.Marker("<|constrain|>"), writer.Text("json")});
  const Part type = writer.Maybe(writer.OneOf({constrained, json}));
  WEIR_ASSIGN_OR_RETURN(const Part of_call, builder.Choices({"commentary", "analysis"}));
  const auto call = writer.EachTool([&](const CallWriter::Tool& tool) -> Result<Part> {
    WEIR_ASSIGN_OR_RETURN(const Part arguments, writer.Arguments(tool));
    const Part to = writer.Text(" to=functions." + tool.name);
    const Part head = writer.OneOf({writer.Sequence({channel, of_call, to}), writer.Sequence({to, channel, of_call})});
    return writer.Sequence({head, type, message, arguments});
  });
  WEIR_RETURN_IF_ERROR(call.status());
  CallParts out;
  out.calls = writer.Sequence({many, *call});
  out.answer = writer.Sequence({many, writer.OneOf({any, *call})});
  return out;
}

}  // namespace

extern const DialectInfo kHarmonyDialect;
const DialectInfo kHarmonyDialect = {
    .name = "harmony",
    .summary = "messages on channels: analysis, commentary to=functions.NAME, final",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
    .thoughts = true,
};

}  // namespace weir
