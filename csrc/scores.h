// Arithmetic per head: sums over channels, tiles of numbers per head, dropout.
#pragma once
#include <limits>
#include <numeric>

#include "rows.h"

namespace dynagat {
namespace DYNAGAT_ISA {

// partial[h] = Σ term(v) over the vectors v of head h. Per is the number of vectors per head: 1, 2,
// 4, or 8 for any multiple of 8, or 0 for any number.
template <int Per, class A, class Term>
DYNAGAT_INLINE void sum_per_head(int64_t heads, int64_t per_head, Vec<A>* partial,
                                 const Term& term) {
  if constexpr (Per == 1) {
#pragma GCC unroll 4
    for (int64_t h = 0; h < heads; ++h) partial[h] = term(h);
  } else if constexpr (Per == 2) {
#pragma GCC unroll 2
    for (int64_t h = 0; h < heads; ++h) partial[h] = term(2 * h) + term(2 * h + 1);
  } else if constexpr (Per == 4) {
    for (int64_t h = 0; h < heads; ++h)
      partial[h] = (term(4 * h) + term(4 * h + 1)) + (term(4 * h + 2) + term(4 * h + 3));
  } else if constexpr (Per == 8) {
    for (int64_t h = 0, v = 0; h < heads; ++h) {
      Vec<A> s0{}, s1{}, s2{}, s3{};
      for (const int64_t end = v + per_head; v < end; v += 4)
        s0 += term(v), s1 += term(v + 1), s2 += term(v + 2), s3 += term(v + 3);
      partial[h] = (s0 + s1) + (s2 + s3);
    }
  } else {
    for (int64_t h = 0, v = 0; h < heads; ++h) {
      Vec<A> s{};
      for (const int64_t end = v + per_head; v < end; ++v) s += term(v);
      partial[h] = s;
    }
  }
}

// Calls fn(v, group size, heads) for groups of vectors: heads[k] is the head of vector v + k.
template <int Per, int Group, class Fn>
DYNAGAT_INLINE void for_groups(int64_t vectors, int64_t per_head, const Fn& fn) {
  int64_t v = 0;
  auto head_of = [&](int64_t first, int64_t k) {
    if constexpr (Per == 1 || Per == 2 || Per == 4) return first / Per + k / Per;
    else if constexpr (Per == 8) return first / per_head;  // Group divides 8
    else return (first + k) / per_head;
  };
  constexpr int step = Per == 0 ? 1 : Group;
  for (; v + step <= vectors; v += step) {
    int64_t heads[step];
    DYNAGAT_UNROLL
    for (int k = 0; k < step; ++k) heads[k] = head_of(v, k);
    fn(v, std::integral_constant<int, step>{}, heads);
  }
  for (; v < vectors; ++v) {
    const int64_t head = Per == 0 ? v / per_head : v / (Per == 8 ? per_head : Per);
    fn(v, std::integral_constant<int, 1>{}, &head);
  }
}

// Read and write numbers at any address: as many as the last argument, a vector or a number, holds.
template <class A, class Like>
DYNAGAT_INLINE Like get(const A* from, Like) {
  Like x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}
template <class A, class Like>
DYNAGAT_INLINE void put(A* to, Like x) {
  std::memcpy(to, &x, sizeof(x));
}

// x where w is negative, else 1. Without a branch: which one is taken can't be predicted.
template <class A, class Like>
DYNAGAT_INLINE Like below_zero(Like w, A x) {
  if constexpr (std::is_same_v<A, Like>) {
    const A choice[] = {1, x};
    return choice[w < 0];
  } else {
    return w < 0 ? Like{} + x : Like{} + A(1);
  }
}

// Numbers per head, repeated to whole vectors so that they line up with an array [edges, H].
template <class A>
struct Tile {
  int64_t heads, vectors;
  explicit Tile(int64_t heads)
      : heads(heads), vectors(std::lcm<int64_t>(heads, width<A>) / width<A>) {}

  void repeat(const A* per_head, Vec<A>* tile) const {
    A* to = reinterpret_cast<A*>(tile);
    if (heads == 1) {
      tile[0] = all(per_head[0]);
    } else if (heads % width<A> == 0) {
      copy(to, per_head, heads);
    } else {
      for (int64_t at = 0; at < vectors * width<A>; at += heads) copy(to + at, per_head, heads);
    }
  }
  template <class Join>
  void fold(const Vec<A>* tile, A* per_head, const Join& join) const {
    const A* from = reinterpret_cast<const A*>(tile);
    copy(per_head, from, heads);
    for (int64_t at = heads; at < vectors * width<A>; at += heads)
      for_heads([&](int64_t h, auto like) {
        put(per_head + h, join(get(per_head + h, like), get(from + at + h, like)));
      });
  }
  // Calls fn(h, like) for all heads: `like` is a vector, half or a quarter of one if heads fill
  // whole ones, else one number.
  template <class Fn>
  DYNAGAT_INLINE void for_heads(const Fn& fn) const {
    constexpr int quarter = width<A> / 4;
    if (heads % width<A> == 0) {
      for (int64_t h = 0; h < heads; h += width<A>) fn(h, Vec<A>{});
    } else if (heads % (width<A> / 2) == 0) {
      for (int64_t h = 0; h < heads; h += width<A> / 2) fn(h, Part<A, 2>{});
    } else if (quarter >= 2 && heads % quarter == 0) {
      for (int64_t h = 0; h < heads; h += quarter) fn(h, Part<A, 4>{});
    } else {
      for (int64_t h = 0; h < heads; ++h) fn(h, A{});
    }
  }
};

// Counter-based dropout: entry n is dropped if a hash of (seed, n) is below the threshold, as in
// `keep_mask` of ops/reference.py. In attention, n counts edges and heads.
class Dropout {
  static constexpr int words = vector_bytes / 4;
  uint64_t threshold;
  uint32_t first, second;
  double scale;

  template <class Word>
  static DYNAGAT_INLINE Word mix(Word x) {
    x = (x ^ (x >> 16)) * 0x21F0AAADu;
    x = (x ^ (x >> 15)) * 0xD35A2D97u;
    return x ^ (x >> 15);
  }

 public:
  const bool active;

  Dropout(double probability, uint64_t seed)
      : threshold(uint64_t(probability * 4294967296.0)),
        first(mix(uint32_t(seed) ^ 0x9E3779B9u)),
        second(mix(uint32_t(seed >> 32) ^ first)),
        scale(probability < 1 ? 1 / (1 - probability) : 0),
        active(probability > 0) {}

  // factor[n] = 0 or 1 / (1 - p) for the entries start + n, n < count
  template <class A>
  DYNAGAT_INLINE void factors(uint64_t start, int64_t count, A* factor) const {
    int64_t n = 0;
    const Words least = Words{} + uint32_t(threshold);
    Words lane;
    for (int l = 0; l < words; ++l) lane[l] = uint32_t(l);
    for (; n < count && threshold >> 32 == 0; n += words) {
      const uint64_t entry = start + n;
      if (uint32_t(entry) > UINT32_MAX - (words - 1))
        break;  // the high word changes between the lanes
      const Words drawn =
          mix(mix((lane + uint32_t(entry)) ^ first) + (uint32_t(entry >> 32) ^ second));
      if constexpr (sizeof(A) == 4) {
        const Vec<A> drawn_factors = drawn >= least ? all(A(scale)) : Vec<A>{};
        if (n + words <= count) store(factor + n, drawn_factors);
        else copy(factor + n, reinterpret_cast<const A*>(&drawn_factors), count - n);
      } else {
        for (int l = 0; l < std::min<int64_t>(words, count - n); ++l)
          factor[n + l] = drawn[l] >= least[l] ? A(scale) : A(0);
      }
    }
    for (; n < count; ++n) {
      const uint64_t entry = start + n;
      const uint32_t drawn = mix(mix(uint32_t(entry) ^ first) + (uint32_t(entry >> 32) ^ second));
      factor[n] = drawn >= threshold ? A(scale) : A(0);
    }
  }
};

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
