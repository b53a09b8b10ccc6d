// Which transport keys may connect, and with which role; which signers are trusted. Text files, one entry a line:
//   allow.list    <role> <40-character z85 public key> [label]
//   signers.list  <64 hex digits of an Ed25519 public key> [label]
// A line whose first character is '#' is a comment.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "common/base/result.h"
#include "common/security/role.h"
#include "common/security/signing.h"

namespace kiln {

// Immutable after it is built; share it as shared_ptr<const AllowList>.
class AllowList {
 public:
  // Refuses a bad line, naming it, and a key that is listed twice with two roles.
  static Result<AllowList> Parse(std::string_view text);
  static Result<AllowList> Load(const std::string& path);

  Status Add(Role role, std::string_view public_z85);
  Result<Role> RoleOf(std::string_view public_z85) const;
  size_t size() const { return roles_.size(); }

 private:
  std::unordered_map<std::string, Role> roles_;
};

Result<TrustedSigners> ParseSigners(std::string_view text);
Result<TrustedSigners> LoadSigners(const std::string& path);

}  // namespace kiln
