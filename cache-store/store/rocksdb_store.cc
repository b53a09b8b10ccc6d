#include "cache-store/store/rocksdb_store.h"

#include <fcntl.h>
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace kiln::store {
namespace {

// A kernel cache is small and read-mostly: memory goes to the service's own tables, not to RocksDB.
constexpr size_t kBlockCacheBytes = size_t{32} << 20;
constexpr size_t kWriteBufferBytes = size_t{8} << 20;
constexpr size_t kWriteBuffersTotalBytes = size_t{48} << 20;
constexpr uint64_t kWalBytesMax = uint64_t{128} << 20;
constexpr int kOpenFilesMax = 256;
constexpr int kBackgroundJobs = 2;

rocksdb::Slice ToSlice(std::string_view text) {
  return {text.data(), text.size()};
}
rocksdb::Slice ToSlice(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::unexpected<Error> FailRocks(std::string_view what, const rocksdb::Status& status) {
  ErrorCode code = ErrorCode::kIoError;
  if (status.IsNoSpace() || status.IsMemoryLimit()) code = ErrorCode::kResourceExhausted;
  if (status.IsCorruption()) code = ErrorCode::kIntegrityFailure;
  return Fail(code, std::string(what) + ": " + status.ToString());
}

// RocksDB's own log as lines of ours. Its default is a file beside the data, and on a full disk the library ends the
// process when it adds a line to a file whose last write failed.
class LogLines final : public rocksdb::Logger {
 public:
  LogLines() : rocksdb::Logger(rocksdb::WARN_LEVEL) {}
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override { Logv(rocksdb::WARN_LEVEL, format, arguments); }
  void Logv(const rocksdb::InfoLogLevel level, const char* format, va_list arguments) override {
    if (level < GetInfoLogLevel()) return;
    char line[1024];
    std::vsnprintf(line, sizeof line, format, arguments);
    spdlog::warn("rocksdb: {}", line);
  }
};

Status SyncFile(const std::string& path, int flags) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) return {};
  const bool synced = file >= 0 && ::fdatasync(file) == 0;
  const int error = errno;
  if (file >= 0) ::close(file);
  if (!synced) return Fail(ErrorCode::kIoError, "cannot sync " + path + ": " + std::strerror(error));
  return {};
}

class RocksDbStore final : public KvStore {
 public:
  RocksDbStore(std::string path, std::unique_ptr<rocksdb::DB> db, std::vector<rocksdb::ColumnFamilyHandle*> handles)
      : path_(std::move(path)), db_(std::move(db)), handles_(std::move(handles)) {}

  ~RocksDbStore() override {
    for (rocksdb::ColumnFamilyHandle* handle : handles_) (void)db_->DestroyColumnFamilyHandle(handle);
    (void)db_->Close();
  }

  KvProperties properties() const override { return {.durable = true, .exact_leases = true}; }

  Result<std::optional<Bytes>> Get(Space space, std::string_view key) const override {
    rocksdb::PinnableSlice value;
    const rocksdb::Status status = db_->Get({}, Handle(space), ToSlice(key), &value);
    if (status.IsNotFound()) return std::optional<Bytes>();
    if (!status.ok()) return FailRocks("cannot read from " + std::string(SpaceName(space)), status);
    return std::optional<Bytes>(Bytes(value.data(), value.data() + value.size()));
  }

  Status Write(const KvBatch& batch) override {
    rocksdb::WriteBatch writes;
    for (const KvBatch::Operation& operation : batch.operations()) {
      const rocksdb::Status status =
          operation.value ? writes.Put(Handle(operation.space), ToSlice(operation.key), ToSlice(*operation.value))
                          : writes.Delete(Handle(operation.space), ToSlice(operation.key));
      if (!status.ok()) return FailRocks("cannot prepare a write", status);
    }
    const rocksdb::Status status = db_->Write({}, &writes);
    if (!status.ok()) return FailRocks("cannot write", status);
    return {};
  }

  // The write-ahead logs to the disk, past RocksDB: its SyncWAL ends the process when the last write of a log failed,
  // as it does on a full disk. A write that returned is in its log, as far as the operating system is concerned; a log
  // that is gone has been made a table, which RocksDB syncs.
  Status Sync() override {
    std::error_code failed;
    for (std::filesystem::directory_iterator entry(path_, failed), end; !failed && entry != end;
         entry.increment(failed))
      if (entry->path().extension() == ".log") RETURN_IF_ERROR(SyncFile(entry->path(), O_RDONLY));
    if (failed) return Fail(ErrorCode::kIoError, "cannot list " + path_ + ": " + failed.message());
    return SyncFile(path_, O_RDONLY | O_DIRECTORY);
  }

  Status Scan(Space space, std::string_view prefix, const Visitor& visit) const override {
    rocksdb::ReadOptions options;
    options.total_order_seek = true;
    options.fill_cache = false;
    const std::unique_ptr<rocksdb::Iterator> iterator(db_->NewIterator(options, Handle(space)));
    for (iterator->Seek(ToSlice(prefix)); iterator->Valid(); iterator->Next()) {
      const std::string_view key(iterator->key().data(), iterator->key().size());
      if (!key.starts_with(prefix)) break;
      const auto* data = reinterpret_cast<const uint8_t*>(iterator->value().data());
      if (!visit(key, {data, iterator->value().size()})) break;
    }
    if (!iterator->status().ok()) return FailRocks("cannot scan " + std::string(SpaceName(space)), iterator->status());
    return {};
  }

 private:
  // The first handle is RocksDB's own "default" family, which stays empty.
  rocksdb::ColumnFamilyHandle* Handle(Space space) const { return handles_[1 + static_cast<size_t>(space)]; }

  const std::string path_;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
};

rocksdb::ColumnFamilyOptions FamilyOptions() {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(kBlockCacheBytes);
  table.format_version = 5;
  rocksdb::ColumnFamilyOptions options;
  options.write_buffer_size = kWriteBufferBytes;
  options.compression = rocksdb::kNoCompression;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

}  // namespace

Result<std::unique_ptr<KvStore>> OpenRocksDbStore(const std::string& path) {
  rocksdb::DBOptions options;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.max_open_files = kOpenFilesMax;
  options.max_background_jobs = kBackgroundJobs;
  options.db_write_buffer_size = kWriteBuffersTotalBytes;
  options.max_total_wal_size = kWalBytesMax;
  options.info_log = std::make_shared<LogLines>();
  const rocksdb::ColumnFamilyOptions family = FamilyOptions();
  std::vector<rocksdb::ColumnFamilyDescriptor> families{{rocksdb::kDefaultColumnFamilyName, family}};
  for (int i = 0; i < kSpaceCount; ++i) families.emplace_back(std::string(SpaceName(static_cast<Space>(i))), family);
  rocksdb::DB* db = nullptr;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  const rocksdb::Status status = rocksdb::DB::Open(options, path, families, &handles, &db);
  if (!status.ok()) {
    if (status.IsIOError() && status.ToString().find("lock") != std::string::npos)
      return Fail(ErrorCode::kBusy, "store '" + path + "' is open in another process: " + status.ToString());
    return FailRocks("cannot open store '" + path + "'", status);
  }
  return std::make_unique<RocksDbStore>(path, std::unique_ptr<rocksdb::DB>(db), std::move(handles));
}

}  // namespace kiln::store
