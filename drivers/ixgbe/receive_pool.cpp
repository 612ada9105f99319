// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/receive_pool.hpp"

#include <cassert>
#include <new>

namespace neap::ixgbe {

Result<void> ReceivePool::allocate(std::uint32_t count) {
  assert(size_ == 0);
  if (count == 0 || count > buffers_max) return failure(ErrorCode::invalid, "ixgbe: receive buffers out of range", count);
  auto data = DmaMemory::allocate(std::size_t{count} * buffer_bytes);
  if (!data) return std::unexpected(data.error());
  buffers_.reset(new (std::nothrow) Buffer[count]);
  if (!buffers_) return failure(ErrorCode::out_of_memory, "ixgbe: no memory for receive buffer headers", count);
  data_ = std::move(*data);
  const std::uint64_t first_bus_address = data_.bus_address();
  for (std::uint32_t i = count; i-- > 0;) {
    Buffer& buffer = buffers_[i];
    buffer.pool = this;
    buffer.start = data_.start() + std::size_t{i} * buffer_bytes;
    buffer.bus_address = first_bus_address + std::uint64_t{i} * buffer_bytes;
    buffer.return_to = &release;
    buffer.pool_index = i;
    buffer.next = free_;
    free_ = &buffer;
  }
  size_ = available_ = count;
  return {};
}

void ReceivePool::give_back(Buffer* buffer) noexcept {
  assert(buffer->pool == this && available_ < size_);
  buffer->next = free_;
  free_ = buffer;
  ++available_;
  if (wanted_ != nullptr && available_ >= threshold_) [[unlikely]] {
    const auto wanted = wanted_;
    wanted_ = nullptr;
    wanted(context_);
  }
}

void ReceivePool::release(ReceiveBuffer* buffer) noexcept {
  auto* const own = static_cast<Buffer*>(buffer);
  own->pool->give_back(own);
}

}  // namespace neap::ixgbe
