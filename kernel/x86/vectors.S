// SPDX-License-Identifier: BSL-1.0
// The CPU's entry points for exceptions and interrupts.
//
// Exceptions occur at any instruction. So all registers are saved, both for the report and to restore them after a fix-up. Interrupts occur
// only inside `open_interrupt_window` and `sleep` (interrupts.cpp), which the compiler treats as calls. No register that a handler may use
// is live there, so none is saved. The unwind tables describe the way from a handler to the interrupted code.

// Vectors with an error code: 8, 10 to 14, 17, 21, 29, 30 (SDM 3A, table 6-1; AMD64 manual 2, 8.2).
#define ERROR_CODE_VECTORS 0x60227d00

// machine::vector_first and vector_last; interrupts.cpp compares them.
#define FIRST_DEVICE_VECTOR 0x30
#define LAST_DEVICE_VECTOR 0xdf

        .section .text.exceptions, "ax", @progbits

// The CFA is the first byte after the frame that the CPU pushed. SS, RSP, RFLAGS, CS, RIP are below it, in this order.
.macro interrupt_frame pushed
        .cfi_startproc simple
        .cfi_signal_frame
        .cfi_def_cfa rsp, 40 + \pushed
        .cfi_offset rip, -40
        .cfi_offset rsp, -16
.endm

.macro save register
        pushq   %\register
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset \register, 0
.endm

.macro restore register
        popq    %\register
        .cfi_adjust_cfa_offset -8
        .cfi_restore \register
.endm

// --- Exceptions: vectors 0 to 31 ---------------------------------------------------------------------------------------------------------

.macro exception vector, has_error_code
        .balign 16
        .if \has_error_code
        interrupt_frame 8
        .else
        interrupt_frame 0
        pushq   $0
        .cfi_adjust_cfa_offset 8
        .endif
        pushq   $\vector
        .cfi_adjust_cfa_offset 8
        jmp     exception_common
        .cfi_endproc
.endm

        .global exception_entries
        .balign 16
exception_entries:
        .set    vector, 0
        .rept   32
        exception vector, ((ERROR_CODE_VECTORS >> vector) & 1)
        .set    vector, vector + 1
        .endr

        .type   exception_common, @function
exception_common:
        interrupt_frame 16
        save    rax
        save    rbx
        save    rcx
        save    rdx
        save    rsi
        save    rdi
        save    rbp
        save    r8
        save    r9
        save    r10
        save    r11
        save    r12
        save    r13
        save    r14
        save    r15
        cld
        movq    %rsp, %rdi
        call    neap_handle_exception
        restore r15
        restore r14
        restore r13
        restore r12
        restore r11
        restore r10
        restore r9
        restore r8
        restore rbp
        restore rdi
        restore rsi
        restore rdx
        restore rcx
        restore rbx
        restore rax
        addq    $16, %rsp
        .cfi_adjust_cfa_offset -16
        iretq
        .cfi_endproc
        .size   exception_common, . - exception_common

// --- Interrupts: vectors 32 to 255 -------------------------------------------------------------------------------------------------------

// The interrupted code is at a call, so the direction flag is clear. RDI takes the number.
        .global interrupt_entries
        .balign 16
interrupt_entries:
        .set    vector, 32
        .rept   224
        .balign 16
        interrupt_frame 0
        movl    $vector, %edi
        .if vector >= FIRST_DEVICE_VECTOR && vector <= LAST_DEVICE_VECTOR
        jmp     device_interrupt
        .else
        jmp     other_interrupt
        .endif
        .cfi_endproc
        .set    vector, vector + 1
        .endr

.macro interrupt name, handler
        .type   \name, @function
\name:
        interrupt_frame 0
        pushq   %rdi                    // the CPU's frame begins at a multiple of 16, and now six words are on the stack
        .cfi_adjust_cfa_offset 8
        call    \handler
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        iretq
        .cfi_endproc
        .size   \name, . - \name
.endm

        interrupt device_interrupt, neap_handle_device_interrupt
        interrupt other_interrupt, neap_handle_interrupt

// --- The call chain of another core ------------------------------------------------------------------------------------------------------

// void neap_walk_interrupted(const ExceptionFrame* frame, _Unwind_Trace_Fn visit, void* argument)
//
// The function's unwind table describes the state in `frame`, which may be another core's, not the function's caller. RBX points to
// `frame`. The function returns like any other.
        .global neap_walk_interrupted
        .type   neap_walk_interrupted, @function
neap_walk_interrupted:
        .cfi_startproc simple
        .cfi_signal_frame
        .cfi_def_cfa rbx, 176
        .cfi_offset rip, -40
        .cfi_offset rsp, -16
        .set    offset, -176
        .irp    register, r15, r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx, rax
        .cfi_offset \register, offset
        .set    offset, offset + 8
        .endr
        pushq   %rbx
        movq    %rdi, %rbx
        movq    %rsi, %rdi
        movq    %rdx, %rsi
        call    _Unwind_Backtrace
        popq    %rbx
        ret
        .cfi_endproc
        .size   neap_walk_interrupted, . - neap_walk_interrupted
