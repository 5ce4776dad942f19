// SPDX-License-Identifier: Apache-2.0
// Any bytes as segments of an archive: opened, searched, cut, added to and opened again, without a crash; what is found
// after that is what was found before, and the new block.
//
// Input: one byte how the rest is meant: the segment itself, changes to a good one (four bytes of place, one of value,
// each), or records to which right checksums are written.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/utf8.h"
#include "recall/archive.h"

namespace {

using namespace weir;

void Require(bool good) {
  if (!good) std::abort();
}

constexpr int32_t kWidth = 3;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class World {
 public:
  World() {
    std::string folder = (std::filesystem::temp_directory_path() / "weir-fuzz-XXXXXX").string();
    Require(mkdtemp(folder.data()) != nullptr);
    options_.dir = folder;
    options_.disk_bytes = 1 << 20;
    options_.n_embd = kWidth;
    options_.max_rows = 20;
    auto archive = Archive::Make(options_, ledger_);
    Require(archive.ok());
    const std::vector<uint16_t> rows(kWidth * 20, 0x3c00);
    for (int64_t i = 0; i < 12; ++i) {
      Block block;
      block.seq = 20 * i;
      block.n_tokens = 20;
      if (i % 4 == 3) {
        block.modality = Modality::kImage;
        block.rows = rows;
      } else {
        block.text = "Call me Ishmael. Some years ago";
      }
      Require((*archive)->Append(block).ok());
    }
    archive->reset();
    good_ = ReadFile(Path(1));
  }
  std::string Path(int number) const { return fmt::format("{}/{:08}.seg", options_.dir, number); }

  // The archive's blocks as text; fewer bytes than the file has.
  std::string Found(Archive& archive) {
    std::string out;
    int64_t seq = -1;
    const Status status = archive.Scan(archive.begin(), [&](BlockPlace place, const Block& block) {
      Require(block.seq >= seq && block.n_tokens > 0 && block.columns > 0 && place > 0);
      Require(ValidUtf8Prefix(block.text) == block.text.size());
      Require(block.rows.size() == (block.modality == Modality::kText ? 0u : kWidth * block.n_tokens));
      seq = block.seq;
      out += fmt::format("{} {} {} {} {} ", block.seq, block.n_tokens, block.t_ms, static_cast<int>(block.role),
                         Crc32c({reinterpret_cast<const uint8_t*>(block.rows.data()), block.rows.size_bytes()}));
      out += block.text;
      return true;
    });
    Require(status.ok() || status.code() == StatusCode::kIo);
    // What is searched: in order, too, and without rows.
    seq = -1;
    (void)archive.ScanText(archive.begin(), [&](BlockPlace place, const Block& block) {
      Require(block.seq >= seq && block.n_tokens > 0 && place > 0 && block.rows.empty());
      Require(ValidUtf8Prefix(block.text) == block.text.size());
      seq = block.seq;
      return true;
    });
    return out;
  }
  std::unique_ptr<Archive> Open() {
    auto archive = Archive::Open(options_, ledger_);
    return archive.ok() ? *std::move(archive) : nullptr;
  }
  const std::string& good() const { return good_; }
  const ArchiveOptions& options() const { return options_; }
  Ledger& ledger() { return ledger_; }

 private:
  ArchiveOptions options_;
  Ledger ledger_;
  std::string good_;
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
  if (size < 1) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 4 != 0) {
    bytes = world.good();
    if (data[0] % 4 == 2) bytes = bytes.substr(0, kSegmentHeadBytes) + std::string(data + 1, data + size);
    if (data[0] % 4 != 2) {
      for (size_t at = 1; at + 5 <= size; at += 5) {
        uint32_t place;
        std::memcpy(&place, data + at, 4);
        bytes[place % bytes.size()] = static_cast<char>(data[at + 4]);
      }
    }
    if (data[0] % 4 >= 2) Seal(&bytes);
  }
  for (int number = 1; number < 8; ++number) unlink(world.Path(number).c_str());
  std::ofstream(world.Path(1), std::ios::binary) << bytes;
  if (data[0] & 4) std::ofstream(world.Path(2), std::ios::binary) << world.good();
  std::string found;
  {
    const auto reader = Archive::OpenReadOnly(world.options(), world.ledger());
    if (!reader.ok()) return 0;
    found = world.Found(**reader);
    (void)(*reader)->notes().Text();
  }
  Block block;
  block.text = " and a new block";
  block.n_tokens = 4;
  {
    const auto archive = world.Open();
    Require(archive != nullptr && world.Found(*archive) == found);
    block.seq = archive->seq_end();
    if (!archive->Append(block).ok()) return 0;  // the newest is as late as a block may be
    Require(archive->state().ok() && world.Found(*archive).rfind(found, 0) == 0);
  }
  ArchivePoint point;
  {
    const auto archive = world.Open();
    Require(archive != nullptr);
    const std::string more = world.Found(*archive);
    Require(more.rfind(found, 0) == 0 && more.ends_with(block.text));
    point = {data[size - 1] * int64_t{3}, 1, data[size / 2] * int64_t{5}};
    Require(archive->Has(point).ok() && *archive->Has(archive->SavePoint()));
    Require(archive->CutTo(point).ok() && archive->seq_end() == point.seq_end);
    Require(more.rfind(world.Found(*archive), 0) == 0);
  }
  return 0;
}
