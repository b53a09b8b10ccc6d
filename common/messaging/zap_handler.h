// Answers the authentication requests of one ZeroMQ context on the loop thread, for this folder only. One allow-list
// per domain; a domain is one server socket.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "common/base/result.h"
#include "common/security/allow_list.h"

namespace kiln {

class Loop;
class Socket;

class ZapHandler {
 public:
  static Result<std::unique_ptr<ZapHandler>> Start(Loop& loop);
  ~ZapHandler();

  // Returns the domain's name.
  std::string Add(std::shared_ptr<const AllowList> allow_list);
  void Remove(const std::string& domain) { domains_.erase(domain); }

 private:
  ZapHandler();
  std::unique_ptr<Socket> socket_;
  std::unordered_map<std::string, std::shared_ptr<const AllowList>> domains_;
  uint64_t next_ = 1;
};

}  // namespace kiln
