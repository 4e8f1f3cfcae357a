// Vectors of 32 or 64 bytes, written with the compiler's vector types so that one source serves all
// instruction sets.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace dynagat {
namespace DYNAGAT_ISA {

#ifndef DYNAGAT_VECTOR_BYTES
#define DYNAGAT_VECTOR_BYTES 32
#endif
constexpr int vector_bytes = DYNAGAT_VECTOR_BYTES;

#define DYNAGAT_INLINE inline __attribute__((always_inline))
#define DYNAGAT_UNROLL _Pragma("GCC unroll 8")  // keeps small arrays in registers

template <class A>
struct Lanes;
template <>
struct Lanes<float> {
  typedef float V __attribute__((vector_size(vector_bytes), aligned(vector_bytes), may_alias));
  typedef float Unaligned __attribute__((vector_size(vector_bytes), aligned(4), may_alias));
  typedef int32_t I __attribute__((vector_size(vector_bytes)));
};
template <>
struct Lanes<double> {
  typedef double V __attribute__((vector_size(vector_bytes), aligned(vector_bytes), may_alias));
  typedef double Unaligned __attribute__((vector_size(vector_bytes), aligned(8), may_alias));
  typedef int64_t I __attribute__((vector_size(vector_bytes)));
};
template <class A>
using Vec = typename Lanes<A>::V;
// One of so many parts of a vector.
template <class A, int Parts>
struct PartOf {
  typedef A V __attribute__((vector_size(vector_bytes / Parts)));
};
template <class A, int Parts>
using Part = typename PartOf<A, Parts>::V;
template <class A>
constexpr int width = vector_bytes / sizeof(A);

template <class A>
DYNAGAT_INLINE Vec<A> load(const A* from) {
  return *reinterpret_cast<const typename Lanes<A>::Unaligned*>(from);
}
template <class A>
DYNAGAT_INLINE void store(A* to, Vec<A> x) {
  *reinterpret_cast<typename Lanes<A>::Unaligned*>(to) = x;
}
template <class A>
DYNAGAT_INLINE Vec<A> all(A x) {
  return Vec<A>{} + x;
}
template <class V>
DYNAGAT_INLINE V max(V x, V y) {
  return x > y ? x : y;
}

// LeakyReLU for any slope.
template <class A>
DYNAGAT_INLINE Vec<A> leaky_relu(Vec<A> z, Vec<A> slope) {
  return z > 0 ? z : z * slope;
}

// The sums of the lanes of as many vectors as a vector has lanes, as one vector.
typedef float Floats8 __attribute__((vector_size(32)));
typedef double Doubles4 __attribute__((vector_size(32)));
DYNAGAT_INLINE Floats8 sum_each_short(const Floats8* x) {
#define DYNAGAT_PAIR(a, b)                                    \
  (__builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14) + \
   __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15))
#define DYNAGAT_QUAD(a, b)                                   \
  (__builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) + \
   __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15))
  Floats8 a = DYNAGAT_PAIR(x[0], x[1]), b = DYNAGAT_PAIR(x[2], x[3]);
  Floats8 c = DYNAGAT_PAIR(x[4], x[5]), d = DYNAGAT_PAIR(x[6], x[7]);
  Floats8 p = DYNAGAT_QUAD(a, b), q = DYNAGAT_QUAD(c, d);
  return __builtin_shufflevector(p, q, 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(p, q, 4, 5, 6, 7, 12, 13, 14, 15);
#undef DYNAGAT_PAIR
#undef DYNAGAT_QUAD
}
DYNAGAT_INLINE Doubles4 sum_each_short(const Doubles4* x) {
  Doubles4 a = __builtin_shufflevector(x[0], x[1], 0, 4, 2, 6) +
               __builtin_shufflevector(x[0], x[1], 1, 5, 3, 7);
  Doubles4 b = __builtin_shufflevector(x[2], x[3], 0, 4, 2, 6) +
               __builtin_shufflevector(x[2], x[3], 1, 5, 3, 7);
  return __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
}
template <class A>
DYNAGAT_INLINE Vec<A> sum_each(const Vec<A>* x) {
  typedef std::conditional_t<sizeof(A) == 4, Floats8, Doubles4> Short;
  constexpr int lanes = 32 / sizeof(A), parts = vector_bytes / 32;
  Vec<A> sums;
  for (int part = 0; part < parts; ++part) {
    Short half[lanes];
    DYNAGAT_UNROLL
    for (int n = 0; n < lanes; ++n) {
      Short halves[parts];
      std::memcpy(halves, x + part * lanes + n, vector_bytes);
      half[n] = halves[0];
      if constexpr (parts == 2) half[n] += halves[1];
    }
    const Short sum = sum_each_short(half);
    std::memcpy(reinterpret_cast<char*>(&sums) + part * 32, &sum, 32);
  }
  return sums;
}

// x = n log 2 + r, where n is an integer and |r| <= log(2) / 2: then exp(x) = 2^n (1 + rest).
struct SplitExp {
  Vec<float> shifted, rest;  // the bits of `shifted` end with n

  DYNAGAT_INLINE explicit SplitExp(Vec<float> x) {
    const Vec<float> shift = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    shifted = x * 1.44269504f + shift;
    const Vec<float> n = shifted - shift;
    Vec<float> r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    Vec<float> y = all(1.9875691500e-4f);
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    rest = (y * r) * r + r;
  }
  // 2^(n + Power)
  template <int Power = 0>
  DYNAGAT_INLINE Vec<float> power() const {
    typedef uint32_t Bits __attribute__((vector_size(vector_bytes)));
    Bits bits;
    std::memcpy(&bits, &shifted, vector_bytes);
    bits = (bits << 23) + (uint32_t(127 + Power) << 23);
    Vec<float> result;
    std::memcpy(&result, &bits, vector_bytes);
    return result;
  }
};

// 2^Power exp(x) for x <= 0 (and small positive x), accurate to about one unit in the last place.
// Results below the smallest normal number are 0. NaN stays NaN, whatever its bits are.
template <int Power = 0>
DYNAGAT_INLINE Vec<float> exp(Vec<float> x) {
  typedef Lanes<float>::I I;
  const Vec<float> lowest = all(-87.33654f - Power * 0.6931472f);  // log of the smallest result
  const I vanishes = x < lowest;
  const SplitExp split(vanishes ? lowest : x);
  return vanishes ? Vec<float>{} : (split.rest + 1.0f) * split.template power<Power>();
}
template <int Power = 0>
DYNAGAT_INLINE Vec<double> exp(Vec<double> x) {
  for (int lane = 0; lane < width<double>; ++lane) x[lane] = std::exp(x[lane]);
  return x * (1.0 / (int64_t(1) << -Power));
}

// exp(x) - 1 for x <= 0, accurate also near 0.
DYNAGAT_INLINE Vec<float> exp_minus_1(Vec<float> x) {
  const Vec<float> lowest = all(-87.0f);
  const SplitExp split(x < lowest ? lowest : x);
  const Vec<float> power = split.power();
  return split.rest * power + (power - 1.0f);
}
DYNAGAT_INLINE Vec<double> exp_minus_1(Vec<double> x) {
  for (int lane = 0; lane < width<double>; ++lane) x[lane] = std::expm1(x[lane]);
  return x;
}

// Softmax weights before their sum is known are scaled by 2^-16, so that sums of weight times value
// do not overflow before they are divided by the sum of the weights.
template <class V>
DYNAGAT_INLINE V scaled_exp(V x) {
  return exp<-16>(x);
}

// The signs of one vector: bit l is set if lane l of z is not positive.
typedef std::conditional_t<vector_bytes == 64, uint16_t, uint8_t> Signs;
template <class A>
DYNAGAT_INLINE Signs signs_of_lanes(Vec<A> z) {
  unsigned bits = 0;
  for (int lane = 0; lane < width<A>; ++lane) bits |= unsigned(!(z[lane] > 0)) << lane;
  return Signs(bits);
}
DYNAGAT_INLINE Signs signs(Vec<float> z) {
#if DYNAGAT_VECTOR_BYTES == 64
  return _mm512_cmp_ps_mask((__m512)z, _mm512_setzero_ps(), _CMP_NGT_UQ);
#elif defined(__AVX2__)
  return ~_mm256_movemask_ps(_mm256_cmp_ps((__m256)z, _mm256_setzero_ps(), _CMP_GT_OQ));
#else
  return signs_of_lanes<float>(z);
#endif
}
DYNAGAT_INLINE Signs signs(Vec<double> z) {
  return signs_of_lanes<double>(z);
}

// For G vectors: each lane of factor[k] is `slope` if its bit in from[k] is set, and 1 otherwise.
template <int G>
DYNAGAT_INLINE void slopes(const Signs* from, Vec<float> slope, Vec<float>* factor) {
  const Vec<float> one = all(1.0f);
#if DYNAGAT_VECTOR_BYTES == 64
  DYNAGAT_UNROLL
  for (int k = 0; k < G; ++k)
    factor[k] = (Vec<float>)_mm512_mask_mov_ps((__m512)one, from[k], (__m512)slope);
#else
#if defined(__AVX2__)
  if constexpr (G == 4) {  // one load serves four vectors: shift each one's bits to the top
    int32_t word;
    std::memcpy(&word, from, 4);
    const __m256i bits = _mm256_set1_epi32(word);
    const __m256i last = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    DYNAGAT_UNROLL
    for (int k = 0; k < 4; ++k) {
      const __m256i at = _mm256_add_epi32(last, _mm256_set1_epi32(24 - 8 * k));
      const __m256 top = _mm256_castsi256_ps(_mm256_sllv_epi32(bits, at));
      factor[k] = (Vec<float>)_mm256_blendv_ps((__m256)one, (__m256)slope, top);
    }
    return;
  }
#endif
  typedef Lanes<float>::I I;
  DYNAGAT_UNROLL
  for (int k = 0; k < G; ++k) {
    const I set = (I{} + from[k]) & I{1, 2, 4, 8, 16, 32, 64, 128};
    factor[k] = set != 0 ? slope : one;
  }
#endif
}
template <int G>
DYNAGAT_INLINE void slopes(const Signs* from, Vec<double> slope, Vec<double>* factor) {
  typedef Lanes<double>::I I;
  I bit;
  for (int lane = 0; lane < width<double>; ++lane) bit[lane] = int64_t(1) << lane;
  DYNAGAT_UNROLL
  for (int k = 0; k < G; ++k) {
    const I set = (I{} + from[k]) & bit;
    factor[k] = set != 0 ? slope : all(1.0);
  }
}

// Is any lane of x above the same lane of y?
template <class A>
DYNAGAT_INLINE bool any_above(Vec<A> x, Vec<A> y) {
  const auto above = x > y;
  bool any = false;
  for (int lane = 0; lane < width<A>; ++lane) any |= above[lane] != 0;
  return any;
}
#if DYNAGAT_VECTOR_BYTES == 64
template <>
DYNAGAT_INLINE bool any_above<float>(Vec<float> x, Vec<float> y) {
  return _mm512_cmp_ps_mask((__m512)x, (__m512)y, _CMP_GT_OQ) != 0;
}
#elif defined(__AVX2__)
template <>
DYNAGAT_INLINE bool any_above<float>(Vec<float> x, Vec<float> y) {
  return _mm256_movemask_ps(_mm256_cmp_ps((__m256)x, (__m256)y, _CMP_GT_OQ)) != 0;
}
#endif

// Copies a few numbers, for which memcpy would be slower.
template <class A>
DYNAGAT_INLINE void copy(A* to, const A* from, int64_t count) {
  int64_t at = 0;
  for (; at + width<A> <= count; at += width<A>) store(to + at, load(from + at));
  if (at + width<A> / 2 <= count) {
    std::memcpy(to + at, from + at, vector_bytes / 2);
    at += width<A> / 2;
  }
  for (; at < count; ++at) to[at] = from[at];
}

DYNAGAT_INLINE void prefetch(const char* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
}

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
