// Seeded bugs in emitted CUDA C++: each is caught by the shim, or by the comparison with the evaluator. What is caught
// here would be caught in an emitter. Mutants that change nothing (a sum of the same terms, a lane that has the same
// value) are no bugs and are not listed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>

#include "tests/compile-service/codegen/cuda/mutation_cases.h"

namespace kiln::testing {
namespace {

struct Mutant {
  const char* what;
  ShimCase (*make)();
  const char* find;
  const char* replace;
  int occurrence = 0;  // of `find`
};

const Mutant kMutants[] = {
#include "tests/compile-service/codegen/cuda/mutants.inc"
};

// `text` with the mutation; empty where there is nothing to mutate.
std::string Mutated(std::string text, const Mutant& mutant) {
  size_t at = text.find("kiln_kernel(");  // the prelude is mutated by name only
  if (std::string_view(mutant.find).starts_with("KILN_DEVICE") || std::string_view(mutant.find).starts_with("  "))
    at = 0;
  for (int i = 0; at != std::string::npos; ++i, ++at) {
    at = text.find(mutant.find, at);
    if (at == std::string::npos || i == mutant.occurrence) break;
  }
  if (at == std::string::npos) return {};
  return text.replace(at, std::string_view(mutant.find).size(), mutant.replace);
}

TEST(CudaMutants, EveryOneIsCaught) {
  std::mt19937_64 random(3);
  std::map<ShimCase (*)(), std::pair<ShimCase, size_t>> sound;  // each class's case and its kernel as it is
  std::vector<size_t> kernels;
  ShimKernels shim;
  for (const Mutant& mutant : kMutants) {
    auto found = sound.find(mutant.make);
    if (found == sound.end()) {
      ShimCase test = mutant.make();
      auto source = codegen::cuda::EmitCuda(test.spec);
      ASSERT_TRUE(source.has_value()) << ToString(source.error());
      const size_t kernel = shim.Add(*std::move(source));
      found = sound.emplace(mutant.make, std::pair(std::move(test), kernel)).first;
    }
    codegen::cuda::CudaSource source = shim.source(found->second.second);
    source.text = Mutated(std::move(source.text), mutant);
    EXPECT_FALSE(source.text.empty()) << mutant.what << ": there is no \"" << mutant.find << "\" in\n"
                                      << shim.source(found->second.second).text;
    kernels.push_back(shim.Add(std::move(source)));
  }
  if (HasFailure()) return;
  const auto failure = shim.Build();
  ASSERT_FALSE(failure.has_value()) << *failure;
  for (const auto& [make, entry] : sound) {
    const auto wrong = WrongInShim(shim, entry.second, entry.first, random);
    EXPECT_FALSE(wrong.has_value()) << entry.first.name << ", unchanged: " << *wrong;
  }
  for (size_t i = 0; i < std::size(kMutants); ++i) {
    const auto& [test, kernel] = sound.at(kMutants[i].make);
    const auto wrong = WrongInShim(shim, kernels[i], test, random);
    EXPECT_TRUE(wrong.has_value()) << test.name << ": nobody noticed \"" << kMutants[i].what << "\"";
    if (wrong && std::getenv("KILN_DESCRIBE") != nullptr)
      std::cout << test.name << ", " << kMutants[i].what << ": " << *wrong << "\n";
  }
}

}  // namespace
}  // namespace kiln::testing
