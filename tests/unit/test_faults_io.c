/* Failing system calls in whole commands: each is repeated with the n-th call on its files failing, for
 * every stride-th n, and with all later ones failing too, for every LATER_STRIDE-th. A command that
 * succeeds must have written what it always writes. An error must name the file, and what is under the
 * name of the output must be whole. The command must then succeed undisturbed, which is tried after every
 * REPEAT_STRIDE-th. The functions of the C library are replaced by some that count and fail calls on files
 * of the scratch directory.
 * run-tests: own program */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "faults_support.h"
#include "train/rundir.h"

enum { DESCRIPTORS = 256, NAME = 256 };

/* The path of each descriptor below the scratch directory; "": another one. */
static char opened[DESCRIPTORS][NAME];
static bool is_read_only[DESCRIPTORS];
static atomic_uint calls;
static unsigned fail_at;      /* number of the call that fails; 0: none */
static bool fails_later;      /* all later ones fail too */
static char failed[2 * NAME]; /* the first call that failed, and its path */

static bool is_counted(const char *path) {
  return path && *path && (*path != '/' || strncmp(path, scratch, strlen(scratch)) == 0);
}

/* Counts a call on this path. Returns true if it must fail, and sets errno. */
static bool must_fail(const char *call, const char *path, int error) {
  if (!is_counted(path)) return false;
  unsigned n = atomic_fetch_add(&calls, 1) + 1;
  if (!fail_at || n < fail_at || (n > fail_at && !fails_later)) return false;
  if (n == fail_at) snprintf(failed, sizeof failed, "%s %s", call, path);
  errno = error;
  return true;
}

static const char *get_path(int fd) {
  return fd >= 0 && fd < DESCRIPTORS ? opened[fd] : "";
}

static void set_path(int fd, const char *path, int flags) {
  if (fd < 0 || fd >= DESCRIPTORS) return;
  snprintf(opened[fd], NAME, "%s", is_counted(path) ? path : "");
  is_read_only[fd] = (flags & O_ACCMODE) == O_RDONLY;
}

int open(const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
  va_end(args);
  if (must_fail("open", path, flags & O_CREAT ? ENOSPC : EIO)) return -1;
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
  set_path(fd, path, flags);
  return fd;
}

int close(int fd) {
  bool fails = *get_path(fd) && !is_read_only[fd] && must_fail("close", get_path(fd), EIO);
  int error = errno;
  set_path(fd, "", 0);
  int result = (int)syscall(SYS_close, fd);
  if (!fails) return result;
  errno = error;
  return -1;
}

ssize_t read(int fd, void *to, size_t n) {
  return must_fail("read", get_path(fd), EIO) ? -1 : syscall(SYS_read, fd, to, n);
}

ssize_t pread(int fd, void *to, size_t n, off_t at_byte) {
  return must_fail("pread", get_path(fd), EIO) ? -1 : syscall(SYS_pread64, fd, to, n, at_byte);
}

ssize_t write(int fd, const void *from, size_t n) {
  return must_fail("write", get_path(fd), ENOSPC) ? -1 : syscall(SYS_write, fd, from, n);
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at_byte) {
  return must_fail("pwrite", get_path(fd), ENOSPC)
             ? -1
             : syscall(SYS_pwrite64, fd, from, n, at_byte);
}

int fsync(int fd) {
  return must_fail("fsync", get_path(fd), EIO) ? -1 : (int)syscall(SYS_fsync, fd);
}

int ftruncate(int fd, off_t bytes) {
  return must_fail("ftruncate", get_path(fd), EIO) ? -1
                                                   : (int)syscall(SYS_ftruncate, fd, bytes);
}

int flock(int fd, int operation) {
  return must_fail("flock", get_path(fd), EIO) ? -1 : (int)syscall(SYS_flock, fd, operation);
}

int rename(const char *from, const char *to) {
  if (must_fail("rename", to, EIO)) return -1;
  return (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}

int mkdir(const char *path, mode_t mode) {
  return must_fail("mkdir", path, ENOSPC) ? -1
                                          : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int symlink(const char *to, const char *path) {
  return must_fail("symlink", path, ENOSPC) ? -1
                                            : (int)syscall(SYS_symlinkat, to, AT_FDCWD, path);
}

int unlink(const char *path) {
  return must_fail("unlink", path, EIO) ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t at_byte) {
  if (must_fail("mmap", get_path(fd), ENOMEM)) return MAP_FAILED;
  return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, at_byte);
}

DIR *opendir(const char *path) {
  DIR *(*real)(const char *);
  void *symbol = dlsym(RTLD_NEXT, "opendir");
  memcpy(&real, &symbol, sizeof real);
  return must_fail("opendir", path, EIO) ? NULL : real(path);
}

int posix_fallocate(int fd, off_t from, off_t bytes) {
  int (*real)(int, off_t, off_t);
  void *symbol = dlsym(RTLD_NEXT, "posix_fallocate");
  memcpy(&real, &symbol, sizeof real);
  return must_fail("posix_fallocate", get_path(fd), ENOSPC) ? ENOSPC : real(fd, from, bytes);
}

/* ---- trees of files ---- */

/* Returns true if each file in `good` has the same bytes in `tree`, which may have others too. */
static bool is_same(const char *good, const char *tree) {
  char one[FILE_PATH_MAX], two[FILE_PATH_MAX];
  Str a = {0}, b = {0};
  bool same = true;
  if (!file_is_dir(good)) {
    same = file_exists(tree) && !file_read(good, (size_t)1 << 24, &a) &&
           !file_read(tree, (size_t)1 << 24, &b) && a.len == b.len &&
           (!a.len || memcmp(a.s, b.s, a.len) == 0);
    str_free(&a);
    str_free(&b);
    return same;
  }
  DIR *dir = opendir(good);
  assert_non_null(dir);
  for (struct dirent *entry; same && (entry = readdir(dir));) {
    if (entry->d_name[0] == '.') continue;
    OK(file_join(one, good, entry->d_name));
    OK(file_join(two, tree, entry->d_name));
    same = is_same(one, two);
  }
  closedir(dir);
  return same;
}

/* ---- the walk ---- */

enum { CALLS_MAX = 2000, LATER_STRIDE = 11, REPEAT_STRIDE = 3 };

/* `output`: what the command writes, to be compared with the `good` one of an undisturbed call; NULL:
 * nothing. `fresh`: path that is removed before each call, also with ".partial" at its end; NULL: the output is an
 * earlier file before each call.
 * `again`: words added to the line when it is repeated after an error. */
typedef struct {
  const char *line, *fresh, *output, *again;
  unsigned stride;
} Case;

static Err run_failing(const Case *c, unsigned n, bool later) {
  hide_output();
  err_set(ERR_OK, "nothing was said");
  *failed = '\0';
  atomic_store(&calls, 0);
  fails_later = later;
  fail_at = n;
  Err err = run_line(c->line);
  fail_at = 0;
  show_output();
  return err;
}

/* Removes what the command makes. A file is replaced by an earlier one, which must not be lost. */
static void remove_fresh(const Case *c) {
  char partial[64];
  if (!c->fresh) {
    if (c->output) OK(file_write(c->output, "old", 3));
    return;
  }
  snprintf(partial, sizeof partial, "%s.partial", c->fresh);
  OK(file_remove_all(c->fresh));
  OK(file_remove_all(partial));
}

/* An error names the file of the call that failed, or says what is lost. */
static void check_message(const Case *c, unsigned n) {
  const char *slash = strrchr(failed, '/'), *blank = strrchr(failed, ' ');
  const char *name = slash ? slash + 1 : blank + 1;
  if (!strstr(err_message(), name) &&
      !strstr(err_message(), "could not be written and are lost"))
    fail_msg("%s: call %u, %s: \"%s\"", c->line, n, failed, err_message());
}

/* Calls whose failure need not be an error: what they close is synced, what they remove is not needed, a
 * file system without locks is used without them, and lines that cannot be read yet are read again.
 * Training saves a checkpoint again that could not be saved. */
static bool may_succeed(const Case *c) {
  static const char *const harmless[] = {"close ", "unlink ", "flock ", "read "};
  for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
    if (str_starts(failed, harmless[i])) return true;
  return str_starts(c->line, "train ");
}

/* Repeats the command undisturbed, unless its output is there already. */
static void repeat(const Case *c, unsigned n) {
  char line[1024], partial[64];
  snprintf(partial, sizeof partial, "%s.partial", c->fresh ? c->fresh : "");
  bool is_left = c->fresh && (file_exists(c->fresh) || file_exists(partial));
  snprintf(line, sizeof line, "%s %s", c->line, is_left && c->again ? c->again : "");
  hide_output();
  Err err = run_line(line);
  show_output();
  if (err) fail_msg("after call %u, %s: %s: %s", n, failed, line, err_message());
  if (c->output && !is_same("good", c->output))
    fail_msg("after call %u, %s: %s: not the usual output", n, failed, line);
}

static void check_call(const Case *c, unsigned n, bool later) {
  remove_fresh(c);
  bool is_replaced = c->output && !c->fresh;
  Err err = run_failing(c, n, later);
  if (!*failed) return;
  if (err && !later) check_message(c, n);
  if (!err && !may_succeed(c)) fail_msg("%s: call %u, %s: status 0", c->line, n, failed);
  bool is_there = c->output && file_exists(c->output);
  bool is_kept = err && is_replaced && is_same("old", c->output);
  if (c->output && (!err || is_there) && !is_kept && !is_same("good", c->output))
    fail_msg("%s: call %u, %s: status %d, and not the usual output: %s", c->line, n, failed,
             (int)err, err_message());
  if (n % REPEAT_STRIDE == 1 && (!c->fresh || !is_there)) repeat(c, n);
}

static void walk(const Case *c) {
  remove_fresh(c);
  OK(file_remove_all("good"));
  OK(file_write("old", "old", 3));
  OK(run_failing(c, 0, false));
  unsigned all = atomic_load(&calls);
  assert_true(all > 0 && all < CALLS_MAX);
  if (c->output) OK(file_rename(c->output, "good"));
  for (unsigned n = 1; n <= all; n += c->stride) check_call(c, n, /*later=*/false);
  for (unsigned n = 1; n <= all; n += LATER_STRIDE) check_call(c, n, /*later=*/true);
}

static void walk_all(const Case *list, size_t n) {
  for (size_t i = 0; i < n; i++) walk(&list[i]);
}
#define WALK_ALL(list) walk_all((list), sizeof(list) / sizeof *(list))

static void test_io_failing_call_in_prepare_leaves_whole_set_or_none(void **state) {
  static const Case list[] = {
      {"prepare --out made --train a b --valid va vb --vocab-size 40 --threads 1", "made",
       "made", "--resume", 1},
      {"prepare --out made --task classify --train table.csv --text-column text --label-column "
       "class "
       "--split 0.2 --vocab vocab.txt --threads 1",
       "made", "made", "--resume", 11},
  };
  (void)state;
  WALK_ALL(list);
}

#define WEIGHTS "made/checkpoints/latest/weights.safetensors"
static void test_io_failing_call_in_train_leaves_run_that_continues(void **state) {
  static const Case list[] = {
      {"train --data set --run made --steps 2 --tensorboard yes --wandb "
       "offline " TINY_TRANSLATOR,
       "made", WEIGHTS, "--auto-resume", 11},
  };
  (void)state;
  WALK_ALL(list);
}

static void test_io_failing_call_in_models_leaves_whole_model_or_none(void **state) {
  static const Case list[] = {
      {"import --from marian --out made", "made", "made", NULL, 5},
      {"export imported --to hf --out made", "made", "made", NULL, 5},
      {"export run --to ctranslate2 --out made", "made", "made", NULL, 5},
  };
  (void)state;
  WALK_ALL(list);
}

static void test_io_failing_call_in_results_leaves_whole_file_or_none(void **state) {
  static const Case list[] = {
      {"translate --model run --input va --output results --max-length 5 " CPU, NULL, "results",
       NULL, 3},
      {"classify --model classifier --input lines --output results " CPU, NULL, "results", NULL,
       3},
  };
  (void)state;
  WALK_ALL(list);
}

static void test_io_failing_call_in_readers_is_error(void **state) {
  static const Case list[] = {
      {"inspect set --verify --samples 2 --batch-tokens 64", NULL, NULL, NULL, 3},
      {"inspect classes --verify --samples 2 --batch-tokens 64", NULL, NULL, NULL, 3},
      {"score --ref vb --hyp vb --metrics bleu,chrf", NULL, NULL, NULL, 3},
  };
  (void)state;
  WALK_ALL(list);
}

/* A run keeps its id if it cannot be read for once. */
static void test_io_failing_call_in_id_of_run_is_error(void **state) {
  char id[RUN_ID_SIZE];
  (void)state;
  for (unsigned n = 1; n <= 2; n++) {
    atomic_store(&calls, 0);
    fail_at = n;
    Err err = rundir_read_id("run", id);
    fail_at = 0;
    assert_int_equal(err, ERR_WORK);
    assert_says("run/id");
  }
  OK(rundir_read_id("run", id));
  assert_int_equal(strlen(id), RUN_ID_SIZE - 1);
}

#define WALK(test) cmocka_unit_test_teardown(test, end_walk)

int main(void) {
  const struct CMUnitTest tests[] = {
      WALK(test_io_failing_call_in_prepare_leaves_whole_set_or_none),
      WALK(test_io_failing_call_in_train_leaves_run_that_continues),
      WALK(test_io_failing_call_in_models_leaves_whole_model_or_none),
      WALK(test_io_failing_call_in_results_leaves_whole_file_or_none),
      WALK(test_io_failing_call_in_readers_is_error),
      WALK(test_io_failing_call_in_id_of_run_is_error),
  };
  return cmocka_run_group_tests(tests, make_runs, leave_scratch);
}
