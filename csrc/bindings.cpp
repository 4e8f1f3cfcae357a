// Python bindings, the only file that uses Python. Invalid indices raise a ValueError.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "csr.h"
#include "features.h"
#include "kernels.h"
#include "ranking.h"
#include "saint.h"
#include "used_rows.h"

namespace nb = nanobind;
using namespace dynagat;
using Address = uintptr_t;

namespace {

struct Features {
  SparseProduct* sparse_product;
  SparseDots* sparse_dots;
  SparseDrop* sparse_drop;
  CountNonzeros* count_nonzeros;
  Drop* drop;
  ScoreHeads* score_heads;
  ScoreGradient* score_gradient;
  AddRows* add_rows;
  AddUpRows* add_up_rows;
  MultiplySmall* multiply_small;
};

struct InstructionSet {
  const char* name;
  Kernel* by_mechanism[3];
  Floor* floor;
  PairProduct* pair_product;
  PairGradient* pair_gradient;
  LayerTail* tail;
  Features features;
  Kernel* wide[3] = {};  // with longer vectors, where the build has them

  // Longer vectors pay where the channels of a head fill them. For several heads they cost more per
  // row, so that rows of few channels need many edges; kernels.cpp relies on the other conditions.
  Kernel* kernel(const Problem& p) const {
    const int mechanism = int(p.mechanism);
    const bool is_small = p.storage == Storage::float32 && p.heads > 1 && p.channels <= 32;
    const int64_t rows = p.query_rows ? p.num_query_rows : p.num_queries * p.relations;
    const bool is_wide = wide[mechanism] && p.channels % 16 == 0 && p.storage != Storage::float64 &&
                         (!is_small || p.num_positions / 12 >= rows);
    return is_wide ? wide[mechanism] : by_mechanism[mechanism];
  }
};

#define FEATURES(isa)                                                                 \
  {isa::sparse_product, isa::sparse_dots,   isa::sparse_drop,    isa::count_nonzeros, \
   isa::drop,           isa::score_heads,   isa::score_gradient, isa::add_rows,       \
   isa::add_up_rows,    isa::multiply_small}

// The best instruction set that both the machine and the build have; DYNAGAT_ISA sets an upper
// limit.
InstructionSet choose_kernels() {
  const char* wanted = std::getenv("DYNAGAT_ISA");
  const std::string limit = wanted && *wanted ? wanted : "avx512";
#ifdef DYNAGAT_X86
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#ifdef DYNAGAT_AVX512
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  if (has_avx512 && limit == "avx512")
    return {"avx512",
            {avx512::gat, avx512::gatv2, avx512::dpgat},
            avx512::gather_floor,
            avx512::pair_product,
            avx512::pair_gradient,
            avx512::tail,
            FEATURES(avx512),
            {avx512_wide::gat, avx512_wide::gatv2, avx512_wide::dpgat}};
#endif
  if (has_avx2 && limit != "baseline")
    return {"avx2",
            {avx2::gat, avx2::gatv2, avx2::dpgat},
            avx2::gather_floor,
            avx2::pair_product,
            avx2::pair_gradient,
            avx2::tail,
            FEATURES(avx2),
            {}};
#endif
  return {"baseline",
          {baseline::gat, baseline::gatv2, baseline::dpgat},
          baseline::gather_floor,
          baseline::pair_product,
          baseline::pair_gradient,
          baseline::tail,
          FEATURES(baseline),
          {}};
}

const InstructionSet kernels = choose_kernels();

void throw_if_fault(int fault) {
  static const char* const names[] = {"",           "rowptr",    "key_index",    "edge_id",
                                      "key_rowptr", "key_query", "key_position", "query_rows",
                                      "key_rows"};
  if (fault)
    throw nb::value_error(
        (std::string("the graph's ") + names[fault] + " holds an index that is out of range")
            .c_str());
}

void run(const Problem& problem, bool backward) {
  int fault;
  {
    nb::gil_scoped_release release;
    fault = kernels.kernel(problem)(problem, backward);
  }
  throw_if_fault(fault);
}

void group_edges(const std::vector<std::pair<Address, int>>& edges, int64_t num_edges,
                 const std::vector<int64_t>& sizes, const std::vector<int64_t>& loops,
                 const std::vector<Address>& arrays, int threads) {
  auto index = [&](int n) {
    return Index{reinterpret_cast<const void*>(edges[n].first), edges[n].second};
  };
  auto array = [&](int n) { return reinterpret_cast<int32_t*>(arrays[n]); };
  if (edges.size() != 4 || sizes.size() != 3 || loops.size() != 2 || arrays.size() != 6)
    throw nb::value_error(
        "group needs 4 edge arrays, 3 sizes, 2 loop arguments and 6 result arrays");
  const int64_t loop_count = loops[0] < 0 ? 0 : std::min(sizes[0], sizes[1]);
  for (int64_t size : {num_edges, sizes[0], sizes[1], sizes[2] - 1, loops[1]})
    if (size < 0 || size > INT32_MAX) throw nb::value_error("sizes must lie in [0, 2^31)");
  if (std::max(sizes[0], sizes[1]) * sizes[2] > INT32_MAX ||
      std::max(num_edges, loops[0]) + loop_count > INT32_MAX)
    throw nb::value_error("a graph must have fewer than 2^31 edges and rows");
  if (loops[1] >= sizes[2]) throw nb::value_error("loop_relation must be one of the relations");
  const Edges from{index(0), index(1), index(2), index(3), num_edges};
  const Grouping to{sizes[0], sizes[1], sizes[2], loops[0], loops[1], array(0),
                    array(1), array(2), array(3), array(4), array(5)};
  BadIndex bad;
  {
    nb::gil_scoped_release release;
    bad = group(from, to, threads);
  }
  if (!bad.argument) return;
  static const char* const names[] = {"", "query_index", "key_index", "relation"};
  throw nb::value_error((std::string(names[bad.argument]) + " must lie in [0, " +
                         std::to_string(sizes[bad.argument - 1]) + "), but holds " +
                         std::to_string(bad.value))
                            .c_str());
}

// A hash of two words: both halves of the product of what is left of them after their keys.
uint64_t hash_pair(const char* from, size_t bytes, uint64_t key) {
  uint64_t words[2] = {};
  std::memcpy(words, from, bytes);
  const auto product =
      static_cast<unsigned __int128>(words[0] ^ key) * (words[1] ^ (key * 2 + 0xBF58476D1CE4E5B9u));
  return uint64_t(product) ^ uint64_t(product >> 64);
}

// A checksum of an array: the sum over its pairs of 64-bit words of a hash of the pair, whose key
// depends on its position.
uint64_t checksum(Address data, int64_t bytes, int threads) {
  nb::gil_scoped_release release;
  constexpr int64_t chunk = 1 << 18, pair = 16;  // bytes
  const int64_t chunks = (bytes + chunk - 1) / chunk;
  auto* from = reinterpret_cast<const char*>(data);
  std::atomic<uint64_t> sum{uint64_t(bytes)};
  parallel_for(chunks, threads, [&](int64_t task) {
    uint64_t part = 0;
    const int64_t end = std::min((task + 1) * chunk, bytes);
    int64_t at = task * chunk;
    uint64_t key = 0x94D049BB133111EBu + uint64_t(at / pair) * 0x9E3779B97F4A7C15u;
    for (; at + pair <= end; at += pair, key += 0x9E3779B97F4A7C15u)
      part += hash_pair(from + at, pair, key);
    if (at < end) part += hash_pair(from + at, size_t(end - at), key);
    sum += part;
  });
  return sum;
}

// An uninitialised torch tensor. Its memory comes from the pool and returns to it with the tensor.
nb::ndarray<nb::pytorch> allocate(const std::vector<size_t>& shape, int kind) {
  static const nb::dlpack::dtype types[] = {
      nb::dtype<float>(), nb::dtype<double>(), {4, 16, 1}, {2, 16, 1}};  // 4: bfloat, 2: float
  size_t bytes = size_t(bytes_of(Storage(kind)));
  for (size_t length : shape)
    if (__builtin_mul_overflow(bytes, length, &bytes)) throw std::bad_alloc();
  auto* block = new Pooled(bytes);
  nb::capsule owner(block, [](void* held) noexcept { delete static_cast<Pooled*>(held); });
  return nb::ndarray<nb::pytorch>(block->data(), shape.size(), shape.data(), owner, nullptr,
                                  types[kind]);
}

// arrays: rowptr, key [E], scores [heads, E], effects [heads, keys]; result: position [heads, keys]
void rank(const std::vector<Address>& arrays, int64_t queries, int64_t keys, int64_t edges,
          int64_t heads, int threads) {
  bool valid;
  {
    nb::gil_scoped_release release;
    valid = rank_keys(reinterpret_cast<const int32_t*>(arrays.at(0)),
                      reinterpret_cast<const int32_t*>(arrays.at(1)),
                      reinterpret_cast<const double*>(arrays.at(2)),
                      reinterpret_cast<const double*>(arrays.at(3)), queries, keys, edges, heads,
                      reinterpret_cast<int32_t*>(arrays.at(4)), threads);
  }
  if (!valid)
    throw nb::value_error("rowptr or key_index holds a value that their sizes do not allow");
}

using IndexArray = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Nodes = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using PairArray = nb::ndarray<nb::ro, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
template <class T>
using OutputArray = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

// A copy, because another thread may write the caller's array after it was checked.
Array<int64_t> copy_nodes(const Nodes& nodes) {
  Array<int64_t> copied(int64_t(nodes.size()));
  for (int64_t n = 0; n < copied.count; ++n) copied[n] = read_once(nodes.data() + n);
  return copied;
}

Index read_index(const IndexArray& array, const char* name) {
  const auto type = array.dtype();
  if (type.code != uint8_t(nb::dlpack::dtype_code::Int) || (type.bits != 32 && type.bits != 64))
    throw nb::type_error((std::string(name) + " must hold int32 or int64").c_str());
  return {array.data(), type.bits / 8};
}

// arrays: rowptr, key_index and optionally edge_id
Neighbours read_neighbours(const std::vector<IndexArray>& arrays) {
  if (arrays.size() < 2 || arrays.size() > 3 || arrays[0].size() < 1)
    throw nb::value_error(
        "rows must be rowptr (with one number at least), key_index and optionally edge_id");
  Neighbours from{read_index(arrays[0], "rowptr"), read_index(arrays[1], "key_index"), Index(),
                  int64_t(arrays[0].size()) - 1, int64_t(arrays[1].size())};
  if (arrays.size() == 3) from.edge_id = read_index(arrays[2], "edge_id");
  if (arrays.size() == 3 && arrays[2].size() != arrays[1].size())
    throw nb::value_error("edge_id must have the same length as key_index");
  if (from.nodes > INT32_MAX) throw nb::value_error("a graph must have fewer than 2^31 nodes");
  return from;
}

void throw_if_set(const FirstError& error) {
  static const char* const texts[] = {
      "",
      "rowptr must rise from 0 to the number of edges, but does not",
      "key_index holds an index that is not a node",
      "a given index is no node of the graph, or the graph has no node to draw from",
      "a node was given twice",
      "out of memory",
      "a sample must have fewer than 2^31 edges and nodes"};
  if (error.get() == Error::memory) throw std::bad_alloc();
  if (error) throw nb::value_error(texts[int(error.get())]);
}

template <class T>
OutputArray<T> to_python(Array<T>&& array) {
  auto* held = new Array<T>(std::move(array));
  nb::capsule owner(held, [](void* at) noexcept { delete static_cast<Array<T>*>(at); });
  return OutputArray<T>(held->data(), {size_t(held->count)}, owner);
}

nb::tuple to_python(Picks&& picks) {
  return nb::make_tuple(to_python(std::move(picks.rowptr)), to_python(std::move(picks.key)),
                        to_python(std::move(picks.edge)));
}

// Returns nodes, [(rowptr, key, edge) of each layer], new nodes of each hop, edges of each hop.
nb::tuple sample(const std::vector<IndexArray>& rows, const Nodes& seeds,
                 const std::vector<int64_t>& fanouts, bool replace, bool layered, uint64_t seed,
                 int threads) {
  const Neighbours from = read_neighbours(rows);
  if (int64_t(seeds.size()) > from.nodes) throw nb::value_error("a node was given twice");
  Array<int64_t> given = copy_nodes(seeds);
  FirstError error;
  Array<int64_t> node;
  std::vector<Picks> layers;
  std::vector<int64_t> new_nodes, num_edges;
  {
    nb::gil_scoped_release release;
    Sample sample(from, given.data(), given.count, error);
    for (size_t hop = 0; hop < fanouts.size() && !error; ++hop)
      sample.hop(int64_t(hop), {fanouts[hop], replace}, seed, layered, threads);
    node = sample.node.resized(sample.node.count);
    layers = std::move(sample.layers);
    new_nodes = std::move(sample.new_nodes), num_edges = std::move(sample.num_edges);
  }
  throw_if_set(error);
  nb::list layer_arrays;
  for (Picks& picks : layers) layer_arrays.append(to_python(std::move(picks)));
  return nb::make_tuple(to_python(std::move(node)), layer_arrays, new_nodes, num_edges);
}

nb::tuple pick(const std::vector<IndexArray>& rows, const Nodes& queries, int64_t fanout,
               bool replace, uint64_t seed, uint64_t stage, int threads) {
  const Neighbours from = read_neighbours(rows);
  Array<int64_t> query = copy_nodes(queries);
  for (int64_t n = 0; n < query.count; ++n)
    if (uint64_t(query[n]) >= uint64_t(from.nodes))
      throw nb::value_error("queries hold an index that is no node of the graph");
  FirstError error;
  Picks picks;
  {
    nb::gil_scoped_release release;
    picks =
        HopSampler(from, query.data(), query.count, {fanout, replace}, Stream(seed, stage), error)
            .run(threads);
  }
  throw_if_set(error);
  return to_python(std::move(picks));
}

// Returns the visited nodes, sorted, without duplicates. kind: 0 walks, 1 nodes, 2 edges
OutputArray<int64_t> visit(const std::vector<IndexArray>& rows, int kind, int64_t count,
                           int64_t length, const Nodes& live, uint64_t seed, int threads) {
  const Neighbours from = read_neighbours(rows);
  if (count < 0 || length < 0) throw nb::value_error("count and length must not be negative");
  if (count > INT32_MAX / (length + 1))
    throw nb::value_error("count * (length + 1) must be less than 2^31");
  FirstError error;
  Array<int64_t> visited(count * (kind == 0 ? length + 1 : kind == 1 ? 1 : 2));
  {
    nb::gil_scoped_release release;
    int64_t* to = visited.data();
    if (kind == 0) walk(from, count, length, seed, to, threads, error);
    else if (kind == 1) draw_nodes(from, count, seed, to, threads, error);
    else draw_edges(from, live.data(), int64_t(live.size()), count, seed, to, threads, error);
    if (!error) {
      std::sort(to, to + visited.count);
      visited.count = std::unique(to, to + visited.count) - to;
      visited = visited.resized(visited.count);
    }
  }
  throw_if_set(error);
  return to_python(std::move(visited));
}

nb::tuple induce(const std::vector<IndexArray>& rows, const Nodes& nodes, int threads) {
  const Neighbours from = read_neighbours(rows);
  if (int64_t(nodes.size()) > from.nodes) throw nb::value_error("a node was given twice");
  Array<int64_t> node = copy_nodes(nodes);
  FirstError error;
  Picks picks;
  {
    nb::gil_scoped_release release;
    picks = Induced(from, node.count, error).run(node.data(), threads);
  }
  throw_if_set(error);
  return to_python(std::move(picks));
}

// Returns key_rowptr, key_query, key_position.
nb::tuple transpose_rows(const Ints& rowptr, const Ints& key, int64_t keys, int threads) {
  if (rowptr.size() < 1) throw nb::value_error("rowptr must not be empty");
  if (keys < 0 || keys > INT32_MAX) throw nb::value_error("keys must lie in [0, 2^31)");
  const int64_t edges = int64_t(key.size());
  Array<int32_t> start(keys + 1), query(edges), position(edges);
  bool valid;
  {
    nb::gil_scoped_release release;
    valid = transpose(rowptr.data(), key.data(), int64_t(rowptr.size()) - 1, keys, edges,
                      start.data(), query.data(), position.data(), threads);
  }
  if (!valid)
    throw nb::value_error("rowptr or key_index holds a value that their sizes do not allow");
  return nb::make_tuple(to_python(std::move(start)), to_python(std::move(query)),
                        to_python(std::move(position)));
}

// Returns rowptr, key_index, edge_id: the edges grouped by query, otherwise in the caller's order.
nb::tuple group_rows(const IndexArray& query, const IndexArray& key, int64_t nodes, int threads) {
  const int64_t edges = int64_t(query.size());
  if (nodes < 0 || nodes > INT32_MAX || edges > INT32_MAX || query.size() != key.size())
    throw nb::value_error(
        "query_index and key_index must have equal lengths below 2^31, and nodes must lie in [0, "
        "2^31)");
  const Edges from{read_index(query, "query_index"), read_index(key, "key_index"), {}, {}, edges};
  Array<int32_t> rowptr(nodes + 1), key_index(edges), edge_id(edges);
  BadIndex bad;
  {
    nb::gil_scoped_release release;
    const CheckedEdges checked(
        from, {nodes, nodes, 1, -1, 0, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr},
        threads);
    bad = checked.bad;
    if (!bad.argument)
      sort_by_row(edges, nodes, rowptr.data(), threads, [&](int64_t e) { return checked.row[e]; },
                  [&](int32_t position, int64_t e) {
        key_index[position] = checked.key[e];
        edge_id[position] = int32_t(e);
      });
  }
  if (bad.argument)
    throw nb::value_error((std::string(bad.argument == 1 ? "query_index" : "key_index") +
                           " must lie in [0, " + std::to_string(nodes) + "), but holds " +
                           std::to_string(bad.value))
                              .c_str());
  return nb::make_tuple(to_python(std::move(rowptr)), to_python(std::move(key_index)),
                        to_python(std::move(edge_id)));
}

void gather(Address table, int64_t rows, int64_t bytes, const Nodes& index, Address out,
            int threads) {
  bool valid;
  {
    nb::gil_scoped_release release;
    valid = gather_rows(reinterpret_cast<const char*>(table), rows, bytes, index.data(),
                        int64_t(index.size()), reinterpret_cast<char*>(out), threads);
  }
  if (!valid) throw nb::value_error("an index is out of the table's range");
}

// out [nodes, width] = for each node, the sum of its rows of a table, as in `sum_rows`.
void sum_used_rows(Address table, int64_t table_rows, int64_t width, Address rows, int64_t nodes,
                   int64_t relations, Address out, bool is_double, int threads) {
  if (std::min({table_rows, width, nodes, relations}) < 0)
    throw nb::value_error("sizes must not be negative");
  auto sum = [&](auto like) {
    using T = decltype(like);
    return sum_rows(reinterpret_cast<const T*>(table), table_rows, width,
                    reinterpret_cast<const int32_t*>(rows), nodes, relations,
                    reinterpret_cast<T*>(out), threads);
  };
  bool valid;
  {
    nb::gil_scoped_release release;
    valid = is_double ? sum(double()) : sum(float());
  }
  if (!valid) throw nb::value_error("a row is outside the table");
}

using Sizes = std::vector<int64_t>;

template <class T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

// arrays: ptr [rows + 1], index [count], position [count] or 0; sizes: rows, columns, count
SparseMatrix read_matrix(const std::vector<Address>& arrays, const Sizes& sizes, Address values,
                         bool is_double, int threads) {
  if (arrays.size() != 3 || sizes.size() != 3)
    throw nb::value_error("a sparse matrix must have 3 arrays and 3 sizes");
  for (int64_t size : sizes)
    if (size < 0 || size > INT32_MAX) throw nb::value_error("sizes must lie in [0, 2^31)");
  return {at<const int32_t>(arrays[0]),
          at<const int32_t>(arrays[1]),
          at<const int32_t>(arrays[2]),
          at<const void>(values),
          sizes[0],
          sizes[1],
          sizes[2],
          is_double,
          threads};
}

template <class Work>
void run_sparse(const Work& work) {
  bool valid;
  {
    nb::gil_scoped_release release;
    valid = work();
  }
  if (!valid) throw nb::value_error("the sparse matrix holds an index that is out of range");
}

void multiply_sparse(const std::vector<Address>& arrays, const Sizes& sizes, Address values,
                     Address table, int64_t width, Address bias, Address out, bool is_double,
                     int threads) {
  const SparseMatrix matrix = read_matrix(arrays, sizes, values, is_double, threads);
  run_sparse([&] {
    return kernels.features.sparse_product(matrix, at<void>(table), width, at<void>(bias),
                                           at<void>(out));
  });
}

void differentiate_entries(const std::vector<Address>& arrays, const Sizes& sizes, Address left,
                           Address right, int64_t width, Address out, bool is_double, int threads) {
  const SparseMatrix matrix = read_matrix(arrays, sizes, 0, is_double, threads);
  run_sparse([&] {
    return kernels.features.sparse_dots(matrix, at<void>(left), at<void>(right), width,
                                        at<void>(out));
  });
}

void drop_sparse(const std::vector<Address>& arrays, const Sizes& sizes, Address values,
                 double probability, uint64_t seed, Address out, Address dense, bool is_double,
                 int threads) {
  const SparseMatrix matrix = read_matrix(arrays, sizes, values, is_double, threads);
  run_sparse([&] {
    return kernels.features.sparse_drop(matrix, {probability, seed}, at<void>(out),
                                        at<void>(dense));
  });
}

// rowptr and column of the numbers of x [rows, columns] that are not 0; None if more than `most`.
nb::object find_nonzeros(Address x, int64_t rows, int64_t columns, int64_t most, bool is_double,
                         int threads) {
  if (std::min(rows, columns) < 0 || std::max(rows, columns) > INT32_MAX || most > INT32_MAX)
    throw nb::value_error("sizes must lie in [0, 2^31)");
  Array<int64_t> counts(rows);
  Array<int32_t> rowptr(rows + 1), column;
  bool few;
  {
    nb::gil_scoped_release release;
    few = kernels.features.count_nonzeros(at<void>(x), rows, columns, most, is_double,
                                          counts.data(), threads);
    if (few) {
      rowptr[0] = 0;
      for (int64_t row = 0; row < rows; ++row) rowptr[row + 1] = rowptr[row] + int32_t(counts[row]);
      column = Array<int32_t>(rowptr[rows]);
      parallel_for(rows, threads, [&](int64_t row) {
        int32_t to = rowptr[row];
        const int32_t end = rowptr[row + 1];  // another thread may write x meanwhile
        for (int64_t c = 0; c < columns && to < end; ++c)
          if (is_double ? at<double>(x)[row * columns + c] != 0
                        : at<float>(x)[row * columns + c] != 0)
            column[to++] = int32_t(c);
        while (to < end) column[to++] = 0;
      });
    }
  }
  if (!few) return nb::none();
  return nb::make_tuple(to_python(std::move(rowptr)), to_python(std::move(column)));
}

void drop_entries(Address x, int64_t count, double probability, uint64_t seed, Address out,
                  bool is_double, int threads) {
  nb::gil_scoped_release release;
  kernels.features.drop(at<void>(x), count, {probability, seed}, is_double, at<void>(out), threads);
}

// arrays: value, a_query, a_key; sizes: nodes, heads, channels
HeadScores read_heads(const std::vector<Address>& arrays, const Sizes& sizes, bool is_double,
                      int threads) {
  if (arrays.size() != 3 || sizes.size() != 3)
    throw nb::value_error("the scores of heads need 3 arrays and 3 sizes");
  return {at<void>(arrays[0]),
          at<void>(arrays[1]),
          at<void>(arrays[2]),
          sizes[0],
          sizes[1],
          sizes[2],
          is_double,
          threads};
}

void score_heads(const std::vector<Address>& arrays, const Sizes& sizes, Address query, Address key,
                 bool is_double, int threads) {
  const HeadScores heads = read_heads(arrays, sizes, is_double, threads);
  nb::gil_scoped_release release;
  kernels.features.score_heads(heads, at<void>(query), at<void>(key));
}

void differentiate_heads(const std::vector<Address>& arrays, const Sizes& sizes, Address dvalue,
                         Address dquery, Address dkey, Address total, Address da, bool is_double,
                         int threads) {
  const HeadScores heads = read_heads(arrays, sizes, is_double, threads);
  nb::gil_scoped_release release;
  kernels.features.score_gradient(heads, at<void>(dvalue), at<void>(dquery), at<void>(dkey),
                                  at<void>(total), at<void>(da));
}

using LayerOptions = std::tuple<int, int, double, double, uint64_t>;

// A layer in one call, on one set of nodes: the projections, if they are small; the scores of gat;
// attention; the bias. Without small projections, the tables are given.
struct Layer {
  Problem problem;
  HeadScores scores;  // for gat, whose query and key are computed from value
  int64_t inner, width;
  bool is_double;
  const void* x;

  // graph: its six arrays; sizes: nodes, positions, edges, heads, channels, columns of x; options:
  // mechanism, storage (float32 or float64), slope, dropout, seed; tables: query, key, value, a or
  // a_query, a_key; x: null if the projections are not small
  Layer(const std::vector<Address>& graph, const Sizes& sizes, const LayerOptions& options,
        const std::vector<Address>& tables, Address features, int threads) {
    if (graph.size() != 6 || sizes.size() != 6 || tables.size() != 5)
      throw nb::value_error("a layer needs 6 arrays of a graph, 6 sizes and 5 tables");
    Problem& p = problem;
    p.mechanism = Mechanism(std::get<0>(options)), p.storage = Storage(std::get<1>(options));
    p.slope = std::get<2>(options), p.dropout = std::get<3>(options);
    p.seed = std::get<4>(options);
    is_double = p.storage == Storage::float64;
    if (!is_double && p.storage != Storage::float32)
      throw nb::value_error("a layer in one call must have float32 or float64 numbers");
    p.threads = threads;
    p.rowptr = at<const int32_t>(graph[0]), p.key_index = at<const int32_t>(graph[1]);
    p.edge_id = at<const int32_t>(graph[2]), p.key_rowptr = at<const int32_t>(graph[3]);
    p.key_query = at<const int32_t>(graph[4]), p.key_position = at<const int32_t>(graph[5]);
    p.num_queries = p.num_keys = p.num_query_rows = p.num_key_rows = sizes[0];
    p.num_positions = sizes[1], p.num_edges = sizes[2];
    p.heads = sizes[3], p.channels = sizes[4];
    p.query = at<void>(tables[0]), p.key = at<void>(tables[1]), p.value = at<void>(tables[2]);
    if (p.mechanism == Mechanism::gatv2) p.a = at<void>(tables[3]);
    scores = {p.value, at<void>(tables[3]), at<void>(tables[4]), sizes[0],
              p.heads, p.channels,          is_double,           threads};
    inner = sizes[5], width = p.heads * p.channels;
    x = at<void>(features);
  }

  bool is_gat() const { return problem.mechanism == Mechanism::gat; }
  int64_t nodes() const { return problem.num_queries; }
};

// results: top, out, and if the projections are small, the tables; for gat also query and key.
// projections: weight, bias and table of each, if they are small
void forward_layer(const std::vector<Address>& graph, const Sizes& sizes,
                   const LayerOptions& options, const std::vector<Address>& tables, Address bias,
                   const std::vector<Address>& results,
                   const std::vector<std::tuple<Address, Address, Address>>& projections, Address x,
                   int threads) {
  Layer layer(graph, sizes, options, tables, x, threads);
  Problem& p = layer.problem;
  if (results.size() != 2) throw nb::value_error("a layer has 2 results");
  p.top = at<void>(results[0]), p.out = at<void>(results[1]);
  int fault;
  {
    nb::gil_scoped_release release;
    if (layer.x)
      for (const auto& [weight, b, table] : projections)
        kernels.features.multiply_small({layer.x, layer.inner, 1, layer.nodes(), layer.inner,
                                         layer.width, at<void>(weight), at<void>(b),
                                         at<void>(table), true, false, layer.is_double});
    if (layer.is_gat())
      kernels.features.score_heads(layer.scores, const_cast<void*>(p.query),
                                   const_cast<void*>(p.key));
    fault = kernels.kernel(p)(p, false);
    if (!fault && bias)
      kernels.features.add_rows(p.out, layer.nodes(), layer.width, at<void>(bias), 0,
                                layer.is_double, threads);
  }
  throw_if_fault(fault);
}

// The gradients of a projection: dtable += other, dbias = the sum of its rows, and if the
// projections are small, dweight = dtableᵀ x and dx += dtable weight; null: not wanted
struct ProjectionGradient {
  void *weight, *dtable, *other, *dweight, *dbias;
};

void differentiate_projection(const Layer& layer, const ProjectionGradient& g, void* dx,
                              bool is_first) {
  const int64_t nodes = layer.nodes(), width = layer.width;
  const Features& f = kernels.features;
  const int threads = layer.problem.threads;
  if (g.other) f.add_rows(g.dtable, nodes, width, g.other, width, layer.is_double, threads);
  if (g.dbias) f.add_up_rows(g.dtable, nodes, width, g.dbias, layer.is_double, threads);
  if (!layer.x) return;
  if (g.dweight)
    f.multiply_small({g.dtable, 1, width, width, nodes, layer.inner, layer.x, nullptr, g.dweight,
                      false, false, layer.is_double});
  if (dx)
    f.multiply_small({g.dtable, width, 1, nodes, width, layer.inner, g.weight, nullptr, dx, false,
                      !is_first, layer.is_double});
}

// given: top, dout; results: the gradients of query, key, value, `a` or a_query, a_key, the bias
// and x; null: not wanted. projections: the fields of ProjectionGradient
void backward_layer(
    const std::vector<Address>& graph, const Sizes& sizes, const LayerOptions& options,
    const std::vector<Address>& tables, const std::vector<Address>& given,
    const std::vector<Address>& results,
    const std::vector<std::tuple<Address, Address, Address, Address, Address>>& projections,
    Address x, int threads) {
  Layer layer(graph, sizes, options, tables, x, threads);
  Problem& p = layer.problem;
  if (given.size() != 2 || results.size() != 7)
    throw nb::value_error("the gradients of a layer need 2 arrays and 7 results");
  p.top = at<void>(given[0]), p.dout = at<void>(given[1]);
  p.dquery = at<void>(results[0]), p.dkey = at<void>(results[1]), p.dvalue = at<void>(results[2]);
  if (p.mechanism == Mechanism::gatv2) p.da = at<void>(results[3]);
  int fault;
  {
    nb::gil_scoped_release release;
    fault = kernels.kernel(p)(p, true);
    if (!fault) {
      if (layer.is_gat()) {
        const size_t bytes = size_t(layer.width) * (layer.is_double ? 8 : 4);
        Buffer<char> da(int64_t(2 * bytes));
        kernels.features.score_gradient(layer.scores, p.dvalue, p.dquery, p.dkey, p.dvalue,
                                        da.data());
        std::memcpy(at<void>(results[3]), da.data(), bytes);
        std::memcpy(at<void>(results[4]), da.data() + bytes, bytes);
      }
      if (results[5])
        kernels.features.add_up_rows(p.dout, layer.nodes(), layer.width, at<void>(results[5]),
                                     layer.is_double, threads);
      for (size_t n = 0; n < projections.size(); ++n) {
        const auto& [weight, dtable, other, dweight, dbias] = projections[n];
        differentiate_projection(layer,
                                 {at<void>(weight), at<void>(dtable), at<void>(other),
                                  at<void>(dweight), at<void>(dbias)},
                                 at<void>(results[6]), n == 0);
      }
    }
  }
  throw_if_fault(fault);
}

// x [nodes, channels]; pairs [P, 2] of int32 or int64, of which `count` from `first` on are used.
PairProblem read_pairs(Address x, int64_t nodes, int64_t channels, const PairArray& pairs,
                       int64_t first, int64_t count, bool is_double, int threads) {
  const auto type = pairs.dtype();
  if (type.code != uint8_t(nb::dlpack::dtype_code::Int) || (type.bits != 32 && type.bits != 64))
    throw nb::type_error("pairs must hold int32 or int64");
  if (nodes < 0 || nodes > INT32_MAX || channels < 0 || channels > INT32_MAX)
    throw nb::value_error("x must have fewer than 2^31 rows and columns");
  if (first < 0 || count < 0 || count > INT32_MAX / 2 || first > int64_t(pairs.shape(0)) - count)
    throw nb::value_error("first and count must select pairs, at most 2^30 - 1 of them");
  return {reinterpret_cast<const void*>(x),
          nodes,
          channels,
          {{pairs.data(), type.bits / 8}, first, count},
          is_double,
          threads};
}

void throw_if_bad(const BadIndex& bad, int64_t nodes) {
  if (bad.argument)
    throw nb::value_error(("pairs must lie in [0, " + std::to_string(nodes) + "), but holds " +
                           std::to_string(bad.value))
                              .c_str());
}

void multiply_pairs(Address x, int64_t nodes, int64_t channels, const PairArray& pairs,
                    int64_t first, int64_t count, Address out, bool is_double, int threads) {
  const PairProblem problem =
      read_pairs(x, nodes, channels, pairs, first, count, is_double, threads);
  BadIndex bad;
  {
    nb::gil_scoped_release release;
    bad = kernels.pair_product(problem, reinterpret_cast<void*>(out));
  }
  throw_if_bad(bad, nodes);
}

void differentiate_pairs(Address x, int64_t nodes, int64_t channels, const PairArray& pairs,
                         int64_t first, int64_t count, Address dz, bool adds, Address dx,
                         bool is_double, int threads) {
  const PairProblem problem =
      read_pairs(x, nodes, channels, pairs, first, count, is_double, threads);
  BadIndex bad;
  {
    nb::gil_scoped_release release;
    bad = kernels.pair_gradient(problem, reinterpret_cast<const void*>(dz), adds,
                                reinterpret_cast<void*>(dx));
  }
  throw_if_bad(bad, nodes);
}

// arrays: x, residual, weight, bias, mean, variance, out; for the gradients also dout, dx,
// dresidual, dweight, dbias. kinds: inner, norm, outer. numbers: gain, eps, dropout
void run_tail(const std::vector<Address>& arrays, int64_t rows, int64_t channels, int storage,
              const std::tuple<int, int, int>& kinds, bool is_given,
              const std::tuple<double, double, double>& numbers, uint64_t seed, int threads) {
  if ((arrays.size() != 7 && arrays.size() != 12) || rows < 0 || channels < 1 ||
      channels > INT32_MAX)
    throw nb::value_error("tail needs 7 or 12 arrays with at least one column");
  auto array = [&](size_t n) {
    return n < arrays.size() ? reinterpret_cast<void*>(arrays[n]) : nullptr;
  };
  const auto [inner, norm, outer] = kinds;
  const auto [gain, eps, dropout] = numbers;
  const TailProblem problem{Storage(storage),
                            threads,
                            rows,
                            channels,
                            Activation(inner),
                            Activation(outer),
                            Norm(norm),
                            is_given,
                            arrays.size() == 12,
                            gain,
                            eps,
                            dropout,
                            seed,
                            array(0),
                            array(1),
                            array(2),
                            array(3),
                            array(4),
                            array(5),
                            array(6),
                            array(7),
                            array(8),
                            array(9),
                            array(10),
                            array(11)};
  nb::gil_scoped_release release;
  kernels.tail(problem);
}

#define POINTER(name)                                                                    \
  def_prop_rw(#name, [](const Problem& p) { return reinterpret_cast<Address>(p.name); }, \
              [](Problem& p, Address at) { p.name = reinterpret_cast<decltype(p.name)>(at); })

}  // namespace

NB_MODULE(_native, m) {
  nb::class_<Problem>(m, "Problem")
      .def(nb::init<>())
      .def_prop_rw("mechanism", [](const Problem& p) { return int(p.mechanism); },
                   [](Problem& p, int value) { p.mechanism = Mechanism(value); })
      .def_prop_rw("storage", [](const Problem& p) { return int(p.storage); },
                   [](Problem& p, int value) { p.storage = Storage(value); })
      .def_rw("threads", &Problem::threads)
      .POINTER(rowptr)
      .POINTER(key_index)
      .POINTER(edge_id)
      .POINTER(key_rowptr)
      .POINTER(key_query)
      .POINTER(key_position)
      .POINTER(query_rows)
      .POINTER(key_rows)
      .def_rw("num_query_rows", &Problem::num_query_rows)
      .def_rw("num_key_rows", &Problem::num_key_rows)
      .def_rw("num_queries", &Problem::num_queries)
      .def_rw("num_keys", &Problem::num_keys)
      .def_rw("num_positions", &Problem::num_positions)
      .def_rw("num_edges", &Problem::num_edges)
      .def_rw("relations", &Problem::relations)
      .def_rw("heads", &Problem::heads)
      .def_rw("channels", &Problem::channels)
      .def_rw("edge_dim", &Problem::edge_dim)
      .POINTER(query)
      .POINTER(key)
      .POINTER(value)
      .POINTER(a)
      .POINTER(edge)
      .POINTER(edge_weight)
      .def_rw("slope", &Problem::slope)
      .def_rw("dropout", &Problem::dropout)
      .def_rw("seed", &Problem::seed)
      .def_rw("first_count", &Problem::first_count)
      .POINTER(out)
      .POINTER(top)
      .POINTER(weights)
      .POINTER(scores)
      .POINTER(dout)
      .POINTER(dweights)
      .POINTER(dquery)
      .POINTER(dkey)
      .POINTER(dvalue)
      .POINTER(da)
      .POINTER(dedge)
      .POINTER(dedge_weight);
  m.def("forward", [](const Problem& p) { run(p, false); });
  m.def("backward", [](const Problem& p) { run(p, true); });
  m.def("group", &group_edges, nb::arg("edges"), nb::arg("num_edges"), nb::arg("sizes"),
        nb::arg("loops"), nb::arg("arrays"), nb::arg("threads"));
  m.def("rank", &rank, nb::arg("arrays"), nb::arg("queries"), nb::arg("keys"), nb::arg("edges"),
        nb::arg("heads"), nb::arg("threads"));
  m.def("checksum", &checksum, nb::arg("data"), nb::arg("num_bytes"), nb::arg("threads"));
  m.def("allocate", &allocate, nb::arg("shape"), nb::arg("storage"));
  m.def("keep_memory", [](size_t bytes) { Pool::get().limit = bytes; }, nb::arg("bytes"));
  m.def("gather_floor", [](Address rowptr, Address column, int64_t num_rows, int64_t floats,
                           Address x, Address out, int threads) {
    nb::gil_scoped_release release;
    kernels.floor(reinterpret_cast<const int32_t*>(rowptr),
                  reinterpret_cast<const int32_t*>(column), num_rows, floats,
                  reinterpret_cast<const float*>(x), reinterpret_cast<float*>(out), threads);
  });
  m.def("sample", &sample, nb::arg("rows"), nb::arg("seeds"), nb::arg("fanouts"),
        nb::arg("replace"), nb::arg("layered"), nb::arg("seed"), nb::arg("threads"));
  m.def("pick", &pick, nb::arg("rows"), nb::arg("queries"), nb::arg("fanout"), nb::arg("replace"),
        nb::arg("seed"), nb::arg("stage"), nb::arg("threads"));
  m.def("visit", &visit, nb::arg("rows"), nb::arg("kind"), nb::arg("count"), nb::arg("length"),
        nb::arg("live"), nb::arg("seed"), nb::arg("threads"));
  m.def("induce", &induce, nb::arg("rows"), nb::arg("nodes"), nb::arg("threads"));
  m.def("transpose", &transpose_rows, nb::arg("rowptr"), nb::arg("key"), nb::arg("keys"),
        nb::arg("threads"));
  m.def("group_rows", &group_rows, nb::arg("query"), nb::arg("key"), nb::arg("nodes"),
        nb::arg("threads"));
  m.def("gather", &gather, nb::arg("table"), nb::arg("rows"), nb::arg("bytes"), nb::arg("index"),
        nb::arg("out"), nb::arg("threads"));
  m.def("sum_rows", &sum_used_rows, nb::arg("table"), nb::arg("table_rows"), nb::arg("width"),
        nb::arg("rows"), nb::arg("nodes"), nb::arg("relations"), nb::arg("out"),
        nb::arg("is_double"), nb::arg("threads"));
  m.def("sparse_product", &multiply_sparse, nb::arg("arrays"), nb::arg("sizes"), nb::arg("values"),
        nb::arg("table"), nb::arg("width"), nb::arg("bias"), nb::arg("out"), nb::arg("is_double"),
        nb::arg("threads"));
  m.def("sparse_dots", &differentiate_entries, nb::arg("arrays"), nb::arg("sizes"), nb::arg("left"),
        nb::arg("right"), nb::arg("width"), nb::arg("out"), nb::arg("is_double"),
        nb::arg("threads"));
  m.def("sparse_drop", &drop_sparse, nb::arg("arrays"), nb::arg("sizes"), nb::arg("values"),
        nb::arg("probability"), nb::arg("seed"), nb::arg("out"), nb::arg("dense"),
        nb::arg("is_double"), nb::arg("threads"));
  m.def("find_nonzeros", &find_nonzeros, nb::arg("x"), nb::arg("rows"), nb::arg("columns"),
        nb::arg("most"), nb::arg("is_double"), nb::arg("threads"));
  m.def("drop", &drop_entries, nb::arg("x"), nb::arg("count"), nb::arg("probability"),
        nb::arg("seed"), nb::arg("out"), nb::arg("is_double"), nb::arg("threads"));
  m.def("score_heads", &score_heads, nb::arg("arrays"), nb::arg("sizes"), nb::arg("query"),
        nb::arg("key"), nb::arg("is_double"), nb::arg("threads"));
  m.def("score_gradient", &differentiate_heads, nb::arg("arrays"), nb::arg("sizes"),
        nb::arg("dvalue"), nb::arg("dquery"), nb::arg("dkey"), nb::arg("total"), nb::arg("da"),
        nb::arg("is_double"), nb::arg("threads"));
  m.def("forward_layer", &forward_layer, nb::arg("graph"), nb::arg("sizes"), nb::arg("options"),
        nb::arg("tables"), nb::arg("bias"), nb::arg("results"), nb::arg("projections"),
        nb::arg("x"), nb::arg("threads"));
  m.def("backward_layer", &backward_layer, nb::arg("graph"), nb::arg("sizes"), nb::arg("options"),
        nb::arg("tables"), nb::arg("given"), nb::arg("results"), nb::arg("projections"),
        nb::arg("x"), nb::arg("threads"));
  m.def("pair_product", &multiply_pairs, nb::arg("x"), nb::arg("nodes"), nb::arg("channels"),
        nb::arg("pairs"), nb::arg("first"), nb::arg("count"), nb::arg("out"), nb::arg("is_double"),
        nb::arg("threads"));
  m.def("pair_gradient", &differentiate_pairs, nb::arg("x"), nb::arg("nodes"), nb::arg("channels"),
        nb::arg("pairs"), nb::arg("first"), nb::arg("count"), nb::arg("dz"), nb::arg("adds"),
        nb::arg("dx"), nb::arg("is_double"), nb::arg("threads"));
  m.def("tail", &run_tail, nb::arg("arrays"), nb::arg("rows"), nb::arg("channels"),
        nb::arg("storage"), nb::arg("kinds"), nb::arg("is_given"), nb::arg("numbers"),
        nb::arg("seed"), nb::arg("threads"));
  m.attr("instruction_set") = kernels.name;
  forked_since_load();  // remembers the process id
}
