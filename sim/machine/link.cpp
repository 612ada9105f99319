// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/link.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace neap::model {

struct Link::Page {
  std::array<char, 8> magic;
  std::atomic<std::uint64_t> now_ns, next_ns, vectors, phase, failed, idle_until_ns, load;
};

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr char greeting_magic[] = "NEAPLINK", page_magic[] = "NEAPPAGE";
constexpr std::uint64_t version = 1;

struct Greeting {
  std::array<char, 8> magic;
  std::uint64_t version;
};

bool send_all(int socket, const void* data, std::size_t bytes) {
  for (const char* at = static_cast<const char*>(data); bytes != 0;) {
    const ssize_t done = send(socket, at, bytes, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    bytes -= static_cast<std::size_t>(done);
  }
  return true;
}

/// Receives the greeting and the page's descriptor beside it; -1 on failure.
int receive_page(int socket) {
  Greeting greeting{};
  iovec part{.iov_base = &greeting, .iov_len = sizeof greeting};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (recvmsg(socket, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) != sizeof greeting) return -1;
  if (std::memcmp(greeting.magic.data(), greeting_magic, 8) != 0 || greeting.version != version) return -1;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int))) return -1;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return descriptor;
}

}  // namespace

const char* Link::connect(const char* path) noexcept {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (std::strlen(path) >= sizeof address.sun_path) return "the name of the link's socket is too long";
  std::strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0 || ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return "there is no world at the link's socket";
  }
  const int memory = receive_page(socket_);
  if (memory < 0) return "the world at the link's socket does not speak version 1 of the link";
  void* const mapped = mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  close(memory);
  if (mapped == MAP_FAILED) return "the world's page cannot be mapped";
  auto* const page = static_cast<Page*>(mapped);
  if (std::memcmp(page->magic.data(), page_magic, 8) != 0) return "the world's page has another layout";
  page_ = page;
  return nullptr;
}

void Link::publish(std::uint64_t now_ns) noexcept { page_->now_ns.store(now_ns); }

bool Link::advance(std::uint64_t now_ns, std::uint64_t idle_until_ns) noexcept {
  page_->idle_until_ns.store(idle_until_ns);
  publish(now_ns);
  if (!send_all(socket_, &now_ns, sizeof now_ns)) return false;
  char acknowledged = 1;
  ssize_t done = -1;
  do done = read(socket_, &acknowledged, 1);
  while (done < 0 && errno == EINTR);
  return done == 1 && acknowledged == 0;
}

std::uint64_t Link::next_ns() const noexcept { return page_->next_ns.load(); }
std::uint64_t Link::take_vectors() noexcept { return page_->vectors.exchange(0); }
Phase Link::phase() const noexcept {
  return static_cast<Phase>(std::min<std::uint64_t>(page_->phase.load(), static_cast<std::uint64_t>(Phase::finished)));
}
std::uint64_t Link::load() const noexcept { return page_->load.load(); }
bool Link::failed() const noexcept { return page_->failed.load() != 0; }

}  // namespace neap::model
