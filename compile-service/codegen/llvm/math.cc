#include "compile-service/codegen/llvm/math.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <iterator>
#include <limits>
#include <span>

#include "compile-service/codegen/llvm/math_coefficients.h"

namespace kiln::codegen {

using llvm::Value;
namespace c = coefficients;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Contraction is chosen operation by operation here: a compensated step must not be fused behind our back.
class PlainArithmetic {
 public:
  explicit PlainArithmetic(VectorEmitter& e) : guard_(e.ir()) { e.ir().clearFastMathFlags(); }

 private:
  llvm::IRBuilderBase::FastMathFlagGuard guard_;
};

Value* Constant(VectorEmitter& e, float value) {
  return e.SplatF32(value);
}
Value* Constant(VectorEmitter& e, double value) {
  return e.SplatF64(value);
}

// Horner, highest power first; of every `stride`th coefficient from `first` on.
template <class T>
Value* Horner(VectorEmitter& e, Value* x, std::span<const T> coefficients, size_t first = 0, size_t stride = 1) {
  size_t k = first + (coefficients.size() - 1 - first) / stride * stride;
  Value* result = Constant(e, coefficients[k]);
  while (k > first) {
    k -= stride;
    result = e.MulAdd(result, x, Constant(e, coefficients[k]));
  }
  return result;
}

// From so many coefficients on, even and odd powers are two sums side by side: one waits for half as many steps.
constexpr size_t kLongPolynomial = 6;

template <class T>
Value* Polynomial(VectorEmitter& e, Value* x, std::span<const T> coefficients) {
  if (coefficients.size() < kLongPolynomial) return Horner(e, x, coefficients);
  Value* square = e.ir().CreateFMul(x, x);
  Value* odd = Horner(e, square, coefficients, 1, 2);
  return e.MulAdd(odd, x, Horner(e, square, coefficients, 0, 2));
}

Value* RoundEven(VectorEmitter& e, Value* x) {
  return e.ir().CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x);
}
Value* Abs(VectorEmitter& e, Value* x) {
  return e.ir().CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
}
Value* CopySign(VectorEmitter& e, Value* magnitude, Value* sign) {
  return e.ir().CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, sign);
}

// A NaN stays: min and max instructions give their second operand then.
Value* AtMost(VectorEmitter& e, Value* x, Value* high) {
  return e.ir().CreateSelect(e.ir().CreateFCmpOLT(high, x), high, x);
}
Value* AtLeast(VectorEmitter& e, Value* x, Value* low) {
  return e.ir().CreateSelect(e.ir().CreateFCmpOGT(low, x), low, x);
}

// mantissa * 2^n for integral n (as f32) in [-252, 254], with one rounding at most, where denormals begin; 0 in lanes
// that do not stay (null: all do).
Value* Scale(VectorEmitter& e, Value* mantissa, Value* n, Value* stays) {
  auto& ir = e.ir();
  Value* zero = e.SplatF32(0.0f);
  if (e.has_avx512()) {
    constexpr int kRoundAsSet = 4;
    Value* mask = stays != nullptr ? ir.CreateBitCast(stays, ir.getInt16Ty()) : ir.getInt16(0xffff);
    return ir.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                              {mantissa, n, zero, mask, ir.getInt32(kRoundAsSet)});
  }
  Value* exponent = ir.CreateFPToSI(n, e.VectorType(DType::kI32));
  Value* half = ir.CreateAShr(exponent, e.SplatI32(1));
  auto power = [&](Value* k) {
    return ir.CreateBitCast(ir.CreateShl(ir.CreateAdd(k, e.SplatI32(127)), e.SplatI32(23)), e.VectorType(DType::kF32));
  };
  Value* result = ir.CreateFMul(ir.CreateFMul(mantissa, power(half)), power(ir.CreateSub(exponent, half)));
  return stays != nullptr ? ir.CreateSelect(stays, result, zero) : result;
}

Value* IsNaN(VectorEmitter& e, Value* x) {
  return e.ir().CreateFCmpUNO(x, x);
}

// e^x as value = mantissa * 2^n with mantissa in [0.7, 1.42); `low` is what rounding took from the mantissa.
struct Exponential {
  Value* value;
  Value* low;
};

// Below, e^x rounds to 0 (it is less than 2^-150).
constexpr float kVanishes = -104.0f;
// The last number whose e^x is no denormal.
constexpr float kNormal = -0x1.5d5894p+6f;

// What an argument can be: so small that e^x vanishes, so large that it is infinite. NaN is always possible.
struct ExpRange {
  bool vanishes = true;
  bool overflows = true;
};

// n = rint(x / ln 2); the high part of ln 2 has few bits, so that n * high is exact without fused multiply-add.
// Where the result is 0 another one is computed: an underflow takes a processor a hundred cycles, and masks make most
// of a softmax's arguments such.
Exponential EmitExponential(VectorEmitter& e, Value* x, ExpRange range) {
  auto& ir = e.ir();
  Value* stays = range.vanishes ? ir.CreateFCmpUGE(x, e.SplatF32(kVanishes)) : nullptr;
  if (range.overflows) x = AtMost(e, x, e.SplatF32(90.0f));
  if (range.vanishes) x = ir.CreateSelect(stays, x, e.SplatF32(0.0f));
  Value* n = RoundEven(e, ir.CreateFMul(x, e.SplatF32(0x1.715476p+0f)));
  Value* r = e.MulAdd(n, e.SplatF32(-0x1.63p-1f), x);
  r = e.MulAdd(n, e.SplatF32(0x1.bd0106p-13f), r);
  // r + r^2 P(r), in parts that do not wait for each other.
  static_assert(std::size(c::kExp) == 5);
  Value* square = ir.CreateFMul(r, r);
  Value* low_powers = e.MulAdd(e.SplatF32(c::kExp[1]), r, e.SplatF32(c::kExp[0]));
  Value* high_powers = e.MulAdd(e.SplatF32(c::kExp[3]), r, e.SplatF32(c::kExp[2]));
  high_powers = e.MulAdd(e.SplatF32(c::kExp[4]), square, high_powers);
  Value* p = e.MulAdd(e.MulAdd(high_powers, square, low_powers), square, r);
  Value* one = e.SplatF32(1.0f);
  Value* mantissa = ir.CreateFAdd(p, one);
  Value* low = ir.CreateFSub(p, ir.CreateFSub(mantissa, one));
  // A NaN is kept out of the conversion to an integer that scaling takes without AVX-512.
  if (!e.has_avx512()) n = ir.CreateSelect(IsNaN(e, x), e.SplatF32(0.0f), n);
  return {Scale(e, mantissa, n, stays), low};
}

}  // namespace

Value* EmitExp(VectorEmitter& e, Value* x) {
  PlainArithmetic plain(e);
  return EmitExponential(e, x, {}).value;
}

Value* EmitWeightExp(VectorEmitter& e, Value* x) {
  PlainArithmetic plain(e);
  Value* stays = e.ir().CreateFCmpUGE(x, e.SplatF32(kVanishes));
  Value* weight = EmitExponential(e, AtLeast(e, x, e.SplatF32(kNormal)), {.vanishes = false}).value;
  return e.ir().CreateSelect(stays, weight, e.SplatF32(0.0f));
}

// x = m * 2^k with m in [sqrt(1/2), sqrt(2)); denormals are scaled up first.
Value* EmitLog(VectorEmitter& e, Value* x) {
  PlainArithmetic plain(e);
  auto& ir = e.ir();
  llvm::Type* i32 = e.VectorType(DType::kI32);
  Value* tiny = ir.CreateFCmpOLT(x, e.SplatF32(0x1p-126f));
  Value* scaled = ir.CreateSelect(tiny, ir.CreateFMul(x, e.SplatF32(0x1p23f)), x);
  Value* bits = ir.CreateBitCast(scaled, i32);
  Value* shifted = ir.CreateSub(bits, e.SplatI32(0x3f3504f3));  // sqrt(1/2)
  Value* k = ir.CreateAShr(shifted, e.SplatI32(23));
  Value* m = ir.CreateBitCast(ir.CreateSub(bits, ir.CreateShl(k, e.SplatI32(23))), e.VectorType(DType::kF32));
  Value* exponent = ir.CreateSIToFP(k, e.VectorType(DType::kF32));
  exponent = ir.CreateSelect(tiny, ir.CreateFSub(exponent, e.SplatF32(23.0f)), exponent);
  Value* f = ir.CreateFSub(m, e.SplatF32(1.0f));
  Value* square = ir.CreateFMul(f, f);
  Value* tail = ir.CreateFMul(ir.CreateFMul(Polynomial<float>(e, f, c::kLog), f), square);
  tail = e.MulAdd(exponent, e.SplatF32(-0x1.bd0106p-13f), tail);
  tail = e.MulAdd(square, e.SplatF32(-0.5f), tail);
  Value* result = e.MulAdd(exponent, e.SplatF32(0x1.63p-1f), ir.CreateFAdd(f, tail));
  result = ir.CreateSelect(ir.CreateFCmpOEQ(x, e.SplatF32(kInfinity)), x, result);
  result = ir.CreateSelect(ir.CreateFCmpOEQ(x, e.SplatF32(0.0f)), e.SplatF32(-kInfinity), result);
  Value* invalid = ir.CreateFCmpULT(x, e.SplatF32(0.0f));
  return ir.CreateSelect(invalid, e.SplatF32(std::numeric_limits<float>::quiet_NaN()), result);
}

// Odd polynomial near zero, 1 - 2 / (e^2|x| + 1) beyond.
Value* EmitTanh(VectorEmitter& e, Value* x) {
  PlainArithmetic plain(e);
  auto& ir = e.ir();
  Value* magnitude = Abs(e, x);
  Value* square = ir.CreateFMul(x, x);
  Value* small = e.MulAdd(ir.CreateFMul(Polynomial<float>(e, square, c::kTanh), square), x, x);
  Value* exponential = EmitExponential(e, ir.CreateFAdd(magnitude, magnitude), {.vanishes = false}).value;
  Value* quotient = ir.CreateFDiv(e.SplatF32(2.0f), ir.CreateFAdd(exponential, e.SplatF32(1.0f)));
  Value* large = ir.CreateFSub(e.SplatF32(1.0f), quotient);
  // The polynomial has lost the sign of a zero.
  return CopySign(e, ir.CreateSelect(ir.CreateFCmpOLT(magnitude, e.SplatF32(0.625f)), small, large), x);
}

// Odd polynomial up to 1, 1 - e^P(|x|) up to 4, where the result has become 1.
Value* EmitErf(VectorEmitter& e, Value* x) {
  PlainArithmetic plain(e);
  auto& ir = e.ir();
  Value* magnitude = Abs(e, x);
  Value* small = e.MulAdd(Polynomial<float>(e, ir.CreateFMul(x, x), c::kErfSmall), x, x);
  Value* limited = ir.CreateSelect(ir.CreateFCmpOLT(e.SplatF32(4.0f), magnitude), e.SplatF32(4.0f), magnitude);
  Value* power = Polynomial<float>(e, limited, c::kErfLarge);
  Value* exponential = EmitExponential(e, power, {.vanishes = false, .overflows = false}).value;
  Value* large = CopySign(e, ir.CreateFSub(e.SplatF32(1.0f), exponential), x);
  return ir.CreateSelect(ir.CreateFCmpOLT(magnitude, e.SplatF32(1.0f)), small, large);
}

// With t = e^-|x|: 1/(1+t) for x >= 0, t/(1+t) below, which keeps denormal results. Below, what t and the sum lost by
// rounding is put back (to first order): three errors would add up to more than two ulps.
Value* EmitSigmoid(VectorEmitter& e, Value* x) {
  PlainArithmetic plain(e);
  auto& ir = e.ir();
  const Exponential t = EmitExponential(e, ir.CreateFNeg(Abs(e, x)), {.overflows = false});
  Value* negative = ir.CreateFCmpOLT(x, e.SplatF32(0.0f));
  Value* numerator = ir.CreateSelect(negative, t.value, e.SplatF32(1.0f));
  Value* sum = ir.CreateFAdd(t.value, e.SplatF32(1.0f));
  Value* quotient = ir.CreateFDiv(numerator, sum);
  Value* sum_low = ir.CreateFSub(t.value, ir.CreateFSub(sum, e.SplatF32(1.0f)));
  Value* lost = ir.CreateSelect(negative, ir.CreateFSub(t.low, sum_low), e.SplatF32(0.0f));
  return e.MulAdd(quotient, lost, quotient);
}

namespace {

// Angle reduced by multiples of pi/2: x = quadrant * pi/2 + r (quadrant modulo 4), r in f64.
struct Reduced {
  Value* r;
  Value* quadrant;
};

// |x| < 2^20: pi/2 in two parts, the first short enough for exact products.
Reduced ReduceModerate(VectorEmitter& e, Value* x) {
  auto& ir = e.ir();
  Value* wide = ir.CreateFPExt(x, e.VectorType(DType::kF64));
  Value* n = RoundEven(e, ir.CreateFMul(wide, e.SplatF64(0x1.45f306dc9c883p-1)));
  Value* r = e.MulAdd(n, e.SplatF64(-0x1.921fb544p+0), wide);
  r = e.MulAdd(n, e.SplatF64(-0x1.0b4611a626331p-34), r);
  return {r, ir.CreateFPToSI(n, e.VectorType(DType::kI32))};
}

// Payne-Hanek: x = m * 2^exponent with a 24-bit m; only the bits of 2/pi that decide the product modulo 4 and 60 bits
// behind them are multiplied: 96 bits of the table, which has 32 zero bits in front of 2/pi for |x| down to 2^20.
Reduced ReduceLarge(VectorEmitter& e, Value* x) {
  static constexpr uint32_t kTwoOverPi[] = {0x00000000, 0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                            0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
  auto& ir = e.ir();
  llvm::Type* i32 = e.VectorType(DType::kI32);
  llvm::Type* i64 = e.VectorType(DType::kI64);
  Value* bits = ir.CreateAnd(ir.CreateBitCast(x, i32), e.SplatI32(0x7fffffff));
  Value* mantissa = ir.CreateOr(ir.CreateAnd(bits, e.SplatI32(0x7fffff)), e.SplatI32(0x800000));
  Value* exponent = ir.CreateSub(ir.CreateLShr(bits, e.SplatI32(23)), e.SplatI32(127 + 23));  // x = m * 2^exponent
  Value* start = ir.CreateAdd(exponent, e.SplatI32(30));  // the table's bit that weighs 2^1 in the product
  Value* word = ir.CreateLShr(start, e.SplatI32(5));
  Value* shift = ir.CreateAnd(start, e.SplatI32(31));
  auto pick = [&](int offset) {
    Value* result = e.SplatI32(static_cast<int32_t>(kTwoOverPi[offset]));
    for (int w = 1; w <= 4; ++w)
      result = ir.CreateSelect(ir.CreateICmpUGE(word, e.SplatI32(w)),
                               e.SplatI32(static_cast<int32_t>(kTwoOverPi[w + offset])), result);
    return result;
  };
  auto window = [&](int offset) {
    return ir.CreateZExt(ir.CreateIntrinsic(llvm::Intrinsic::fshl, {i32}, {pick(offset), pick(offset + 1), shift}),
                         i64);
  };
  // Product of m (24 bits) and a 96-bit window, modulo 2^64 after dropping the lowest 32 bits: a fraction with 2 + 62
  // bits.
  Value* m = ir.CreateZExt(mantissa, i64);
  Value* low = ir.CreateLShr(ir.CreateMul(m, window(2)), e.SplatI64(32));
  Value* middle = ir.CreateMul(m, window(1));
  Value* high = ir.CreateShl(ir.CreateMul(m, window(0)), e.SplatI64(32));
  Value* product = ir.CreateAdd(high, ir.CreateAdd(middle, low));
  Value* n = ir.CreateLShr(ir.CreateAdd(product, e.SplatI64(int64_t{1} << 61)), e.SplatI64(62));
  Value* fraction = ir.CreateSub(product, ir.CreateShl(n, e.SplatI64(62)));
  Value* r =
      ir.CreateFMul(ir.CreateSIToFP(fraction, e.VectorType(DType::kF64)), e.SplatF64(0x1.921fb54442d18p+0 * 0x1p-62));
  Value* quadrant = ir.CreateTrunc(n, i32);
  Value* negative = ir.CreateICmpSLT(ir.CreateBitCast(x, i32), e.SplatI32(0));
  r = ir.CreateSelect(negative, ir.CreateFNeg(r), r);
  return {r, ir.CreateSelect(negative, ir.CreateNeg(quadrant), quadrant)};
}

// sin(x + turn * pi/2). Reduction and polynomials run in f64, which is what keeps arguments near multiples of pi
// accurate.
Value* EmitSine(VectorEmitter& e, Value* x, int turn) {
  PlainArithmetic plain(e);
  auto& ir = e.ir();
  Value* magnitude = Abs(e, x);
  Value* is_large = ir.CreateFCmpOGE(magnitude, e.SplatF32(0x1p20f));
  Value* invalid = ir.CreateFCmpUEQ(magnitude, e.SplatF32(kInfinity));  // infinity or NaN
  Value* moderate = ir.CreateSelect(ir.CreateFCmpOLT(magnitude, e.SplatF32(0x1p20f)), x, e.SplatF32(0.0f));
  const Reduced near = ReduceModerate(e, moderate);
  const auto reduced = e.IfElse(
      ir.CreateOrReduce(is_large),
      [&]() -> VectorEmitter::Values {
        const Reduced far = ReduceLarge(e, x);
        return {ir.CreateSelect(is_large, far.r, near.r), ir.CreateSelect(is_large, far.quadrant, near.quadrant)};
      },
      [&]() -> VectorEmitter::Values { return {near.r, near.quadrant}; });
  Value* r = reduced[0];
  Value* quadrant = ir.CreateAdd(reduced[1], e.SplatI32(turn));
  Value* square = ir.CreateFMul(r, r);
  Value* sine = e.MulAdd(ir.CreateFMul(Polynomial<double>(e, square, c::kSin), square), r, r);
  Value* cosine = e.MulAdd(Polynomial<double>(e, square, c::kCos), square, e.SplatF64(-0.5));
  cosine = e.MulAdd(cosine, square, e.SplatF64(1.0));
  Value* use_cosine = ir.CreateICmpNE(ir.CreateAnd(quadrant, e.SplatI32(1)), e.SplatI32(0));
  Value* result = ir.CreateFPTrunc(ir.CreateSelect(use_cosine, cosine, sine), e.VectorType(DType::kF32));
  Value* flip = ir.CreateICmpNE(ir.CreateAnd(quadrant, e.SplatI32(2)), e.SplatI32(0));
  result = ir.CreateSelect(flip, ir.CreateFNeg(result), result);
  if (turn == 0) result = ir.CreateSelect(ir.CreateFCmpOEQ(x, e.SplatF32(0.0f)), x, result);  // keeps -0
  return ir.CreateSelect(invalid, e.SplatF32(std::numeric_limits<float>::quiet_NaN()), result);
}

// log2 of a positive finite f64, f32-sized values: no denormals.
Value* Log2Wide(VectorEmitter& e, Value* x) {
  auto& ir = e.ir();
  Value* bits = ir.CreateBitCast(x, e.VectorType(DType::kI64));
  Value* shifted = ir.CreateSub(bits, e.SplatI64(0x3fe6a09e667f3bcd));  // sqrt(1/2)
  Value* k = ir.CreateAShr(shifted, e.SplatI64(52));
  Value* m = ir.CreateBitCast(ir.CreateSub(bits, ir.CreateShl(k, e.SplatI64(52))), e.VectorType(DType::kF64));
  Value* one = e.SplatF64(1.0);
  Value* s = ir.CreateFDiv(ir.CreateFSub(m, one), ir.CreateFAdd(m, one));
  Value* exponent = ir.CreateSIToFP(ir.CreateTrunc(k, e.VectorType(DType::kI32)), e.VectorType(DType::kF64));
  return e.MulAdd(Polynomial<double>(e, ir.CreateFMul(s, s), c::kLog2), s, exponent);
}

// 2^x for |x| < 1000, to f64.
Value* Exp2Wide(VectorEmitter& e, Value* x) {
  auto& ir = e.ir();
  Value* n = RoundEven(e, x);
  Value* f = ir.CreateFSub(x, n);
  Value* mantissa = e.MulAdd(Polynomial<double>(e, f, c::kExp2), f, e.SplatF64(1.0));
  Value* k = ir.CreateSExt(ir.CreateFPToSI(n, e.VectorType(DType::kI32)), e.VectorType(DType::kI64));
  Value* power = ir.CreateShl(ir.CreateAdd(k, e.SplatI64(1023)), e.SplatI64(52));
  return ir.CreateFMul(mantissa, ir.CreateBitCast(power, e.VectorType(DType::kF64)));
}

}  // namespace

Value* EmitSin(VectorEmitter& e, Value* x) {
  return EmitSine(e, x, 0);
}
Value* EmitCos(VectorEmitter& e, Value* x) {
  return EmitSine(e, x, 1);
}

// |x|^y in f64, then the sign and the special cases of IEEE 754 pow.
Value* EmitPow(VectorEmitter& e, Value* x, Value* y) {
  PlainArithmetic plain(e);
  auto& ir = e.ir();
  llvm::Type* f64 = e.VectorType(DType::kF64);
  Value* zero = e.SplatF32(0.0f);
  Value* one = e.SplatF32(1.0f);
  Value* infinity = e.SplatF32(kInfinity);
  Value* nan = e.SplatF32(std::numeric_limits<float>::quiet_NaN());
  Value* magnitude = Abs(e, x);
  Value* y_magnitude = Abs(e, y);

  Value* regular = ir.CreateAnd(ir.CreateFCmpOGT(magnitude, zero), ir.CreateFCmpOLT(magnitude, infinity));
  Value* logarithm = Log2Wide(e, ir.CreateFPExt(ir.CreateSelect(regular, magnitude, one), f64));
  Value* power = ir.CreateFMul(ir.CreateFPExt(ir.CreateSelect(IsNaN(e, y), one, y), f64), logarithm);
  power = AtLeast(e, AtMost(e, power, e.SplatF64(300.0)), e.SplatF64(-300.0));
  power = ir.CreateSelect(ir.CreateFCmpUNO(power, power), e.SplatF64(0.0), power);  // infinity * 0: |x| is 1
  Value* result = ir.CreateFPTrunc(Exp2Wide(e, power), e.VectorType(DType::kF32));

  // |x| is 0 or infinite: 0 or infinity by the signs of the exponent.
  Value* grows = ir.CreateXor(ir.CreateFCmpOEQ(magnitude, zero), ir.CreateFCmpOGT(y, zero));
  result = ir.CreateSelect(regular, result, ir.CreateSelect(grows, infinity, zero));
  // Negative bases: integral exponents only, and odd ones keep the sign. From 2^24 on every f32 is even.
  Value* integral = ir.CreateFCmpOEQ(RoundEven(e, y), y);
  Value* half = ir.CreateFMul(y, e.SplatF32(0.5f));
  Value* odd = ir.CreateAnd(integral, ir.CreateFCmpUNE(RoundEven(e, half), half));
  Value* negative = ir.CreateICmpSLT(ir.CreateBitCast(x, e.VectorType(DType::kI32)), e.SplatI32(0));
  result = ir.CreateSelect(ir.CreateAnd(negative, odd), ir.CreateFNeg(result), result);
  Value* finite_negative = ir.CreateAnd(negative, regular);
  Value* undefined =
      ir.CreateAnd(finite_negative, ir.CreateNot(ir.CreateOr(integral, ir.CreateFCmpOEQ(y_magnitude, infinity))));
  result = ir.CreateSelect(undefined, nan, result);
  result = ir.CreateSelect(ir.CreateFCmpUNO(x, y), nan, result);
  Value* is_one = ir.CreateOr(ir.CreateFCmpOEQ(y, zero), ir.CreateFCmpOEQ(x, one));
  return ir.CreateSelect(is_one, one, result);
}

}  // namespace kiln::codegen
