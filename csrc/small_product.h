// Products of small matrices, which take less time than the call of a library. In one thread.
#pragma once
#include <algorithm>
#include <cstdint>

#include "columns.h"
#include "features.h"
#include "memory.h"
#include "sparse.h"

namespace dynagat {
namespace DYNAGAT_ISA {

template <class T>
void multiply_small(const SmallProduct& p) {
  constexpr int64_t block = 64;
  auto *left = static_cast<const T*>(p.left), *table = static_cast<const T*>(p.table);
  auto* bias = static_cast<const T*>(p.bias);
  // The vectors of a narrow result would be mostly empty.
  const bool by_dots = p.is_transposed && p.step == 1 && p.width < width<T>;
  Buffer<T> transposed(p.is_transposed && !by_dots ? p.inner * p.width : 0);
  if (p.is_transposed && !by_dots) {
    for (int64_t c = 0; c < p.width; ++c)
      for (int64_t k = 0; k < p.inner; ++k) transposed[k * p.width + c] = table[c * p.inner + k];
    table = transposed.data();
  }
  SparseEntry<T> entry[block];
  for (int64_t row = 0; row < p.rows; ++row) {
    T* sum = static_cast<T*>(p.out) + row * p.width;
    if (!p.adds) std::fill(sum, sum + p.width, T(0));
    if (bias) add_row(sum, bias, p.width);
    for (int64_t c = 0; by_dots && c < p.width; ++c)
      sum[c] += dot(left + row * p.row_step, table + c * p.inner, p.inner);
    for (int64_t k = 0; !by_dots && k < p.inner;) {
      int64_t count = 0;
      for (; k < p.inner && count < block; ++k, ++count)
        entry[count] = {k, left[row * p.row_step + k * p.step]};
      add_block(entry, count, table, p.width, sum);
    }
  }
}

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
