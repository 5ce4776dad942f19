// SPDX-License-Identifier: Apache-2.0
// Calls of tools as parts of a form: how a dialect's model writes them, for answers that are held to it
// (text/held_answer.h). What a dialect writes here, its reader reads back as the same calls.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "text/forms/form.h"

namespace weir {

struct CallParts {
  // Where calls begin within an answer, and what follows up to their end.
  std::vector<FormBuilder::Trigger> starts;
  // The calls of an answer that is nothing else.
  FormBuilder::Part calls = -1;
  // An answer that may call tools, of a dialect in which calls have no start of their own; -1: `starts` says it.
  FormBuilder::Part answer = -1;
};

class CallWriter {
 public:
  using Part = FormBuilder::Part;
  struct Tool {
    std::string name;
    Json parameters;      // a schema of an object
    bool strict = false;  // what of it cannot be held is an error; otherwise it may be left out
  };
  // `several`: an answer may have more than one call. REQUIRES: there are tools; `builder` outlives the object.
  CallWriter(std::vector<Tool> tools, bool several, FormBuilder* builder)
      : tools_(std::move(tools)), several_(several), builder_(*builder) {}

  const std::vector<Tool>& tools() const { return tools_; }
  bool several() const { return several_; }
  FormBuilder& builder() { return builder_; }

  // ---- Texts.
  Part Text(std::string_view text) { return builder_.Text(text); }
  Part Sequence(const std::vector<Part>& parts) { return builder_.Sequence(parts); }
  // REQUIRES: there are parts.
  Part OneOf(const std::vector<Part>& parts) { return *builder_.OneOf(parts); }
  Part Maybe(Part part) { return builder_.Repeated(part, 0, 1); }
  // Nothing, a space, or lines and what they are indented by.
  Part Space();
  // A marker, with its control tokens where the vocabulary has them, or letter by letter: readers do not tell these
  // apart.
  std::vector<std::string> Spellings(std::string_view marker) const;
  Part Marker(std::string_view marker);
  // Text without control tokens up to the end of a marker.
  Result<Part> UpTo(std::string_view marker);
  // Once, or several times with `between` in between, if several calls are allowed.
  Part Several(Part one, Part between);
  // [ONE, ...]
  Part List(Part one);

  // ---- Calls as objects.
  struct Keys {
    std::string_view name = "name";
    std::vector<std::string_view> arguments = {"arguments"};  // any of them
    std::string_view id = {};                                 // before the name: a text of letters and digits
  };
  // The arguments as a JSON object.
  Result<Part> Arguments(const Tool& tool);
  // {"name": "f", "arguments": {...}}
  Result<Part> Object(const Tool& tool, const Keys& keys);
  // What follows its name.
  Result<Part> ObjectRest(const Tool& tool, const Keys& keys);
  // The object of any of the tools.
  Result<Part> Objects(const Keys& keys);
  // One call for each tool.
  Result<Part> EachTool(const std::function<Result<Part>(const Tool&)>& write);
  // An answer that begins with an object, or with a list of them, and ends with it. `between`: between two objects.
  Status AddBare(const Keys& keys, std::string_view between, CallParts* out);

  // ---- Calls between markers: any of `opens`, and what follows. `calls` begins with the first.
  struct Blocks {
    bool many = true;   // each call has a block of its own
    bool last = false;  // nothing follows the block
  };
  CallParts Between(std::span<const std::string_view> opens, Part rest, Blocks blocks);
  // Calls that begin with `open` and go on with `rest`, with markers around all of them, which models leave out at
  // times.
  CallParts Bracketed(std::string_view begin, std::string_view open, Part rest, std::string_view end);

  // ---- Arguments in a notation that is not JSON.
  struct Notation {
    std::string_view quote = {};  // before and behind a text; empty: as in JSON
    std::string_view yes = "true", no = "false", none = "null";
    bool bare_keys = false;  // of objects
    std::string_view key_end;
  };
  struct Member {
    Part part;
    bool required;
  };
  // The members in this order, those that are not required or not; with `between` in between.
  Part Members(const std::vector<Member>& members, Part between);
  // The arguments, each as `write` says it. Keys for which `writes` is false cannot be written. Without known keys any
  // are: `any` writes one.
  Result<Part> MembersOf(const Tool& tool, const Json& object, const std::function<bool(const std::string&)>& writes,
                         const std::function<Result<Part>(const std::string& key, const Json& schema)>& write,
                         const std::function<Result<Part>()>& any, Part between);
  // A value under a schema that is a part of the tool's.
  Result<Part> Value(const Tool& tool, const Json& schema, const Notation& notation, int depth = 0);
  // The same in JSON.
  Result<Part> JsonValue(const Tool& tool, const Json& schema);
  // key=value, ... or {key:value,...}
  Result<Part> NotedArguments(const Tool& tool, const Notation& notation);

 private:
  // The same text is the same part.
  Result<Part> Schema(std::string text);
  Result<Part> NotedMembers(const Tool& tool, const Json& object, const Notation& notation, int depth);

  const std::vector<Tool> tools_;
  const bool several_;
  FormBuilder& builder_;
  Part space_ = -1;
  std::map<std::string, Part> schemas_;
};

}  // namespace weir
