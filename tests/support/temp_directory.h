// A directory of one test, which goes with it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace kiln::testing {

// Empty, closed to others (0700), and short enough for sockets. Made by the constructor, which throws where that cannot
// be; its destructor removes it with all that is in it. Declare it before what uses it.
class TempDirectory {
 public:
  explicit TempDirectory(const std::string& below = "/tmp") : path_(below + "/kiln-test-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary directory below " + below);
  }
  ~TempDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace kiln::testing
