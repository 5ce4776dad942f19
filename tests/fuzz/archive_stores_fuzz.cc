// SPDX-License-Identifier: Apache-2.0
// Any bytes as an archive's words, keys, or keys and values, under a session that recalls with them: without a crash,
// what comes back is text, and the session is afterwards as before. Bytes that were only changed never come back.
//
// Input: one byte for the selector and the file that is changed, one byte how the rest is meant: changes to a good
// segment (four bytes of place, one of value, each), the same with right checksums, or records to which right checksums
// are written.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/utf8.h"
#include "recall/stream_recall.h"
#include "support/build_paths.h"

namespace {

using namespace weir;

void Require(bool good) {
  if (!good) std::abort();
}

constexpr const char* kSpecs[] = {"both:gate=0,margin=0,near=0,restore=kv", "keys:gate=0,margin=0,near=0,restore=kv",
                                  "words:gate=0,margin=0,near=0,restore=kv,again=0.3",
                                  "keys:gate=0,margin=0,near=0,passages=4"};
constexpr const char* kFiles[] = {"00000001.seg", "keys/00000001.seg", "kv/00000001.seg"};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class World {
 public:
  World() {
    std::string folder = (std::filesystem::temp_directory_path() / "weir-fuzz-XXXXXX").string();
    Require(mkdtemp(folder.data()) != nullptr);
    LoadModelOptions load;
    load.path = SourceDir() + "/tests/golden/models/llama.gguf";
    load.n_threads = 1;
    auto model = LoadedModel::Load(load);
    Require(model.ok());
    model_ = *std::move(model);
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec("streaming_llm")).value();
    options.pot_slots = 64;
    recall_.dir = folder + "/a";
    recall_.disk_bytes = 16 << 20;
    recall_.tokens = 120;
    recall_.spec = std::move(ParseRecallSpec(kSpecs[0])).value();
    Require(AddRecall(recall_, *model_, &options).ok());
    session_ = std::move(Session::Make(model_->model(), model_->backend(), options)).value();
    {
      const auto stream = std::move(StreamRecall::Make(recall_, *model_, *session_)).value();
      said_ = " The harpoon lay in the attic.";
      for (int i = 0; i < 12; ++i) said_ += " the man and the sea.";
      EncodeOptions plain;
      plain.add_special = false;
      Require(session_->Append(model_->tokenizer().Encode(said_, plain)).ok());
    }
    for (const char* file : kFiles) good_.push_back(ReadFile(recall_.dir + "/" + file));
  }

  const std::string& good(size_t i) const { return good_[i]; }
  // The archive as it was, but for one file.
  void Write(size_t changed, const std::string& bytes) const {
    for (size_t i = 0; i < std::size(kFiles); ++i) {
      const std::string path = recall_.dir + "/" + kFiles[i];
      for (const char* other : {"00000002.seg", "00000003.seg"}) {
        unlink((path.substr(0, path.size() - std::strlen("00000001.seg")) + other).c_str());
      }
      std::ofstream(path, std::ios::binary) << (i == changed ? bytes : good_[i]);
    }
  }
  // `whole`: checksums were not written anew.
  void Ask(const char* spec, bool whole) {
    const int64_t before = session_->ledger().used_bytes();
    recall_.spec = std::move(ParseRecallSpec(spec)).value();
    {
      auto made = StreamRecall::Make(recall_, *model_, *session_);
      if (!made.ok()) return;
      StreamRecall& recall = **made;
      recall.Pause(true);
      const auto recalled = recall.recaller().TryToBring(*session_, " Where was the harpoon?", 0);
      Require(recalled.ok());
      for (const RecalledPassage& passage : recalled->passages) {
        Require(ValidUtf8Prefix(passage.text) == passage.text.size());
        Require(!whole || said_.find(passage.text) != said_.npos);
      }
      Require(recall.recaller().TakeBack(*session_).ok() && session_->n_excerpt() == 0);
      (void)recall.archive().notes().Text();
    }
    Require(session_->ledger().used_bytes() == before);
  }

 private:
  std::unique_ptr<LoadedModel> model_;
  RecallOptions recall_;
  std::unique_ptr<Session> session_;
  std::string said_;
  std::vector<std::string> good_;
};

// Gives every record that the lengths claim the checksum it needs.
void Seal(std::string* bytes) {
  const auto header = ReadSegmentHead({reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()});
  if (!header.ok()) return;
  for (size_t at = kSegmentHeadBytes; at + 8 <= bytes->size();) {
    uint32_t n;
    std::memcpy(&n, bytes->data() + at, 4);
    if (n > bytes->size() - at - 8) return;
    const uint32_t words[] = {header->salt, static_cast<uint32_t>(header->number), static_cast<uint32_t>(at), n};
    uint32_t sum = Crc32c({reinterpret_cast<const uint8_t*>(words), sizeof(words)});
    sum = Crc32c({reinterpret_cast<const uint8_t*>(bytes->data()) + at + 8, n}, sum);
    std::memcpy(bytes->data() + at + 4, &sum, 4);
    at += 8 + n;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World world;
  if (size < 2) return 0;
  const size_t file = data[0] / std::size(kSpecs) % std::size(kFiles);
  std::string bytes = world.good(file);
  const int meant = data[1] % 3;
  if (meant == 2) {
    bytes = bytes.substr(0, kSegmentHeadBytes) + std::string(data + 2, data + size);
  } else {
    for (size_t at = 2; at + 5 <= size; at += 5) {
      uint32_t place;
      std::memcpy(&place, data + at, 4);
      bytes[place % bytes.size()] = static_cast<char>(data[at + 4]);
    }
  }
  if (meant != 0) Seal(&bytes);
  world.Write(file, bytes);
  world.Ask(kSpecs[data[0] % std::size(kSpecs)], meant == 0);
  return 0;
}
