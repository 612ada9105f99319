// SPDX-License-Identifier: BSL-1.0
// The requests that the fuzzers of memcached's protocols send, valid or not. Each call returns one request.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tests/host/fuzzing.hpp"

namespace neap::fuzzing {

class RequestGenerator : public InputGenerator {
 public:
  using InputGenerator::InputGenerator;

  /// A classic request of the text protocol.
  std::string text_request() {
    static const char* const stores[] = {"set", "add", "replace", "append", "prepend", "cas"};
    static const char* const others[] = {"delete", "incr", "decr", "touch", "get", "gets", "gat", "gats", "bget", "GET", "quit", "version"};
    if (below(2) == 0) {
      const std::string value = this->value();
      std::string line = std::string(stores[below(6)]) + blank() + key() + blank() + number() + blank() + (below(3) == 0 ? number() : "0") +
                         blank() + (below(20) == 0 ? number() : std::to_string(value.size()));
      if (below(6) == 0) line += blank() + number();
      if (below(6) == 0) line += " noreply";
      return line + end() + value + (below(30) == 0 ? any(2) : "\r\n");
    }
    const unsigned verb = below(24);
    // `quit` ends the stream, so it is rare.
    std::string line = verb < 10 || (verb < 12 && below(20) == 0) ? others[verb] : "get";
    for (unsigned words = below(below(30) == 0 ? 400 : 5); words-- > 0;) line += blank() + (below(3) == 0 ? number() : key());
    if (below(8) == 0) line += " noreply";
    if (below(300) == 0) line += std::string(below(5000), 'z');
    return line + end();
  }

  std::string meta_request() {
    static const char* const commands[] = {"mg", "mg", "mg", "ms", "ms", "ms", "md", "ma", "me", "mn"};
    const std::string command = commands[below(10)];
    static const char* const binary_keys[] = {"Zg==", "Zm9v", "AGEgCg==", "/w=="};
    const bool is_binary = below(6) == 0;
    std::string line = command;
    if (command != "mn" || below(10) == 0) line += blank() + (is_binary ? binary_keys[below(4)] : key());
    const std::string value = below(3) == 0 ? number() : this->value();
    if (command == "ms") line += blank() + (below(20) == 0 ? number() : std::to_string(value.size()));
    if (is_binary) line += " b";
    for (unsigned flags = below(below(20) == 0 ? 30 : 6); flags-- > 0;) line += blank() + flag();
    line += end();
    return command == "ms" ? line + value + (below(30) == 0 ? any(2) : "\r\n") : line;
  }

  /// A command of an administrator (docs/memcached.md, "Commands"), or one of stock memcached that is refused here.
  std::string operation() {
    static const char* const rare[] = {"watch",
                                       "watch fetchers mutations",
                                       "watch evictions connevents deletions",
                                       "watch proxyreqs",
                                       "lru_crawler metadump all",
                                       "lru_crawler mgdump all",
                                       "lru_crawler metadump hash",
                                       "lru_crawler mgdump 1,2,40",
                                       "stats cachedump 1 0",
                                       "stats reset",
                                       "stats detail on"};
    static const char* const often[] = {"verbosity",
                                        "flush_all",
                                        "cache_memlimit",
                                        "shutdown",
                                        "shutdown graceful",
                                        "lru_crawler enable",
                                        "lru_crawler disable",
                                        "lru_crawler crawl",
                                        "lru_crawler crawl all",
                                        "lru_crawler sleep",
                                        "lru_crawler tocrawl",
                                        "lru_crawler",
                                        "lru tune",
                                        "lru mode",
                                        "lru temp_ttl",
                                        "lru",
                                        "slabs reassign",
                                        "slabs automove",
                                        "slabs",
                                        "stats",
                                        "stats settings",
                                        "stats items",
                                        "stats slabs",
                                        "stats sizes",
                                        "stats conns",
                                        "stats detail off",
                                        "stats detail dump",
                                        "stats detail",
                                        "stats cachedump",
                                        "extstore",
                                        "misbehave",
                                        "debugtime",
                                        "refresh_certs",
                                        "watch_",
                                        "version"};
    std::string line = below(6) == 0 ? rare[below(std::size(rare))] : often[below(std::size(often))];
    if (line.starts_with("watch") && below(8) != 0) line = "stats";  // a connection that watches reads no further request
    for (unsigned words = below(3) == 0 ? below(below(30) == 0 ? 40 : 4) : 0; words-- > 0;)
      line += blank() + (below(4) == 0 ? key() : number());
    if (below(8) == 0) line += " noreply";
    return line + end();
  }

  std::string binary_request() {
    static constexpr unsigned last_opcode = 0x25;
    unsigned opcode = below(200) == 0 ? below(256) : below(last_opcode + 1);
    if ((opcode == 0x07 || opcode == 0x17) && below(50) != 0) opcode = 0x0a;  // `quit` ends the stream, so it is rare
    std::string key = below(12) == 0 ? topic() : this->key(), value = below(2) == 0 ? this->value() : "";
    std::string extras = below(100) == 0 ? any(below(24)) : usual_extras(opcode);
    // Lengths that contradict the opcode end the connection, so they are rare.
    if (below(100) != 0 && !has_value(opcode)) value.clear();
    if (below(100) != 0 && !has_key(opcode)) key.clear();
    if (below(100) != 0 && has_key(opcode) && key.empty()) key = "a";
    if (below(100) != 0 && key.size() > 250) key.resize(250);
    if (opcode == 0x10 && below(2) == 0) key = topic();
    std::size_t body = extras.size() + key.size() + value.size();
    if (below(200) == 0) body = below(100'000);
    std::string header = "\x80";
    header += static_cast<char>(opcode);
    header += static_cast<char>(key.size() >> 8);
    header += static_cast<char>(key.size());
    header += static_cast<char>(extras.size());
    header += below(100) == 0 ? any(1) : std::string(1, '\0');
    header += any(2);
    for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(body >> shift);
    header += any(4);
    header += below(4) == 0 ? std::string(7, '\0') + static_cast<char>(below(30)) : std::string(8, '\0');
    return header + extras + key + value;
  }

  /// The header of a datagram, before its requests.
  std::string datagram_header() {
    const bool usual = below(8) != 0;
    return any(2) + (usual ? std::string("\0\0\0\1", 4) : any(below(8) == 0 ? below(5) : 4)) + (usual ? std::string(2, '\0') : any(2));
  }

 protected:
  std::string key() {
    const unsigned kind = below(20);
    if (kind == 0) return std::string(250 + below(3), 'k');
    if (kind == 1) return any(1 + below(20));
    if (kind == 2) return "";
    return std::string(1, static_cast<char>('a' + below(6))) + (below(4) == 0 ? ":" + number() : "");
  }
  std::string number() {
    static const char* const numbers[] = {"0", "1",  "5",  "-1", "2592001", "4294967296", "18446744073709551615", "18446744073709551616",
                                          "x", "1x", "+3", ""};
    return below(2) == 0 ? std::to_string(below(3000)) : numbers[below(12)];
  }
  std::string value() {
    // Long values are rare, so that most bytes are those of commands.
    const unsigned kind = below(1000);
    if (kind == 0) return std::string(below(200'000), 'v');
    if (kind < 20) return std::string(1000 + below(60), 'v');
    if (kind < 100) return any(below(300));
    return kind < 300 ? number() : std::string(below(40), 'v');
  }

 private:
  std::string flag() {
    static const char* const tokens[] = {"", "", "0", "1", "30", "-1", "7", "E", "A", "MA", "18446744073709551615"};
    static constexpr std::string_view plain = "bcfhkqstuvvkIxl", with_token = "ENRTCFOMJDPLS";
    const unsigned kind = below(40);
    if (kind == 0) return any(1 + below(3));
    if (kind == 1) return "O" + std::string(28 + below(6), 'o');
    if (kind < 24) return std::string(1, plain[below(plain.size())]);
    const std::string letter(1, with_token[below(with_token.size())]);
    return letter + (letter == "M" ? std::string(1, "EAPRSID+-X"[below(10)]) : tokens[below(11)]);
  }
  std::string topic() {
    static const char* const topics[] = {"items",       "settings",   "slabs", "sizes",   "detail on",
                                         "detail dump", "detail off", "conns", "nonsense"};
    return below(60) == 0 ? "reset" : topics[below(9)];
  }

  /// get, gets, gat, touch, delete and the operations have no value.
  static bool has_value(unsigned opcode) {
    static constexpr unsigned storing[] = {0x01, 0x02, 0x03, 0x0e, 0x0f, 0x11, 0x12, 0x13, 0x19, 0x1a};
    for (const unsigned other : storing) {
      if (opcode == other) return true;
    }
    return false;
  }
  static bool has_key(unsigned opcode) {
    static constexpr unsigned without[] = {0x07, 0x08, 0x0a, 0x0b, 0x10, 0x17, 0x18, 0x1b};
    for (const unsigned other : without) {
      if (opcode == other) return false;
    }
    return true;
  }
  std::string usual_extras(unsigned opcode) {
    switch (opcode) {
      case 0x01:
      case 0x02:
      case 0x03:
      case 0x11:
      case 0x12:
      case 0x13:
        return std::string(8, '\0');
      case 0x05:
      case 0x06:
      case 0x15:
      case 0x16:
        return std::string(20, '\0');
      case 0x08:
      case 0x18:
        return below(2) == 0 ? "" : std::string(3, '\0') + static_cast<char>(below(100));
      case 0x1b:  // verbosity
      case 0x1c:  // touch, gat, gatq, gatk, gatkq
      case 0x1d:
      case 0x1e:
      case 0x23:
      case 0x24:
        return std::string(2, '\0') + any(2);
      default:
        return "";
    }
  }
  std::string blank() { return below(20) == 0 ? "  " : " "; }
  std::string end() { return below(20) == 0 ? "\n" : below(40) == 0 ? std::string("\0\r\n", 3) : "\r\n"; }
};

}  // namespace neap::fuzzing
