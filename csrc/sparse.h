// Products of a sparse matrix with a dense one. Each row of the result is the work of one thread
// and is summed in the order of the entries.
//
// All indices are checked when they are read.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "features.h"
#include "parallel.h"
#include "simd.h"

namespace dynagat {
namespace DYNAGAT_ISA {

template <class T>
struct SparseEntry {
  int64_t row;  // of the table
  T value;
};

// A range of entries of one row; valid if it lies inside the arrays.
struct EntryRange {
  int64_t first, last;
  bool valid;

  EntryRange(const SparseMatrix& m, int64_t row)
      : first(read_once(m.ptr + row)),
        last(read_once(m.ptr + row + 1)),
        valid(0 <= first && first <= last && last <= m.count) {}
};

// Where the value of an entry is; -1 if it is nowhere.
DYNAGAT_INLINE int64_t place_of(const SparseMatrix& m, int64_t entry) {
  if (!m.position) return entry;
  const int64_t place = read_once(m.position + entry);
  return uint64_t(place) < uint64_t(m.count) ? place : -1;
}

// sum[0 .. V vectors) += value * row, over the entries
template <int V, class T>
DYNAGAT_INLINE void add_entries(const SparseEntry<T>* entry, int64_t count, const T* table,
                                int64_t width_, T* sum) {
  Vec<T> total[V];
  DYNAGAT_UNROLL
  for (int v = 0; v < V; ++v) total[v] = load(sum + v * width<T>);
  for (int64_t e = 0; e < count; ++e) {
    const Vec<T> value = all(entry[e].value);
    const T* row = table + entry[e].row * width_;
    DYNAGAT_UNROLL
    for (int v = 0; v < V; ++v) total[v] += value * load(row + v * width<T>);
  }
  DYNAGAT_UNROLL
  for (int v = 0; v < V; ++v) store(sum + v * width<T>, total[v]);
}

template <class T>
void add_block(const SparseEntry<T>* entry, int64_t count, const T* table, int64_t width_, T* sum) {
  int64_t at = 0;
  for (; at + 8 * width<T> <= width_; at += 8 * width<T>)
    add_entries<8>(entry, count, table + at, width_, sum + at);
  for (; at + 2 * width<T> <= width_; at += 2 * width<T>)
    add_entries<2>(entry, count, table + at, width_, sum + at);
  for (; at + width<T> <= width_; at += width<T>)
    add_entries<1>(entry, count, table + at, width_, sum + at);
  for (; at < width_; ++at)
    for (int64_t e = 0; e < count; ++e)
      sum[at] += entry[e].value * table[entry[e].row * width_ + at];
}

constexpr int64_t rows_per_task = 32;

// Calls fn(row) for every row, which returns whether the row's indices are valid.
template <class Fn>
bool for_each_row(const SparseMatrix& m, const Fn& fn) {
  std::atomic<bool> valid{true};
  parallel_for((m.rows + rows_per_task - 1) / rows_per_task, m.threads, [&](int64_t task) {
    const int64_t last = std::min((task + 1) * rows_per_task, m.rows);
    for (int64_t row = task * rows_per_task; row < last; ++row)
      if (!fn(row)) valid = false;
  });
  return valid;
}

template <class T>
bool multiply_sparse(const SparseMatrix& m, const T* table, int64_t width_, const T* bias, T* out) {
  constexpr int64_t block = 64;  // entries whose rows of the table are requested ahead
  auto* values = static_cast<const T*>(m.values);
  return for_each_row(m, [&](int64_t row) {
    T* sum = out + row * width_;
    for (int64_t c = 0; c < width_; ++c) sum[c] = bias ? bias[c] : T(0);
    const EntryRange range(m, row);
    if (!range.valid) return false;
    SparseEntry<T> entry[block];
    for (int64_t e = range.first; e < range.last;) {
      int64_t count = 0;
      for (; e < range.last && count < block; ++e) {
        const int64_t column = read_once(m.index + e), place = place_of(m, e);
        if (uint64_t(column) >= uint64_t(m.columns) || place < 0) return false;
        entry[count] = {column, values[place]};
        prefetch(reinterpret_cast<const char*>(table + column * width_), width_ * sizeof(T));
        count += entry[count].value != 0;
      }
      add_block(entry, count, table, width_, sum);
    }
    return true;
  });
}

template <class T>
T dot(const T* x, const T* y, int64_t count) {
  Vec<T> sums{};
  int64_t at = 0;
  for (; at + width<T> <= count; at += width<T>) sums += load(x + at) * load(y + at);
  T total = 0;
  for (int lane = 0; lane < width<T>; ++lane) total += sums[lane];
  for (; at < count; ++at) total += x[at] * y[at];
  return total;
}

template <class T>
bool multiply_pairs_of_rows(const SparseMatrix& m, const T* left, const T* right, int64_t width_,
                            T* out) {
  return for_each_row(m, [&](int64_t row) {
    const EntryRange range(m, row);
    if (!range.valid) return false;
    for (int64_t e = range.first; e < range.last; ++e) {
      const int64_t column = read_once(m.index + e), place = place_of(m, e);
      if (uint64_t(column) >= uint64_t(m.columns) || place < 0) return false;
      out[place] = dot(left + row * width_, right + column * width_, width_);
    }
    return true;
  });
}

template <class T>
bool count_entries(const T* x, int64_t rows, int64_t columns, int64_t most, int64_t* counts,
                   int threads) {
  const int64_t tasks = (rows + rows_per_task - 1) / rows_per_task;
  std::atomic<int64_t> total{0};
  parallel_for(tasks, threads, [&](int64_t task) {
    if (total > most) return;
    const int64_t last = std::min((task + 1) * rows_per_task, rows);
    int64_t found = 0;
    for (int64_t row = task * rows_per_task; row < last; ++row) {
      typename Lanes<T>::I zeros{};
      int64_t c = 0, count = 0;
      for (; c + width<T> <= columns; c += width<T>) zeros += load(x + row * columns + c) == 0;
      count += c;
      for (int lane = 0; lane < width<T>; ++lane) count += zeros[lane];  // a true lane is -1
      for (; c < columns; ++c) count += x[row * columns + c] != 0;
      counts[row] = count;
      found += count;
    }
    total += found;
  });
  return total <= most;
}

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
