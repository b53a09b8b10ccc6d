// Made by fit_polynomials.py; lowest power first.
#pragma once

namespace kiln::codegen::coefficients {

// e^r = 1 + r + r^2 P(r), |r| <= ln(2)/2; largest relative error before rounding 2^-28.3.
inline constexpr float kExp[] = {0x1.fffffc0000000p-2f, 0x1.5554920000000p-3f, 0x1.5558f20000000p-5f,
                                 0x1.1239f20000000p-7f, 0x1.6a24320000000p-10f};

// log(1+f) = f - f^2/2 + f^3 P(f), 1+f in [sqrt(1/2), sqrt(2)]; largest relative error before rounding 2^-30.3.
inline constexpr float kLog[] = {0x1.5555480000000p-2f,  -0x1.0000060000000p-2f, 0x1.99a4b60000000p-3f,
                                 -0x1.555c4e0000000p-3f, 0x1.23376a0000000p-3f,  -0x1.fc220a0000000p-4f,
                                 0x1.e6f0520000000p-4f,  -0x1.de3bde0000000p-4f, 0x1.1457800000000p-4f};

// tanh x = x + x^3 P(x^2), |x| <= 0.625; largest relative error before rounding 2^-27.8.
inline constexpr float kTanh[] = {-0x1.5555320000000p-2f, 0x1.1107260000000p-3f, -0x1.b83c5c0000000p-5f,
                                  0x1.5226a20000000p-6f, -0x1.75e1e40000000p-8f};

// erf x = x + x P(x^2), |x| <= 1; largest relative error before rounding 2^-29.6.
inline constexpr float kErfSmall[] = {0x1.06eba80000000p-3f,  -0x1.81273e0000000p-2f, 0x1.ce2cf80000000p-4f,
                                      -0x1.b7f90e0000000p-6f, 0x1.5405b40000000p-8f,  -0x1.a3f7100000000p-11f,
                                      0x1.496a5e0000000p-14f};

// erf x = 1 - exp(P(x)), 1 <= x <= 4; largest relative error before rounding 2^-35.5.
inline constexpr float kErfLarge[] = {0x1.8b3eca0000000p-13f, -0x1.212c2c0000000p+0f, -0x1.4434f00000000p-1f,
                                      -0x1.bc18ce0000000p-4f, 0x1.9d0bd00000000p-6f,  -0x1.1398f20000000p-8f,
                                      0x1.ceead40000000p-12f, -0x1.6c066a0000000p-16f};

// sin r = r + r^3 P(r^2), |r| <= pi/4; largest relative error before rounding 2^-37.5.
inline constexpr double kSin[] = {-0x1.5555554c6a7a6p-3, 0x1.1111086509804p-7, -0x1.a00f7ad7e4bf8p-13,
                                  0x1.6cd0ea3ecd993p-19};

// cos r = 1 - r^2/2 + r^4 P(r^2), |r| <= pi/4; largest relative error before rounding 2^-42.9.
inline constexpr double kCos[] = {0x1.5555554ed4132p-5, -0x1.6c16b824489b1p-10, 0x1.a010db03c71b5p-16,
                                  -0x1.241dd41943b04p-22};

// log2 m = s P(s^2), s = (m-1)/(m+1), m in [sqrt(1/2), sqrt(2)]; largest relative error before rounding 2^-52.4.
inline constexpr double kLog2[] = {0x1.71547652b82ffp+1, 0x1.ec709dc39c98cp-1, 0x1.2776c516b346ap-1,
                                   0x1.a617566a58542p-2, 0x1.484fafc3b937ep-2, 0x1.0bb744fee1e15p-2,
                                   0x1.f19070bcc1c82p-3};

// 2^f = 1 + f P(f), |f| <= 1/2; largest relative error before rounding 2^-39.8.
inline constexpr double kExp2[] = {0x1.62e42fef7a675p-1,  0x1.ebfbdff7c5775p-3,  0x1.c6b08defeb49cp-5,
                                   0x1.3b2ab7f412946p-7,  0x1.5d872947d04abp-10, 0x1.4306c071619dbp-13,
                                   0x1.00ee23afe4cf7p-16, 0x1.663514c718868p-20};

}  // namespace kiln::codegen::coefficients
