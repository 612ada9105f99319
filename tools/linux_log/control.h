// SPDX-License-Identifier: BSL-1.0
// The part of Neap's control protocol that fetches logs (docs/control.md): status, start, stop, clear, get, stream, mark, machine.
//
// All clients are served by one thread, which also empties the rings. So no call here waits: sockets do not block, and a client whose
// answers are not being read is not read from. The number of clients, the length of a line and each client's memory are bounded.
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "run.h"

enum { CLIENTS_MAX = 16, LINE_BYTES_MAX = 4096, TOKEN_BYTES_MAX = 1024 };

struct Control;

/// Listens on `address` ("[ADDRESS:]PORT"; the default address is 127.0.0.1). Returns NULL, and one sentence in `error`, if it cannot.
/// `token`: empty for none.
struct Control* control_listen(struct Tracer* tracer, const char* address, const char* token, char* error, size_t error_bytes);
/// Fills `fds` (CLIENTS_MAX + 1 places) with what to wait for. Returns their number.
uint32_t control_wanted(struct Control* control, struct pollfd* fds);
/// Serves all clients, after a wait or a time-out.
void control_serve(struct Control* control, const struct pollfd* fds, uint32_t count);
