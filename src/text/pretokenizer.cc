// SPDX-License-Identifier: Apache-2.0
#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>

#include "base/utf8.h"

namespace weir {
namespace {

// The White_Space property, spelled out: PCRE2's own \s also takes U+180E, which the tokenizers' engines do not.
#define WEIR_WS "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WEIR_S "[" WEIR_WS "]"

constexpr char kGpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WEIR_WS "\\p{L}\\p{N}]+|" WEIR_S
                         "+(?![^" WEIR_WS "])|" WEIR_S "+";
// Digits are isolated first, so for the GPT-2 part the text ends at a digit: hence the look-ahead.
constexpr char kSmolLm[] = "\\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?[^" WEIR_WS "\\p{L}\\p{N}]+|" WEIR_S
                           "+(?![^" WEIR_WS "\\p{N}])|" WEIR_S "+";
#define WEIR_CL100K(digits)                                                            \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WEIR_WS \
  "\\p{L}\\p{N}]+[\\r\\n]*|" WEIR_S "*[\\r\\n]+|" WEIR_S "+(?![^" WEIR_WS "])|" WEIR_S "+"
constexpr char kLlama3[] = WEIR_CL100K("\\p{N}{1,3}");
constexpr char kQwen2[] = WEIR_CL100K("\\p{N}");
// Qwen3.5: as Qwen2, but marks belong to words.
constexpr char kQwen35[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WEIR_WS
    "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" WEIR_S "*[\\r\\n]+|" WEIR_S "+(?![^" WEIR_WS "])|" WEIR_S "+";
// Seed-Coder: as Qwen2, but newlines never join punctuation.
constexpr char kSeedCoder[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" WEIR_WS
                              "\\p{L}\\p{N}]+|" WEIR_S "*[\\r\\n]+|" WEIR_S "+(?![^" WEIR_WS "])|" WEIR_S "+";
// GPT-4o and Tekken: words also end where capitals begin; GPT-4o's take a contraction with them.
#define WEIR_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define WEIR_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define WEIR_O200K(suffix, digits)                                                                                  \
  "[^\\r\\n\\p{L}\\p{N}]?" WEIR_UPPER "*" WEIR_LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" WEIR_UPPER "+" WEIR_LOWER \
  "*" suffix "|" digits "| ?[^" WEIR_WS "\\p{L}\\p{N}]+[\\r\\n/]*|" WEIR_S "*[\\r\\n]+|" WEIR_S "+(?![^" WEIR_WS    \
  "])|" WEIR_S "+"
constexpr char kGpt4o[] = WEIR_O200K("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "\\p{N}{1,3}");
// Kimi K2: as GPT-4o, but Chinese characters (the script Han, with its numbers and radicals) are words of their own,
// without what other scripts share with it, and a slash never follows punctuation as a newline does. Capitals and small
// letters are what is in no other category.
#define WEIR_NO_LETTER "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}"
#define WEIR_KIMI(upper, lower)                                                                          \
  "[^\\r\\n\\p{L}\\p{N}]?[^\\p{Ll}" WEIR_NO_LETTER "]" upper "[^\\p{Lu}\\p{Lt}" WEIR_NO_LETTER "]" lower \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
constexpr char kKimiK2[] =
    "\\p{sc:Han}+|" WEIR_KIMI("*", "+") WEIR_KIMI("+", "*") "\\p{N}{1,3}| ?[^" WEIR_WS "\\p{L}\\p{N}]+[\\r\\n]*|" WEIR_S
                                                            "*[\\r\\n]+|" WEIR_S "+(?![^" WEIR_WS "])|" WEIR_S "+";
constexpr char kTekken[] = WEIR_O200K("", "\\p{N}");
// Four passes in one: runs of punctuation; words; digits by three; the rest. A pass ends its text where an earlier one
// has split, so white space may run up to punctuation, and a space never joins punctuation or a number.
#define WEIR_PUNCT "\\p{P}$+<=>^~|"
constexpr char kDefault[] = "[" WEIR_PUNCT "]+| ?\\p{L}+|[0-9]{3}|(?:(?![0-9]{3})\\p{N})++| ?[^" WEIR_WS
                            "\\p{L}\\p{N}" WEIR_PUNCT "]+|" WEIR_S "+(?![^" WEIR_WS WEIR_PUNCT "])|" WEIR_S "+";
// Falcon, the first: as the default, with one more mark, and a number takes the space before it unless it begins with
// three digits.
#define WEIR_FALCON_PUNCT WEIR_PUNCT "`"
constexpr char kFalcon[] =
    "[" WEIR_FALCON_PUNCT "]+| ?\\p{L}+|[0-9]{3}|\\x20(?=[0-9]{3})| ?(?:(?![0-9]{3})\\p{N})++| ?[^" WEIR_WS
    "\\p{L}\\p{N}" WEIR_FALCON_PUNCT "]+|" WEIR_S "+(?![^" WEIR_WS WEIR_FALCON_PUNCT "])|" WEIR_S "+";

// DeepSeek's expressions also come in passes. One of them isolates runs of HAN, which is CJK and most scripts around
// it; a white space goes with the next word only if both are HAN or neither is.
#define WEIR_HAN "\\x{800}-\\x{9fa5}\\x{ac00}-\\x{d7ff}"
#define WEIR_NOT_HAN "\\x{0}-\\x{7ff}\\x{9fa6}-\\x{abff}\\x{e000}-\\x{10ffff}"
#define WEIR_WS_NOT_HAN "\\t\\x0b\\x0c\\x20\\x85\\xa0"
#define WEIR_WS_HAN "\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"  // U+3000 is added where needed

// Newlines; letters; punctuation; HAN; digits; of the rest, white space that opens no word stays inside.
#define WEIR_CODER(ws, out)                                                                               \
  "[" ws "]?[^\\P{L}" out "]+|[" ws "]?[^\\P{P}" out "]+|(?:[^" WEIR_WS "\\p{L}\\p{P}\\p{N}" out "]|[" ws \
  "](?![\\p{L}\\p{P}]))++|"
constexpr char kDeepSeekCoder[] =
    "[\\r\\n]|\\p{N}|" WEIR_CODER(WEIR_WS_NOT_HAN, WEIR_HAN) WEIR_CODER(WEIR_WS_HAN "\\x{3000}", WEIR_NOT_HAN) WEIR_S;

// Letters with case, in three parts: those that the punctuation pass matches as well, HAN, and the others.
#define WEIR_CASED_PUNCT "A-Za-z\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}"
#define WEIR_CASED_HAN                                                                                               \
  "\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"                  \
  "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}"                  \
  "\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"          \
  "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}"         \
  "\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"                   \
  "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}" \
  "\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}" \
  "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}"
#define WEIR_CASED_OTHER                                                                                         \
  "\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}"     \
  "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}" \
  "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}"   \
  "\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"              \
  "\\x{fb13}-\\x{fb17}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}"      \
  "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
#define WEIR_CASED WEIR_CASED_PUNCT WEIR_CASED_HAN WEIR_CASED_OTHER
// Punctuation: not HAN; HAN; and U+3000, also white space, which joins a following letter.
#define WEIR_MARK "!-/:-@\\[-`{-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff20}\\x{ff3b}-\\x{ff40}\\x{ff5b}-\\x{ff5e}"
#define WEIR_MARK_HAN "\\x{2018}-\\x{201f}\\x{3001}\\x{3002}"
#define WEIR_BLANK "(?:\\x{3000}(?![" WEIR_CASED "]))"
// White space that opens no word. It ends the rest before it where nothing but a word, a newline or the end follows,
// and is part of it elsewhere: the pass "\s+$".
#define WEIR_FREE(ws) "(?:[" ws "](?![" WEIR_CASED WEIR_MARK WEIR_MARK_HAN "]|" WEIR_BLANK "))"
#define WEIR_REST(out) "[^" WEIR_WS WEIR_CASED WEIR_MARK WEIR_MARK_HAN out "]"
#define WEIR_REST_RUN(ws, out)                                                                             \
  WEIR_FREE(ws)                                                                                            \
  "*+" WEIR_REST(out) "++(?:" WEIR_FREE(ws) "++(?=" WEIR_FREE(WEIR_WS_NOT_HAN WEIR_WS_HAN) "*+" WEIR_REST( \
      "") ")" WEIR_REST(out) "*+)*+|" WEIR_FREE(ws) "++|"
constexpr char kDeepSeekLlm[] =
    "[\\r\\n]|\\p{N}|[" WEIR_WS_NOT_HAN "]?[" WEIR_CASED_PUNCT "]+|[" WEIR_WS_NOT_HAN "]?[" WEIR_CASED_OTHER
    "]+|[" WEIR_WS_HAN "]?[" WEIR_CASED_HAN "]+|[" WEIR_WS_NOT_HAN "]?[" WEIR_MARK "]+|" WEIR_S "(?=[" WEIR_CASED
    "])|[" WEIR_WS_HAN "]?(?:(?:" WEIR_BLANK "*+[" WEIR_MARK_HAN "])++(?:" WEIR_BLANK "++(?=[" WEIR_MARK
    "]))?|" WEIR_BLANK "++)|" WEIR_REST_RUN(WEIR_WS_NOT_HAN, "\\p{N}" WEIR_HAN)
        WEIR_REST_RUN(WEIR_WS_HAN, "\\p{N}" WEIR_NOT_HAN) WEIR_S;

// Digits by three; runs of CJK ideographs and kana, inside which the third pass acts as well; then much as cl100k, but
// marks go with letters, and what is neither text nor white space stays together.
#define WEIR_KANA_LETTER \
  "\\x{3041}-\\x{3096}\\x{3099}\\x{309a}\\x{309d}-\\x{309f}\\x{30a1}-\\x{30fa}\\x{30fc}-\\x{30ff}"
#define WEIR_KANA_MARK "\\x{309b}\\x{309c}\\x{30a0}\\x{30fb}"
#define WEIR_KANA_NONE "\\x{3040}\\x{3097}\\x{3098}"
#define WEIR_CJK "\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}"
#define WEIR_WORD "[^\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}" WEIR_CJK "]"  // letters and marks that are not CJK
constexpr char kDeepSeekV3[] =
    "\\p{N}{1,3}|[" WEIR_KANA_NONE "]?[" WEIR_KANA_LETTER "\\x{4e00}-\\x{9fa5}]+|[" WEIR_KANA_MARK
    "]+|(?:[" WEIR_KANA_NONE "](?![" WEIR_KANA_LETTER
    "\\x{4e00}-\\x{9fa5}]))++|[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}\\p{N}" WEIR_CJK "]?" WEIR_WORD
    "+| ?[^\\p{L}\\p{M}\\p{N}\\p{Z}\\p{C}" WEIR_CJK "]+[\\r\\n]*|" WEIR_S "*[\\r\\n]+|" WEIR_S "+(?![^" WEIR_WS
    "\\p{N}" WEIR_CJK "])|" WEIR_S "+|(?:[^" WEIR_WS "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}" WEIR_CJK "](?!" WEIR_WORD "))++";

struct PreInfo {
  const char* name;
  const char* pattern;
  bool whole_word_first;
  bool add_bos;
};
constexpr PreInfo kPres[] = {
    {"default", kDefault, false, false},
    {"falcon", kFalcon, false, false},
    {"gpt-2", kGpt2, false, false},
    {"phi-2", kGpt2, false, false},
    {"olmo", kGpt2, false, false},
    {"mpt", kGpt2, false, false},
    {"mellum", kGpt2, false, false},
    {"trillion", kGpt2, false, false},
    {"a.x-4.0", kGpt2, false, false},
    {"exaone4", kGpt2, false, false},
    {"smollm", kSmolLm, false, false},
    {"starcoder", kSmolLm, false, false},
    {"refact", kSmolLm, false, false},
    {"command-r", kSmolLm, false, false},
    {"minerva-7b", kSmolLm, false, false},
    {"llama-bpe", kLlama3, true, true},
    {"llama3", kLlama3, true, true},
    {"llama-v3", kLlama3, true, true},
    {"falcon3", kLlama3, true, true},
    {"pixtral", kLlama3, true, true},
    {"lfm2", kLlama3, true, true},
    {"falcon-h1", kLlama3, true, true},
    {"smaug-bpe", kLlama3, false, false},
    {"dbrx", kLlama3, false, false},
    {"glm4", kLlama3, false, false},
    {"chatglm-bpe", kLlama3, false, false},
    {"qwen2", kQwen2, false, false},
    {"deepseek-r1-qwen", kQwen2, false, false},
    {"megrez", kQwen2, false, false},
    {"stablelm2", kQwen2, false, false},
    {"hunyuan", kQwen2, false, false},
    {"qwen35", kQwen35, false, false},
    {"seed-coder", kSeedCoder, false, false},
    {"gpt-4o", kGpt4o, false, false},
    {"minimax-m2", kGpt4o, false, false},
    {"kimi-k2", kKimiK2, false, false},
    {"tekken", kTekken, true, true},
    {"deepseek-llm", kDeepSeekLlm, false, false},
    {"deepseek-coder", kDeepSeekCoder, false, false},
    {"deepseek-v3", kDeepSeekV3, false, false},
    {"hunyuan-dense", kDeepSeekV3, false, false},
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
    return Unsupported("tokenizer.ggml.pre is '{}', which is not one of the known pre-tokenizers: {}",
                       pre.substr(0, 64), names);
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(info->pattern), PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr);
  if (!code) return Internal("pre-tokenizer '{}': PCRE2 error {} at {} of its expression", info->name, error, offset);
  // If the system forbids executable memory, the interpreter gives the same words, more slowly.
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
    // A hard partial match is PCRE2's way to report that the result depends on bytes that have not arrived yet.
    const uint32_t options = PCRE2_NO_UTF_CHECK | (more ? PCRE2_PARTIAL_HARD : 0);
    rc = pcre2_match(static_cast<pcre2_code*>(code_), reinterpret_cast<PCRE2_SPTR>(text.data()), window, 0, options,
                     scratch.data, scratch.context);
  }
  if (rc == PCRE2_ERROR_PARTIAL) return 0;
  if (rc >= 0) {
    const size_t end = pcre2_get_ovector_pointer(scratch.data)[1];
    if (end > 0) return end;
  }
  // The expressions match any character, so PCRE2 is out of memory: a single character is a valid, if poor, word.
  return std::min<size_t>(Utf8Bytes(text[0]), text.size());
}

}  // namespace weir
