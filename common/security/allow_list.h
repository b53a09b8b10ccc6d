// Which transport keys may connect, and with which role; which signers are trusted. Text files, one entry a line:
//   allow.list    <role> <40-character z85 public key> [label]
//   signers.list  <64 hex digits of an Ed25519 public key> [label]
// A line whose first character is '#' is a comment.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/security/role.h"
#include "common/security/signing.h"

namespace kiln {

// Copies share one list, so that a listening socket sees a reload. Thread-safe.
class AllowList {
 public:
  AllowList();
  // Refuses a bad line, naming it, and a key that is listed twice with two roles.
  static Result<AllowList> Parse(std::string_view text);
  static Result<AllowList> Load(const std::string& path);

  Status Add(Role role, std::string_view public_z85);
  Result<Role> RoleOf(std::string_view public_z85) const;
  size_t size() const;
  // Takes the entries of `other`, in all copies: peers without an entry are refused from their next request on.
  void Replace(const AllowList& other) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

Result<TrustedSigners> ParseSigners(std::string_view text);
Result<TrustedSigners> LoadSigners(const std::string& path);

}  // namespace kiln
