// Products of the rows of two nodes, z_p = x_i * x_j for pairs p = (i, j), and their gradient.
//
// Included by pairs.cpp, once per instruction set. All indices are checked when they are copied.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "csr.h"
#include "kernels.h"
#include "memory.h"
#include "parallel.h"
#include "plan.h"
#include "simd.h"

namespace dynagat {
namespace DYNAGAT_ISA {

// How many rows ahead memory is requested: about 2 KB, because rows are read in random order.
template <class T>
int64_t rows_ahead(int64_t channels) {
  return std::clamp<int64_t>(2048 / (channels * int64_t(sizeof(T)) + 1), 1, 16);
}

template <class T>
DYNAGAT_INLINE void prefetch_row(const T* row, int64_t channels) {
  prefetch(reinterpret_cast<const char*>(row), channels * int64_t(sizeof(T)));
}

// out = x * y
template <class T>
DYNAGAT_INLINE void multiply(const T* x, const T* y, int64_t channels, T* out) {
  int64_t c = 0;
  for (; c + width<T> <= channels; c += width<T>) store(out + c, load(x + c) * load(y + c));
  for (; c < channels; ++c) out[c] = x[c] * y[c];
}

// sum += x * y
template <class T>
DYNAGAT_INLINE void add_product(const T* x, const T* y, int64_t channels, T* sum) {
  int64_t c = 0;
  for (; c + width<T> <= channels; c += width<T>)
    store(sum + c, load(sum + c) + load(x + c) * load(y + c));
  for (; c < channels; ++c) sum[c] += x[c] * y[c];
}

// A checked copy of `count` ends of pairs from the end `first` on: end 2p + s is the node at
// side s of pair p. Copies up to an index that is out of range, and returns that one.
inline BadIndex copy_ends(const Pairs& pairs, int64_t nodes, int64_t first, int64_t count,
                          int32_t* to) {
  for (int64_t e = 0; e < count; ++e) {
    const int64_t node = pairs.ends[first + e];
    if (uint64_t(node) >= uint64_t(nodes)) return {1, node};
    to[e] = int32_t(node);
  }
  return {};
}

inline BadIndex first_of(const std::vector<BadIndex>& found) {
  for (const BadIndex& each : found)
    if (each.argument) return each;
  return {};
}

// out[p] = x[i] * x[j] for each pair p.
template <class T>
BadIndex multiply_pairs(const T* x, int64_t nodes, int64_t channels, const Pairs& pairs, T* out,
                        int threads) {
  constexpr int64_t chunk = 256;
  const int64_t tasks = (pairs.count + chunk - 1) / chunk, ahead = rows_ahead<T>(channels);
  std::vector<BadIndex> bad(tasks);
  parallel_for(tasks, threads, [&](int64_t task) {
    const int64_t first = task * chunk, count = std::min(chunk, pairs.count - first);
    int32_t end[2 * chunk];
    bad[task] = copy_ends(pairs, nodes, 2 * (pairs.first + first), 2 * count, end);
    if (bad[task].argument) return;
    for (int64_t p = 0; p < count; ++p) {
      const int64_t next = 2 * std::min(p + ahead, count - 1);
      prefetch_row(x + end[next] * channels, channels);
      prefetch_row(x + end[next + 1] * channels, channels);
      multiply(x + end[2 * p] * channels, x + end[2 * p + 1] * channels, channels,
               out + (first + p) * channels);
    }
  });
  return first_of(bad);
}

// The ends of pairs, grouped by node, in the order of the pairs.
class EndsByNode {
  int64_t num_nodes, num_ends;
  Buffer<int32_t> node, rowptr, end;  // node of each end; ends of node i: end[rowptr[i]...]

 public:
  BadIndex bad;

  EndsByNode(const Pairs& pairs, int64_t nodes, int threads)
      : num_nodes(nodes),
        num_ends(2 * pairs.count),
        node(num_ends),
        rowptr(nodes + 1),
        end(num_ends) {
    constexpr int64_t chunk = 1 << 15;
    std::vector<BadIndex> found((num_ends + chunk - 1) / chunk);
    parallel_for(int64_t(found.size()), threads, [&](int64_t task) {
      const int64_t first = task * chunk, count = std::min(chunk, num_ends - first);
      found[task] = copy_ends(pairs, nodes, 2 * pairs.first + first, count, node.data() + first);
    });
    bad = first_of(found);
    if (bad.argument) return;
    sort_by_row(num_ends, nodes, rowptr.data(), threads, [&](int64_t e) { return node[e]; },
                [&](int32_t position, int64_t e) { end[position] = int32_t(e); });
  }

  Plan plan() { return make_plan(rowptr.data(), num_nodes, 1); }
  int64_t begin_of(int64_t i) { return rowptr[i]; }

  // sum += dz[p] * x[j] for the pairs p = (i, j) or (j, i) at the positions [begin, stop).
  template <class T>
  void add(const T* dz, const T* x, int64_t channels, int64_t begin, int64_t stop, T* sum) {
    const int64_t ahead = rows_ahead<T>(channels);
    for (int64_t at = begin; at < stop; ++at) {
      const int64_t next = end[std::min(at + ahead, num_ends - 1)], here = end[at];
      prefetch_row(dz + next / 2 * channels, channels);
      prefetch_row(x + node[next ^ 1] * channels, channels);
      add_product(dz + here / 2 * channels, x + node[here ^ 1] * channels, channels, sum);
    }
  }
};

// dx[i] = Σ dz[p] * x[j] over the pairs p = (i, j) and (j, i), so twice for (i, i). If `adds`, the
// sums are added to dx. Each node is summed by one task, and a hub in segments whose sums are added
// in their order: the bits do not depend on the number of threads.
template <class T>
BadIndex differentiate_pairs(const T* dz, const T* x, int64_t nodes, int64_t channels,
                             const Pairs& pairs, bool adds, T* dx, int threads) {
  EndsByNode ends(pairs, nodes, threads);
  if (ends.bad.argument) return ends.bad;
  const Plan plan = ends.plan();
  const int64_t num_segments = int64_t(plan.segments.size());
  Buffer<T> partial(num_segments * channels);
  parallel_for(plan.tasks() + num_segments, threads, [&](int64_t task) {
    if (task < num_segments) {  // first, because they are the longest
      const Segment& part = plan.segments[task];
      T* sum = partial.data() + task * channels;
      std::fill_n(sum, channels, T(0));
      ends.add(dz, x, channels, part.begin, part.end, sum);
      return;
    }
    task -= num_segments;
    for (int64_t i = plan.bounds[task]; i < plan.bounds[task + 1]; ++i) {
      const int64_t begin = ends.begin_of(i), stop = ends.begin_of(i + 1);
      if (!adds) std::fill_n(dx + i * channels, channels, T(0));
      if (stop - begin <= plan.max_group_edges)
        ends.add(dz, x, channels, begin, stop, dx + i * channels);
    }
  });
  for (const Hub& hub : plan.hubs)
    for (int64_t n = hub.first_segment; n < hub.last_segment; ++n)
      for (int64_t c = 0; c < channels; ++c)
        dx[hub.group * channels + c] += partial[n * channels + c];
  return {};
}

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
