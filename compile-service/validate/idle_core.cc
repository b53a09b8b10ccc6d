#include "compile-service/validate/idle_core.h"

#include <sched.h>

#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace kiln {
namespace {

constexpr int64_t kWatchMs = 40;  // some ticks of the kernel's accounting

struct CoreTimes {
  double idle = 0, total = 0;
};

// Lines "cpuN user nice system idle iowait irq softirq steal guest guest_nice"; guest time is in user time already.
std::map<int, CoreTimes> Parse(std::string_view stat) {
  std::map<int, CoreTimes> cores;
  std::istringstream lines{std::string(stat)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name.size() < 4 || name.compare(0, 3, "cpu") != 0 || name.find_first_not_of("0123456789", 3) != name.npos)
      continue;
    if (name.size() > 8) continue;
    CoreTimes& core = cores[std::stoi(name.substr(3))];
    double value = 0;
    for (int column = 0; column < 8 && words >> value; ++column) {
      core.total += value;
      if (column == 3 || column == 4) core.idle += value;
    }
  }
  return cores;
}

std::string ReadStat() {
  std::ifstream file("/proc/stat");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::optional<int> MostIdleCore(std::string_view before, std::string_view after, std::span<const int> allowed,
                                double share_min) {
  const std::map<int, CoreTimes> first = Parse(before), second = Parse(after);
  std::optional<int> best;
  double best_share = share_min;
  for (const int core : allowed) {
    const auto a = first.find(core), b = second.find(core);
    if (a == first.end() || b == second.end() || b->second.total <= a->second.total) continue;
    const double share = (b->second.idle - a->second.idle) / (b->second.total - a->second.total);
    if (share < best_share || (best && share == best_share)) continue;
    best = core;
    best_share = share;
  }
  return best;
}

Status MoveToIdleCore(double share_min) {
  if (share_min <= 0) return {};
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0)
    return Fail(ErrorCode::kUnavailable, "cannot find out which cores this process may use");
  std::vector<int> allowed;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) allowed.push_back(core);
  const std::string before = ReadStat();
  std::this_thread::sleep_for(std::chrono::milliseconds(kWatchMs));
  const std::optional<int> core = MostIdleCore(before, ReadStat(), allowed, share_min);
  if (!core)
    return Fail(ErrorCode::kBusy, "no core is idle for " + std::to_string(static_cast<int>(100 * share_min)) +
                                      " % of the time; kernels are timed later");
  CPU_ZERO(&set);
  CPU_SET(*core, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0)
    return Fail(ErrorCode::kUnavailable, "cannot move to core " + std::to_string(*core));
  return {};
}

}  // namespace kiln
