// Replay files: jobs that went wrong, kept so that they can be done again: `kiln-validate-child --replay FILE`,
// `kiln-compile-child --replay FILE`. The name is the hash of the payload and the kind, the content the payload.
#pragma once

#include <string>

#include "compile-service/jobs/child_process.h"

namespace kiln {

// Makes room first: at most limits::kReplayFilesMax files and kReplayBytesMax bytes, the newest.
Status WriteReplay(const std::string& directory, const Frame& job);
Result<Frame> ReadReplay(const std::string& path);

}  // namespace kiln
