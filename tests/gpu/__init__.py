"""The Triton kernels without a GPU: in Triton's interpreter, and compiled ahead of time.

`make gpu-check` runs them with TRITON_INTERPRET=1, which must be set before triton is imported.
"""
