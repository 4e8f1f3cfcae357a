// Groups an edge list by query and, transposed, by key: two stable counting sorts of a checked copy
// of the indices.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "memory.h"
#include "parallel.h"

namespace dynagat {

// An int32 or int64 array; data is null if the array is absent.
struct Index {
  const void* data = nullptr;
  int bytes = 0;

  int64_t operator[](int64_t at) const {
    return bytes == 8 ? read_once(static_cast<const int64_t*>(data) + at)
                      : read_once(static_cast<const int32_t*>(data) + at);
  }
};

struct Edges {
  Index query, key, relation, edge_id;  // the last two may be absent
  int64_t count = 0;
};

struct Grouping {
  int64_t num_queries, num_keys, relations;
  int64_t first_loop, loop_relation;  // edge id of the first self-loop; negative: keep loops
  int32_t *rowptr, *key_index, *edge_id, *key_rowptr, *key_query, *key_position;
};

// The first index that is out of range; argument is 0 if there is none.
struct BadIndex {
  int argument = 0;  // 1 query, 2 key, 3 relation
  int64_t value = 0;
};

// The row (query * relations + relation) and the key of each edge. They are copied when they are
// checked, because another thread may write the caller's arrays meanwhile.
struct CheckedEdges {
  Buffer<int32_t> row, key;  // row -1: a self-loop to be left out
  BadIndex bad;

  CheckedEdges(const Edges& edges, const Grouping& to, int threads)
      : row(edges.count), key(edges.count) {
    constexpr int64_t chunk = 1 << 16;
    const int64_t chunks = (edges.count + chunk - 1) / chunk;
    std::vector<BadIndex> first_bad(chunks);
    parallel_for(chunks, threads, [&](int64_t task) {
      const int64_t until = std::min((task + 1) * chunk, edges.count);
      BadIndex first;
      for (int64_t e = task * chunk; e < until && !first.argument; ++e) first = read(edges, to, e);
      first_bad[task] = first;
    });
    for (const BadIndex& each : first_bad)
      if (!bad.argument) bad = each;
  }

 private:
  BadIndex read(const Edges& edges, const Grouping& to, int64_t e) {
    const int64_t i = edges.query[e], j = edges.key[e];
    const int64_t r = edges.relation.data ? edges.relation[e] : 0;
    if (uint64_t(i) >= uint64_t(to.num_queries)) return {1, i};
    if (uint64_t(j) >= uint64_t(to.num_keys)) return {2, j};
    if (uint64_t(r) >= uint64_t(to.relations)) return {3, r};
    row[e] = to.first_loop >= 0 && i == j ? -1 : int32_t(i * to.relations + r);
    key[e] = int32_t(j);
    return {};
  }
};

// Stable counting sort of the items [0, count) by row(item). Calls put(position, item) once for
// each item; items with a negative row are left out. Each slice of items has its own histogram.
template <class Row, class Put>
void sort_by_row(int64_t count, int64_t num_rows, int32_t* rowptr, int threads, const Row& row,
                 const Put& put) {
  // With more slices, the histograms would cost more than the items.
  const int64_t slices = std::clamp<int64_t>(count / (num_rows + 1), 1, threads);
  Buffer<int32_t> counts(slices * num_rows + 1);
  const int64_t length = (count + slices - 1) / slices;
  parallel_for(slices, threads, [&](int64_t s) {
    int32_t* histogram = counts.data() + s * num_rows;
    std::fill_n(histogram, num_rows, 0);
    for (int64_t at = s * length, end = std::min(at + length, count); at < end; ++at) {
      const int64_t to = row(at);
      if (to >= 0) ++histogram[to];
    }
  });
  int32_t total = 0;
  for (int64_t r = 0; r < num_rows; ++r) {
    rowptr[r] = total;
    for (int64_t s = 0; s < slices; ++s) {
      const int32_t here = counts[s * num_rows + r];
      counts[s * num_rows + r] = total;
      total += here;
    }
  }
  rowptr[num_rows] = total;
  parallel_for(slices, threads, [&](int64_t s) {
    int32_t* histogram = counts.data() + s * num_rows;
    for (int64_t at = s * length, end = std::min(at + length, count); at < end; ++at) {
      const int64_t to = row(at);
      if (to >= 0) put(histogram[to]++, at);
    }
  });
}

inline BadIndex group(const Edges& edges, const Grouping& to, int threads) {
  constexpr int64_t min_edges = 1 << 15;  // for several threads to be faster
  if (edges.count < min_edges) threads = 1;
  const CheckedEdges checked(edges, to, threads);
  if (checked.bad.argument) return checked.bad;
  const int64_t R = to.relations,
                loops = to.first_loop < 0 ? 0 : std::min(to.num_queries, to.num_keys);
  // The items are the edges and then one self-loop per node, so a query's loop comes last in its
  // row.
  sort_by_row(edges.count + loops, to.num_queries * R, to.rowptr, threads,
              [&](int64_t e) -> int64_t {
    return e < edges.count ? checked.row[e] : (e - edges.count) * R + to.loop_relation;
  }, [&](int32_t position, int64_t e) {
    const bool loop = e >= edges.count;
    to.key_index[position] = loop ? int32_t(e - edges.count) : checked.key[e];
    to.edge_id[position] = int32_t(loop                 ? to.first_loop + e - edges.count
                                   : edges.edge_id.data ? edges.edge_id[e]
                                                        : e);
  });
  const int64_t used = to.rowptr[to.num_queries * R];
  Buffer<int32_t> row_of(used);
  for (int64_t row = 0; row < to.num_queries * R; ++row)
    for (int32_t at = to.rowptr[row]; at < to.rowptr[row + 1]; ++at) row_of[at] = int32_t(row);
  sort_by_row(used, to.num_keys * R, to.key_rowptr, threads, [&](int64_t at) {
    return int64_t(to.key_index[at]) * R + (R > 1 ? row_of[at] % R : 0);
  }, [&](int32_t position, int64_t at) {
    to.key_query[position] = int32_t(R > 1 ? row_of[at] / R : row_of[at]);
    to.key_position[position] = int32_t(at);
  });
  // Positions are left over if existing loops were replaced.
  for (int64_t at = used; at < edges.count + loops; ++at)
    to.key_index[at] = to.edge_id[at] = to.key_query[at] = to.key_position[at] = 0;
  return {};
}

}  // namespace dynagat
