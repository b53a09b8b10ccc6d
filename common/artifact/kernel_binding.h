// The signed entry of the kernel index: which bytes answer a kernel key, and how they were checked.
//
// Keys and ids are both hashes, so that nothing in the bytes of a kernel says what it computes: only who compiled and
// checked it knows. Whoever reuses a kernel believes an entry with the signature of a trusted signer, and no other.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/base/hash.h"
#include "common/security/signing.h"

namespace kiln {

// How a kernel, or the least checked kernel of a plan, was checked before it was signed.
enum class ValidationKind : uint8_t {
#define KILN_VALIDATION(value, name, text, doc) k##name = value,
#include "common/artifact/validation.def"
#undef KILN_VALIDATION
};
std::optional<std::string_view> ValidationKindName(ValidationKind kind);  // none: a number that the table has not

struct KernelBinding {
  Digest key;  // of spec, target and code generator
  Digest id;   // of the kernel's bytes; zero: none is known
  ValidationKind validation = ValidationKind::kNotExecuted;
  SignPublicKey signer{};  // zero: nobody signed it
  SignatureBytes signature{};
  bool operator==(const KernelBinding&) const = default;
};

KernelBinding BindKernel(const Digest& key, const Digest& id, ValidationKind validation, const SigningKey& signer);
// Whether one of `trusted` signed it. That it is about the key that was asked for is for the caller to compare.
bool IsBoundBy(const KernelBinding& binding, const TrustedSigners& trusted);

}  // namespace kiln
