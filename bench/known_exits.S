# SPDX-License-Identifier: BSL-1.0
# A guest with a known number of exits, which judges bench/exit_counter.c (tools/bench/exit_counter.py).
#
# It prints "begin", waits, executes 100 rounds of each loop, prints "end" and halts. The waits read only the TSC, so the host can read the
# counts while they do not change. The CPU MUST be in xAPIC mode, as it is after a reset.
  .set rounds, 100
  .set apic, 0xfee00000
  .set vector, 0x40
  .set wait_high, 1               # the TSC's upper half increases by more than this while the guest waits: 2^32 ticks or more

  .code32
  .section .multiboot, "a"
  .align 4
  .long 0x1badb002, 0, -0x1badb002

  .text
  .globl _start
_start:
  movl $stack_end, %esp
  lgdt gdt_pointer
  ljmp $8, $in_own_segment
in_own_segment:
  movl $16, %eax
  movl %eax, %ds
  movl %eax, %es
  movl %eax, %ss
  movl $timer_fired, %eax         # the gate: offset 15:0, selector, type, offset 31:16 (SDM volume 3A, 6.11)
  movw %ax, idt + vector * 8
  movw $8, idt + vector * 8 + 2
  movw $0x8e00, idt + vector * 8 + 4
  shrl $16, %eax
  movw %ax, idt + vector * 8 + 6
  lidt idt_pointer
  movb $0xff, %al
  outb %al, $0x21                 # no interrupts of the PIC
  outb %al, $0xa1
  movl $0x1ff, apic + 0xf0        # spurious interrupt vector register: the APIC is on
  movl $0xb, apic + 0x3e0         # the timer counts each tick of its clock
  movl $vector, apic + 0x320      # one shot
  movl $begin_text, %esi
  call print
  call wait

  movl $rounds, %ebp
each_kind:                        # a round: 1 cpuid, 2 port, 1 msr, 1 MSR without an exit, 1 apic, 1 device
  xorl %eax, %eax
  cpuid
  outb %al, $0x80
  inb $0x80, %al
  movl $0x1b, %ecx                # IA32_APIC_BASE
  rdmsr
  movl $0xc0000100, %ecx          # IA32_FS_BASE
  rdmsr
  movl apic + 0x20, %eax
  movl 0xfec00000, %eax           # the I/O APIC
  decl %ebp
  jnz each_kind

  movl $rounds, %ebp
each_halt:                        # a round: 2 apic, 1 halt, 1 wake-up
  movl $1000000, apic + 0x380     # 1 ms
  sti
  hlt
  cli
  decl %ebp
  jnz each_halt

  movl $rounds, %ebp
each_interrupt:                   # a round: 2 apic, 1 interrupt
  movl $0, fired
  movl $100000, apic + 0x380
  sti
not_yet:
  cmpl $0, fired
  je not_yet
  cli
  decl %ebp
  jnz each_interrupt

  movl $0x1b, %ecx                # 2 msr: x2APIC mode is bit 10
  rdmsr
  orl $0x400, %eax
  wrmsr
  movl $rounds, %ebp
each_x2apic:                      # a round: 1 apic
  movl $0x802, %ecx
  rdmsr
  decl %ebp
  jnz each_x2apic

  movl $end_text, %esi            # its letters are port accesses, too
  call print
stop:
  cli
  hlt
  jmp stop

timer_fired:
  movl $1, fired
  movl $0, apic + 0xb0            # end of interrupt
  iret

wait:
  rdtsc
  leal wait_high(%edx), %edi
still:
  rdtsc
  cmpl %edi, %edx
  jle still
  ret

print:
  movw $0x3f8, %dx
next:
  lodsb
  testb %al, %al
  jz printed
  outb %al, %dx
  jmp next
printed:
  ret

begin_text:
  .asciz "begin\n"
end_text:
  .asciz "end\n"
  .align 8
gdt:
  .quad 0, 0x00cf9a000000ffff, 0x00cf92000000ffff
gdt_pointer:
  .word gdt_pointer - gdt - 1
  .long gdt
idt_pointer:
  .word idt_end - idt - 1
  .long idt

  .bss
  .align 8
idt:
  .skip (vector + 1) * 8
idt_end:
fired:
  .skip 4
  .align 16
stack:
  .skip 1024
stack_end:
