// The only file that knows Python: pointers and sizes in, one sentence out when a number is wrong.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "csr.h"
#include "kernels.h"
#include "ranking.h"

namespace nb = nanobind;
using namespace dynagat;
using Address = uintptr_t;

namespace {

struct Choice {
  const char* name;
  Kernel* by_mechanism[3];
  Floor* floor;
};

// The best instruction set of this machine that the build has; DYNAGAT_ISA names a lesser one.
Choice choose_kernels() {
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
    return {"avx512", {avx512::gat, avx512::gatv2, avx512::dpgat}, avx512::gather_floor};
#endif
  if (has_avx2 && limit != "baseline")
    return {"avx2", {avx2::gat, avx2::gatv2, avx2::dpgat}, avx2::gather_floor};
#endif
  return {"baseline", {baseline::gat, baseline::gatv2, baseline::dpgat}, baseline::gather_floor};
}

const Choice kernels = choose_kernels();

void run(const Problem& problem, bool backward) {
  int fault;
  {
    nb::gil_scoped_release release;
    fault = kernels.by_mechanism[int(problem.mechanism)](problem, backward);
  }
  static const char* const names[] = {"",           "rowptr",    "key_index",   "edge_id",
                                      "key_rowptr", "key_query", "key_position"};
  if (fault)
    throw nb::value_error(
        (std::string("the graph's ") + names[fault] + " holds a number that its sizes do not allow")
            .c_str());
}

void group_edges(const std::vector<std::pair<Address, int>>& edges, int64_t num_edges,
                 const std::vector<int64_t>& sizes, const std::vector<int64_t>& loops,
                 const std::vector<Address>& arrays, int threads) {
  auto index = [&](int n) {
    return Index{reinterpret_cast<const void*>(edges[n].first), edges[n].second};
  };
  auto array = [&](int n) { return reinterpret_cast<int32_t*>(arrays[n]); };
  if (edges.size() != 4 || sizes.size() != 3 || loops.size() != 2 || arrays.size() != 6)
    throw nb::value_error("group takes 4 edge arrays, 3 sizes, 2 loop numbers and 6 results");
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

// A fingerprint of an array's bytes: the sum of a hash of each 64-bit word and its place.
uint64_t checksum(Address data, int64_t bytes, int threads) {
  nb::gil_scoped_release release;
  constexpr int64_t chunk = 1 << 15;
  const int64_t words = (bytes + 7) / 8, chunks = (words + chunk - 1) / chunk;
  auto* from = reinterpret_cast<const char*>(data);
  std::atomic<uint64_t> sum{uint64_t(bytes)};
  parallel_for(chunks, threads, [&](int64_t task) {
    uint64_t part = 0;
    for (int64_t at = task * chunk, end = std::min(at + chunk, words); at < end; ++at) {
      uint64_t word = 0;
      std::memcpy(&word, from + at * 8, std::min<int64_t>(8, bytes - at * 8));
      word += uint64_t(at) * 0x9E3779B97F4A7C15u;
      word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
      word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
      part += word ^ (word >> 31);
    }
    sum += part;
  });
  return sum;
}

// An uninitialised torch tensor on pooled memory, which returns to the pool with the tensor.
nb::ndarray<nb::pytorch> allocate(const std::vector<size_t>& shape, int kind) {
  static const nb::dlpack::dtype types[] = {
      nb::dtype<float>(), nb::dtype<double>(), {4, 16, 1}, {2, 16, 1}};  // 4: bfloat, 2: float
  size_t bytes = size_t(bytes_of(Storage(kind)));
  for (size_t length : shape) bytes *= length;
  auto* block = new Pooled(bytes);
  nb::capsule owner(block, [](void* held) noexcept { delete static_cast<Pooled*>(held); });
  return nb::ndarray<nb::pytorch>(block->data(), shape.size(), shape.data(), owner, nullptr,
                                  types[kind]);
}

// arrays: rowptr, key [E], scores [heads, E], effects [heads, keys] in, place [heads, keys] out
void rank(const std::vector<Address>& arrays, int64_t queries, int64_t keys, int64_t edges,
          int64_t heads, int threads) {
  bool sound;
  {
    nb::gil_scoped_release release;
    sound = rank_keys(reinterpret_cast<const int32_t*>(arrays.at(0)),
                      reinterpret_cast<const int32_t*>(arrays.at(1)),
                      reinterpret_cast<const double*>(arrays.at(2)),
                      reinterpret_cast<const double*>(arrays.at(3)), queries, keys, edges, heads,
                      reinterpret_cast<int32_t*>(arrays.at(4)), threads);
  }
  if (!sound) throw nb::value_error("the rows hold a number that their sizes do not allow");
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
  m.def("gather_floor", [](Address rowptr, Address column, int64_t num_rows, int64_t floats,
                           Address x, Address out, int threads) {
    nb::gil_scoped_release release;
    kernels.floor(reinterpret_cast<const int32_t*>(rowptr),
                  reinterpret_cast<const int32_t*>(column), num_rows, floats,
                  reinterpret_cast<const float*>(x), reinterpret_cast<float*>(out), threads);
  });
  m.attr("instruction_set") = kernels.name;
  forked_since_load();  // remember which process this is
}
