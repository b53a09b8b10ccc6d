// Seeded bugs in emitted CUDA C++: each is caught by the shim, or by the comparison with the evaluator. What is caught
// here would be caught in an emitter. Mutants that change nothing (a sum of the same terms, a lane that has the same
// value) are no bugs and are not listed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "tests/compile-service/codegen/cuda/mutation_cases.h"

namespace kiln::testing {
namespace {

using MakeShimCase = ShimCase (*)();

const std::map<std::string, MakeShimCase> kCases = {
    {"FlatChain", FlatChain},
    {"BlockSoftmax", BlockSoftmax},
    {"BlockNormalisation", BlockNormalisation},
    {"WarpNormalisation", WarpNormalisation},
    {"RowBroadcast", RowBroadcast},
    {"ColumnSums", ColumnSums},
    {"Product", Product},
    {"PackedProduct", PackedProduct},
    {"ByteConvolution", ByteConvolution},
    {"Convolution", Convolution},
    {"DepthwiseWindow", DepthwiseWindow},
    {"AverageWindow", AverageWindow},
    {"MaximumWindow", MaximumWindow},
    {"MaskedAttention", MaskedAttention},
    {"Recurrence", Recurrence},
};

struct Mutant {
  std::string made_by, what, find, replace;
  int occurrence = 0;  // of `find`
};

// mutants.tsv; texts that begin with spaces are of the prelude.
std::vector<Mutant> Mutants() {
  std::ifstream file(KILN_SOURCE_DIR "/tests/compile-service/codegen/cuda/mutants.tsv");
  std::vector<Mutant> mutants;
  std::string line;
  std::getline(file, line);  // the head
  while (std::getline(file, line)) {
    std::vector<std::string> fields(1);
    for (char c : line) {
      if (c == '\t') {
        fields.emplace_back();
      } else {
        fields.back() += c;
      }
    }
    EXPECT_EQ(fields.size(), 5u) << line;
    if (fields.size() == 5) mutants.push_back({fields[0], fields[1], fields[3], fields[4], std::stoi(fields[2])});
  }
  return mutants;
}

// `text` with the mutation; empty where there is nothing to mutate.
std::string Mutated(std::string text, const Mutant& mutant) {
  size_t at = mutant.find.starts_with(' ') ? 0 : text.find("kiln_kernel(");
  for (int i = 0;; ++i, ++at) {
    at = text.find(mutant.find, at);
    if (at == std::string::npos) return {};
    if (i == mutant.occurrence) break;
  }
  return text.replace(at, mutant.find.size(), mutant.replace);
}

TEST(CudaMutants, EveryOneIsCaught) {
  std::mt19937_64 random(3);
  const std::vector<Mutant> mutants = Mutants();
  std::map<std::string, std::pair<ShimCase, size_t>> sound;  // the cases, and their kernels as they are
  ShimKernels shim;
  for (const auto& [name, make] : kCases) {
    ShimCase test = make();
    auto source = codegen::cuda::EmitCuda(test.spec);
    ASSERT_TRUE(source.has_value()) << ToString(source.error());
    const size_t kernel = shim.Add(*std::move(source));
    sound.emplace(name, std::pair(std::move(test), kernel));
  }
  std::vector<size_t> kernels;
  for (const Mutant& mutant : mutants) {
    ASSERT_TRUE(sound.contains(mutant.made_by)) << mutant.made_by;
    codegen::cuda::CudaSource source = shim.source(sound.at(mutant.made_by).second);
    std::string text = Mutated(source.text, mutant);
    EXPECT_FALSE(text.empty()) << mutant.made_by << ", " << mutant.what << ": there is no \"" << mutant.find
                               << "\" in\n"
                               << source.text.substr(source.text.find("kiln_kernel("));
    if (!text.empty()) source.text = std::move(text);
    kernels.push_back(shim.Add(std::move(source)));
  }
  const auto failure = shim.Build();
  ASSERT_FALSE(failure.has_value()) << *failure;
  for (const auto& [name, entry] : sound) {
    const auto wrong = WrongInShim(shim, entry.second, entry.first, random);
    EXPECT_FALSE(wrong.has_value()) << name << ", unchanged: " << *wrong;
  }
  std::set<std::string> mutated;
  for (size_t i = 0; i < mutants.size(); ++i) {
    const Mutant& mutant = mutants[i];
    mutated.insert(mutant.made_by);
    const auto wrong = WrongInShim(shim, kernels[i], sound.at(mutant.made_by).first, random);
    EXPECT_TRUE(wrong.has_value()) << mutant.made_by << ": nobody noticed \"" << mutant.what << "\"";
    if (wrong && std::getenv("KILN_DESCRIBE") != nullptr)
      std::cout << mutant.made_by << ", " << mutant.what << ": " << *wrong << "\n";
  }
  EXPECT_EQ(mutated.size(), kCases.size()) << "a class without mutants";
  std::cout << mutants.size() << " mutants\n";
}

}  // namespace
}  // namespace kiln::testing
