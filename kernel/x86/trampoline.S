// SPDX-License-Identifier: BSL-1.0
// The entry point of another core: real mode, at the page that the start-up message names (SDM 3A, 9.4.4).
//
// This code is copied to that page, below 1 MiB, so it uses only addresses relative to the page. It switches directly from real mode to
// long mode, on the boot tables. These map the page at its own address and the image at the top. After that it runs the image's code. The
// core that takes the start record out of its slot owns the record. A core that starts after core 0 gave up finds no record and halts.

#define CR0_PROTECTED      0x80000001
#define CR0_WRITE_PROTECT  0x00010000
#define CR4_PAE_SSE        0x620
#define MSR_EFER           0xc0000080
#define EFER_LME_NXE       0x900

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
        xorl    %edi, %edi
        xchgq   %rdi, core_start_slot
        testq   %rdi, %rdi
        jz      1f
        movq    0(%rdi), %rax                           // CoreStart::root
        movq    %rax, %cr3
        movq    8(%rdi), %rsp                           // CoreStart::stack_top
        xorl    %ebp, %ebp
        call    neap_core_entered
1:      cli
        hlt
        jmp     1b
        .cfi_endproc
        .size   core_entry_high, . - core_entry_high
