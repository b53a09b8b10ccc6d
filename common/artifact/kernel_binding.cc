#include "common/artifact/kernel_binding.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr char kSignatureDomain[] = "kiln.kernel_binding";

Digest SignedFields(const KernelBinding& binding) {
  return FieldHasher("kiln.kernel-binding.v1")
      .Id(binding.key)
      .Id(binding.id)
      .U8(static_cast<uint8_t>(binding.validation))
      .Finish();
}

}  // namespace

std::optional<std::string_view> ValidationKindName(ValidationKind kind) {
  switch (kind) {
#define KILN_VALIDATION(value, name, text, doc) \
  case ValidationKind::k##name:                 \
    return text;
#include "common/artifact/validation.def"
#undef KILN_VALIDATION
  }
  return std::nullopt;
}

KernelBinding BindKernel(const Digest& key, const Digest& id, ValidationKind validation, const SigningKey& signer) {
  KernelBinding binding{key, id, validation, signer.public_key(), {}};
  binding.signature = signer.Sign(kSignatureDomain, SignedFields(binding).Span());
  return binding;
}

bool IsBoundBy(const KernelBinding& binding, const TrustedSigners& trusted) {
  return !binding.id.IsZero() && std::find(trusted.begin(), trusted.end(), binding.signer) != trusted.end() &&
         VerifySignature(binding.signer, kSignatureDomain, SignedFields(binding).Span(), binding.signature);
}

}  // namespace kiln
