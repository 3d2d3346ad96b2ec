/* Reads network cards with their addresses, and the range of local ports. Depends on Linux. */
#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "launch/probe.h"

/* Returns the speed in Mbit/s as reported by the driver; 0: unknown. In some containers /sys
 * would show the cards of another network namespace. */
static uint64_t read_speed(int fd, const char *card) {
  struct ethtool_cmd command = {.cmd = ETHTOOL_GSET};
  struct ifreq request = {0};
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", card);
  request.ifr_data = (void *)&command;
  if (fd < 0 || ioctl(fd, SIOCETHTOOL, &request) != 0) return 0;
  uint32_t speed = (uint32_t)command.speed_hi << 16 | command.speed;
  return speed == (uint32_t)SPEED_UNKNOWN ? 0 : speed;
}

static uint64_t count_bits(const uint8_t *mask, size_t n) {
  uint64_t bits = 0;
  for (size_t i = 0; i < n; i++) bits += (uint64_t)__builtin_popcount(mask[i]);
  return bits;
}

/* Reads address and prefix of an entry. Returns false for other families than IPv4 and IPv6,
 * and for link-local addresses, which cannot be used without the name of a card. */
static bool read_address(const struct ifaddrs *from, AddressFacts *a) {
  if (!from->ifa_addr) return false;
  if (from->ifa_addr->sa_family == AF_INET) {
    struct sockaddr_in in, mask = {0};
    memcpy(&in, from->ifa_addr, sizeof in);
    if (from->ifa_netmask) memcpy(&mask, from->ifa_netmask, sizeof mask);
    a->prefix = count_bits((const uint8_t *)&mask.sin_addr, sizeof mask.sin_addr);
    return inet_ntop(AF_INET, &in.sin_addr, a->address, sizeof a->address) != NULL;
  }
  if (from->ifa_addr->sa_family == AF_INET6) {
    struct sockaddr_in6 in, mask = {0};
    memcpy(&in, from->ifa_addr, sizeof in);
    if (IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr)) return false;
    if (from->ifa_netmask) memcpy(&mask, from->ifa_netmask, sizeof mask);
    a->prefix = count_bits((const uint8_t *)&mask.sin6_addr, sizeof mask.sin6_addr);
    return inet_ntop(AF_INET6, &in.sin6_addr, a->address, sizeof a->address) != NULL;
  }
  return false;
}

static bool is_listed(const MachineFacts *m, const char *card) {
  for (size_t i = 0; i < m->addresses; i++)
    if (strcmp(m->address[i].card, card) == 0) return true;
  return false;
}

/* Adds the entries that have an address or, with_address false, the cards that have none. */
static void add_entries(MachineFacts *m, const struct ifaddrs *list, int fd,
                        bool with_address) {
  for (const struct ifaddrs *i = list; i && m->addresses < FACTS_ADDRESSES; i = i->ifa_next) {
    AddressFacts a = {0};
    snprintf(a.card, sizeof a.card, "%s", i->ifa_name);
    if (read_address(i, &a) != with_address) continue;
    if (!with_address && is_listed(m, a.card)) continue;
    a.is_up = (i->ifa_flags & IFF_UP) && (i->ifa_flags & IFF_RUNNING);
    a.is_loopback = i->ifa_flags & IFF_LOOPBACK;
    if (!a.is_loopback) a.speed = read_speed(fd, a.card);
    m->address[m->addresses++] = a;
  }
}

static bool has_entries(const char *path) {
  const struct dirent *entry;
  bool found = false;
  DIR *dir = opendir(path);
  while (dir && !found && (entry = readdir(dir))) found = entry->d_name[0] != '.';
  if (dir) closedir(dir);
  return found;
}

void probe_addresses(MachineFacts *m) {
  struct ifaddrs *list = NULL;
  unsigned first = 32768, last = 60999; /* default of the Linux kernel */
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (getifaddrs(&list) == 0) {
    enum { NO_ADDRESS, ADDRESS };
    add_entries(m, list, fd, ADDRESS);
    add_entries(m, list, fd, NO_ADDRESS);
    freeifaddrs(list);
  }
  if (fd >= 0) close(fd);
  FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
  if (f && fscanf(f, "%u %u", &first, &last) != 2) first = 0;
  if (f) fclose(f);
  m->port_first = first;
  m->port_last = last;
  m->has_rdma = has_entries("/sys/class/infiniband");
}
