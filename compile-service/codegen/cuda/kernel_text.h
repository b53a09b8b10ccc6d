// KernelText: the function around what the emitters write: prelude, arguments, pointers of accesses, sizes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compile-service/codegen/cuda/cuda_source.h"
#include "compile-service/codegen/cuda/scalar_code.h"

namespace kiln::codegen::cuda {

class KernelText {
 public:
  explicit KernelText(const ir::KernelSpec& spec);

  SourceWriter& out() { return out_; }
  // Writes the function with `body` inside. Once. That one block at a time is enough keeps the assembler from spilling
  // registers so that more blocks fit.
  template <class Body>
  CudaSource Function(uint32_t threads, uint32_t items_per_block, Body&& body) {
    out_.Block(fmt::format("extern \"C\" __global__ void __launch_bounds__({}, 1) kiln_kernel(const Args args, "
                           "const long long begin, const long long end)",
                           threads),
               body);
    return {out_.Take(), threads, items_per_block};
  }

  // A number: a literal or args.dims[i].
  static std::string Int(ir::SpecInt value);
  // Declares `name`, the memory of an access, in the function.
  void Pointer(const std::string& name, int32_t pointer, DType storage);
  // a0, a1, …: the memory of `accesses`.
  void Pointers(const std::vector<ir::Access>& accesses);
  // Elements from an access's pointer at `coordinates`, of which empty ones are 0.
  static std::string Offset(const ir::Access& access, std::span<const std::string> coordinates);
  static std::string Offset(std::span<const ir::SpecInt> strides, std::span<const std::string> coordinates);
  // Constants `prefix`0, `prefix`1, … for the coordinates of `index` in row-major `extents`; a coordinate of an extent
  // of 1 is not written, and empty in the result. `index` is a variable of the text that is used up.
  std::vector<std::string> Decode(const std::string& prefix, const std::string& index,
                                  std::span<const ir::SpecInt> extents);
  // Stores of values that are written; `offset_of` gives the text of an element's offset.
  void Stores(const ir::ScalarProgram& program, std::span<const ir::Store> stores,
              const std::vector<ir::Access>& accesses, std::span<const std::string> coordinates);
  // Element of access `index` of `accesses` at `coordinates`, as a compute type.
  static std::string Load(const std::vector<ir::Access>& accesses, const ir::ScalarNode& node,
                          std::span<const std::string> coordinates);
  // The leaves of an epilogue: `sum` is what its accumulator `index` is called.
  ScalarCode::Leaf EpilogueLeaf(const std::vector<ir::Access>& accesses, std::vector<std::string> coordinates,
                                std::function<std::string(int32_t index)> sum);
  // Evaluates and stores an epilogue at one point.
  void Epilogue(const ir::ScalarProgram& program, std::span<const ir::Store> stores,
                const std::vector<ir::Access>& accesses, const std::vector<std::string>& coordinates,
                std::function<std::string(int32_t index)> sum);

 private:
  SourceWriter out_;
};

}  // namespace kiln::codegen::cuda
