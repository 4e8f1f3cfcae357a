// Backward: a pass by query, then a pass by key. Each gradient is written by one task, so no
// atomics are needed.
//
//   by query   g_ij = ⟨dout_i, value_j⟩,  δ_i = Σ_j α_ij g_ij,  ds_ij = α_ij (g_ij - δ_i)
//   by key     dvalue_j = Σ_i α_ij dout_i
//   gatv2      U = Σ ds · LeakyReLU'(z) over the edges of a row x (query or key)
//              dx = a ⊙ U,  da += x ⊙ U
//   dpgat      dquery_i = Σ_j ds key_j / √C,  dkey_j = Σ_i ds query_i / √C
//   gat        dx = Σ ds · LeakyReLU' over the edges of a score x (of a query or key)
//
// The pass by query stores α, ds and, for gatv2, the signs of z of each edge; the pass by key then
// reads only one row per edge, of dout. docs/derivation.md derives the formulas.
#pragma once
#include "gather.h"

namespace dynagat {
namespace DYNAGAT_ISA {

template <class A, class Stored, Mechanism M, int Per>
class Backward : Gather<A, Stored, M, Per> {
  using Base = Gather<A, Stored, M, Per>;
  using Base::a, Base::edge_weight, Base::edge_data, Base::edge_bytes, Base::weight_at,
      Base::grad_at, Base::signs_at, Base::fault, Base::begin, Base::end, Base::rowptr;
  using Base::dropout, Base::R, Base::H, Base::P, Base::D, Base::block, Base::ahead, Base::slope,
      Base::scale;
  using Base::scratch, Base::gather, Base::rows_are_copied, Base::read_edge_ids, Base::fail,
      Base::edge_width;
  using Base::W, Base::gat, Base::gatv2, Base::dpgat, Base::p, Base::rows, Base::tile;
  using typename Base::V, typename Base::Memory;

  Buffer<A> da_parts;  // [tasks + hubs, R, P], added up in this order
  Buffer<A> dw_parts;  // [tasks + segments, R, D, edge_width]: Σ ds · LeakyReLU'(z) · e
  Rowptr key_rowptr;

 public:
  explicit Backward(const Problem& problem) : Base(problem) {}

  int run() {
    if (!rowptr.copy(p.rowptr, p.num_queries * R, p.num_positions)) return int(Fault::rowptr);
    if (!key_rowptr.copy(p.key_rowptr, p.num_keys * R, p.num_positions))
      return int(Fault::key_rowptr);
    int64_t bytes;
    if (__builtin_mul_overflow(p.num_positions, edge_bytes, &bytes)) throw std::bad_alloc();
    edge_data = Buffer<uint8_t>(bytes);
    Buffer<A> da(gatv2 ? R * P : 0);
    if (gatv2) zero(&da[0], R * P);
    pass_by_query(make_plan(rowptr.data(), p.num_queries, R), da);
    if (!fault) pass_by_key(make_plan(key_rowptr.data(), p.num_keys, R), da);
    if (gatv2)
      for (int64_t row = 0; row < R * H; ++row)
        for (int64_t c = 0; c < p.channels; ++c)
          static_cast<A*>(p.da)[row * p.channels + c] = da[row * rows.per_head * W + c];
    return fault;
  }

 private:
  static void zero(A* to, int64_t count) { std::memset(to, 0, count * sizeof(A)); }

  // Adds the parts to sum, in order.
  static void add_parts(A* sum, const Buffer<A>& parts, int64_t count, int64_t size) {
    for (int64_t part = 0; part < count; ++part)
      for (int64_t at = 0; at < size; ++at) sum[at] += parts[part * size + at];
  }

  // ---- by query ----

  void pass_by_query(const Plan& plan, Buffer<A>& da) {
    const int64_t hubs = plan.hubs.size(), segments = plan.segments.size();
    const int64_t da_size = gatv2 ? R * P : 0, dw_size = R * D * edge_width();
    da_parts = Buffer<A>((plan.tasks() + hubs) * da_size);
    dw_parts = Buffer<A>((plan.tasks() + segments) * dw_size);
    parallel_for(plan.tasks(), p.threads, [&](int64_t task) {
      auto d = scratch();
      A *da_part = da_parts.data() + task * da_size, *dw = dw_parts.data() + task * dw_size;
      if (da_size) zero(da_part, da_size);
      if (dw_size) zero(dw, dw_size);
      this->for_each_group(plan, task, rowptr.data(), [&](int64_t i) {
        start_query(d, i);
        for (int64_t r = 0; r < R; ++r) weigh(d, i, r, begin(i, r), end(i, r));
        fold_sums(d, d.query_sums);
        for (int64_t r = 0; r < R; ++r) {
          if (this->query_at(i, r) < 0) continue;
          clear_sums(d);
          differentiate(d, i, r, begin(i, r), end(i, r), d.query_sums, dw);
          finish_query(d, i, r, da_part);
        }
      });
    });
    if (hubs)
      query_hubs(plan, da_parts.data() + plan.tasks() * da_size,
                 dw_parts.data() + plan.tasks() * dw_size);
    if (gatv2) add_parts(&da[0], da_parts, plan.tasks() + hubs, da_size);
    if (D && p.dedge_weight) finish_edge_weight(plan.tasks() + segments, da);
  }

  void query_hubs(const Plan& plan, A* da_part, A* dw_part) {
    const int64_t hubs = plan.hubs.size(), segments = plan.segments.size();
    const int64_t da_size = gatv2 ? R * P : 0, dw_size = R * D * edge_width();
    Buffer<A> segment_sums(segments * 2 * H), sums(hubs * 2 * H), parts(segments * (P + H));
    parallel_for(segments, p.threads, [&](int64_t n) {
      auto d = scratch();
      const Segment& s = plan.segments[n];
      start_query(d, s.group);
      weigh(d, s.group, s.relation, s.begin, s.end);
      fold_sums(d, &segment_sums[n * 2 * H]);
    });
    std::vector<int64_t> hub_of(segments);
    for (int64_t n = 0; n < hubs; ++n) {
      zero(&sums[n * 2 * H], 2 * H);
      for (int64_t s = plan.hubs[n].first_segment; s < plan.hubs[n].last_segment; ++s) {
        hub_of[s] = n;
        for (int64_t h = 0; h < 2 * H; ++h) sums[n * 2 * H + h] += segment_sums[s * 2 * H + h];
      }
    }
    parallel_for(segments, p.threads, [&](int64_t n) {
      auto d = scratch();
      const Segment& s = plan.segments[n];
      A* dw = dw_part + n * dw_size;
      if (dw_size) zero(dw, dw_size);
      start_query(d, s.group);
      clear_sums(d);
      differentiate(d, s.group, s.relation, s.begin, s.end, &sums[hub_of[n] * 2 * H], dw);
      save_sums(d, &parts[n * (P + H)]);
    });
    parallel_for(hubs, p.threads, [&](int64_t n) {
      auto d = scratch();
      const Hub& hub = plan.hubs[n];
      if (da_size) zero(da_part + n * da_size, da_size);
      int64_t s = hub.first_segment;
      for (int64_t r = 0; r < R; ++r) {
        clear_sums(d);
        for (; s < hub.last_segment && plan.segments[s].relation == r; ++s)
          add_sums(d, &parts[s * (P + H)]);
        finish_query(d, hub.group, r, da_part + n * da_size);
      }
    });
  }

  // The sums of one row (query or key): row_sum (U, or its gradient), value_sum (dvalue),
  // score_grad.
  void clear_sums(Memory& d) const {
    zero(d.row_sum, P);
    zero(d.value_sum, P);
    zero(d.score_grad, H);
  }
  void save_sums(const Memory& d, A* part) const {
    std::memcpy(part, d.row_sum, P * sizeof(A));
    std::memcpy(part + P, d.score_grad, H * sizeof(A));
  }
  void add_sums(Memory& d, const A* part) const {
    for (int64_t v = 0; v < P; ++v) d.row_sum[v] += part[v];
    for (int64_t h = 0; h < H; ++h) d.score_grad[h] += part[P + h];
  }

  // Loads dout and top of query i and clears its sums.
  void start_query(Memory& d, int64_t i) const {
    d.dout_row = rows.read(p.dout, i, d.dout);
    tile.repeat(static_cast<const A*>(p.top) + i * H, d.top);
    for (int64_t t = 0; t < tile.vectors; ++t) d.weight_sum[t] = d.product_sum[t] = V{};
  }

  // Σ w g and Σ w per head, where w = exp(score - top), so that α = w / Σ w.
  void fold_sums(const Memory& d, A* sums) const {
    tile.fold(d.product_sum, sums, [](auto x, auto y) { return x + y; });
    tile.fold(d.weight_sum, sums + H, [](auto x, auto y) { return x + y; });
  }

  // Stores w = exp(score - top) and g of edges [from, to), and adds them to d.product_sum (Σ w g)
  // and d.weight_sum (Σ w). For gat, w is stored as -w where the score before LeakyReLU is not
  // positive.
  DYNAGAT_INLINE void weigh(Memory& d, int64_t i, int64_t r, int64_t from, int64_t to) {
    if (from == to || !this->read_query(d, i, r)) return;
    const int64_t T = tile.vectors;
    for (int64_t e = from; e < to; e += block) {
      const int64_t count = std::min(block, to - e);
      if (!gather(d, e, count, r)) return;
      this->template score<true>(d, e, count, r);
      for (int64_t b = 0; b < count; ++b) {
        const Stored* x = d.value_row[b];
        if (!this->keys_fit_cache) prefetch(d.prefetch_row[b], rows.bytes - this->first_half);
        sum_per_head<Per, A>(H, rows.per_head, d.partial + b * H,
                             [&](int64_t v) { return load(d.dout_row + v * W) * load(x + v * W); });
      }
      this->sum_lanes(d.partial, count, d.grad);
      if ((dropout.active || p.dweights) && !adjust(d, e, count)) return;
      V *s = reinterpret_cast<V*>(d.score), *g = reinterpret_cast<V*>(d.grad);
      for (int64_t t = 0; t < T; ++t) {
        const V top = d.top[t];
        V weight_sum{}, product_sum{};
        for (int64_t v = t; v * W < count * H; v += T) {
          s[v] = scaled_exp(s[v] - top);
          product_sum += s[v] * g[v];
          weight_sum += s[v];
        }
        d.weight_sum[t] += weight_sum;
        d.product_sum[t] += product_sum;
      }
      if (gat)
        for (int64_t at = 0; at < count * H; at += W) {
          const V w = load(d.score + at);
          store(d.score + at, load(d.raw + at) > 0 ? w : -w);
        }
      for (int64_t b = 0; b < count; ++b) {
        copy(weight_at(e + b), d.score + b * H, H);
        copy(grad_at(e + b), d.grad + b * H, H);
      }
    }
  }

  // g := factor · g + dweights
  bool adjust(Memory& d, int64_t e, int64_t count) {
    if (!read_edge_ids(d, e, count)) return false;
    for (int64_t b = 0; b < count; ++b) {
      const int64_t id = d.edge_id[b];
      if (dropout.active) {
        this->draw_dropout(d, id);
        this->multiply_heads(d.grad + b * H, d.dropout_factor);
      }
      if (p.dweights)
        for (int64_t h = 0; h < H; ++h)
          d.grad[b * H + h] += static_cast<const A*>(p.dweights)[id * H + h];
    }
    return true;
  }

  // Replaces the stored (w, g) of edges [from, to) by (α after dropout, ds), and adds the edges to
  // the query's gradient in d.row_sum or d.score_grad.
  DYNAGAT_INLINE void differentiate(Memory& d, int64_t i, int64_t r, int64_t from, int64_t to,
                                    const A* sums, A* dw) {
    if (from == to || fault) return;
    A *delta = d.delta, *inverse = d.inverse;
    tile.for_heads([&](int64_t h, auto like) {
      const auto over = 1 / get(sums + H + h, like);
      put(inverse + h, over);
      put(delta + h, over * get(sums + h, like));
    });
    for (int64_t e = from; e < to; ++e) {
      A *weight = weight_at(e), *ds = weight + H;
      tile.for_heads([&](int64_t h, auto like) {
        const auto w = get(weight + h, like), over = get(inverse + h, like);
        const auto excess = get(ds + h, like) - get(delta + h, like);
        if constexpr (gat) {
          const auto factor = below_zero(w, slope);
          const auto alpha = w * over * below_zero(w, A(-1));
          put(weight + h, alpha);
          put(ds + h, alpha * factor * excess);
        } else {
          const auto alpha = w * over;
          put(weight + h, alpha);
          put(ds + h, (dpgat ? alpha * scale : alpha) * excess);
        }
      });
      if (dropout.active) {
        this->draw_dropout(d, read_once(p.edge_id + e));
        this->multiply_heads(weight, d.dropout_factor);
      }
    }
    if constexpr (gat) add_scores(d, from, to, [&](int64_t e) { return grad_at(e); });
    if constexpr (gatv2) add_slopes(d, from, to);
    if constexpr (dpgat) add_keys(d, from, to, r);
    if (D) differentiate_edge_features(d, i, r, from, to, dw);
  }

  // score_grad += Σ ds, block by block, which is more accurate for long sums.
  template <class Ds>
  void add_scores(Memory& d, int64_t from, int64_t to, const Ds& ds_of) const {
    for (int64_t start = from; start < to; start += block) {
      A* sum = d.head_sum;
      zero(sum, H);
      for (int64_t e = start; e < std::min(start + block, to); ++e) this->add_heads(sum, ds_of(e));
      this->add_heads(d.score_grad, sum);
    }
  }

  // row_sum += Σ_e ds · LeakyReLU'(z)
  DYNAGAT_INLINE void add_slopes(Memory& d, int64_t from, int64_t to) {
    const V s = all(slope);
    for_groups<Per, 4>(rows.vectors, rows.per_head,
                       [&](int64_t v, auto group, const int64_t* head) {
      constexpr int G = decltype(group)::value;
      V sum[G], factor[G];
      DYNAGAT_UNROLL
      for (int k = 0; k < G; ++k) sum[k] = load(d.row_sum + (v + k) * W);
      for (int64_t e = from; e < to; ++e) {
        const A* ds = grad_at(e);
        slopes<G>(signs_at(e) + v, s, factor);
        DYNAGAT_UNROLL
        for (int k = 0; k < G; ++k) sum[k] += ds[head[k]] * factor[k];
      }
      DYNAGAT_UNROLL
      for (int k = 0; k < G; ++k) store(d.row_sum + (v + k) * W, sum[k]);
    });
  }

  // row_sum += Σ_e ds · (key_j + W_e e_ij)
  void add_keys(Memory& d, int64_t from, int64_t to, int64_t r) {
    for (int64_t e = from; e < to; e += block) {
      const int64_t count = std::min(block, to - e);
      if (!gather(d, e, count, r)) return;
      for (int64_t b = 0; b < count; ++b) copy(d.score + b * H, grad_at(e + b), H);
      this->add_rows(d.row_sum, d.score, d.sum_row, count, nullptr);
    }
  }

  // Per edge t = ds · LeakyReLU'(z) (dpgat: ds · query):  dw += t ⊗ e,  de = W_eᵀ (a ⊙ t)
  void differentiate_edge_features(Memory& d, int64_t i, int64_t r, int64_t from, int64_t to,
                                   A* dw) {
    const int64_t wide = edge_width();
    if (dpgat && !this->read_query(d, i, r)) return;
    A* t = d.value_sum;  // free in the pass by query
    for (int64_t e = from; e < to; ++e) {
      if (!read_edge_ids(d, e, 1)) return;
      const int64_t id = d.edge_id[0];
      const A* ds = grad_at(e);
      if constexpr (gat) std::memcpy(t, ds, H * sizeof(A));
      for (int64_t v = 0; !gat && v < rows.vectors; ++v) {
        V factor;
        if constexpr (gatv2) slopes<1>(signs_at(e) + v, all(slope), &factor);
        else factor = load(d.query_row + v * W);
        store(t + v * W, ds[v / rows.per_head] * factor);
      }
      if (!gat) this->clear_padding(t);
      const A* x = static_cast<const A*>(p.edge) + id * D;
      for (int64_t k = 0; k < D; ++k) {
        A* to_dw = dw + (r * D + k) * wide;
        for (int64_t c = 0; c < wide; ++c) to_dw[c] += x[k] * t[c];
      }
      if (!p.dedge) continue;
      A* de = static_cast<A*>(p.dedge) + id * D;
      if (gatv2)
        for (int64_t c = 0; c < P; ++c) t[c] *= a[r * P + c];
      for (int64_t k = 0; k < D; ++k) {
        const A* w = &edge_weight[(r * D + k) * wide];
        A sum = 0;
        for (int64_t c = 0; c < wide; ++c) sum += w[c] * t[c];
        de[k] = sum;
      }
    }
  }

  void finish_query(Memory& d, int64_t i, int64_t r, A* da_part) {
    const int64_t row = this->query_at(i, r);
    if (row < 0) return;  // it has no edges
    if constexpr (gat) {
      std::memcpy(static_cast<A*>(p.dquery) + row * H, d.score_grad, H * sizeof(A));
    } else {
      if (gatv2 && begin(i, r) < end(i, r))
        scale_by_a(d, r, rows.read(p.query, row, d.query), da_part);
      rows.write(p.dquery, row, d.row_sum);
    }
  }

  // da += x ⊙ U and row_sum = a ⊙ U, where x is the row and U is row_sum so far. Not called for a
  // row without edges, because its U is 0, and the product of 0 and a NaN would be NaN.
  DYNAGAT_INLINE void scale_by_a(Memory& d, int64_t r, const A* x, A* da_part) const {
    A* sum = da_part + r * P;
    const A* attention = &a[r * P];
    for (int64_t v = 0; v < P; v += W) {
      const V u = load(d.row_sum + v);
      store(sum + v, load(sum + v) + load(x + v) * u);
      store(d.row_sum + v, load(attention + v) * u);
    }
  }

  // dw_parts add up to S = Σ t ⊗ e. dW_e = S; for gatv2, dW_e = a ⊙ S and da += W_e ⊙ S.
  void finish_edge_weight(int64_t parts, Buffer<A>& da) {
    const int64_t wide = edge_width(), size = R * D * wide;
    Buffer<A> sum(size);
    zero(&sum[0], size);
    add_parts(&sum[0], dw_parts, parts, size);
    auto* dw = static_cast<A*>(p.dedge_weight);
    const int64_t stride = rows.per_head * W, channels = gat ? 1 : p.channels;
    for (int64_t r = 0; r < R; ++r)
      for (int64_t k = 0; k < D && has_edges(r); ++k)  // as for scale_by_a; dw is 0 already
        for (int64_t h = 0; h < H; ++h)
          for (int64_t c = 0; c < channels; ++c) {
            const int64_t at = gat ? h : h * stride + c, from = (r * D + k) * wide + at;
            if (gatv2) da[r * P + at] += edge_weight[from] * sum[from];
            dw[((r * H + h) * channels + c) * D + k] =
                gatv2 ? a[r * P + at] * sum[from] : sum[from];
          }
  }

  bool has_edges(int64_t relation) const {
    for (int64_t i = 0; i < p.num_queries; ++i)
      if (begin(i, relation) < end(i, relation)) return true;
    return false;
  }

  // ---- by key ----

  void pass_by_key(const Plan& plan, Buffer<A>& da) {
    const int64_t hubs = plan.hubs.size(), da_size = gatv2 ? R * P : 0;
    da_parts = Buffer<A>((plan.tasks() + hubs) * da_size);
    parallel_for(plan.tasks(), p.threads, [&](int64_t task) {
      auto d = scratch();
      A* da_part = da_parts.data() + task * da_size;
      if (da_size) zero(da_part, da_size);
      this->for_each_group(plan, task, key_rowptr.data(), [&](int64_t j) {
        for (int64_t r = 0; r < R; ++r) {
          if (this->key_at(j, r) < 0) continue;
          clear_sums(d);
          add_transposed(d, r, key_rowptr[j * R + r], key_rowptr[j * R + r + 1]);
          finish_key(d, j, r, da_part);
        }
      });
    });
    if (hubs) key_hubs(plan, da_parts.data() + plan.tasks() * da_size);
    if (gatv2) add_parts(&da[0], da_parts, plan.tasks() + hubs, da_size);
  }

  void key_hubs(const Plan& plan, A* da_part) {
    const int64_t segments = plan.segments.size(), da_size = gatv2 ? R * P : 0;
    const int64_t size = 2 * P + H;
    Buffer<A> parts(segments * size);
    parallel_for(segments, p.threads, [&](int64_t n) {
      auto d = scratch();
      const Segment& s = plan.segments[n];
      clear_sums(d);
      add_transposed(d, s.relation, s.begin, s.end);
      save_sums(d, &parts[n * size]);
      std::memcpy(&parts[n * size + P + H], d.value_sum, P * sizeof(A));
    });
    parallel_for(plan.hubs.size(), p.threads, [&](int64_t n) {
      auto d = scratch();
      const Hub& hub = plan.hubs[n];
      if (da_size) zero(da_part + n * da_size, da_size);
      int64_t s = hub.first_segment;
      for (int64_t r = 0; r < R; ++r) {
        clear_sums(d);
        for (; s < hub.last_segment && plan.segments[s].relation == r; ++s) {
          add_sums(d, &parts[s * size]);
          for (int64_t v = 0; v < P; ++v) d.value_sum[v] += parts[s * size + P + H + v];
        }
        finish_key(d, hub.group, r, da_part + n * da_size);
      }
    });
  }

  // Transposed edges [from, to) of one key: value_sum += α dout,  row_sum += ds · (LeakyReLU'(z) or
  // query)
  DYNAGAT_INLINE void add_transposed(Memory& d, int64_t r, int64_t from, int64_t to) {
    for (int64_t t = from; t < to; t += block) {
      const int64_t count = std::min(block, to - t);
      for (int64_t b = 0; b < count; ++b) {
        const int64_t i = read_once(p.key_query + t + b), e = read_once(p.key_position + t + b);
        if (uint64_t(i) >= uint64_t(p.num_queries)) return fail(Fault::key_query);
        if (uint64_t(e) >= uint64_t(p.num_positions)) return fail(Fault::key_position);
        d.value_row[b] = this->read_row(p.dout, i, d.values + b * (rows_are_copied ? P : 0));
        if (int64_t row; dpgat) {
          if (!this->find_query(i, r, row)) return;
          d.key_row[b] = this->read_row(p.query, row, d.keys + b * (rows_are_copied ? P : 0));
        }
        d.edge_row[b] = weight_at(e);
        if (gatv2) d.sign_row[b] = signs_at(e);
        d.prefetch_row[b] = prefetch_transposed(std::min(t + b + ahead, p.num_positions - 1), r);
      }
      if constexpr (gat) add_scores(d, 0, count, [&](int64_t b) { return d.edge_row[b] + H; });
      add_block(d, count);
    }
  }

  // Prefetches what a later edge needs except its row of dout, and returns where that row starts.
  DYNAGAT_INLINE const char* prefetch_transposed(int64_t t, int64_t r) {
    const int64_t i = p.key_query[t], e = p.key_position[t];
    const char* data = reinterpret_cast<const char*>(edge_data.data() + e * edge_bytes);
    prefetch(data, edge_bytes);
    __builtin_prefetch(data + edge_bytes - 1);
    if (dpgat && !p.query_rows) prefetch(rows.at(p.query, i * R + r), rows.bytes);
    return rows.at(p.dout, i);
  }

  DYNAGAT_INLINE void add_block(Memory& d, int64_t count) const {
    const int64_t stride = rows.bytes / rows.vectors;  // stored bytes per vector
    const V s = all(slope);
    for_groups<Per, 4>(rows.vectors, rows.per_head,
                       [&](int64_t v, auto group, const int64_t* head) {
      constexpr int G = decltype(group)::value;
      V sum[G], value[G], factor[G];
      DYNAGAT_UNROLL
      for (int k = 0; k < G; ++k)
        sum[k] = load(d.row_sum + (v + k) * W), value[k] = load(d.value_sum + (v + k) * W);
      for (int64_t b = 0; b < count; ++b) {
        prefetch(d.prefetch_row[b] + v * stride, G * stride);
        const A *weight = d.edge_row[b], *ds = weight + H;
        const Stored* x = d.value_row[b] + v * W;
        if constexpr (gatv2) slopes<G>(d.sign_row[b] + v, s, factor);
        DYNAGAT_UNROLL
        for (int k = 0; k < G; ++k) {
          value[k] += weight[head[k]] * load(x + k * W);
          if constexpr (gatv2) sum[k] += ds[head[k]] * factor[k];
          if constexpr (dpgat) sum[k] += ds[head[k]] * load(d.key_row[b] + (v + k) * W);
        }
      }
      DYNAGAT_UNROLL
      for (int k = 0; k < G; ++k)
        store(d.row_sum + (v + k) * W, sum[k]), store(d.value_sum + (v + k) * W, value[k]);
    });
  }

  void finish_key(Memory& d, int64_t j, int64_t r, A* da_part) {
    const int64_t row = this->key_at(j, r);
    if (row < 0) return;  // it has no edges
    if constexpr (gat) {
      std::memcpy(static_cast<A*>(p.dkey) + row * H, d.score_grad, H * sizeof(A));
      rows.write(p.dvalue, row, d.value_sum);
      return;
    }
    if (gatv2 && key_rowptr[j * R + r] < key_rowptr[j * R + r + 1])
      scale_by_a(d, r, rows.read(p.key, row, d.query), da_part);
    if (p.value) {
      rows.write(p.dvalue, row, d.value_sum);
    } else {
      for (int64_t v = 0; v < P; v += W)
        store(d.row_sum + v, load(d.row_sum + v) + load(d.value_sum + v));
    }
    rows.write(p.dkey, row, d.row_sum);
  }
};

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
