// The signed unit of the cache: a plan record, and the framing of kernel blobs.
//
// Record bytes: magic "KPLR", format version, body length, body (FlatBuffer), signer's public key, Ed25519 signature
// over all before it, and a BLAKE2b-256 checksum over all before that. The checksum finds damage, the signature finds
// lies. Integers are little-endian.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/artifact/kernel_binding.h"
#include "common/base/bytes.h"
#include "common/base/hash.h"
#include "common/base/result.h"
#include "common/security/signing.h"

namespace kiln {

struct KernelRef {
  Digest id;          // hash of the kernel's bytes
  uint64_t size = 0;  // bytes; 0: the publisher reused a stored kernel and does not say
  bool operator==(const KernelRef&) const = default;
};

struct Evidence {
  ValidationKind validation = ValidationKind::kNotExecuted;  // of the least checked kernel
  uint32_t shadow_runs = 0;
  bool operator==(const Evidence&) const = default;
};

struct Provenance {
  Digest codegen_id;
  uint64_t compile_us = 0;
  int64_t created_wall_ms = 0;
  uint8_t tier = 0;
  bool operator==(const Provenance&) const = default;
};

struct PlanRecord {
  Digest plan_key;
  Digest segment;
  std::string target;
  uint32_t abi = 0;
  uint8_t numeric_mode = 0;
  uint8_t weights = 0;  // weight_forms.def
  Bytes guard;          // canonical bytes, opaque here
  Bytes plan;           // opaque here
  std::vector<KernelRef> kernels;
  Evidence evidence;
  Provenance provenance;
  bool operator==(const PlanRecord&) const = default;
};

// A decoded record and who signed it.
struct SignedRecord {
  PlanRecord record;
  SignPublicKey signer;
};

Bytes EncodeAndSign(const PlanRecord& record, const SigningKey& key);
// Malformed: not a record of this format; Unsupported: a newer format; IntegrityFailure: damaged, signed by nobody in
// `trusted`, or forged.
Result<SignedRecord> DecodeAndVerify(std::span<const uint8_t> bytes, const TrustedSigners& trusted);
// Format and checksum only: for the store's own index. Never a reason to run the plan.
Result<SignedRecord> DecodeUnverified(std::span<const uint8_t> bytes);

// A kernel at rest: magic "KKRN", version, length, payload, KernelId. The id is the hash of the payload alone, and its
// checksum.
inline Digest KernelIdOf(std::span<const uint8_t> payload) {
  return HashBytes(payload);
}
Bytes FrameKernelBlob(std::span<const uint8_t> payload);
// The payload, if the frame is intact and the payload is the kernel called `id`.
Result<Bytes> UnframeKernelBlob(std::span<const uint8_t> frame, const Digest& id);

}  // namespace kiln
