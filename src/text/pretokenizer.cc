#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>

#include "text/utf8.h"

namespace weir {
namespace {

// The White_Space property, spelled out: PCRE2's own \s also takes U+180E, which the tokenizers' engines do not.
#define WEIR_WS "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WEIR_S "[" WEIR_WS "]"

constexpr char kGpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WEIR_WS "\\p{L}\\p{N}]+|" WEIR_S
                         "+(?![^" WEIR_WS "])|" WEIR_S "+";
// Digits are isolated first, so for the GPT-2 part the text ends at a digit: that is what the look-ahead says.
constexpr char kSmolLm[] = "\\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?[^" WEIR_WS "\\p{L}\\p{N}]+|" WEIR_S
                           "+(?![^" WEIR_WS "\\p{N}])|" WEIR_S "+";
#define WEIR_CL100K(digits)                                                            \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WEIR_WS \
  "\\p{L}\\p{N}]+[\\r\\n]*|" WEIR_S "*[\\r\\n]+|" WEIR_S "+(?![^" WEIR_WS "])|" WEIR_S "+"
constexpr char kLlama3[] = WEIR_CL100K("\\p{N}{1,3}");
constexpr char kQwen2[] = WEIR_CL100K("\\p{N}");
// GPT-4o and Phi-4-mini: words also end where capitals begin, and take a contraction with them.
#define WEIR_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define WEIR_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define WEIR_SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
constexpr char kGpt4o[] = "[^\\r\\n\\p{L}\\p{N}]?" WEIR_UPPER "*" WEIR_LOWER "+" WEIR_SHORT
                          "[^\\r\\n\\p{L}\\p{N}]?" WEIR_UPPER "+" WEIR_LOWER "*" WEIR_SHORT "\\p{N}{1,3}| ?[^" WEIR_WS
                          "\\p{L}\\p{N}]+[\\r\\n/]*|" WEIR_S "*[\\r\\n]+|" WEIR_S "+(?![^" WEIR_WS "])|" WEIR_S "+";
// Four passes in one: runs of punctuation; words; digits by three; the rest. A pass ends its text where an earlier
// one has cut, so white space may run up to punctuation, and a space never joins punctuation or a number.
#define WEIR_PUNCT "\\p{P}$+<=>^~|"
constexpr char kDefault[] = "[" WEIR_PUNCT "]+| ?\\p{L}+|[0-9]{3}|(?:(?![0-9]{3})\\p{N})++| ?[^" WEIR_WS
                            "\\p{L}\\p{N}" WEIR_PUNCT "]+|" WEIR_S "+(?![^" WEIR_WS WEIR_PUNCT "])|" WEIR_S "+";

struct PreInfo {
  const char* name;
  const char* pattern;
  bool whole_word_first;
  bool add_bos;
};
constexpr PreInfo kPres[] = {
    {"default", kDefault, false, false},        {"gpt-2", kGpt2, false, false},       {"phi-2", kGpt2, false, false},
    {"smollm", kSmolLm, false, false},          {"llama-bpe", kLlama3, true, true},   {"llama3", kLlama3, true, true},
    {"llama-v3", kLlama3, true, true},          {"smaug-bpe", kLlama3, false, false}, {"qwen2", kQwen2, false, false},
    {"deepseek-r1-qwen", kQwen2, false, false}, {"olmo", kGpt2, false, false},        {"mpt", kGpt2, false, false},
    {"gpt-4o", kGpt4o, false, false},
};

// One per thread: PCRE2's match data and context may not be shared by two matches at a time.
struct MatchScratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  MatchScratch() {
    // The default limit counts backtracking steps and would fail on a long run of spaces; kMaxWordBytes bounds them.
    if (context) pcre2_set_match_limit(context, UINT32_MAX);
  }
  ~MatchScratch() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(std::string_view pre) {
  const auto* info = std::find_if(std::begin(kPres), std::end(kPres), [&](const PreInfo& p) { return pre == p.name; });
  if (info == std::end(kPres)) {
    std::string names;
    for (const PreInfo& p : kPres) names += (names.empty() ? "" : ", ") + std::string(p.name);
    return Unsupported("tokenizer.ggml.pre is '%.*s', which is not one of the known pre-tokenizers: %s",
                       static_cast<int>(std::min<size_t>(pre.size(), 64)), pre.data(), names.c_str());
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(info->pattern), PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr);
  if (!code) return Internal("pre-tokenizer '%s': PCRE2 error %d at %zu of its expression", info->name, error, offset);
  // Where the system forbids executable memory, the interpreter gives the same words, more slowly.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  std::unique_ptr<PreTokenizer> out(new PreTokenizer);
  out->code_ = code;
  out->whole_word_first_ = info->whole_word_first;
  out->add_bos_ = info->add_bos;
  return out;
}

PreTokenizer::~PreTokenizer() { pcre2_code_free(static_cast<pcre2_code*>(code_)); }

size_t PreTokenizer::WordBytes(std::string_view text, bool more) const {
  if (text.empty()) return 0;
  size_t window = text.size();
  if (window >= kMaxWordBytes) {
    window = kMaxWordBytes;
    while (window < text.size() && (static_cast<uint8_t>(text[window]) & 0xC0) == 0x80) --window;
    more = false;
  }
  thread_local MatchScratch scratch;
  int rc = PCRE2_ERROR_NOMEMORY;
  if (scratch.data) {
    // A hard partial match is PCRE2's word for "the answer depends on bytes that are not here yet".
    const uint32_t options = PCRE2_NO_UTF_CHECK | (more ? PCRE2_PARTIAL_HARD : 0);
    rc = pcre2_match(static_cast<pcre2_code*>(code_), reinterpret_cast<PCRE2_SPTR>(text.data()), window, 0, options,
                     scratch.data, scratch.context);
  }
  if (rc == PCRE2_ERROR_PARTIAL) return 0;
  if (rc >= 0) {
    const size_t end = pcre2_get_ovector_pointer(scratch.data)[1];
    if (end > 0) return end;
  }
  // The expressions match any character, so this is PCRE2 out of memory: a character is a valid, if poor, word.
  return std::min<size_t>(Utf8Bytes(text[0]), text.size());
}

}  // namespace weir
