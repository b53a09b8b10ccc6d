#include "vm-worker/cache_client/disk_tier.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "common/artifact/record.h"
#include "common/base/limits.h"
#include "common/base/writable_directory.h"
#include "common/native/fault_handler.h"

namespace kiln {
namespace {

constexpr const char* kRecordSuffix = ".plan";
constexpr const char* kKernelSuffix = ".kernel";
constexpr const char* kToldSuffix = ".fault-told";

std::optional<Bytes> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  const std::streamoff size = file.tellg();
  if (size < 0 || size > limits::kDiskCacheFileBytesMax) return std::nullopt;
  Bytes bytes(static_cast<size_t>(size));
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), size)) return std::nullopt;
  return bytes;
}

}  // namespace

Result<std::unique_ptr<DiskTier>> DiskTier::Open(const std::string& directory, int64_t bytes_max) {
  RETURN_IF_ERROR(MakeWritable(directory));
  return std::unique_ptr<DiskTier>(new DiskTier(directory, bytes_max));
}

std::string DiskTier::PathOf(const Digest& id, const char* suffix) const {
  return directory_ + "/" + id.Hex() + suffix;
}

std::optional<Bytes> DiskTier::Record(const Digest& plan_key) const {
  std::optional<Bytes> bytes = ReadFile(PathOf(plan_key, kRecordSuffix));
  if (!bytes || !DecodeUnverified(*bytes).has_value()) return std::nullopt;
  return bytes;
}

std::optional<Bytes> DiskTier::Kernel(const Digest& kernel_id) const {
  const std::optional<Bytes> frame = ReadFile(PathOf(kernel_id, kKernelSuffix));
  if (!frame) return std::nullopt;
  Result<Bytes> code = UnframeKernelBlob(*frame, kernel_id);
  if (!code.has_value()) return std::nullopt;
  return std::move(*code);
}

void DiskTier::PutRecord(const Digest& plan_key, std::span<const uint8_t> record) {
  Put(PathOf(plan_key, kRecordSuffix), record);
}

void DiskTier::PutKernel(const Digest& kernel_id, std::span<const uint8_t> code) {
  Put(PathOf(kernel_id, kKernelSuffix), FrameKernelBlob(code));
}

void DiskTier::DropRecord(const Digest& plan_key) {
  std::error_code ignored;
  std::filesystem::remove(PathOf(plan_key, kRecordSuffix), ignored);
}

bool DiskTier::PutMark(const Mark& mark) {
  const std::string hex = mark.contents.Hex();
  return Put(PathOf(mark.plan_key, kFaultSuffix), {reinterpret_cast<const uint8_t*>(hex.data()), hex.size()});
}

std::optional<Digest> DiskTier::MarkOf(const Digest& plan_key) const {
  for (const char* suffix : {kFaultSuffix, kToldSuffix}) {
    const std::string path = PathOf(plan_key, suffix);
    const std::optional<Bytes> hex = ReadFile(path);
    if (!hex) continue;
    std::error_code ignored;
    const auto written = std::filesystem::last_write_time(path, ignored);
    if (std::filesystem::file_time_type::clock::now() - written > std::chrono::days(kMarkDays)) continue;
    const auto contents = DigestFromHex({reinterpret_cast<const char*>(hex->data()), hex->size()});
    if (contents.has_value()) return *contents;
  }
  return std::nullopt;
}

void DiskTier::ClearMark(const Digest& plan_key) {
  std::error_code ignored;
  std::filesystem::remove(PathOf(plan_key, kFaultSuffix), ignored);
  std::filesystem::remove(PathOf(plan_key, kToldSuffix), ignored);
}

std::vector<DiskTier::Mark> DiskTier::UntoldMarks() const {
  std::vector<Mark> marks;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory_, error), end;
       !error && at != end && marks.size() < limits::kDiskCacheMarksMax; at.increment(error)) {
    if (at->path().extension() != kFaultSuffix) continue;
    const auto plan_key = DigestFromHex(at->path().stem().string());
    if (!plan_key.has_value()) continue;
    if (const auto contents = MarkOf(*plan_key)) marks.push_back({*plan_key, *contents});
  }
  return marks;
}

void DiskTier::MarkTold(const Digest& plan_key) {
  std::error_code ignored;
  std::filesystem::rename(PathOf(plan_key, kFaultSuffix), PathOf(plan_key, kToldSuffix), ignored);
}

bool DiskTier::Put(const std::string& path, std::span<const uint8_t> bytes) {
  const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    file.close();  // what is still buffered may fail as well
    std::error_code error;
    if (file) std::filesystem::rename(temporary, path, error);
    if (!file || error) {
      std::filesystem::remove(temporary, error);
      return false;
    }
  }
  std::lock_guard lock(mutex_);
  written_ += static_cast<int64_t>(bytes.size());
  if (written_ > bytes_max_ / 8) Trim();
  return true;
}

void DiskTier::Trim() {
  struct File {
    std::filesystem::file_time_type time;
    int64_t bytes;
    std::filesystem::path path;
  };
  std::vector<File> files;
  int64_t total = 0;
  std::error_code error;
  // Increments that fail end the loop: whatever was seen by then is trimmed.
  for (std::filesystem::directory_iterator at(directory_, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const auto bytes = static_cast<int64_t>(at->file_size(ignored));
    if (ignored || at->path().extension() == kFaultSuffix || at->path().extension() == kToldSuffix) continue;
    files.push_back({at->last_write_time(ignored), bytes, at->path()});
    total += bytes;
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.time < b.time; });
  for (const File& file : files) {
    if (total <= bytes_max_) break;
    std::filesystem::remove(file.path, error);
    total -= file.bytes;
  }
  written_ = 0;
}

}  // namespace kiln
