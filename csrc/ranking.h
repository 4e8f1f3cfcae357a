// One ranking of all keys out of the rankings of many queries: each query's keys, best first, are a
// path of preferences, and if the paths make no circle, one order follows them all.
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

// nan, which a sort must not see, is the worst
inline double number(double x) {
  return x == x ? x : -std::numeric_limits<double>::infinity();
}

// The preferences of all queries by one head's scores, from the better node to the worse.
class Preferences {
 public:
  int64_t nodes;  // the keys, and one between two groups of keys that a query ranks equal
  std::vector<int32_t> better, worse;

  Preferences(const int32_t* rowptr, const int32_t* key, const double* score, int64_t queries,
              int64_t keys)
      : nodes(keys) {
    std::vector<int32_t> row;
    for (int64_t i = 0; i < queries; ++i) {
      row.resize(rowptr[i + 1] - rowptr[i]);
      std::iota(row.begin(), row.end(), rowptr[i]);
      std::sort(row.begin(), row.end(), [&](int32_t a, int32_t b) {
        const double left = number(score[a]), right = number(score[b]);
        return left > right || (left == right && a < b);
      });
      link_groups(row, key, score);
    }
  }

 private:
  void link(int64_t from, int64_t to) {
    better.push_back(int32_t(from)), worse.push_back(int32_t(to));
  }

  // Every key of a group of equals is preferred to every key of the next.
  void link_groups(const std::vector<int32_t>& row, const int32_t* key, const double* score) {
    size_t first = 0, last = 0;  // the group before
    for (size_t from = 0, to; from < row.size(); first = from, last = to, from = to) {
      for (to = from; to < row.size() && number(score[row[to]]) == number(score[row[from]]);) ++to;
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

// place[j] of every key, 0 for the best: a topological order of the preferences, in which the key
// of the largest effect goes first where there is a choice, and also where all that is left runs in
// circles.
inline void order_keys(const Preferences& p, const double* effect, int64_t keys, int32_t* place) {
  std::vector<int64_t> start(p.nodes + 1), open(p.nodes);  // open: how many nodes must go before
  for (size_t e = 0; e < p.better.size(); ++e) ++start[p.better[e] + 1], ++open[p.worse[e]];
  std::partial_sum(start.begin(), start.end(), start.begin());
  std::vector<int32_t> worse(p.worse.size());
  std::vector<int64_t> at(start.begin(), start.end() - 1);
  for (size_t e = 0; e < p.better.size(); ++e) worse[at[p.better[e]]++] = p.worse[e];

  std::vector<int32_t> by_effect(keys), rank(keys);
  std::iota(by_effect.begin(), by_effect.end(), 0);
  std::stable_sort(by_effect.begin(), by_effect.end(),
                   [&](int32_t a, int32_t b) { return number(effect[a]) > number(effect[b]); });
  for (int64_t r = 0; r < keys; ++r) rank[by_effect[r]] = int32_t(r);

  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<int32_t>> free;  // ranks of keys
  std::vector<bool> gone(p.nodes, false);
  for (int64_t key = 0; key < keys; ++key)
    if (open[key] == 0) free.push(rank[key]);
  std::vector<int32_t> leaving;
  int64_t next = 0;  // the first of by_effect that may be there
  for (int32_t count = 0; count < keys;) {
    while (gone[by_effect[next]]) ++next;
    const int32_t chosen = by_effect[free.empty() ? next : free.top()];
    if (!free.empty()) free.pop();
    if (gone[chosen]) continue;
    place[chosen] = count++;
    for (leaving.assign(1, chosen); !leaving.empty();) {
      const int32_t n = leaving.back();
      leaving.pop_back();
      gone[n] = true;
      for (int64_t e = start[n]; e < start[n + 1]; ++e)
        if (--open[worse[e]] == 0 && !gone[worse[e]]) {
          if (worse[e] < keys) free.push(rank[worse[e]]);
          else leaving.push_back(worse[e]);  // a node between groups goes with the last before it
        }
    }
  }
}

// place[h, j] of every key by the scores of every head; whether the rows were sound.
inline bool rank_keys(const int32_t* rowptr, const int32_t* key, const double* scores,
                      const double* effects, int64_t queries, int64_t keys, int64_t edges,
                      int64_t heads, int32_t* place, int threads) {
  if (!rises(rowptr, queries, edges)) return false;
  for (int64_t e = 0; e < edges; ++e)
    if (uint64_t(key[e]) >= uint64_t(keys)) return false;
  parallel_for(heads, threads, [&](int64_t h) {
    const Preferences preferences(rowptr, key, scores + h * edges, queries, keys);
    order_keys(preferences, effects + h * keys, keys, place + h * keys);
  });
  return true;
}

}  // namespace dynagat
