// Rows of a table, read as padded rows of the compute type and written in the storage type.
//
// A padded row has H heads of `per_head` whole vectors each. If C fills whole vectors and the
// storage type is the compute type, the padded row is the stored row itself and nothing is copied.
// If C fills whole vectors, stored rows of half precision can be read with `load`, too.
#pragma once
#include "problem.h"
#include "simd.h"

namespace dynagat {
namespace DYNAGAT_ISA {

DYNAGAT_INLINE float from_bfloat16(uint16_t x) {
  uint32_t bits = uint32_t(x) << 16;
  float y;
  std::memcpy(&y, &bits, 4);
  return y;
}
DYNAGAT_INLINE uint16_t to_bfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (x != x) return uint16_t(bits >> 16) | 0x40;
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);  // to nearest, ties to even
}
// The same for a whole vector. The intrinsics take half as many instructions as what GCC 12 makes
// of
// `__builtin_convertvector`.
typedef uint32_t Words __attribute__((vector_size(vector_bytes)));
typedef uint16_t HalfWords __attribute__((vector_size(vector_bytes / 2)));
DYNAGAT_INLINE Vec<float> from_bfloat16s(const uint16_t* from) {
#if DYNAGAT_VECTOR_BYTES == 64
  const __m256i half = _mm256_loadu_si256((const __m256i*)from);
  return (Vec<float>)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
#elif defined(__AVX2__)
  const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)from));
  const __m256i bytes =  // to the upper half of each number; -1: zero
      _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7,  //
                       -1, -1, 8, 9, -1, -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
  return (Vec<float>)_mm256_shuffle_epi8(twice, bytes);
#else
  HalfWords half;
  std::memcpy(&half, from, sizeof(half));
  const Words bits = __builtin_convertvector(half, Words) << 16;
  Vec<float> x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
#endif
}
DYNAGAT_INLINE void to_bfloat16s(Vec<float> x, uint16_t* to) {
  Words bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Words result = x != x ? (bits >> 16) | 0x40 : rounded;
#if DYNAGAT_VECTOR_BYTES == 64
  _mm256_storeu_si256((__m256i*)to, _mm512_cvtepi32_epi16((__m512i)result));
#elif defined(__AVX2__)
  const __m256i lanes = (__m256i)result;
  _mm_storeu_si128((__m128i*)to, _mm_packus_epi32(_mm256_castsi256_si128(lanes),
                                                  _mm256_extracti128_si256(lanes, 1)));
#else
  const HalfWords half = __builtin_convertvector(result, HalfWords);
  std::memcpy(to, &half, sizeof(half));
#endif
}
#if defined(__F16C__)
DYNAGAT_INLINE float from_float16(uint16_t x) {
  return _cvtsh_ss(x);
}
DYNAGAT_INLINE uint16_t to_float16(float x) {
  return _cvtss_sh(x, 0);
}
DYNAGAT_INLINE Vec<float> from_float16s(const uint16_t* from) {
#if DYNAGAT_VECTOR_BYTES == 64
  return (Vec<float>)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from));
#else
  return (Vec<float>)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
#endif
}
#else
inline float from_float16(uint16_t x) {
  const uint32_t sign = uint32_t(x & 0x8000) << 16, exponent = (x >> 10) & 31, rest = x & 1023;
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * std::ldexp(float(rest), -24);
  const uint32_t bits = sign | (exponent == 31 ? 0x7f800000 : (exponent + 112) << 23) | rest << 13;
  float y;
  std::memcpy(&y, &bits, 4);
  return y;
}
inline uint16_t to_float16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint16_t sign = (bits >> 16) & 0x8000;
  const uint32_t size = bits & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7e00;
  if (size >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
  if (size < 0x38800000) {                       // subnormal in half precision
    float y;
    std::memcpy(&y, &size, 4);
    return sign | uint16_t(std::nearbyint(std::ldexp(y, 24)));
  }
  return sign | uint16_t((size - 0x38000000 + 0xfff + ((size >> 13) & 1)) >> 13);
}
#endif

// One number of a stored row.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};
DYNAGAT_INLINE Vec<float> load(const BFloat16* from) {
  return from_bfloat16s(&from->bits);
}
#if defined(__F16C__)
DYNAGAT_INLINE Vec<float> load(const Float16* from) {
  return from_float16s(&from->bits);
}
#endif

template <class A>
struct Rows {
  int64_t heads, channels, per_head, vectors, padded, bytes;  // per_head: vectors of one head
  Storage storage;
  bool direct;

  Rows(int64_t heads, int64_t channels, Storage storage)
      : heads(heads),
        channels(channels),
        per_head((channels + width<A> - 1) / width<A>),
        vectors(heads * per_head),
        padded(vectors * width<A>),
        bytes(heads * channels * bytes_of(storage)),
        storage(storage),
        direct(channels % width<A> == 0 &&
               storage == (sizeof(A) == 8 ? Storage::float64 : Storage::float32)) {}

  DYNAGAT_INLINE const char* at(const void* table, int64_t row) const {
    return static_cast<const char*>(table) + row * bytes;
  }

  DYNAGAT_INLINE const A* read(const void* table, int64_t row, A* scratch) const {
    if (direct) return reinterpret_cast<const A*>(at(table, row));
    return unpack(at(table, row), scratch);
  }

  const A* unpack(const char* from, A* to) const {
    const int64_t stride = per_head * width<A>;
    for (int64_t h = 0; h < heads; ++h, to += stride, from += channels * bytes_of(storage)) {
      auto* x = reinterpret_cast<const uint16_t*>(from);
      if (storage == Storage::bfloat16) {
        int64_t c = 0;
        if constexpr (sizeof(A) == 4)
          for (; c + width<A> <= channels; c += width<A>) store(to + c, from_bfloat16s(x + c));
        for (; c < channels; ++c) to[c] = from_bfloat16(x[c]);
      } else if (storage == Storage::float16) {
        int64_t c = 0;
#if defined(__F16C__)
        if constexpr (sizeof(A) == 4)
          for (; c + width<A> <= channels; c += width<A>) store(to + c, from_float16s(x + c));
#endif
        for (; c < channels; ++c) to[c] = from_float16(x[c]);
      } else {
        std::memcpy(to, from, channels * sizeof(A));
      }
      for (int64_t c = channels; c < stride; ++c) to[c] = 0;
    }
    return to - heads * stride;
  }

  DYNAGAT_INLINE void write(void* table, int64_t row, const A* from) const {
    char* to = const_cast<char*>(at(table, row));
    if (direct) {
      auto* y = reinterpret_cast<A*>(to);
      for (int64_t v = 0; v < vectors; ++v) store(y + v * width<A>, load(from + v * width<A>));
    } else {
      pack(to, from);
    }
  }

  void pack(char* to, const A* from) const {
    const int64_t stride = per_head * width<A>;
    for (int64_t h = 0; h < heads; ++h, from += stride, to += channels * bytes_of(storage)) {
      auto* half = reinterpret_cast<uint16_t*>(to);
      int64_t c = 0;
      if (storage == Storage::bfloat16) {
        if constexpr (sizeof(A) == 4)
          for (; c + width<A> <= channels; c += width<A>) to_bfloat16s(load(from + c), half + c);
        for (; c < channels; ++c) half[c] = to_bfloat16(from[c]);
      } else if (storage == Storage::float16) {
#if defined(__F16C__)
        if constexpr (sizeof(A) == 4)
          for (; c + 8 <= channels; c += 8)
            _mm_storeu_si128((__m128i*)(half + c), _mm256_cvtps_ph(_mm256_loadu_ps(from + c), 0));
#endif
        for (; c < channels; ++c) half[c] = to_float16(from[c]);
      } else {
        std::memcpy(to, from, channels * sizeof(A));
      }
    }
  }
};

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
