#include "vm-worker/dispatch/kernel_names.h"

#include <algorithm>

namespace kiln {

std::string KernelName(const std::string& model, const Plan& plan, size_t kernel) {
  std::string label = "kernel";
  for (const PlanStep& step : plan.steps) {
    const auto* use = std::get_if<KernelStep>(&step.step);
    if (use == nullptr || static_cast<size_t>(use->kernel) != kernel) continue;
    label = step.label;
    break;
  }
  std::string name = "kiln " + model + ": " + label + " [" + plan.kernels[kernel].ShortHex() + "]";
  std::ranges::replace_if(name, [](char c) { return static_cast<unsigned char>(c) < ' '; }, '_');
  return name;
}

}  // namespace kiln
