// Tables that hold only the rows (node, relation) with edges: sums of a node's rows.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "parallel.h"

namespace dynagat {

// out[n] = Σ_r table[rows[n * R + r]] over the relations r under which node n has a row (not -1).
// False if a row is outside the table.
template <class T>
bool sum_rows(const T* table, int64_t table_rows, int64_t width, const int32_t* rows, int64_t nodes,
              int64_t relations, T* out, int threads) {
  constexpr int64_t chunk = 256;
  std::atomic<bool> valid{true};
  parallel_for((nodes + chunk - 1) / chunk, threads, [&](int64_t task) {
    for (int64_t n = task * chunk, end = std::min(n + chunk, nodes); n < end; ++n) {
      T* to = out + n * width;
      bool is_empty = true;
      for (int64_t r = 0; r < relations; ++r) {
        const int64_t row = read_once(rows + n * relations + r);
        if (row < 0) continue;
        if (row >= table_rows) {
          valid = false;
          return;
        }
        const T* from = table + row * width;
        if (is_empty) std::copy_n(from, width, to);
        else
          for (int64_t c = 0; c < width; ++c) to[c] += from[c];
        is_empty = false;
      }
      if (is_empty) std::fill_n(to, width, T(0));
    }
  });
  return valid;
}

}  // namespace dynagat
