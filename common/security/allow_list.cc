#include "common/security/allow_list.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <sstream>
#include <unordered_map>

#include "common/security/key_directory.h"
#include "common/security/transport_keys.h"

namespace kiln {
namespace {

// Calls `entry` with the first two words of each line that is neither empty nor a comment.
Status ForEachLine(std::string_view text, std::string_view what,
                   const std::function<Status(const std::string&, const std::string&)>& entry) {
  std::istringstream stream{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string first, second;
    words >> first >> second;
    if (first.empty()) continue;
    if (Status status = entry(first, second); !status)
      return FailIn(std::string(what) + " line " + std::to_string(number), status.error());
  }
  return {};
}

}  // namespace

struct AllowList::State {
  mutable std::mutex mutex;  // guards roles
  std::unordered_map<std::string, Role> roles;
};

AllowList::AllowList() : state_(std::make_shared<State>()) {}

Result<AllowList> AllowList::Parse(std::string_view text) {
  AllowList list;
  RETURN_IF_ERROR(ForEachLine(text, "allow-list", [&](const std::string& role_name, const std::string& key) -> Status {
    ASSIGN_OR_RETURN(const Role role, RoleFromName(role_name));
    return list.Add(role, key);
  }));
  return list;
}

Result<AllowList> AllowList::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  auto list = Parse(text);
  if (!list) return FailIn(path, list.error());
  return list;
}

Status AllowList::Add(Role role, std::string_view public_z85) {
  RETURN_IF_ERROR(CheckCurveKey(public_z85));
  std::lock_guard lock(state_->mutex);
  const auto [entry, inserted] = state_->roles.emplace(std::string(public_z85), role);
  if (!inserted && entry->second != role)
    return Fail(ErrorCode::kAlreadyExists, "key " + entry->first + " is listed as " +
                                               std::string(RoleName(entry->second)) + " and as " +
                                               std::string(RoleName(role)) + "; keep one line");
  return {};
}

Result<Role> AllowList::RoleOf(std::string_view public_z85) const {
  std::lock_guard lock(state_->mutex);
  const auto entry = state_->roles.find(std::string(public_z85));
  if (entry == state_->roles.end())
    return Fail(ErrorCode::kPermissionDenied, "key " + std::string(public_z85) + " is not in the allow-list");
  return entry->second;
}

size_t AllowList::size() const {
  std::lock_guard lock(state_->mutex);
  return state_->roles.size();
}

void AllowList::Replace(const AllowList& other) const {
  std::unordered_map<std::string, Role> roles;
  {
    std::lock_guard lock(other.state_->mutex);
    roles = other.state_->roles;
  }
  std::lock_guard lock(state_->mutex);
  state_->roles.swap(roles);
}

Result<TrustedSigners> ParseSigners(std::string_view text) {
  TrustedSigners signers;
  RETURN_IF_ERROR(ForEachLine(text, "signer list", [&](const std::string& hex, const std::string&) -> Status {
    ASSIGN_OR_RETURN(const SignPublicKey key, SignPublicKeyFromHex(hex));
    if (std::find(signers.begin(), signers.end(), key) == signers.end()) signers.push_back(key);
    return {};
  }));
  return signers;
}

Result<TrustedSigners> LoadSigners(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  auto signers = ParseSigners(text);
  if (!signers) return FailIn(path, signers.error());
  return signers;
}

}  // namespace kiln
