#include "cache-store/store/rocksdb_rebuild.h"

#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBatchBytes = size_t{1} << 20;
constexpr int kHolesMax = 4096;  // of one space; what lies behind the last is left out
constexpr int kDamagedKept = 9;  // beyond these a damaged store is deleted
// Of Records: the marks of quarantine, and where a change log begins.
constexpr std::string_view kQuarantinePrefix = "q", kEpochKey = "epoch";

// Where a key lies among all keys: its first bytes as a number.
using Position = unsigned __int128;
constexpr size_t kPositionBytes = sizeof(Position);

Position PositionOf(std::string_view key) {
  Position position = 0;
  for (size_t i = 0; i < kPositionBytes; ++i)
    position = (position << 8) | (i < key.size() ? static_cast<uint8_t>(key[i]) : 0);
  return position;
}

std::string KeyAt(Position position) {
  std::string key(kPositionBytes, '\0');
  for (size_t i = kPositionBytes; i-- > 0; position >>= 8) key[i] = static_cast<char>(position & 0xff);
  return key;
}

rocksdb::ReadOptions ScanOptions() {
  rocksdb::ReadOptions options;
  options.total_order_seek = true;
  options.fill_cache = false;
  return options;
}

// The keys of one space in order, past what cannot be read.
class Salvage {
 public:
  Salvage(const Database& database, Space space)
      : iterator_(database.db().NewIterator(ScanOptions(), database.Handle(space))) {
    iterator_->SeekToFirst();
    SkipHole(0);
  }
  bool Valid() const { return iterator_->Valid(); }
  rocksdb::Slice key() const { return iterator_->key(); }
  rocksdb::Slice value() const { return iterator_->value(); }
  void Next() {
    const Position from = PositionOf({key().data(), key().size()});
    iterator_->Next();
    SkipHole(from);
  }
  int holes() const { return holes_; }
  bool MayHaveLost(std::string_view prefix) const {
    for (const auto& [from, to] : lost_)
      if (KeyAt(from).substr(0, prefix.size()) <= prefix && KeyAt(to).substr(0, prefix.size()) >= prefix) return true;
    return false;
  }

 private:
  bool Seek(Position position) {
    iterator_->Seek(KeyAt(position));
    return iterator_->status().ok();
  }

  // Goes on at the nearest position that can be read, if the iterator stopped at damage.
  void SkipHole(Position from) {
    if (iterator_->Valid() || iterator_->status().ok()) return;
    Position bad = from, good = 0;
    bool found = false;
    for (Position step = 1; holes_ < kHolesMax && step != 0 && from + step > from; step <<= 1) {
      good = from + step;
      found = Seek(good);
      if (found) break;
      bad = good;
    }
    ++holes_;
    lost_.emplace_back(from, found ? good : ~Position{0});
    if (!found) return;  // nothing more is read: not valid
    while (good - bad > 1) {
      const Position middle = bad + (good - bad) / 2;
      (Seek(middle) ? good : bad) = middle;
    }
    lost_.back().second = good;
    (void)Seek(good);
  }

  std::unique_ptr<rocksdb::Iterator> iterator_;
  int holes_ = 0;
  std::vector<std::pair<Position, Position>> lost_;
};

// Corruption: the copy must not be used.
rocksdb::Status CopySpace(const Database& from, Database& to, Space space, int& holes) {
  rocksdb::WriteBatch batch;
  Salvage salvage(from, space);
  for (; salvage.Valid(); salvage.Next()) {
    batch.Put(to.Handle(space), salvage.key(), salvage.value());
    if (batch.GetDataSize() < kBatchBytes) continue;
    if (const auto status = to.db().Write({}, &batch); !status.ok()) return status;
    batch.Clear();
  }
  holes += salvage.holes();
  if (space == Space::kMeta && salvage.MayHaveLost(kQuarantinePrefix))
    return rocksdb::Status::Corruption("marks of quarantine may be lost");
  if (space == Space::kChangeLog && salvage.holes() > 0) {
    batch.Clear();
    batch.DeleteRange(to.Handle(space), KeyAt(0), KeyAt(~Position{0}));
    batch.Delete(to.Handle(Space::kMeta), ToSlice(kEpochKey));
  }
  return to.db().Write({}, &batch);
}

rocksdb::Status CopyReadable(const Database& from, Database& to, int& holes) {
  // The change log last: it may take the epoch out of `meta` again.
  for (int pass = 0; pass < 2; ++pass)
    for (int i = 0; i < kSpaceCount; ++i) {
      const Space space = static_cast<Space>(i);
      if ((space == Space::kChangeLog) != (pass == 1)) continue;
      if (const auto status = CopySpace(from, to, space, holes); !status.ok()) return status;
    }
  return to.db().SyncWAL();
}

// All files of the database in one directory to another, what says that there is a database last.
rocksdb::Status MoveFiles(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to, error);
  std::vector<fs::path> names;
  for (fs::directory_iterator entry(from, error), end; !error && entry != end; entry.increment(error))
    if (!entry->is_directory(error)) names.push_back(entry->path().filename());
  std::ranges::sort(names, {}, [](const fs::path& name) { return name == "CURRENT"; });
  for (const fs::path& name : names)
    if (!error) fs::rename(from / name, to / name, error);
  if (error) return rocksdb::Status::IOError("cannot move " + from.string() + " to " + to.string(), error.message());
  return {};
}

// Into a directory of its own below: what lies beside a store may be another file system, or closed to this user.
// Where the damaged files are then; empty: they were deleted.
rocksdb::Status MoveAside(const std::string& path, std::string& aside) {
  std::error_code error;
  for (int number = 1; number <= kDamagedKept; ++number) {
    aside = path + "/damaged-" + std::to_string(number);
    if (!fs::exists(fs::symlink_status(aside, error))) return MoveFiles(path, aside);
  }
  aside = path + "/deleted";
  const rocksdb::Status moved = MoveFiles(path, aside);
  fs::remove_all(aside, error);
  aside.clear();
  return moved;
}

std::string Whereabouts(const std::string& aside) {
  return aside.empty() ? "was deleted" : "is kept in " + aside;
}

// Whether a database is there and its files are what keeps it from being opened.
bool IsDamage(const std::string& path, const rocksdb::Status& status) {
  std::error_code ignored;
  return fs::exists(path + "/CURRENT", ignored) &&
         (status.IsCorruption() || status.IsPathNotFound() || status.IsNotFound());
}

// Spaces that are read as a whole when a store is opened; an error there would keep the cache from starting.
std::optional<rocksdb::Status> FirstDamage(const Database& database) {
  for (int i = 0; i < kSpaceCount; ++i) {
    const Space space = static_cast<Space>(i);
    if (space == Space::kPlans || space == Space::kBlobs) continue;
    const std::unique_ptr<rocksdb::Iterator> iterator(database.db().NewIterator(ScanOptions(), database.Handle(space)));
    for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next()) {
    }
    if (iterator->status().IsCorruption()) return iterator->status();
  }
  return std::nullopt;
}

}  // namespace

rocksdb::Status Rebuild(const std::string& path, std::unique_ptr<Database>& database, const std::string& reason) {
  const std::string rebuilt = path + "/rebuilt";
  std::error_code error;
  fs::remove_all(rebuilt, error);
  std::unique_ptr<Database> copy;
  int holes = 0;
  rocksdb::Status copied = Database::Open(rebuilt, copy);
  if (copied.ok()) copied = CopyReadable(*database, *copy, holes);
  copy.reset();
  database.reset();
  if (!copied.ok()) fs::remove_all(rebuilt, error);
  std::string aside;
  if (const auto moved = MoveAside(path, aside); !moved.ok()) return moved;
  if (copied.ok()) {
    if (const auto moved = MoveFiles(rebuilt, path); !moved.ok()) return moved;
    fs::remove_all(rebuilt, error);
    spdlog::warn("store {} is damaged ({}); what could be read was copied, {} gaps were left out; the damaged one {}",
                 path, reason, holes, Whereabouts(aside));
  } else {
    spdlog::warn("store {} is damaged ({}) and cannot be copied ({}); it begins empty; the damaged one {}", path,
                 reason, copied.ToString(), Whereabouts(aside));
  }
  return Database::Open(path, database);
}

rocksdb::Status OpenOrRebuild(const std::string& path, std::unique_ptr<Database>& database) {
  rocksdb::Status status = Database::Open(path, database);
  if (!status.ok()) {
    if (!IsDamage(path, status)) return status;
    std::string aside;
    if (const auto moved = MoveAside(path, aside); !moved.ok()) return moved;
    spdlog::warn("store {} is damaged ({}) and cannot be opened; it begins empty; the damaged one {}", path,
                 status.ToString(), Whereabouts(aside));
    return Database::Open(path, database);
  }
  if (const auto damage = FirstDamage(*database)) return Rebuild(path, database, damage->ToString());
  return status;
}

}  // namespace kiln::store
