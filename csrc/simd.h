// Vectors of 32 bytes in the compiler's own vector types, so one source serves every instruction set.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace dynagat {
namespace DYNAGAT_ISA {

#define DYNAGAT_INLINE inline __attribute__((always_inline))

template <class A>
struct Lanes;
template <>
struct Lanes<float> {
  typedef float V __attribute__((vector_size(32), aligned(32), may_alias));
  typedef float Unaligned __attribute__((vector_size(32), aligned(4), may_alias));
  typedef int32_t I __attribute__((vector_size(32)));
};
template <>
struct Lanes<double> {
  typedef double V __attribute__((vector_size(32), aligned(32), may_alias));
  typedef double Unaligned __attribute__((vector_size(32), aligned(8), may_alias));
  typedef int64_t I __attribute__((vector_size(32)));
};
template <class A>
using Vec = typename Lanes<A>::V;
template <class A>
constexpr int width = 32 / sizeof(A);

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

// LeakyReLU of any slope.
template <class A>
DYNAGAT_INLINE Vec<A> leaky(Vec<A> z, Vec<A> slope) {
  return z > 0 ? z : z * slope;
}

// sums of 8 (4) vectors -> one vector of their sums, in order
DYNAGAT_INLINE Vec<float> sum_each(const Vec<float>* x) {
#define DYNAGAT_PAIR(a, b)                                       \
  (__builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14) +    \
   __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15))
#define DYNAGAT_QUAD(a, b)                                       \
  (__builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +     \
   __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15))
  Vec<float> a = DYNAGAT_PAIR(x[0], x[1]), b = DYNAGAT_PAIR(x[2], x[3]);
  Vec<float> c = DYNAGAT_PAIR(x[4], x[5]), d = DYNAGAT_PAIR(x[6], x[7]);
  Vec<float> p = DYNAGAT_QUAD(a, b), q = DYNAGAT_QUAD(c, d);
  return __builtin_shufflevector(p, q, 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(p, q, 4, 5, 6, 7, 12, 13, 14, 15);
#undef DYNAGAT_PAIR
#undef DYNAGAT_QUAD
}
DYNAGAT_INLINE Vec<double> sum_each(const Vec<double>* x) {
  Vec<double> a = __builtin_shufflevector(x[0], x[1], 0, 4, 2, 6) +
                  __builtin_shufflevector(x[0], x[1], 1, 5, 3, 7);
  Vec<double> b = __builtin_shufflevector(x[2], x[3], 0, 4, 2, 6) +
                  __builtin_shufflevector(x[2], x[3], 1, 5, 3, 7);
  return __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
}

// exp for x <= 0 (and small positive x), about one unit in the last place; NaN stays NaN.
DYNAGAT_INLINE Vec<float> exp(Vec<float> x) {
  typedef Lanes<float>::I I;
  const Vec<float> lowest = all(-87.33654f);  // log of the smallest normal number
  const I vanishes = x < lowest;
  x = vanishes ? lowest : x;
  const Vec<float> shift = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec<float> shifted = x * 1.44269504f + shift;
  const Vec<float> n = shifted - shift;
  Vec<float> r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Vec<float> y = all(1.9875691500e-4f);
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = (y * r) * r + r + 1.0f;
  I bits, power;
  std::memcpy(&bits, &y, 32);
  std::memcpy(&power, &shifted, 32);
  bits += power << 23;  // the low bits of `shifted` hold n
  std::memcpy(&y, &bits, 32);
  return vanishes ? Vec<float>{} : y;
}
DYNAGAT_INLINE Vec<double> exp(Vec<double> x) {
  for (int lane = 0; lane < 4; ++lane) x[lane] = std::exp(x[lane]);
  return x;
}

// One byte per vector: bit l is set where lane l of z is not positive.
DYNAGAT_INLINE uint8_t signs(Vec<float> z) {
#if defined(__AVX2__)
  return ~_mm256_movemask_ps(_mm256_cmp_ps((__m256)z, _mm256_setzero_ps(), _CMP_GT_OQ));
#else
  unsigned bits = 0;
  for (int lane = 0; lane < 8; ++lane) bits |= unsigned(!(z[lane] > 0)) << lane;
  return bits;
#endif
}
DYNAGAT_INLINE uint8_t signs(Vec<double> z) {
  unsigned bits = 0;
  for (int lane = 0; lane < 4; ++lane) bits |= unsigned(!(z[lane] > 0)) << lane;
  return bits;
}

// Lane by lane `negative` where the byte's bit is set, else `positive`.
DYNAGAT_INLINE Vec<float> choose(uint8_t byte, Vec<float> positive, Vec<float> negative) {
#if defined(__AVX2__)
  const __m256i at = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
  const __m256i top = _mm256_sllv_epi32(_mm256_set1_epi32(byte), at);
  return (Vec<float>)_mm256_blendv_ps((__m256)positive, (__m256)negative, _mm256_castsi256_ps(top));
#else
  typedef Lanes<float>::I I;
  const I set = (I{} + byte) & I{1, 2, 4, 8, 16, 32, 64, 128};
  return set != 0 ? negative : positive;
#endif
}
DYNAGAT_INLINE Vec<double> choose(uint8_t byte, Vec<double> positive, Vec<double> negative) {
  typedef Lanes<double>::I I;
  const I set = (I{} + byte) & I{1, 2, 4, 8};
  return set != 0 ? negative : positive;
}

DYNAGAT_INLINE void prefetch(const char* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
}

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
