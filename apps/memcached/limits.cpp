// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/limits.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#include "apps/memcached/service.hpp"
#include "kernel/panic.hpp"

namespace neap::memcached {

// --- Connections -------------------------------------------------------------------------------------------------------------------------
Admission::Verdict Admission::admit(std::uint64_t peer) noexcept {
  if (open_.fetch_add(1, std::memory_order_relaxed) >= connections_max_) {
    open_.fetch_sub(1, std::memory_order_relaxed);
    return Verdict::too_many;
  }
  if (peer_max_ == 0 || admit_peer(peer)) return Verdict::admitted;
  open_.fetch_sub(1, std::memory_order_relaxed);
  return Verdict::too_many_of_peer;
}

/// Without memory for another address, the address is refused, because its connections could not be counted.
bool Admission::admit_peer(std::uint64_t peer) noexcept {
  const std::lock_guard lock(lock_);
  try {
    unsigned& count = peers_[peer];
    if (count >= peer_max_) return false;
    ++count;
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void Admission::release(std::uint64_t peer) noexcept {
  require(open_.fetch_sub(1, std::memory_order_relaxed) != 0, "memcached: more connections end than were admitted", peer);
  if (peer_max_ == 0) return;
  const std::lock_guard lock(lock_);
  const auto counted = peers_.find(peer);
  require(counted != peers_.end() && counted->second != 0, "memcached: an address has no connection that could end", peer);
  if (--counted->second == 0) peers_.erase(counted);
}

// --- Uploads -----------------------------------------------------------------------------------------------------------------------------
void Uploads::unlink(Upload& upload) noexcept {
  (upload.newer_upload_ != nullptr ? upload.newer_upload_->older_upload_ : newest_) = upload.older_upload_;
  (upload.older_upload_ != nullptr ? upload.older_upload_->newer_upload_ : oldest_) = upload.newer_upload_;
}

void Uploads::append(Upload& upload) noexcept {
  upload.newer_upload_ = nullptr;
  upload.older_upload_ = newest_;
  (newest_ != nullptr ? newest_->newer_upload_ : oldest_) = &upload;
  newest_ = &upload;
}

void Uploads::note_progress(Upload& upload, std::size_t bytes, Seconds now) noexcept {
  require(bytes != 0, "memcached: an upload has an item");
  if (upload.upload_bytes_ != 0) {
    unlink(upload);
    bytes_.subtract(upload.upload_bytes_);
  }
  upload.upload_bytes_ = bytes;
  upload.progress_at_ = now;
  bytes_.add(bytes);
  append(upload);
}

void Uploads::remove(Upload& upload) noexcept {
  require(upload.upload_bytes_ != 0, "memcached: an upload that ends is in the list");
  unlink(upload);
  bytes_.subtract(std::exchange(upload.upload_bytes_, 0));
}

std::size_t Uploads::shed(std::size_t excess, bool any, const Upload* self, Seconds now) noexcept {
  std::size_t released = 0;
  for (Upload* upload = oldest_; upload != nullptr && released < excess;) {
    if (!any && now - upload->progress_at_ < stall_s) break;  // the others have made progress since then
    Upload* const newer = upload->newer_upload_;
    if (upload != self) {
      released += upload->upload_bytes_;
      upload->reset_upload();
      if (upload->upload_bytes_ != 0) remove(*upload);
    }
    upload = newer;
  }
  return released;
}

namespace {
/// Returns by how many bytes unfinished uploads exceed their limit. Sets `any` if they exceed twice the limit.
std::size_t excess_uploads(Service& service, bool& any) noexcept {
  std::size_t sum = 0;
  for (unsigned index = 0; index < service.core_count; ++index) sum += service.core(index).uploads.bytes();
  const std::size_t limit = service.store.memory_bytes() / Uploads::memory_divisor;
  any = sum > 2 * limit;
  return sum - std::min(sum, limit);
}
}  // namespace

void shed_uploads(Service& service, CoreState& core, const Upload* self) noexcept {
  bool any = false;
  const std::size_t excess = excess_uploads(service, any);
  if (excess == 0 || core.uploads.shed(excess, any, self, core.now()) >= excess) return;
  for (unsigned index = 0; index < service.core_count; ++index) {
    if (index != core.index) service.core(index).upload_call.ask(index);
  }
}

/// Does not ask other cores again, because each of them was asked.
void CoreState::shed_uploads_here(void* core) noexcept {
  auto& self = *static_cast<CoreState*>(core);
  bool any = false;
  const std::size_t excess = excess_uploads(*self.service, any);
  if (excess != 0) (void)self.uploads.shed(excess, any, nullptr, self.now());
}

}  // namespace neap::memcached
