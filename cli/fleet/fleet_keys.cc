#include "cli/fleet/fleet_keys.h"

#include <utility>

#include "common/security/key_directory.h"

namespace kiln::cli {

const std::vector<KeyHolder>& KeyHolders() {
  static const std::vector<KeyHolder> holders = {{"cache", Role::kWorker},
                                                 {"compile", Role::kCompile},
                                                 {"worker", Role::kWorker},
                                                 {"tool", Role::kOperator},
                                                 {"admin", Role::kAdmin}};
  return holders;
}

Status CreateFleetKeys(const std::string& directory) {
  RETURN_IF_ERROR(KeyDirectory::Create(directory));
  std::vector<KeyDirectory> own;
  std::vector<std::string> public_keys;
  for (const KeyHolder& holder : KeyHolders()) {
    ASSIGN_OR_RETURN(KeyDirectory keys, KeyDirectory::Create(directory + "/" + std::string(holder.name)));
    ASSIGN_OR_RETURN(CurveKeyPair pair, keys.LoadOrCreateCurve(holder.name));
    own.push_back(std::move(keys));
    public_keys.push_back(pair.public_z85);
  }
  ASSIGN_OR_RETURN(KeyDirectory compile, KeyDirectory::Open(directory + "/compile"));
  ASSIGN_OR_RETURN(SigningKey signer, compile.LoadOrCreateSigning("compile"));
  for (const KeyDirectory& keys : own) {
    RETURN_IF_ERROR(keys.Trust(signer.public_key(), "compile"));
    for (size_t i = 0; i < public_keys.size(); ++i) {
      const KeyHolder& holder = KeyHolders()[i];
      RETURN_IF_ERROR(keys.StoreCurvePublic(holder.name, public_keys[i]));
      // A key that is listed with another role was put there by hand, or by an older version: that stands.
      const Status allowed = keys.Allow(holder.role, public_keys[i], holder.name);
      if (!allowed.has_value() && allowed.error().code != ErrorCode::kAlreadyExists) return allowed;
    }
  }
  return {};
}

Result<ClientSecurity> SecurityOfHolder(const std::string& directory, const std::string& server) {
  ASSIGN_OR_RETURN(const KeyDirectory keys, KeyDirectory::Open(directory));
  for (const std::string_view holder : {"admin", "tool", "compile", "worker", "cache"})
    if (keys.HasCurve(holder)) return keys.ClientFor(holder, server);
  return keys.ClientFor("tool", server);  // whose error says what is there
}

}  // namespace kiln::cli
