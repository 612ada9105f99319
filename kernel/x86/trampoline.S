// SPDX-License-Identifier: BSL-1.0
// The entry point of another core: real mode, at the page that the start-up message names (SDM 3A, 9.4.4).
//
// This code is copied to that page, below 1 MiB, so it uses only addresses relative to the page. It switches directly from real mode to
// long mode, on the boot tables. These map the page at its own address and the image at the top. After that it runs the image's code.
//
// Any number of cores run this code at the same time, and none has a stack yet. Each finds its record by its APIC id and enters by one
// compare-exchange (start_record.hpp). A core that comes after core 0 gave it up, or that has no record, halts for ever. A core that has
// entered waits until core 0 gives it its parameters, with a stack.

#define CR0_PROTECTED      0x80000001
#define CR0_WRITE_PROTECT  0x00010000
#define CR4_PAE_SSE        0x620
#define MSR_EFER           0xc0000080
#define EFER_LME_NXE       0x900
#define MSR_APIC_BASE      0x1b
#define APIC_BASE_ENABLE   0x800                        // SDM 3A, 11.12.1: the APIC must be enabled before x2APIC is
#define APIC_BASE_X2APIC   0x400
#define MSR_X2APIC_ID      0x802
#define APIC_ID_OFFSET     0x20                         // SDM 3A, table 11-1; the id is in bits 31:24
#define RECORD_BYTES       64                           // StartRecord: its size, members and states (start_record.hpp)
#define RECORD_STATE       4
#define RECORD_START       8
#define STATE_WAITING      0
#define STATE_IN           1
#define NO_START           1                            // a value of StartRecord::start: halt

        .section .rodata.trampoline, "a", @progbits
        .balign 16
        .global trampoline_start, trampoline_end, trampoline_page_tables, trampoline_self
trampoline_start:
        .code16
        cli
        cld
        xorl    %ebx, %ebx
        movw    %cs, %bx                                // CS is the page's address / 16
        movw    %bx, %ds
        shll    $4, %ebx
        movl    $CR4_PAE_SSE, %eax
        movl    %eax, %cr4
        movl    trampoline_page_tables - trampoline_start, %eax
        movl    %eax, %cr3
        movl    $MSR_EFER, %ecx
        rdmsr
        orl     $EFER_LME_NXE, %eax
        wrmsr
        lgdtl   trampoline_descriptors_pointer - trampoline_start
        movl    $(CR0_PROTECTED | CR0_WRITE_PROTECT), %eax
        movl    %eax, %cr0
        ljmpl   *(trampoline_far - trampoline_start)

        .code64
trampoline_64:
        movl    $0x10, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss
        movabsq $core_entry_high, %rax
        jmp     *%rax

        .balign 8
trampoline_descriptors:
        .quad   0
        .quad   0x00af9a000000ffff
        .quad   0x00cf92000000ffff
trampoline_descriptors_pointer:
        .short  trampoline_descriptors_pointer - trampoline_descriptors - 1
        .long   trampoline_descriptors - trampoline_start // plus the page's address, added when it is copied
        .balign 8
trampoline_page_tables:
        .long   0
trampoline_self:                                        // offsets of the words that copying makes absolute
        .short  trampoline_descriptors_pointer + 2 - trampoline_start
        .short  trampoline_far - trampoline_start
trampoline_far:
        .long   trampoline_64 - trampoline_start        // plus the page's address, too
        .short  8
trampoline_end:

        .section .text.core_entry_high, "ax", @progbits
        .type   core_entry_high, @function
core_entry_high:
        .cfi_startproc
        .cfi_undefined rip
        movq    core_root_table, %rax
        movq    %rax, %cr3
        movq    core_apic_registers, %rsi
        testq   %rsi, %rsi
        jz      1f
        movl    APIC_ID_OFFSET(%rsi), %esi
        shrl    $24, %esi
        jmp     2f
1:      movl    $MSR_APIC_BASE, %ecx
        rdmsr
        orl     $APIC_BASE_ENABLE, %eax
        wrmsr
        orl     $APIC_BASE_X2APIC, %eax
        wrmsr
        movl    $MSR_X2APIC_ID, %ecx
        rdmsr
        movl    %eax, %esi
2:      movl    core_record_count, %ecx
        movq    $core_records, %rdi
3:      testl   %ecx, %ecx
        jz      7f
        cmpl    %esi, (%rdi)
        je      4f
        addq    $RECORD_BYTES, %rdi
        decl    %ecx
        jmp     3b
4:      movl    $STATE_WAITING, %eax
        movl    $STATE_IN, %edx
        lock cmpxchgl %edx, RECORD_STATE(%rdi)
        jne     7f
5:      movq    RECORD_START(%rdi), %rdx
        testq   %rdx, %rdx
        jnz     6f
        pause
        jmp     5b
6:      cmpq    $NO_START, %rdx
        je      7f
        movq    %rdx, %rdi
        movq    0(%rdi), %rsp                           // CoreStart::stack_top
        xorl    %ebp, %ebp
        call    neap_core_entered
7:      cli
        hlt
        jmp     7b
        .cfi_endproc
        .size   core_entry_high, . - core_entry_high
