// Shared by forward and backward: scratch memory, gathering a block of edges, scoring it.
#pragma once
#include <atomic>
#include <type_traits>

#include "memory.h"
#include "parallel.h"
#include "plan.h"
#include "scores.h"

namespace dynagat {
namespace DYNAGAT_ISA {

// Scratch memory of one task. Numbers per head are stored as H values or as a Tile of vectors. A is
// the compute type, Stored the type of a block's rows (see Gather).
template <class A, class Stored>
struct Scratch {
  bool is_empty = true;           // no edge was added to the sums yet
  const A *query_row, *dout_row;  // the stored row, or its copy in `query` or `dout`

  // Padded rows.
  A *query, *dout;
  A* row_sum;               // forward: Σ w value; backward: d query, d key, or U (gatv2)
  A* value_sum;             // backward: d value
  A *keys, *sums, *values;  // copies of a block's rows; empty if rows are read in place

  // Numbers per edge of a block and head.
  A *score, *raw, *grad;  // raw: before LeakyReLU (gat); grad: g
  Vec<A>* partial;        // one vector per number, whose lanes are still to be added up

  // Numbers per head.
  A *dropout_factor, *head_sum, *inverse, *delta, *score_grad;  // inverse: 1 / Σ w
  A* query_sums;                                                // Σ w g, Σ w
  Vec<A>*top, *new_top, *shrink;                                // shrink: exp(old top - new top)
  Vec<A>*weight_sum, *product_sum;                              // Σ w, Σ w g

  // Rows per edge of a block. The pass by key has rows of dout in value_row, rows of query in
  // key_row, and (α, ds) in edge_row.
  const Stored **key_row, **sum_row, **value_row;
  const A** edge_row;
  const Signs** sign_row;
  const char** prefetch_row;
  int64_t *key_id, *edge_id;  // checked copies of the block's indices: key_id is a row of key

  // Not inlined: it would be copied into every kernel.
  __attribute__((noinline)) Scratch(int64_t block, int64_t padded, int64_t heads, int64_t tile,
                                    bool rows_are_copied) {
    int64_t bytes = 0;
    auto measure = [&](auto*& buffer, int64_t count) {
      bytes += whole_lines(count * sizeof(*buffer));
    };
    for_each_buffer(block, padded, heads, tile, rows_are_copied, measure);
    memory = Buffer<char>(bytes);
    char* next = memory.data();
    auto assign = [&](auto*& buffer, int64_t count) {
      buffer = reinterpret_cast<std::remove_reference_t<decltype(buffer)>>(next);
      next += whole_lines(count * sizeof(*buffer));
    };
    for_each_buffer(block, padded, heads, tile, rows_are_copied, assign);
  }

 private:
  Buffer<char> memory;

  static int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

  // visit(buffer, length): the only list of the lengths.
  template <class Visit>
  void for_each_buffer(int64_t block, int64_t padded, int64_t heads, int64_t tile,
                       bool rows_are_copied, const Visit& visit) {
    for (auto* row : {&query, &dout, &row_sum, &value_sum}) visit(*row, padded);
    for (auto* copy : {&keys, &sums, &values}) visit(*copy, rows_are_copied ? block * padded : 0);
    const int64_t block_heads = (block * heads + width<A> - 1) / width<A> * width<A>;
    for (auto* number : {&score, &raw, &grad}) visit(*number, block_heads);
    visit(partial, block_heads);
    for (auto* number : {&dropout_factor, &head_sum, &inverse, &delta, &score_grad})
      visit(*number, heads);
    visit(query_sums, 2 * heads);
    for (auto* sum : {&top, &new_top, &shrink, &weight_sum, &product_sum}) visit(*sum, tile);
    for (auto* row : {&key_row, &sum_row, &value_row}) visit(*row, block);
    visit(edge_row, block);
    visit(sign_row, block);
    visit(prefetch_row, block);
    for (auto* index : {&key_id, &edge_id}) visit(*index, block);
  }
};

// A is the compute type, Per the vectors per head (see sum_per_head). The rows of a block of edges
// are read as `Stored`: A for rows that are stored in A or copied; or BFloat16 or Float16 for rows
// that are converted whenever they are loaded, which must fill whole vectors.
template <class A, class Stored, Mechanism M, int Per>
class Gather {
 protected:
  static constexpr int W = width<A>;
  static constexpr bool gat = M == Mechanism::gat, gatv2 = M == Mechanism::gatv2;
  static constexpr bool dpgat = M == Mechanism::dpgat;
  static constexpr bool converts = !std::is_same_v<A, Stored>;
  using V = Vec<A>;
  using Memory = Scratch<A, Stored>;

  const Problem& p;
  const Rows<A> rows;
  const Tile<A> tile;
  const Dropout dropout;
  const int64_t R, H, P, D;
  const bool keys_fit_cache;  // the second level: then prefetching would only cost time
  const int64_t block, ahead;
  const int64_t first_half;  // bytes of a row that are prefetched first: whole cache lines
  const A slope, scale;
  const void* const value;
  const bool rows_are_copied;  // to be unpacked, or to add edge features
  Buffer<A> a, edge_weight;    // padded: [R, P], [R, D, P] (gat: [R, D, H])
  // Written per edge by the backward pass by query, read by the pass by key: α [H], ds [H] and, for
  // gatv2, the `Signs` (where z is not positive).
  Buffer<uint8_t> edge_data;
  const int64_t edge_bytes;
  Rowptr rowptr;
  std::atomic<int> fault{0};

  explicit Gather(const Problem& p)
      : p(p),
        rows(p.heads, p.channels, p.storage),
        tile(p.heads),
        dropout(p.dropout, p.seed),
        R(p.relations),
        H(p.heads),
        P(rows.padded),
        D(p.edge ? p.edge_dim : 0),
        keys_fit_cache(p.num_keys * p.relations <= (int64_t(1) << 19) / rows.bytes),
        block(std::clamp<int64_t>((keys_fit_cache ? 16384 : 8192) / (P * int64_t(sizeof(Stored))),
                                  4, 32)),
        ahead(std::clamp<int64_t>(8192 / rows.bytes, block, 32)),
        first_half(std::min((rows.bytes / 2 + 63) / 64 * 64, rows.bytes)),
        slope(A(p.slope)),
        scale(A(1 / std::sqrt(double(p.channels)))),
        value(p.value ? p.value : p.key),
        rows_are_copied(!converts && (!rows.direct || D > 0)),
        edge_bytes((2 * H * int64_t(sizeof(A)) +
                    (gatv2 ? rows.vectors * int64_t(sizeof(Signs)) : 0) + 15) /
                   16 * 16) {
    if (gatv2) {
      a = Buffer<A>(R * P);
      for (int64_t row = 0; row < R * H; ++row) pad(static_cast<const A*>(p.a), 1, row, &a[0], row);
    }
    if (!D) return;
    edge_weight = Buffer<A>(R * D * edge_width());
    auto* w = static_cast<const A*>(p.edge_weight);
    for (int64_t r = 0; r < R; ++r)
      for (int64_t k = 0; k < D; ++k)
        for (int64_t h = 0; h < H; ++h) {
          const int64_t to = (r * D + k) * H + h;
          if (gat) edge_weight[to] = w[(r * H + h) * D + k];
          else pad(w + k, D, r * H + h, &edge_weight[0], to);
        }
  }

  // Length of one row of edge_weight: a padded row, or one number per head (gat).
  int64_t edge_width() const { return gat ? H : P; }

  // to[row] = from[from_row, :, 0] of an array [rows, C, stride], padded with zeros.
  void pad(const A* from, int64_t stride, int64_t from_row, A* to, int64_t row) const {
    const int64_t padded = rows.per_head * W;
    for (int64_t c = 0; c < padded; ++c)
      to[row * padded + c] = c < p.channels ? from[(from_row * p.channels + c) * stride] : A(0);
  }

  // Sets the padding of a row to 0. It is NaN if an infinite number was multiplied with it.
  void clear_padding(A* row) const {
    const int64_t padded = rows.per_head * W;
    if (p.channels == padded) return;
    for (int64_t h = 0; h < H; ++h)
      std::fill(row + h * padded + p.channels, row + (h + 1) * padded, A(0));
  }

  A* weight_at(int64_t e) { return reinterpret_cast<A*>(edge_data.data() + e * edge_bytes); }
  A* grad_at(int64_t e) { return weight_at(e) + H; }
  Signs* signs_at(int64_t e) { return reinterpret_cast<Signs*>(weight_at(e) + 2 * H); }

  int64_t begin(int64_t i, int64_t r) const { return rowptr[i * R + r]; }
  int64_t end(int64_t i, int64_t r) const { return rowptr[i * R + r + 1]; }
  Memory scratch() const { return Memory(block, P, H, tile.vectors, rows_are_copied); }
  void fail(Fault what) { fault = int(what); }

  // The numbers of all heads:  to += x,  to *= x
  DYNAGAT_INLINE void add_heads(A* to, const A* x) const {
    tile.for_heads(
        [&](int64_t h, auto like) { put(to + h, get(to + h, like) + get(x + h, like)); });
  }
  DYNAGAT_INLINE void multiply_heads(A* to, const A* x) const {
    tile.for_heads(
        [&](int64_t h, auto like) { put(to + h, get(to + h, like) * get(x + h, like)); });
  }

  // Sets d.dropout_factor of the heads of one edge.
  DYNAGAT_INLINE void draw_dropout(Memory& d, int64_t edge) const {
    dropout.factors(p.first_count + uint64_t(edge) * H, H, d.dropout_factor);
  }

  // Calls fn(group) for every group of the task that is not a hub.
  template <class Fn>
  void for_each_group(const Plan& plan, int64_t task, const int32_t* rowptr, const Fn& fn) const {
    for (int64_t g = plan.bounds[task]; g < plan.bounds[task + 1]; ++g)
      if (rowptr[(g + 1) * R] - rowptr[g * R] <= plan.max_group_edges) fn(g);
  }

  // Where a table has the row of node i < N under relation r; negative if it has no such row.
  DYNAGAT_INLINE int64_t query_at(int64_t i, int64_t r) {
    return p.query_rows ? row_at(p.query_rows, i * R + r, p.num_query_rows, Fault::query_rows)
                        : i * R + r;
  }
  DYNAGAT_INLINE int64_t key_at(int64_t j, int64_t r) {
    return p.key_rows ? row_at(p.key_rows, j * R + r, p.num_key_rows, Fault::key_rows) : j * R + r;
  }
  DYNAGAT_INLINE int64_t row_at(const int32_t* rows, int64_t at, int64_t count, Fault what) {
    const int64_t row = read_once(rows + at);
    if (row < count) return row;
    return fail(what), -1;
  }
  // The same for a row that is needed, because it has edges.
  DYNAGAT_INLINE bool find_query(int64_t i, int64_t r, int64_t& row) {
    return (row = query_at(i, r)) >= 0 || (fail(Fault::query_rows), false);
  }
  DYNAGAT_INLINE bool find_key(int64_t j, int64_t r, int64_t& row) {
    return (row = key_at(j, r)) >= 0 || (fail(Fault::key_rows), false);
  }

  // Sets d.query_row to the row of query i under relation r, or to its scores (gat).
  DYNAGAT_INLINE bool read_query(Memory& d, int64_t i, int64_t r) {
    int64_t row;
    if (!find_query(i, r, row)) return false;
    d.query_row = gat ? static_cast<const A*>(p.query) + row * H : rows.read(p.query, row, d.query);
    return true;
  }

  // A row of a block; `copy` has room for it if rows are copied.
  DYNAGAT_INLINE const Stored* read_row(const void* table, int64_t row, A* copy) const {
    if constexpr (converts) return reinterpret_cast<const Stored*>(rows.at(table, row));
    else return rows.read(table, row, copy);
  }

  DYNAGAT_INLINE bool gather(Memory& d, int64_t e, int64_t count, int64_t r) {
    for (int64_t b = 0; b < count; ++b) {
      const int64_t j = read_once(p.key_index + e + b);
      if (uint64_t(j) >= uint64_t(p.num_keys)) return fail(Fault::key_index), false;
      int64_t row;
      if (!find_key(j, r, row)) return false;
      d.key_id[b] = row;
      if (!gat) d.key_row[b] = read_row(p.key, row, d.keys + b * (rows_are_copied ? P : 0));
      if (gat || p.value)
        d.value_row[b] = read_row(value, row, d.values + b * (rows_are_copied ? P : 0));
      else d.value_row[b] = d.key_row[b];
      if (!gat) d.sum_row[b] = d.key_row[b];
    }
    if constexpr (!converts)
      if (D && !gather_edges(d, e, count, r)) return false;
    return true;
  }

  bool gather_edges(Memory& d, int64_t e, int64_t count, int64_t r) {
    if (!read_edge_ids(d, e, count)) return false;
    for (int64_t b = 0; b < count; ++b) {
      d.edge_row[b] = static_cast<const A*>(p.edge) + d.edge_id[b] * D;
      if (gat) continue;
      A* sum = d.sums + b * P;  // key_j + W_e e_ij
      for (int64_t v = 0; v < P; v += W) store(sum + v, load(d.key_row[b] + v));
      for (int64_t k = 0; k < D; ++k) {
        const V x = all(d.edge_row[b][k]);
        const A* w = &edge_weight[(r * D + k) * P];
        for (int64_t v = 0; v < P; v += W) store(sum + v, load(sum + v) + x * load(w + v));
      }
      clear_padding(sum);
      d.sum_row[b] = sum;
    }
    return true;
  }

  // Copies the edge ids of positions [e, e + count) to d.edge_id; false if one is out of range.
  bool read_edge_ids(Memory& d, int64_t e, int64_t count) {
    for (int64_t b = 0; b < count; ++b) {
      d.edge_id[b] = read_once(p.edge_id + e + b);
      if (uint64_t(d.edge_id[b]) >= uint64_t(p.num_edges)) return fail(Fault::edge_id), false;
    }
    return true;
  }

  // Prefetches what the edge at a later position needs, except the second half of its row of
  // values, and returns where that half starts. The loop after the scores prefetches it: memory
  // would be idle there otherwise, and here the loads would wait for each other.
  DYNAGAT_INLINE const char* prefetch_edge(int64_t at, int64_t r) const {
    if (keys_fit_cache) return nullptr;
    at = std::min(at, p.num_positions - 1);
    int64_t row = int64_t(p.key_index[at]) * R + r;
    if (p.key_rows) row = uint64_t(row) < uint64_t(p.num_keys * R) ? p.key_rows[row] : 0;
    prefetch(rows.at(value, row), first_half);
    if (dpgat || (gatv2 && p.value)) prefetch(rows.at(p.key, row), rows.bytes);
    if (gat) __builtin_prefetch(static_cast<const A*>(p.key) + row * H);
    return rows.at(value, row) + first_half;
  }

  // Computes d.score[b, h], padded with -inf to whole vectors. Signed: also stores the signs of z.
  template <bool Signed>
  DYNAGAT_INLINE void score(Memory& d, int64_t e, int64_t count, int64_t r) {
    if constexpr (gat) {
      score_gat(d, e, count, r);
    } else {
      const A* q = d.query_row;
      const A* attention = gatv2 ? &a[r * P] : nullptr;
      const V s = all(slope);
      for (int64_t b = 0; b < count; ++b) {
        d.prefetch_row[b] = prefetch_edge(e + b + ahead, r);
        const Stored* k = d.sum_row[b];
        V* partial = d.partial + b * H;
        if constexpr (dpgat) {
          sum_per_head<Per, A>(H, rows.per_head, partial,
                               [&](int64_t v) { return load(q + v * W) * load(k + v * W); });
        } else {
          Signs* sign = Signed ? signs_at(e + b) : nullptr;
          sum_per_head<Per, A>(H, rows.per_head, partial, [&](int64_t v) {
            const V z = load(q + v * W) + load(k + v * W);
            if constexpr (Signed) sign[v] = signs(z);
            return load(attention + v * W) * leaky_relu<A>(z, s);
          });
        }
      }
      sum_lanes(d.partial, count, d.score);
      if constexpr (dpgat)
        for (int64_t at = 0; at < count * H; ++at) d.score[at] *= scale;
      for (int64_t at = count * H; at % W; ++at) d.score[at] = -std::numeric_limits<A>::infinity();
    }
  }

  void score_gat(Memory& d, int64_t e, int64_t count, int64_t r) {
    const A* query = d.query_row;
    for (int64_t b = 0; b < count; ++b) {
      d.prefetch_row[b] = prefetch_edge(e + b + ahead, r);
      const A* key = static_cast<const A*>(p.key) + d.key_id[b] * H;
      A* raw = d.raw + b * H;
      tile.for_heads(
          [&](int64_t h, auto like) { put(raw + h, get(query + h, like) + get(key + h, like)); });
      for (int64_t k = 0; k < D; ++k)
        for (int64_t h = 0; h < H; ++h)
          raw[h] += d.edge_row[b][k] * edge_weight[(r * D + k) * H + h];
    }
    const V s = all(slope);
    for (int64_t at = 0; at < count * H; at += W)
      store(d.score + at, leaky_relu<A>(load(d.raw + at), s));
    for (int64_t at = count * H; at % W; ++at) d.score[at] = -std::numeric_limits<A>::infinity();
  }

  // row += Σ_b weight[b, head] · x[b]. Also prefetches the second halves of later rows, where
  // prefetch_row says, unless it is null.
  DYNAGAT_INLINE void add_rows(A* row, const A* weight, const Stored* const* x, int64_t count,
                               const char* const* prefetch_row) const {
    const int64_t stride = (rows.bytes - first_half) / rows.vectors;  // prefetched bytes per vector
    const bool prefetches = prefetch_row && !keys_fit_cache;
    for_groups<Per, 8>(rows.vectors, rows.per_head,
                       [&](int64_t v, auto group, const int64_t* head) {
      constexpr int G = decltype(group)::value;
      V sum[G];
      DYNAGAT_UNROLL
      for (int k = 0; k < G; ++k) sum[k] = load(row + (v + k) * W);
      for (int64_t b = 0; b < count; ++b) {
        const Stored* from = x[b] + v * W;
        if (prefetches) prefetch(prefetch_row[b] + v * stride, G * stride);
        const A* w = weight + b * H;
        DYNAGAT_UNROLL
        for (int k = 0; k < G; ++k) sum[k] += w[head[k]] * load(from + k * W);
      }
      DYNAGAT_UNROLL
      for (int k = 0; k < G; ++k) store(row + (v + k) * W, sum[k]);
    });
  }

  // sums[at] = the sum of the lanes of partial[at].
  DYNAGAT_INLINE void sum_lanes(V* partial, int64_t count, A* sums) const {
    for (int64_t at = count * H; at % W; ++at) partial[at] = V{};
    for (int64_t at = 0; at < count * H; at += W) store(sums + at, sum_each<A>(partial + at));
  }
};

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
