// SPDX-License-Identifier: BSL-1.0
// The machine list as a program: `machine_list [INTERFACE]` prints it.
#include <stdio.h>

#include "machine_list.h"

int main(int count, char** words) {
  if (count > 2) {
    fprintf(stderr, "machine_list: takes at most one word, the name of a network interface\n");
    return 2;
  }
  switch (machine_list_write(stdout, count == 2 ? words[1] : NULL)) {
    case MACHINE_LIST_WRITTEN:
      return 0;
    case MACHINE_LIST_NO_INTERFACE:
      fprintf(stderr, "machine_list: there is no network interface '%s'; ls /sys/class/net lists them\n", words[1]);
      return 1;
    default:
      fprintf(stderr, "machine_list: the list was not written\n");
      return 1;
  }
}
