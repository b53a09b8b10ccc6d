// DiskTier: fetched records and kernels on the worker's own disk, so that a restart fetches none of them again. Which
// plans there are, the store says: without its answer a worker interprets. A cache, nothing more: whatever is damaged,
// missing or cannot be written later on is a miss.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/hash.h"
#include "common/base/result.h"

namespace kiln {

// Files are written under a temporary name and renamed; reads verify checksums and ids. Oldest files go when the
// directory passes `bytes_max`. Thread-safe; several processes may share a directory.
class DiskTier {
 public:
  // MakeWritable (common/base/writable_directory.h): what is there is not changed.
  static Result<std::unique_ptr<DiskTier>> Open(const std::string& directory, int64_t bytes_max);

  std::optional<Bytes> Record(const Digest& plan_key) const;   // unverified beyond its checksum
  std::optional<Bytes> Kernel(const Digest& kernel_id) const;  // verified to be that kernel
  void PutRecord(const Digest& plan_key, std::span<const uint8_t> record);
  void PutKernel(const Digest& kernel_id, std::span<const uint8_t> code);
  void DropRecord(const Digest& plan_key);

  // Plans that gave a wrong result or faulted here, by the hash of their contents: kept over restarts, for kMarkDays at
  // most, apart from bytes_max. The fault handler writes such a mark as well.
  struct Mark {
    Digest plan_key, contents;
  };
  static constexpr int kMarkDays = 7;
  bool PutMark(const Mark& mark);  // false: there was no room, or no directory
  // The contents that are marked under the key.
  std::optional<Digest> MarkOf(const Digest& plan_key) const;
  void ClearMark(const Digest& plan_key);
  // Of those that the store has not been told of.
  std::vector<Mark> UntoldMarks() const;
  void MarkTold(const Digest& plan_key);

 private:
  DiskTier(std::string directory, int64_t bytes_max) : directory_(std::move(directory)), bytes_max_(bytes_max) {}
  std::string PathOf(const Digest& id, const char* suffix) const;
  // False: nothing is there then.
  bool Put(const std::string& path, std::span<const uint8_t> bytes);
  void Trim();

  const std::string directory_;
  const int64_t bytes_max_;
  std::mutex mutex_;     // guards written_
  int64_t written_ = 0;  // since the last Trim
};

}  // namespace kiln
