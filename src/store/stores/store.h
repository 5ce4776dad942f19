// SPDX-License-Identifier: Apache-2.0
// Where sessions lie that outlive their server: a folder, S3-compatible storage, Redis.
//
// Two kinds of objects, by key ("handover/s-a-01.weir"). A note is a short text that is read and written whole, under a
// condition: only if it still is what its writer has read. Everything that decides who owns a session is a note
// (store/ownership.h). A file is as large as a session and written once; it lies on this machine while it is written
// and read, so that neither the store's speed nor its size is a matter of memory.
//
// A store is one file of this folder whose first line is `// weir-plugin: store`. It defines a StoreInfo named after
// the file (s3.cc defines kS3Store) and implements the Try...() methods; the build makes the table (cmake/weir.cmake).
// Every store passes the same tests (store/stores_test.cc).
//
// Any thread may use a store; calls wait for it, and for nothing else.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace weir {

struct StoreOptions {
  std::string spool = "/var/tmp";            // for files on their way to and from other machines
  std::chrono::milliseconds timeout{10000};  // of one try; of a file: without a byte
  int tries = 4;                             // with pauses of 0.1 to 2 s that grow
  std::string s3_endpoint;                   // https://host:port; empty: Amazon's
  std::string s3_region = "us-east-1";
  std::string s3_key, s3_secret, s3_session_token;
  std::string redis_user, redis_password;  // where the address has none
};

// A file on this machine. One that is only on its way is deleted at the end.
class LocalFile {
 public:
  LocalFile(std::string path, bool passing) : path_(std::move(path)), passing_(passing) {}
  ~LocalFile();
  LocalFile(LocalFile&& other) noexcept : path_(std::exchange(other.path_, "")), passing_(other.passing_) {}
  LocalFile(const LocalFile&) = delete;
  LocalFile& operator=(const LocalFile&) = delete;
  const std::string& path() const { return path_; }
  bool passing() const { return passing_; }

 private:
  std::string path_;
  const bool passing_;
};

class Store {
 public:
  static constexpr size_t kMaxNoteBytes = 1 << 14;

  virtual ~Store() = default;

  // The text of a note and the version that Write() needs to replace it. An empty version: there is none.
  struct Note {
    std::string text, version;
  };
  // kOverBudget for more than kMaxNoteBytes; kIo if the store does not answer, after all tries; kInvalidArgument if it
  // refuses (keys, rights, bucket).
  Result<Note> Read(const std::string& key);
  // Replaces a note that still has this version (empty: makes one where there is none) and returns the new version.
  // nullopt: it has another one, and is unchanged. kIo: it is not known whether it was written. REQUIRES: no two writes
  // of a key have the same text, so that a write whose answer was lost can be told from another's.
  Result<std::optional<std::string>> Write(const std::string& key, const std::string& text, const std::string& version);
  // Deletes a note that still has this version, or whatever there is under the key (empty). Ok if there is nothing. S3:
  // a store that knows no condition here deletes in any case; so nobody writes after the version that is deleted
  // (store/ownership.h).
  Status Remove(const std::string& key, const std::string& version = "");

  // Where to write a file that Send() then stores under this key. Its path may name a file that is there already: write
  // it as SnapshotWriter does. kIo.
  virtual Result<LocalFile> NewFile(const std::string& key) = 0;
  // Ok: another machine finds it, whole. kIo as for Read(); kOverBudget for more than the store can hold in one file.
  Status Send(const std::string& key, const LocalFile& file);
  // kNotFound; kOverBudget for more than max_bytes; kIo.
  Result<LocalFile> Fetch(const std::string& key, int64_t max_bytes);
  // Keys that begin with `prefix`, in any order; with kMaxKeys of them it ends.
  static constexpr size_t kMaxKeys = 1 << 20;
  Result<std::vector<std::string>> List(const std::string& prefix);

  // The folder that it is, on this machine; empty: none.
  virtual std::string folder() const { return ""; }

 protected:
  explicit Store(const StoreOptions& options) : options_(options) {}
  // One try each. kIo: again, perhaps; other errors: never.
  virtual Result<Note> TryRead(const std::string& key) = 0;
  virtual Result<std::optional<std::string>> TryWrite(const std::string& key, const std::string& text,
                                                      const std::string& version) = 0;
  virtual Status TryRemove(const std::string& key, const std::string& version) = 0;
  virtual Status TrySend(const std::string& key, const LocalFile& file) = 0;
  virtual Result<LocalFile> TryFetch(const std::string& key, int64_t max_bytes) = 0;
  virtual Result<std::vector<std::string>> TryList(const std::string& prefix) = 0;

  const StoreOptions options_;
};

struct StoreInfo {
  const char* scheme;     // s3 of s3://bucket/prefix; "": a folder
  const char* addresses;  // for messages: s3://BUCKET/PREFIX
  // Memory of one call at most, libraries' included; reserved by who makes calls.
  int64_t bytes_a_call;
  // `address` as given. kInvalidArgument for one that is no such address; kUnsupported in a build without the library;
  // errors of Read() where nobody answers.
  Result<std::unique_ptr<Store>> (*open)(const std::string& address, const StoreOptions& options);
};

// Every store of the folder. (Generated.)
std::span<const StoreInfo* const> AllStoreInfos();

// The store of an address: `s3://...`, `redis://...`, else a folder. kInvalidArgument for an unknown scheme.
Result<const StoreInfo*> StoreOf(std::string_view address);
Result<std::unique_ptr<Store>> OpenStore(const std::string& address, const StoreOptions& options);

}  // namespace weir
