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
constexpr int kDamagedKept = 9;
// Of Records: the marks of quarantine, and where a change log begins.
constexpr std::string_view kQuarantinePrefix = "q", kEpochKey = "epoch";

constexpr std::string_view kCopyName = "rebuilt";

bool IsNumber(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// The names that RocksDB gives to files.
bool IsDatabaseFile(std::string_view name) {
  if (name == "CURRENT" || name == "IDENTITY" || name == "LOCK" || name == "LOG") return true;
  if (name.starts_with("LOG.old")) return name.size() == 7 || (name[7] == '.' && IsNumber(name.substr(8)));
  if (name.starts_with("MANIFEST-")) return IsNumber(name.substr(9));
  const size_t dot = name.rfind('.');
  const std::string_view stem = name.substr(0, dot);
  const std::string_view extension = dot == name.npos ? std::string_view() : name.substr(dot + 1);
  if (stem.starts_with("OPTIONS-")) return IsNumber(stem.substr(8)) && (extension.empty() || extension == "dbtmp");
  return IsNumber(stem) && (extension == "log" || extension == "sst" || extension == "blob" || extension == "dbtmp");
}

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

// Files of the database in one directory to another, what says that there is a database last. What RocksDB does not
// name stays where it is.
rocksdb::Status MoveFiles(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to, error);
  std::vector<fs::path> names;
  for (fs::directory_iterator entry(from, error), end; !error && entry != end; entry.increment(error))
    if (IsDatabaseFile(entry->path().filename().string()) && !entry->is_directory(error))
      names.push_back(entry->path().filename());
  std::ranges::sort(names, {}, [](const fs::path& name) { return name == "CURRENT"; });
  for (const fs::path& name : names)
    if (!error) fs::rename(from / name, to / name, error);
  if (error) return rocksdb::Status::IOError("cannot move " + from.string() + " to " + to.string(), error.message());
  return {};
}

// Our own half-made copy; never a folder that holds anything else.
rocksdb::Status RemoveCopy(const fs::path& copy) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(copy, error))) return {};
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(copy, error), end; !error && entry != end; entry.increment(error)) {
    if (!IsDatabaseFile(entry->path().filename().string()))
      return rocksdb::Status::InvalidArgument(entry->path().string() +
                                              " is no file of a database: move it out of there and start again");
    files.push_back(entry->path());
  }
  for (const fs::path& file : files)
    if (!error) fs::remove(file, error);
  if (!error) fs::remove(copy, error);
  if (error) return rocksdb::Status::IOError("cannot remove " + copy.string(), error.message());
  return {};
}

std::string AsidePath(const std::string& path, int number) {
  return path + "/damaged-" + std::to_string(number);
}

// A directory of its own below, which nothing is called yet: what lies beside a store may be another file system, or
// closed to this user.
rocksdb::Status FindAside(const std::string& path, std::string& aside) {
  std::error_code error;
  for (int number = 1; number <= kDamagedKept; ++number) {
    aside = AsidePath(path, number);
    if (!fs::exists(fs::symlink_status(aside, error))) return {};
  }
  return rocksdb::Status::InvalidArgument(
      "it is damaged, and " + std::to_string(kDamagedKept) +
      " damaged databases are kept in it already: look at the disk, move or delete " + AsidePath(path, 1) + " to -" +
      std::to_string(kDamagedKept) + ", and start again");
}

rocksdb::Status MoveAside(const std::string& path, std::string& aside) {
  if (const auto found = FindAside(path, aside); !found.ok()) return found;
  return MoveFiles(path, aside);
}

// Whether a database is there and its files are what keeps it from being opened.
bool IsDamage(const std::string& path, const rocksdb::Status& status) {
  std::error_code ignored;
  return fs::exists(path + "/CURRENT", ignored) &&
         (status.IsCorruption() || status.IsPathNotFound() || status.IsNotFound());
}

// What lies in a store's directory.
struct Contents {
  bool current = false;      // CURRENT
  bool identified = false;   // MANIFEST-*, IDENTITY: a database had been made
  bool interrupted = false;  // folders that only Rebuild makes
  std::string data;          // a table or a log, whose name a foreign file may have, too
  std::string foreign;       // a file that RocksDB does not name
};

Contents ContentsOf(const std::string& path) {
  Contents contents;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (entry->is_directory(error)) {
      contents.interrupted |= path + "/" + name == AsidePath(path, 1) || name == kCopyName;
      continue;
    }
    if (!IsDatabaseFile(name)) {
      contents.foreign = name;
      continue;
    }
    const std::string extension = entry->path().extension().string();
    contents.current |= name == "CURRENT";
    contents.identified |= name.starts_with("MANIFEST-") || name == "IDENTITY";
    if (extension == ".log" || extension == ".sst" || extension == ".blob") contents.data = name;
  }
  return contents;
}

// Whether the directory may become or is a store. RocksDB deletes tables and logs that a database does not know, and
// a CURRENT that is none of its own looks like damage: both are somebody's files where no database of ours was made.
rocksdb::Status CheckOurs(const Contents& contents) {
  if (contents.interrupted || (contents.current && contents.identified)) return {};
  const std::string file = contents.current ? "CURRENT" : !contents.foreign.empty() ? contents.foreign : contents.data;
  if (file.empty()) return {};
  return rocksdb::Status::InvalidArgument("it is no database, and it holds a file of something else (" + file +
                                          "): name an empty or new directory");
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
  const std::string rebuilt = path + "/" + std::string(kCopyName);
  std::unique_ptr<Database> copy;
  int holes = 0;
  std::string aside;
  rocksdb::Status ready = FindAside(path, aside);
  if (ready.ok()) ready = RemoveCopy(rebuilt);
  if (!ready.ok()) {
    database.reset();
    return ready;
  }
  rocksdb::Status copied = Database::Open(rebuilt, copy);
  if (copied.ok()) copied = CopyReadable(*database, *copy, holes);
  copy.reset();
  database.reset();
  if (!copied.ok()) (void)RemoveCopy(rebuilt);
  if (const auto moved = MoveAside(path, aside); !moved.ok()) return moved;
  if (copied.ok()) {
    if (const auto moved = MoveFiles(rebuilt, path); !moved.ok()) return moved;
    (void)RemoveCopy(rebuilt);
    spdlog::warn(
        "store {} is damaged ({}); what could be read was copied, {} gaps were left out; the damaged one is kept in {}",
        path, reason, holes, aside);
  } else {
    spdlog::warn("store {} is damaged ({}) and cannot be copied ({}); it begins empty; the damaged one is kept in {}",
                 path, reason, copied.ToString(), aside);
  }
  return Database::Open(path, database);
}

rocksdb::Status OpenOrRebuild(const std::string& path, std::unique_ptr<Database>& database) {
  const Contents contents = ContentsOf(path);
  if (const auto ours = CheckOurs(contents); !ours.ok()) return ours;
  std::string aside;
  if (!contents.current && !contents.data.empty()) {
    if (const auto moved = MoveAside(path, aside); !moved.ok()) return moved;
    spdlog::warn("store {} was left in the middle of being rebuilt; it begins empty; what lay there is kept in {}",
                 path, aside);
  }
  rocksdb::Status status = Database::Open(path, database);
  if (!status.ok()) {
    if (!IsDamage(path, status)) return status;
    if (const auto moved = MoveAside(path, aside); !moved.ok()) return moved;
    spdlog::warn("store {} is damaged ({}) and cannot be opened; it begins empty; the damaged one is kept in {}", path,
                 status.ToString(), aside);
    return Database::Open(path, database);
  }
  if (const auto damage = FirstDamage(*database)) return Rebuild(path, database, damage->ToString());
  return status;
}

}  // namespace kiln::store
