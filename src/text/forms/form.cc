// SPDX-License-Identifier: Apache-2.0
#include "text/forms/form.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "base/utf8.h"
#include "text/forms/char_dfa.h"
#include "text/forms/expression.h"
#include "text/forms/form_cache.h"
#include "text/forms/gbnf.h"
#include "text/forms/json_schema.h"

namespace weir {
namespace {

using forms::NetworkBuilder;

Status CheckSize(size_t bytes) {
  if (static_cast<int64_t>(bytes) <= kMaxFormTextBytes) return Status();
  return InvalidArgument("the form has {} bytes; at most {} are read", bytes, kMaxFormTextBytes);
}

// Where a text is on its way to one of the starts (Aho and Corasick 1975).
class StartFinder {
 public:
  explicit StartFinder(const std::vector<FormBuilder::Trigger>& triggers) {
    for (size_t i = 0; i < triggers.size(); ++i) {
      int32_t at = 0;
      for (const char c : triggers[i].start) {
        const auto [it, is_new] = nodes_[static_cast<size_t>(at)].next.try_emplace(static_cast<uint8_t>(c), size());
        at = it->second;
        if (is_new) nodes_.emplace_back();
      }
      if (nodes_[static_cast<size_t>(at)].found < 0) nodes_[static_cast<size_t>(at)].found = static_cast<int32_t>(i);
    }
    std::deque<int32_t> todo = {0};
    while (!todo.empty()) {
      const int32_t at = todo.front();
      todo.pop_front();
      for (const auto& [byte, to] : nodes_[static_cast<size_t>(at)].next) {
        Node& node = nodes_[static_cast<size_t>(to)];
        node.back = at == 0 ? 0 : Next(nodes_[static_cast<size_t>(at)].back, byte);
        // A start that ends here within another one.
        if (node.found < 0) node.found = nodes_[static_cast<size_t>(node.back)].found;
        todo.push_back(to);
      }
    }
  }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  int32_t Found(int32_t at) const { return nodes_[static_cast<size_t>(at)].found; }
  int32_t Next(int32_t at, uint8_t byte) const {
    for (;; at = nodes_[static_cast<size_t>(at)].back) {
      const auto& next = nodes_[static_cast<size_t>(at)].next;
      if (const auto it = next.find(byte); it != next.end()) return it->second;
      if (at == 0) return 0;
    }
  }

 private:
  struct Node {
    std::map<uint8_t, int32_t> next;
    int32_t back = 0, found = -1;
  };
  std::vector<Node> nodes_ = std::vector<Node>(1);
};

}  // namespace

Result<FormBuilder::Part> FormBuilder::JsonSchema(std::string_view text, const JsonFormOptions& options) {
  WEIR_RETURN_IF_ERROR(CheckSize(text.size()));
  return forms::AddJsonSchema(text, options, &network_);
}

Result<FormBuilder::Part> FormBuilder::Grammar(std::string_view text) {
  WEIR_RETURN_IF_ERROR(CheckSize(text.size()));
  return forms::AddGrammar(text, *vocab_, &network_);
}

Result<FormBuilder::Part> FormBuilder::Regex(std::string_view text) {
  WEIR_RETURN_IF_ERROR(CheckSize(text.size()));
  WEIR_ASSIGN_OR_RETURN(forms::Expression expression, forms::ParseRegex(text));
  const Part part = network_.AddRule("");
  forms::Expression plain = expression;
  if (forms::RemoveAnchors(false, &plain)) {
    forms::Emit(plain, forms::Writing::kPlain, network_.StartOf(part), network_.EndOf(part), &network_);
  } else {
    int64_t work = forms::kMaxDfaWork;
    WEIR_ASSIGN_OR_RETURN(const forms::CharDfa dfa, forms::DfaOf(expression, /*search=*/false, &work));
    forms::Emit(dfa, forms::Writing::kPlain, network_.StartOf(part), network_.EndOf(part), &network_);
  }
  return part;
}

Result<FormBuilder::Part> FormBuilder::Choices(std::vector<std::string> texts) {
  if (texts.empty()) return InvalidArgument("there is nothing to choose from");
  size_t bytes = 0;
  for (const std::string& text : texts) {
    if (text.empty()) return InvalidArgument("a choice is empty");
    if (ValidUtf8Prefix(text) != text.size()) return InvalidArgument("a choice is not valid UTF-8");
    bytes += text.size();
  }
  WEIR_RETURN_IF_ERROR(CheckSize(bytes));
  const Part part = network_.AddRule("");
  network_.Texts(network_.StartOf(part), std::move(texts), network_.EndOf(part));
  return part;
}

FormBuilder::Part FormBuilder::Text(std::string_view text) {
  const Part part = network_.AddRule("");
  network_.Text(network_.StartOf(part), text, network_.EndOf(part));
  return part;
}

FormBuilder::Part FormBuilder::Token(int32_t id) {
  const Part part = network_.AddRule("");
  network_.Token(network_.StartOf(part), id, network_.EndOf(part));
  return part;
}

FormBuilder::Part FormBuilder::Sequence(const std::vector<Part>& parts) {
  const Part out = network_.AddRule("");
  int32_t from = network_.StartOf(out);
  if (parts.empty()) network_.Empty(from, network_.EndOf(out));
  for (size_t i = 0; i < parts.size(); ++i) {
    const int32_t to = i + 1 == parts.size() ? network_.EndOf(out) : network_.AddNode();
    network_.Call(from, parts[i], to);
    from = to;
  }
  return out;
}

Result<FormBuilder::Part> FormBuilder::OneOf(const std::vector<Part>& parts) {
  if (parts.empty()) return InvalidArgument("there is nothing to choose from");
  const Part out = network_.AddRule("");
  for (const Part part : parts) network_.Call(network_.StartOf(out), part, network_.EndOf(out));
  return out;
}

FormBuilder::Part FormBuilder::Repeated(Part part, int32_t min, int32_t max) {
  const Part out = network_.AddRule("");
  network_.Repeat(network_.StartOf(out), part, min, max, network_.EndOf(out));
  return out;
}

Result<FormBuilder::Part> FormBuilder::Triggered(const std::vector<Trigger>& triggers, int32_t min_times,
                                                 int32_t max_times) {
  for (const Trigger& trigger : triggers) {
    if (trigger.start.empty()) return InvalidArgument("a form must start after some text");
  }
  if (triggers.empty()) return InvalidArgument("there is nothing to wait for");
  const StartFinder finder(triggers);
  // Free text up to the end of a start, and its part.
  const Part once = network_.AddRule(""), rest = network_.AddRule("");
  for (const Part rule : {once, rest}) {
    std::vector<int32_t> node_of = {network_.StartOf(rule)};
    for (int32_t i = 1; i < finder.size(); ++i) node_of.push_back(network_.AddNode());
    for (int32_t i = 0; i < finder.size() && !network_.full(); ++i) {
      const int32_t from = node_of[static_cast<size_t>(i)];
      if (const int32_t found = finder.Found(i); found >= 0) {
        if (rule == once) network_.Call(from, triggers[static_cast<size_t>(found)].then, network_.EndOf(rule));
        continue;
      }
      if (rule == rest) network_.Empty(from, network_.EndOf(rule));
      for (int byte = 0; byte < 256; ++byte) {
        const int32_t to = finder.Next(i, static_cast<uint8_t>(byte));
        int last = byte;
        while (last < 255 && finder.Next(i, static_cast<uint8_t>(last + 1)) == to) ++last;
        // The last text stays free of starts, so that none can go by without its part.
        network_.Byte(from, static_cast<uint8_t>(byte), static_cast<uint8_t>(last), node_of[static_cast<size_t>(to)]);
        byte = last;
      }
    }
  }
  const Part out = network_.AddRule("");
  const int32_t between = network_.AddNode();
  network_.Repeat(network_.StartOf(out), once, min_times, max_times, between);
  network_.Call(between, rest, network_.EndOf(out));
  return out;
}

Result<std::shared_ptr<const Form>> FormBuilder::Build(Part root) const {
  std::shared_ptr<Form> out(new Form);
  WEIR_ASSIGN_OR_RETURN(forms::Network network, network_.Finish(root, vocab_->usable()));
  out->vocab_ = vocab_;
  out->network_ = std::make_shared<const forms::Network>(std::move(network));
  return std::shared_ptr<const Form>(std::move(out));
}

Result<std::shared_ptr<const Form>> MakeForm(const FormSpec& spec, std::shared_ptr<const FormVocab> vocab) {
  FormBuilder builder(std::move(vocab));
  Result<FormBuilder::Part> part = Internal("no such kind of form");
  switch (spec.kind) {
    case FormSpec::Kind::kJsonSchema:
      part = builder.JsonSchema(spec.text);
      break;
    case FormSpec::Kind::kGrammar:
      part = builder.Grammar(spec.text);
      break;
    case FormSpec::Kind::kRegex:
      part = builder.Regex(spec.text);
      break;
    case FormSpec::Kind::kChoices:
      part = builder.Choices(spec.choices);
      break;
  }
  WEIR_RETURN_IF_ERROR(part.status());
  return builder.Build(*part);
}

}  // namespace weir
