#include "compile-service/codegen/cuda/nvrtc_build.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>

#include "common/base/check.h"
#include "generated_cuda_sources_id.h"

namespace kiln::codegen::cuda {
namespace {

constexpr char kLibrary[] = "libnvrtc.so.13";
constexpr char kToolkit[] = "/usr/local/cuda/lib64/libnvrtc.so.13";

bool IsThere(const std::string& path) {
  return access(path.c_str(), R_OK) == 0;
}

// Where the loader looks for it: LD_LIBRARY_PATH, then its cache, in which every path is a string that ends with 0. The
// library itself is not opened for that: it takes seconds where it was not read before.
std::vector<std::string> LoaderPaths() {
  std::vector<std::string> paths;
  if (const char* directories = std::getenv("LD_LIBRARY_PATH"); directories != nullptr) {
    std::istringstream list(directories);
    for (std::string directory; std::getline(list, directory, ':');)
      if (!directory.empty()) paths.push_back(directory + "/" + kLibrary);
  }
  std::ifstream file("/etc/ld.so.cache", std::ios::binary);
  const std::string cache{std::istreambuf_iterator<char>(file), {}};
  const std::string ending = std::string("/") + kLibrary + '\0';
  for (size_t at = cache.find(ending); at != std::string::npos; at = cache.find(ending, at + 1)) {
    const size_t begin = cache.rfind('\0', at) + 1;
    paths.push_back(cache.substr(begin, at + ending.size() - 1 - begin));
  }
  return paths;
}

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
    if (IsThere(given)) return std::filesystem::absolute(given).string();
    return Fail(ErrorCode::kNotFound, "there is no NVRTC at \"" + given + "\"");
  }
  for (const std::string& path : LoaderPaths())
    if (IsThere(path)) return path;
  if (IsThere(kToolkit)) return std::string(kToolkit);
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
