// What the importer accepts is a program like any other.
#include <google/protobuf/stubs/logging.h>

#include "common/base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/program_checks.h"
#include "vm-worker/onnx/file_weights.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::fuzz {

void OnnxBytes(std::span<const uint8_t> bytes) {
  // protobuf tells of each malformed text on stderr, which is most of the time otherwise.
  [[maybe_unused]] static const auto logged = google::protobuf::SetLogHandler(nullptr);
  if (const auto without = onnx::WithoutRawData(bytes)) KILN_CHECK(without->size() < bytes.size());
  for (const bool dynamic : {false, true}) {
    const auto model = ImportOnnxBytes(bytes, "fuzz", {.all_dims_dynamic = dynamic});
    if (!model) {
      KILN_CHECK(!model.error().message.empty());
      continue;
    }
    KILN_CHECK(model->inputs.size() == model->program.entry().regions[0].inputs.size());
    KILN_CHECK(model->outputs.size() == model->program.entry().regions[0].outputs.size());
    CheckForms(model->program);
    CheckLoads(model->program);
  }
}

}  // namespace kiln::fuzz
