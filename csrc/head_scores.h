// The two scores of GAT, per node and head: the dot products of a node's value with two vectors.
// Their gradient joins that of the values in the same pass.
#pragma once
#include <algorithm>
#include <cstdint>

#include "features.h"
#include "memory.h"
#include "parallel.h"
#include "sparse.h"

namespace dynagat {
namespace DYNAGAT_ISA {

constexpr int64_t nodes_per_task = 256;

inline int64_t node_tasks(const HeadScores& p) {
  return (p.nodes + nodes_per_task - 1) / nodes_per_task;
}

template <class T>
void score_nodes(const HeadScores& p, T* query, T* key) {
  parallel_for(node_tasks(p), p.threads, [&](int64_t task) {
    const int64_t last = std::min((task + 1) * nodes_per_task, p.nodes) * p.heads;
    for (int64_t row = task * nodes_per_task * p.heads; row < last; ++row) {
      const int64_t head = row % p.heads * p.channels;
      const T* value = static_cast<const T*>(p.value) + row * p.channels;
      query[row] = dot(value, static_cast<const T*>(p.a_query) + head, p.channels);
      key[row] = dot(value, static_cast<const T*>(p.a_key) + head, p.channels);
    }
  });
}

// total = dvalue + s a_query + t a_key;  da_query += s value;  da_key += t value
template <class V, class T>
DYNAGAT_INLINE V total_of(V dvalue, V value, T s, T t, V a_query, V a_key, V& da_query, V& da_key) {
  da_query += value * s;
  da_key += value * t;
  return dvalue + a_query * s + a_key * t;
}

template <class T>
void differentiate_scores(const HeadScores& p, const T* dvalue, const T* dquery, const T* dkey,
                          T* total, T* da) {
  const int64_t tasks = node_tasks(p), width_ = p.heads * p.channels;
  Buffer<T> parts(tasks * 2 * width_);
  auto *value = static_cast<const T*>(p.value), *a_query = static_cast<const T*>(p.a_query),
       *a_key = static_cast<const T*>(p.a_key);
  parallel_for(tasks, p.threads, [&](int64_t task) {
    T *da_query = parts.data() + task * 2 * width_, *da_key = da_query + width_;
    std::fill(da_query, da_query + 2 * width_, T(0));
    const int64_t last = std::min((task + 1) * nodes_per_task, p.nodes) * p.heads;
    for (int64_t row = task * nodes_per_task * p.heads; row < last; ++row) {
      const int64_t head = row % p.heads * p.channels, at = row * p.channels;
      const T s = dquery[row], t = dkey[row];
      int64_t c = 0;
      for (; c + width<T> <= p.channels; c += width<T>) {
        Vec<T> by_query = load(da_query + head + c), by_key = load(da_key + head + c);
        store(total + at + c,
              total_of(load(dvalue + at + c), load(value + at + c), s, t, load(a_query + head + c),
                       load(a_key + head + c), by_query, by_key));
        store(da_query + head + c, by_query);
        store(da_key + head + c, by_key);
      }
      for (; c < p.channels; ++c)
        total[at + c] = total_of(dvalue[at + c], value[at + c], s, t, a_query[head + c],
                                 a_key[head + c], da_query[head + c], da_key[head + c]);
    }
  });
  std::fill(da, da + 2 * width_, T(0));
  for (int64_t task = 0; task < tasks; ++task)
    for (int64_t c = 0; c < 2 * width_; ++c) da[c] += parts[task * 2 * width_ + c];
}

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
