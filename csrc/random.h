// Counter-based random numbers: a pure function of (seed, stage, position, count), so results do
// not depend on the order of threads. `Stream` in sampling/reference.py computes the same numbers.
#pragma once
#include <cstdint>

namespace dynagat {

constexpr uint64_t golden = 0x9E3779B97F4A7C15u;

// The output function of splitmix64.
inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// floor(x · below / 2^64) for below <= 2^32
inline int64_t scale(uint64_t x, uint64_t below) {
  return int64_t(((x >> 32) * below + (((x & 0xFFFFFFFFu) * below) >> 32)) >> 32);
}

class Stream {
  uint64_t start;

 public:
  Stream(uint64_t seed, uint64_t stage) : start(mix(mix(seed + golden) + (stage + 1) * golden)) {}

  uint64_t at(uint64_t position) const { return mix(start + position * golden); }

  // The random integer in [0, below) with index `count` at this position.
  static int64_t number(uint64_t at, uint64_t count, int64_t below) {
    return scale(mix(at + (count + 1) * golden), uint64_t(below));
  }
};

}  // namespace dynagat
