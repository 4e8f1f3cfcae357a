// Sums of rows: a bias added to all rows of a matrix, and its gradient, the sum of the rows.
#pragma once
#include <algorithm>
#include <cstdint>

#include "memory.h"
#include "parallel.h"
#include "simd.h"

namespace dynagat {
namespace DYNAGAT_ISA {

// Calls fn(task, first, last) for ranges of rows. They do not depend on the number of threads.
class RowRanges {
  const int64_t rows, rows_per_task;

 public:
  RowRanges(int64_t rows, int64_t width)
      : rows(rows),
        rows_per_task(std::max<int64_t>((rows + 1023) / 1024, 1 + 32768 / (width + 1))) {}

  int64_t tasks() const { return (rows + rows_per_task - 1) / rows_per_task; }

  template <class Fn>
  void for_each(int threads, const Fn& fn) const {
    parallel_for(tasks(), threads, [&](int64_t task) {
      fn(task, task * rows_per_task, std::min((task + 1) * rows_per_task, rows));
    });
  }
};

template <class T>
DYNAGAT_INLINE void add_row(T* sum, const T* row, int64_t width_) {
  int64_t c = 0;
  for (; c + width<T> <= width_; c += width<T>) store(sum + c, load(sum + c) + load(row + c));
  for (; c < width_; ++c) sum[c] += row[c];
}

// Row r of x += added[r * step ...]; step 0 adds the same row to all.
template <class T>
void add_rows(T* x, int64_t rows, int64_t width_, const T* added, int64_t step, int threads) {
  RowRanges(rows, width_).for_each(threads, [&](int64_t, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row)
      add_row(x + row * width_, added + row * step, width_);
  });
}

template <class T>
void add_up_rows(const T* x, int64_t rows, int64_t width_, T* out, int threads) {
  const RowRanges ranges(rows, width_);
  Buffer<T> parts(ranges.tasks() * width_);
  ranges.for_each(threads, [&](int64_t task, int64_t first, int64_t last) {
    T* sum = parts.data() + task * width_;
    std::fill(sum, sum + width_, T(0));
    for (int64_t row = first; row < last; ++row) add_row(sum, x + row * width_, width_);
  });
  std::fill(out, out + width_, T(0));
  for (int64_t task = 0; task < ranges.tasks(); ++task)
    add_row(out, parts.data() + task * width_, width_);
}

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
