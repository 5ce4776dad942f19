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
    {{"-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"}, "`weir chat` talks in rounds"},
    {{"-no-cnv", "--no-conversation"}, "`weir run` goes on from the prompt as it is; leave it out"},
    {{"-st", "--single-turn"}, "`weir run --chat` answers one turn"},
    {{"-e", "--escape"},
     "a backslash is a letter here; write the line break itself, as $'one\\ntwo' in bash, or use -f"},
    {{"--no-escape"}, "a backslash is always a letter here; leave it out"},
    {{"-r", "--reverse-prompt"}, "an answer ends where the model ends it; requests to `weir serve` can name a `stop`"},
    {{"--mlock"}, "weights are copied into memory when a model is loaded; leave it out"},
    {{"--no-mmap"}, "weights are copied into memory when a model is loaded, not mapped; leave it out"},
    {{"--no-warmup", "--warmup"}, "nothing is warmed up; leave it out"},
    {{"--jinja", "--no-jinja", "--chat-template-file"},
     "chat templates are known by name: --chat-template NAME, or the file's own"},
    {{"--grammar", "--grammar-file", "-j", "--json-schema", "-jf", "--json-schema-file"},
     "answers cannot be held to a grammar or a schema"},
    {{"--lora", "--lora-scaled", "--control-vector"}, "adapters are not read; merge them into the model file first"},
    {{"-co", "--color"}, "the answer alone goes to standard output, without colours; leave it out"},
    {{"--no-display-prompt", "--verbose-prompt"}, "the prompt is never printed; leave it out"},
    {{"--simple-io", "-mli", "--multiline-input"},
     "`weir chat` edits lines on a terminal and reads them plainly from a pipe; leave it out"},
    {{"-sp", "--special"}, "control tokens are never printed; leave it out"},
    {{"-fa", "--flash-attn"}, "attention is always computed in one pass; leave it out"},
    {{"-ub", "--ubatch-size"}, "tokens read at once are -b"},
    {{"-tb", "--threads-batch"}, "threads are -t, for reading and writing alike"},
    {{"-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-mu", "--model-url"},
     "models are files; download one and name it with -m (scripts/fetch-model does both)"},
    {{"-np", "--parallel"}, "`weir serve` takes --answer-pots and --together"},
    {{"-cb", "--cont-batching", "-nocb", "--no-cont-batching"},
     "`weir serve` always answers several requests in one pass; leave it out"},
    {{"-dev"}, "the device is --device cpu, cuda or auto"},
    {{"-sm", "--split-mode", "-ts", "--tensor-split", "-mg", "--main-gpu", "-ot", "--override-tensor", "-cmoe",
      "-ncmoe"},
     "one GPU holds all layers or none: -ngl, --device"},
    {{"-nkvo", "--no-kv-offload"}, "keys and values are always where the weights are; leave it out"},
    {{"-md", "--model-draft", "--draft"}, "there is no speculative decoding"},
    {{"--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale", "--yarn-orig-ctx"},
     "how positions are scaled is the model file's; leave it out"},
    {{"--keep"}, "--pin TEXT is never forgotten, nor is the system message"},
    {{"--context-shift"}, "it is always so: --policy NAME says what is forgotten"},
    {{"--no-context-shift"}, "--on-overflow error refuses input beyond the pot"},
    {{"-dt", "--defrag-thold"}, "the pot is compacted whenever something is forgotten; leave it out"},
    {{"--prompt-cache"}, "--session FILE goes on from a saved session and saves it again"},
    {{"-sysf", "--system-prompt-file"}, "--system \"$(cat FILE)\""},
    {{"--numa"}, "memory is placed by the operating system; numactl can bind the process"},
    {{"--log-disable", "-lv", "--verbosity", "--log-file"},
     "messages go to standard error: 2>FILE keeps them, 2>/dev/null hides them"},
    {{"--typical", "--mirostat", "--mirostat-lr", "--mirostat-ent", "--dry-multiplier", "--xtc-probability",
      "--samplers", "--sampling-seq", "--presence-penalty", "--frequency-penalty", "--dynatemp-range"},
     "samplers are --temp, --top-k, --top-p, --min-p and --repeat-penalty"},
    {{"--embedding", "--embeddings", "--reranking", "--rerank"},
     "there are no embeddings; answers and likelihoods only"},
    {{"--slots", "--props"}, "/v1/sessions and /metrics say what a server holds; leave it out"},
    {{"--no-webui"}, "the page is always there, at /; leave it out"},
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
