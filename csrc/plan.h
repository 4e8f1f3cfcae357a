// How the work is split into tasks. The split depends on the rows only, not on the number of
// threads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "memory.h"
#include "parallel.h"

namespace dynagat {

// Some of the edges of one row. A group is a query (or key) and has `relations` rows.
struct Segment {
  int64_t group, relation, begin, end;
};

struct Hub {
  int64_t group, first_segment, last_segment;
};

// Tasks are ranges of groups with about equal work. A group with too many edges for one task is a
// hub and is split into segments.
struct Plan {
  std::vector<int64_t> bounds;  // task t has groups [bounds[t], bounds[t + 1]) without hubs
  std::vector<Hub> hubs;
  std::vector<Segment> segments;
  int64_t max_group_edges = 0;  // a group with more edges than this is a hub

  int64_t tasks() const { return int64_t(bounds.size()) - 1; }
};

// A checked copy of a rowptr, which can't change during the call.
class Rowptr {
  Buffer<int32_t> copied;

 public:
  // False unless `from` starts at 0, never decreases and ends at `limit` at most.
  bool copy(const int32_t* from, int64_t rows, int64_t limit) {
    copied = Buffer<int32_t>(rows + 1);
    for (int64_t row = 0; row <= rows; ++row) copied[row] = read_once(from + row);
    bool valid = copied[0] == 0 && copied[rows] <= limit;
    for (int64_t row = 0; row < rows; ++row) valid &= copied[row] <= copied[row + 1];
    return valid;
  }
  int32_t operator[](int64_t row) const { return copied[row]; }
  const int32_t* data() { return copied.data(); }
};

inline Plan make_plan(const int32_t* rowptr, int64_t groups, int64_t relations) {
  constexpr int64_t edges_per_task = 4096, group_cost = 4, max_tasks = 1024;
  const int64_t edges = rowptr[groups * relations];
  const int64_t work = edges + group_cost * groups;
  const int64_t tasks = std::clamp<int64_t>(work / edges_per_task, 1, max_tasks);
  const int64_t segment = std::max(edges_per_task / 2, edges / max_tasks);
  Plan plan;
  plan.max_group_edges = 2 * segment;
  plan.bounds.push_back(0);
  int64_t group = 0;
  for (int64_t task = 1; task < tasks; ++task) {
    const int64_t until = work * task / tasks;
    int64_t low = group, high = groups;  // the first group that starts at or after `until`
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (rowptr[middle * relations] + group_cost * middle < until) low = middle + 1;
      else high = middle;
    }
    plan.bounds.push_back(group = low);
  }
  plan.bounds.push_back(groups);
  for (int64_t g = 0; g < groups; ++g) {
    if (rowptr[(g + 1) * relations] - rowptr[g * relations] <= plan.max_group_edges) continue;
    const int64_t first = plan.segments.size();
    for (int64_t r = 0; r < relations; ++r) {
      const int64_t begin = rowptr[g * relations + r], end = rowptr[g * relations + r + 1];
      for (int64_t at = begin; at < end; at += segment)
        plan.segments.push_back({g, r, at, std::min(at + segment, end)});
    }
    plan.hubs.push_back({g, first, int64_t(plan.segments.size())});
  }
  return plan;
}

}  // namespace dynagat
