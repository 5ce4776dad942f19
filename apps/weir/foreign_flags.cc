// SPDX-License-Identifier: Apache-2.0
#include "foreign_flags.h"

#include <algorithm>
#include <initializer_list>

namespace weir::app {
namespace {

struct Advice {
  std::initializer_list<std::string_view> flags;
  const char* instead;
};

const Advice kAdvice[] = {
    {{"-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"},
     "`weir chat` holds a conversation"},
    {{"-no-cnv", "--no-conversation"}, "`weir run` continues the prompt as it is; leave it out"},
    {{"-st", "--single-turn"}, "`weir run --chat` answers one turn"},
    {{"-e", "--escape"},
     "backslashes are not escapes here; write the line break itself, as $'one\\ntwo' in bash, or use -f"},
    {{"--no-escape"}, "backslashes are never escapes here; leave it out"},
    {{"-r", "--reverse-prompt"}, "the model decides where an answer ends; requests to `weir serve` can set `stop`"},
    {{"--mlock"}, "weights are always copied into memory; leave it out"},
    {{"--no-mmap"}, "weights are always copied into memory, not mapped; leave it out"},
    {{"--no-warmup", "--warmup"}, "there is no warm-up; leave it out"},
    {{"--no-jinja"}, "a template that is recognised is not run anyway; leave it out, or name one with --chat-template"},
    {{"-jf"}, "use --json-schema-file"},
    {{"--lora", "--lora-scaled", "--control-vector"},
     "adapters are not supported; merge them into the model file first"},
    {{"-co", "--color"}, "standard output holds only the answer, without colours; leave it out"},
    {{"--no-display-prompt", "--verbose-prompt"}, "the prompt is never printed; leave it out"},
    {{"--simple-io", "-mli", "--multiline-input"},
     "`weir chat` edits lines on a terminal and reads them plainly from a pipe; leave it out"},
    {{"--reasoning-format"},
     "use --thoughts apart, hide or inline; requests to `weir serve` have the field reasoning_format"},
    {{"--reasoning-budget"}, "use --chat-template-kwargs '{\"enable_thinking\": false}' if the template reads it"},
    {{"-sp", "--special"}, "control tokens are never printed; leave it out"},
    {{"-fa", "--flash-attn"}, "attention is always computed in one pass; leave it out"},
    {{"-ub", "--ubatch-size"}, "use -b for the number of tokens read at once"},
    {{"-tb", "--threads-batch"}, "use -t; prefill and decoding share the threads"},
    {{"-hff", "--hf-file"}, "name the file after the repository: -hf OWNER/NAME:FILE"},
    {{"-mu", "--model-url"}, "download the model file and pass it with -m (scripts/fetch-model downloads one)"},
    {{"-hft", "--hf-token"}, "`hf auth login` keeps the token; leave it out"},
    {{"-np", "--parallel"}, "use --answer-pots and --together of `weir serve`"},
    {{"-cb", "--cont-batching", "-nocb", "--no-cont-batching"},
     "`weir serve` always answers several requests in one pass; leave it out"},
    {{"-dev"}, "use --device cpu, cuda or auto"},
    {{"-sm", "--split-mode", "-ts", "--tensor-split", "-mg", "--main-gpu", "-ot", "--override-tensor", "-cmoe",
      "-ncmoe"},
     "one GPU holds all layers or none; use -ngl or --device"},
    {{"-nkvo", "--no-kv-offload"}, "the KV cache is always on the same device as the weights; leave it out"},
    {{"-ngld", "--gpu-layers-draft", "-devd", "--device-draft"}, "a draft is on the model's device; leave it out"},
    {{"-td", "--threads-draft"}, "use -t; a draft shares the threads"},
    {{"--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale", "--yarn-orig-ctx"},
     "the model file defines RoPE scaling; leave it out"},
    {{"--keep"}, "use --pin TEXT; the system message is never forgotten either"},
    {{"--context-shift"}, "tokens are always evicted when the pot is full; --policy NAME decides which"},
    {{"--no-context-shift"}, "use --on-overflow error to refuse input beyond the pot"},
    {{"-dt", "--defrag-thold"}, "the pot is compacted at every eviction; leave it out"},
    {{"--prompt-cache"}, "use --session FILE, which continues a saved session and saves it again"},
    {{"-sysf", "--system-prompt-file"}, "use --system \"$(cat FILE)\""},
    {{"--numa"}, "the operating system places memory; numactl can bind the process"},
    {{"--log-disable", "-lv", "--verbosity", "--log-file"},
     "messages go to standard error; use 2>FILE to keep them, 2>/dev/null to hide them"},
    {{"--typical", "--mirostat", "--mirostat-lr", "--mirostat-ent", "--dry-multiplier", "--xtc-probability",
      "--samplers", "--sampling-seq", "--presence-penalty", "--frequency-penalty", "--dynatemp-range"},
     "the samplers are --temp, --top-k, --top-p, --min-p and --repeat-penalty"},
    {{"--embedding", "--embeddings"}, "`weir serve` always answers /v1/embeddings; leave it out"},
    {{"--reranking", "--rerank"}, "there is no reranking; /v1/embeddings gives vectors to compare"},
    {{"--slots", "--props", "--metrics"}, "/slots, /props and /metrics are always there; leave it out"},
    {{"--slot-save-path"}, "use --snapshots FOLDER"},
    {{"-a", "--alias"}, "use --name TEXT of `weir serve`"},
    {{"--n-predict"}, "use -n"},
    {{"--cache-reuse"}, "the longest prefix that a pot holds is always used again; leave it out"},
    {{"--no-webui"}, "the web page is always served at /; leave it out"},
};

}  // namespace

const char* InsteadOf(std::string_view flag) {
  flag = flag.substr(0, flag.find('='));
  for (const Advice& advice : kAdvice) {
    if (std::find(advice.flags.begin(), advice.flags.end(), flag) != advice.flags.end()) return advice.instead;
  }
  return nullptr;
}

bool WouldBeMisread(std::string_view argument) {
  return argument.size() > 2 && argument[0] == '-' && argument[1] != '-' && InsteadOf(argument) != nullptr;
}

}  // namespace weir::app
