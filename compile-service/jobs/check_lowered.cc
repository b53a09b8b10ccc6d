#include "compile-service/jobs/check_lowered.h"

#include "common/artifact/kernel_abi.h"
#include "compile-service/ir/kernel_spec.h"
#include "compile-service/lower/take_places.h"

namespace kiln {
namespace {

std::unexpected<Error> Refuse(const std::string& what) {
  return Fail(ErrorCode::kCompileFailed, "the compile child answered with " + what);
}

bool IsWithin(const SymbolGuard& made, const SymbolGuard& asked) {
  return made.min >= asked.min && made.max <= asked.max &&
         (asked.divisor <= 1 || made.divisor % asked.divisor == 0 ||
          (made.min == made.max && made.min % asked.divisor == 0));
}

}  // namespace

Status CheckLowered(const LowerAnswer& answer, const Plan& plan, const CompileRequest& request, const Segment& segment,
                    const Digest& codegen_id) {
  if (plan.segment != segment.id) return Refuse("a plan of another segment, " + plan.segment.ShortHex());
  if (plan.target != request.target) return Refuse("a plan for " + plan.target + ", not for " + request.target);
  if (plan.numeric_mode != request.numeric_mode) return Refuse("a plan of another numeric mode");
  if (plan.weights != request.weights)
    return Refuse("a plan that reads weights " + std::string(WeightFormText(plan.weights)) + ", not " +
                  std::string(WeightFormText(request.weights)));
  if (plan.abi != KILN_KERNEL_ABI) return Refuse("a plan of kernel ABI " + std::to_string(plan.abi));
  const size_t symbols = segment.symbols.size();
  if (plan.guard.symbols.size() != symbols || (!request.symbols.empty() && request.symbols.size() != symbols))
    return Refuse("a guard over " + std::to_string(plan.guard.symbols.size()) + " symbols, not " +
                  std::to_string(symbols));
  for (size_t i = 0; i < request.symbols.size(); ++i) {
    // What no input shows, no guard looks at: the plan takes it from the segment's own values.
    if (segment.symbols[i].kind == SymbolSource::Kind::kValueDim) continue;
    if (!IsWithin(plan.guard.symbols[i], request.symbols[i]))
      return Refuse("a guard that admits other values of symbol " + std::to_string(i) + " than were asked for");
  }
  if (answer.codegen_id != codegen_id)
    return Refuse("code of another generator, " + answer.codegen_id.ShortHex() +
                  "; front and children are to be of one build");
  std::vector<ir::KernelSpec> specs;
  for (const LowerAnswer::Kernel& kernel : answer.kernels) {
    ASSIGN_OR_RETURN(ir::KernelSpec spec, ir::DecodeSpec(kernel.spec));
    if (kernel.key != ir::ComputeKernelKey(spec, request.target, codegen_id))
      return Refuse("a kernel whose key " + kernel.key.ShortHex() + " is not that of its spec");
    specs.push_back(std::move(spec));
  }
  if (const Status places = lower::CheckPlaces(plan, specs); !places.has_value()) return Refuse(places.error().message);
  return {};
}

}  // namespace kiln
