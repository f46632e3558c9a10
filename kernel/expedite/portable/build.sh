#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# build.sh CORE OUTPUT: compiles the Rust object of the portable form, with the folder of Rust's library `core` in source form.
#
# The kernel's rules for compiled code hold for the object: no vector registers, no red zone, the code model of the kernel, returns and
# indirect calls through the kernel's thunks, landing pads for indirect branches, and room before each function. objtool checks this in each
# build of the module.
set -eu
core=$1 output=$2
here=$(cd "$(dirname "$0")" && pwd)
scratch=$output.scratch
mkdir -p "$scratch"
# Unstable options of a stable compiler, as in the kernel's own build.
export RUSTC_BOOTSTRAP=1
options="--target=$here/target.json -Cpanic=abort -Copt-level=2 -Ccodegen-units=1 -Cno-redzone=y -Ccode-model=kernel
	-Crelocation-model=static -Ctarget-cpu=x86-64 -Ztune-cpu=generic -Cforce-unwind-tables=n -Csymbol-mangling-version=v0
	-Ctarget-feature=-sse,-sse2,-sse3,-ssse3,-sse4.1,-sse4.2,-avx,-avx2 -Zcf-protection=branch -Zno-jump-tables
	-Zfunction-return=thunk-extern -Zpatchable-function-entry=16,16 -Coverflow-checks=y -Cdebug-assertions=n
	--sysroot=/dev/null -L $scratch"

# shellcheck disable=SC2086
rustc --edition=2021 $options --crate-name=core --crate-type=rlib --cfg=no_fp_fmt_parse --cap-lints=allow \
	--out-dir="$scratch" "$core/src/lib.rs"
# `core` needs this crate, but no function of it: nothing here calculates with floating point or 128 bits.
printf '#![allow(internal_features)]\n#![feature(compiler_builtins)]\n#![compiler_builtins]\n#![no_builtins]\n#![no_std]\n' > "$scratch/builtins.rs"
# shellcheck disable=SC2086
rustc --edition=2021 $options --crate-name=compiler_builtins --crate-type=rlib --out-dir="$scratch" "$scratch/builtins.rs"
# shellcheck disable=SC2086
rustc --edition=2021 $options -Dwarnings --crate-name=expedite --crate-type=staticlib -Clto=fat --out-dir="$scratch" "$here/../portable_main.rs"

# One object with the sections of one, in which only the functions for the C files are visible.
(cd "$scratch" && rm -f ./*.o && ar x libexpedite.a && rm -f compiler_builtins.*.o && mv expedite.*.o expedite.o)
ld -r -T "$here/sections.ld" -o "$scratch/joined.o" "$scratch/expedite.o"
objcopy --wildcard --keep-global-symbol='expedite_*' "$scratch/joined.o" "$output"
