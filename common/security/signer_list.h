// The signers whose records are believed now. Copies share one list, so that who checks records sees a reload.
#pragma once

#include <initializer_list>
#include <memory>
#include <mutex>

#include "common/security/signing.h"

namespace kiln {

// Thread-safe.
class SignerList {
 public:
  SignerList() : SignerList(TrustedSigners{}) {}
  SignerList(std::initializer_list<SignPublicKey> signers) : SignerList(TrustedSigners(signers)) {}
  SignerList(TrustedSigners signers) : state_(std::make_shared<State>()) { Replace(std::move(signers)); }

  std::shared_ptr<const TrustedSigners> Get() const {
    std::lock_guard lock(state_->mutex);
    return state_->signers;
  }
  void Replace(TrustedSigners signers) {
    auto replacement = std::make_shared<const TrustedSigners>(std::move(signers));
    std::lock_guard lock(state_->mutex);
    state_->signers = std::move(replacement);
  }

 private:
  struct State {
    std::mutex mutex;  // guards signers
    std::shared_ptr<const TrustedSigners> signers;
  };
  std::shared_ptr<State> state_;
};

}  // namespace kiln
