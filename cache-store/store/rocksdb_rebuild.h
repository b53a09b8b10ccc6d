// Databases that lost bytes: a cache comes up all the same, with what can still be read.
#pragma once

#include <memory>
#include <string>

#include "cache-store/store/rocksdb_database.h"

namespace kiln::store {

// Opens the database at `path`. One that cannot be opened because of damage is moved aside, and an empty one takes its
// place; one whose index spaces cannot be scanned is rebuilt. A warning says what was done. Only files that RocksDB
// names are moved, and none is deleted. InvalidArgument: the directory holds files of something else and no database,
// or nine damaged databases are kept in it already. Other errors are RocksDB's.
rocksdb::Status OpenOrRebuild(const std::string& path, std::unique_ptr<Database>& database);

// Replaces `database`, which lies at `path`, by a copy of what can be read of it, and moves the damaged one aside, to
// PATH/damaged-1 and so on (at most nine: InvalidArgument). What cannot be read is left out, and with it what depends
// on it: with a mark of quarantine that may be lost, all plans (then the store begins empty); with a part of the change
// log, all of that, so that its readers see a gap. On failure `database` is null.
rocksdb::Status Rebuild(const std::string& path, std::unique_ptr<Database>& database, const std::string& reason);

}  // namespace kiln::store
