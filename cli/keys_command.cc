// `kiln keys`: the key pairs of a fleet.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/fleet/fleet_keys.h"
#include "cli/say.h"

namespace kiln::cli {

void AddKeysCommand(CLI::App& app, Action& action) {
  auto directory = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "keys", "create the keys of a fleet, one directory per service and tool; existing ones are kept");
  command
      ->add_option("directory", *directory,
                   "gets cache/, compile/, worker/, tool/ and admin/: hand each to its owner as --keys")
      ->required();
  command->callback([directory, &action] {
    action = [directory]() -> Result<int> {
      RETURN_IF_ERROR(CreateFleetKeys(*directory));
      for (const KeyHolder& holder : KeyHolders())
        Say("{}/{}: role {}\n", *directory, holder.name, RoleName(holder.role));
      return 0;
    };
  });
}

}  // namespace kiln::cli
