#include "common/process/process.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "common/base/printable.h"

namespace kiln {
namespace {

// Fixed thresholds: glibc's dynamic ones grow with use and then keep freed blocks resident.
constexpr int kMmapThresholdBytes = 1 << 20;
constexpr int kTrimThresholdBytes = 4 << 20;
constexpr int kArenasMax = 4;

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, number);
  return signals;
}

// A message, in one line whatever names it holds.
class HarmlessText : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string text = Printable({message.payload.data(), message.payload.size()});
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<HarmlessText>(); }
};

}  // namespace

Status InitProcess(const ProcessOptions& options) {
  mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes);
  mallopt(M_TRIM_THRESHOLD, kTrimThresholdBytes);
  mallopt(M_ARENA_MAX, kArenasMax);
  ::signal(SIGPIPE, SIG_IGN);
  const sigset_t signals = StopSignals();
  if (::pthread_sigmask(SIG_BLOCK, &signals, nullptr) != 0) return Fail(ErrorCode::kIoError, "cannot block signals");
  if (options.die_with_parent) {
    const pid_t parent = ::getppid();
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (parent == 1 || ::getppid() != parent) ::raise(SIGTERM);  // it ended before the request took effect
  }
  const auto level = spdlog::level::from_str(options.log_level);
  if (level == spdlog::level::off && options.log_level != "off")
    return Fail(ErrorCode::kInvalidArgument,
                "log level '" + options.log_level + "' is unknown; use trace, debug, info, warn, error or off");
  auto logger = std::make_shared<spdlog::logger>(options.name, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(level);
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<HarmlessText>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %n: %*");
  logger->set_formatter(std::move(formatter));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

std::string AddressesText(const std::vector<std::string>& listen,
                          std::initializer_list<std::pair<std::string_view, std::string>> others) {
  std::string text;
  for (const std::string& endpoint : listen) text += (text.empty() ? "listen=" : ",") + endpoint;
  for (const auto& [name, address] : others)
    if (!address.empty()) text.append(text.empty() ? "" : " ").append(name).append("=").append(address);
  return text;
}

void AnnounceReady(std::string_view details) {
  std::string line = "ready";
  if (!details.empty()) line.append(" ").append(details);
  std::puts(line.c_str());
  std::fflush(stdout);
}

void LogReload(const Status& reloaded) {
  if (reloaded.has_value())
    spdlog::info("SIGHUP: allow.list and signers.list are read again");
  else
    spdlog::error("SIGHUP: the lists stay as they were: {}", ToString(reloaded.error()));
}

StopWait WaitForStop(int timeout_ms) {
  const sigset_t signals = StopSignals();
  for (;;) {
    timespec timeout{timeout_ms / 1000, (timeout_ms % 1000) * 1'000'000L};
    const int number = timeout_ms < 0 ? ::sigwaitinfo(&signals, nullptr) : ::sigtimedwait(&signals, nullptr, &timeout);
    if (number == SIGHUP) return StopWait::kReload;
    if (number > 0) return StopWait::kStop;
    if (errno == EAGAIN) return StopWait::kTimeout;
    if (errno != EINTR) return StopWait::kStop;
  }
}

}  // namespace kiln
