// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/connection_table.hpp"

#include "kernel/machine.hpp"

namespace neap::net::tcp {

TableSecret TableSecret::random() noexcept {
  TableSecret secret;
  for (std::uint64_t& factor : secret.addresses) factor = machine::random_bits() | 1;
  secret.ports = machine::random_bits() | 1;
  return secret;
}

}  // namespace neap::net::tcp
