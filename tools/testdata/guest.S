# SPDX-License-Identifier: BSL-1.0
# A guest of forty instructions, for tests of the launcher. It prints its command line on COM1. The last letter of the command line selects
# the end: `s` `f` `p` `b` exit with success, failure, panic, bad command line; `r` triple fault; others: halt for ever.
  .code32
  .section .multiboot, "a"
  .align 4
  .long 0x1badb002, 0, -0x1badb002

  .text
  .globl _start
_start:
  movl 16(%ebx), %esi             # multiboot: the command line
  xorl %ecx, %ecx
next:
  lodsb
  testb %al, %al
  jz ended
  movb %al, %cl
  call put
  jmp next
ended:
  movb $10, %al
  call put
  movl $16, %eax
  cmpb $'s', %cl
  je exit
  incl %eax
  cmpb $'f', %cl
  je exit
  incl %eax
  cmpb $'p', %cl
  je exit
  incl %eax
  cmpb $'b', %cl
  je exit
  cmpb $'r', %cl
  jne stop
  lidt nowhere
  ud2
exit:
  movw $0xf4, %dx
  outl %eax, %dx
stop:
  cli
  hlt
  jmp stop
put:
  movb %al, %ah
  movw $0x3fd, %dx
wait_empty:
  inb %dx, %al
  testb $0x20, %al
  jz wait_empty
  movw $0x3f8, %dx
  movb %ah, %al
  outb %al, %dx
  ret
nowhere:
  .word 0
  .long 0
