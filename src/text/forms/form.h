// SPDX-License-Identifier: Apache-2.0
// Forms: what an answer may look like, held token by token. A form is a JSON schema, a GBNF grammar as in llama.cpp, a
// regular expression, or a list of texts; FormBuilder puts parts of all kinds together. docs/forms.md is the user's
// manual.
//
//     WEIR_ASSIGN_OR_RETURN(auto form, MakeForm({.kind = FormSpec::Kind::kJsonSchema, .text = schema}, vocab));
//     FormState state(form);
//     while (...) {
//       WEIR_ASSIGN_OR_RETURN(auto mask, state.Mask());  // what may come next; an end token may if state.CanEnd()
//       ... draw one of these tokens ...
//       WEIR_RETURN_IF_ERROR(state.Accept(token));
//     }
//
// An answer that was drawn so and ended where CanEnd() was true has the form. There is always a token to go on with
// where CanEnd() is false, except that nothing nests deeper than 1,000 levels.
//
// Schemas, grammars and expressions are hostile input: what is too large, or would take too long, is an error, when the
// form is made or when a mask is asked for (forms/form_limits.h). Forms with a FormRoom take all of their memory from
// it; those without one are for tests and tools.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/forms/form_limits.h"
#include "text/forms/form_room.h"
#include "text/forms/form_vocab.h"
#include "text/forms/network.h"

namespace weir {

struct FormSpec {
  enum class Kind { kJsonSchema, kGrammar, kRegex, kChoices };
  Kind kind = Kind::kJsonSchema;
  std::string text;                  // of all kinds but kChoices
  std::vector<std::string> choices;  // one of them, whole
};

// Tokens that may come next.
struct TokenMask {
  std::vector<uint64_t> bits;  // token id i is bit i mod 64 of word i / 64
  int64_t n_allowed = 0;
  bool Allows(int32_t id) const {
    const auto at = static_cast<size_t>(id);
    return at / 64 < bits.size() && (bits[at / 64] >> (at % 64) & 1) != 0;
  }
};

namespace forms {
class FormCache;
}

// A form for one vocabulary. Immutable for its users; any number of FormStates on any threads share what is computed.
class Form {
 public:
  const std::shared_ptr<const FormVocab>& vocab() const { return vocab_; }

 private:
  friend class FormBuilder;
  friend class FormState;
  Form() = default;
  std::shared_ptr<const FormVocab> vocab_;
  std::shared_ptr<const forms::Network> network_;
  std::shared_ptr<FormRoom> room_;  // nullptr: none
  FormShare share_;                 // for the network
  mutable FormShare spare_;         // for a state that moves from a full cache to a new one
  forms::FormLimits limits_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<forms::FormCache> newest_;
};

// Errors, in one line: kInvalidArgument says what cannot be held and where, or that the room is too small for it;
// kOverBudget: others have too much of the room.
Result<std::shared_ptr<const Form>> MakeForm(const FormSpec& spec, std::shared_ptr<const FormVocab> vocab,
                                             std::shared_ptr<FormRoom> room = nullptr);

struct JsonFormOptions {
  // Between the parts of objects and arrays: a space, or one or two newlines with up to 20 spaces or tabs; false:
  // nothing.
  bool spaces = true;
};

// Puts a form together. A Part can be used any number of times in its own builder.
class FormBuilder {
 public:
  using Part = int32_t;
  explicit FormBuilder(std::shared_ptr<const FormVocab> vocab, std::shared_ptr<FormRoom> room = nullptr)
      : vocab_(std::move(vocab)),
        room_(std::move(room)),
        limits_(room_ == nullptr ? forms::FormLimits() : room_->limits()),
        network_(limits_) {}

  Result<Part> JsonSchema(std::string_view text, const JsonFormOptions& options = {});
  Result<Part> Grammar(std::string_view text);
  Result<Part> Regex(std::string_view text);
  Result<Part> Of(const FormSpec& spec);
  Result<Part> Choices(std::vector<std::string> texts);
  Part Text(std::string_view text);
  // A control token. REQUIRES: an id of the vocabulary.
  Part Token(int32_t id);
  Part Sequence(const std::vector<Part>& parts);
  // kInvalidArgument without parts.
  Result<Part> OneOf(const std::vector<Part>& parts);
  // max: kNoMax or at least min.
  Part Repeated(Part part, int32_t min, int32_t max);

  // Free text, of any bytes, until one of the starts occurs in it; then the part that belongs to it, and free text
  // again. The answer may end in free text, once `min_times` parts were read. A control token is allowed only where a
  // start is spelled with it: nobody would see others, and those that end answers must end this one.
  struct Trigger {
    std::string start;  // a text, or SpellToken() of a control token (forms/network.h), or both; not empty
    Part then;
    // Only where nothing but white space came before. A space in `start` then stands for white space or nothing.
    bool first = false;
    bool last = false;  // the answer ends with `then`
  };
  Result<Part> Triggered(const std::vector<Trigger>& triggers, int32_t min_times = 0,
                         int32_t max_times = forms::kNoMax);
  // Free text up to the first of the starts, and its part. kInvalidArgument for triggers that are `first` or `last`.
  Result<Part> Until(const std::vector<Trigger>& triggers);
  // Free text that contains none of the texts.
  Result<Part> Without(const std::vector<std::string>& texts);

  Result<std::shared_ptr<const Form>> Build(Part root) const;
  const FormVocab& vocab() const { return *vocab_; }
  // How large it is, and what its schemas may still take: for callers that build many parts.
  int64_t size() const { return network_.size(); }
  forms::SchemaWork& work() { return network_.work(); }

 private:
  Status CheckSize(size_t bytes) const;

  std::shared_ptr<const FormVocab> vocab_;
  std::shared_ptr<FormRoom> room_;
  forms::FormLimits limits_;
  forms::NetworkBuilder network_;
};

// Where in its form an answer is. Copies go on independently. Not thread-safe; different objects are.
class FormState {
 public:
  // `drop_space`: a space at the very beginning is not part of the answer's text (SentencePiece models,
  // StreamDecoder::Options::at_start).
  explicit FormState(std::shared_ptr<const Form> form, bool drop_space = false);

  // The tokens that may come next; end tokens are not among them unless the form names them. kUnsupported: this place
  // of the form takes too much work, or more memory than the room has left.
  Result<std::shared_ptr<const TokenMask>> Mask();
  // Goes on. kInvalidArgument for a token that Mask() does not allow: nothing has changed then.
  Status Accept(int32_t token);
  // The same for a text. Tests use it, and callers that put a beginning into an answer.
  Status AcceptText(std::string_view text);
  // The answer may end here.
  bool CanEnd() const { return can_end_; }
  // Nothing may follow: the answer is whole.
  bool MustEnd() const { return must_end_; }

 private:
  Status Take(std::string_view bytes);
  Status Renew();
  Status TooMuch() const;
  void Look();

  std::shared_ptr<const Form> form_;
  std::shared_ptr<forms::FormCache> cache_;
  int32_t state_ = 0;
  bool drop_space_ = false, can_end_ = false, must_end_ = false;
};

}  // namespace weir
