// Neighbour sampling: k of each query's keys, hop after hop. Nodes get local indices in the sample:
// the seeds first, then the other nodes in the order in which they are first drawn.
//
// The draws of a query depend only on (seed, hop, position in the hop). Rows are checked when they
// are read, because a graph on disk should not be read as a whole. sampling/reference.py computes
// the same samples.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <vector>

#include "csr.h"
#include "memory.h"
#include "parallel.h"
#include "plan.h"
#include "random.h"
#include "table.h"

namespace dynagat {

// The keys of node i are key[rowptr[i]] .. key[rowptr[i + 1] - 1].
struct Neighbours {
  Index rowptr, key, edge_id;  // without edge_id, an edge's id is its position
  int64_t nodes, edges;
};

enum class Error { none, rowptr, key_index, node, twice, memory, size };

// The first error; any thread may set it.
class FirstError {
  std::atomic<int> first{0};

 public:
  void set(Error value) {
    int none = 0;
    first.compare_exchange_strong(none, int(value));
  }
  Error get() const { return Error(first.load()); }
  explicit operator bool() const { return first.load() != 0; }
};

// Calls fn(from, until) for chunks of [0, count); std::bad_alloc becomes Error::memory.
template <class Fn>
void for_each_chunk(int64_t count, int64_t chunk, int threads, FirstError& error, const Fn& fn) {
  parallel_for((count + chunk - 1) / chunk, threads, [&](int64_t task) {
    try {
      fn(task * chunk, std::min((task + 1) * chunk, count));
    } catch (const std::bad_alloc&) {
      error.set(Error::memory);
    }
  });
}

inline void prefetch(const Index& index, int64_t at) {
  __builtin_prefetch(static_cast<const char*>(index.data) + at * index.bytes);
}

struct Span {
  int64_t begin, length;
};

inline Span row_of(const Neighbours& from, int64_t node, FirstError& error) {
  const int64_t begin = from.rowptr[node], end = from.rowptr[node + 1];
  if (begin >= 0 && begin <= end && end <= from.edges && end - begin <= INT32_MAX)
    return {begin, end - begin};
  error.set(Error::rowptr);
  return {0, 0};
}

// The key at a position; 0 if it is invalid, which also sets the error.
inline int32_t key_at(const Neighbours& from, int64_t position, FirstError& error) {
  const int64_t key = from.key[position];
  if (uint64_t(key) < uint64_t(from.nodes)) return int32_t(key);
  error.set(Error::key_index);
  return 0;
}

template <class T>
struct Array {
  Buffer<T> memory;
  int64_t count = 0;

  Array() = default;
  explicit Array(int64_t count) : memory(count), count(count) {}
  T* data() { return memory.data(); }
  T& operator[](int64_t at) { return memory[at]; }
  const T& operator[](int64_t at) const { return memory[at]; }

  Array resized(int64_t length) {
    Array other(length);
    std::copy_n(data(), std::min(length, count), other.data());
    return other;
  }
};

// The edges of a sample, grouped by query: offsets, and the key and edge id of each edge.
struct Picks {
  Array<int32_t> rowptr, key;
  Array<int64_t> edge;
};

// k < n distinct random numbers below n, each subset equally likely: Floyd's method. A number that
// was drawn before is replaced by the largest possible one, which can't have been drawn yet.
template <class Seen>
void draw_distinct(uint64_t at, int64_t k, int64_t n, int64_t* out, const Seen& seen) {
  for (int64_t t = 0; t < k; ++t) {
    const int64_t last = n - k + t, drawn = Stream::number(at, t, last + 1);
    out[t] = seen(drawn, t) ? (seen(last, t), last) : drawn;
  }
}

inline void draw_distinct(uint64_t at, int64_t k, int64_t n, int64_t* out) {
  constexpr int64_t few = 48;  // up to here, a linear search is faster than a hash table
  if (k <= few) {
    draw_distinct(at, k, n, out, [&](int64_t drawn, int64_t t) {
      bool is_repeated = false;
      for (int64_t s = 0; s < t; ++s) is_repeated |= out[s] == drawn;
      return is_repeated;
    });
    return;
  }
  Table table(n);
  table.reserve(k, nullptr, 0);
  draw_distinct(at, k, n, out, [&](int64_t drawn, int64_t t) {
    return table.add(int32_t(drawn), int32_t(t)) != int32_t(t);
  });
}

struct Fanout {
  int64_t k;  // negative: all keys
  bool replace;

  int64_t picks(int64_t degree) const {
    if (k < 0 || degree == 0) return degree;
    return replace ? k : std::min(k, degree);
  }

  // Draws positions within a row of `degree` edges.
  void draw(uint64_t at, int64_t degree, int64_t* out) const {
    if (k < 0 || degree == 0 || (!replace && degree <= k))
      for (int64_t n = 0; n < degree; ++n) out[n] = n;
    else if (replace)
      for (int64_t t = 0; t < k; ++t) out[t] = Stream::number(at, t, degree);
    else draw_distinct(at, k, degree, out);
  }
};

// Draws keys for each query of one hop; the keys are not yet local indices.
class HopSampler {
  const Neighbours& from;
  const int64_t* query;
  const Fanout fanout;
  const Stream stream;
  FirstError& error;
  Array<Span> rows;
  Picks picks;

  // Draws for a few rows at a time, so that their keys are prefetched while other rows are drawn.
  void draw(int64_t i, int64_t until) {
    constexpr int64_t group = 256;
    while (i < until) {
      const int64_t first = picks.rowptr[i];
      for (bool more = true; more; more = i < until && picks.rowptr[i] - first < group) {
        int64_t* out = picks.edge.data() + picks.rowptr[i];
        fanout.draw(stream.at(i), rows[i].length, out);
        for (int64_t n = 0, end = picks.rowptr[i + 1] - picks.rowptr[i]; n < end; ++n) {
          out[n] += rows[i].begin;
          prefetch(from.key, out[n]);
          if (from.edge_id.data) prefetch(from.edge_id, out[n]);
        }
        ++i;
      }
      for (int64_t e = first; e < picks.rowptr[i]; ++e) {
        const int64_t position = picks.edge[e];
        picks.key[e] = key_at(from, position, error);
        if (from.edge_id.data) picks.edge[e] = from.edge_id[position];
      }
    }
  }

  void look_up(int64_t i, int64_t until) {
    constexpr int64_t ahead = 16;
    for (; i < until; ++i) {
      if (i + ahead < until) prefetch(from.rowptr, query[i + ahead]);
      rows[i] = row_of(from, query[i], error);
      const int64_t count = fanout.picks(rows[i].length);
      if (count > INT32_MAX) error.set(Error::size);
      picks.rowptr[i + 1] = int32_t(count);
    }
  }

 public:
  HopSampler(const Neighbours& from, const int64_t* query, int64_t count, Fanout fanout,
             Stream stream, FirstError& error)
      : from(from), query(query), fanout(fanout), stream(stream), error(error), rows(count) {
    picks.rowptr = Array<int32_t>(count + 1);
  }

  Picks run(int threads) {
    constexpr int64_t chunk = 256;
    const int64_t count = rows.count;
    if (count < 2 * chunk) threads = 1;
    for_each_chunk(count, chunk, threads, error, [&](int64_t i, int64_t end) { look_up(i, end); });
    if (error) return std::move(picks);
    int64_t total = picks.rowptr[0] = 0;
    for (int64_t i = 0; i < count; ++i) {
      total += picks.rowptr[i + 1];
      picks.rowptr[i + 1] = int32_t(std::min<int64_t>(total, INT32_MAX));
    }
    if (total > INT32_MAX) {
      error.set(Error::size);
      return std::move(picks);
    }
    picks.key = Array<int32_t>(total), picks.edge = Array<int64_t>(total);
    for_each_chunk(count, chunk, threads, error, [&](int64_t i, int64_t end) { draw(i, end); });
    return std::move(picks);
  }
};

// A whole batch. Layered: each hop draws for all nodes so far and is a layer of its own. Merged:
// each hop draws only for the nodes that the previous hop added, and all hops form one graph.
class Sample {
  const Neighbours& from;
  FirstError& error;
  Table table;

  // Replaces each key by its local index; new nodes are appended.
  void renumber(Picks& picks) {
    constexpr int64_t ahead = 12;
    const int64_t known = node.count, total = picks.key.count;
    node = node.resized(known + total);
    table.reserve(known + total, node.data(), known);
    int32_t next = int32_t(known);
    for (int64_t e = 0; e < total; ++e) {
      if (e + ahead < total) table.prefetch(picks.key[e + ahead]);
      const int32_t key = picks.key[e], index = table.add(key, next);
      if (index == next) node[next++] = key;
      picks.key[e] = index;
    }
    node.count = next;
  }

  void append(Picks& picks) {
    Picks& all = layers[0];
    const int64_t rows = all.rowptr.count - 1, edges = all.key.count;
    all.rowptr = all.rowptr.resized(rows + picks.rowptr.count);
    for (int64_t i = 1; i < picks.rowptr.count; ++i)
      all.rowptr[rows + i] = int32_t(edges + picks.rowptr[i]);
    all.key = all.key.resized(edges + picks.key.count);
    all.edge = all.edge.resized(edges + picks.edge.count);
    std::copy_n(picks.key.data(), picks.key.count, all.key.data() + edges);
    std::copy_n(picks.edge.data(), picks.edge.count, all.edge.data() + edges);
  }

 public:
  Array<int64_t> node;
  std::vector<Picks> layers;                  // by hop; a single one if merged
  std::vector<int64_t> new_nodes, num_edges;  // per hop; the first new nodes are the seeds

  Sample(const Neighbours& from, const int64_t* seeds, int64_t count, FirstError& error)
      : from(from), error(error), table(from.nodes), node(count) {
    table.reserve(count, nullptr, 0);
    for (int64_t n = 0; n < count && !error; ++n) {
      if (uint64_t(seeds[n]) >= uint64_t(from.nodes)) error.set(Error::node);
      else if (table.add(int32_t(seeds[n]), int32_t(n)) != n) error.set(Error::twice);
      node[n] = seeds[n];
    }
    new_nodes.push_back(count);
  }

  void hop(int64_t hop_index, Fanout fanout, uint64_t seed, bool layered, int threads) {
    const int64_t known = node.count, first = layered ? 0 : known - new_nodes.back();
    HopSampler sampler(from, node.data() + first, known - first, fanout,
                       Stream(seed, uint64_t(hop_index)), error);
    Picks picks = sampler.run(threads);
    if (error) return;
    if (known + picks.key.count > INT32_MAX ||
        (!layered && hop_index && layers[0].key.count + picks.key.count > INT32_MAX))
      return error.set(Error::size);
    renumber(picks);
    new_nodes.push_back(node.count - known);
    num_edges.push_back(picks.key.count);
    if (layered || hop_index == 0) layers.push_back(std::move(picks));
    else append(picks);
  }
};

// Transposes rows: the queries of each key and the positions of those edges. False if rowptr or key
// is out of range.
inline bool transpose(const int32_t* rowptr, const int32_t* key, int64_t queries, int64_t keys,
                      int64_t edges, int32_t* key_rowptr, int32_t* key_query, int32_t* key_position,
                      int threads) {
  Rowptr rows;
  if (!rows.copy(rowptr, queries, edges) || rows[queries] != edges) return false;
  Buffer<int32_t> query_of(edges), key_of(edges);
  for (int64_t e = 0; e < edges; ++e) {
    key_of[e] = read_once(key + e);
    if (uint64_t(key_of[e]) >= uint64_t(keys)) return false;
  }
  for (int64_t i = 0; i < queries; ++i)
    std::fill(query_of.data() + rows[i], query_of.data() + rows[i + 1], int32_t(i));
  sort_by_row(edges, keys, key_rowptr, threads, [&](int64_t e) { return int64_t(key_of[e]); },
              [&](int32_t position, int64_t e) {
    key_query[position] = query_of[e];
    key_position[position] = int32_t(e);
  });
  return true;
}

// out[n] = table[index[n]], rows of `bytes` each; false if an index is out of range.
inline bool gather_rows(const char* table, int64_t rows, int64_t bytes, const int64_t* index,
                        int64_t count, char* out, int threads) {
  std::atomic<bool> valid{true};
  constexpr int64_t chunk = 512, ahead = 8, line = 64;
  parallel_for((count + chunk - 1) / chunk, threads, [&](int64_t task) {
    const int64_t first = task * chunk, length = std::min(chunk, count - first);
    int64_t row[chunk];
    for (int64_t n = 0; n < length; ++n) {
      row[n] = read_once(index + first + n);
      if (uint64_t(row[n]) >= uint64_t(rows)) return void(valid = false);
    }
    for (int64_t n = 0; n < length; ++n) {
      if (n + ahead < length)
        for (int64_t at = 0; at < bytes; at += line)
          __builtin_prefetch(table + row[n + ahead] * bytes + at);
      std::copy_n(table + row[n] * bytes, bytes, out + (first + n) * bytes);
    }
  });
  return valid;
}

}  // namespace dynagat
