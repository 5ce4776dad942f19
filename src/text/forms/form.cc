// SPDX-License-Identifier: Apache-2.0
#include "text/forms/form.h"

#include <fmt/core.h>
#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "text/forms/char_dfa.h"
#include "text/forms/expression.h"
#include "text/forms/form_cache.h"
#include "text/forms/free_text.h"
#include "text/forms/gbnf.h"
#include "text/forms/json_schema.h"

namespace weir {

Status FormBuilder::CheckSize(size_t bytes) const {
  if (static_cast<int64_t>(bytes) <= limits_.text_bytes) return Status();
  return InvalidArgument("the form has {} bytes; at most {} are read{}", bytes, limits_.text_bytes,
                         room_ == nullptr ? "" : fmt::format(" with {} kept for forms", room_->bytes()));
}

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
    forms::DfaWork work = limits_.work.automata;
    work.steps = forms::kMaxDfaWork;
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

Result<FormBuilder::Part> FormBuilder::Of(const FormSpec& spec) {
  switch (spec.kind) {
    case FormSpec::Kind::kJsonSchema:
      return JsonSchema(spec.text);
    case FormSpec::Kind::kGrammar:
      return Grammar(spec.text);
    case FormSpec::Kind::kRegex:
      return Regex(spec.text);
    case FormSpec::Kind::kChoices:
      return Choices(spec.choices);
  }
  return Internal("no such kind of form");
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
  if (triggers.empty()) return InvalidArgument("there is nothing to wait for");
  WEIR_ASSIGN_OR_RETURN(const forms::FreeText text, forms::FreeText::Of(triggers));
  using Goes = forms::FreeText::Goes;
  // The first text is like the others unless something may only come first.
  const Part first = text.Add(Goes::kOn, /*at_start=*/true, &network_);
  const Part others = text.Add(Goes::kOn, false, &network_);
  const Part out = network_.AddRule("");
  const int32_t start = network_.StartOf(out), end = network_.EndOf(out), after_one = network_.AddNode();
  const auto times = [&](int32_t less) { return max_times == forms::kNoMax ? max_times : max_times - less; };
  if (min_times == 0) network_.Call(start, text.Add(Goes::kNowhere, true, &network_), end);
  if (times(0) != 0) {
    const int32_t between = network_.AddNode();
    network_.Call(start, first, after_one);
    network_.Repeat(after_one, others, std::max(0, min_times - 1), times(1), between);
    network_.Call(between, text.Add(Goes::kNowhere, false, &network_), end);
    if (text.has_last() && min_times <= 1) network_.Call(start, text.Add(Goes::kLast, true, &network_), end);
  }
  if (text.has_last() && times(0) != 0 && times(1) != 0) {
    const int32_t before_last = network_.AddNode();
    network_.Repeat(after_one, others, std::max(0, min_times - 2), times(2), before_last);
    network_.Call(before_last, text.Add(Goes::kLast, false, &network_), end);
  }
  return out;
}

Result<FormBuilder::Part> FormBuilder::Until(const std::vector<Trigger>& triggers) {
  if (triggers.empty()) return InvalidArgument("there is nothing to wait for");
  for (const Trigger& trigger : triggers) {
    if (trigger.first || trigger.last) return InvalidArgument("a text ends wherever its end comes");
  }
  WEIR_ASSIGN_OR_RETURN(const forms::FreeText text, forms::FreeText::Of(triggers));
  return text.Add(forms::FreeText::Goes::kOn, false, &network_);
}

Result<FormBuilder::Part> FormBuilder::Without(const std::vector<std::string>& texts) {
  std::vector<Trigger> triggers;
  for (const std::string& text : texts) triggers.push_back({text, -1});
  WEIR_ASSIGN_OR_RETURN(const forms::FreeText text, forms::FreeText::Of(triggers));
  return text.Add(forms::FreeText::Goes::kNowhere, false, &network_);
}

Result<std::shared_ptr<const Form>> FormBuilder::Build(Part root) const {
  std::shared_ptr<Form> out(new Form);
  WEIR_ASSIGN_OR_RETURN(forms::Network network, network_.Finish(root, vocab_->usable()));
  out->vocab_ = vocab_;
  out->room_ = room_;
  out->limits_ = limits_;
  out->share_ = FormShare(room_);
  out->spare_ = FormShare(room_);
  const int64_t spare = limits_.cache_bytes / 8, wanted = network.n_bytes() + spare;
  for (int attempt = 0; room_ != nullptr && !(out->share_.Cover(wanted - spare) && out->spare_.Cover(spare));
       ++attempt) {
    if (attempt > 0) return NoRoomForForm(*room_, wanted);
    room_->Reclaim();
  }
  out->network_ = std::make_shared<const forms::Network>(std::move(network));
  return std::shared_ptr<const Form>(std::move(out));
}

Result<std::shared_ptr<const Form>> MakeForm(const FormSpec& spec, std::shared_ptr<const FormVocab> vocab,
                                             std::shared_ptr<FormRoom> room) {
  FormWork work(room.get());
  WEIR_RETURN_IF_ERROR(work.status());
  FormBuilder builder(std::move(vocab), std::move(room));
  WEIR_ASSIGN_OR_RETURN(const FormBuilder::Part part, builder.Of(spec));
  return builder.Build(part);
}

}  // namespace weir
