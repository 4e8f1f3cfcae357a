#!/usr/bin/env bash
# Build the native code with AddressSanitizer and UndefinedBehaviorSanitizer and run its tests.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(realpath -s "${1:-python3}")
build=build/sanitize
mkdir -p build
cmake=$(dirname "$python")/cmake
"$cmake" -S . -B "$build" -DCMAKE_BUILD_TYPE=None -DDYNAGAT_SANITIZE=ON \
  -DPython_EXECUTABLE="$python" -Dnanobind_DIR="$("$python" -m nanobind --cmake_dir)" > "$build.log" 2>&1 ||
  { cat "$build.log"; exit 1; }
"$cmake" --build "$build" --parallel 2 >> "$build.log" 2>&1 || { tail -50 "$build.log"; exit 1; }
rm -rf "$build/package"
mkdir -p "$build/package"
cp -r src/dynagat "$build/package/"
rm -f "$build"/package/dynagat/_native*
cp "$build"/_native*.so "$build/package/dynagat/"
# Python and torch are not built with the sanitizers, so their libraries are preloaded. Leaks are not
# checked, because torch has some.
compiler=$(grep '^CMAKE_CXX_COMPILER:' "$build/CMakeCache.txt" | cut -d= -f2)
LD_PRELOAD="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libubsan.so)" \
  ASAN_OPTIONS=detect_leaks=0 PYTHONPATH="$build/package" \
  "$python" -m pytest -p no:cacheprovider tests/test_{dropout,graph,ops,op_arguments,observe,order,pairs,sampling,sparse,tail,used_rows}.py \
  tests/test_native.py -k "not opcheck and not finite_differences and (not test_native or change)"
