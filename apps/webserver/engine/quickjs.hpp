// SPDX-License-Identifier: BSL-1.0
// QuickJS-ng's header, without warnings, with the functions that quickjs-patches/ adds to it.
#pragma once

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wshadow"
#include <quickjs.h>
#pragma GCC diagnostic pop
