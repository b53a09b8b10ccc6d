#include "cache-store/store/rocksdb_database.h"

#include <rocksdb/cache.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <spdlog/spdlog.h>

#include <cstdarg>
#include <cstdio>

namespace kiln::store {
namespace {

// A kernel cache is small and read-mostly: memory goes to the service's own tables, not to RocksDB.
constexpr size_t kBlockCacheBytes = size_t{32} << 20;
constexpr size_t kWriteBufferBytes = size_t{8} << 20;
constexpr size_t kWriteBuffersTotalBytes = size_t{48} << 20;
constexpr uint64_t kWalBytesMax = uint64_t{128} << 20;
constexpr int kOpenFilesMax = 256;
constexpr int kBackgroundJobs = 2;

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

rocksdb::Status Database::Open(const std::string& path, std::unique_ptr<Database>& database) {
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
  std::unique_ptr<Database> opened(new Database());
  const rocksdb::Status status = rocksdb::DB::Open(options, path, families, &opened->handles_, &db);
  if (!status.ok()) return status;
  opened->db_.reset(db);
  database = std::move(opened);
  return status;
}

Database::~Database() {
  if (db_ == nullptr) return;
  for (rocksdb::ColumnFamilyHandle* handle : handles_) (void)db_->DestroyColumnFamilyHandle(handle);
  (void)db_->Close();
}

}  // namespace kiln::store
