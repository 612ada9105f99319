// SPDX-License-Identifier: BSL-1.0
#include "card.h"

#include <dirent.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STATISTICS_MAX = 8192 };

static bool ask(const struct Card* card, void* data) {
  struct ifreq request = {0};
  memcpy(request.ifr_name, card->interface, sizeof card->interface);
  request.ifr_data = data;
  return ioctl(card->socket, SIOCETHTOOL, &request) == 0;
}

static bool driver_of(const char* interface, char* driver, size_t bytes) {
  char path[128], target[512];
  snprintf(path, sizeof path, "/sys/class/net/%s/device/driver", interface);
  const ssize_t length = readlink(path, target, sizeof target - 1);
  if (length < 0) return false;
  target[length] = 0;
  const char* name = strrchr(target, '/');
  snprintf(driver, bytes, "%.*s", (int)bytes - 1, name ? name + 1 : target);
  return true;
}

bool card_find(char* interface, size_t bytes) {
  DIR* folder = opendir("/sys/class/net");
  if (!folder) return false;
  bool is_found = false;
  for (const struct dirent* entry; !is_found && (entry = readdir(folder));) {
    char driver[64];
    if (entry->d_name[0] == '.' || strlen(entry->d_name) >= IFNAMSIZ) continue;
    if (!driver_of(entry->d_name, driver, sizeof driver) || strcmp(driver, "ixgbe") != 0) continue;
    snprintf(interface, bytes, "%s", entry->d_name);
    is_found = true;
  }
  closedir(folder);
  return is_found;
}

static bool read_names(struct Card* card) {
  struct {
    struct ethtool_sset_info head;
    uint32_t count;
  } info = {.head = {.cmd = ETHTOOL_GSSET_INFO, .sset_mask = 1ULL << ETH_SS_STATS}};
  if (!ask(card, &info) || !info.head.sset_mask || info.count > STATISTICS_MAX) return false;
  struct ethtool_gstrings* strings = calloc(1, sizeof *strings + (size_t)info.count * ETH_GSTRING_LEN);
  if (!strings) return false;
  *strings = (struct ethtool_gstrings){.cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_STATS, .len = info.count};
  const bool is_read = ask(card, strings);
  free(card->names);
  free(card->values);
  card->names = calloc(info.count + 1, sizeof *card->names);
  card->values = calloc(info.count + 1, sizeof *card->values);
  card->statistics = is_read && card->names && card->values ? info.count : 0;
  for (uint32_t i = 0; i < card->statistics; ++i) {
    memcpy(card->names[i], strings->data + (size_t)i * ETH_GSTRING_LEN, STATISTIC_NAME_BYTES - 1);
  }
  free(strings);
  return card->statistics > 0;
}

bool card_open(struct Card* card, const char* interface, char* error, size_t error_bytes) {
  memset(card, 0, sizeof *card);
  char driver[64];
  card->index = strlen(interface) < IFNAMSIZ ? (int)if_nametoindex(interface) : 0;
  if (!card->index) {
    snprintf(error, error_bytes, "there is no interface %s; `ip link` lists them", interface);
    return false;
  }
  if (!driver_of(interface, driver, sizeof driver)) snprintf(driver, sizeof driver, "no driver");
  if (strcmp(driver, "ixgbe") != 0) {
    snprintf(error, error_bytes, "%s has the driver %s, and neap-trace knows only ixgbe; name another interface: --interface", interface,
             driver);
    return false;
  }
  snprintf(card->interface, sizeof card->interface, "%s", interface);
  card->socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (card->socket < 0 || !read_names(card)) {
    snprintf(error, error_bytes, "%s gives no statistics (%s); `ethtool -S %s` must work", interface, strerror(errno), interface);
    return false;
  }
  return true;
}

bool card_read(struct Card* card) {
  // The number of statistics changes with the number of queues.
  struct ethtool_stats* statistics = calloc(1, sizeof *statistics + (size_t)STATISTICS_MAX * sizeof(uint64_t));
  if (!statistics) return false;
  struct {
    struct ethtool_sset_info head;
    uint32_t count;
  } info = {.head = {.cmd = ETHTOOL_GSSET_INFO, .sset_mask = 1ULL << ETH_SS_STATS}};
  bool is_read = ask(card, &info) && info.head.sset_mask && info.count <= STATISTICS_MAX;
  if (is_read && info.count != card->statistics) is_read = read_names(card);
  if (is_read) {
    statistics->cmd = ETHTOOL_GSTATS;
    statistics->n_stats = card->statistics;
    is_read = ask(card, statistics);
  }
  if (is_read) memcpy(card->values, statistics->data, (size_t)card->statistics * sizeof *card->values);
  free(statistics);
  return is_read;
}

static uint64_t statistic(const struct Card* card, const char* name, bool* is_there) {
  for (uint32_t i = 0; i < card->statistics; ++i) {
    if (strcmp(card->names[i], name) == 0) {
      *is_there = true;
      return card->values[i];
    }
  }
  return 0;
}

bool card_queue(const struct Card* card, uint32_t queue, struct QueueCounts* counts) {
  bool is_there = false;
  const char* const kinds[] = {"rx_queue_%s_packets", "rx_queue_%s_bytes", "tx_queue_%s_packets", "tx_queue_%s_bytes"};
  uint64_t* const into[] = {&counts->rx_packets, &counts->rx_bytes, &counts->tx_packets, &counts->tx_bytes};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    char name[STATISTIC_NAME_BYTES];
    const char* place = strchr(kinds[i], '%');
    snprintf(name, sizeof name, "%.*s%u%s", (int)(place - kinds[i]), kinds[i], queue, place + 2);
    *into[i] = statistic(card, name, &is_there);
  }
  return is_there;
}

int64_t card_itr_us(const struct Card* card) {
  struct ethtool_coalesce coalesce = {.cmd = ETHTOOL_GCOALESCE};
  return ask(card, &coalesce) ? (int64_t)coalesce.rx_coalesce_usecs : -1;
}

int64_t card_ring(const struct Card* card, bool is_rx) {
  struct ethtool_ringparam ring = {.cmd = ETHTOOL_GRINGPARAM};
  return ask(card, &ring) ? (int64_t)(is_rx ? ring.rx_pending : ring.tx_pending) : -1;
}

int64_t card_queues(const struct Card* card) {
  struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
  return ask(card, &channels) ? (int64_t)channels.combined_count : -1;
}

int64_t card_offload(const struct Card* card, uint32_t command) {
  struct ethtool_value value = {.cmd = command};
  if (!ask(card, &value)) return -1;
  return command == ETHTOOL_GFLAGS ? (value.data & ETH_FLAG_LRO) != 0 : value.data != 0;
}

bool card_interrupts(const struct Card* card, void (*found)(void* context, uint32_t irq), void* context) {
  FILE* file = fopen("/proc/interrupts", "re");
  if (!file) return false;
  char prefix[64];
  snprintf(prefix, sizeof prefix, "%s-", card->interface);
  char* line = NULL;
  size_t room = 0;
  bool is_any = false;
  while (getline(&line, &room, file) > 0) {
    line[strcspn(line, "\n")] = 0;
    const char* name = strrchr(line, ' ');
    char* end;
    const unsigned long irq = strtoul(line, &end, 10);
    // The names are eth0-TxRx-3, eth0-rx-3 or eth0-tx-3. The vector without a queue is named eth0 alone.
    if (*end != ':' || !name || strncmp(name + 1, prefix, strlen(prefix)) != 0) continue;
    found(context, (uint32_t)irq);
    is_any = true;
  }
  free(line);
  fclose(file);
  return is_any;
}
