// The key pairs of a fleet, and who may do what with them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/security/role.h"
#include "common/security/transport_keys.h"

namespace kiln::cli {

// Everybody who holds a key pair. A service may also ask itself (health checks), with the role of a worker.
struct KeyHolder {
  std::string_view name;  // of its directory and of its files
  Role role;              // as a client of the others
};
const std::vector<KeyHolder>& KeyHolders();

// directory/NAME for each holder: its own CURVE pair, the public keys of all, allow.list, signers.list; compile's also
// holds the signing key. No directory holds another's secret. What is there already is kept, so that it may be run
// again; the directory is created with mode 0700.
Status CreateFleetKeys(const std::string& directory);

// What a command needs to reach the service named `server`, by whichever keys `directory` holds; what they may do there
// is the service's answer.
Result<ClientSecurity> SecurityOfHolder(const std::string& directory, const std::string& server);

}  // namespace kiln::cli
