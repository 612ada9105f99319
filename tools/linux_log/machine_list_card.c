// SPDX-License-Identifier: BSL-1.0
// The network card's members of the machine list: sysfs, ethtool's requests, and the card's registers in ixgbe's dump.
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "machine_list_private.h"

#define NETWORK "/sys/class/net"

// --- The interface -----------------------------------------------------------------------------------------------------------------------
static bool driver_of(const char* interface, char* name, size_t bytes) {
  char path[PATH_BYTES_MAX], target[PATH_BYTES_MAX];
  snprintf(path, sizeof path, NETWORK "/%s/device/driver", interface);
  const ssize_t length = readlink(path, target, sizeof target - 1);
  if (length <= 0) return false;
  target[length] = '\0';
  const char* const last = strrchr(target, '/');
  snprintf(name, bytes, "%s", last == NULL ? target : last + 1);
  return true;
}

bool has_interface(const char* interface) {
  char path[PATH_BYTES_MAX];
  const size_t length = strlen(interface);
  if (length == 0 || length >= IFNAMSIZ || strchr(interface, '/') != NULL || interface[0] == '.') return false;
  snprintf(path, sizeof path, NETWORK "/%s", interface);
  return access(path, F_OK) == 0;
}

bool find_card(char* name, size_t bytes) {
  DIR* const folder = opendir(NETWORK);
  if (folder == NULL) return false;
  name[0] = '\0';
  for (const struct dirent* entry; (entry = readdir(folder)) != NULL;) {
    char driver[PATH_BYTES_MAX];
    if (!has_interface(entry->d_name) || !driver_of(entry->d_name, driver, sizeof driver) || strcmp(driver, "ixgbe") != 0) continue;
    if (name[0] == '\0' || strcmp(entry->d_name, name) < 0) snprintf(name, bytes, "%s", entry->d_name);
  }
  closedir(folder);
  return name[0] != '\0';
}

// A connection to the kernel's requests about one interface.
struct card {
  int socket;
  const char* interface;
};

static bool request(const struct card* card, void* data) {
  struct ifreq wrapped = {0};
  snprintf(wrapped.ifr_name, sizeof wrapped.ifr_name, "%s", card->interface);
  wrapped.ifr_data = data;
  return card->socket >= 0 && ioctl(card->socket, SIOCETHTOOL, &wrapped) == 0;
}

static void add_value(struct json* json, const struct card* card, const char* name, uint32_t command) {
  struct ethtool_value value = {.cmd = command};
  if (request(card, &value)) json_flag(json, name, value.data != 0);
}

// --- Members -----------------------------------------------------------------------------------------------------------------------------
static void add_identity(struct json* json, const struct card* card) {
  const char* const interface = card->interface;
  uint64_t vendor, device, value;
  json_text(json, "card_interface", interface);
  if (read_number(&vendor, NETWORK "/%s/device/vendor", interface) && read_number(&device, NETWORK "/%s/device/device", interface)) {
    char text[16];
    snprintf(text, sizeof text, "%04x:%04x", (unsigned)(vendor & 0xffff), (unsigned)(device & 0xffff));
    json_text(json, "card_pci_id", text);
  }
  if (read_number(&value, NETWORK "/%s/device/revision", interface)) json_number(json, "card_pci_revision", value);
  char speed[64], width[64], both[130];
  // A virtual slot has no speed: "Unknown".
  if (read_line(speed, sizeof speed, NETWORK "/%s/device/current_link_speed", interface) && isdigit((unsigned char)speed[0]) &&
      read_line(width, sizeof width, NETWORK "/%s/device/current_link_width", interface)) {
    snprintf(both, sizeof both, "%s x%s", speed, width);
    json_text(json, "card_pcie", both);
  }
  struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
  if (request(card, &driver)) {
    driver.driver[sizeof driver.driver - 1] = '\0';
    driver.fw_version[sizeof driver.fw_version - 1] = '\0';
    json_text(json, "card_driver", driver.driver);
    if (driver.fw_version[0] != '\0') json_text(json, "card_firmware", driver.fw_version);
  }
  if (read_number(&value, NETWORK "/%s/device/numa_node", interface)) json_number(json, "card_numa_node", value);
}

static void add_link(struct json* json, const char* interface) {
  uint64_t value;
  // Reading the carrier of an interface that is down fails.
  const bool up = read_number(&value, NETWORK "/%s/carrier", interface) && value != 0;
  json_flag(json, "link_up", up);
  if (up && read_number(&value, NETWORK "/%s/speed", interface)) json_number(json, "link_mbps", value);
  if (read_number(&value, NETWORK "/%s/mtu", interface)) json_number(json, "mtu_bytes", value);
}

static void add_rss(struct json* json, const struct card* card) {
  enum { entries_max = 4096 };
  struct ethtool_rxfh_indir* const table = calloc(1, sizeof *table + entries_max * sizeof table->ring_index[0]);
  if (table == NULL) return;
  table->cmd = ETHTOOL_GRXFHINDIR;
  table->size = entries_max;
  if (request(card, table) && table->size <= entries_max) {
    bool spreads = false;
    for (uint32_t i = 1; i < table->size; ++i) spreads = spreads || table->ring_index[i] != table->ring_index[0];
    json_flag(json, "rss", spreads);
  } else {
    table->cmd = ETHTOOL_GRXFHINDIR;
    table->size = 0;  // asks for the size alone: a driver without a table refuses
    if (!request(card, table)) json_flag(json, "rss", false);
  }
  free(table);
}

// Queue I has the interrupt INTERFACE-TxRx-I of ixgbe, or INTERFACE-rx-I. Its cores are the effective ones: the kernel may use fewer than
// are permitted. Returns the interrupt's number, or -1.
static long interrupt_of_queue(const char* interface, unsigned queue) {
  FILE* const file = fopen("/proc/interrupts", "re");
  char names[2][PATH_BYTES_MAX];
  char* line = NULL;
  size_t bytes = 0;
  long number = -1;
  snprintf(names[0], sizeof names[0], "%s-TxRx-%u", interface, queue);
  snprintf(names[1], sizeof names[1], "%s-rx-%u", interface, queue);
  while (file != NULL && number < 0 && getline(&line, &bytes, file) > 0) {
    size_t length = strlen(line);
    while (length > 0 && isspace((unsigned char)line[length - 1])) line[--length] = '\0';
    const char* const last = strrchr(line, ' ');
    if (last != NULL && (strcmp(last + 1, names[0]) == 0 || strcmp(last + 1, names[1]) == 0)) number = strtol(line, NULL, 10);
  }
  free(line);
  if (file != NULL) fclose(file);
  return number;
}

static void add_queues(struct json* json, const struct card* card) {
  struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
  if (!request(card, &channels)) return;
  const unsigned queues = channels.combined_count + channels.rx_count;
  json_number(json, "queues", queues);
  add_rss(json, card);
  bool opened = false;
  for (unsigned queue = 0; queue < queues; ++queue) {
    char cores[TEXT_BYTES_MAX];
    const long interrupt = interrupt_of_queue(card->interface, queue);
    if (interrupt < 0) break;
    if (!read_line(cores, sizeof cores, "/proc/irq/%ld/effective_affinity_list", interrupt) &&
        !read_line(cores, sizeof cores, "/proc/irq/%ld/smp_affinity_list", interrupt)) {
      snprintf(cores, sizeof cores, "0");  // a kernel for one core has no affinity
    }
    if (!opened) json_open_list(json, "queue_cores");
    opened = true;
    json_element(json, cores);
  }
  if (opened) json_close_list(json);
}

static void add_moderation(struct json* json, const struct card* card, bool is_ixgbe) {
  struct ethtool_ringparam rings = {.cmd = ETHTOOL_GRINGPARAM};
  if (request(card, &rings)) {
    json_number(json, "rx_ring_descriptors", rings.rx_pending);
    json_number(json, "tx_ring_descriptors", rings.tx_pending);
  }
  struct ethtool_coalesce coalesce = {.cmd = ETHTOOL_GCOALESCE};
  if (!request(card, &coalesce)) return;
  // ixgbe reports adaptive moderation as an interval of 1 us.
  const bool adaptive = is_ixgbe ? coalesce.rx_coalesce_usecs == 1 : coalesce.use_adaptive_rx_coalesce != 0;
  if (!adaptive) json_number(json, "itr_us", coalesce.rx_coalesce_usecs);
  json_flag(json, "itr_adaptive", adaptive);
}

// The dump's places of the registers of queue 0, as 32-bit words. The order is ixgbe's interface to ethtool, and never changes.
enum { PLACE_DCA_RXCTRL = 453, PLACE_TXDCTL = 697, PLACE_TDWBAL = 729, REGISTERS_MIN = 1128, REGISTERS_BYTES_MAX = 1 << 16 };

static void add_registers(struct json* json, const struct card* card) {
  struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
  if (!request(card, &driver) || driver.regdump_len < REGISTERS_MIN * 4 || driver.regdump_len > REGISTERS_BYTES_MAX) return;
  struct ethtool_regs* const dump = calloc(1, sizeof *dump + driver.regdump_len);
  if (dump == NULL) return;
  dump->cmd = ETHTOOL_GREGS;
  dump->len = driver.regdump_len;
  if (request(card, dump) && dump->len >= REGISTERS_MIN * 4) {
    uint32_t txdctl, tdwbal, dca;
    memcpy(&txdctl, dump->data + PLACE_TXDCTL * 4, sizeof txdctl);
    memcpy(&tdwbal, dump->data + PLACE_TDWBAL * 4, sizeof tdwbal);
    memcpy(&dca, dump->data + PLACE_DCA_RXCTRL * 4, sizeof dca);
    // 82599 datasheet 8.2.3.9.10 (TXDCTL), 8.2.3.9.11 (TDWBAL), 8.2.3.11.1 (DCA_RXCTRL: hints for descriptors, headers, payload).
    json_number(json, "pthresh_descriptors", txdctl & 0x7f);
    json_number(json, "hthresh_descriptors", txdctl >> 8 & 0x7f);
    json_number(json, "wthresh_descriptors", txdctl >> 16 & 0x7f);
    json_flag(json, "head_write_back", (tdwbal & 1) != 0);
    json_flag(json, "dca", (dca >> 5 & 7) != 0);
  }
  free(dump);
}

static void add_offloads(struct json* json, const struct card* card) {
  add_value(json, card, "rx_checksum", ETHTOOL_GRXCSUM);
  add_value(json, card, "tx_checksum", ETHTOOL_GTXCSUM);
  add_value(json, card, "tso", ETHTOOL_GTSO);
  add_value(json, card, "gso", ETHTOOL_GGSO);
  add_value(json, card, "gro", ETHTOOL_GGRO);
  struct ethtool_value flags = {.cmd = ETHTOOL_GFLAGS};
  if (request(card, &flags)) {
    json_flag(json, "rsc", (flags.data & ETH_FLAG_LRO) != 0);
    json_flag(json, "vlan_strip", (flags.data & ETH_FLAG_RXVLAN) != 0);
  }
  struct ethtool_pauseparam pause = {.cmd = ETHTOOL_GPAUSEPARAM};
  if (request(card, &pause)) {
    json_flag(json, "pause_rx", pause.rx_pause != 0);
    json_flag(json, "pause_tx", pause.tx_pause != 0);
  }
}

void add_card(struct json* json, const char* interface) {
  const struct card card = {.socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), .interface = interface};
  char driver[PATH_BYTES_MAX];
  const bool is_ixgbe = driver_of(interface, driver, sizeof driver) && strcmp(driver, "ixgbe") == 0;
  add_identity(json, &card);
  add_link(json, interface);
  add_queues(json, &card);
  add_moderation(json, &card, is_ixgbe);
  if (is_ixgbe) add_registers(json, &card);
  add_offloads(json, &card);
  if (card.socket >= 0) close(card.socket);
}
