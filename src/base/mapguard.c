/* The table of mapped files, and the SIGBUS handler that searches it. The handler may interrupt
 * any code, so it takes no lock and allocates no memory: each entry is published with one atomic
 * store, and blocks of entries are never freed. Depends on log, mem, utf8. */
#include "base/mapguard.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#define BLOCK_RANGES 64

typedef struct {
  _Atomic uintptr_t begin; /* address of the mapping; 0: the entry is free */
  size_t size;
  uint64_t offset; /* file offset of the mapping's first byte */
  /* path as given, and path with control characters escaped for the message */
  char *path, *shown;
} Range;

typedef struct Block {
  Range range[BLOCK_RANGES];
  _Atomic(struct Block *) next;
} Block;

static Block first_block;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;

static Block *next_of(Block *b) {
  return atomic_load_explicit(&b->next, memory_order_acquire);
}

/* Finds the mapped range that contains the address. */
static const Range *find_range(uintptr_t address) {
  for (Block *b = &first_block; b; b = next_of(b)) {
    for (int i = 0; i < BLOCK_RANGES; i++) {
      const Range *r = &b->range[i];
      uintptr_t begin = atomic_load_explicit(&r->begin, memory_order_acquire);
      if (begin && address >= begin && address - begin < r->size) return r;
    }
  }
  return NULL;
}

/* A text buffer for the signal handler, which formats numbers itself because printf is not
 * async-signal-safe. */
typedef struct {
  char text[2048];
  size_t len;
} Message;

static void add_text(Message *m, const char *text) {
  while (*text && m->len + 1 < sizeof m->text) m->text[m->len++] = *text++;
  m->text[m->len] = '\0';
}

static void add_number(Message *m, uint64_t n) {
  char digits[24];
  size_t at = sizeof digits - 1;
  digits[at] = '\0';
  do digits[--at] = (char)('0' + n % 10);
  while (n /= 10);
  add_text(m, digits + at);
}

static void report_fault(const Range *r, uintptr_t address) {
  Message m = {.len = 0};
  struct stat st;
  uint64_t offset = r->offset + (address - atomic_load(&r->begin));
  uint64_t end = r->offset + r->size;
  bool known = stat(r->path, &st) == 0;
  bool truncated = known && (uint64_t)st.st_size < end;
  add_text(&m, r->shown);
  add_text(&m, truncated ? " was truncated while it was in use: byte "
                         : " can no longer be read: byte ");
  add_number(&m, offset);
  if (truncated) {
    add_text(&m, " is gone, as it has ");
    add_number(&m, (uint64_t)st.st_size);
    add_text(&m, " bytes and had ");
    add_number(&m, end);
  } else {
    add_text(&m, known ? " has a disk error" : " is gone with the file");
  }
  add_text(&m, "; restore the file and start again, a training run with --resume");
  log_from_signal(m.text);
}

static void handle_bus_error(int number, siginfo_t *info, void *context) {
  (void)context;
  const Range *r = info->si_code > 0 ? find_range((uintptr_t)info->si_addr) : NULL;
  if (r) {
    report_fault(r, (uintptr_t)info->si_addr);
    _exit(ERR_WORK);
  }
  /* The address is not in a registered mapping: restores the earlier handler. It is called when
   * this handler returns and the same instruction faults again. */
  sigaction(number, &before, NULL);
  if (info->si_code <= 0) raise(number);
}

/* Installs the SIGBUS handler. Called for every mapping, because a library (MPI) may have
 * installed its own handler since the last call. */
static void set_handler(void) {
  struct sigaction now, action = {.sa_flags = SA_SIGINFO};
  if (sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction == handle_bus_error) return;
  action.sa_sigaction = handle_bus_error;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &before);
}

static Err find_free(Range **out) {
  for (Block *b = &first_block;; b = next_of(b)) {
    for (int i = 0; i < BLOCK_RANGES; i++) {
      *out = &b->range[i];
      if (!atomic_load(&b->range[i].begin)) return ERR_OK;
    }
    if (next_of(b)) continue;
    Block *fresh;
    TRY(mem_alloc(&fresh, 1, sizeof *fresh));
    atomic_store_explicit(&b->next, fresh, memory_order_release);
  }
}

static Err fill_range(const void *at, size_t size, uint64_t offset, char *path, char *shown) {
  Range *r;
  TRY(find_free(&r));
  r->size = size;
  r->offset = offset;
  r->path = path;
  r->shown = shown;
  atomic_store_explicit(&r->begin, (uintptr_t)at, memory_order_release);
  return ERR_OK;
}

Err mapguard_add(const void *at, size_t size, uint64_t offset, const char *path) {
  char *copy = NULL, *shown = NULL;
  /* utf8_visible replaces one byte by at most four. */
  size_t len = strlen(path), room = 4 * len + 1;
  Err err = mem_dup(&copy, path, len);
  if (!err) err = mem_alloc(&shown, room, 1);
  if (!err) {
    utf8_visible(path, shown, room);
    pthread_mutex_lock(&writing);
    set_handler();
    err = fill_range(at, size, offset, copy, shown);
    pthread_mutex_unlock(&writing);
  }
  if (err) {
    mem_free(copy);
    mem_free(shown);
  }
  return err;
}

static Range *find_begin(const void *at) {
  for (Block *b = &first_block; b; b = next_of(b)) {
    for (int i = 0; i < BLOCK_RANGES; i++)
      if (atomic_load(&b->range[i].begin) == (uintptr_t)at) return &b->range[i];
  }
  return NULL;
}

void mapguard_remove(const void *at) {
  pthread_mutex_lock(&writing);
  Range *r = find_begin(at);
  if (r) {
    atomic_store(&r->begin, 0);
    mem_free(r->path);
    mem_free(r->shown);
    r->path = r->shown = NULL;
  }
  pthread_mutex_unlock(&writing);
}
