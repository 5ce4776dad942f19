// SPDX-License-Identifier: Apache-2.0
// What it costs to bring a passage back, by way and length:
//
//     recall_restore_bench MODEL.gguf TEXT [POT=1024] [ROUNDS=15] [THREADS=0]
//
// A session reads four pots of TEXT and keeps text, keys and values. Passages of 32 to 256 tokens that have left the
// pot are then restored in turns by `read` and by `kv` in all its variants, and taken back. The archive's pages stay in
// the page cache. One JSON line for each way and length: medians of milliseconds, and the ratio to `read`.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/loaded_model.h"
#include "engine/session.h"
#include "recall/restorers/restorer.h"
#include "recall/stream_recall.h"

namespace {

using namespace weir;

int Die(const Status& status) {
  std::fprintf(stderr, "recall_restore_bench: %s\n", status.message().c_str());
  return 2;
}

double Median(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

// Blocks of the archive that make up a passage of n_tokens or a little more.
Result<Passage> PassageOf(Archive& archive, int64_t from_seq, int64_t n_tokens) {
  Passage out;
  out.n_blocks = 0;
  out.whole = true;
  WEIR_RETURN_IF_ERROR(
      archive.ScanRange({from_seq, from_seq + 2 * n_tokens}, [&](BlockPlace place, const Block& block) {
        if (out.n_blocks == 0) {
          out.from = place;
          out.seq = block.seq;
        }
        ++out.n_blocks;
        out.seq_end = block.seq_end();
        return out.seq_end - out.seq < n_tokens;
      }));
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: recall_restore_bench MODEL.gguf TEXT [POT] [ROUNDS] [THREADS]\n");
    return 2;
  }
  const int pot = argc > 3 ? std::atoi(argv[3]) : 1024, rounds = argc > 4 ? std::atoi(argv[4]) : 15;
  LoadModelOptions load;
  load.path = argv[1];
  load.n_threads = argc > 5 ? std::atoi(argv[5]) : 0;
  auto model = LoadedModel::Load(load);
  if (!model.ok()) return Die(model.status());
  std::ifstream file(argv[2], std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  text.resize(std::min<size_t>(text.size(), static_cast<size_t>(pot) * 24));
  const std::vector<int32_t> tokens = (*model)->tokenizer().Encode(text, {});
  const auto n = std::min<size_t>(tokens.size(), static_cast<size_t>(pot) * 4);

  struct Way {
    const char* name;
    const char* spec;
  };
  constexpr Way kWays[] = {{"read", "words:restore=read"},
                           {"kv f16", "words:restore=kv"},
                           {"kv f16 without words around it", "words:restore=kv,frame=0"},
                           {"kv f16, 16 % again", "words:restore=kv,again=0.16"},
                           {"kv q8_0", "words:restore=kv,store=q8_0"},
                           {"kv q8_0 without words around it", "words:restore=kv,store=q8_0,frame=0"}};
  std::map<std::pair<size_t, int64_t>, std::vector<double>> times;
  std::map<std::pair<size_t, int64_t>, int64_t> n_back;
  for (const bool small : {false, true}) {  // the stores
    RecallOptions recall;
    auto spec = ParseRecallSpec(small ? "words:restore=kv,store=q8_0" : "words:restore=kv");
    if (!spec.ok()) return Die(spec.status());
    recall.spec = *std::move(spec);
    recall.disk_bytes = int64_t{4} << 30;
    recall.tokens = 512;
    SessionOptions options;
    options.policy = ParsePolicySpec("streaming_llm").value();
    options.pot_slots = pot;
    if (const Status status = AddRecall(recall, **model, &options); !status.ok()) return Die(status);
    auto session = Session::Make((*model)->model(), (*model)->backend(), options);
    if (!session.ok()) return Die(session.status());
    auto stream = StreamRecall::Make(recall, **model, **session);
    if (!stream.ok()) return Die(stream.status());
    if (const Status status = (*session)->Append({tokens.data(), n}); !status.ok()) return Die(status);
    (*stream)->Flush();
    Archive& archive = (*stream)->archive();
    for (int round = 0; round <= rounds; ++round) {
      for (const int64_t length : {32, 64, 128, 256}) {
        auto passage = PassageOf(archive, 100 + 50 * round, length);
        if (!passage.ok()) return Die(passage.status());
        for (size_t way = 0; way < std::size(kWays); ++way) {
          auto its = ParseRecallSpec(kWays[way].spec);
          if (!its.ok()) return Die(its.status());
          const bool reads = its->restorer->needs_kv == false;
          if (!reads && (its->options.Text("store") == "q8_0") != small) continue;
          const auto restorer = its->restorer->make(its->options);
          RestoreJob job = {.session = **session, .blocks = archive, .tokenizer = (*model)->tokenizer()};
          job.kv = archive.kv();
          job.shape = (*stream)->vector_shape();
          const auto start = Clock::now();
          const auto back = restorer->Restore(job, {&*passage, 1});
          const double ms = MillisecondsSince(start);
          if (!back.ok()) return Die(back.status());
          const int64_t n_tokens = (*session)->n_excerpt();
          if (const Status status = (*session)->TakeBackExcerpt(); !status.ok()) return Die(status);
          if (round == 0) continue;
          times[{way, length}].push_back(ms);
          n_back[{way, length}] += n_tokens;
        }
      }
    }
  }
  for (const auto& [key, ms] : times) {
    const double read = Median(times[{0, key.second}]);
    std::printf(
        "{\"way\":\"%s\",\"passage\":%ld,\"n\":%zu,\"tokens\":%.1f,\"ms\":%.3f,\"least\":%.3f,\"largest\":%.3f,"
        "\"read_over_it\":%.2f}\n",
        kWays[key.first].name, static_cast<long>(key.second), ms.size(),
        static_cast<double>(n_back[key]) / static_cast<double>(ms.size()), Median(ms), *std::ranges::min_element(ms),
        *std::ranges::max_element(ms), read / Median(ms));
  }
  return 0;
}
