/* Finds the networks that all machines share. Depends on network.h, base. */
#include "launch/network.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

/* Shortest prefix in bits that the addresses of a routed network must share. */
#define ROUTED_MIN_PREFIX 8

/* A subnet: the first `prefix` bits of `bits`; the other bits are 0. */
typedef struct {
  int family; /* address family: AF_INET or AF_INET6 */
  int prefix;
  uint8_t bits[16];
} Subnet;

static bool parse_subnet(const char *address, int prefix, Subnet *s) {
  *s = (Subnet){.family = strchr(address, ':') ? AF_INET6 : AF_INET, .prefix = prefix};
  int width = s->family == AF_INET ? 32 : 128;
  if (prefix < 0 || prefix > width || inet_pton(s->family, address, s->bits) != 1) return false;
  for (int bit = prefix; bit < width; bit++) s->bits[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
  return true;
}

static bool parse_cidr(const char *text, Subnet *s) {
  char address[NETWORK_TEXT_MAX];
  const char *slash = strchr(text, '/');
  if (!slash || (size_t)(slash - text) >= sizeof address || !slash[1] ||
      strlen(slash + 1) > 3 || slash[1 + strspn(slash + 1, "0123456789")])
    return false;
  snprintf(address, sizeof address, "%.*s", (int)(slash - text), text);
  return parse_subnet(address, atoi(slash + 1), s);
}

static bool has_address(const Subnet *s, const char *address) {
  Subnet other;
  return parse_subnet(address, s->prefix, &other) && other.family == s->family &&
         memcmp(other.bits, s->bits, sizeof s->bits) == 0;
}

static void print_subnet(const Subnet *s, char out[NETWORK_TEXT_MAX]) {
  char address[INET6_ADDRSTRLEN] = "";
  inet_ntop(s->family, s->bits, address, sizeof address);
  snprintf(out, NETWORK_TEXT_MAX, "%s/%d", address, s->prefix);
}

typedef struct {
  bool is_set, is_card;
  const char *text;
  Subnet subnet;
} Wish;

static Err parse_wish(const char *text, Wish *wish) {
  *wish = (Wish){.text = text, .is_set = text != NULL};
  if (!text) return ERR_OK;
  if (strchr(text, '/')) {
    if (parse_cidr(text, &wish->subnet)) return ERR_OK;
  } else if (text[0] && strlen(text) < NETWORK_CARD_MAX && !strpbrk(text, ", \t")) {
    wish->is_card = true;
    return ERR_OK;
  }
  return err_set(
      ERR_USAGE,
      "--network '%s' is neither a network such as 10.1.0.0/24 nor the name of a card "
      "such as eth0",
      text);
}

static bool is_wished(const Wish *wish, const NetworkAddress *a) {
  if (!wish->is_set) return true;
  return wish->is_card ? strcmp(wish->text, a->card) == 0
                       : has_address(&wish->subnet, a->address);
}

typedef struct {
  NetworkChoice *choice;
  const NetworkMachine *machines;
  size_t count;
  Wish wish;
} Search;

/* Orders two addresses of one machine in the same network: physical before virtual cards, fast
 * before slow. */
static bool is_better_card(const NetworkAddress *a, const NetworkAddress *b) {
  if (a->is_virtual != b->is_virtual) return b->is_virtual;
  return a->speed > b->speed;
}

static const NetworkAddress *find_member(const Search *s, size_t machine,
                                         const Subnet *subnet) {
  const NetworkList *list = s->machines[machine].list;
  const NetworkAddress *best = NULL;
  for (size_t i = 0; i < list->count; i++) {
    const NetworkAddress *a = &list->address[i];
    if (a->prefix != subnet->prefix || !has_address(subnet, a->address)) continue;
    if (!is_wished(&s->wish, a)) continue;
    if (!best || is_better_card(a, best)) best = a;
  }
  return best;
}

/* Returns true if two machines have the same address, as bridges of containers have: a machine
 * would connect to itself. */
static bool has_equal_addresses(const Network *n, size_t count) {
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < i; j++)
      if (strcmp(n->member[i]->address, n->member[j]->address) == 0) return true;
  return false;
}

/* Returns true if the card has another IPv4 address before this one. */
static bool is_secondary(const NetworkList *list, const NetworkAddress *a) {
  for (const NetworkAddress *other = list->address; other < a; other++)
    if (strcmp(other->card, a->card) == 0 && !strchr(other->address, ':')) return true;
  return false;
}

static void summarize_members(const Search *s, Network *n) {
  size_t count = s->count;
  n->speed = n->member[0]->speed;
  for (size_t i = 0; i < count; i++) {
    if (n->member[i]->speed < n->speed) n->speed = n->member[i]->speed;
    n->is_virtual |= n->member[i]->is_virtual;
    bool is_v6 = strchr(n->member[i]->address, ':') != NULL;
    n->is_secondary |= !is_v6 && is_secondary(s->machines[i].list, n->member[i]);
  }
}

static bool has_equal_members(const Network *a, const Network *b, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (a->member[i] != b->member[i]) return false;
  return true;
}

/* Adds the network to the candidates if it is new and all its addresses differ; otherwise frees
 * it. */
static void keep_network(Search *s, Network *n, const Subnet *subnet) {
  NetworkChoice *choice = s->choice;
  bool is_kept = choice->count < NETWORK_CANDIDATES && !has_equal_addresses(n, s->count);
  for (size_t i = 0; i < choice->count; i++)
    is_kept &= !has_equal_members(&choice->network[i], n, s->count);
  if (!is_kept) {
    mem_free(n->member);
    return;
  }
  print_subnet(subnet, n->cidr);
  summarize_members(s, n);
  choice->network[choice->count++] = *n;
}

/* Tries the network of one of the first machine's addresses as a candidate. */
static Err try_subnet(Search *s, const NetworkAddress *first) {
  Subnet subnet;
  Network n = {0};
  if (!parse_subnet(first->address, first->prefix, &subnet)) return ERR_OK;
  TRY(mem_alloc(&n.member, s->count, sizeof *n.member));
  for (size_t m = 0; m < s->count; m++) {
    n.member[m] = find_member(s, m, &subnet);
    if (n.member[m]) continue;
    mem_free(n.member);
    return ERR_OK;
  }
  keep_network(s, &n, &subnet);
  return ERR_OK;
}

/* Returns the address that the machine's default route uses; with --network, another address
 * that matches the wish is accepted too. */
static const NetworkAddress *find_routed_member(const Search *s, size_t machine) {
  const NetworkList *list = s->machines[machine].list;
  for (size_t i = 0; i < list->count; i++) {
    const NetworkAddress *a = &list->address[i];
    bool is_candidate =
        s->wish.is_set ? is_wished(&s->wish, a) : a->is_default && !a->is_virtual;
    if (is_candidate && !strchr(a->address, ':')) return a;
  }
  return NULL;
}

/* Shortens the prefix until the subnet contains the address. */
static void widen_subnet(Subnet *s, const char *address) {
  while (s->prefix > 0 && !has_address(s, address)) {
    s->prefix--;
    s->bits[s->prefix / 8] &= (uint8_t) ~(0x80 >> s->prefix % 8);
  }
}

/* Returns true if the subnet contains another address of the machine. MPI selects cards by the
 * subnet only, so such a subnet cannot be used. */
static bool has_other_member(const Search *s, size_t machine, const Subnet *subnet,
                             const NetworkAddress *member) {
  const NetworkList *list = s->machines[machine].list;
  for (size_t i = 0; i < list->count; i++)
    if (&list->address[i] != member && has_address(subnet, list->address[i].address))
      return true;
  return false;
}

/* Adds a candidate for machines in different subnets of one private network, connected by
 * routers. */
static Err try_routed(Search *s) {
  Subnet subnet = {0};
  Network n = {.is_routed = true};
  TRY(mem_alloc(&n.member, s->count, sizeof *n.member));
  bool is_usable = true;
  for (size_t m = 0; is_usable && m < s->count; m++) {
    n.member[m] = find_routed_member(s, m);
    is_usable = n.member[m] != NULL;
    if (is_usable && m == 0) is_usable = parse_subnet(n.member[0]->address, 32, &subnet);
    if (is_usable) widen_subnet(&subnet, n.member[m]->address);
  }
  is_usable = is_usable && subnet.prefix >= ROUTED_MIN_PREFIX;
  for (size_t m = 0; is_usable && m < s->count; m++)
    is_usable = !has_other_member(s, m, &subnet, n.member[m]);
  if (is_usable)
    keep_network(s, &n, &subnet);
  else
    mem_free(n.member);
  return ERR_OK;
}

/* Order of candidates: physical before virtual, one network before routed, IPv4 before IPv6,
 * first addresses of cards before others, fast before slow. */
static int compare_networks(const void *left, const void *right) {
  const Network *a = left;
  const Network *b = right;
  bool a6 = strchr(a->cidr, ':') != NULL;
  bool b6 = strchr(b->cidr, ':') != NULL;
  if (a->is_virtual != b->is_virtual) return a->is_virtual ? 1 : -1;
  if (a->is_routed != b->is_routed) return a->is_routed ? 1 : -1;
  if (a6 != b6) return a6 ? 1 : -1;
  if (a->is_secondary != b->is_secondary) return a->is_secondary ? 1 : -1;
  if (a->speed != b->speed) return a->speed < b->speed ? 1 : -1;
  return strcmp(a->cidr, b->cidr); /* equally good networks: any fixed order */
}

void network_add_addresses(Str *text, const NetworkMachine *m) {
  str_addf(text, "%s has ", m->name);
  for (size_t i = 0; i < m->list->count; i++) {
    const NetworkAddress *a = &m->list->address[i];
    str_addf(text, "%s%s/%d (%s)", i ? ", " : "", a->address, a->prefix, a->card);
  }
  if (!m->list->count) str_add(text, "no address");
}

static Err refuse_machines(const Search *s) {
  Str text = {0};
  if (s->wish.is_set)
    str_addf(&text,
             "the machines do not share a network that fits --network %s: ", s->wish.text);
  else
    str_add(&text, "the machines have no network in common: ");
  for (size_t m = 0; m < s->count; m++) {
    if (m) str_add(&text, "; ");
    network_add_addresses(&text, &s->machines[m]);
  }
  str_add(&text, "; connect them, or name the network with --network CIDR or --network CARD");
  Err err = str_check(&text);
  if (!err) err = err_set(ERR_WORK, "%s", str_text(&text));
  str_free(&text);
  return err;
}

Err network_candidates(NetworkChoice *choice, const NetworkMachine *machines, size_t count,
                       const char *wish) {
  *choice = (NetworkChoice){0};
  Search s = {.choice = choice, .machines = machines, .count = count};
  TRY(parse_wish(wish, &s.wish));
  TRY(mem_alloc(&choice->network, NETWORK_CANDIDATES, sizeof *choice->network));
  for (size_t i = 0; i < machines[0].list->count; i++)
    TRY(try_subnet(&s, &machines[0].list->address[i]));
  TRY(try_routed(&s));
  if (!choice->count) return refuse_machines(&s);
  qsort(choice->network, choice->count, sizeof *choice->network, compare_networks);
  return ERR_OK;
}

void network_free(NetworkChoice *choice) {
  for (size_t i = 0; i < choice->count; i++) mem_free(choice->network[i].member);
  mem_free(choice->network);
  *choice = (NetworkChoice){0};
}

Err network_mpi_include(const Network *network, size_t machines, char *out, size_t room) {
  Str names = {0};
  if (!strchr(network->cidr, ':')) {
    snprintf(out, room, "%s", network->cidr);
    return ERR_OK;
  }
  for (size_t m = 0; m < machines; m++) {
    bool is_new = true;
    for (size_t k = 0; k < m; k++)
      is_new &= strcmp(network->member[k]->card, network->member[m]->card) != 0;
    if (is_new) str_addf(&names, "%s%s", names.len ? "," : "", network->member[m]->card);
  }
  Err err = str_check(&names);
  if (!err && names.len >= room)
    err = err_set(ERR_WORK, "the list of network cards is too long");
  if (!err) memcpy(out, str_text(&names), names.len + 1);
  str_free(&names);
  return err;
}
