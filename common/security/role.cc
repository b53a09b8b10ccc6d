#include "common/security/role.h"

#include <string>

namespace kiln {

std::string_view RoleName(Role role) {
  switch (role) {
#define KILN_ROLE(value, name, text, doc) \
  case Role::k##name:                     \
    return text;
#include "common/security/roles.def"
#undef KILN_ROLE
  }
  return "unknown";
}

std::string RolesText(RoleSet roles) {
  std::string text;
#define KILN_ROLE(value, role, name, doc) \
  if ((roles & RoleBit(Role::k##role)) != 0) text += (text.empty() ? "role " : " or ") + std::string(name);
#include "common/security/roles.def"
#undef KILN_ROLE
  return text;
}

Result<Role> RoleFromName(std::string_view name) {
#define KILN_ROLE(value, role, text, doc) \
  if (name == text) return Role::k##role;
#include "common/security/roles.def"
#undef KILN_ROLE
  std::string known;
#define KILN_ROLE(value, role, text, doc) known += (known.empty() ? "" : ", ") + std::string(text);
#include "common/security/roles.def"
#undef KILN_ROLE
  return Fail(ErrorCode::kInvalidArgument, "role '" + std::string(name) + "' is unknown; use one of " + known);
}

}  // namespace kiln
