// Combines the rankings of many queries into one ranking of all keys. Each query's keys, best
// first, form a path in a graph of preferences; if this graph has no cycle, one order agrees with
// all queries.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <queue>
#include <vector>

#include "parallel.h"
#include "plan.h"

namespace dynagat {

// Maps NaN, which std::sort can't handle, to -inf.
inline double nan_to_lowest(double x) {
  return x == x ? x : -std::numeric_limits<double>::infinity();
}

// The preferences of all queries by the scores of one head, as edges from better to worse.
class Preferences {
 public:
  int64_t nodes;  // the keys, and auxiliary nodes between groups of keys with equal scores
  std::vector<int32_t> better, worse;

  Preferences(const int32_t* rowptr, const int32_t* key, const double* score, int64_t queries,
              int64_t keys)
      : nodes(keys) {
    std::vector<int32_t> row;
    for (int64_t i = 0; i < queries; ++i) {
      row.resize(rowptr[i + 1] - rowptr[i]);
      std::iota(row.begin(), row.end(), rowptr[i]);
      std::sort(row.begin(), row.end(), [&](int32_t a, int32_t b) {
        const double left = nan_to_lowest(score[a]), right = nan_to_lowest(score[b]);
        return left > right || (left == right && a < b);
      });
      link_groups(row, key, score);
    }
  }

 private:
  void link(int64_t from, int64_t to) {
    better.push_back(int32_t(from)), worse.push_back(int32_t(to));
  }

  // Every key of a group of equal scores is preferred to every key of the next group.
  void link_groups(const std::vector<int32_t>& row, const int32_t* key, const double* score) {
    size_t first = 0, last = 0;  // the previous group
    for (size_t from = 0, to; from < row.size(); first = from, last = to, from = to) {
      for (to = from;
           to < row.size() && nan_to_lowest(score[row[to]]) == nan_to_lowest(score[row[from]]);)
        ++to;
      if (from == 0) continue;
      if (last - first == 1 && to - from == 1) {
        link(key[row[first]], key[row[from]]);
        continue;
      }
      for (size_t at = first; at < last; ++at) link(key[row[at]], nodes);
      for (size_t at = from; at < to; ++at) link(nodes, key[row[at]]);
      ++nodes;
    }
  }
};

// Computes position[j] of every key, 0 for the best: a topological order of the preferences. The
// key with the largest effect comes first if several are possible, or if only cycles are left.
inline void order_keys(const Preferences& p, const double* effect, int64_t keys,
                       int32_t* position) {
  std::vector<int64_t> start(p.nodes + 1);
  std::vector<int64_t> num_better(p.nodes);  // nodes without a position that must come before
  for (size_t e = 0; e < p.better.size(); ++e) ++start[p.better[e] + 1], ++num_better[p.worse[e]];
  std::partial_sum(start.begin(), start.end(), start.begin());
  std::vector<int32_t> worse(p.worse.size());
  std::vector<int64_t> at(start.begin(), start.end() - 1);
  for (size_t e = 0; e < p.better.size(); ++e) worse[at[p.better[e]]++] = p.worse[e];

  std::vector<int32_t> by_effect(keys), rank(keys);
  std::iota(by_effect.begin(), by_effect.end(), 0);
  std::stable_sort(by_effect.begin(), by_effect.end(), [&](int32_t a, int32_t b) {
    return nan_to_lowest(effect[a]) > nan_to_lowest(effect[b]);
  });
  for (int64_t r = 0; r < keys; ++r) rank[by_effect[r]] = int32_t(r);

  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<int32_t>> ready;  // ranks of keys
  std::vector<bool> placed(p.nodes, false);
  for (int64_t key = 0; key < keys; ++key)
    if (num_better[key] == 0) ready.push(rank[key]);
  std::vector<int32_t> pending;
  int64_t next = 0;  // by_effect[:next] are placed
  for (int32_t count = 0; count < keys;) {
    while (placed[by_effect[next]]) ++next;
    const int32_t chosen = by_effect[ready.empty() ? next : ready.top()];
    if (!ready.empty()) ready.pop();
    if (placed[chosen]) continue;
    position[chosen] = count++;
    for (pending.assign(1, chosen); !pending.empty();) {
      const int32_t n = pending.back();
      pending.pop_back();
      placed[n] = true;
      for (int64_t e = start[n]; e < start[n + 1]; ++e)
        if (--num_better[worse[e]] == 0 && !placed[worse[e]]) {
          if (worse[e] < keys) ready.push(rank[worse[e]]);
          else pending.push_back(worse[e]);  // auxiliary nodes take no position
        }
    }
  }
}

// Computes position[h, j] of every key by the scores of head h; returns false if the rows are
// invalid.
inline bool rank_keys(const int32_t* rowptr, const int32_t* key, const double* scores,
                      const double* effects, int64_t queries, int64_t keys, int64_t edges,
                      int64_t heads, int32_t* position, int threads) {
  Rowptr rows;
  if (!rows.copy(rowptr, queries, edges)) return false;
  std::vector<int32_t> checked(edges);
  for (int64_t e = 0; e < edges; ++e) {
    checked[e] = read_once(key + e);
    if (uint64_t(checked[e]) >= uint64_t(keys)) return false;
  }
  parallel_for(heads, threads, [&](int64_t h) {
    const Preferences preferences(rows.data(), checked.data(), scores + h * edges, queries, keys);
    order_keys(preferences, effects + h * keys, keys, position + h * keys);
  });
  return true;
}

}  // namespace dynagat
