// Fixed cuts of the work: they depend on the rows alone, never on the number of threads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace dynagat {

// Part of one row of one group. A group is a query (or key) with its `relations` rows.
struct Segment {
  int64_t group, relation, begin, end;
};

struct Hub {
  int64_t group, first_segment, last_segment;
};

// Tasks of whole groups, about as much work each; groups too long for one task are hubs, cut in
// segments.
struct Plan {
  std::vector<int64_t> bounds;  // task t has groups [bounds[t], bounds[t + 1]) but for the hubs
  std::vector<Hub> hubs;
  std::vector<Segment> segments;
  int64_t longest = 0;  // a group with more edges than this is a hub

  int64_t tasks() const { return int64_t(bounds.size()) - 1; }
};

// Whether rowptr rises from 0 to at most `limit`.
inline bool rises(const int32_t* rowptr, int64_t rows, int64_t limit) {
  bool fine = rowptr[0] == 0 && rowptr[rows] <= limit;
  for (int64_t row = 0; row < rows; ++row) fine &= rowptr[row] <= rowptr[row + 1];
  return fine;
}

inline Plan make_plan(const int32_t* rowptr, int64_t groups, int64_t relations) {
  constexpr int64_t edges_per_task = 4096, group_cost = 4, most_tasks = 1024;
  const int64_t edges = rowptr[groups * relations];
  const int64_t work = edges + group_cost * groups;
  const int64_t tasks = std::clamp<int64_t>(work / edges_per_task, 1, most_tasks);
  const int64_t segment = std::max(edges_per_task / 2, edges / most_tasks);
  Plan plan;
  plan.longest = 2 * segment;
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
    if (rowptr[(g + 1) * relations] - rowptr[g * relations] <= plan.longest) continue;
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
