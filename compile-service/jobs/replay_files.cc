#include "compile-service/jobs/replay_files.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/base/hash.h"
#include "common/base/limits.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".job";

struct KeptFile {
  fs::file_time_type written;
  fs::path path;
  size_t bytes;
};

// Removes the oldest, until one more of `bytes` fits.
void MakeRoom(const std::string& directory, size_t bytes) {
  std::vector<KeptFile> files;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() != kSuffix) continue;
    std::error_code unreadable;
    const auto written = entry->last_write_time(unreadable);
    const auto size = entry->file_size(unreadable);
    if (unreadable) continue;
    files.push_back({written, entry->path(), size});
    bytes += size;
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.written < b.written; });
  for (size_t i = 0; i < files.size(); ++i) {
    if (files.size() - i < limits::kReplayFilesMax && bytes <= limits::kReplayBytesMax) return;
    fs::remove(files[i].path, error);
    bytes -= files[i].bytes;
  }
}

}  // namespace

Status WriteReplay(const std::string& directory, const Frame& job) {
  if (job.payload.size() > limits::kReplayBytesMax)
    return Fail(ErrorCode::kLimitExceeded, "it has " + std::to_string(job.payload.size()) +
                                               " bytes; replay files have at most " +
                                               std::to_string(limits::kReplayBytesMax) + " together");
  std::error_code ignored;
  fs::create_directories(directory, ignored);
  MakeRoom(directory, job.payload.size());
  const std::string path =
      directory + "/" + HashBytes(job.payload).ShortHex() + "." + std::to_string(job.kind) + kSuffix;
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(job.payload.data()), static_cast<std::streamsize>(job.payload.size()));
  if (!file.flush()) return Fail(ErrorCode::kIoError, "cannot write " + path);
  spdlog::warn("the job is kept in {}", path);
  return {};
}

Result<Frame> ReadReplay(const std::string& path) {
  Frame job;
  const fs::path kept(path);
  const std::string kind = kept.stem().extension().string();  // ".4"
  const auto [end, error] = std::from_chars(kind.data() + !kind.empty(), kind.data() + kind.size(), job.kind);
  if (kept.extension() != kSuffix || error != std::errc() || end != kind.data() + kind.size())
    return Fail(ErrorCode::kInvalidArgument, path + " is not named like a replay file, HASH.KIND.job");
  std::ifstream file(path, std::ios::binary);
  if (!file) return Fail(ErrorCode::kNotFound, "cannot read " + path);
  job.payload.assign(std::istreambuf_iterator<char>(file), {});
  return job;
}

}  // namespace kiln
