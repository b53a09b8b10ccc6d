#include "cache-store/store/rocksdb_store.h"

#include <fcntl.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <shared_mutex>

#include "cache-store/store/rocksdb_rebuild.h"

namespace kiln::store {
namespace {

rocksdb::Slice BytesSlice(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::unexpected<Error> FailRocks(std::string_view what, const rocksdb::Status& status) {
  ErrorCode code = ErrorCode::kIoError;
  if (status.IsNoSpace() || status.IsMemoryLimit()) code = ErrorCode::kResourceExhausted;
  if (status.IsCorruption()) code = ErrorCode::kIntegrityFailure;
  if (status.IsInvalidArgument()) code = ErrorCode::kInvalidArgument;
  return Fail(code, std::string(what) + ": " + status.ToString());
}

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
  RocksDbStore(std::string path, std::unique_ptr<Database> database)
      : path_(std::move(path)), database_(std::move(database)) {}

  KvProperties properties() const override { return {.durable = true, .exact_leases = true}; }

  Result<std::optional<Bytes>> Get(Space space, std::string_view key) const override {
    const std::shared_lock lock(mutex_);
    if (database_ == nullptr) return Gone();
    rocksdb::PinnableSlice value;
    const rocksdb::Status status = database_->db().Get({}, database_->Handle(space), ToSlice(key), &value);
    if (status.IsNotFound()) return std::optional<Bytes>();
    if (!status.ok()) return FailRocks("cannot read from " + std::string(SpaceName(space)), status);
    return std::optional<Bytes>(Bytes(value.data(), value.data() + value.size()));
  }

  // A compaction that meets damage ends all writing; the database is then made anew of what can be read.
  Status Write(const KvBatch& batch) override {
    std::string reason;
    {
      const std::shared_lock lock(mutex_);
      if (database_ == nullptr) return Gone();
      const rocksdb::Status status = WriteTo(*database_, batch);
      if (!status.IsCorruption()) return status.ok() ? Status() : Status(FailRocks("cannot write", status));
      reason = status.ToString();
    }
    const std::unique_lock lock(mutex_);
    if (database_ == nullptr) return Gone();
    rocksdb::Status status = WriteTo(*database_, batch);  // another thread may have rebuilt it
    if (status.IsCorruption()) {
      status = Rebuild(path_, database_, reason);
      if (status.ok()) status = WriteTo(*database_, batch);
    }
    if (!status.ok()) return FailRocks("cannot write", status);
    return {};
  }

  // The write-ahead logs to the disk, past RocksDB: its SyncWAL ends the process when the last write of a log failed,
  // as it does on a full disk. A write that returned is in its log, as far as the operating system is concerned; a log
  // that is gone has been made a table, which RocksDB syncs.
  Status Sync() override {
    const std::shared_lock lock(mutex_);
    std::error_code failed;
    for (std::filesystem::directory_iterator entry(path_, failed), end; !failed && entry != end;
         entry.increment(failed))
      if (entry->path().extension() == ".log") RETURN_IF_ERROR(SyncFile(entry->path(), O_RDONLY));
    if (failed) return Fail(ErrorCode::kIoError, "cannot list " + path_ + ": " + failed.message());
    return SyncFile(path_, O_RDONLY | O_DIRECTORY);
  }

  Status Scan(Space space, std::string_view prefix, const Visitor& visit) const override {
    const std::shared_lock lock(mutex_);
    if (database_ == nullptr) return Gone();
    rocksdb::ReadOptions options;
    options.total_order_seek = true;
    options.fill_cache = false;
    const std::unique_ptr<rocksdb::Iterator> iterator(database_->db().NewIterator(options, database_->Handle(space)));
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
  static rocksdb::Status WriteTo(Database& database, const KvBatch& batch) {
    rocksdb::WriteBatch writes;
    for (const KvBatch::Operation& operation : batch.operations()) {
      rocksdb::ColumnFamilyHandle* handle = database.Handle(operation.space);
      const rocksdb::Status status = operation.value
                                         ? writes.Put(handle, ToSlice(operation.key), BytesSlice(*operation.value))
                                         : writes.Delete(handle, ToSlice(operation.key));
      if (!status.ok()) return status;
    }
    return database.db().Write({}, &writes);
  }
  std::unexpected<Error> Gone() const {
    return Fail(ErrorCode::kIoError,
                "store '" + path_ + "' was damaged and could not be rebuilt; start kiln-cache again");
  }

  const std::string path_;
  mutable std::shared_mutex mutex_;     // exclusive: while the database is replaced
  std::unique_ptr<Database> database_;  // null: that failed
};

}  // namespace

Result<std::unique_ptr<KvStore>> OpenRocksDbStore(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_directory(path, error))
    return Fail(ErrorCode::kInvalidArgument, "store '" + path + "' is no directory; name one, or a path for a new one");
  std::unique_ptr<Database> database;
  const rocksdb::Status status = OpenOrRebuild(path, database);
  if (!status.ok()) {
    if (status.IsNoSpace())
      return Fail(ErrorCode::kResourceExhausted, "cannot open store '" + path + "': " + status.ToString() +
                                                     "; free 16 MiB on its disk and start again, or delete the "
                                                     "store's directory: it is filled anew");
    if (status.IsPathNotFound())
      return Fail(ErrorCode::kNotFound, "cannot open store '" + path + "': " + status.ToString() +
                                            "; make the directory that it is to lie in first");
    if (status.IsIOError() && status.ToString().find("lock") != std::string::npos)
      return Fail(ErrorCode::kBusy, "store '" + path + "' is open in another process: " + status.ToString());
    return FailRocks("cannot open store '" + path + "'", status);
  }
  return std::make_unique<RocksDbStore>(path, std::move(database));
}

}  // namespace kiln::store
