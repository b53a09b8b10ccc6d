// Plans for a device: which target is asked for, and what becomes of them when the compile service, the driver or the
// device itself does not do.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "vm-worker/tiering/tier_controller.h"

namespace kiln {
namespace {

// How long a compile service that makes nothing for devices is not asked: it does not learn that from one minute to the
// next, but another one may be started beside it.
constexpr int64_t kRefusalFirstMs = 60'000, kRefusalMaxMs = 600'000;

}  // namespace

Target TierController::WantedTarget(const Group& group) const {
  const int64_t now = Now();
  const bool refused = !device_refusal_.empty() && (now < device_refused_until_ns_ || device_probed_);
  if (!HasDevice() || refused || now < group.device_retry_ns) return options_.targets.front();
  return options_.device->facts().targets.front();
}

void TierController::HoldDevice(Group& group, int64_t pause_ms) {
  group.device_retry_ns = Now() + std::max<int64_t>(pause_ms, 0) * 1'000'000;
}

void TierController::OnDeviceRefused(const ModelState& state, Group& group, const Error& error) {
  const int64_t now = Now();
  const bool for_all = error.code == ErrorCode::kUnsupported || error.code == ErrorCode::kTargetMismatch;
  HoldDevice(group, for_all ? 0 : kRefusalMaxMs);
  spdlog::info("model {}: segment {}: no plan for the device: {}; asking for one for the processor",
               state.model->name(), group.id.ShortHex(), ToString(error));
  // Of requests that were under way together, the first one tells.
  if (!for_all || (!device_refusal_.empty() && now < device_refused_until_ns_)) return;
  device_refusal_ms_ = device_refusal_.empty() ? kRefusalFirstMs : std::min(device_refusal_ms_ * 2, kRefusalMaxMs);
  device_refused_until_ns_ = now + device_refusal_ms_ * 1'000'000;
  device_refusal_ = error.message;
}

void TierController::WatchDevice() {
  if (!HasDevice()) return;
  if (options_.device->lost()) return OnDeviceLost();
  for (ModelState& state : models_)
    for (auto& [id, group] : state.groups) {
      std::vector<std::pair<PlanKey, std::string>> refused;
      for (const auto& [key, entry] : group.plans)
        for (const auto& linked : entry.linked)
          if (!linked->on_device())
            break;
          else if (const auto why = linked->device().refusal->why())
            refused.emplace_back(key, *why);
      for (const auto& [key, why] : refused) Drop(state, group, key, MissReason::kDeviceRefused, why, Blame::kContents);
    }
}

// The plan that was running when a kernel faulted is accused, where it can be told; all others only leave.
void TierController::OnDeviceLost() {
  device_lost_ = true;
  const DeviceLoss loss = options_.device->loss();
  const std::string detail = "the device is lost to this process: " + loss.text;
  for (ModelState& state : models_)
    for (auto& [id, group] : state.groups) {
      std::vector<PlanKey> keys;
      for (const auto& [key, entry] : group.plans)
        if (entry.on_device()) keys.push_back(key);
      for (const PlanKey& key : keys) {
        const PlanEntry& entry = group.plans.at(key);
        const bool guilty = loss.by_kernel && loss.suspects.size() == 1 && loss.suspects.front() == key;
        if (guilty)
          Accuse(state, ShadowVerdict{entry.linked.front(), ShadowOutcome::kFault, loss.text}, entry.contents,
                 cache::ReportKind::kFault);
        Drop(state, group, key, MissReason::kDeviceLost, detail, guilty ? Blame::kContents : Blame::kNone);
      }
      if (!keys.empty()) group.AskAgain();
    }
}

std::string TierController::DeviceText() const {
  if (options_.device == nullptr) return "";
  if (options_.device->lost()) return options_.device->Text() + ": lost: " + options_.device->loss().text;
  std::lock_guard lock(state_mutex_);
  if (device_refusal_.empty()) return options_.device->Text();
  return options_.device->Text() + ": the compile service makes no plans for it: " + device_refusal_;
}

}  // namespace kiln
