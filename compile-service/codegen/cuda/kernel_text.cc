#include "compile-service/codegen/cuda/kernel_text.h"

#include <algorithm>

#include "compile-service/codegen/cuda/prelude.h"
#include "compile-service/ir/nest_stages.h"

namespace kiln::codegen::cuda {

using ir::Access;
using ir::ScalarNode;
using ir::ScalarOp;
using ir::SpecInt;

KernelText::KernelText(const ir::KernelSpec& spec) {
  out_.Put(kPrelude);
  out_.Put(fmt::format("struct Args {{ void* pointers[{}]; long long dims[{}]; }};", std::max(spec.pointers, 1),
                       std::max(spec.dims, 1)));
}

std::string KernelText::Int(SpecInt value) {
  return value.is_argument ? fmt::format("args.dims[{}]", value.value) : fmt::format("{}ll", value.value);
}

void KernelText::Pointer(const std::string& name, int32_t pointer, DType storage) {
  out_.Line("{0}* const {1} = static_cast<{0}*>(args.pointers[{2}]);", StorageName(storage), name, pointer);
}

void KernelText::Pointers(const std::vector<Access>& accesses) {
  for (size_t i = 0; i < accesses.size(); ++i)
    Pointer("a" + std::to_string(i), accesses[i].pointer, accesses[i].storage);
}

std::string KernelText::Offset(std::span<const SpecInt> strides, std::span<const std::string> coordinates) {
  std::string text;
  for (size_t i = 0; i < strides.size(); ++i) {
    if (coordinates[i].empty() || strides[i] == SpecInt::Const(0)) continue;
    if (!text.empty()) text += " + ";
    text += strides[i] == SpecInt::Const(1) ? coordinates[i] : fmt::format("{} * {}", coordinates[i], Int(strides[i]));
  }
  return text.empty() ? "0" : text;
}

std::string KernelText::Offset(const Access& access, std::span<const std::string> coordinates) {
  return Offset(access.strides, coordinates);
}

std::vector<std::string> KernelText::Decode(const std::string& prefix, const std::string& index,
                                            std::span<const SpecInt> extents) {
  std::vector<std::string> names(extents.size());
  size_t first = 0;  // takes what is left
  while (first < extents.size() && extents[first] == SpecInt::Const(1)) ++first;
  for (size_t dim = extents.size(); dim-- > first;) {
    if (extents[dim] == SpecInt::Const(1)) continue;
    names[dim] = prefix + std::to_string(dim);
    if (dim == first) {
      out_.Line("const long long {} = {};", names[dim], index);
      break;
    }
    out_.Line("const long long {} = {} % {};", names[dim], index, Int(extents[dim]));
    out_.Line("{} /= {};", index, Int(extents[dim]));
  }
  return names;
}

void KernelText::Stores(const ir::ScalarProgram& program, std::span<const ir::Store> stores,
                        const std::vector<Access>& accesses, std::span<const std::string> coordinates) {
  for (const ir::Store& store : stores) {
    const Access& access = accesses[static_cast<size_t>(store.access)];
    const std::string value = "v" + std::to_string(store.node);
    out_.Line("a{}[{}] = {};", store.access, Offset(access, coordinates),
              Stored(value, program[static_cast<size_t>(store.node)].type, access.storage));
  }
}

std::string KernelText::Load(const std::vector<Access>& accesses, const ScalarNode& node,
                             std::span<const std::string> coordinates) {
  const Access& access = accesses[static_cast<size_t>(node.index)];
  return Loaded(fmt::format("a{}[{}]", node.index, Offset(access, coordinates)), access.storage, node.type);
}

ScalarCode::Leaf KernelText::EpilogueLeaf(const std::vector<Access>& accesses, std::vector<std::string> coordinates,
                                          std::function<std::string(int32_t index)> sum) {
  return [&accesses, coordinates = std::move(coordinates), sum = std::move(sum)](const ScalarNode& node) {
    const auto index = static_cast<size_t>(node.index);
    if (node.op == ScalarOp::kLoad) return Load(accesses, node, coordinates);
    if (node.op == ScalarOp::kAccumulator) return sum(node.index);
    if (node.op == ScalarOp::kArgument) return fmt::format("args.dims[{}]", node.index);
    return coordinates[index].empty() ? std::string("0ll") : coordinates[index];  // Coordinate
  };
}

void KernelText::Epilogue(const ir::ScalarProgram& program, std::span<const ir::Store> stores,
                          const std::vector<Access>& accesses, const std::vector<std::string>& coordinates,
                          std::function<std::string(int32_t index)> sum) {
  ScalarCode code(out_, program, EpilogueLeaf(accesses, coordinates, std::move(sum)));
  std::vector<int32_t> roots;
  for (const ir::Store& store : stores) roots.push_back(store.node);
  code.Write(ir::ReachableNodes(program, roots));
  Stores(program, stores, accesses, coordinates);
}

}  // namespace kiln::codegen::cuda
