/* Converts facts to JSON and back, by tables of their members. Depends on facts.h, Jansson. */
#include "launch/facts.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"

typedef enum { FACT_TEXT, FACT_COUNT, FACT_REAL, FACT_FLAG } FactKind;

typedef struct {
  const char *key; /* name in JSON; NULL ends the table */
  FactKind kind;
  size_t offset, size;
} FactField;

#define FIELD(Struct, member, kind) \
  { #member, kind, offsetof(Struct, member), sizeof(((Struct *)0)->member) }
#define GPU(member, kind)       FIELD(GpuFacts, member, kind)
#define ADDRESS(member, kind)   FIELD(AddressFacts, member, kind)
#define MACHINE(member, kind)   FIELD(MachineFacts, member, kind)
#define DIRECTORY(member, kind) FIELD(DirectoryFacts, member, kind)

static const FactField gpu_fields[] = {
    GPU(name, FACT_TEXT),
    GPU(memory, FACT_COUNT),
    GPU(memory_free, FACT_COUNT),
    GPU(problem, FACT_TEXT),
    {0},
};

static const FactField address_fields[] = {
    ADDRESS(card, FACT_TEXT),
    ADDRESS(address, FACT_TEXT),
    ADDRESS(prefix, FACT_COUNT),
    ADDRESS(speed, FACT_COUNT),
    ADDRESS(is_up, FACT_FLAG),
    ADDRESS(is_loopback, FACT_FLAG),
    {0},
};

static const FactField machine_fields[] = {
    MACHINE(host, FACT_TEXT),
    MACHINE(boot_id, FACT_TEXT),
    MACHINE(system, FACT_TEXT),
    MACHINE(cpu, FACT_TEXT),
    MACHINE(cores, FACT_COUNT),
    MACHINE(core_quota, FACT_REAL),
    MACHINE(memory, FACT_COUNT),
    MACHINE(memory_free, FACT_COUNT),
    MACHINE(gpu_driver, FACT_TEXT),
    MACHINE(gpu_cuda, FACT_TEXT),
    MACHINE(gpu_problem, FACT_TEXT),
    MACHINE(has_cuda_plugin, FACT_FLAG),
    MACHINE(port_first, FACT_COUNT),
    MACHINE(port_last, FACT_COUNT),
    MACHINE(has_rdma, FACT_FLAG),
    MACHINE(clock, FACT_REAL),
    MACHINE(is_clock_synced, FACT_FLAG),
    MACHINE(version, FACT_TEXT),
    MACHINE(program, FACT_TEXT),
    MACHINE(sha256, FACT_TEXT),
    MACHINE(mpi, FACT_TEXT),
    MACHINE(mpi_problem, FACT_TEXT),
    MACHINE(mpi_sha256, FACT_TEXT),
    MACHINE(mpirun, FACT_TEXT),
    MACHINE(nccl, FACT_TEXT),
    MACHINE(libc, FACT_TEXT),
    MACHINE(open_files, FACT_COUNT),
    MACHINE(open_files_hard, FACT_COUNT),
    MACHINE(locked_memory, FACT_COUNT),
    MACHINE(shm, FACT_COUNT),
    MACHINE(shm_free, FACT_COUNT),
    MACHINE(tmp, FACT_TEXT),
    MACHINE(tmp_free, FACT_COUNT),
    {0},
};

static const FactField directory_fields[] = {
    DIRECTORY(path, FACT_TEXT),
    DIRECTORY(measured, FACT_TEXT),
    DIRECTORY(file_system, FACT_TEXT),
    DIRECTORY(problem, FACT_TEXT),
    DIRECTORY(exists, FACT_FLAG),
    DIRECTORY(has_locks, FACT_FLAG),
    DIRECTORY(free, FACT_COUNT),
    DIRECTORY(written, FACT_COUNT),
    DIRECTORY(write_rate, FACT_REAL),
    DIRECTORY(sync_seconds, FACT_REAL),
    {0},
};

/* Makes a JSON string. A path or host name may not be UTF-8, which Jansson refuses: invalid
 * bytes become \xNN. */
static json_t *make_text(const char *text) {
  char visible[1024];
  json_t *value = json_string(text);
  if (value) return value;
  utf8_visible(text, visible, sizeof visible);
  return json_string(visible);
}

static json_t *make_value(const FactField *f, const char *at) {
  uint64_t count;
  double real;
  bool flag;
  switch (f->kind) {
    case FACT_TEXT:
      return make_text(at);
    case FACT_COUNT:
      memcpy(&count, at, sizeof count);
      return json_integer(count > INT64_MAX ? -1 : (json_int_t)count);
    case FACT_REAL:
      memcpy(&real, at, sizeof real);
      return json_real(isfinite(real) ? real : 0);
    case FACT_FLAG:
      memcpy(&flag, at, sizeof flag);
      return json_boolean(flag);
  }
  return NULL;
}

static json_t *make_object(const FactField *fields, const void *from) {
  json_t *object = json_object();
  for (const FactField *f = fields; f->key; f++) {
    if (json_object_set_new(object, f->key, make_value(f, (const char *)from + f->offset)) == 0)
      continue;
    json_decref(object);
    return NULL;
  }
  return object;
}

/* Makes an array of `count` objects; the structs are `size` bytes apart. */
static json_t *make_list(const FactField *fields, const void *from, size_t count, size_t size) {
  json_t *list = json_array();
  for (size_t i = 0; i < count; i++) {
    if (json_array_append_new(list, make_object(fields, (const char *)from + i * size)) == 0)
      continue;
    json_decref(list);
    return NULL;
  }
  return list;
}

json_t *facts_to_json(const MachineFacts *m) {
  json_t *object = make_object(machine_fields, m);
  json_t *gpus = make_list(gpu_fields, m->gpu, m->gpus, sizeof *m->gpu);
  json_t *addresses = make_list(address_fields, m->address, m->addresses, sizeof *m->address);
  if (json_object_set_new(object, "gpus", gpus) == 0 &&
      json_object_set_new(object, "addresses", addresses) == 0)
    return object;
  json_decref(object);
  return NULL;
}

json_t *facts_directory_to_json(const DirectoryFacts *d) {
  return make_object(directory_fields, d);
}

/* Stores a JSON value in a member; returns false if its type or range is wrong. */
static bool store_value(const FactField *f, const json_t *value, char *at) {
  uint64_t count;
  double real = json_number_value(value);
  bool flag = json_is_true(value);
  switch (f->kind) {
    case FACT_TEXT:
      if (!json_is_string(value) || json_string_length(value) >= f->size) return false;
      if (strlen(json_string_value(value)) != json_string_length(value)) return false;
      memcpy(at, json_string_value(value), json_string_length(value) + 1);
      return true;
    case FACT_COUNT:
      if (!json_is_integer(value) || json_integer_value(value) < -1) return false;
      count = (uint64_t)json_integer_value(value); /* -1 becomes FACTS_UNLIMITED */
      memcpy(at, &count, sizeof count);
      return true;
    case FACT_REAL:
      if (!json_is_number(value) || !isfinite(real) || real < 0) return false;
      memcpy(at, &real, sizeof real);
      return true;
    case FACT_FLAG:
      if (!json_is_boolean(value)) return false;
      memcpy(at, &flag, sizeof flag);
      return true;
  }
  return false;
}

static Err read_object(const FactField *fields, const json_t *object, void *to,
                       const char *where) {
  if (!json_is_object(object))
    return err_set(ERR_WORK,
                   "%s: its facts are not a JSON object; install the same version of trireme "
                   "on all machines",
                   where);
  for (const FactField *f = fields; f->key; f++) {
    const json_t *value = json_object_get(object, f->key);
    if (value && !store_value(f, value, (char *)to + f->offset))
      return err_set(ERR_WORK,
                     "%s: the fact '%s' has a value that is not possible; install the same "
                     "version of trireme on all machines",
                     where, f->key);
  }
  return ERR_OK;
}

static Err read_list(const FactField *fields, const json_t *list, void *to, size_t size,
                     size_t most, size_t *count, const char *where) {
  size_t n = json_array_size(list);
  if (n > most)
    return err_set(ERR_WORK,
                   "%s: its facts have a list of %zu entries, at most %zu are allowed; install "
                   "the same version of trireme on all machines",
                   where, n, most);
  for (size_t i = 0; i < n; i++)
    TRY(read_object(fields, json_array_get(list, i), (char *)to + i * size, where));
  *count = n;
  return ERR_OK;
}

Err facts_from_json(MachineFacts *m, const json_t *json, const char *where) {
  *m = (MachineFacts){0};
  TRY(read_object(machine_fields, json, m, where));
  TRY(read_list(gpu_fields, json_object_get(json, "gpus"), m->gpu, sizeof *m->gpu, FACTS_GPUS,
                &m->gpus, where));
  return read_list(address_fields, json_object_get(json, "addresses"), m->address,
                   sizeof *m->address, FACTS_ADDRESSES, &m->addresses, where);
}

Err facts_directory_from_json(DirectoryFacts *d, const json_t *json, const char *where) {
  *d = (DirectoryFacts){0};
  return read_object(directory_fields, json, d, where);
}
