#include "common/cache_api/types.h"

namespace kiln::cache {

RoleSet MethodRoles(Method method) {
  switch (method) {
#define KILN_CACHE_METHOD(value, name, roles, admission, doc) \
  case Method::k##name:                                       \
    return roles;
#include "common/cache_api/methods.def"
#undef KILN_CACHE_METHOD
  }
  return 0;
}

Admission MethodAdmission(Method method) {
  switch (method) {
#define KILN_CACHE_METHOD(value, name, roles, admission, doc) \
  case Method::k##name:                                       \
    return Admission::admission;
#include "common/cache_api/methods.def"
#undef KILN_CACHE_METHOD
  }
  return Admission::kQueued;
}

std::string_view MethodText(Method method) {
  switch (method) {
#define KILN_CACHE_METHOD(value, name, roles, admission, doc) \
  case Method::k##name:                                       \
    return #name " (" doc ")";
#include "common/cache_api/methods.def"
#undef KILN_CACHE_METHOD
  }
  return "";
}

std::optional<std::string_view> ClaimKindName(ClaimKind value) {
  switch (value) {
#define KILN_CLAIM_KIND(value, name, text) \
  case ClaimKind::k##name:                 \
    return text;
#include "common/cache_api/kinds.def"
#undef KILN_CLAIM_KIND
  }
  return std::nullopt;
}

std::optional<std::string_view> ClaimStateName(ClaimState value) {
  switch (value) {
#define KILN_CLAIM_STATE(value, name, text) \
  case ClaimState::k##name:                 \
    return text;
#include "common/cache_api/kinds.def"
#undef KILN_CLAIM_STATE
  }
  return std::nullopt;
}

std::optional<std::string_view> ReportKindName(ReportKind value) {
  switch (value) {
#define KILN_REPORT_KIND(value, name, text) \
  case ReportKind::k##name:                 \
    return text;
#include "common/cache_api/kinds.def"
#undef KILN_REPORT_KIND
  }
  return std::nullopt;
}

std::optional<std::string_view> ChangeKindName(ChangeKind value) {
  switch (value) {
#define KILN_CHANGE_KIND(value, name, text) \
  case ChangeKind::k##name:                 \
    return text;
#include "common/cache_api/kinds.def"
#undef KILN_CHANGE_KIND
  }
  return std::nullopt;
}

std::optional<std::string_view> PurgeKindName(PurgeKind value) {
  switch (value) {
#define KILN_PURGE_KIND(value, name, text) \
  case PurgeKind::k##name:                 \
    return text;
#include "common/cache_api/kinds.def"
#undef KILN_PURGE_KIND
  }
  return std::nullopt;
}

}  // namespace kiln::cache
