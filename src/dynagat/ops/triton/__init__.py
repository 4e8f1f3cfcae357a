"""The ops on CUDA, ROCm and XPU devices: kernels in Triton, without atomics and E·H·C arrays."""
