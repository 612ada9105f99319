// SPDX-License-Identifier: BSL-1.0
#pragma once
#include <stdio.h>
int machine_list_write(FILE* out, const char* interface);
