#include "tests/fuzz/edit_program.h"

#include <array>
#include <cstring>
#include <limits>

namespace kiln::fuzz {
namespace {

// Numbers at which code goes wrong.
constexpr std::array<int64_t, 20> kNumbers = {0,
                                              1,
                                              -1,
                                              2,
                                              -2,
                                              3,
                                              4,
                                              7,
                                              8,
                                              -8,
                                              16,
                                              64,
                                              1000,
                                              65536,
                                              INT32_MAX,
                                              INT32_MIN,
                                              int64_t{1} << 32,
                                              int64_t{1} << 40,
                                              INT64_MAX,
                                              INT64_MIN};

int64_t Number(Choices& choices) {
  return kNumbers[choices.Below(kNumbers.size())];
}

class Editor {
 public:
  Editor(Program& program, Choices& choices)
      : program_(program), function_(program.functions.front()), choices_(choices) {}

  void Run() {
    switch (choices_.Byte() % 12) {
      case 0:
        return Operand();
      case 1:
        return OtherOp();
      case 2:
      case 3:
        return AttributeNumber();
      case 4:
        return Description();
      case 5:
        return SwapNodes();
      case 6:
        return Arity();
      case 7:
      case 8:
        return ConstantElement();
      case 9:
        return RegionValue();
      case 10:
        return CopyAttributes();
      case 11:
        return DimOfDescription();
    }
  }

 private:
  template <class T>
  T* Any(std::vector<T>& list) {
    return list.empty() ? nullptr : &list[choices_.Below(list.size())];
  }
  Region& AnyRegion() { return *Any(function_.regions); }
  ValueId AnyValue() {
    const size_t chosen = choices_.Below(function_.values.size() + 1);
    return chosen == function_.values.size() ? kNoValue : static_cast<ValueId>(chosen);
  }

  void Operand() {
    if (Node* node = Any(AnyRegion().nodes))
      if (ValueId* input = Any(node->inputs)) *input = AnyValue();
  }

  void OtherOp() {
    if (Node* node = Any(AnyRegion().nodes))
      node->op = static_cast<TensorOp>(choices_.Below(static_cast<size_t>(TensorOpCount())));
  }

  void AttributeNumber() {
    Node* node = Any(AnyRegion().nodes);
    if (node == nullptr) return;
    std::vector<Attribute> attributes = node->attributes.all();
    Attribute* attribute = Any(attributes);
    if (attribute == nullptr) return;
    if (auto* number = std::get_if<int64_t>(&attribute->value)) *number = Number(choices_);
    if (auto* real = std::get_if<double>(&attribute->value)) *real = static_cast<double>(Number(choices_));
    if (auto* list = std::get_if<std::vector<int64_t>>(&attribute->value)) {
      if (choices_.Byte() % 4 == 0) list->push_back(1);
      if (int64_t* element = Any(*list)) *element = Number(choices_);
    }
    if (auto* dims = std::get_if<std::vector<Dim>>(&attribute->value))
      if (Dim* dim = Any(*dims)) *dim = AnyDim();
    if (auto* constant = std::get_if<ConstantId>(&attribute->value))
      *constant = static_cast<ConstantId>(choices_.Below(program_.constants.size()));
    node->attributes.Set(attribute->name, attribute->value);
  }

  Dim AnyDim() {
    const size_t symbols = program_.symbols.symbol_count();
    if (symbols == 0 || choices_.Byte() % 2 == 0) return Dim::Const(Number(choices_));
    return program_.symbols.SymbolDim(static_cast<SymbolId>(choices_.Below(symbols)));
  }

  void Description() {
    TensorDesc& desc = Any(function_.values)->desc;
    const TensorDesc& other = Any(function_.values)->desc;
    if (choices_.Byte() % 2 == 0) {
      desc.dtype = other.dtype;
    } else if (choices_.Byte() % 4 == 0) {
      desc.dims.reset();
    } else {
      desc.dims = other.dims;
    }
  }

  void DimOfDescription() {
    TensorDesc& desc = Any(function_.values)->desc;
    if (!desc.dims) return;
    if (choices_.Byte() % 8 == 0) desc.dims->push_back(AnyDim());
    if (!desc.dims->empty()) (*desc.dims)[choices_.Below(desc.dims->size())] = AnyDim();
  }

  void SwapNodes() {
    std::vector<Node>& nodes = AnyRegion().nodes;
    if (nodes.size() > 1) std::swap(*Any(nodes), *Any(nodes));
  }

  void Arity() {
    Node* node = Any(AnyRegion().nodes);
    if (node == nullptr) return;
    if (choices_.Byte() % 2 == 0) {
      node->inputs.push_back(AnyValue());
    } else if (!node->inputs.empty()) {
      node->inputs.pop_back();
    }
  }

  void ConstantElement() {
    Constant* constant = Any(program_.constants);
    if (constant == nullptr || constant->tensor.ref.elements() == 0) return;
    const Tensor& old = constant->tensor;
    Tensor copy = Tensor::Allocate(old.dtype(), old.dims());
    std::memcpy(copy.ref.data, old.ref.data, static_cast<size_t>(old.ref.bytes()));
    const size_t at = choices_.Below(static_cast<size_t>(old.ref.elements()));
    const int64_t number = Number(choices_);
    DispatchDType(old.dtype(), [&]<class T>() {
      if constexpr (std::is_same_v<T, bool>) {
        copy.ref.as<T>()[at] = number % 2 != 0;
      } else if constexpr (std::is_integral_v<T>) {
        copy.ref.as<T>()[at] = static_cast<T>(number);
      } else {
        copy.ref.as<T>()[at] = static_cast<T>(static_cast<float>(number));
      }
    });
    constant->tensor = copy;
  }

  void RegionValue() {
    Region& region = AnyRegion();
    if (ValueId* output = Any(region.outputs)) *output = AnyValue();
  }

  void CopyAttributes() {
    Node* to = Any(AnyRegion().nodes);
    Node* from = Any(AnyRegion().nodes);
    if (to != nullptr && from != nullptr) to->attributes = from->attributes;
  }

  Program& program_;
  Function& function_;
  Choices& choices_;
};

}  // namespace

uint8_t Choices::Byte() {
  if (bytes_.empty()) return 0;
  const uint8_t byte = bytes_.front();
  bytes_ = bytes_.subspan(1);
  return byte;
}

uint64_t Choices::Word() {
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word = word << 8 | Byte();
  return word;
}

void EditProgram(Program& program, Choices& choices) {
  Editor(program, choices).Run();
}

}  // namespace kiln::fuzz
