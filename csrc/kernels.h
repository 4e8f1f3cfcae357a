// The kernels of every instruction set this build has; `bindings.cpp` picks one when it is loaded.
#pragma once
#include "problem.h"

namespace dynagat {

// The forward (or backward) pass of one mechanism; returns a Fault.
using Kernel = int(const Problem& problem, bool backward);

namespace baseline {
Kernel gat, gatv2, dpgat;
}
namespace avx2 {
Kernel gat, gatv2, dpgat;
}
namespace avx512 {
Kernel gat, gatv2, dpgat;
}

}  // namespace dynagat
