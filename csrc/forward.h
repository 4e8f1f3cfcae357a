// Forward: one pass over each query's edges with a streaming softmax.
//
//   out_i = Σ_j exp(s_ij - top_i) value_j / Σ_j exp(s_ij - top_i),   top_i = max_j s_ij
#pragma once
#include "gather.h"

namespace dynagat {
namespace DYNAGAT_ISA {

template <class A, class Stored, Mechanism M, int Per>
class Forward : Gather<A, Stored, M, Per> {
  using Base = Gather<A, Stored, M, Per>;
  using Base::block, Base::fault, Base::begin, Base::end, Base::scratch, Base::gather;
  using Base::read_edge_ids, Base::rowptr;
  using Base::W, Base::gat, Base::p, Base::rows, Base::tile, Base::dropout, Base::R, Base::H,
      Base::P;
  using typename Base::V, typename Base::Memory;

 public:
  explicit Forward(const Problem& problem) : Base(problem) {}

  int run() {
    if (!rowptr.copy(p.rowptr, p.num_queries * R, p.num_positions)) return int(Fault::rowptr);
    const Plan plan = make_plan(rowptr.data(), p.num_queries, R);
    parallel_for(plan.tasks(), p.threads, [&](int64_t task) {
      auto d = scratch();
      this->for_each_group(plan, task, rowptr.data(), [&](int64_t i) {
        start(d);
        for (int64_t r = 0; r < R; ++r) add_edges(d, i, r, begin(i, r), end(i, r));
        finish(d, i);
        finish_weights(d, begin(i, 0), end(i, R - 1));
      });
    });
    if (!plan.hubs.empty()) run_hubs(plan);
    return fault;
  }

 private:
  void start(Memory& d) const {
    d.is_empty = true;
    for (int64_t t = 0; t < tile.vectors; ++t) {
      // Not -inf, so that the weight of a score of -inf is exp(-inf) = 0 and not NaN.
      d.top[t] = all(std::numeric_limits<A>::lowest());
      d.weight_sum[t] = V{};
    }
    for (int64_t v = 0; v < P; v += W) store(d.row_sum + v, V{});
  }

  // Adds edges [from, to) of query i under relation r to (top, weight_sum, row_sum).
  DYNAGAT_INLINE void add_edges(Memory& d, int64_t i, int64_t r, int64_t from, int64_t to) {
    if (from == to || !this->read_query(d, i, r)) return;
    for (int64_t e = from; e < to; e += block) {
      const int64_t count = std::min(block, to - e);
      if (!gather(d, e, count, r)) break;
      this->template score<false>(d, e, count, r);
      if (p.weights || p.scores || dropout.active) {
        if (!read_edge_ids(d, e, count)) break;
        for (void* to : {p.weights, p.scores})
          for (int64_t b = 0; to && b < count; ++b)
            copy(static_cast<A*>(to) + d.edge_id[b] * H, d.score + b * H, H);
      }
      exponentiate(d, count);
      if (dropout.active) apply_dropout(d, count);
      this->add_rows(d.row_sum, d.score, d.value_row, count, d.prefetch_row);
    }
  }

  // Raises top to the block's maximum, then replaces each score by exp(score - top).
  DYNAGAT_INLINE void exponentiate(Memory& d, int64_t count) const {
    const int64_t T = tile.vectors, vectors = (count * H + W - 1) / W;
    V* s = reinterpret_cast<V*>(d.score);
    for (int64_t t = 0; t < T; ++t) {
      V highest = d.top[t];
      for (int64_t v = t; v < vectors; v += T) highest = max(highest, s[v]);
      d.new_top[t] = highest;
    }
    if (H % W) {
      tile.fold(d.new_top, d.head_sum, [](auto x, auto y) { return x > y ? x : y; });
      tile.repeat(d.head_sum, d.new_top);
    }
    raise_top(d);
    for (int64_t t = 0; t < T; ++t) {
      const V top = d.top[t];
      V sum{};
      for (int64_t v = t; v < vectors; v += T) {
        s[v] = scaled_exp(s[v] - top);
        sum += s[v];
      }
      d.weight_sum[t] += sum;
    }
  }

  // Sets top to new_top and multiplies the sums so far by exp(old top - new top).
  DYNAGAT_INLINE void raise_top(Memory& d) const {
    if (d.is_empty) {  // the sums are still zero
      d.is_empty = false;
      for (int64_t t = 0; t < tile.vectors; ++t) d.top[t] = d.new_top[t];
      return;
    }
    bool higher = false;
    for (int64_t t = 0; t < tile.vectors; ++t) higher |= any_above<A>(d.new_top[t], d.top[t]);
    if (!higher) return;
    for (int64_t t = 0; t < tile.vectors; ++t) {
      d.shrink[t] = exp(d.top[t] - d.new_top[t]);
      d.top[t] = d.new_top[t];
      d.weight_sum[t] *= d.shrink[t];
    }
    const A* shrink = reinterpret_cast<const A*>(d.shrink);
    for (int64_t h = 0, v = 0; h < H; ++h)
      for (const int64_t last = v + rows.per_head; v < last; ++v)
        store(d.row_sum + v * W, load(d.row_sum + v * W) * shrink[h]);
  }

  void apply_dropout(Memory& d, int64_t count) const {
    for (int64_t b = 0; b < count; ++b) {
      this->draw_dropout(d, d.edge_id[b]);
      this->multiply_heads(d.score + b * H, d.dropout_factor);
    }
  }

  void finish(Memory& d, int64_t i) const {
    A *total = d.head_sum, *inverse = d.inverse;
    tile.fold(d.weight_sum, total, [](auto x, auto y) { return x + y; });
    copy(static_cast<A*>(p.top) + i * H, reinterpret_cast<const A*>(d.top), H);
    if (d.is_empty) {  // a query without keys
      for (int64_t h = 0; h < H; ++h) inverse[h] = 0;
    } else {
      tile.for_heads([&](int64_t h, auto like) { put(inverse + h, 1 / get(total + h, like)); });
    }
    for (int64_t h = 0, v = 0; h < H; ++h)
      for (const int64_t last = v + rows.per_head; v < last; ++v)
        store(d.row_sum + v * W, load(d.row_sum + v * W) * inverse[h]);
    rows.write(p.out, i, d.row_sum);
  }

  // Replaces the stored scores of edges [from, to) of one query by exp(score - top) / weight_sum.
  void finish_weights(Memory& d, int64_t from, int64_t to) {
    if (!p.weights || fault) return;
    tile.repeat(d.inverse, d.weight_sum);  // 1 / weight_sum
    V* s = reinterpret_cast<V*>(d.score);
    auto weights = [&](int64_t b) { return static_cast<A*>(p.weights) + d.edge_id[b] * H; };
    for (int64_t e = from; e < to; e += block) {
      const int64_t count = std::min(block, to - e), T = tile.vectors;
      if (!read_edge_ids(d, e, count)) return;
      for (int64_t b = 0; b < count; ++b) copy<A>(d.score + b * H, weights(b), H);
      for (int64_t v = 0, t = 0; v * W < count * H; ++v, t = t + 1 == T ? 0 : t + 1)
        s[v] = scaled_exp(s[v] - d.top[t]) * d.weight_sum[t];
      for (int64_t b = 0; b < count; ++b) copy(weights(b), d.score + b * H, H);
    }
  }

  void run_hubs(const Plan& plan) {
    const int64_t T = tile.vectors * W, part = 2 * T + P;
    Buffer<A> parts(int64_t(plan.segments.size()) * part);
    parallel_for(plan.segments.size(), p.threads, [&](int64_t n) {
      auto d = scratch();
      const Segment& s = plan.segments[n];
      start(d);
      add_edges(d, s.group, s.relation, s.begin, s.end);
      A* to = &parts[n * part];
      std::memcpy(to, d.top, T * sizeof(A));
      std::memcpy(to + T, d.weight_sum, T * sizeof(A));
      std::memcpy(to + 2 * T, d.row_sum, P * sizeof(A));
    });
    // top and 1 / weight_sum of each hub
    Buffer<A> hub_statistics(int64_t(plan.hubs.size()) * 2 * H);
    parallel_for(plan.hubs.size(), p.threads, [&](int64_t n) {
      auto d = scratch();
      const Hub& hub = plan.hubs[n];
      start(d);
      for (int64_t s = hub.first_segment; s < hub.last_segment; ++s) merge(d, &parts[s * part]);
      finish(d, hub.group);
      std::memcpy(&hub_statistics[n * 2 * H], d.top, H * sizeof(A));
      std::memcpy(&hub_statistics[n * 2 * H + H], d.inverse, H * sizeof(A));
    });
    if (!p.weights) return;
    for (size_t n = 0; n < plan.hubs.size(); ++n) {
      const int64_t first = plan.hubs[n].first_segment;
      parallel_for(plan.hubs[n].last_segment - first, p.threads, [&](int64_t s) {
        auto d = scratch();
        tile.repeat(&hub_statistics[n * 2 * H], d.top);
        std::memcpy(d.inverse, &hub_statistics[n * 2 * H + H], H * sizeof(A));
        finish_weights(d, plan.segments[first + s].begin, plan.segments[first + s].end);
      });
    }
  }

  // Adds the (top, weight_sum, row_sum) of a later segment to those of the scratch memory.
  void merge(Memory& d, const A* part) const {
    const int64_t T = tile.vectors;
    const A *top = part, *total = part + T * W, *row = part + 2 * T * W;
    for (int64_t t = 0; t < T; ++t) d.new_top[t] = max(d.top[t], load(top + t * W));
    raise_top(d);
    for (int64_t t = 0; t < T; ++t) {
      d.shrink[t] = exp(load(top + t * W) - d.top[t]);
      d.weight_sum[t] += load(total + t * W) * d.shrink[t];
    }
    const A* shrink = reinterpret_cast<const A*>(d.shrink);
    for (int64_t h = 0, v = 0; h < H; ++h)
      for (const int64_t last = v + rows.per_head; v < last; ++v)
        store(d.row_sum + v * W, load(d.row_sum + v * W) + load(row + v * W) * shrink[h]);
  }
};

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
