#include "cli/fleet/embedded_fleet.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "cli/fleet/fleet_keys.h"
#include "common/security/key_directory.h"

namespace kiln::cli {
namespace {

constexpr int kReadyTimeoutMs = 30'000;
constexpr size_t kSocketPathMax = 100;  // the system's limit is 107 bytes

std::unexpected<Error> CannotUse(const std::string& directory, int reason) {
  const bool broken = reason == ENOSPC || reason == EDQUOT || reason == EIO || reason == EMFILE || reason == ENFILE;
  return Fail(broken ? ErrorCode::kIoError : ErrorCode::kInvalidArgument,
              "cannot use directory " + directory + ": " + std::strerror(reason));
}

std::string Octal(unsigned mode) {
  std::string digits;
  for (int shift = 9; shift >= 0; shift -= 3) digits += static_cast<char>('0' + ((mode >> shift) & 7));
  return digits;
}

// One that this user alone can enter, as sockets without keys need it: made so where there is none; what is there is
// not changed.
Status MakePrivate(const std::string& directory) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(directory).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) return CannotUse(directory, error.value());
  if (mkdir(directory.c_str(), 0700) == 0) return {};
  if (errno != EEXIST) return CannotUse(directory, errno);
  struct stat found{};
  if (stat(directory.c_str(), &found) != 0) return CannotUse(directory, errno);
  if (!S_ISDIR(found.st_mode)) return CannotUse(directory, ENOTDIR);
  if (found.st_uid != geteuid() || (found.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return Fail(
        ErrorCode::kInvalidArgument,
        "directory " + directory + " is another user's, or open to others (mode " + Octal(found.st_mode & 07777) +
            ", user " + std::to_string(found.st_uid) +
            "): the fleet's sockets ask for no key, and others could use them or put theirs in their place; name "
            "a directory that does not exist yet, or close one of your own with chmod 700");
  return {};
}

}  // namespace

Result<std::unique_ptr<EmbeddedFleet>> EmbeddedFleet::Start(FleetOptions options) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(options.directory, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // it ended in a slash
  RETURN_IF_ERROR(MakePrivate(path.string()));
  options.directory = path.string();
  if (options.directory.size() + 16 > kSocketPathMax)
    return Fail(ErrorCode::kInvalidArgument, "directory " + options.directory +
                                                 " is too long for ipc sockets; choose one below " +
                                                 std::to_string(kSocketPathMax - 16) + " characters");
  std::unique_ptr<EmbeddedFleet> fleet(new EmbeddedFleet(std::move(options)));
  const std::string& directory = fleet->options_.directory;
  if (fleet->options_.binaries.empty()) {
    ASSIGN_OR_RETURN(fleet->options_.binaries, OwnDirectory());
  }
  // The fleet's own signer: the compile service signs with it, the store and the workers trust it.
  ASSIGN_OR_RETURN(KeyDirectory keys, KeyDirectory::Create(directory + "/keys"));
  ASSIGN_OR_RETURN(SigningKey signer, keys.LoadOrCreateSigning("compile"));
  RETURN_IF_ERROR(keys.Trust(signer.public_key(), "compile"));
  RETURN_IF_ERROR(fleet->StartCache());
  RETURN_IF_ERROR(fleet->StartCompile());
  return fleet;
}

Status EmbeddedFleet::StartCache() {
  const std::string& directory = options_.directory;
  const std::string store = options_.store == "memory" ? "memory:" : "rocksdb:" + directory + "/store";
  ASSIGN_OR_RETURN(cache_, ServiceProcess::Start(options_.binaries + "/kiln-cache",
                                                 {"--listen", StoreEndpoint(), "--blob-listen", BlobEndpoint(),
                                                  "--hint-listen", Socket("hints"), "--store", store, "--keys",
                                                  directory + "/keys", "--insecure", "--die-with-parent"},
                                                 Log("cache"), kReadyTimeoutMs, options_.stop_fd));
  return {};
}

Status EmbeddedFleet::StartCompile(const std::vector<std::string>& more) {
  const std::string& directory = options_.directory;
  std::vector<std::string> arguments{"--listen",
                                     CompileEndpoint(),
                                     "--store",
                                     StoreEndpoint(),
                                     "--store-blobs",
                                     BlobEndpoint(),
                                     "--keys",
                                     directory + "/keys",
                                     "--insecure",
                                     "--children",
                                     std::to_string(options_.compile_children),
                                     "--replay-dir",
                                     directory + "/replay",
                                     "--die-with-parent"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  ASSIGN_OR_RETURN(compile_, ServiceProcess::Start(options_.binaries + "/kiln-compile", arguments, Log("compile"),
                                                   kReadyTimeoutMs, options_.stop_fd));
  return {};
}

std::string EmbeddedFleet::FirstEndedWorker() {
  for (size_t i = 0; i < workers_.size(); ++i)
    if (!workers_[i]->Running()) return "kiln-worker (worker" + std::to_string(i) + ")";
  return {};
}

std::string EmbeddedFleet::WorkerEndpoint(int worker) const {
  return Socket("worker" + std::to_string(worker));
}

Result<int> EmbeddedFleet::StartWorker(const WorkerOptions& options) {
  const int index = workers();
  ASSIGN_OR_RETURN(auto process, RunWorker(index, options));
  workers_.push_back(std::move(process));
  worker_options_.push_back(options);
  return index;
}

Status EmbeddedFleet::RestartWorker(int worker) {
  const size_t index = static_cast<size_t>(worker);
  ASSIGN_OR_RETURN(workers_[index], RunWorker(worker, worker_options_[index]));
  return {};
}

Result<std::unique_ptr<ServiceProcess>> EmbeddedFleet::RunWorker(int index, const WorkerOptions& options) const {
  std::vector<std::string> arguments = {
      "--listen",  WorkerEndpoint(index),           "--keys",           options_.directory + "/keys", "--insecure",
      "--threads", std::to_string(options.threads), "--die-with-parent"};
  if (options.plans)
    for (const std::string& argument :
         {std::string("--store"), StoreEndpoint(), std::string("--store-blobs"), Socket("blobs"),
          std::string("--store-hints"), Socket("hints"), std::string("--compile"), CompileEndpoint()})
      arguments.push_back(argument);
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  return ServiceProcess::Start(options_.binaries + "/kiln-worker", arguments, Log("worker" + std::to_string(index)),
                               kReadyTimeoutMs, options_.stop_fd);
}

Result<std::unique_ptr<RpcClient>> ConnectTool(Loop& loop, const std::string& endpoint, const std::string& keys,
                                               const std::string& service, int64_t connect_wait_ms) {
  RpcClientOptions options;
  options.endpoint = endpoint;
  options.connect_wait_ms = connect_wait_ms;
  options.refused_at_once = connect_wait_ms == 0;
  if (keys.empty()) {
    options.security.insecure = true;
  } else {
    ASSIGN_OR_RETURN(options.security, SecurityOfHolder(keys, service));
  }
  return RpcClient::Connect(loop, std::move(options));
}

}  // namespace kiln::cli
