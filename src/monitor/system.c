/* Reads counters and computes rates from two readings. Every file is opened anew for each sample,
 * because cards and disks may appear and disappear. Depends on system_counters, system_gpu. */
#include "monitor/system.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <math.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/progress.h"
#include "monitor/system_counters.h"
#include "monitor/system_gpu.h"

/* /proc/stat has one line per core first; its long line of interrupts is not needed. */
#define TEXT_BYTES ((size_t)128 << 10)
/* Seconds after which a card is asked for its speed again: some drivers take long to answer. */
#define SPEED_PERIOD 30
enum { PACKAGES = 16, PORTS = 8 };

/* A processor package with an energy counter (RAPL), which restarts after `range`. */
typedef struct {
  unsigned number;
  uint64_t range; /* microjoules */
} Package;

/* A port of an InfiniBand or RoCE adapter. The traffic of RDMA is not in /proc/net/dev. */
typedef struct {
  char adapter[SYSTEM_NAME - 8], number[8];
} Port;

/* One reading of the counters. */
typedef struct {
  double clock;
  size_t cores, cards;
  CoreTime core[SYSTEM_CORES];
  CardBytes card[SYSTEM_CARDS];
  bool has_disks;
  DiskBytes disks;
  bool has_energy[PACKAGES];
  uint64_t energy[PACKAGES]; /* microjoules */
} Reading;

typedef struct {
  char name[SYSTEM_NAME];
  double speed;
} CardSpeed;

struct System {
  SystemSpec spec;
  SystemNvml *nvml; /* NULL: no GPU */
  char *text;       /* (TEXT_BYTES) contents of the file read last */
  int socket;       /* for questions about cards; -1: none */
  size_t packages, ports, speeds;
  Package package[PACKAGES];
  Port port[PORTS];
  CardSpeed speed[SYSTEM_CARDS];
  double asked; /* time at which the speeds were read */
  /* The latest two readings; reading[now] is the later one. */
  Reading reading[2];
  int now;
};

static const char *const energy_dir = "/sys/class/powercap/intel-rapl";
static const char *const ports_dir = "/sys/class/infiniband";

/* Reads the file below spec.root of this path. Returns its text, which is valid until the next call,
 * or NULL. */
static const char *read_text(System *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
static const char *read_text(System *s, const char *fmt, ...) {
  char path[FILE_PATH_MAX], full[FILE_PATH_MAX];
  size_t n = 0;
  va_list args;
  va_start(args, fmt);
  vsnprintf(path, sizeof path, fmt, args);
  va_end(args);
  if (snprintf(full, sizeof full, "%s%s", s->spec.root, path) >= (int)sizeof full) return NULL;
  int fd = open(full, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return NULL;
  while (n < TEXT_BYTES - 1) {
    ssize_t got = read(fd, s->text + n, TEXT_BYTES - 1 - n);
    if (got <= 0) break;
    n += (size_t)got;
  }
  close(fd);
  s->text[n] = '\0';
  return n ? s->text : NULL;
}

static bool read_energy(System *s, unsigned package, const char *name, uint64_t *microjoules) {
  const char *text = read_text(s, "%s:%u/%s", energy_dir, package, name);
  return text && counters_parse_number(text, microjoules);
}

/* Lists the processor packages. Their counters can be read by root alone on most systems. */
static void list_packages(System *s) {
  for (unsigned i = 0; i < PACKAGES; i++) {
    uint64_t range, now;
    const char *name = read_text(s, "%s:%u/name", energy_dir, i);
    if (!name || !str_starts(name, "package")) continue;
    if (!read_energy(s, i, "max_energy_range_uj", &range)) continue;
    if (!read_energy(s, i, "energy_uj", &now)) continue;
    s->package[s->packages++] = (Package){i, range};
  }
}

static void list_adapter(System *s, const char *adapter) {
  char path[FILE_PATH_MAX];
  const struct dirent *entry;
  snprintf(path, sizeof path, "%s%s/%s/ports", s->spec.root, ports_dir, adapter);
  DIR *dir = opendir(path);
  while (dir && s->ports < PORTS && (entry = readdir(dir))) {
    Port *p = &s->port[s->ports];
    if (entry->d_name[0] == '.') continue;
    if (strlen(adapter) >= sizeof p->adapter || strlen(entry->d_name) >= sizeof p->number)
      continue;
    snprintf(p->adapter, sizeof p->adapter, "%s", adapter);
    snprintf(p->number, sizeof p->number, "%s", entry->d_name);
    s->ports++;
  }
  if (dir) closedir(dir);
}

static void list_ports(System *s) {
  char path[FILE_PATH_MAX];
  const struct dirent *entry;
  snprintf(path, sizeof path, "%s%s", s->spec.root, ports_dir);
  DIR *dir = opendir(path);
  while (dir && (entry = readdir(dir)))
    if (entry->d_name[0] != '.') list_adapter(s, entry->d_name);
  if (dir) closedir(dir);
}

/* Returns true for a disk, and false for its partitions and for devices that are made of other
 * devices (RAID, LVM, loop), whose bytes would count twice. */
static bool is_disk(const char *name, void *context) {
  const System *s = context;
  char path[FILE_PATH_MAX];
  if (strchr(name, '/')) return false;
  int n = snprintf(path, sizeof path, "%s/sys/block/%s/device", s->spec.root, name);
  return n < (int)sizeof path && access(path, F_OK) == 0;
}

static bool read_port(System *s, const Port *p, const char *name, uint64_t *value) {
  const char *text = read_text(s, "%s/%s/ports/%s/%s", ports_dir, p->adapter, p->number, name);
  return text && counters_parse_number(text, value);
}

static void read_ports(System *s, Reading *r) {
  for (size_t i = 0; i < s->ports && r->cards < SYSTEM_CARDS; i++) {
    const Port *p = &s->port[i];
    CardBytes c;
    enum { WORD = 4 }; /* bytes; the unit of both counters */
    if (!read_port(s, p, "counters/port_rcv_data", &c.received)) continue;
    if (!read_port(s, p, "counters/port_xmit_data", &c.sent)) continue;
    c.received *= WORD;
    c.sent *= WORD;
    snprintf(c.name, sizeof c.name, "%s:%s", p->adapter, p->number);
    r->card[r->cards++] = c;
  }
}

static void read_counters(System *s, Reading *r) {
  r->clock = progress_clock();
  const char *text = read_text(s, "/proc/stat");
  r->cores = text ? counters_parse_cores(text, r->core, SYSTEM_CORES) : 0;
  text = read_text(s, "/proc/diskstats");
  r->has_disks = text && counters_parse_disks(text, is_disk, s, &r->disks);
  text = read_text(s, "/proc/net/dev");
  r->cards = text ? counters_parse_cards(text, r->card, SYSTEM_CARDS) : 0;
  read_ports(s, r);
  for (size_t i = 0; i < s->packages; i++)
    r->has_energy[i] = read_energy(s, s->package[i].number, "energy_uj", &r->energy[i]);
}

/* Asks the driver for the speed of a card in Mbit/s. (In some containers /sys would show the cards
 * of another network namespace.) */
static double ask_speed(const System *s, const char *card) {
  struct ethtool_cmd command = {.cmd = ETHTOOL_GSET};
  struct ifreq request = {0};
  if (s->socket < 0 || strlen(card) >= sizeof request.ifr_name) return NAN;
  memcpy(request.ifr_name, card, strlen(card));
  request.ifr_data = (void *)&command;
  if (ioctl(s->socket, SIOCETHTOOL, &request) != 0) return NAN;
  uint32_t speed = (uint32_t)command.speed_hi << 16 | command.speed;
  return speed == 0 || speed == (uint32_t)SPEED_UNKNOWN ? (double)NAN : (double)speed;
}

static double read_speed(System *s, const char *card) {
  for (size_t i = 0; i < s->ports; i++) {
    const Port *p = &s->port[i];
    size_t n = strlen(p->adapter);
    bool is_port = strncmp(card, p->adapter, n) == 0 && card[n] == ':' &&
                   strcmp(card + n + 1, p->number) == 0;
    if (!is_port) continue;
    const char *text = read_text(s, "%s/%s/ports/%s/rate", ports_dir, p->adapter, p->number);
    return text ? counters_parse_rate(text) : NAN;
  }
  return ask_speed(s, card);
}

/* Returns the speed of a card, from the last time the cards were asked if that is not long ago. */
static double get_speed(System *s, const char *card) {
  for (size_t i = 0; i < s->speeds; i++)
    if (strcmp(s->speed[i].name, card) == 0) return s->speed[i].speed;
  double speed = read_speed(s, card);
  if (s->speeds < SYSTEM_CARDS) {
    CardSpeed *added = &s->speed[s->speeds++];
    memcpy(added->name, card, SYSTEM_NAME);
    added->speed = speed;
  }
  return speed;
}

Err system_open(System **out, const SystemSpec *spec) {
  System *s;
  *out = NULL;
  TRY(mem_alloc(&s, 1, sizeof *s));
  Err err = mem_alloc(&s->text, TEXT_BYTES, 1);
  if (err) {
    mem_free(s);
    return err;
  }
  s->spec = *spec;
  s->socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  s->nvml = spec->nvml ? gpu_open(spec->nvml) : NULL;
  list_packages(s);
  list_ports(s);
  read_counters(s, &s->reading[s->now]);
  s->asked = s->reading[s->now].clock;
  *out = s;
  return ERR_OK;
}

void system_close(System *s) {
  if (!s) return;
  gpu_close(s->nvml);
  if (s->socket >= 0) close(s->socket);
  mem_free(s->text);
  mem_free(s);
}

/* Returns the increase of a counter per second; NAN if it was reset. */
static double get_rate(uint64_t before, uint64_t now, double seconds) {
  return now >= before && seconds > 0 ? (double)(now - before) / seconds : NAN;
}

/* Cores are compared by number, because a core may be switched off between two readings. */
static void take_cores(const Reading *before, const Reading *now, SystemSample *out) {
  size_t b = 0;
  for (size_t i = 0; i < now->cores; i++) {
    const CoreTime *core = &now->core[i];
    while (b < before->cores && before->core[b].number < core->number) b++;
    if (b == before->cores || before->core[b].number != core->number) continue;
    const CoreTime *old = &before->core[b];
    bool is_valid = core->total > old->total && core->busy >= old->busy;
    double share = is_valid
                       ? (double)(core->busy - old->busy) / (double)(core->total - old->total)
                       : 0; /* no tick has passed, or a counter was corrected */
    out->core[out->cores++] = (float)(100 * fmin(share, 1));
  }
}

static void take_cards(System *s, const Reading *before, const Reading *now,
                       SystemSample *out) {
  double seconds = now->clock - before->clock;
  if (now->clock - s->asked > SPEED_PERIOD) {
    s->speeds = 0;
    s->asked = now->clock;
  }
  for (size_t i = 0; i < now->cards; i++) {
    const CardBytes *c = &now->card[i], *old = NULL;
    for (size_t k = 0; k < before->cards; k++)
      if (strcmp(before->card[k].name, c->name) == 0) old = &before->card[k];
    if (!old) continue;
    SystemCard *card = &out->card[out->cards++];
    memcpy(card->name, c->name, SYSTEM_NAME);
    card->received = get_rate(old->received, c->received, seconds);
    card->sent = get_rate(old->sent, c->sent, seconds);
    card->speed = get_speed(s, c->name);
  }
}

/* Returns the power of all packages; NAN if one is unknown. */
static double get_watts(const System *s, const Reading *before, const Reading *now) {
  double watts = 0, seconds = now->clock - before->clock;
  if (!s->packages) return NAN;
  for (size_t i = 0; i < s->packages; i++) {
    if (!before->has_energy[i] || !now->has_energy[i]) return NAN;
    uint64_t end = now->energy[i];
    if (end < before->energy[i]) end += s->package[i].range; /* the counter restarted */
    watts += get_rate(before->energy[i], end, seconds) / 1e6;
  }
  return watts;
}

static void take_memory(System *s, SystemSample *out) {
  uint64_t total, available, pages, sum = 0;
  const char *text = read_text(s, "/proc/meminfo");
  if (text && counters_parse_memory(text, &total, &available)) {
    out->memory_used = (double)(total - available);
    out->memory_total = (double)total;
  }
  for (size_t i = 0; i < s->spec.pids; i++) {
    text = read_text(s, "/proc/%d/statm", s->spec.pid[i]);
    if (text && counters_parse_resident(text, &pages)) sum += pages;
  }
  if (sum) out->process_memory = (double)sum * (double)sysconf(_SC_PAGESIZE);
}

void system_take(System *s, SystemSample *out) {
  const Reading *before = &s->reading[s->now];
  Reading *now = &s->reading[!s->now];
  struct timespec time;
  struct statvfs space;
  clock_gettime(CLOCK_REALTIME, &time);
  *out = (SystemSample){.time = (double)time.tv_sec + (double)time.tv_nsec / 1e9,
                        .memory_used = NAN,
                        .memory_total = NAN,
                        .process_memory = NAN,
                        .disk_read = NAN,
                        .disk_written = NAN,
                        .disk_free = NAN,
                        .step = NAN,
                        .dropped = NAN};
  snprintf(out->host, sizeof out->host, "%s", s->spec.host);
  read_counters(s, now);
  double seconds = now->clock - before->clock;
  take_cores(before, now, out);
  take_memory(s, out);
  if (before->has_disks && now->has_disks) {
    out->disk_read = get_rate(before->disks.read, now->disks.read, seconds);
    out->disk_written = get_rate(before->disks.written, now->disks.written, seconds);
  }
  if (s->spec.dir && statvfs(s->spec.dir, &space) == 0)
    out->disk_free = (double)space.f_bavail * (double)space.f_frsize;
  take_cards(s, before, now, out);
  out->watts_cpu = get_watts(s, before, now);
  if (s->nvml) out->gpus = gpu_take(s->nvml, out->gpu, SYSTEM_GPUS);
  s->now = !s->now;
}
