#!/bin/sh
# Makes kernels.wasm.js of kernels.c. Needed only after a change of kernels.c; run it where uv is
# installed: the compiler, zig's clang, comes from PyPI. Another clang that has wasm-ld does too:
#     CC="clang --target=wasm32" rfs/playground/build_kernels.sh
set -e
cd "$(dirname "$0")"
CC=${CC:-uvx --from ziglang==0.17.1 python-zig cc --target=wasm32-freestanding}
out=$(mktemp -d)
exports=-Wl,--export=forward,--export=back,--export=attend,--export=attend_back,--export=__heap_base
$CC -O3 -msimd128 -s -ffreestanding -nostdlib -Wl,--no-entry $exports -o "$out/kernels.wasm" kernels.c
{
  echo "// Made by build_kernels.sh, in base64, of the kernels.c with this sha256:"
  sha256sum kernels.c | sed 's/\(.*\)  kernels.c/\/\/ \1/'
  echo "const KERNELS_WASM ="
  base64 -w 96 "$out/kernels.wasm" | sed 's/.*/  "&" +/'
  echo '  "";'
} > kernels.wasm.js
rm -r "$out"
