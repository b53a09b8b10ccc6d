#!/usr/bin/env python3
"""Fits the polynomials of math.cc and prints math_coefficients.h.

Each is the minimax polynomial of a weighted error, found by Remez exchange in 60-digit decimal arithmetic. The weight turns the
polynomial's error into the relative error of the finished function, so that what is minimised is what ulps measure. Run:
    fit_polynomials.py > math_coefficients.h
"""
import struct
from decimal import Decimal as D, getcontext

getcontext().prec = 60
PI = D("3.14159265358979323846264338327950288419716939937510582097494")


def erf(x):
    term = total = x
    n = 0
    while abs(term) > D(10) ** -58:
        n += 1
        term = -term * x * x / n
        total += term / (2 * n + 1)
    return total * 2 / PI.sqrt()


def tanh(x):
    e = (2 * x).exp()
    return (e - 1) / (e + 1)


def sine(x):
    term = total = x
    n = 1
    while abs(term) > D(10) ** -58:
        term = -term * x * x / ((n + 1) * (n + 2))
        total += term
        n += 2
    return total


def cosine(x):
    term = total = D(1)
    n = 0
    while abs(term) > D(10) ** -58:
        term = -term * x * x / ((n + 1) * (n + 2))
        total += term
        n += 2
    return total


def solve(rows, right):
    """Gauss with partial pivoting."""
    n = len(rows)
    a = [row[:] + [r] for row, r in zip(rows, right)]
    for k in range(n):
        pivot = max(range(k, n), key=lambda i: abs(a[i][k]))
        a[k], a[pivot] = a[pivot], a[k]
        for i in range(k + 1, n):
            f = a[i][k] / a[k][k]
            for j in range(k, n + 1):
                a[i][j] -= f * a[k][j]
    x = [D(0)] * n
    for k in reversed(range(n)):
        x[k] = (a[k][n] - sum(a[k][j] * x[j] for j in range(k + 1, n))) / a[k][k]
    return x


def remez(f, weight, degree, low, high, grid=400, rounds=12):
    """Coefficients c of the polynomial minimising max |weight(x) * (f(x) - sum c[k] x^k)| on [low, high], and that maximum."""
    low, high = D(low), D(high)
    points = [(low + high) / 2 - (high - low) / 2 * cosine(PI * i / grid) for i in range(grid + 1)]
    values = [(x, f(x), weight(x)) for x in points]
    count = degree + 2
    reference = [round(i * grid / (count - 1)) for i in range(count)]
    for _ in range(rounds):
        rows = [[values[r][0] ** k for k in range(degree + 1)] + [(-1) ** i / values[r][2]]
                for i, r in enumerate(reference)]
        c = solve(rows, [values[r][1] for r in reference])[:-1]
        errors = [w * (y - sum(ck * x ** k for k, ck in enumerate(c))) for x, y, w in values]
        # The largest error of every run of one sign; then the best `count` neighbours.
        extrema = []
        for i, e in enumerate(errors):
            if extrema and (errors[extrema[-1]] > 0) == (e > 0):
                if abs(e) > abs(errors[extrema[-1]]):
                    extrema[-1] = i
            else:
                extrema.append(i)
        while len(extrema) > count:
            extrema.pop(0 if abs(errors[extrema[0]]) < abs(errors[extrema[-1]]) else -1)
        if len(extrema) < count or extrema == reference:
            break
        reference = extrema
    return c, max(abs(e) for e in errors)


def as_f32(value):
    return struct.unpack("f", struct.pack("f", float(value)))[0]


def show(name, doc, fitted, single=True):
    coefficients, error = fitted
    kind = "float" if single else "double"
    print(f"// {doc}; largest relative error before rounding 2^{float(error.ln() / D(2).ln()):.1f}.")
    items = [(as_f32(c) if single else float(c)).hex() + ("f" if single else "") for c in coefficients]
    lines = [", ".join(items[i:i + 4]) for i in range(0, len(items), 4)]
    print(f"inline constexpr {kind} {name}[] = {{\n    " + ",\n    ".join(lines) + "};\n")


TINY = D(10) ** -12


def away(x):
    """Keeps removable singularities at zero out of the samples."""
    return x if abs(x) > TINY else TINY


def main():
    ln2 = D(2).ln()
    print("// Made by fit_polynomials.py; lowest power first.\n#pragma once\n\nnamespace kiln::codegen::coefficients {\n")
    show("kExp", "e^r = 1 + r + r^2 P(r), |r| <= ln(2)/2",
         remez(lambda x: (away(x).exp() - 1 - away(x)) / away(x) ** 2, lambda x: away(x) ** 2 / x.exp(), 4,
               -ln2 * D("0.5001"), ln2 * D("0.5001")))
    show("kLog", "log(1+f) = f - f^2/2 + f^3 P(f), 1+f in [sqrt(1/2), sqrt(2)]",
         remez(lambda x: ((1 + away(x)).ln() - away(x) + away(x) ** 2 / 2) / away(x) ** 3,
               lambda x: away(x) ** 3 / (1 + away(x)).ln(), 8, D("0.5").sqrt() - 1, D(2).sqrt() - 1))
    show("kTanh", "tanh x = x + x^3 P(x^2), |x| <= 0.625",
         remez(lambda t: (tanh(t.sqrt()) / t.sqrt() - 1) / t, lambda t: t * t.sqrt() / tanh(t.sqrt()), 4, TINY,
               D("0.390625")))
    show("kErfSmall", "erf x = x + x P(x^2), |x| <= 1",
         remez(lambda t: erf(t.sqrt()) / t.sqrt() - 1, lambda t: t.sqrt() / erf(t.sqrt()), 6, TINY, D(1)))
    show("kErfLarge", "erf x = 1 - exp(P(x)), 1 <= x <= 4",
         remez(lambda x: (1 - erf(x)).ln(), lambda x: (1 - erf(x)) / erf(x), 7, D(1), D(4)))
    show("kSin", "sin r = r + r^3 P(r^2), |r| <= pi/4",
         remez(lambda t: (sine(t.sqrt()) / t.sqrt() - 1) / t, lambda t: t * t.sqrt() / sine(t.sqrt()), 3, TINY,
               (PI * D("0.2501")) ** 2), single=False)
    show("kCos", "cos r = 1 - r^2/2 + r^4 P(r^2), |r| <= pi/4",
         remez(lambda t: (cosine(t.sqrt()) - 1 + t / 2) / t ** 2, lambda t: t ** 2 / cosine(t.sqrt()), 3, D("1e-10"),
               (PI * D("0.2501")) ** 2), single=False)
    s_max = (D(2).sqrt() - 1) / (D(2).sqrt() + 1)
    show("kLog2", "log2 m = s P(s^2), s = (m-1)/(m+1), m in [sqrt(1/2), sqrt(2)]",
         remez(lambda t: ((1 + t.sqrt()) / (1 - t.sqrt())).ln() / ln2 / t.sqrt(),
               lambda t: t.sqrt() / (((1 + t.sqrt()) / (1 - t.sqrt())).ln() / ln2), 6, D("1e-10"),
               s_max ** 2 * D("1.001")), single=False)
    show("kExp2", "2^f = 1 + f P(f), |f| <= 1/2",
         remez(lambda x: ((away(x) * ln2).exp() - 1) / away(x), lambda x: away(x) / (x * ln2).exp(), 7, D("-0.5001"),
               D("0.5001")), single=False)
    print("}  // namespace kiln::codegen::coefficients")


main()
