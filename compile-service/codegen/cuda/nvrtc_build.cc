#include "compile-service/codegen/cuda/nvrtc_build.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "common/base/check.h"
#include "generated_cuda_sources_id.h"

namespace kiln::codegen::cuda {
namespace {

constexpr char kLibrary[] = "libnvrtc.so.13";
constexpr char kToolkit[] = "/usr/local/cuda/lib64/libnvrtc.so.13";

Result<Digest> HashFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return Fail(ErrorCode::kNotFound, "cannot read NVRTC at \"" + path + "\"");
  FieldHasher hasher("kiln.nvrtc.v1");
  std::vector<uint8_t> part(size_t{1} << 20);
  ssize_t bytes = 0;
  while ((bytes = read(file, part.data(), part.size())) > 0)
    hasher.Bytes(std::span(part).first(static_cast<size_t>(bytes)));
  close(file);
  if (bytes < 0) return Fail(ErrorCode::kIoError, "cannot read NVRTC at \"" + path + "\"");
  return hasher.Finish();
}

// Once per process and path: it has 100 MB.
Result<Digest> BuildOf(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, Digest> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(path);
  if (found != known.end()) return found->second;
  ASSIGN_OR_RETURN(const Digest digest, HashFile(path));
  known.emplace(path, digest);
  return digest;
}

}  // namespace

std::vector<std::string> NvrtcOptions(Target target) {
  return {"--gpu-architecture=" + std::string(InfoOf(target).name), "--std=c++17",
          // Every text has the whole prelude.
          "--diag-suppress=177",
          // A program says itself where a product and a sum are rounded once.
          "--fmad=false",
          // Hosts with a driver behave as those without.
          "--no-cache", "--ptxas-options=-v",
          // Registers that spill end the compilation.
          "--ptxas-options=-warn-spills", "--ptxas-options=-Werror"};
}

Result<std::string> FindNvrtc(const std::string& given) {
  if (!given.empty()) {
    if (access(given.c_str(), R_OK) == 0) return std::filesystem::absolute(given).string();
    return Fail(ErrorCode::kNotFound, "there is no NVRTC at \"" + given + "\"");
  }
  if (void* library = dlopen(kLibrary, RTLD_LAZY | RTLD_LOCAL); library != nullptr) {
    const link_map* map = nullptr;
    std::string path;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) path = map->l_name;
    dlclose(library);
    if (!path.empty()) return path;
  }
  if (access(kToolkit, R_OK) == 0) return std::string(kToolkit);
  return Fail(ErrorCode::kNotFound, "no NVRTC: neither the loader finds " + std::string(kLibrary) + " nor is there " +
                                        kToolkit + "; install CUDA 13's, or name it with --nvrtc");
}

Result<Digest> CudaCodegenId(Target target, const std::string& nvrtc) {
  const auto sources = DigestFromHex(kGeneratedCudaSourcesId);
  KILN_CHECK(sources.has_value());
  ASSIGN_OR_RETURN(const Digest build, BuildOf(nvrtc));
  FieldHasher hasher("kiln.codegen.cuda.v1");
  hasher.Id(*sources).Id(build);
  for (const std::string& option : NvrtcOptions(target)) hasher.Text(option);
  return hasher.Finish();
}

}  // namespace kiln::codegen::cuda
