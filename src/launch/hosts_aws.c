/* The inventory of AWS: the JSON that `aws ec2 describe-instances` prints,
 *   {"Reservations": [{"Instances": [{"State": {"Name": "running"}, "PrivateIpAddress": …}]}]}
 * Only running instances are used. The private address is preferred, as instances of one network
 * reach each other by it and its traffic is not billed. The number of GPUs is not derived from the
 * instance type: the agent on the machine reports it. Depends on hosts, base, Jansson. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/jsondoc.h"
#include "launch/hosts_internal.h"

/* Size of a buffer for a JSON path such as "Reservations[123].Instances[456].Tags[78].Value" */
#define PATH_MAX_LEN 128
#define LABEL_MAX    64 /* size of a buffer for a name made from a tag */

typedef struct {
  const char *where; /* name of the inventory file, for errors */
  size_t others;     /* number of instances that are not running */
} Inventory;

static Err refuse_value(const Inventory *in, const char *path, const char *key,
                        const char *expected) {
  return err_set(ERR_USAGE,
                 "%s: %s%s%s is not %s; pass the whole output of 'aws ec2 describe-instances "
                 "--output json'",
                 in->where, path, path[0] && key[0] ? "." : "", key, expected);
}

/* Gets a text member. *text is NULL if it is missing or null, such as the address of a stopped
 * instance. */
static Err get_text(const Inventory *in, const json_t *from, const char *path, const char *key,
                    const char **text) {
  const json_t *value = json_object_get(from, key);
  *text = NULL;
  if (!value || json_is_null(value)) return ERR_OK;
  if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
    return refuse_value(in, path, key, "a text");
  if (json_string_length(value)) *text = json_string_value(value);
  return ERR_OK;
}

static Err get_array(const Inventory *in, const json_t *from, const char *path, const char *key,
                     const json_t **array) {
  *array = json_object_get(from, key);
  if (json_is_array(*array)) return ERR_OK;
  return refuse_value(in, path, key, *array ? "a list" : "there");
}

/* Copies a tag, with '-' instead of each byte that is not a letter, a digit, '.', '_' or '-'. A
 * tag may be any text, but a host's name is printed and used in file names. */
static void copy_label(char *out, const char *tag) {
  static const char safe[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  size_t len = 0;
  for (; tag[len] && len < LABEL_MAX - 1; len++)
    out[len] = strchr(safe, tag[len]) ? tag[len] : '-';
  out[len] = '\0';
}

/* Finds the tag Name; label is "" if there is none. */
static Err find_label(const Inventory *in, const json_t *instance, const char *path,
                      char label[LABEL_MAX]) {
  label[0] = '\0';
  const json_t *tags = json_object_get(instance, "Tags");
  if (!tags || json_is_null(tags)) return ERR_OK;
  if (!json_is_array(tags)) return refuse_value(in, path, "Tags", "a list");
  for (size_t i = 0; i < json_array_size(tags); i++) {
    const json_t *tag = json_array_get(tags, i);
    char place[PATH_MAX_LEN];
    const char *key;
    const char *value;
    snprintf(place, sizeof place, "%.80s.Tags[%zu]", path, i);
    TRY(get_text(in, tag, place, "Key", &key));
    if (!key || strcmp(key, "Name") != 0) continue;
    TRY(get_text(in, tag, place, "Value", &value));
    if (value) copy_label(label, value);
  }
  return ERR_OK;
}

static bool has_name(const HostList *list, const char *name) {
  for (size_t i = 0; i < list->count; i++)
    if (strcmp(list->host[i].name, name) == 0) return true;
  return false;
}

/* Sets the host's name: its tag Name; with the instance id appended if another instance has the
 * same tag, as in an auto-scaling group; the address if there is no tag. */
static void set_name(Host *host, const HostList *list, const char *label, const char *id) {
  if (label[0] && !has_name(list, label))
    snprintf(host->name, sizeof host->name, "%s", label);
  else if (label[0])
    snprintf(host->name, sizeof host->name, "%s-%.64s", label, id ? id : host->address);
  else
    memcpy(host->name, host->address, sizeof host->name);
}

static Err set_address(const Inventory *in, const json_t *instance, const char *path,
                       Host *host) {
  static const char *const keys[] = {"PrivateIpAddress", "PublicIpAddress", "Ipv6Address",
                                     "PrivateDnsName", "PublicDnsName"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const char *address;
    TRY(get_text(in, instance, path, keys[i], &address));
    if (!address) continue;
    if (!hosts_is_address(address))
      return err_set(ERR_USAGE,
                     "%s: %s.%s '%.60s' is not a host name or an IP address; save the output "
                     "of 'aws ec2 describe-instances' again",
                     in->where, path, keys[i], address);
    snprintf(host->address, sizeof host->address, "%s", address);
    return ERR_OK;
  }
  return err_set(ERR_USAGE,
                 "%s: %s is running but has no address (PrivateIpAddress, PublicIpAddress or "
                 "Ipv6Address); assign one, or stop the instance",
                 in->where, path);
}

static Err add_instance(Inventory *in, HostList *list, const json_t *instance,
                        const char *path) {
  Host host = {0};
  char label[LABEL_MAX];
  char id_label[LABEL_MAX] = "";
  char place[PATH_MAX_LEN + 4096];
  const char *state;
  const char *id;
  const json_t *status = json_object_get(instance, "State");
  if (!json_is_object(status)) return refuse_value(in, path, "State", "an object");
  TRY(get_text(in, status, path, "Name", &state));
  if (!state) return refuse_value(in, path, "State.Name", "a text");
  if (strcmp(state, "running") != 0) {
    in->others++;
    return ERR_OK;
  }
  TRY(set_address(in, instance, path, &host));
  TRY(find_label(in, instance, path, label));
  TRY(get_text(in, instance, path, "InstanceId", &id));
  if (id) copy_label(id_label, id);
  set_name(&host, list, label, id ? id_label : NULL);
  snprintf(place, sizeof place, "%s: %s", in->where, path);
  return hosts_add(list, &host, place);
}

static Err add_reservation(Inventory *in, HostList *list, const json_t *reservation,
                           size_t number) {
  char path[PATH_MAX_LEN];
  const json_t *instances;
  snprintf(path, sizeof path, "Reservations[%zu]", number);
  TRY(get_array(in, reservation, path, "Instances", &instances));
  for (size_t i = 0; i < json_array_size(instances); i++) {
    snprintf(path, sizeof path, "Reservations[%zu].Instances[%zu]", number, i);
    const json_t *instance = json_array_get(instances, i);
    if (!json_is_object(instance)) return refuse_value(in, path, "", "an object");
    TRY(add_instance(in, list, instance, path));
  }
  return ERR_OK;
}

static Err add_reservations(Inventory *in, HostList *list, const json_t *root) {
  const json_t *reservations;
  if (!json_is_object(root)) return refuse_value(in, "the document", "", "an object");
  TRY(get_array(in, root, "", "Reservations", &reservations));
  for (size_t i = 0; i < json_array_size(reservations); i++)
    TRY(add_reservation(in, list, json_array_get(reservations, i), i));
  if (list->count) return ERR_OK;
  return err_set(ERR_USAGE,
                 "%s has no running instance (%zu in other states); start them and save the "
                 "output of 'aws ec2 describe-instances' again",
                 in->where, in->others);
}

Err hosts_parse_aws(HostList *list, const char *text, size_t len, const char *where) {
  Inventory in = {.where = where};
  json_error_t error;
  if (jsondoc_check(text, len, where)) return ERR_USAGE;
  json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
  if (!root)
    return err_set(ERR_USAGE,
                   "%s:%d: not JSON: %s; save the output of 'aws ec2 describe-instances "
                   "--output json'",
                   where, error.line, error.text);
  Err err = add_reservations(&in, list, root);
  json_decref(root);
  return err;
}
