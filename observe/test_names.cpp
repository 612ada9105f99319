// SPDX-License-Identifier: BSL-1.0
// Test values of the names that an image's build defines.
#include "kernel/application.hpp"

namespace neap {

const char* const application_name = "observed";
const char* const neap_version = "0.0.0";
const char* const neap_commit = "0123456789ab";
const char* const neap_build = "host";

}  // namespace neap
