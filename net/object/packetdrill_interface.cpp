// SPDX-License-Identifier: BSL-1.0
// The interface by which Google's packetdrill tests a shared object: `packetdrill --so_filename=libneap_network.so SCRIPT`.
//
// packetdrill finds one function, `packetdrill_interface_init`, which fills in a table of functions in the order that packetdrill's
// packetdrill.h defines. `--so_flags` are the words of neap_machine_make. The table has no version, so a packetdrill whose table has
// another order calls wrong functions: `./neap packetdrill --judge PROGRAM` runs our scripts under a packetdrill, and shows that.
//
// packetdrill waits by polling the clock, so `gettimeofday` advances it by a microsecond. Sockets never block, except `connect`, which
// advances the clock until the connection is established or has failed, and `accept` and `read`, which wait for at most a second.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "net/object/machine.hpp"
#include "net/object/neap_network.h"

namespace {

struct PacketdrillInterface {
  void* userdata;
  void (*free)(void*);
  int (*socket)(void*, int domain, int type, int protocol);
  int (*bind)(void*, int socket, const sockaddr*, socklen_t);
  int (*listen)(void*, int socket, int backlog);
  int (*accept)(void*, int socket, sockaddr*, socklen_t*);
  int (*connect)(void*, int socket, const sockaddr*, socklen_t);
  ssize_t (*read)(void*, int socket, void*, std::size_t);
  ssize_t (*readv)(void*, int socket, const iovec*, int);
  ssize_t (*recv)(void*, int socket, void*, std::size_t, int);
  ssize_t (*recvfrom)(void*, int socket, void*, std::size_t, int, sockaddr*, socklen_t*);
  ssize_t (*recvmsg)(void*, int socket, msghdr*, int);
  ssize_t (*write)(void*, int socket, const void*, std::size_t);
  ssize_t (*writev)(void*, int socket, const iovec*, int);
  ssize_t (*send)(void*, int socket, const void*, std::size_t, int);
  ssize_t (*sendto)(void*, int socket, const void*, std::size_t, int, const sockaddr*, socklen_t);
  ssize_t (*sendmsg)(void*, int socket, const msghdr*, int);
  int (*fcntl)(void*, int socket, int command, ...);
  int (*ioctl)(void*, int socket, unsigned long request, ...);
  int (*close)(void*, int socket);
  int (*shutdown)(void*, int socket, int how);
  int (*getsockopt)(void*, int socket, int level, int name, void*, socklen_t*);
  int (*setsockopt)(void*, int socket, int level, int name, const void*, socklen_t);
  int (*poll)(void*, pollfd*, nfds_t, int);
  int (*netdev_send)(void*, const void*, std::size_t);
  int (*netdev_receive)(void*, void*, std::size_t*, long long* time_us);
  int (*usleep)(void*, useconds_t);
  int (*gettimeofday)(void*, timeval*, struct timezone*);
  int (*epoll_create)(void*, int);
  int (*epoll_ctl)(void*, int, int, int, epoll_event*);
  int (*epoll_wait)(void*, int, epoll_event*, int, int);
  int (*pipe)(void*, int*);
  int (*splice)(void*, int, loff_t*, int, loff_t*, std::size_t, unsigned);
};

constexpr std::uint64_t us_ns = 1'000, ms_ns = 1'000'000, s_ns = 1'000'000'000;

/// packetdrill makes a socket before it knows whether that listens or connects; the object's handle comes with the second call.
struct OwnSocket {
  std::uint16_t port = 0;
  int handle = -1;
  bool listens = false, nonblocking = false, resets = false;
};
std::map<int, OwnSocket> sockets;

int fail(int error) {
  errno = error;
  return -1;
}

template <class Number>
Number result_of(Number value) {
  if (value >= 0) return value;
  errno = static_cast<int>(-value);
  return -1;
}

/// A socket's number is that of an open file, because packetdrill closes the sockets that a script leaves open by the system's own `close`.
int add_socket(OwnSocket socket) {
  const int number = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (number >= 0) sockets[number] = socket;
  return number;
}

/// Repeats `attempt` while it returns -EAGAIN, and advances the clock.
template <class Attempt>
auto wait_for(const OwnSocket& socket, Attempt attempt) {
  const std::uint64_t end = neap_now_ns() + s_ns;
  auto value = attempt();
  while (value == -EAGAIN && !socket.nonblocking && neap_now_ns() < end) {
    neap_advance_to_ns(neap_now_ns() + ms_ns);
    value = attempt();
  }
  return value;
}

OwnSocket* find(int number) {
  const auto found = sockets.find(number);
  return found == sockets.end() ? nullptr : &found->second;
}

int make_socket(void*, int domain, int type, int) {
  if (domain != AF_INET || type != SOCK_STREAM) return fail(EAFNOSUPPORT);
  return add_socket({});
}

int bind_socket(void*, int number, const sockaddr* address, socklen_t bytes) {
  sockaddr_in given{};
  if (find(number) == nullptr) return fail(EBADF);
  if (bytes < sizeof given) return fail(EINVAL);
  std::memcpy(&given, address, sizeof given);
  find(number)->port = ntohs(given.sin_port);
  return 0;
}

int listen_at(void*, int number, int) {
  OwnSocket* const socket = find(number);
  if (socket == nullptr) return fail(EBADF);
  socket->handle = result_of(neap_listen(socket->port));
  socket->listens = true;
  return socket->handle < 0 ? -1 : 0;
}

int accept_from(void*, int number, sockaddr* address, socklen_t* bytes) {
  const OwnSocket* const socket = find(number);
  if (socket == nullptr) return fail(EBADF);
  neap_endpoint remote{};
  const int handle = result_of(wait_for(*socket, [&] { return neap_accept(socket->handle, &remote); }));
  if (handle < 0) return -1;
  if (address != nullptr && bytes != nullptr) {
    const sockaddr_in given{.sin_family = AF_INET, .sin_port = htons(remote.port), .sin_addr = {htonl(remote.address)}, .sin_zero = {}};
    std::memcpy(address, &given, std::min<std::size_t>(*bytes, sizeof given));
    *bytes = sizeof given;
  }
  return add_socket({.handle = handle, .nonblocking = false});
}

int connect_to(void*, int number, const sockaddr* address, socklen_t bytes) {
  OwnSocket* const socket = find(number);
  sockaddr_in given{};
  if (socket == nullptr) return fail(EBADF);
  if (bytes < sizeof given) return fail(EINVAL);
  std::memcpy(&given, address, sizeof given);
  socket->handle = result_of(neap_connect(ntohl(given.sin_addr.s_addr), ntohs(given.sin_port)));
  if (socket->handle < 0) return -1;
  if (socket->nonblocking) return fail(EINPROGRESS);
  const int connected = wait_for(*socket, [&] {
    const int now = neap_connected(socket->handle);
    return now == 0 ? -EAGAIN : now;
  });
  return connected == 1 ? 0 : fail(-connected);
}

ssize_t receive_from(void*, int number, void* data, std::size_t bytes, int, sockaddr*, socklen_t*) {
  const OwnSocket* const socket = find(number);
  if (socket == nullptr) return fail(EBADF);
  return result_of(wait_for(*socket, [&] { return neap_receive(socket->handle, data, bytes); }));
}
ssize_t receive(void* own, int number, void* data, std::size_t bytes, int flags) {
  return receive_from(own, number, data, bytes, flags, nullptr, nullptr);
}
ssize_t read_socket(void* own, int number, void* data, std::size_t bytes) { return receive(own, number, data, bytes, 0); }
ssize_t read_pieces(void* own, int number, const iovec* pieces, int count) {
  return count < 1 ? fail(EINVAL) : receive(own, number, pieces[0].iov_base, pieces[0].iov_len, 0);
}
ssize_t receive_message(void* own, int number, msghdr* message, int) {
  return read_pieces(own, number, message->msg_iov, static_cast<int>(message->msg_iovlen));
}

ssize_t send_to(void*, int number, const void* data, std::size_t bytes, int, const sockaddr*, socklen_t) {
  const OwnSocket* const socket = find(number);
  if (socket == nullptr) return fail(EBADF);
  return result_of(neap_send(socket->handle, data, bytes));
}
ssize_t send_bytes(void* own, int number, const void* data, std::size_t bytes, int flags) {
  return send_to(own, number, data, bytes, flags, nullptr, 0);
}
ssize_t write_socket(void* own, int number, const void* data, std::size_t bytes) { return send_bytes(own, number, data, bytes, 0); }
ssize_t write_pieces(void* own, int number, const iovec* pieces, int count) {
  std::vector<std::byte> all;
  for (int i = 0; i < count; ++i) {
    const auto* const data = static_cast<const std::byte*>(pieces[i].iov_base);
    all.insert(all.end(), data, data + pieces[i].iov_len);
  }
  return send_bytes(own, number, all.data(), all.size(), 0);
}
ssize_t send_message(void* own, int number, const msghdr* message, int) {
  return write_pieces(own, number, message->msg_iov, static_cast<int>(message->msg_iovlen));
}

int control(void*, int number, int command, ...) {
  OwnSocket* const socket = find(number);
  if (socket == nullptr) return fail(EBADF);
  if (command == F_GETFL) return O_RDWR | (socket->nonblocking ? O_NONBLOCK : 0);
  if (command != F_SETFL) return fail(EINVAL);
  va_list rest;
  va_start(rest, command);
  socket->nonblocking = (va_arg(rest, int) & O_NONBLOCK) != 0;
  va_end(rest);
  return 0;
}

int device_control(void*, int, unsigned long, ...) { return fail(EOPNOTSUPP); }

int close_socket(void*, int number) {
  const OwnSocket* const socket = find(number);
  if (socket == nullptr) return fail(EBADF);
  if (socket->handle >= 0 && !socket->listens) static_cast<void>(socket->resets ? neap_abort(socket->handle) : neap_close(socket->handle));
  sockets.erase(number);
  return close(number);
}

int shut_down(void*, int number, int how) {
  const OwnSocket* const socket = find(number);
  if (socket == nullptr) return fail(EBADF);
  return how == SHUT_RD ? 0 : result_of(neap_shutdown(socket->handle));
}

int get_option(void*, int number, int level, int name, void* value, socklen_t* bytes) {
  if (find(number) == nullptr) return fail(EBADF);
  if (level != SOL_SOCKET || name != SO_ERROR || *bytes < sizeof(int)) return fail(ENOPROTOOPT);
  const int connected = neap_connected(find(number)->handle);
  const int error = connected < 0 ? -connected : 0;
  std::memcpy(value, &error, sizeof error);
  return 0;
}

int set_option(void*, int number, int level, int name, const void* value, socklen_t bytes) {
  OwnSocket* const socket = find(number);
  if (socket == nullptr) return fail(EBADF);
  // The machine does all of these by default, or has no such limit.
  if (level == SOL_SOCKET && (name == SO_REUSEADDR || name == SO_SNDBUF || name == SO_RCVBUF)) return 0;
  if (level == IPPROTO_TCP && name == TCP_NODELAY) return 0;
  if (level == SOL_SOCKET && name == SO_LINGER && bytes == sizeof(linger)) {
    linger given{};
    std::memcpy(&given, value, sizeof given);
    socket->resets = given.l_onoff != 0 && given.l_linger == 0;
    return 0;
  }
  return fail(ENOPROTOOPT);
}

int poll_sockets(void*, pollfd* entries, nfds_t count, int) {
  int ready = 0;
  for (nfds_t i = 0; i < count; ++i) {
    pollfd& entry = entries[i];
    entry.revents = 0;
    neap_connection_state state{};
    const OwnSocket* const socket = find(entry.fd);
    if (socket == nullptr || neap_state(socket->handle, &state, sizeof state) != 0) continue;
    if (state.readable_bytes != 0 || state.peer_closed != 0) entry.revents |= POLLIN;
    if (state.established != 0 && state.send_space_bytes != 0) entry.revents |= POLLOUT;
    if (state.ended != 0) entry.revents |= POLLHUP | (state.error != 0 ? POLLERR : 0);
    entry.revents &= static_cast<short>(entry.events | POLLHUP | POLLERR);
    ready += entry.revents != 0 ? 1 : 0;
  }
  return ready;
}

int put_packet(void*, const void* packet, std::size_t bytes) { return neap_put_packet(packet, bytes); }

int take_packet(void*, void* packet, std::size_t* bytes, long long* time_us) {
  // packetdrill waits for a packet without a limit. After three hours without one it gets a packet that it cannot read, and stops.
  constexpr std::uint64_t patience_ns = 3 * 3600 * s_ns;
  if (neap_advance_to_packet_ns(neap_now_ns() + patience_ns) == 0) {
    std::memset(packet, 0x45, 1);
    *bytes = 1;
    return 0;
  }
  std::uint64_t time_ns = 0;
  const long taken = neap_take_packet(packet, *bytes, &time_ns);
  *bytes = static_cast<std::size_t>(taken);
  *time_us = static_cast<long long>(time_ns / us_ns);
  return taken > 0 ? 0 : -1;
}

int sleep_us(void*, useconds_t us) {
  neap_advance_to_ns(neap_now_ns() + us * us_ns);
  return 0;
}

int tell_time(void*, timeval* time, struct timezone*) {
  neap_advance_to_ns(neap_now_ns() + us_ns);
  const std::uint64_t us = neap_now_ns() / us_ns;
  time->tv_sec = static_cast<time_t>(us / 1'000'000);
  time->tv_usec = static_cast<suseconds_t>(us % 1'000'000);
  return 0;
}

void end_machine(void*) {
  sockets.clear();
  neap_machine_destroy();
}

}  // namespace

extern "C" [[gnu::visibility("default")]] void packetdrill_interface_init(const char* flags, PacketdrillInterface* interface) {
  char error[256];
  if (neap_machine_make(flags, error, sizeof error) == 0) {
    std::fprintf(stderr, "libneap_network.so: %s\n", error);
    std::exit(EXIT_FAILURE);
  }
  *interface = {.userdata = nullptr,
                .free = end_machine,
                .socket = make_socket,
                .bind = bind_socket,
                .listen = listen_at,
                .accept = accept_from,
                .connect = connect_to,
                .read = read_socket,
                .readv = read_pieces,
                .recv = receive,
                .recvfrom = receive_from,
                .recvmsg = receive_message,
                .write = write_socket,
                .writev = write_pieces,
                .send = send_bytes,
                .sendto = send_to,
                .sendmsg = send_message,
                .fcntl = control,
                .ioctl = device_control,
                .close = close_socket,
                .shutdown = shut_down,
                .getsockopt = get_option,
                .setsockopt = set_option,
                .poll = poll_sockets,
                .netdev_send = put_packet,
                .netdev_receive = take_packet,
                .usleep = sleep_us,
                .gettimeofday = tell_time,
                .epoll_create = [](void*, int) { return fail(EOPNOTSUPP); },
                .epoll_ctl = [](void*, int, int, int, epoll_event*) { return fail(EOPNOTSUPP); },
                .epoll_wait = [](void*, int, epoll_event*, int, int) { return fail(EOPNOTSUPP); },
                .pipe = [](void*, int*) { return fail(EOPNOTSUPP); },
                .splice = [](void*, int, loff_t*, int, loff_t*, std::size_t, unsigned) { return fail(EOPNOTSUPP); }};
}
