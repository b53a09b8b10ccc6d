// The frame of a service process: call InitProcess first thing in main, before any thread starts.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace kiln {

struct ProcessOptions {
  std::string name;                // in log lines: "kiln-cache"
  std::string log_level = "info";  // trace, debug, info, warn, error, off
  bool die_with_parent = false;    // SIGTERM to this process when its parent ends
};

// Sets the allocator's thresholds (large blocks go back to the system, few arenas), logs to stderr through spdlog's
// default logger, ignores SIGPIPE and blocks SIGINT, SIGTERM and SIGHUP in this and every later thread, for
// WaitForStop.
Status InitProcess(const ProcessOptions& options);

// "listen=tcp://127.0.0.1:7400,ipc:///run/kiln metrics=127.0.0.1:9100": where a service answers; what has no address is
// left out.
std::string AddressesText(const std::vector<std::string>& listen,
                          std::initializer_list<std::pair<std::string_view, std::string>> others);
// Prints "ready" and the details on one line of stdout, for a parent that waits for it.
void AnnounceReady(std::string_view details);

enum class StopWait : uint8_t { kStop, kReload, kTimeout };
// Blocks until SIGINT or SIGTERM (kStop), SIGHUP (kReload), or `timeout_ms` passed; a negative timeout waits for ever.
StopWait WaitForStop(int timeout_ms = -1);
// Logs what came of reading the lists of keys again.
void LogReload(const Status& reloaded);

}  // namespace kiln
