// GraphSAINT's samplers: the nodes that walks, single draws or drawn edges visit, and the subgraph
// that a set of nodes induces. sampling/reference.py is the twin.
#pragma once
#include <algorithm>
#include <cstdint>

#include "sample.h"

namespace dynagat {

// visited[w], visited[count + w], ...: walk w starts at any node and goes on to one of its keys,
// each as likely; a node without keys stays.
inline void walk(const Neighbours& from, int64_t count, int64_t length, uint64_t seed,
                 int64_t* visited, int threads, Alarm& alarm) {
  constexpr int64_t chunk = 128;
  if (from.nodes == 0) return alarm.set(Trouble::node);
  over_chunks(count, chunk, threads, alarm, [&](int64_t begin, int64_t end) {
    const Stream roots(seed, 0);
    for (int64_t w = begin; w < end; ++w) visited[w] = Stream::number(roots.at(w), 0, from.nodes);
    for (int64_t step = 1; step <= length; ++step) {
      const Stream stream(seed, uint64_t(step));
      const int64_t* here = visited + (step - 1) * count;
      int64_t* there = visited + step * count;
      for (int64_t w = begin; w < end; ++w) prefetch(from.rowptr, here[w]);
      for (int64_t w = begin; w < end; ++w) {
        const Span row = row_of(from, here[w], alarm);
        there[w] = row.length ? row.begin + Stream::number(stream.at(w), 0, row.length) : -1;
        if (row.length) prefetch(from.key, there[w]);
      }
      for (int64_t w = begin; w < end; ++w)
        there[w] = there[w] < 0 ? here[w] : key_at(from, there[w], alarm);
    }
  });
}

// The query of any edge, each as likely.
inline void draw_nodes(const Neighbours& from, int64_t count, uint64_t seed, int64_t* visited,
                       int threads, Alarm& alarm) {
  if (from.edges == 0) return alarm.set(Trouble::node);
  if (from.edges > int64_t(UINT32_MAX)) return alarm.set(Trouble::size);
  over_chunks(count, 128, threads, alarm, [&](int64_t begin, int64_t end) {
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

// Both ends of an edge of any of the `live` nodes, which are those that have one.
inline void draw_edges(const Neighbours& from, const int64_t* live, int64_t num_live, int64_t count,
                       uint64_t seed, int64_t* visited, int threads, Alarm& alarm) {
  if (num_live == 0) return alarm.set(Trouble::node);
  over_chunks(count, 128, threads, alarm, [&](int64_t begin, int64_t end) {
    const Stream stream(seed, 0);
    for (int64_t n = begin; n < end; ++n) {
      const uint64_t at = stream.at(n);
      const int64_t query = live[Stream::number(at, 0, num_live)];
      visited[n] = visited[count + n] = 0;
      if (uint64_t(query) >= uint64_t(from.nodes)) return alarm.set(Trouble::node);
      const Span row = row_of(from, query, alarm);
      if (row.length == 0) return alarm.set(Trouble::rowptr);
      visited[n] = query;
      visited[count + n] = key_at(from, row.begin + Stream::number(at, 1, row.length), alarm);
    }
  });
}

// All edges among the nodes, which are distinct, numbered by their place.
class Induced {
  const Neighbours& from;
  Alarm& alarm;
  Table table;
  Array<int64_t> start;  // where a row has room for all its edges
  Array<int32_t> found_key;
  Array<int64_t> found_edge;
  Picks picks;

  void look_up(const int64_t* node, int64_t i, int64_t until) {
    constexpr int64_t ahead = 12;
    for (; i < until; ++i) {
      const Span row = row_of(from, node[i], alarm);
      int64_t at = start[i];
      if (row.length != start[i + 1] - at) return alarm.set(Trouble::rowptr);  // it changed
      for (int64_t n = 0; n < row.length; ++n) {
        if (n + ahead < row.length) table.prefetch(key_at(from, row.begin + n + ahead, alarm));
        const int32_t number = table.find(key_at(from, row.begin + n, alarm));
        if (number < 0) continue;
        found_key[at] = number;
        found_edge[at++] = row.begin + n;
      }
      picks.rowptr[i + 1] = int32_t(at - start[i]);
    }
  }

  void pack(int64_t i, int64_t until) {
    for (; i < until; ++i) {
      const int64_t to = picks.rowptr[i], count = picks.rowptr[i + 1] - to;
      for (int64_t n = 0; n < count; ++n) {
        picks.key[to + n] = found_key[start[i] + n];
        const int64_t position = found_edge[start[i] + n];
        picks.edge[to + n] = from.edge_id.data ? from.edge_id[position] : position;
      }
    }
  }

  bool number_nodes(const int64_t* node) {
    const int64_t count = start.count - 1;
    table.reserve(count, nullptr, 0);
    start[0] = 0;
    for (int64_t n = 0; n < count && !alarm; ++n) {
      if (uint64_t(node[n]) >= uint64_t(from.nodes)) alarm.set(Trouble::node);
      else if (table.add(int32_t(node[n]), int32_t(n)) != n) alarm.set(Trouble::twice);
      else start[n + 1] = start[n] + row_of(from, node[n], alarm).length;
    }
    return !alarm;
  }

  // picks.rowptr from counts to offsets
  bool add_up() {
    int64_t total = picks.rowptr[0] = 0;
    for (int64_t i = 1; i < picks.rowptr.count; ++i) {
      total += picks.rowptr[i];
      if (total > INT32_MAX) alarm.set(Trouble::size);
      picks.rowptr[i] = int32_t(std::min<int64_t>(total, INT32_MAX));
    }
    return !alarm;
  }

 public:
  Induced(const Neighbours& from, int64_t count, Alarm& alarm)
      : from(from), alarm(alarm), table(from.nodes), start(count + 1) {
    picks.rowptr = Array<int32_t>(count + 1);
  }

  Picks run(const int64_t* node, int threads) {
    constexpr int64_t chunk = 128;
    const int64_t count = start.count - 1;
    if (!number_nodes(node)) return std::move(picks);
    found_key = Array<int32_t>(start[count]), found_edge = Array<int64_t>(start[count]);
    over_chunks(count, chunk, threads, alarm,
                [&](int64_t i, int64_t end) { look_up(node, i, end); });
    if (alarm || !add_up()) return std::move(picks);
    const int64_t total = picks.rowptr[count];
    picks.key = Array<int32_t>(total), picks.edge = Array<int64_t>(total);
    over_chunks(count, chunk, threads, alarm, [&](int64_t i, int64_t end) { pack(i, end); });
    return std::move(picks);
  }
};

}  // namespace dynagat
