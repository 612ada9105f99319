// SPDX-License-Identifier: BSL-1.0
#include "drivers/receive_pool.hpp"

#include <bit>
#include <new>

namespace neap {

Result<void> ReceivePool::grow_to(std::uint32_t count) {
  if (count == 0 || count > buffers_max) return failure(ErrorCode::invalid, "receive pool: receive buffers out of range", count);
  // Memory for devices is allocated in powers of two of pages. So one piece for 1,280 buffers would take the memory of 2,048.
  while (size_ < count) {
    if (auto grown = grow_by(std::bit_floor(count - size_)); !grown) return grown;
  }
  return {};
}

Result<void> ReceivePool::grow_by(std::uint32_t more) {
  auto data = DmaMemory::allocate(std::size_t{more} * buffer_bytes);
  if (!data) return std::unexpected(data.error());
  std::unique_ptr<Buffer[]> buffers(new (std::nothrow) Buffer[more]);
  if (!buffers) return failure(ErrorCode::out_of_memory, "receive pool: no memory for receive buffer headers", more);
  const std::uint64_t first_bus_address = data->bus_address();
  require(first_bus_address % buffer_bytes == 0, "receive pool: a receive buffer would cross a page", first_bus_address);
  for (std::uint32_t i = more; i-- > 0;) {
    Buffer& buffer = buffers[i];
    buffer.pool = this;
    buffer.data = data->start() + std::size_t{i} * buffer_bytes + room_bytes_;
    buffer.bus_address = first_bus_address + std::uint64_t{i} * buffer_bytes;
    buffer.return_to = &release;
    buffer.pool_index = size_ + i;
    buffer.next = free_;
    free_ = &buffer;
  }
  slabs_.push_back({.data = std::move(*data), .buffers = std::move(buffers)});
  size_ += more;
  missing_ -= static_cast<std::int32_t>(more);
  return {};
}

void ReceivePool::call() noexcept {
  set_threshold(0);  // `available()` is always at least 0, so this threshold causes no call
  if (wanted_ != nullptr) wanted_(context_);
}

void ReceivePool::release(ReceiveBuffer* buffer) noexcept {
  auto* const own = static_cast<Buffer*>(buffer);
  own->pool->put_back(own);
}

}  // namespace neap
