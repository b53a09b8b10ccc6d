#include "common/artifact/target_text.h"

#include <cstdlib>

namespace kiln {
namespace {

struct Rung {
  Target target;
  std::string_view doc;  // what a processor needs for it
};
constexpr Rung kRungs[] = {
#define KILN_TARGET(value, name, text, architecture, rung, vector_bytes, cpu, features, doc) {Target::k##name, doc},
#include "common/artifact/targets.def"
#undef KILN_TARGET
};
#if defined(__aarch64__)
constexpr Architecture kHost = Architecture::kArm;
#else
constexpr Architecture kHost = Architecture::kX86;
#endif

}  // namespace

std::string TargetsText(const std::vector<Target>& targets) {
  const TargetInfo* best = targets.empty() ? nullptr : &InfoOf(targets.front());
  const Rung* next = nullptr;  // the lowest rung above
  for (const Rung& candidate : kRungs) {
    const TargetInfo& info = InfoOf(candidate.target);
    if (info.is_device() || info.architecture != (best == nullptr ? kHost : best->architecture)) continue;
    if (info.rung > (best == nullptr ? 0 : best->rung) && (next == nullptr || info.rung < InfoOf(next->target).rung))
      next = &candidate;
  }
  std::string text(best == nullptr ? "none" : best->name);
  if (next != nullptr)
    text += "; not " + std::string(InfoOf(next->target).name) + ": this host lacks " +
            std::string(next->doc.substr(0, next->doc.find(';'))) +
            (std::getenv("KILN_MAX_TARGET") != nullptr ? ", or KILN_MAX_TARGET excludes it" : "");
  return text;
}

Status CheckTargetLimit() {
  const char* text = std::getenv("KILN_MAX_TARGET");
  if (text == nullptr) return {};
  const std::optional<Target> named = TargetFromName(text);
  if (named && !InfoOf(*named).is_device()) return {};
  std::string names;
  for (const Rung& rung : kRungs)
    if (!InfoOf(rung.target).is_device()) names += (names.empty() ? "" : ", ") + std::string(InfoOf(rung.target).name);
  return Fail(ErrorCode::kInvalidArgument,
              "KILN_MAX_TARGET is \"" + std::string(text) + "\", which is no processor's target; use one of " + names);
}

}  // namespace kiln
