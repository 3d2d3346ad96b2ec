/* Prints which ports must be open between which machines. Open MPI and NCCL listen on ports
 * chosen by the kernel or by themselves, so the machines need all unprivileged TCP ports open,
 * but only among each other. Depends on base, Jansson. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/jsondoc.h"
#include "base/mem.h"
#include "base/out.h"
#include "launch/cluster_internal.h"

#define INVENTORY_LIMIT ((size_t)16 << 20)
#define MOST_GROUPS     16
#define GROUP_MAX       32 /* size of a buffer for "sg-" and 17 hexadecimal digits */

typedef struct {
  char id[MOST_GROUPS][GROUP_MAX];
  size_t count;
} Groups;

/* Adds a security group unless it is in the list. Checks its characters, because the id is
 * printed as part of a command. */
static void add_group(Groups *g, const json_t *group) {
  const char *id = json_string_value(json_object_get(group, "GroupId"));
  if (!id || !str_starts(id, "sg-") || strlen(id) >= GROUP_MAX || g->count == MOST_GROUPS)
    return;
  if (id[3 + strspn(id + 3, "0123456789abcdef")] != '\0') return;
  for (size_t i = 0; i < g->count; i++) {
    if (strcmp(g->id[i], id) == 0) return;
  }
  snprintf(g->id[g->count++], GROUP_MAX, "%s", id);
}

/* Finds the security groups that all running instances share. A rule that allows traffic within
 * one of them covers all pairs. hosts_read has checked the structure of the JSON; unexpected
 * members are skipped. */
static void find_groups(Groups *common, const json_t *root) {
  const json_t *reservation, *instance, *group;
  size_t i, j, k;
  bool is_first = true;
  json_array_foreach(json_object_get(root, "Reservations"), i, reservation) {
    json_array_foreach(json_object_get(reservation, "Instances"), j, instance) {
      const json_t *state = json_object_get(json_object_get(instance, "State"), "Name");
      if (!json_is_string(state) || strcmp(json_string_value(state), "running") != 0) continue;
      Groups own = {0}, both = {0};
      json_array_foreach(json_object_get(instance, "SecurityGroups"), k, group) {
        add_group(&own, group);
      }
      for (size_t a = 0; a < common->count; a++) {
        for (size_t b = 0; b < own.count; b++) {
          if (strcmp(common->id[a], own.id[b]) == 0)
            memcpy(both.id[both.count++], own.id[b], GROUP_MAX);
        }
      }
      *common = is_first ? own : both;
      is_first = false;
    }
  }
}

static Err read_groups(Groups *g, const char *path) {
  Str text = {0};
  json_t *root = NULL;
  Err err = file_read(path, INVENTORY_LIMIT, &text);
  if (!err) err = jsondoc_check(str_text(&text), text.len, path);
  if (!err) root = json_loadb(str_text(&text), text.len, JSON_REJECT_DUPLICATES, NULL);
  if (root) find_groups(g, root);
  json_decref(root);
  str_free(&text);
  return err;
}

static void print_aws_rule(const Groups *g, bool has_inventory) {
  const char *id = g->count ? g->id[0] : "GROUP";
  if (!has_inventory) return;
  if (g->count)
    printf("On AWS this is one rule of security group %s, which all these hosts have:\n", id);
  else
    printf(
        "On AWS this is one rule of a security group that all these hosts must share "
        "(they share none):\n");
  printf(
      "  aws ec2 authorize-security-group-ingress --group-id %s --protocol tcp \\\n"
      "    --port 1024-65535 --source-group %s\n",
      id, id);
}

/* Returns true if an earlier drive has the same server and type. */
static bool is_listed(const ClusterSpec *spec, size_t index) {
  const ClusterMount *m = &spec->mount[index];
  for (size_t i = 0; i < index; i++) {
    const ClusterMount *other = &spec->mount[i];
    if (strcmp(other->server, m->server) == 0 && strcmp(other->type, m->type) == 0) return true;
  }
  return false;
}

/* Prints one line for each port of ssh daemons; port[] has one for each host, 0: this machine. */
static void print_ssh_ports(const ClusterSpec *spec, const int *port) {
  const HostList *hosts = spec->hosts;
  const char *all = "every host";
  for (size_t i = 0; i < hosts->count; i++)
    if (!port[i]) all = "every other host";
  for (size_t i = 0; i < hosts->count; i++) {
    bool is_listed = port[i] == 0, is_common = true;
    Str names = {0};
    for (size_t k = 0; k < hosts->count; k++) {
      if (k < i && port[k] == port[i]) is_listed = true;
      if (port[k] && port[k] != port[i]) is_common = false;
      if (port[k] == port[i])
        str_addf(&names, "%s%s", names.len ? ", " : "", hosts->host[k].name);
    }
    if (!is_listed)
      printf("  TCP %-11d from this machine to %.200s: ssh\n", port[i],
             is_common ? all : str_text(&names));
    str_free(&names);
  }
}

static Err print_ssh_rules(const ClusterSpec *spec) {
  int *port;
  Err err = ERR_OK;
  TRY(mem_alloc(&port, spec->hosts->count, sizeof *port));
  for (size_t i = 0; i < spec->hosts->count && !err; i++) {
    const Host *host = &spec->hosts->host[i];
    if (!cluster_is_here(host)) err = cluster_read_port(spec, host, &port[i]);
  }
  if (!err) print_ssh_ports(spec, port);
  mem_free(port);
  return err;
}

Err cluster_print_rules(const ClusterSpec *spec, const char *inventory) {
  Groups groups = {0};
  if (inventory) TRY(read_groups(&groups, inventory));
  printf("\nPorts that must be open; trireme opens none:\n");
  TRY(print_ssh_rules(spec));
  if (spec->hosts->count > 1)
    printf(
        "  TCP 1024-65535  from host to host, from nowhere else: MPI and NCCL choose ports\n");
  for (size_t i = 0; i < spec->mounts; i++) {
    const ClusterMount *m = &spec->mount[i];
    bool is_nfs = strcmp(m->type, "nfs") == 0;
    if (is_listed(spec, i)) continue;
    printf("  TCP %-11s from every host to %s: %s\n", is_nfs ? "2049" : "445", m->server,
           is_nfs ? "NFS" : "CIFS");
  }
  bool is_alone = spec->hosts->count == 1 && cluster_is_here(&spec->hosts->host[0]);
  if (is_alone && spec->mounts == 0) printf("  none\n");
  if (spec->hosts->count > 1) print_aws_rule(&groups, inventory != NULL);
  return out_check();
}
