// Dropout of an array, dense or sparse. No mask is stored: see `Dropout`.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "scores.h"
#include "sparse.h"

namespace dynagat {
namespace DYNAGAT_ISA {

// out = x * (0 or 1 / (1 - p)); a product, so that NaN and infinities stay
template <class T>
void drop_dense(const T* x, int64_t count, const DropRule& rule, T* out, int threads) {
  constexpr int64_t chunk = 1 << 15, block = 256;
  const Dropout dropout(rule.probability, rule.seed);
  parallel_for((count + chunk - 1) / chunk, threads, [&](int64_t task) {
    const int64_t end = std::min((task + 1) * chunk, count);
    T factor[block];
    for (int64_t first = task * chunk; first < end; first += block) {
      const int64_t some = std::min(block, end - first);
      dropout.factors(uint64_t(first), some, factor);
      for (int64_t n = 0; n < some; ++n) out[first + n] = x[first + n] * factor[n];
    }
  });
}

template <class T>
bool drop_sparse(const SparseMatrix& m, const DropRule& rule, T* values, T* dense) {
  const Dropout dropout(rule.probability, rule.seed);
  auto* from = static_cast<const T*>(m.values);
  return for_each_row(m, [&](int64_t row) {
    T* to = dense + row * m.columns;
    std::memset(to, 0, m.columns * sizeof(T));
    const EntryRange range(m, row);
    if (!range.valid) return false;
    for (int64_t e = range.first; e < range.last; ++e) {
      const int64_t column = read_once(m.index + e), place = place_of(m, e);
      if (uint64_t(column) >= uint64_t(m.columns) || place < 0) return false;
      T factor;
      dropout.factors(uint64_t(row) * m.columns + column, 1, &factor);
      values[place] = to[column] = from[place] * factor;
    }
    return true;
  });
}

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
