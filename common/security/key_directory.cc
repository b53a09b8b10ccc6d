#include "common/security/key_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "common/base/hash.h"
#include "common/base/limits.h"

namespace kiln {
namespace {

std::unexpected<Error> FailErrno(const std::string& what, const std::string& path) {
  const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIoError;
  return Fail(code, what + " '" + path + "': " + std::strerror(errno));
}

std::string Trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  return text;
}

Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return FailErrno("cannot write", path);
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

// Creates the file; an existing one is left alone and reported as AlreadyExists.
Status CreateFile(const std::string& path, std::string_view text, mode_t mode) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) {
    if (errno == EEXIST) return Fail(ErrorCode::kAlreadyExists, "'" + path + "' is already there");
    return FailErrno("cannot create", path);
  }
  Status status = WriteAll(fd, text, path);
  if (status && ::fsync(fd) != 0) status = FailErrno("cannot sync", path);
  ::close(fd);
  return status;
}

Result<std::string> ReadSecretFile(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return FailErrno("cannot read secret key", path);
  // A file of ours is ours alone. One that somebody else hands us through a group (a mounted secret of an orchestrator)
  // may be readable by that group; others never have access.
  const mode_t refused = info.st_uid == ::geteuid() ? 077 : 027;
  if ((info.st_mode & refused) != 0)
    return Fail(ErrorCode::kPermissionDenied,
                "secret key '" + path + "' can be read by group or others; run: chmod 600 '" + path + "'");
  return ReadTextFile(path);
}

// The text of a list; empty if there is none yet.
Result<std::string> ReadList(const std::string& path) {
  auto text = ReadTextFile(path);
  if (!text && text.error().code == ErrorCode::kNotFound) return std::string();
  return text;
}

Status AppendLine(const std::string& path, const std::string& line) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return FailErrno("cannot open", path);
  Status status = WriteAll(fd, line + "\n", path);
  ::close(fd);
  return status;
}

}  // namespace

Result<std::string> ReadTextFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FailErrno("cannot open", path);
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      auto failure = FailErrno("cannot read", path);
      ::close(fd);
      return failure;
    }
    if (got == 0) break;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > limits::kKeyFileBytesMax) {
      ::close(fd);
      return Fail(ErrorCode::kLimitExceeded, "'" + path + "' is larger than 1 MiB");
    }
  }
  ::close(fd);
  return text;
}

Result<KeyDirectory> KeyDirectory::Create(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return FailErrno("cannot create key directory", path);
  return Open(path);
}

Result<KeyDirectory> KeyDirectory::Open(const std::string& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code))
    return Fail(ErrorCode::kNotFound,
                "key directory '" + path + "' does not exist; `kiln keys DIRECTORY` makes the keys of a fleet");
  if (!std::filesystem::is_directory(path, code))
    return Fail(ErrorCode::kInvalidArgument, "key directory '" + path + "' is not a directory");
  return KeyDirectory(path);
}

std::string KeyDirectory::File(std::string_view name, std::string_view suffix) const {
  return path_ + "/" + std::string(name) + std::string(suffix);
}

Result<CurveKeyPair> KeyDirectory::LoadCurve(std::string_view name) const {
  const std::string path = File(name, ".curve.secret");
  ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(path));
  CurveKeyPair pair{.public_z85 = {}, .secret_z85 = Trimmed(text)};
  auto public_key = CurvePublicKey(pair.secret_z85);
  if (!public_key) return FailIn(path, public_key.error());
  pair.public_z85 = *public_key;
  return pair;
}

Result<CurveKeyPair> KeyDirectory::LoadOwnCurve(std::string_view name) const {
  auto pair = LoadCurve(name);
  if (pair || pair.error().code != ErrorCode::kNotFound) return pair;
  std::string held;
  std::error_code code;
  for (std::filesystem::directory_iterator at(path_, code), end; !code && at != end; at.increment(code)) {
    const std::string file = at->path().filename().string();
    const size_t suffix = file.find(".curve.secret");
    if (suffix != std::string::npos) held += (held.empty() ? "" : ", ") + file.substr(0, suffix);
  }
  return Fail(ErrorCode::kNotFound, "key directory '" + path_ + "' has no secret of '" + std::string(name) + "' (" +
                                        (held.empty() ? "it has none" : "it is of: " + held) +
                                        "); give the directory that `kiln keys` made for it");
}

Result<CurveKeyPair> KeyDirectory::LoadOrCreateCurve(std::string_view name) const {
  auto existing = LoadCurve(name);
  if (existing || existing.error().code != ErrorCode::kNotFound) return existing;
  ASSIGN_OR_RETURN(const CurveKeyPair pair, GenerateCurveKeyPair());
  RETURN_IF_ERROR(CreateFile(File(name, ".curve.secret"), pair.secret_z85 + "\n", 0600));
  ::unlink(File(name, ".curve.public").c_str());  // would belong to a secret that is gone
  RETURN_IF_ERROR(CreateFile(File(name, ".curve.public"), pair.public_z85 + "\n", 0644));
  return pair;
}

Result<std::string> KeyDirectory::LoadCurvePublic(std::string_view name) const {
  const std::string path = File(name, ".curve.public");
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  std::string key = Trimmed(text);
  if (Status status = CheckCurveKey(key); !status) return FailIn(path, status.error());
  return key;
}

Status KeyDirectory::StoreCurvePublic(std::string_view name, std::string_view public_z85) const {
  RETURN_IF_ERROR(CheckCurveKey(public_z85));
  if (const auto present = LoadCurvePublic(name); present.has_value() && *present == public_z85) return {};
  const std::string path = File(name, ".curve.public");
  ::unlink(path.c_str());
  return CreateFile(path, std::string(public_z85) + "\n", 0644);
}

bool KeyDirectory::HasCurve(std::string_view name) const {
  return ::access(File(name, ".curve.secret").c_str(), F_OK) == 0;
}

Result<SigningKey> KeyDirectory::LoadSigning(std::string_view name) const {
  const std::string path = File(name, ".sign.secret");
  ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(path));
  auto seed = DigestFromHex(Trimmed(text));
  if (!seed) return FailIn(path, seed.error());
  return SigningKey::FromSeed(seed->bytes);
}

Result<SigningKey> KeyDirectory::LoadOrCreateSigning(std::string_view name) const {
  auto existing = LoadSigning(name);
  if (existing || existing.error().code != ErrorCode::kNotFound) return existing;
  const SigningKey key = SigningKey::Generate();
  RETURN_IF_ERROR(CreateFile(File(name, ".sign.secret"), Digest{key.Seed()}.Hex() + "\n", 0600));
  ::unlink(File(name, ".sign.public").c_str());
  RETURN_IF_ERROR(CreateFile(File(name, ".sign.public"), key.public_key().Hex() + "\n", 0644));
  return key;
}

Result<AllowList> KeyDirectory::LoadAllowList() const {
  return AllowList::Load(path_ + "/allow.list");
}
Result<TrustedSigners> KeyDirectory::LoadTrustedSigners() const {
  return LoadSigners(path_ + "/signers.list");
}

Status KeyDirectory::Allow(Role role, std::string_view public_z85, std::string_view label) const {
  RETURN_IF_ERROR(CheckCurveKey(public_z85));
  const std::string path = path_ + "/allow.list", key(public_z85);
  ASSIGN_OR_RETURN(const std::string text, ReadList(path));
  auto list = AllowList::Parse(text);
  if (!list) return FailIn(path, list.error());
  if (const auto present = list->RoleOf(key); present.has_value()) return list->Add(role, key);
  return AppendLine(path, std::string(RoleName(role)) + " " + key + " " + std::string(label));
}

Status KeyDirectory::Trust(const SignPublicKey& key, std::string_view label) const {
  const std::string path = path_ + "/signers.list";
  ASSIGN_OR_RETURN(const std::string text, ReadList(path));
  auto signers = ParseSigners(text);
  if (!signers) return FailIn(path, signers.error());
  if (std::find(signers->begin(), signers->end(), key) != signers->end()) return {};
  return AppendLine(path, key.Hex() + " " + std::string(label));
}

Result<ServerSecurity> KeyDirectory::ServerFor(std::string_view name) const {
  ServerSecurity security;
  ASSIGN_OR_RETURN(security.keys, LoadOwnCurve(name));
  ASSIGN_OR_RETURN(AllowList list, LoadAllowList());
  security.allow_list = std::make_shared<const AllowList>(std::move(list));
  return security;
}

Status KeyDirectory::Reload(const ServerSecurity& security, SignerList* signers) const {
  std::optional<AllowList> allowed;
  if (security.allow_list != nullptr) {
    ASSIGN_OR_RETURN(allowed, LoadAllowList());
  }
  if (signers != nullptr) {
    ASSIGN_OR_RETURN(TrustedSigners trusted, LoadTrustedSigners());
    signers->Replace(std::move(trusted));
  }
  if (allowed.has_value()) security.allow_list->Replace(*allowed);
  return {};
}

Result<ClientSecurity> KeyDirectory::ClientFor(std::string_view name, std::string_view server) const {
  ClientSecurity security;
  ASSIGN_OR_RETURN(security.keys, LoadOwnCurve(name));
  ASSIGN_OR_RETURN(security.server_public_z85, LoadCurvePublic(server));
  return security;
}

}  // namespace kiln
