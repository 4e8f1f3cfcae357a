// Memory: zeroed-on-demand buffers, large ones on huge pages; hints for the caller's large arrays.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace dynagat {

// Ask for huge pages before the first touch: far fewer page faults, and rows gathered at random
// then miss the translation buffer less.
inline void advise_huge(void* data, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t page = uintptr_t(1) << 21;
  const uintptr_t from = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const uintptr_t to = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  if (to > from) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

// Uninitialised memory, aligned to cache lines (to huge pages where large). Not copyable.
template <class T>
class Buffer {
  T* held = nullptr;

 public:
  Buffer() = default;
  explicit Buffer(int64_t count) {
    const int64_t bytes = count * int64_t(sizeof(T)), huge = int64_t(1) << 21;
    if (bytes <= 0) return;
    const int64_t align = bytes >= 2 * huge ? huge : 64;
    held = static_cast<T*>(std::aligned_alloc(align, (bytes + align - 1) / align * align));
    if (!held) throw std::bad_alloc();
    if (bytes >= 2 * huge) advise_huge(held, bytes);
  }
  Buffer(Buffer&& other) noexcept : held(std::exchange(other.held, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(held, other.held);
    return *this;
  }
  ~Buffer() { std::free(held); }

  T* data() { return held; }
  T& operator[](int64_t at) { return held[at]; }
  const T& operator[](int64_t at) const { return held[at]; }
};

}  // namespace dynagat
