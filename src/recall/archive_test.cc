// SPDX-License-Identifier: Apache-2.0
#include "recall/archive.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>

#include "recall/archive_test_util.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

TEST_F(ArchiveTest, WhatWasAppendedIsFoundAtOnceAndLater) {
  std::vector<Stored> before;
  {
    const auto archive = Make(options_);
    EXPECT_TRUE(All(*archive).empty());
    Fill(*archive, 0, 50);
    EXPECT_EQ(All(*archive), Stream(0, 50));  // in the buffer
    archive->Flush();
    Fill(*archive, 50, 3000);
    before = All(*archive);
    EXPECT_EQ(before, Stream(0, 3000));
    EXPECT_EQ(archive->seq_begin(), 0);
    EXPECT_EQ(archive->seq_end(), 32 * 3000);
    EXPECT_GT(archive->n_segments(), 1);
    EXPECT_EQ(archive->notes().Text(), "");
  }
  const auto archive = Open(options_);
  EXPECT_EQ(archive->seq_end(), 32 * 3000);
  const std::vector<Stored> after = All(*archive);
  EXPECT_EQ(after, before);
  for (size_t i = 0; i < after.size(); ++i) ASSERT_EQ(after[i].place, before[i].place);
  for (size_t i = 0; i < after.size(); i += 97) {  // from any place
    EXPECT_EQ(All(*archive, after[i].place), Stream(static_cast<int64_t>(i), 3000));
  }
  Fill(*archive, 3000, 3100);
  EXPECT_EQ(All(*archive), Stream(0, 3100));
  EXPECT_EQ(archive->notes().Text(), "");
}

TEST_F(ArchiveTest, TheOldestGoesWhenTheQuotaIsReached) {
  for (const char* name : {"a", ""}) {
    ArchiveOptions options = Options(name);
    options.disk_bytes = 1 << 20;
    const auto archive = Make(options);
    for (int64_t i = 0; i < 20000; ++i) {
      Fill(*archive, i, i + 1);
      ASSERT_LE(archive->disk_bytes(), options.disk_bytes);
      if (i % 1000 == 999) {
        const std::vector<Stored> held = All(*archive);
        const int64_t first = held.front().block.seq / 32;
        ASSERT_EQ(held, Stream(first, i + 1));
        EXPECT_EQ(archive->seq_begin(), 32 * first);
        EXPECT_EQ(archive->notes().removed_to_seq, 32 * first);
      }
    }
    EXPECT_GT(archive->seq_begin(), 32 * 10000);
    EXPECT_TRUE(archive->state().ok());
  }
}

TEST_F(ArchiveTest, MemoryIsWhatWasPlanned) {
  for (const int64_t quota : {int64_t{1} << 20, int64_t{2} << 30, int64_t{1} << 40}) {
    for (const char* name : {"", "m"}) {
      ArchiveOptions options = Options(name);
      options.disk_bytes = quota;
      const auto planned = Archive::MemoryBytes(options);
      ASSERT_TRUE(planned.ok());
      Ledger ledger(*planned);
      const auto archive = Archive::Make(options, ledger);
      ASSERT_TRUE(archive.ok()) << archive.status().message();
      EXPECT_EQ(ledger.used_bytes(), *planned);
      EXPECT_EQ((*archive)->memory_bytes(), *planned);
      Fill(**archive, 0, 2000);
      EXPECT_EQ(All(**archive), Stream(0, 2000));
      EXPECT_EQ(ledger.peak_bytes(), *planned);
      EXPECT_TRUE((*archive)->Remove().ok());
      Ledger small(*planned - 1);
      EXPECT_EQ(Archive::Make(options, small).status().code(), StatusCode::kOverBudget);
      EXPECT_FALSE(fs::exists(options.dir));  // nothing is left of what could not be made
    }
  }
}

TEST_F(ArchiveTest, FilesAreTheOwnersAlone) {
  umask(0);
  const auto archive = Make(options_);
  Fill(*archive, 0, 3000);
  struct stat info {};
  ASSERT_EQ(stat(options_.dir.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  int n = 0;
  for (const auto& entry : fs::directory_iterator(options_.dir)) {
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << entry.path();
    ++n;
  }
  EXPECT_GT(n, 2);
}

TEST_F(ArchiveTest, WithoutANameThereIsNothingInTheFolder) {
  const auto archive = Make(Options(""));
  Fill(*archive, 0, 3000);
  archive->Flush();
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_EQ(All(*archive), Stream(0, 3000));
  EXPECT_GT(archive->n_segments(), 1);
}

TEST_F(ArchiveTest, RefusesBlocksThatItCannotHold) {
  const auto archive = Make(options_);
  Fill(*archive, 0, 20);
  const auto refused = [&](auto change) {
    Stored stored = Nth(30);
    Block block = View(stored);
    change(block, stored);
    const Status status = archive->Append(block);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
  };
  refused([](Block& block, Stored&) { block.seq = 32 * 20 - 1; });
  refused([](Block& block, Stored&) { block.seq = -1; });
  refused([](Block& block, Stored&) { block.seq = INT64_MAX; });
  refused([](Block& block, Stored&) { block.t_ms = -1; });
  refused([](Block& block, Stored&) { block.n_tokens = 0; });
  refused([](Block& block, Stored&) { block.columns = 0; });
  refused([](Block& block, Stored&) { block.text = "\xC3"; });
  refused([](Block& block, Stored& stored) { block.text = stored.text = std::string((16 << 10) + 1, 'x'); });
  refused([](Block& block, Stored&) { block.modality = Modality::kImage; });
  refused([](Block& block, Stored& stored) {
    stored = Nth(39);
    block = View(stored);
    block.rows = block.rows.first(32 * kWidth - 1);
  });
  refused([](Block& block, Stored& stored) {
    stored.rows.resize(65 * kWidth);
    block.modality = Modality::kVideo;
    block.text = {};
    block.n_tokens = 65;
    block.rows = stored.rows;
  });
  EXPECT_TRUE(archive->state().ok());
  EXPECT_EQ(All(*archive), Stream(0, 20));
}

TEST_F(ArchiveTest, PicturesLargerThanTheWriteBuffer) {
  options_.n_embd = 576;
  options_.max_rows = 576;
  const auto archive = Make(options_);
  std::vector<Stored> want;
  for (int i = 0; i < 5; ++i) {
    Stored text = Nth(20 * i);
    text.block.seq = 1000 * i;
    Stored picture;
    picture.block.seq = 1000 * i + 100;
    picture.block.n_tokens = 576 - i;
    picture.block.columns = 24;
    picture.block.modality = Modality::kImage;
    for (int k = 0; k < 576 * (576 - i); ++k) picture.rows.push_back(static_cast<uint16_t>(k * 7 + i));
    for (const Stored& stored : {text, picture}) {
      ASSERT_TRUE(archive->Append(View(stored)).ok());
      want.push_back(stored);
    }
  }
  EXPECT_EQ(All(*archive), want);
  archive->Flush();
  // With smaller buffers the texts are still there.
  ArchiveOptions small = options_;
  small.max_rows = 0;
  const auto reader = Archive::OpenReadOnly(small, ledger_);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  const std::vector<Stored> texts = All(**reader);
  ASSERT_EQ(texts.size(), 5u);
  EXPECT_EQ((*reader)->notes().n_too_large, 5);
  EXPECT_EQ((*reader)->notes().n_damaged, 0);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(texts[i], want[2 * i]);
}

TEST_F(ArchiveTest, NothingIsOverwritten) {
  const auto make = [&](const ArchiveOptions& options) { return Archive::Make(options, ledger_).status(); };
  fs::create_directory(folder_ + "/other");
  WriteFile(folder_ + "/other/letter", "dear");
  Status status = make(Options("other"));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), folder_ + "/other holds other files; name a folder that is new or empty");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ + "/other"), {}), 1);
  { Fill(*Make(options_), 0, 10); }
  EXPECT_EQ(make(options_).message(), options_.dir + " holds an archive; name a folder that is new or empty");
  EXPECT_EQ(All(*Open(options_)), Stream(0, 10));

  WriteFile(folder_ + "/file", "");
  EXPECT_EQ(make(Options("file")).code(), StatusCode::kIo);
  EXPECT_EQ(make(Options("no/such")).code(), StatusCode::kIo);
  if (geteuid() != 0) {
    fs::create_directory(folder_ + "/closed");
    fs::permissions(folder_ + "/closed", fs::perms::owner_read);
    EXPECT_EQ(make(Options("closed/b")).code(), StatusCode::kIo);
  }
  ArchiveOptions unnamed = Options("");
  unnamed.temp_dir = folder_ + "/none";
  EXPECT_EQ(make(unnamed).code(), StatusCode::kIo);
  EXPECT_EQ(make(Options("file")).message().find('\n'), std::string::npos);
  fs::create_directory(folder_ + "/empty");
  EXPECT_NE(Make(Options("empty")), nullptr);
}

TEST_F(ArchiveTest, TheQuotaHoldsTwoSegments) {
  ArchiveOptions options = options_;
  options.disk_bytes = (512 << 10) - 1;
  EXPECT_EQ(Archive::Make(options, ledger_).status().message(),
            "an archive of 524287 bytes is too small: give it 524288 bytes of disk at least");
  options.disk_bytes = -5;
  EXPECT_EQ(Archive::Make(options, ledger_).status().code(), StatusCode::kInvalidArgument);
  options.disk_bytes = 512 << 10;
  EXPECT_NE(Make(options), nullptr);
  options.n_embd = 4096;  // a picture needs a segment of its own
  options.max_rows = 576;
  EXPECT_EQ(Archive::Make(options, ledger_).status().code(), StatusCode::kInvalidArgument);
  options.max_rows = 1 << 16;
  options.n_embd = 1 << 20;
  options.disk_bytes = INT64_MAX;
  EXPECT_EQ(Archive::Make(options, ledger_).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ArchiveTest, OneProcessAtATime) {
  const auto archive = Make(options_);
  Fill(*archive, 0, 100);
  archive->Flush();
  const auto second = Archive::Open(options_, ledger_);
  EXPECT_EQ(second.status().code(), StatusCode::kIo);
  EXPECT_EQ(second.status().message(),
            "another process, or session, has the archive in " + options_.dir + " open; end it first");
  // Reading is allowed meanwhile; what is in the other's buffer is not there.
  Fill(*archive, 100, 120);
  const auto reader = Archive::OpenReadOnly(options_, ledger_);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(All(**reader), Stream(0, 100));
  EXPECT_FALSE((*reader)->state().ok());
  ASSERT_TRUE((*reader)->Append(View(Nth(200))).ok());
  EXPECT_FALSE((*reader)->Remove().ok());
  EXPECT_FALSE((*reader)->CutTo({}).ok());
  EXPECT_EQ(All(*archive), Stream(0, 120));
  EXPECT_EQ(Archive::Open(Options("none"), ledger_).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Archive::OpenReadOnly(Options("none"), ledger_).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Archive::Open(Options(""), ledger_).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(Archive::Exists(options_.dir));
  EXPECT_FALSE(Archive::Exists(folder_));
}

TEST_F(ArchiveTest, AnotherModelsTextStays) {
  { Fill(*Make(options_), 0, 30); }
  ArchiveOptions other = options_;
  other.model_hash = 99;
  other.n_embd = 4;
  {
    const auto archive = Open(other);
    std::vector<Stored> texts = Stream(0, 30);
    std::erase_if(texts, [](const Stored& stored) { return !stored.rows.empty(); });
    EXPECT_EQ(All(*archive), texts);
    EXPECT_EQ(archive->notes().n_foreign_pictures, 3);
    EXPECT_EQ(All(*archive).size(), texts.size());
    EXPECT_EQ(archive->notes().n_foreign_pictures, 3);  // not twice
    // It goes on in a segment of its own.
    for (int64_t i = 31; i < 39; ++i) {
      const Stored stored = Nth(i);
      ASSERT_TRUE(archive->Append(View(stored)).ok());
      texts.push_back(stored);
    }
    EXPECT_EQ(All(*archive), texts);
    EXPECT_EQ(archive->n_segments(), 2);
  }
  const auto archive = Open(options_);
  std::vector<Stored> want = Stream(0, 39);
  want.erase(want.begin() + 30);
  EXPECT_EQ(All(*archive), want);
}

TEST_F(ArchiveTest, ForksAreIndependent) {
  for (const char* from : {"a", ""}) {
    for (const char* to : {"b", ""}) {
      const auto archive = Make(Options(from));
      Fill(*archive, 0, 5000);
      auto made = archive->Fork(Options(to).dir, ledger_);
      ASSERT_TRUE(made.ok()) << made.status().message();
      const auto fork = *std::move(made);
      EXPECT_EQ(All(*fork), Stream(0, 5000));
      EXPECT_EQ(fork->seq_end(), archive->seq_end());
      const ArchivePoint point = fork->SavePoint();
      Fill(*archive, 5000, 5100);
      Fill(*fork, 6000, 6200);
      std::vector<Stored> forked = Stream(0, 5000);
      for (const Stored& stored : Stream(6000, 6200)) forked.push_back(stored);
      EXPECT_EQ(All(*archive), Stream(0, 5100));
      EXPECT_EQ(All(*fork), forked);
      // A cut into what both have leaves the other alone.
      ArchivePoint early;
      int64_t i = 0;
      ASSERT_TRUE(archive
                      ->Scan(archive->begin(),
                             [&](BlockPlace place, const Block&) {
                               early = {32 * i, static_cast<int32_t>(place >> 32), place & 0xFFFFFFFF};
                               return ++i <= 1000;
                             })
                      .ok());
      ASSERT_TRUE(archive->CutTo(early).ok());
      EXPECT_EQ(All(*archive), Stream(0, 1000));
      EXPECT_EQ(All(*fork), forked);
      Fill(*archive, 1000, 3000);
      EXPECT_EQ(All(*archive), Stream(0, 3000));
      EXPECT_EQ(All(*fork), forked);
      ASSERT_TRUE(archive->Remove().ok());
      EXPECT_EQ(All(*fork), forked);
      ASSERT_TRUE(fork->CutTo(point).ok());
      EXPECT_EQ(All(*fork), Stream(0, 5000));
      ASSERT_TRUE(fork->Remove().ok());
      EXPECT_TRUE(fs::is_empty(folder_));
    }
  }
}

TEST_F(ArchiveTest, AReopenedArchiveDoesNotGrowAForksFile) {
  { Fill(*Make(options_), 0, 2000); }
  std::string before;
  {
    const auto archive = Open(options_);
    Fill(*archive, 2000, 2001);
    auto fork = archive->Fork(Options("b").dir, ledger_);
    ASSERT_TRUE(fork.ok());
  }
  {  // The newest segment of both is the same file now, as after a crash between two segments.
    const int n = static_cast<int>(std::distance(fs::directory_iterator(options_.dir), {})) - 1;
    const std::string path = PathOf(n), twin = folder_ + "/b" + path.substr(options_.dir.size());
    fs::remove(twin);
    fs::create_hard_link(path, twin);
    Fill(*Open(options_), 2001, 2100);
  }
  EXPECT_EQ(All(*Open(options_)), Stream(0, 2100));
  EXPECT_EQ(All(*Open(Options("b"))), Stream(0, 2001));
}

TEST_F(ArchiveTest, AForkThatCannotBeMadeLeavesNothing) {
  const auto archive = Make(options_);
  Fill(*archive, 0, 3000);
  Ledger none(1000);
  EXPECT_EQ(archive->Fork(Options("b").dir, none).status().code(), StatusCode::kOverBudget);
  EXPECT_EQ(archive->Fork(options_.dir, ledger_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(fs::exists(Options("b").dir));
  EXPECT_EQ(All(*archive), Stream(0, 3000));
}

TEST_F(ArchiveTest, BackToASavePoint) {
  std::vector<ArchivePoint> points;
  const std::vector<int64_t> at = {0, 1, 10, 700, 1999, 2000, 4000};
  {
    const auto archive = Make(options_);
    for (size_t i = 0; i < at.size(); ++i) {
      if (i > 0) Fill(*archive, at[i - 1], at[i]);
      points.push_back(archive->SavePoint());
      EXPECT_EQ(points.back().seq_end, 32 * at[i]);
    }
    Fill(*archive, 4000, 4500);
  }
  for (size_t i = at.size(); i-- > 0;) {  // newest first: each cut removes what later points need
    {
      const auto archive = Open(options_);
      ASSERT_TRUE(archive->CutTo(points[i]).ok());
      EXPECT_EQ(archive->seq_end(), points[i].seq_end);
      EXPECT_EQ(All(*archive), Stream(0, at[i]));
      EXPECT_EQ(archive->notes().Text(), "");
      Fill(*archive, at[i], at[i] + 3);
      EXPECT_EQ(All(*archive), Stream(0, at[i] + 3));
    }
    EXPECT_EQ(All(*Open(options_)), Stream(0, at[i] + 3));
  }
  // It is shorter than the session remembers.
  const auto archive = Open(options_);
  ASSERT_TRUE(archive->CutTo(points.back()).ok());
  EXPECT_EQ(All(*archive), Stream(0, 3));
  EXPECT_EQ(archive->seq_end(), 32 * 4000);
  EXPECT_EQ(archive->notes().missing_tokens, 32 * (4000 - 3));
  EXPECT_EQ(archive->notes().Text(), "127904 tokens that the session had read are missing from the archive's end");
  Fill(*archive, 4000, 4002);
  EXPECT_EQ(All(*archive).size(), 5u);
}

TEST_F(ArchiveTest, APointThatIsNotOfThisArchive) {
  for (const ArchivePoint& point : {ArchivePoint{320, 1, 1000}, ArchivePoint{320, 1, 1001}, ArchivePoint{320, 7, 128},
                                    ArchivePoint{320, 1, INT64_MAX}, ArchivePoint{320, 1, -5}, ArchivePoint{0, 0, 0},
                                    ArchivePoint{320, INT32_MAX, 0}, ArchivePoint{320, -1, 0}}) {
    const auto archive = Make(Options("p"));
    Fill(*archive, 0, 3000);
    ASSERT_TRUE(archive->CutTo(point).ok());
    const std::vector<Stored> left = All(*archive);
    ASSERT_LE(left.size(), 10u);
    EXPECT_EQ(left, Stream(0, std::ssize(left)));
    EXPECT_EQ(archive->seq_end(), point.seq_end);
    EXPECT_EQ(archive->notes().missing_tokens, point.seq_end - 32 * std::ssize(left));
    ASSERT_TRUE(archive->Remove().ok());
  }
}

TEST_F(ArchiveTest, RemovingLeavesWhatIsNotItsOwn) {
  auto archive = Make(options_);
  Fill(*archive, 0, 3000);
  WriteFile(options_.dir + "/letter", "dear");
  EXPECT_EQ(archive->Remove().code(), StatusCode::kIo);
  EXPECT_EQ(std::distance(fs::directory_iterator(options_.dir), {}), 1);
  EXPECT_TRUE(All(*archive).empty());
  ASSERT_TRUE(archive->Append(View(Nth(3000))).ok());
  archive->Flush();
  EXPECT_EQ(std::distance(fs::directory_iterator(options_.dir), {}), 1);
  archive.reset();
  fs::remove_all(options_.dir);
  archive = Make(options_);
  Fill(*archive, 0, 3000);
  EXPECT_TRUE(archive->Remove().ok());
  EXPECT_FALSE(fs::exists(options_.dir));
}

TEST_F(ArchiveTest, ASmallerQuotaAtTheNextOpening) {
  const auto n_files = [&] { return std::distance(fs::directory_iterator(options_.dir), {}) - 1; };
  for (const bool cut : {false, true}) {
    { Fill(*Make(options_), 0, 30000); }
    const auto n_before = n_files();
    ArchiveOptions smaller = options_;
    smaller.disk_bytes = 1 << 20;
    // Its memory was planned for the smaller quota.
    Ledger ledger(*Archive::MemoryBytes(smaller));
    auto opened = Archive::Open(smaller, ledger);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    Archive& archive = **opened;
    // Nothing goes before it is known whose archive this is.
    EXPECT_EQ(n_files(), n_before);
    if (cut) {
      ASSERT_TRUE(archive.CutTo(archive.Point()).ok());
    } else {
      Fill(archive, 30000, 30001);
    }
    EXPECT_LT(n_files(), n_before);
    EXPECT_EQ(n_files(), archive.n_segments());
    EXPECT_LE(archive.disk_bytes(), smaller.disk_bytes);
    const int64_t first = archive.seq_begin() / 32;
    EXPECT_GT(first, 0);
    EXPECT_EQ(archive.notes().removed_to_seq, 32 * first);
    EXPECT_EQ(All(archive), Stream(first, cut ? 30000 : 30001));
    ASSERT_TRUE(archive.Remove().ok());
    EXPECT_FALSE(fs::exists(options_.dir));
  }
}

TEST_F(ArchiveTest, AStreamThatBeginsAnewHasNothingRemoved) {
  options_.disk_bytes = 1 << 20;
  const auto archive = Make(options_);
  Fill(*archive, 0, 10000);
  EXPECT_GT(archive->notes().removed_to_seq, 0);
  ASSERT_TRUE(archive->CutTo({}).ok());
  EXPECT_EQ(archive->notes().Text(), "");
  Fill(*archive, 3, 10);
  EXPECT_EQ(archive->notes().Text(), "");
  archive->Flush();
  ArchiveOptions reader = options_;
  EXPECT_EQ((*Archive::OpenReadOnly(reader, ledger_))->notes().Text(), "");
}

TEST_F(ArchiveTest, WhoOwnsAFolderIsKnownFromItself) {
  options_.owner = "/some/where/notes.weir";
  auto archive = Make(options_);
  Fill(*archive, 0, 10);
  EXPECT_EQ(Archive::OwnerOf(options_.dir), options_.owner);
  auto fork = std::move(archive->Fork(folder_ + "/b", ledger_, "another")).value();
  EXPECT_EQ(Archive::OwnerOf(folder_ + "/b"), "another");
  EXPECT_EQ(Archive::OwnerOf(folder_), "");
  EXPECT_EQ(Archive::Delete(options_.dir).code(), StatusCode::kIo);  // it is open
  archive.reset();
  WriteFile(options_.dir + "/mine", "a");
  EXPECT_EQ(Archive::Delete(options_.dir).code(), StatusCode::kIo);
  EXPECT_TRUE(fs::exists(options_.dir + "/mine"));
  EXPECT_FALSE(fs::exists(PathOf(1)));
  fork.reset();
  EXPECT_TRUE(Archive::Delete(folder_ + "/b").ok());
  EXPECT_FALSE(fs::exists(folder_ + "/b"));
  EXPECT_TRUE(Archive::Delete(folder_ + "/nothing").ok());
}

// Pictures' rows are not read, but for what says where the next block begins.
TEST_F(ArchiveTest, TextIsFoundWithoutReadingPictures) {
  options_.max_rows = 4096;
  const auto archive = Make(options_);
  const std::vector<uint16_t> rows(4096 * kWidth, 7);
  Block picture = {.n_tokens = 4096, .modality = Modality::kImage, .rows = rows, .columns = 64};
  Block text = {.n_tokens = 10, .text = "between"};
  for (int i = 0; i < 20; ++i) {
    picture.seq = archive->seq_end();
    ASSERT_TRUE(archive->Append(picture).ok());
    text.seq = archive->seq_end();
    ASSERT_TRUE(archive->Append(text).ok());
  }
  archive->Flush();
  int n_texts = 0, n_pictures = 0;
  ASSERT_TRUE(archive
                  ->ScanText(archive->begin(),
                             [&](BlockPlace, const Block& block) {
                               ++(block.modality == Modality::kText ? n_texts : n_pictures);
                               EXPECT_TRUE(block.rows.empty());
                               return true;
                             })
                  .ok());
  EXPECT_EQ(n_texts, 20);
  EXPECT_EQ(n_pictures, 20);
  EXPECT_EQ(archive->notes().n_damaged, 0);
}

}  // namespace
}  // namespace weir
