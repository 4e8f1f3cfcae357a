// parallel_for calls fn(task) for every task in [0, count), in any order, on `threads` threads.
//
// The result of a task must not depend on the thread that runs it, so that results are bitwise
// equal for any number of threads. The threads are those of torch's OpenMP pool (this module is
// loaded after torch and links the same libgomp). The pool does not survive a fork, so a forked
// child starts threads of its own. If a task throws, the remaining tasks are skipped and the first
// exception is thrown again when all threads are done.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#ifndef _WIN32
#include <unistd.h>
#endif

namespace dynagat {

inline bool forked_since_load() {
#ifdef _WIN32
  return false;
#else
  static const pid_t loaded_in = getpid();
  return getpid() != loaded_in;
#endif
}

// Reads a number of the caller exactly once. Another thread may write the caller's arrays during a
// call, so a number must not be read again after it was checked.
template <class T>
T read_once(const T* from) {
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}

template <class Work>
void run_on_threads(int threads, const Work& work) {
#ifdef _OPENMP
  if (!forked_since_load()) {
#pragma omp parallel num_threads(threads)
    work();
    return;
  }
#endif
  std::vector<std::thread> team;
  try {
    for (int other = 1; other < threads; ++other) team.emplace_back(work);
  } catch (const std::system_error&) {
    // The system allows no more threads: those that there are do all the work.
  }
  work();
  for (auto& thread : team) thread.join();
}

template <class Fn>
void parallel_for(int64_t count, int threads, const Fn& fn) {
  threads = static_cast<int>(std::min<int64_t>(threads, count));
  if (threads <= 1) {
    for (int64_t task = 0; task < count; ++task) fn(task);
    return;
  }
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  auto work = [&] {
    try {
      for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < count;) fn(task);
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
      next = count;
    }
  };
  run_on_threads(threads, work);
  if (failed) std::rethrow_exception(error);
}

}  // namespace dynagat
