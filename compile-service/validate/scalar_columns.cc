#include "compile-service/validate/scalar_columns.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "compile-service/ir/nest_stages.h"
#include "compile-service/validate/scalar_values.h"

namespace kiln {
namespace {

using ir::ScalarNode;
using ir::ScalarOp;
using namespace scalar_values;

// How the columns of a node's operands become its own.
class NodeLoop {
 public:
  NodeLoop(ScalarColumns& columns, const ir::ScalarProgram& program, const ScalarNode& node, void* out, int64_t n)
      : columns_(columns), program_(program), node_(node), out_(out), n_(n) {}

  // Every operand of one type T, the result of type T.
  template <class F>
  void Unary(F f) {
    DispatchCompute(node_.type, [&]<class T>() {
      const T* a = In<T>(node_.a);
      T* to = Out<T>();
      for (int64_t i = 0; i < n_; ++i) to[i] = f(a[i]);
    });
  }
  template <class F>
  void Binary(F f) {
    DispatchCompute(node_.type, [&]<class T>() {
      const T *a = In<T>(node_.a), *b = In<T>(node_.b);
      T* to = Out<T>();
      for (int64_t i = 0; i < n_; ++i) to[i] = f(a[i], b[i]);
    });
  }
  // One-argument functions of floats, computed in double.
  void Function(double (*f)(double)) {
    if (node_.type == DType::kF32) {
      const float* a = In<float>(node_.a);
      float* to = Out<float>();
      for (int64_t i = 0; i < n_; ++i) to[i] = static_cast<float>(f(static_cast<double>(a[i])));
    } else {
      const double* a = In<double>(node_.a);
      double* to = Out<double>();
      for (int64_t i = 0; i < n_; ++i) to[i] = f(a[i]);
    }
  }
  // Operands of one type, a bool result.
  template <class F>
  void Test(F f) {
    DispatchCompute(TypeOf(node_.a), [&]<class T>() {
      const T* a = In<T>(node_.a);
      bool* to = Out<bool>();
      for (int64_t i = 0; i < n_; ++i) to[i] = f(a[i]);
    });
  }
  template <class F>
  void Compare(F f) {
    DispatchCompute(TypeOf(node_.b), [&]<class T>() {
      const T *a = In<T>(node_.a), *b = In<T>(node_.b);
      bool* to = Out<bool>();
      for (int64_t i = 0; i < n_; ++i) to[i] = f(a[i], b[i]);
    });
  }
  void MultiplyAdd() {
    DispatchCompute(node_.type, [&]<class T>() {
      if constexpr (std::is_floating_point_v<T>) {
        const T *a = In<T>(node_.a), *b = In<T>(node_.b), *c = In<T>(node_.c);
        T* to = Out<T>();
        for (int64_t i = 0; i < n_; ++i) to[i] = std::fma(a[i], b[i], c[i]);
      }
    });
  }
  void Select() {
    DispatchCompute(node_.type, [&]<class T>() {
      const bool* a = In<bool>(node_.a);
      const T *b = In<T>(node_.b), *c = In<T>(node_.c);
      T* to = Out<T>();
      for (int64_t i = 0; i < n_; ++i) to[i] = a[i] ? b[i] : c[i];
    });
  }
  void Convert() {
    DispatchCompute(TypeOf(node_.a), [&]<class From>() {
      const From* a = In<From>(node_.a);
      DispatchCompute(node_.type, [&]<class To>() {
        To* to = Out<To>();
        for (int64_t i = 0; i < n_; ++i) to[i] = ConvertTo<To>(a[i]);
      });
    });
  }

 private:
  template <class T>
  const T* In(int32_t node) const {
    return columns_.values<T>(node);
  }
  template <class T>
  T* Out() const {
    return static_cast<T*>(out_);
  }
  DType TypeOf(int32_t node) const { return program_[static_cast<size_t>(node)].type; }

  ScalarColumns& columns_;
  const ir::ScalarProgram& program_;
  const ScalarNode& node_;
  void* out_;
  int64_t n_;
};

}  // namespace

double MinimumOf(double a, double b) {
  return std::isnan(a) ? a : std::isnan(b) ? b : std::min(a, b);
}
double MaximumOf(double a, double b) {
  return std::isnan(a) ? a : std::isnan(b) ? b : std::max(a, b);
}

void LoadFloats(DType storage, const void* pointer, int64_t offset, int64_t stride, int64_t n, float* out) {
  DispatchDType(storage, [&]<class T>() {
    const T* in = static_cast<const T*>(pointer) + offset;
    for (int64_t i = 0; i < n; ++i) out[i] = ConvertTo<float>(in[i * stride]);
  });
}

ScalarColumns::ScalarColumns(const ir::ScalarProgram& program, const std::vector<ir::Access>& accesses, size_t results,
                             std::span<void* const> pointers, std::span<const int64_t> dims)
    : program_(program), accesses_(accesses), pointers_(pointers), dims_(dims) {
  for (const ir::Access& access : accesses) {
    std::vector<int64_t>& strides = strides_.emplace_back();
    for (const ir::SpecInt& stride : access.strides)
      strides.push_back(stride.is_argument ? dims[static_cast<size_t>(stride.value)] : stride.value);
  }
  memory_.resize((program.size() + results) * static_cast<size_t>(kColumnLength));
  for (size_t i = 0; i < program.size() + results; ++i)
    columns_.push_back(memory_.data() + i * static_cast<size_t>(kColumnLength));
  for (size_t i = 0; i < program.size(); ++i) {
    const ScalarNode& node = program[i];
    if (node.op == ScalarOp::kStageResult || node.op == ScalarOp::kAccumulator)
      columns_[i] = columns_[program.size() + static_cast<size_t>(node.index)];
    else if (node.op == ScalarOp::kConstant || node.op == ScalarOp::kArgument)
      FillConstant(node, columns_[i]);
  }
}

void ScalarColumns::FillConstant(const ScalarNode& node, void* out) const {
  const int64_t integer = node.op == ScalarOp::kArgument ? dims_[static_cast<size_t>(node.index)] : node.integer;
  DispatchCompute(node.type, [&]<class T>() {
    const T value = std::is_floating_point_v<T> ? static_cast<T>(node.number) : static_cast<T>(integer);
    std::fill_n(static_cast<T*>(out), kColumnLength, value);
  });
}

std::vector<int32_t> ScalarColumns::OrderFor(std::span<const int32_t> roots) const {
  const std::vector<bool> needed = ir::ReachableNodes(program_, roots);
  std::vector<int32_t> order;
  for (size_t i = 0; i < program_.size(); ++i) {
    const ScalarOp op = program_[i].op;
    const bool given = op == ScalarOp::kConstant || op == ScalarOp::kArgument || op == ScalarOp::kStageResult ||
                       op == ScalarOp::kAccumulator;
    if (needed[i] && !given) order.push_back(static_cast<int32_t>(i));
  }
  return order;
}

int64_t ScalarColumns::Offset(size_t access, std::span<const int64_t> coordinates) const {
  int64_t offset = 0;
  const std::vector<int64_t>& strides = strides_[access];
  for (size_t i = 0; i < strides.size(); ++i) offset += coordinates[i] * strides[i];
  return offset;
}

void ScalarColumns::Load(const ScalarNode& node, void* out, std::span<const int64_t> coordinates, int64_t n) const {
  const auto index = static_cast<size_t>(node.index);
  const ir::Access& access = accesses_[index];
  const int64_t stride = strides_[index].empty() ? 0 : strides_[index].back();
  const void* pointer = pointers_[static_cast<size_t>(access.pointer)];
  const int64_t offset = Offset(index, coordinates);
  DispatchDType(access.storage, [&]<class S>() {
    const S* in = static_cast<const S*>(pointer) + offset;
    DispatchCompute(node.type, [&]<class T>() {
      T* to = static_cast<T*>(out);
      if (stride == 1) {
        for (int64_t i = 0; i < n; ++i) to[i] = ConvertTo<T>(in[i]);
      } else if (stride == 0) {
        std::fill_n(to, n, ConvertTo<T>(in[0]));
      } else {
        for (int64_t i = 0; i < n; ++i) to[i] = ConvertTo<T>(in[i * stride]);
      }
    });
  });
}

void ScalarColumns::LoadAt(const ScalarNode& node, void* out, std::span<const int64_t> coordinates, int64_t n) {
  const ir::Access& access = accesses_[static_cast<size_t>(node.index)];
  const void* pointer = pointers_[static_cast<size_t>(access.pointer)];
  const std::array<int64_t, kColumnLength> places = PlacesAt(node, coordinates, n);
  DispatchDType(access.storage, [&]<class S>() {
    DispatchCompute(node.type, [&]<class T>() {
      T* to = static_cast<T*>(out);
      for (int64_t i = 0; i < n; ++i)
        to[i] = ConvertTo<T>(static_cast<const S*>(pointer)[places[static_cast<size_t>(i)]]);
    });
  });
}

// Elements behind the pointer that a LoadAt reads.
std::array<int64_t, kColumnLength> ScalarColumns::PlacesAt(const ScalarNode& node, std::span<const int64_t> coordinates,
                                                           int64_t n) {
  const auto index = static_cast<size_t>(node.index);
  const int64_t inner = strides_[index].empty() ? 0 : strides_[index].back();
  const int64_t offset = Offset(index, coordinates);
  const int64_t *position = values<int64_t>(node.a), *extent = values<int64_t>(node.b),
                *stride = values<int64_t>(node.c);
  std::array<int64_t, kColumnLength> places;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = std::max<int64_t>(std::min(position[i], extent[i] - 1), 0);
    places[static_cast<size_t>(i)] = offset + i * inner + at * stride[i];
  }
  return places;
}

void ScalarColumns::StoreAt(int32_t place, int32_t value, std::span<const int64_t> coordinates, int64_t n) {
  const ScalarNode& node = program_[static_cast<size_t>(place)];
  const ir::Access& access = accesses_[static_cast<size_t>(node.index)];
  void* pointer = pointers_[static_cast<size_t>(access.pointer)];
  const std::array<int64_t, kColumnLength> places = PlacesAt(node, coordinates, n);
  DispatchCompute(program_[static_cast<size_t>(value)].type, [&]<class T>() {
    const T* from = Leant<T>(value, access.storage, n);
    DispatchDType(access.storage, [&]<class S>() {
      for (int64_t i = 0; i < n; ++i) static_cast<S*>(pointer)[places[static_cast<size_t>(i)]] = ConvertTo<S>(from[i]);
    });
  });
}

void ScalarColumns::Evaluate(std::span<const int32_t> order, std::span<const int64_t> coordinates, int64_t n) {
  for (int32_t at : order) {
    const ScalarNode& node = program_[static_cast<size_t>(at)];
    void* out = columns_[static_cast<size_t>(at)];
    if (node.op == ScalarOp::kLoad) {
      Load(node, out, coordinates, n);
    } else if (node.op == ScalarOp::kLoadAt) {
      LoadAt(node, out, coordinates, n);
    } else if (node.op == ScalarOp::kCoordinate) {
      const auto dim = static_cast<size_t>(node.index);
      const int64_t step = dim + 1 == coordinates.size() ? 1 : 0;
      for (int64_t i = 0; i < n; ++i) static_cast<int64_t*>(out)[i] = coordinates[dim] + i * step;
    } else if (leaning_ != Leaning::kNone && decisions_.leans[static_cast<size_t>(at)]) {
      ComputeLeant(node, out, n);
    } else {
      Compute(node, out, n);
    }
  }
}

void ScalarColumns::Lean(Leaning leaning, Decisions decisions) {
  leaning_ = leaning;
  decisions_ = std::move(decisions);
  leant_.resize(static_cast<size_t>(kColumnLength));
  mixed_ = static_cast<uint64_t>(leaning);
}

bool ScalarColumns::LeansUp() {
  if (leaning_ == Leaning::kUp || leaning_ == Leaning::kDown) return leaning_ == Leaning::kUp;
  mixed_ = mixed_ * 6364136223846793005u + 1442695040888963407u;
  return mixed_ >> 63 != 0;
}

// By the larger magnitude of the two that are compared; infinities stay.
template <class T>
void ScalarColumns::LeanValues(const T* from, const T* other, int64_t n, T* to) {
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<double>(from[i]);
    const double lean = LeanOf(std::max(std::fabs(value), std::fabs(static_cast<double>(other[i]))));
    to[i] = std::isfinite(lean) ? static_cast<T>(LeansUp() ? value + lean : value - lean) : from[i];
  }
}

// What is stored of a node: a float that becomes an integer is decided on, too.
template <class T>
const T* ScalarColumns::Leant(int32_t node, DType storage, int64_t n) {
  const T* from = values<T>(node);
  if constexpr (std::is_floating_point_v<T>) {
    if (leaning_ != Leaning::kNone && decisions_.inexact[static_cast<size_t>(node)] && !IsFloat(storage)) {
      LeanValues(from, from, n, reinterpret_cast<T*>(leant_.data()));
      return reinterpret_cast<const T*>(leant_.data());
    }
  }
  return from;
}

void ScalarColumns::ComputeLeant(const ScalarNode& node, void* out, int64_t n) {
  const auto a = static_cast<size_t>(node.a);
  const bool zero = node.op == ScalarOp::kConvert && node.type == DType::kBool;
  DispatchCompute(program_[a].type, [&]<class T>() {
    if constexpr (std::is_floating_point_v<T>) {
      const T* values_a = values<T>(node.a);
      const T* other = node.b >= 0 ? values<T>(node.b) : values_a;
      if (node.op == ScalarOp::kEqual || zero) {  // equal when near, or different when near
        Compute(node, out, n);
        for (int64_t i = 0; i < n; ++i) {
          const double first = static_cast<double>(values_a[i]), second = zero ? 0 : static_cast<double>(other[i]);
          if (std::fabs(first - second) <= LeanOf(std::max(std::fabs(first), std::fabs(second))))
            static_cast<bool*>(out)[i] = LeansUp();
        }
        return;
      }
      LeanValues(values_a, other, n, reinterpret_cast<T*>(leant_.data()));
      uint64_t* const exact = std::exchange(columns_[a], leant_.data());
      Compute(node, out, n);
      columns_[a] = exact;
    }
  });
}

void ScalarColumns::Compute(const ScalarNode& node, void* out, int64_t n) {
  NodeLoop loop(*this, program_, node, out, n);
  const auto plus = [](auto x, auto y) { return x + y; };
  const auto minus = [](auto x, auto y) { return x - y; };
  const auto times = [](auto x, auto y) { return x * y; };
  switch (node.op) {
    case ScalarOp::kLoad:
    case ScalarOp::kConstant:
    case ScalarOp::kStageResult:
    case ScalarOp::kAccumulator:
    case ScalarOp::kCoordinate:
    case ScalarOp::kArgument:
    case ScalarOp::kLoadAt:
      return;
    case ScalarOp::kAdd:
      return loop.Binary([&]<class T>(T a, T b) { return Wrapping(a, b, plus); });
    case ScalarOp::kSub:
      return loop.Binary([&]<class T>(T a, T b) { return Wrapping(a, b, minus); });
    case ScalarOp::kMul:
      return loop.Binary([&]<class T>(T a, T b) { return Wrapping(a, b, times); });
    case ScalarOp::kDiv:
      return loop.Binary([]<class T>(T a, T b) { return Quotient(a, b); });
    case ScalarOp::kMin:
      return loop.Binary([]<class T>(T a, T b) { return Least(a, b); });
    case ScalarOp::kMax:
      return loop.Binary([]<class T>(T a, T b) { return Largest(a, b); });
    case ScalarOp::kPow:
      return loop.Binary(
          []<class T>(T a, T b) { return static_cast<T>(std::pow(static_cast<double>(a), static_cast<double>(b))); });
    case ScalarOp::kFma:
      return loop.MultiplyAdd();
    case ScalarOp::kNeg:
      return loop.Unary([&]<class T>(T a) {
        if constexpr (std::is_floating_point_v<T>) return -a;
        return Wrapping(T{0}, a, minus);
      });
    case ScalarOp::kAbs:
      return loop.Unary([&]<class T>(T a) {
        if constexpr (std::is_floating_point_v<T>) return std::fabs(a);
        return a < T{0} ? Wrapping(T{0}, a, minus) : a;
      });
    case ScalarOp::kSqrt:
      return loop.Function([](double x) { return std::sqrt(x); });
    case ScalarOp::kExp:
      return loop.Function([](double x) { return std::exp(x); });
    case ScalarOp::kLog:
      return loop.Function([](double x) { return std::log(x); });
    case ScalarOp::kTanh:
      return loop.Function([](double x) { return std::tanh(x); });
    case ScalarOp::kErf:
      return loop.Function([](double x) { return std::erf(x); });
    case ScalarOp::kSigmoid:
      return loop.Function(Sigmoid);
    case ScalarOp::kSin:
      return loop.Function([](double x) { return std::sin(x); });
    case ScalarOp::kCos:
      return loop.Function([](double x) { return std::cos(x); });
    case ScalarOp::kFloor:
      return loop.Function([](double x) { return std::floor(x); });
    case ScalarOp::kCeil:
      return loop.Function([](double x) { return std::ceil(x); });
    case ScalarOp::kRound:
      return loop.Function([](double x) { return std::nearbyint(x); });
    case ScalarOp::kRoundF16:
      return loop.Function(
          [](double x) { return static_cast<double>(static_cast<float>(Float16(static_cast<float>(x)))); });
    case ScalarOp::kRoundBF16:
      return loop.Function(
          [](double x) { return static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(x)))); });
    case ScalarOp::kLess:
      return loop.Compare([](auto a, auto b) { return a < b; });
    case ScalarOp::kLessEqual:
      return loop.Compare([](auto a, auto b) { return a <= b; });
    case ScalarOp::kEqual:
      return loop.Compare([](auto a, auto b) { return a == b; });
    case ScalarOp::kAnd:
      return loop.Compare([](auto a, auto b) { return a != 0 && b != 0; });
    case ScalarOp::kOr:
      return loop.Compare([](auto a, auto b) { return a != 0 || b != 0; });
    case ScalarOp::kNot:
      return loop.Unary([]<class T>(T a) { return static_cast<T>(a == T{0}); });
    case ScalarOp::kIsNaN:
      return loop.Test([](auto a) { return a != a; });
    case ScalarOp::kSelect:
      return loop.Select();
    case ScalarOp::kConvert:
      return loop.Convert();
  }
}

void ScalarColumns::StoreAll(std::span<const ir::Store> stores, std::span<const int64_t> coordinates, int64_t n) {
  for (const ir::Store& store : stores) {
    const auto index = static_cast<size_t>(store.access);
    const ir::Access& access = accesses_[index];
    const int64_t stride = strides_[index].empty() ? 0 : strides_[index].back();
    void* pointer = pointers_[static_cast<size_t>(access.pointer)];
    const int64_t offset = Offset(index, coordinates);
    DispatchCompute(program_[static_cast<size_t>(store.node)].type, [&]<class T>() {
      const T* from = Leant<T>(store.node, access.storage, n);
      DispatchDType(access.storage, [&]<class S>() {
        S* to = static_cast<S*>(pointer) + offset;
        for (int64_t i = 0; i < n; ++i) to[i * stride] = ConvertTo<S>(from[i]);
      });
    });
  }
}

}  // namespace kiln
