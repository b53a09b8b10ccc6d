#include "compile-service/validate/nest_columns.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <vector>

#include "compile-service/ir/nest_stages.h"
#include "compile-service/validate/scalar_columns.h"

namespace kiln {
namespace {

using ir::Combine;
using ir::SpecInt;
using ir::Stage;

// Totals of a reduction: floats in double until they are finished, integers wrapping.
template <class T>
using Total = std::conditional_t<std::is_floating_point_v<T>, double, T>;

template <class T>
Total<T> IdentityOf(Combine combine) {
  using Limits = std::numeric_limits<T>;
  switch (combine) {
    case Combine::kSum:
      return 0;
    case Combine::kProduct:
      return 1;
    case Combine::kMax:
      return std::is_floating_point_v<T> ? -Limits::infinity() : Limits::min();
    case Combine::kMin:
      return std::is_floating_point_v<T> ? Limits::infinity() : Limits::max();
  }
  return 0;
}

template <class T>
Total<T> CombinedWith(Combine combine, Total<T> a, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    const auto b = static_cast<double>(value);
    switch (combine) {
      case Combine::kSum:
        return a + b;
      case Combine::kProduct:
        return a * b;
      case Combine::kMax:
        return MaximumOf(a, b);
      case Combine::kMin:
        return MinimumOf(a, b);
    }
  } else {
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(value);
    switch (combine) {
      case Combine::kSum:
        return static_cast<T>(x + y);
      case Combine::kProduct:
        return static_cast<T>(x * y);
      case Combine::kMax:
        return std::max(a, value);
      case Combine::kMin:
        return std::min(a, value);
    }
  }
  return a;
}

// Calls `f.template operator()<T>()` with the type of a reduction.
template <class F>
void DispatchReduced(DType type, F&& f) {
  if (type == DType::kF32) return f.template operator()<float>();
  if (type == DType::kF64) return f.template operator()<double>();
  if (type == DType::kI32) return f.template operator()<int32_t>();
  return f.template operator()<int64_t>();
}

// Results of a nest are inexact when they are sums or products of floats, or chosen among inexact values.
Decisions DecisionsOf(const ir::LoopNestSpec& nest) {
  std::vector<ir::Store> stores;
  for (const Stage& stage : nest.stages) stores.insert(stores.end(), stage.stores.begin(), stage.stores.end());
  return FindDecisions(nest.body, Loads(nest.accesses, stores), [&](int32_t index, const std::vector<bool>& inexact) {
    const Stage& stage = nest.stages[static_cast<size_t>(index)];
    const bool chosen = stage.combine == Combine::kMax || stage.combine == Combine::kMin;
    return IsFloat(nest.body[static_cast<size_t>(stage.node)].type) &&
           (!chosen || inexact[static_cast<size_t>(stage.node)]);
  });
}

class NestEvaluator {
 public:
  NestEvaluator(const ir::LoopNestSpec& nest, const SpecCall& call)
      : nest_(nest),
        columns_(nest.body, nest.accesses, nest.stages.size(), call.pointers, call.dims),
        inner_(call.Value(nest.inner)),
        first_reduce_(nest.outer.size()),
        coordinates_(nest.outer.size() + nest.reduce.size() + 1, 0) {
    for (const SpecInt& extent : nest.outer) outer_.push_back(call.Value(extent));
    for (const SpecInt& extent : nest.reduce) reduce_.push_back(call.Value(extent));
    for (const Stage& stage : nest.stages) orders_.push_back(columns_.OrderFor(ir::RootsOf(nest, stage)));
    if (call.leaning != Leaning::kNone) columns_.Lean(call.leaning, DecisionsOf(nest));
  }

  void Run(int64_t begin, int64_t end) {
    if (nest_.outer.empty() && nest_.reduce.empty() && !nest_.reduce_inner) return RunBlocks(begin, end);
    for (int64_t point = begin; point < end; ++point) {
      int64_t rest = point;
      for (size_t dim = outer_.size(); dim-- > 0;) {
        coordinates_[dim] = rest % outer_[dim];
        rest /= outer_[dim];
      }
      if (nest_.reduce_inner) {
        for (size_t stage = 0; stage < nest_.stages.size(); ++stage) RunRowStage(stage);
      } else {
        RunBlocks(0, inner_);
      }
    }
  }

 private:
  // Every stage for inner positions [begin, end), which do not depend on each other.
  void RunBlocks(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kColumnLength) {
      const int64_t n = std::min(kColumnLength, end - i);
      coordinates_.back() = i;
      for (size_t at = 0; at < nest_.stages.size(); ++at) {
        const Stage& stage = nest_.stages[at];
        if (stage.kind == Stage::Kind::kReduce) {
          ReduceBlock(at, n);
        } else if (stage.kind == Stage::Kind::kScatter) {
          ForReduce([&] { Scatter(at, n); });
        } else if (stage.kind == Stage::Kind::kScan) {
          ScanBlock(at, n);
        } else if (stage.domain == Stage::Domain::kFull) {
          ForReduce([&] { Store(at, n); });
        } else {
          Store(at, n);
        }
      }
    }
  }

  void ReduceBlock(size_t at, int64_t n) {
    const Stage& stage = nest_.stages[at];
    DispatchReduced(nest_.body[static_cast<size_t>(stage.node)].type, [&]<class T>() {
      std::array<Total<T>, kColumnLength> totals;
      totals.fill(IdentityOf<T>(stage.combine));
      const T* values = columns_.values<T>(stage.node);
      ForReduce([&] {
        columns_.Evaluate(orders_[at], coordinates_, n);
        for (size_t i = 0; i < static_cast<size_t>(n); ++i)
          totals[i] = CombinedWith<T>(stage.combine, totals[i], values[i]);
      });
      T* out = columns_.result<T>(at);
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) out[i] = Finished<T>(stage.combine, totals[i]);
    });
  }

  template <class T>
  T Finished(Combine combine, Total<T> total) {
    if constexpr (std::is_floating_point_v<T>) {
      if (combine == Combine::kSum) total = columns_.LeantSum(total);
    }
    return static_cast<T>(total);
  }

  void Scatter(size_t at, int64_t n) {
    const Stage& stage = nest_.stages[at];
    columns_.Evaluate(orders_[at], coordinates_, n);
    columns_.StoreAt(stage.node, stage.stores.front().node, coordinates_, n);
  }

  void ScanBlock(size_t at, int64_t n) {
    const Stage& stage = nest_.stages[at];
    DispatchReduced(nest_.body[static_cast<size_t>(stage.node)].type, [&]<class T>() {
      T* running = columns_.result<T>(at);
      std::fill_n(running, n, static_cast<T>(IdentityOf<T>(stage.combine)));
      ForReduce([&] {
        Store(at, n);
        std::copy_n(columns_.values<T>(stage.node), n, running);
      });
    });
  }

  // A stage of nests whose inner dim is reduced: one result per outer point.
  void RunRowStage(size_t at) {
    const Stage& stage = nest_.stages[at];
    coordinates_.back() = 0;
    if (stage.kind == Stage::Kind::kReduce) {
      ReduceRow(at);
    } else if (stage.domain == Stage::Domain::kRow) {
      Store(at, 1);
    } else if (stage.domain == Stage::Domain::kInner) {
      ForInner([&](int64_t n) { Store(at, n); });
    } else {
      ForReduce([&] { ForInner([&](int64_t n) { Store(at, n); }); });
    }
  }

  void ReduceRow(size_t at) {
    const Stage& stage = nest_.stages[at];
    DispatchReduced(nest_.body[static_cast<size_t>(stage.node)].type, [&]<class T>() {
      Total<T> total = IdentityOf<T>(stage.combine);
      const T* values = columns_.values<T>(stage.node);
      ForReduce([&] {
        ForInner([&](int64_t n) {
          columns_.Evaluate(orders_[at], coordinates_, n);
          for (int64_t i = 0; i < n; ++i) total = CombinedWith<T>(stage.combine, total, values[i]);
        });
      });
      std::fill_n(columns_.result<T>(at), kColumnLength, Finished<T>(stage.combine, total));
    });
  }

  void Store(size_t at, int64_t n) {
    columns_.Evaluate(orders_[at], coordinates_, n);
    columns_.StoreAll(nest_.stages[at].stores, coordinates_, n);
  }

  template <class F>
  void ForInner(F&& body) {
    for (int64_t i = 0; i < inner_; i += kColumnLength) {
      coordinates_.back() = i;
      body(std::min(kColumnLength, inner_ - i));
    }
    coordinates_.back() = 0;
  }

  // Every combination of reduce coordinates, the last one fastest; they are 0 afterwards.
  template <class F>
  void ForReduce(F&& body) {
    if (std::any_of(reduce_.begin(), reduce_.end(), [](int64_t extent) { return extent <= 0; })) return;
    for (;;) {
      body();
      size_t dim = reduce_.size();
      for (; dim > 0; --dim) {
        int64_t& at = coordinates_[first_reduce_ + dim - 1];
        if (++at < reduce_[dim - 1]) break;
        at = 0;
      }
      if (dim == 0) return;
    }
  }

  const ir::LoopNestSpec& nest_;
  ScalarColumns columns_;
  int64_t inner_;
  size_t first_reduce_;
  std::vector<int64_t> coordinates_, outer_, reduce_;
  std::vector<std::vector<int32_t>> orders_;  // per stage
};

}  // namespace

void EvaluateNest(const ir::LoopNestSpec& spec, const SpecCall& call, int64_t begin, int64_t end) {
  NestEvaluator(spec, call).Run(begin, end);
}

}  // namespace kiln
