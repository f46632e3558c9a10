#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# build.sh OUTPUT: compiles the Rust object of the portable form, with Rust's library `core` from Debian's package rust-src. Needs
# rustc 1.85.
#
# The kernel's rules for compiled code hold for the object: no vector registers, no red zone, the code model of the kernel, returns and
# indirect calls through the kernel's thunks, landing pads for indirect branches, room before each function, frames of 2 KiB at most. The end
# of this script checks those that show in the code, and objtool its control flow in each build of the module.
set -eu
output=$1
here=$(cd "$(dirname "$0")" && pwd)
scratch=$output.scratch
core=/usr/src/rustc-$(rustc --version | cut -d" " -f2)/library/core
mkdir -p "$scratch"
# Unstable options of a stable compiler, as in the kernel's own build.
export RUSTC_BOOTSTRAP=1
options="--target=$here/target.json -Cpanic=abort -Copt-level=2 -Ccodegen-units=1 -Cno-redzone=y -Ccode-model=kernel
	-Crelocation-model=static -Ctarget-cpu=x86-64 -Ztune-cpu=generic -Cforce-unwind-tables=n -Csymbol-mangling-version=v0
	-Ctarget-feature=-sse,-sse2,-sse3,-ssse3,-sse4.1,-sse4.2,-avx,-avx2 -Zcf-protection=branch -Zno-jump-tables
	-Zfunction-return=thunk-extern -Zpatchable-function-entry=16,16 -Coverflow-checks=y -Cdebug-assertions=n
	--sysroot=/dev/null -L $scratch"

compile() {
	# shellcheck disable=SC2086
	rustc --edition=2021 $options --out-dir="$scratch" "$@"
}

is_new() {
	for input in "$0" "$here/target.json" "$(command -v rustc)"; do
		[ "$scratch/libcore.rlib" -nt "$input" ] || return 1
	done
}

is_new ||
	compile --crate-name=core --crate-type=rlib --cfg=no_fp_fmt_parse --cap-lints=allow "$core/src/lib.rs"
# `core` needs this crate, but no function of it: nothing here calculates with floating point or 128 bits.
printf '#![%s]\n' 'allow(internal_features)' 'feature(compiler_builtins)' compiler_builtins no_builtins no_std > "$scratch/builtins.rs"
compile --crate-name=compiler_builtins --crate-type=rlib "$scratch/builtins.rs"
compile -Dwarnings --crate-name=expedite --crate-type=staticlib -Clto=fat "$here/../portable_main.rs"

# One object with the sections of one, in which only the functions for the C files are visible.
(cd "$scratch" && rm -f ./*.o && ar x libexpedite.a && rm -f compiler_builtins.*.o && mv expedite.*.o expedite.o)
ld -r --orphan-handling=error -T "$here/sections.ld" -o "$scratch/joined.o" "$scratch/expedite.o"
objcopy --wildcard --keep-global-symbol='expedite_*' "$scratch/joined.o" "$output"

objdump -d --no-show-raw-insn "$output" | awk '
	/%[xyz]mm|%st|%mm[0-7]/ || /\t(ret|call|jmp) *(\*|$)/ { print "not allowed in the kernel:" $0; bad = 1 }
	/sub +\$0x[0-9a-f]+,%rsp/ {
		split($0, parts, /\$|,/)
		if (length(parts[2]) > 5 || (length(parts[2]) == 5 && parts[2] > "0x800")) { print "a frame above 2 KiB:" $0; bad = 1 }
	}
	END { exit bad }'
