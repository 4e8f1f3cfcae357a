// One ranking of all keys out of the rankings of many queries.
//
// Each query's keys, best first, are a path of preferences. The heuristic of Eades, Lin and Smyth
// orders all keys so that few preferences point backwards: keys that nothing is preferred to come
// first, keys that are preferred to nothing last, and when all that is left runs in circles, the
// key with the largest surplus of preferences is next. Without circles, none point backwards.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "parallel.h"
#include "plan.h"

namespace dynagat {

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
  // nan, which a sort must not see, is the worst
  static double number(double x) { return x == x ? x : -std::numeric_limits<double>::infinity(); }

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

class Ranking {
 public:
  explicit Ranking(const Preferences& p)
      : out_(grouped(p.better, p.worse, p.nodes)),
        in_(grouped(p.worse, p.better, p.nodes)),
        outs_(p.nodes),
        ins_(p.nodes),
        next_(p.nodes, -1),
        last_(p.nodes, -1),
        gone_(p.nodes, false) {
    int64_t widest = 0;
    for (int64_t n = 0; n < p.nodes; ++n) {
      outs_[n] = out_.count(n), ins_[n] = in_.count(n);
      widest = std::max({widest, outs_[n], ins_[n]});
    }
    middle_ = widest;
    shelf_.assign(2 * widest + 1, -1);
    top_ = 2 * widest;
    for (int64_t n = p.nodes - 1; n >= 0; --n) put(n);
  }

  // The place of each of the first `keys` nodes, 0 for the best.
  void write(int64_t keys, int32_t* place) {
    const int64_t nodes = int64_t(gone_.size());
    std::vector<int32_t> front, back;
    for (int64_t n = 0; n < nodes; ++n) note(int32_t(n));
    while (int64_t(front.size() + back.size()) < nodes) {
      if (take(sinks_, back) || take(sources_, front)) continue;
      while (shelf_[top_] < 0) --top_;
      const int32_t chosen = shelf_[top_];
      front.push_back(chosen);
      remove(chosen);
    }
    front.insert(front.end(), back.rbegin(), back.rend());
    int32_t count = 0;
    for (int32_t n : front)
      if (n < keys) place[n] = count++;
  }

 private:
  struct Lists {
    std::vector<int64_t> start;
    std::vector<int32_t> to;
    int64_t count(int64_t n) const { return start[n + 1] - start[n]; }
  };

  static Lists grouped(const std::vector<int32_t>& by, const std::vector<int32_t>& to,
                       int64_t nodes) {
    Lists lists{std::vector<int64_t>(nodes + 1), std::vector<int32_t>(to.size())};
    for (int32_t n : by) ++lists.start[n + 1];
    std::partial_sum(lists.start.begin(), lists.start.end(), lists.start.begin());
    std::vector<int64_t> at(lists.start.begin(), lists.start.end() - 1);
    for (size_t e = 0; e < by.size(); ++e) lists.to[at[by[e]]++] = to[e];
    return lists;
  }

  int64_t bucket(int64_t n) const { return middle_ + outs_[n] - ins_[n]; }

  void put(int64_t n) {
    int32_t& first = shelf_[bucket(n)];
    next_[n] = first, last_[n] = -1;
    if (first >= 0) last_[first] = int32_t(n);
    first = int32_t(n);
    top_ = std::max(top_, bucket(n));
  }

  void pull(int64_t n) {
    if (last_[n] >= 0) next_[last_[n]] = next_[n];
    else shelf_[bucket(n)] = next_[n];
    if (next_[n] >= 0) last_[next_[n]] = last_[n];
  }

  void note(int32_t n) {
    if (outs_[n] == 0) sinks_.push_back(n);
    else if (ins_[n] == 0) sources_.push_back(n);
  }

  bool take(std::vector<int32_t>& waiting, std::vector<int32_t>& to) {
    if (waiting.empty()) return false;
    const int32_t n = waiting.back();
    waiting.pop_back();
    if (gone_[n]) return true;
    to.push_back(n);
    remove(n);
    return true;
  }

  void remove(int32_t n) {
    pull(n);
    gone_[n] = true;
    shrink(out_, n, ins_);
    shrink(in_, n, outs_);
  }

  void shrink(const Lists& lists, int32_t n, std::vector<int64_t>& counts) {
    for (int64_t at = lists.start[n]; at < lists.start[n + 1]; ++at) {
      const int32_t other = lists.to[at];
      if (gone_[other]) continue;
      pull(other);
      --counts[other];
      put(other);
      if (counts[other] == 0) note(other);
    }
  }

  Lists out_, in_;
  std::vector<int64_t> outs_, ins_;
  std::vector<int32_t> next_, last_;  // of the same bucket
  std::vector<int32_t> shelf_;        // the first node of each bucket
  std::vector<bool> gone_;
  std::vector<int32_t> sinks_, sources_;
  int64_t middle_ = 0, top_ = 0;
};

// place[h, j] of every key by the scores of every head; whether the rows were sound.
inline bool rank_keys(const int32_t* rowptr, const int32_t* key, const double* scores,
                      int64_t queries, int64_t keys, int64_t edges, int64_t heads, int32_t* place,
                      int threads) {
  if (!rises(rowptr, queries, edges)) return false;
  for (int64_t e = 0; e < edges; ++e)
    if (uint64_t(key[e]) >= uint64_t(keys)) return false;
  parallel_for(heads, threads, [&](int64_t h) {
    Ranking(Preferences(rowptr, key, scores + h * edges, queries, keys))
        .write(keys, place + h * keys);
  });
  return true;
}

}  // namespace dynagat
