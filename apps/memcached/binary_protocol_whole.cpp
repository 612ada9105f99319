// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/binary_protocol_whole.hpp"

#include <string_view>

#include "kernel/short_copy.hpp"

namespace neap::memcached {

using binary::read_big;
using binary::write_big;

std::uint64_t binary::store_whole(const char* begin, std::size_t key_bytes, std::size_t value_bytes, Store& store, const Clock& clock,
                                  Seconds now) noexcept {
  if (store.is_short_of_memory()) return 0;
  const char* const extras = begin + BinaryProtocol::header_bytes;
  const char* const key = extras + 8;
  const Seconds expires = clock.expiry(read_big<std::uint32_t>(extras + 4), now);
  return store.set(store.key({key, key_bytes}), read_big<std::uint32_t>(extras), expires, {key + key_bytes, value_bytes}, now).cas;
}

Handled binary::handle_whole_requests(std::string_view input, Store& store, const Clock& clock, Seconds now, Statistics& statistics,
                                      Reply& reply) noexcept {
  constexpr std::size_t header_bytes = BinaryProtocol::header_bytes, set_extras_bytes = 8;
  const char* begin = input.data();  // of the next request
  const char* const end = begin + input.size();
  std::uint32_t gets = 0, sets = 0;
  while (static_cast<std::size_t>(end - begin) > header_bytes && begin[0] == BinaryProtocol::request_magic) {
    const auto opcode = static_cast<std::uint8_t>(begin[1]);
    const std::size_t key_bytes = read_big<std::uint16_t>(begin + 2);
    const auto extras_bytes = static_cast<std::uint8_t>(begin[4]);
    const std::size_t body_bytes = read_big<std::uint32_t>(begin + 8);
    if (key_bytes - 1 >= key_bytes_max || body_bytes > static_cast<std::size_t>(end - begin) - header_bytes) break;
    if (binary::is_get(opcode) && extras_bytes == 0 && body_bytes == key_bytes) {
      const std::string_view text{begin + header_bytes, key_bytes};
      const Store::Found found = store.find({.text = text, .hash = hash_key(text, store.seed())}, now);
      const std::size_t head_bytes_max = header_bytes + 4 + key_bytes;
      if (found.item == nullptr || !reply.copies(found.item->value_bytes, head_bytes_max)) break;
      const Item& item = *found.item;
      const std::size_t value_bytes = item.value_bytes, answer_key_bytes = binary::is_get_with_key(opcode) ? key_bytes : 0;
      char* const head = reply.room(head_bytes_max + value_bytes);
      if (head == nullptr) break;
      binary::write_answer_head(head, begin, 4, answer_key_bytes, 4 + answer_key_bytes + value_bytes, item.client_cas());
      char* at = head + header_bytes;
      write_big(at, item.flags);
      at += 4;
      if (answer_key_bytes != 0) copy_short(at, text.data(), key_bytes);
      at += answer_key_bytes;
      copy_medium(at, item.key_data() + key_bytes, value_bytes);
      reply.advance(static_cast<std::size_t>(at + value_bytes - head));
      ++gets;
    } else if (opcode == binary::opcode_set && extras_bytes == set_extras_bytes && body_bytes >= set_extras_bytes + key_bytes &&
               read_big<std::uint64_t>(begin + 16) == 0) {
      char* const to = reply.room(header_bytes);
      if (to == nullptr) break;
      const std::uint64_t cas = binary::store_whole(begin, key_bytes, body_bytes - set_extras_bytes - key_bytes, store, clock, now);
      if (cas == 0) break;
      binary::write_answer_head(to, begin, 0, 0, 0, cas);
      reply.advance(header_bytes);
      ++sets;
    } else {
      break;
    }
    begin += header_bytes + body_bytes;
    if (reply.full()) break;
  }
  if (gets != 0) {
    statistics.add(Count::cmd_get, gets);
    statistics.add(Count::get_hits, gets);
  }
  if (sets != 0) statistics.add(Count::cmd_set, sets);
  statistics.add(Count::requests, std::uint64_t{gets} + sets);
  return {.bytes = static_cast<std::size_t>(begin - input.data()), .requests = gets + sets};
}

}  // namespace neap::memcached
