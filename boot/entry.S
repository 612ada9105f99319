// SPDX-License-Identifier: BSL-1.0
// From the boot loader's entry to the first C++ line.
//
// QEMU (-kernel), iPXE and GRUB all enter here in 32-bit protected mode, without paging. EAX holds a magic number, EBX the address of the
// loader's information (Multiboot 0.6.96, 3.2; Multiboot 2, 3.3). QEMU and iPXE load at the address in the header, but GRUB may have moved
// the image. So this code determines its own address and uses only relative addresses. At its end, boot page tables map
//   - the first 4 GiB at 0 (this code and the start of the other cores run there),
//   - the same at `direct_map_base`, by which C++ reaches physical memory until it has built the final tables,
//   - the image at `image_virtual`, wherever it was loaded.

#include "boot/multiboot.h"

#define PAGE_PRESENT_WRITE 0x003
#define PAGE_LARGE         0x083
#define CR0_PG_WP          0x80010000
#define CR0_EM_TS          0x0000000c
#define CR4_PAE_SSE        0x620                       // the compiler uses SSE registers from the first line on
#define MSR_EFER           0xc0000080
#define EFER_LME_NXE       0x900
#define CPUID_LM_NX        0x20100000
#define UART_DATA          0x3f8
#define UART_LINE_STATUS   0x3fd
#define UART_SPACE         0x20
#define VGA_TEXT           0xb8000
#define VGA_WHITE_ON_RED   0x4f
#define CPUID_HYPERVISOR   0x80000000
#define DEBUG_EXIT_PORT    0xf4                        // QEMU's isa-debug-exit, as kernel/x86/ways_out.cpp uses it
#define EXIT_FAILURE       17

        .section .boot, "ax", @progbits
boot_base:

// --- Multiboot 1: 3.1.3, the address fields. QEMU and iPXE load an ELF64 file only by these ----------------------------------------------
        .balign 4
multiboot1_header:
        .long   MULTIBOOT1_HEADER_MAGIC
        .long   MULTIBOOT1_FLAGS
        .long   -(MULTIBOOT1_HEADER_MAGIC + MULTIBOOT1_FLAGS)
        .long   multiboot1_header_address               // from the linker script, as are the next four
        .long   multiboot1_load_address
        .long   multiboot1_load_end_address
        .long   multiboot1_bss_end_address
        .long   multiboot1_entry_address

// --- Multiboot 2: 3.1 --------------------------------------------------------------------------------------------------------------------
        .balign 8
multiboot2_header:
        .long   MULTIBOOT2_HEADER_MAGIC
        .long   MULTIBOOT2_ARCHITECTURE_I386
        .long   multiboot2_header_end - multiboot2_header
        .long   0x100000000 - (MULTIBOOT2_HEADER_MAGIC + MULTIBOOT2_ARCHITECTURE_I386 + (multiboot2_header_end - multiboot2_header))

        .balign 8                                       // 3.1.5: the memory map is required; without it we do not start
        .short  MULTIBOOT2_TAG_INFORMATION_REQUEST, 0
        .long   12
        .long   MULTIBOOT2_INFO_MEMORY_MAP

        .balign 8                                       // 3.1.7: the entry address (GRUB moves it with the image)
        .short  MULTIBOOT2_TAG_ENTRY, 0
        .long   12
        .long   multiboot1_entry_address

        .balign 8                                       // 3.1.10: modules, if any, on pages of their own
        .short  MULTIBOOT2_TAG_MODULE_ALIGN, MULTIBOOT2_TAG_OPTIONAL
        .long   8

        .balign 8                                       // 3.1.14: UEFI firmware may own memory at 2 MiB, so anywhere below 4 GiB will do
        .short  MULTIBOOT2_TAG_RELOCATABLE, 0
        .long   24
        .long   0x00200000                              // lowest
        .long   0xffffffff                              // highest
        .long   0x00200000                              // alignment: the boot tables map the image by 2 MiB pages
        .long   MULTIBOOT2_PREFER_LOWEST

        .balign 8
        .short  MULTIBOOT2_TAG_END, 0
        .long   8
multiboot2_header_end:

// --- 32-bit entry: EAX magic, EBX information --------------------------------------------------------------------------------------------
        .balign 16
        .code32
        .global boot_entry, multiboot1_header
boot_entry:
        cli
        cld
        movl    %eax, %esi
        movl    %ebx, %edi
        // Only a call reveals EIP, and there is no stack yet. So the call stores EIP in the information structure's first word.
        movl    (%ebx), %edx
        leal    4(%ebx), %esp
        call    1f
1:      popl    %ebp
        movl    %edx, (%ebx)
        subl    $(1b - boot_base), %ebp                 // EBP: physical address of the image's first byte
        leal    boot_stack_top_offset(%ebp), %esp

        movl    $0x80000000, %eax
        cpuid
        cmpl    $0x80000001, %eax
        jb      refuse
        movl    $0x80000001, %eax
        cpuid
        andl    $CPUID_LM_NX, %edx
        cmpl    $CPUID_LM_NX, %edx
        jne     refuse

        // First 4 GiB by 2 MiB pages.
        leal    boot_low_directories_offset(%ebp), %ebx
        movl    $PAGE_LARGE, %eax
        xorl    %ecx, %ecx
2:      movl    %eax, (%ebx,%ecx,8)
        addl    $0x200000, %eax
        incl    %ecx
        cmpl    $2048, %ecx
        jb      2b
        leal    boot_low_table_offset(%ebp), %eax
        leal    PAGE_PRESENT_WRITE(%ebx), %ecx
        movl    %ecx, 0(%eax)
        addl    $0x1000, %ecx
        movl    %ecx, 8(%eax)
        addl    $0x1000, %ecx
        movl    %ecx, 16(%eax)
        addl    $0x1000, %ecx
        movl    %ecx, 24(%eax)
        // The image.
        leal    boot_image_directory_offset(%ebp), %ebx
        leal    PAGE_LARGE(%ebp), %eax
        xorl    %ecx, %ecx
3:      movl    %eax, (%ebx,%ecx,8)
        addl    $0x200000, %eax
        incl    %ecx
        cmpl    $boot_image_large_pages, %ecx
        jb      3b
        leal    boot_image_table_offset(%ebp), %eax
        addl    $PAGE_PRESENT_WRITE, %ebx
        movl    %ebx, 510*8(%eax)
        // The root table: the image at the top, the identity mapping, the direct map.
        leal    boot_root_table_offset(%ebp), %ebx
        leal    (boot_image_table_offset + PAGE_PRESENT_WRITE)(%ebp), %eax
        movl    %eax, 511*8(%ebx)
        leal    (boot_low_table_offset + PAGE_PRESENT_WRITE)(%ebp), %eax
        movl    %eax, 0(%ebx)
        movl    %eax, 256*8(%ebx)

        movl    %cr4, %eax
        orl     $CR4_PAE_SSE, %eax
        movl    %eax, %cr4
        movl    %ebx, %cr3
        movl    $MSR_EFER, %ecx
        rdmsr
        orl     $EFER_LME_NXE, %eax
        wrmsr
        movl    %cr0, %eax
        andl    $~CR0_EM_TS, %eax
        orl     $CR0_PG_WP, %eax
        movl    %eax, %cr0

        leal    (boot_descriptors - boot_base)(%ebp), %eax
        movl    %eax, (boot_descriptors_pointer + 2 - boot_base)(%ebp)
        lgdt    (boot_descriptors_pointer - boot_base)(%ebp)
        leal    (entry_64 - boot_base)(%ebp), %eax
        pushl   $8
        pushl   %eax
        lret

// No boot options were read yet. So write to the first serial port, and to the first line of the screen, in case the screen is in text
// mode. Then leave the emulator or stop.
refuse:
        leal    (refusal - boot_base)(%ebp), %esi
        movl    $VGA_TEXT, %edi
        movb    $VGA_WHITE_ON_RED, %ah
        movl    $0x100000, %ecx                         // a missing UART must not block
4:      movw    $UART_LINE_STATUS, %dx
        inb     %dx, %al
        testb   $UART_SPACE, %al
        jnz     5f
        loop    4b
5:      lodsb
        testb   %al, %al
        jz      6f
        movw    $UART_DATA, %dx
        outb    %al, %dx
        cmpb    $' ', %al
        jb      7f
        stosw
7:      movl    $0x100000, %ecx
        jmp     4b
6:      movl    $1, %eax
        cpuid
        testl   $CPUID_HYPERVISOR, %ecx
        jz      8f
        movb    $EXIT_FAILURE, %al
        outb    %al, $DEBUG_EXIT_PORT
8:      hlt
        jmp     8b

refusal:
        .asciz  "neap: this CPU lacks 64-bit mode or no-execute pages, which every image needs\r\n"

        .code64
entry_64:
        movl    $0x10, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss
        xorl    %eax, %eax
        movl    %eax, %fs
        movl    %eax, %gs
        movabsq $boot_entry_high, %rax
        jmp     *%rax

        .balign 8
boot_descriptors:
        .quad   0
        .quad   0x00af9a000000ffff                      // code, 64-bit
        .quad   0x00cf92000000ffff                      // data
boot_descriptors_end:
boot_descriptors_pointer:
        .short  boot_descriptors_end - boot_descriptors - 1
        .long   0
        .long   0

// --- At the final address, in the top 2 GiB ----------------------------------------------------------------------------------------------
        .section .text.boot_entry_high, "ax", @progbits
        .type   boot_entry_high, @function
boot_entry_high:
        .cfi_startproc
        .cfi_undefined rip                              // backtraces end here
        movq    $boot_stack_top, %rsp
        movl    %esi, %eax
        movl    %edi, %esi                              // information, physical
        movl    %eax, %edi                              // magic
        movl    %ebp, %edx                              // where the image is, physical
        xorl    %ebp, %ebp
        call    neap_start_machine
        ud2
        .cfi_endproc
        .size   boot_entry_high, . - boot_entry_high

        .section .bss.boot, "aw", @nobits
        .balign 4096
        .global boot_root_table, boot_low_table, boot_low_directories, boot_image_table, boot_image_directory, boot_stack_top
boot_root_table:
        .skip   4096
boot_low_table:
        .skip   4096
boot_low_directories:
        .skip   4 * 4096
boot_image_table:
        .skip   4096
boot_image_directory:
        .skip   4096
        .skip   16384
boot_stack_top:
