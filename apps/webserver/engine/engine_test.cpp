// SPDX-License-Identifier: BSL-1.0
#include <gtest/gtest.h>
