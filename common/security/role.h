// The role of an authenticated peer. What each role may do is decided per method by the service's method table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace kiln {

enum class Role : uint8_t {
#define KILN_ROLE(value, name, text, doc) k##name = value,
#include "common/security/roles.def"
#undef KILN_ROLE
};

// A set of roles, as method tables use it.
using RoleSet = uint8_t;
constexpr RoleSet RoleBit(Role role) {
  return static_cast<RoleSet>(1u << static_cast<unsigned>(role));
}
constexpr RoleSet kAnyRole = 0
#define KILN_ROLE(value, name, text, doc) | RoleBit(Role::k##name)
#include "common/security/roles.def"
#undef KILN_ROLE
    ;
constexpr RoleSet kCompileUp = RoleBit(Role::kCompile) | RoleBit(Role::kAdmin);
constexpr RoleSet kOperatorUp = RoleBit(Role::kOperator) | RoleBit(Role::kAdmin);
constexpr RoleSet kAdminOnly = RoleBit(Role::kAdmin);

std::string_view RoleName(Role role);
Result<Role> RoleFromName(std::string_view name);
std::string RolesText(RoleSet roles);  // "role operator or admin"

}  // namespace kiln
