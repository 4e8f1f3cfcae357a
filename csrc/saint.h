// GraphSAINT's samplers: nodes of random walks, random nodes or nodes of random edges, and the
// subgraph that a set of nodes induces. sampling/reference.py computes the same samples.
#pragma once
#include <algorithm>
#include <cstdint>

#include "sample.h"

namespace dynagat {

// visited[w], visited[count + w], ... are the nodes of walk w, which starts at a uniformly random
// node and moves to uniformly random keys. A walk stays at a node without keys.
inline void walk(const Neighbours& from, int64_t count, int64_t length, uint64_t seed,
                 int64_t* visited, int threads, FirstError& error) {
  constexpr int64_t chunk = 128;
  if (from.nodes == 0) return error.set(Error::node);
  for_each_chunk(count, chunk, threads, error, [&](int64_t begin, int64_t end) {
    const Stream roots(seed, 0);
    for (int64_t w = begin; w < end; ++w) visited[w] = Stream::number(roots.at(w), 0, from.nodes);
    for (int64_t step = 1; step <= length; ++step) {
      const Stream stream(seed, uint64_t(step));
      const int64_t* here = visited + (step - 1) * count;
      int64_t* there = visited + step * count;
      for (int64_t w = begin; w < end; ++w) prefetch(from.rowptr, here[w]);
      for (int64_t w = begin; w < end; ++w) {
        const Span row = row_of(from, here[w], error);
        there[w] = row.length ? row.begin + Stream::number(stream.at(w), 0, row.length) : -1;
        if (row.length) prefetch(from.key, there[w]);
      }
      for (int64_t w = begin; w < end; ++w)
        there[w] = there[w] < 0 ? here[w] : key_at(from, there[w], error);
    }
  });
}

// The queries of uniformly random edges.
inline void draw_nodes(const Neighbours& from, int64_t count, uint64_t seed, int64_t* visited,
                       int threads, FirstError& error) {
  if (from.edges == 0) return error.set(Error::node);
  if (from.edges > int64_t(UINT32_MAX)) return error.set(Error::size);
  for_each_chunk(count, 128, threads, error, [&](int64_t begin, int64_t end) {
    const Stream stream(seed, 0);
    for (int64_t n = begin; n < end; ++n) {
      const int64_t position = Stream::number(stream.at(n), 0, from.edges);
      int64_t low = 0, high = from.nodes;  // rowptr[low] <= position < rowptr[high]
      while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        (from.rowptr[middle] <= position ? low : high) = middle;
      }
      visited[n] = low;
    }
  });
}

// Both ends of random edges: a random query out of `live`, the nodes with edges, then one of its
// keys.
inline void draw_edges(const Neighbours& from, const int64_t* live, int64_t num_live, int64_t count,
                       uint64_t seed, int64_t* visited, int threads, FirstError& error) {
  if (num_live == 0) return error.set(Error::node);
  for_each_chunk(count, 128, threads, error, [&](int64_t begin, int64_t end) {
    const Stream stream(seed, 0);
    for (int64_t n = begin; n < end; ++n) {
      const uint64_t at = stream.at(n);
      const int64_t query = read_once(live + Stream::number(at, 0, num_live));
      visited[n] = visited[count + n] = 0;
      if (uint64_t(query) >= uint64_t(from.nodes)) return error.set(Error::node);
      const Span row = row_of(from, query, error);
      if (row.length == 0) return error.set(Error::rowptr);
      visited[n] = query;
      visited[count + n] = key_at(from, row.begin + Stream::number(at, 1, row.length), error);
    }
  });
}

// All edges among the given nodes, which must be distinct; a node's local index is its position.
class Induced {
  const Neighbours& from;
  FirstError& error;
  Table table;
  Array<int64_t> start;  // where the kept edges of a row are stored
  Array<int32_t> kept_key;
  Array<int64_t> kept_position;
  Picks picks;

  void look_up(const int64_t* node, int64_t i, int64_t until) {
    constexpr int64_t ahead = 12;
    for (; i < until; ++i) {
      const Span row = row_of(from, node[i], error);
      int64_t at = start[i];
      if (row.length != start[i + 1] - at)
        return error.set(Error::rowptr);  // it was changed meanwhile
      for (int64_t n = 0; n < row.length; ++n) {
        if (n + ahead < row.length) table.prefetch(key_at(from, row.begin + n + ahead, error));
        const int32_t index = table.find(key_at(from, row.begin + n, error));
        if (index < 0) continue;
        kept_key[at] = index;
        kept_position[at++] = row.begin + n;
      }
      picks.rowptr[i + 1] = int32_t(at - start[i]);
    }
  }

  void pack(int64_t i, int64_t until) {
    for (; i < until; ++i) {
      const int64_t to = picks.rowptr[i], count = picks.rowptr[i + 1] - to;
      for (int64_t n = 0; n < count; ++n) {
        picks.key[to + n] = kept_key[start[i] + n];
        const int64_t position = kept_position[start[i] + n];
        picks.edge[to + n] = from.edge_id.data ? from.edge_id[position] : position;
      }
    }
  }

  bool index_nodes(const int64_t* node) {
    const int64_t count = start.count - 1;
    table.reserve(count, nullptr, 0);
    start[0] = 0;
    for (int64_t n = 0; n < count && !error; ++n) {
      if (uint64_t(node[n]) >= uint64_t(from.nodes)) error.set(Error::node);
      else if (table.add(int32_t(node[n]), int32_t(n)) != n) error.set(Error::twice);
      else start[n + 1] = start[n] + row_of(from, node[n], error).length;
    }
    return !error;
  }

  // Turns picks.rowptr from counts into offsets.
  bool add_up() {
    int64_t total = picks.rowptr[0] = 0;
    for (int64_t i = 1; i < picks.rowptr.count; ++i) {
      total += picks.rowptr[i];
      if (total > INT32_MAX) error.set(Error::size);
      picks.rowptr[i] = int32_t(std::min<int64_t>(total, INT32_MAX));
    }
    return !error;
  }

 public:
  Induced(const Neighbours& from, int64_t count, FirstError& error)
      : from(from), error(error), table(from.nodes), start(count + 1) {
    picks.rowptr = Array<int32_t>(count + 1);
  }

  Picks run(const int64_t* node, int threads) {
    constexpr int64_t chunk = 128;
    const int64_t count = start.count - 1;
    if (!index_nodes(node)) return std::move(picks);
    kept_key = Array<int32_t>(start[count]), kept_position = Array<int64_t>(start[count]);
    for_each_chunk(count, chunk, threads, error,
                   [&](int64_t i, int64_t end) { look_up(node, i, end); });
    if (error || !add_up()) return std::move(picks);
    const int64_t total = picks.rowptr[count];
    picks.key = Array<int32_t>(total), picks.edge = Array<int64_t>(total);
    for_each_chunk(count, chunk, threads, error, [&](int64_t i, int64_t end) { pack(i, end); });
    return std::move(picks);
  }
};

}  // namespace dynagat
