/* Lists the addresses of this machine, and converts them to JSON. Depends on network.h, Linux
 * (getifaddrs, ethtool, /proc/net). */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"
#include "launch/network.h"

/* Returns true for names that container engines and hypervisors give to their bridges and
 * cards. These have the same private addresses on every machine and do not connect machines. */
static bool is_virtual_name(const char *card) {
  static const char *const prefixes[] = {
      "docker", "br-",   "veth",   "virbr", "vnet", "vmnet", "cni",    "flann",       "cali",
      "lxc",    "lxdbr", "podman", "kube-", "tunl", "ovs-",  "cilium", "nodelocaldns"};
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
    if (str_starts(card, prefixes[i])) return true;
  return false;
}

/* Returns the speed of the link in Mbit/s; 0 if the driver does not report it. Uses a socket,
 * because /sys may show the cards of another network namespace. */
static int read_speed(const char *card) {
  struct ethtool_cmd command = {.cmd = ETHTOOL_GSET};
  struct ifreq request = {0};
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return 0;
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", card);
  request.ifr_data = (char *)&command;
  bool is_known = ioctl(fd, SIOCETHTOOL, &request) == 0;
  close(fd);
  uint32_t speed = is_known ? (uint32_t)command.speed_hi << 16 | command.speed : 0;
  return speed > 10000000 ? 0 : (int)speed; /* SPEED_UNKNOWN is 2^32 - 1 */
}

/* Returns true if there is a default route over the card. The columns of /proc/net/route are:
 * card, destination, …, mask (column 8), in hexadecimal. */
static bool has_default_route(const char *card) {
  char line[256];
  bool found = false;
  FILE *routes = fopen("/proc/self/net/route", "re");
  if (!routes) return false;
  while (!found && fgets(line, sizeof line, routes)) {
    char name[NETWORK_CARD_MAX];
    unsigned long target;
    unsigned long mask;
    if (sscanf(line, "%15s %lx %*s %*s %*s %*s %*s %lx", name, &target, &mask) != 3) continue;
    found = target == 0 && mask == 0 && strcmp(name, card) == 0;
  }
  fclose(routes);
  return found;
}

static int count_bits(const unsigned char *mask, size_t bytes) {
  int bits = 0;
  for (size_t i = 0; i < bytes; i++) bits += __builtin_popcount(mask[i]);
  return bits;
}

/* Reads address and prefix; returns false for an address that is not listed. */
static bool read_address(const struct ifaddrs *from, NetworkAddress *to) {
  const unsigned wanted = IFF_UP | IFF_RUNNING;
  bool is_usable = (from->ifa_flags & (wanted | IFF_LOOPBACK)) == wanted;
  if (!is_usable || !from->ifa_addr || !from->ifa_netmask) return false;
  if (from->ifa_addr->sa_family == AF_INET) {
    const struct sockaddr_in *address = (const void *)from->ifa_addr;
    const struct sockaddr_in *mask = (const void *)from->ifa_netmask;
    /* link-local, 169.254/16. */
    if ((ntohl(address->sin_addr.s_addr) >> 16) == 0xA9FE) return false;
    to->prefix = count_bits((const void *)&mask->sin_addr, 4);
    return inet_ntop(AF_INET, &address->sin_addr, to->address, sizeof to->address) != NULL;
  }
  if (from->ifa_addr->sa_family != AF_INET6) return false;
  const struct sockaddr_in6 *address = (const void *)from->ifa_addr;
  const struct sockaddr_in6 *mask = (const void *)from->ifa_netmask;
  if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) return false;
  to->prefix = count_bits((const void *)&mask->sin6_addr, 16);
  return inet_ntop(AF_INET6, &address->sin6_addr, to->address, sizeof to->address) != NULL;
}

Err network_list(NetworkList *list) {
  struct ifaddrs *all;
  *list = (NetworkList){0};
  if (getifaddrs(&all) != 0)
    return err_errno("cannot list the network cards of", "this machine");
  for (const struct ifaddrs *i = all; i && list->count < NETWORK_ADDRESSES; i = i->ifa_next) {
    NetworkAddress address = {0};
    if (!read_address(i, &address)) continue;
    snprintf(address.card, sizeof address.card, "%s", i->ifa_name);
    address.card[strcspn(address.card, ":")] = '\0'; /* eth0:1 is an alias of card eth0 */
    address.speed = read_speed(address.card);
    address.is_virtual = is_virtual_name(address.card);
    address.is_default = has_default_route(address.card);
    list->address[list->count++] = address;
  }
  freeifaddrs(all);
  return ERR_OK;
}

json_t *network_to_json(const NetworkList *list) {
  json_t *array = json_array();
  for (size_t i = 0; array && i < list->count; i++) {
    const NetworkAddress *a = &list->address[i];
    json_t *item = json_pack("{s:s, s:s, s:i, s:i, s:b, s:b}", "name", a->card, "address",
                             a->address, "prefix", a->prefix, "speed", a->speed, "virtual",
                             a->is_virtual, "default", a->is_default);
    if (item && json_array_append_new(array, item) == 0) continue;
    json_decref(array);
    return NULL;
  }
  return array;
}

static bool copy_text(char *out, size_t room, const json_t *value) {
  size_t len = json_string_length(value);
  if (!json_is_string(value) || len == 0 || len >= room) return false;
  memcpy(out, json_string_value(value), len + 1);
  return strlen(out) == len;
}

static bool copy_number(int *out, const json_t *value, int max) {
  if (!json_is_integer(value) || json_integer_value(value) < 0 ||
      json_integer_value(value) > max)
    return false;
  *out = (int)json_integer_value(value);
  return true;
}

/* Returns true if the name can be part of variables and arguments: no commas, spaces or
 * slashes. */
static bool is_card_name(const char *name) {
  return name[0] != '-' && !name[strspn(name,
                                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                        "0123456789._-@:")];
}

static bool read_item(NetworkAddress *a, const json_t *item) {
  unsigned char bytes[16];
  if (!copy_text(a->card, sizeof a->card, json_object_get(item, "name"))) return false;
  if (!is_card_name(a->card)) return false;
  if (!copy_text(a->address, sizeof a->address, json_object_get(item, "address"))) return false;
  int family = strchr(a->address, ':') ? AF_INET6 : AF_INET;
  if (inet_pton(family, a->address, bytes) != 1) return false;
  if (!copy_number(&a->prefix, json_object_get(item, "prefix"), family == AF_INET ? 32 : 128))
    return false;
  const json_t *speed = json_object_get(item, "speed");
  if (speed && !copy_number(&a->speed, speed, 10000000)) return false;
  a->is_virtual = json_is_true(json_object_get(item, "virtual"));
  a->is_default = json_is_true(json_object_get(item, "default"));
  return true;
}

Err network_from_json(NetworkList *list, const json_t *json, const char *where) {
  *list = (NetworkList){0};
  size_t count = json_array_size(json);
  if (!json_is_array(json) || count > NETWORK_ADDRESSES)
    return err_set(ERR_WORK,
                   "%s sent an invalid list of network addresses (at most %d are allowed); "
                   "install the same version of trireme on all machines",
                   where, NETWORK_ADDRESSES);
  for (size_t i = 0; i < count; i++) {
    if (!read_item(&list->address[i], json_array_get(json, i)))
      return err_set(
          ERR_WORK,
          "%s sent an invalid list of network addresses (entry %zu is not an address); "
          "install the same version of trireme on all machines",
          where, i);
    list->count++;
  }
  return ERR_OK;
}

bool network_is_own(const NetworkList *list, const char *address) {
  struct in_addr v4;
  if (inet_pton(AF_INET, address, &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127) return true;
  if (strcmp(address, "::1") == 0) return true;
  for (size_t i = 0; i < list->count; i++)
    if (strcasecmp(list->address[i].address, address) == 0) return true;
  return false;
}
