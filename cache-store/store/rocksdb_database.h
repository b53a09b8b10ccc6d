// A RocksDB with one column family per space, for this folder only.
#pragma once

#include <rocksdb/db.h>

#include <memory>
#include <string>
#include <vector>

#include "cache-store/store/kv_store.h"

namespace kiln::store {

// Closed when it ends; no iterator may outlive it.
class Database {
 public:
  // Creates what is missing.
  static rocksdb::Status Open(const std::string& path, std::unique_ptr<Database>& database);
  ~Database();

  rocksdb::DB& db() const { return *db_; }
  // The first handle is RocksDB's own "default" family, which stays empty.
  rocksdb::ColumnFamilyHandle* Handle(Space space) const { return handles_[1 + static_cast<size_t>(space)]; }

 private:
  Database() = default;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
};

inline rocksdb::Slice ToSlice(std::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace kiln::store
