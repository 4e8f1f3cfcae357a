// Table: node -> its number in a sample. A hash as large as the sample, or a slot for each node of
// the graph where that is no larger.
#pragma once
#include <algorithm>
#include <cstdint>

#include "memory.h"
#include "random.h"

namespace dynagat {

class Table {
  struct Slot {
    int32_t node, number;  // node -1: free
  };
  Buffer<Slot> slots;
  int64_t nodes, size = 0;
  int shift = 64;
  bool direct = false;

  int64_t home(int32_t node) const {
    return direct ? node : int64_t((uint64_t(uint32_t(node)) * golden) >> shift);
  }
  int64_t next(int64_t slot) const { return slot + 1 == size ? 0 : slot + 1; }

 public:
  explicit Table(int64_t nodes) : nodes(nodes) {}

  // Room for `count` nodes, of which `known` are these, numbered as they come.
  void reserve(int64_t count, const int64_t* node, int64_t known) {
    int bits = 6;
    while ((int64_t(1) << bits) < count + count / 3) ++bits;  // at most three slots in four
    const int64_t wanted = std::min(int64_t(1) << bits, nodes);
    if (wanted <= size) return;
    size = wanted, shift = 64 - bits, direct = wanted == nodes;
    slots = Buffer<Slot>(size);
    std::fill_n(slots.data(), size, Slot{-1, -1});
    for (int64_t n = 0; n < known; ++n) add(int32_t(node[n]), int32_t(n));
  }

  void prefetch(int32_t node) const { __builtin_prefetch(&slots[home(node)]); }

  // Its number; `number` from now on, if it had none.
  int32_t add(int32_t node, int32_t number) {
    int64_t slot = home(node);
    for (; slots[slot].node != node; slot = next(slot))
      if (slots[slot].node < 0) {
        slots[slot] = {node, number};
        return number;
      }
    return slots[slot].number;
  }

  // Its number, or -1.
  int32_t find(int32_t node) const {
    int64_t slot = home(node);
    while (slots[slot].node != node && slots[slot].node >= 0) slot = next(slot);
    return slots[slot].node == node ? slots[slot].number : -1;
  }
};

}  // namespace dynagat
