#include "compile-service/codegen/llvm/codegen_id.h"

#include "common/base/check.h"
#include "generated_codegen_id.h"

namespace kiln::codegen {

const Digest& CodegenId() {
  static const Digest id = [] {
    auto digest = DigestFromHex(kGeneratedCodegenId);
    KILN_CHECK(digest.has_value());
    return *digest;
  }();
  return id;
}

}  // namespace kiln::codegen
