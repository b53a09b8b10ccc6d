// One-way hints (PUB/SUB): small, lossy, never the truth. A receiver reacts by asking the service, and asks anyway from
// time to time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/base/result.h"
#include "common/messaging/loop.h"
#include "common/messaging/message.h"
#include "common/security/transport_keys.h"

namespace kiln {

// Thread-safe. Destroy before the loop.
class HintPublisher {
 public:
  static Result<std::unique_ptr<HintPublisher>> Listen(Loop& loop, const std::string& endpoint,
                                                       const ServerSecurity& security);
  ~HintPublisher();
  // At most kHintBytesMax bytes; slow receivers miss hints.
  void Publish(Bytes hint);
  const std::string& endpoint() const { return endpoint_; }

 private:
  struct Core;
  explicit HintPublisher(std::shared_ptr<Core> core, std::string endpoint);
  std::shared_ptr<Core> core_;
  std::string endpoint_;
};

// Destroy before the loop.
class HintSubscriber {
 public:
  // `on_hint` runs on the loop thread. The bytes are unverified.
  static Result<std::unique_ptr<HintSubscriber>> Connect(Loop& loop, const std::string& endpoint,
                                                         const ClientSecurity& security,
                                                         std::function<void(Bytes)> on_hint);
  ~HintSubscriber();

 private:
  struct Core;
  explicit HintSubscriber(std::shared_ptr<Core> core);
  std::shared_ptr<Core> core_;
};

}  // namespace kiln
