/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's thunks for returns and for indirect calls, which the Rust object uses, where the kernel was built without them
 * (CONFIG_MITIGATION_RETHUNK, CONFIG_MITIGATION_RETPOLINE). They do what the instructions do that they stand for.
 */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/nospec-branch.h>

#ifndef CONFIG_MITIGATION_RETHUNK
SYM_CODE_START(__x86_return_thunk)
	UNWIND_HINT_FUNC
	ANNOTATE_UNRET_SAFE
	ret
	int3
SYM_CODE_END(__x86_return_thunk)
#endif

#ifndef CONFIG_MITIGATION_RETPOLINE
.macro indirect_thunk register
SYM_CODE_START(__x86_indirect_thunk_\register)
	UNWIND_HINT_FUNC
	ANNOTATE_RETPOLINE_SAFE
	jmp	*%\register
	int3
SYM_CODE_END(__x86_indirect_thunk_\register)
.endm

.irp register, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15
	indirect_thunk \register
.endr
#endif
