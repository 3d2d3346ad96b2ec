/* Saving in the background, on a full disk, when killed at any time, and when any change of the file
 * system fails; averages of checkpoints; failing allocations.
 * run-tests: own process
 * run-tests: own program */
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "base/log.h"
#include "base/place.h"
#include "base/progress.h"
#include "base/stop.h"
#include "checkpoint_support.h"
#include "train/average.h"
#include "train/record.h"
#include "train/saver.h"

static void nap(long milliseconds) {
  struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&t, NULL);
}

static const Backend here = {.host = true};

static void commit(Saver *s, uint64_t step, bool best) {
  TrainCounters c = counters(step);
  fill_arrays(saver_begin(s), step);
  saver_commit(s, &c, SAVE_IN_BACKGROUND);
  if (best) saver_add_validation(s, &c, true);
}

static Err wait_for(Saver *s) {
  Err last;
  saver_wait(s, &last);
  return last;
}

static void test_saver_snapshot_is_unchanged_by_later_steps(void **state) {
  (void)state;
  char dir[FILE_PATH_MAX];
  static const int sets[] = {0, WITH_M, WITH_M | WITH_V, WITH_ALL};
  for (int i = 0; i < 4; i++) {
    Saver *s;
    TrainArrays mine = arrays(0, sets[i]);
    char run[32];
    snprintf(run, sizeof run, "saver-%d", i);
    OK(saver_new(&s, at(run), &mine, 2, every_step, &here));
    uint64_t bytes =
        (uint64_t)(1 + __builtin_popcount((unsigned)sets[i] & 7)) * params.padded * 4;
    if (sets[i] & WITH_SECOND) bytes += params.count * 8;
    assert_int_equal(saver_bytes(s), bytes);
    OK(wait_for(s)); /* nothing has been saved yet, which is not an error */
    for (uint64_t step = 1; step <= 5; step++) {
      TrainArrays *to = saver_begin(s);
      assert_true(!to->e == !mine.e && !to->m == !mine.m && !to->v == !mine.v);
      assert_true(!to->second == !mine.second && to->w != mine.w);
      fill_arrays(&mine, step);
      float *from[4] = {mine.w, mine.e, mine.m, mine.v},
            *into[4] = {to->w, to->e, to->m, to->v};
      for (int k = 0; k < 4; k++) {
        if (from[k]) memcpy(into[k], from[k], params.padded * sizeof(float));
      }
      if (to->second) memcpy(to->second, mine.second, params.count * sizeof(double));
      TrainCounters c = counters(step);
      saver_commit(s, &c, SAVE_IN_BACKGROUND);
      if (step == 1) saver_add_validation(s, &c, true);
      /* Training changes its arrays while the snapshot is written. */
      fill_arrays(&mine, step + 100);
      c.step = 0;
      if (step % 2) continue;
      OK(wait_for(s));
      assert_int_equal(resume(at(run), sets[i], dir), step);
    }
    saver_free(s);
    assert_int_equal(resume(at(run), sets[i], dir), 5);
    CheckpointList list;
    OK(checkpoint_list(&list, at(run)));
    assert_int_equal(list.count, 3); /* the two newest and the best */
    assert_int_equal(list.at[2].step, 1);
    checkpoint_list_free(&list);
  }
  saver_free(NULL);
}

/* A device that counts pinned memory, and fails after a number of calls. */
static struct {
  void *block[8];
  int pinned, unpinned, most;
} device;

static Err count_pin(const Backend *b, void *block, size_t bytes) {
  (void)b;
  assert_int_equal(bytes, params.padded * sizeof(float));
  if (device.pinned == device.most) return err_set(ERR_WORK, "no more memory can be pinned");
  device.block[device.pinned++] = block;
  return ERR_OK;
}

static void count_unpin(const Backend *b, void *block) {
  (void)b;
  bool known = false;
  for (int i = 0; i < device.pinned; i++) known = known || device.block[i] == block;
  assert_true(known);
  device.unpinned++;
}

static const Backend there = {.pin = count_pin, .unpin = count_unpin};

static void test_saver_snapshot_is_pinned_for_a_device(void **state) {
  (void)state;
  Saver *s;
  TrainArrays shape = arrays(0, WITH_ALL);
  memset(&device, 0, sizeof device);
  device.most = 8;
  OK(saver_new(&s, at("pinned"), &shape, 2, every_step, &there));
  const TrainArrays *a = saver_begin(s);
  assert_int_equal(device.pinned, 4);
  assert_true(device.block[0] == a->w && device.block[1] == a->e);
  assert_true(device.block[2] == a->m && device.block[3] == a->v);
  assert_int_equal(device.unpinned, 0);
  saver_free(s);
  assert_int_equal(device.unpinned, 4);
}

static void test_saver_without_pinned_memory_warns_and_saves(void **state) {
  (void)state;
  Saver *s;
  char dir[FILE_PATH_MAX];
  TrainArrays shape = arrays(0, WITH_ALL);
  memset(&device, 0, sizeof device);
  device.most = 1;
  listen_begin();
  OK(saver_new(&s, at("unpinned"), &shape, 2, every_step, &there));
  assert_holds(
      listen_end(),
      "warning: cannot pin host memory, so copies for checkpoints will block the GPU for "
      "longer: no more");
  commit(s, 1, false);
  OK(wait_for(s));
  saver_free(s);
  assert_int_equal(device.unpinned, 1);
  assert_int_equal(resume(at("unpinned"), WITH_ALL, dir), 1);
}

/* Stops the saver's thread at the beginning of a save, as if the disk were slow, until a signal
 * arrives. */
static atomic_bool let_go;

static void *signal_later(void *unused) {
  nap(100);
  atomic_store(&let_go, true);
  raise(SIGUSR1);
  return unused;
}

static void test_saver_commit_does_not_wait_and_begin_does(void **state) {
  (void)state;
  char dir[FILE_PATH_MAX], run[FILE_PATH_MAX];
  Saver *s;
  pthread_t other;
  OK(file_join(run, scratch, "slow"));
  save(run, 0, 1, false);
  TrainArrays shape = arrays(0, 0);
  OK(saver_new(&s, run, &shape, 2, every_step, &here));
  stop_watch();
  assert_int_equal(setenv("TRIREME_FAULT", "hang:save", 1), 0);
  listen_begin();
  commit(s, 2, false); /* would block for ever if saver_commit saved in the calling thread */
  assert_int_equal(pthread_create(&other, NULL, signal_later, NULL), 0);
  saver_begin(s); /* must wait for the running save */
  bool waited = atomic_load(&let_go);
  pthread_join(other, NULL);
  const char *text = listen_end();
  stop_unwatch();
  assert_int_equal(unsetenv("TRIREME_FAULT"), 0);
  assert_holds(text, "waiting at save");
  assert_true(waited);
  OK(wait_for(s));
  saver_free(s);
  assert_int_equal(resume(run, 0, dir), 2);
}

/* Asserts that saving step 3 fails and leaves step 2 unchanged, and that saving step 4 then
 * succeeds. */
static void fail_between(const char *run, void (*break_it)(void), void (*mend_it)(void)) {
  char dir[FILE_PATH_MAX], left[FILE_PATH_MAX];
  Saver *s;
  TrainArrays shape = arrays(0, WITH_ALL);
  OK(saver_new(&s, run, &shape, 2, every_step, &here));
  commit(s, 2, true);
  OK(wait_for(s));
  for (int again = 0; again < 3; again++) {
    listen_begin();
    TrainArrays *a = saver_begin(s);
    fill_arrays(a, 3);
    TrainCounters c = counters(again == 2 ? 2 : 3); /* the third attempt saves step 2 again */
    break_it();
    saver_commit(s, &c, SAVE_IN_BACKGROUND);
    saver_add_validation(s, &c, true);
    Err err = wait_for(s);
    mend_it();
    const char *text = listen_end();
    assert_int_equal(err, ERR_WORK);
    assert_holds(text, again == 2
                           ? "the checkpoint of step 2 was not saved, training goes on: "
                           : "the checkpoint of step 3 was not saved, training goes on: ");
    assert_int_equal(resume(run, WITH_ALL, dir), 2);
    static const char *const none[] = {"unfinished", "latest.tmp", "best.tmp", "step-00000003"};
    for (int i = 0; i < 4; i++) {
      snprintf(left, sizeof left, "%.3000s/checkpoints/%s", run, none[i]);
      assert_false(file_exists(left));
    }
    snprintf(left, sizeof left, "%.3000s/checkpoints/best/training.json", run);
    assert_true(access(left, R_OK) == 0);
  }
  commit(s, 4, false);
  OK(wait_for(s));
  saver_free(s);
  assert_int_equal(resume(run, WITH_ALL, dir), 4);
}

static rlim_t limit;

static void set_limit(void) {
  struct rlimit r;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
  r.rlim_cur = limit;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void lift_limit(void) {
  struct rlimit r;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
  r.rlim_cur = r.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void test_saver_file_size_limit_is_error(void **state) {
  (void)state;
  char run[FILE_PATH_MAX];
  OK(file_join(run, scratch, "limited"));
  signal(SIGXFSZ, SIG_IGN);
  limit = 600; /* bytes: enough for model.json and the warning, not for the weights */
  fail_between(run, set_limit, lift_limit);
}

/* Returns the counters of the newest checkpoint. */
static TrainCounters newest_counters(const char *run) {
  char dir[FILE_PATH_MAX];
  bool found, whole;
  Record r;
  listen_begin();
  Err err = checkpoint_find(run, dir, &found);
  listen_end();
  OK(err);
  assert_true(found);
  OK(record_read(dir, &r, &whole));
  assert_true(whole);
  TrainCounters c = r.counters;
  record_free(&r);
  return c;
}

static void test_saver_verdict_is_added_to_the_checkpoint(void **state) {
  (void)state;
  char run[FILE_PATH_MAX], dir[FILE_PATH_MAX];
  Saver *s;
  TrainArrays shape = arrays(0, WITH_ALL);
  OK(file_join(run, scratch, "judged"));
  OK(saver_new(&s, run, &shape, 2, every_step, &here));
  commit(s, 2, false);
  TrainCounters c = counters(2);
  c.best_score = 1.0 / 7, c.best_step = 2, c.worse = 0, c.validated = 2;
  saver_add_validation(s, &c, true);
  OK(wait_for(s));
  TrainCounters now = newest_counters(run);
  assert_true(now.best_score == 1.0 / 7 && now.best_step == 2);
  assert_true(now.worse == 0 && now.validated == 2 && now.step == 2);
  OK(file_join(dir, run, "checkpoints/best/weights.safetensors"));
  assert_int_equal(access(dir, R_OK), 0);
  saver_free(s);
}

static void test_saver_verdict_without_a_checkpoint_makes_no_best(void **state) {
  (void)state;
  char run[FILE_PATH_MAX], best[FILE_PATH_MAX];
  Saver *s;
  TrainArrays shape = arrays(0, WITH_ALL);
  OK(file_join(run, scratch, "unjudged"));
  OK(file_join(best, run, "checkpoints/best"));
  signal(SIGXFSZ, SIG_IGN);
  limit = 600;
  OK(saver_new(&s, run, &shape, 2, every_step, &here));
  fill_arrays(saver_begin(s), 2);
  TrainCounters c = counters(2);
  listen_begin();
  set_limit();
  saver_commit(s, &c, SAVE_AWAITED);
  saver_add_validation(s, &c, true);
  saver_wait(s, NULL);
  saver_add_validation(s, &c, true);
  Err err = wait_for(s);
  lift_limit();
  const char *text = listen_end();
  assert_int_equal(err, ERR_WORK);
  assert_says("File too large");
  assert_holds(text, "the score of step 2, the best so far, is not kept");
  assert_null(strstr(strstr(text, "is not kept") + 1, "is not kept")); /* said once */
  /* With SAVE_AWAITED the caller reports the failure. */
  assert_null(strstr(text, "was not saved"));
  assert_false(file_exists(best));
  saver_free(s);
}

/* Passes outputs and the result of a validation of `step` to the saver, and asserts what
 * RUN/valid-best.txt then has. */
static void add_outputs(Saver *s, const char *run, uint64_t step, bool is_best,
                        const char *outputs, const char *want) {
  char path[FILE_PATH_MAX];
  Str text = {0}, file = {0};
  TrainCounters c = counters(step);
  str_addf(&text, "%s", outputs);
  saver_take_outputs(s, &text);
  assert_int_equal(text.len, 0);
  saver_add_validation(s, &c, is_best);
  saver_wait(s, NULL);
  OK(file_join(path, run, "valid-best.txt"));
  if (want) OK(file_read(path, 100, &file));
  assert_int_equal(file_exists(path), want != NULL);
  assert_string_equal(str_text(&file), want ? want : "");
  str_free(&file);
}

static void test_saver_writes_outputs_of_the_best_validation_alone(void **state) {
  (void)state;
  char run[FILE_PATH_MAX], path[FILE_PATH_MAX];
  Saver *s;
  TrainArrays shape = arrays(0, 0);
  OK(file_join(run, scratch, "outputs"));
  OK(saver_new(&s, run, &shape, 1, every_step, &here));
  commit(s, 2, false);
  add_outputs(s, run, 2, false, "a\n", NULL);
  OK(file_join(path, run, "checkpoints/best"));
  assert_false(file_exists(path));
  add_outputs(s, run, 2, true, "b\n", "b\n");
  add_outputs(s, run, 2, false, "c\n", "b\n");
  add_outputs(s, run, 2, true, "", "b\n"); /* a task without outputs */
  commit(s, 4, true);
  OK(wait_for(s));
  commit(s, 6, false);
  add_outputs(s, run, 6, true, "d\n", "d\n");
  CheckpointList list;
  OK(checkpoint_list(&list, run));
  assert_int_equal(list.count, 1); /* step 4 is no longer the best */
  checkpoint_list_free(&list);
  /* A validation that cannot be added is not the best. */
  OK(file_join(path, run, "checkpoints/step-00000006/training.json"));
  assert_int_equal(truncate(path, 100), 0);
  listen_begin();
  add_outputs(s, run, 6, true, "e\n", "d\n");
  assert_holds(listen_end(),
               "the validation of step 6 was not added to its checkpoint, training "
               "goes on: ");
  assert_int_equal(wait_for(s), ERR_WORK);
  assert_says("training.json is damaged");
  saver_free(s);
}

/* The saver keeps its error until a later write succeeds, even if other errors occur
 * meanwhile. */
static void test_saver_failed_write_is_remembered_until_one_succeeds(void **state) {
  (void)state;
  Saver *s;
  TrainArrays shape = arrays(0, WITH_ALL);
  signal(SIGXFSZ, SIG_IGN);
  limit = 600;
  OK(saver_new(&s, at("remembered"), &shape, 2, every_step, &here));
  TrainCounters c = counters(2);
  fill_arrays(saver_begin(s), 2);
  listen_begin();
  set_limit();
  saver_commit(s, &c, SAVE_IN_BACKGROUND);
  Err first = wait_for(s);
  lift_limit();
  listen_end();
  assert_int_equal(first, ERR_WORK);
  err_set(ERR_USAGE, "another error of this thread");
  assert_int_equal(wait_for(s), ERR_WORK);
  assert_says("File too large");
  saver_wait(s, NULL); /* a call that ignores the error does not clear it */
  listen_begin();
  saver_add_validation(s, &c,
                       /* Adding a validation to a checkpoint that is not on disk does not clear
                        * it. */
                       false);
  assert_int_equal(wait_for(s), ERR_WORK);
  listen_end();
  assert_says("File too large");
  commit(s, 3, false);
  OK(wait_for(s));
  saver_free(s);
}

static char disk[FILE_PATH_MAX];

static void fill_disk(void) {
  char path[FILE_PATH_MAX], block[4096] = {0};
  OK(file_join(path, disk, "ballast"));
  int fd = open(path, O_WRONLY | O_CREAT, 0666);
  assert_true(fd >= 0);
  while (write(fd, block, sizeof block) > 0) {}
  assert_int_equal(errno, ENOSPC);
  /* A small tmpfs, so that the write fails in the middle of the arrays. */
  off_t size = lseek(fd, 0, SEEK_END);
  assert_int_equal(ftruncate(fd, size - 5 * 4096), 0);
  close(fd);
}

static void empty_disk(void) {
  char path[FILE_PATH_MAX];
  OK(file_join(path, disk, "ballast"));
  assert_int_equal(unlink(path), 0);
}

static void test_saver_full_disk_keeps_last_checkpoint(void **state) {
  (void)state;
  char run[FILE_PATH_MAX];
  OK(file_join(disk, scratch, "disk"));
  OK(file_mkdirs(disk));
  if (mount("tmpfs", disk, "tmpfs", 0, "size=2m") != 0) {
    printf("skip: no small file system can be mounted: %s\n", strerror(errno));
    skip();
  }
  OK(file_join(run, disk, "run"));
  fail_between(run, fill_disk, empty_disk);
}

static int remove_disk(void **state) { /* also runs after a failed test */
  (void)state;
  umount2(disk, MNT_DETACH);
  return 0;
}

/* Kills. The child saves one step after another, some of them twice. It stores the last step
 * that is on disk in shared memory. */
static void save_for_ever(const char *run, uint64_t step, _Atomic uint64_t *done) {
  Saver *s;
  TrainArrays shape = arrays(0, WITH_E | WITH_M | WITH_SECOND);
  if (saver_new(&s, run, &shape, 2, every_step, &here)) _exit(1);
  for (;; step++) {
    for (uint64_t times = 0; times <= step % 2; times++) {
      TrainCounters c = counters(step);
      fill_arrays(saver_begin(s), step);
      saver_commit(s, &c, SAVE_IN_BACKGROUND);
      if (step % 3 == 0) saver_add_validation(s, &c, true);
      if (wait_for(s)) _exit(2);
      atomic_store(done, step);
    }
  }
}

static void test_saver_killed_leaves_whole_checkpoint(void **state) {
  (void)state;
  char run[FILE_PATH_MAX], dir[FILE_PATH_MAX];
  OK(file_join(run, scratch, "killed"));
  _Atomic uint64_t *done =
      mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(done != MAP_FAILED);
  /* Measures how long one save takes: each child is killed at a random time within its first
   * four saves or so. */
  double start = progress_clock();
  save(at("measure"), WITH_E | WITH_M | WITH_SECOND, 1, true);
  uint64_t longest = 1000000 + (uint64_t)(4e9 * (progress_clock() - start));
  uint64_t step = 0;
  Rng rng = {.key = (uint64_t)time(NULL)};
  print_message("seed %llu\n", (unsigned long long)rng.key);
  for (int kill_number = 0; kill_number < 50; kill_number++) {
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) save_for_ever(run, step + 1, done);
    uint64_t ns = rng_below(&rng, longest);
    struct timespec pause = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    nanosleep(&pause, NULL);
    assert_int_equal(kill(child, SIGKILL), 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status)); /* until it was killed, every save succeeded */
    uint64_t least = atomic_load(done);
    bool found;
    listen_begin();
    OK(checkpoint_find(run, dir, &found));
    /* Asserts that the loaded state is exact. */
    if (found) step = resume(run, WITH_E | WITH_M | WITH_SECOND, dir);
    listen_end();
    assert_true(found || least == 0);
    if (step < least) fail_msg("step %d was on disk, %d was found", (int)least, (int)step);
    /* Saves may be slower because of other processes, so more time is given. */
    if (step < (uint64_t)kill_number / 4) longest += longest / 8;
  }
  munmap(done, sizeof *done);
  assert_true(step > 5); /* the children completed some saves */
}

/* Stops the child at each system call of a save: the run must be loadable, as if the child were
 * killed there. There is only one checkpoint, which is being replaced. */
static void save_traced(const char *run) {
  TrainArrays a = arrays(0, WITH_ALL);
  if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(3);
  raise(SIGSTOP);
  for (uint64_t step = 1; step <= 2; step++) {
    TrainCounters c = counters(step);
    fill_arrays(&a, step);
    if (checkpoint_save(run, &a, &c) || checkpoint_add_validation(run, &c, true) ||
        checkpoint_prune(run, 1, every_step))
      _exit(2);
  }
  _exit(0);
}

static void test_saver_stopped_at_any_system_call_leaves_whole_checkpoint(void **state) {
  (void)state;
  char run[FILE_PATH_MAX], dir[FILE_PATH_MAX];
  uint64_t step = 1;
  int status, stops = 0, replaced = 0;
  OK(file_join(run, scratch, "traced"));
  save(run, WITH_ALL, 1, true);
  fflush(stdout);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) save_traced(run);
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 3) {
    printf("skip: ptrace is not allowed\n");
    skip();
  }
  /* Stops at the entry and at the exit of each system call. */
  for (; WIFSTOPPED(status); stops++) {
    listen_begin();
    uint64_t now = resume(run, WITH_ALL, dir);
    listen_end();
    assert_true(now >= step);
    step = now;
    replaced += str_ends(dir, ".old");
    assert_int_equal(ptrace(PTRACE_SYSCALL, child, NULL, NULL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
  }
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_true(step == 2 && stops > 100 && replaced > 0);
}

/* ---- changes of the file system that fail ---- */

/* While it is active, the calls of the functions below are counted, and the calls from `first` to `last`
 * fail. Nothing is synced. */
static struct {
  bool is_active;
  int calls, first, last;
  const char *failed; /* name of the first function that failed; NULL: none */
} breakage;

static bool is_broken(const char *name) {
  if (!breakage.is_active) return false;
  int n = ++breakage.calls;
  if (n < breakage.first || n > breakage.last) return false;
  if (!breakage.failed) breakage.failed = name;
  errno = EIO;
  return true;
}

int rename(const char *from, const char *to) {
  if (is_broken("rename")) return -1;
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int symlink(const char *to, const char *path) {
  if (is_broken("symlink")) return -1;
  return symlinkat(to, AT_FDCWD, path);
}

int unlink(const char *path) {
  if (is_broken("unlink")) return -1;
  return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path) {
  if (is_broken("rmdir")) return -1;
  return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int mkdir(const char *path, mode_t mode) {
  if (is_broken("mkdir")) return -1;
  return mkdirat(AT_FDCWD, path, mode);
}

int fsync(int fd) {
  if (is_broken("fsync")) return -1;
  return breakage.is_active ? 0 : (int)syscall(SYS_fsync, fd);
}

/* Calls `act` with call number n failing (forever: that call and all later ones). */
static Err act_broken(Err (*act)(const char *run), const char *run, int n, bool forever) {
  breakage.is_active = true;
  breakage.calls = 0;
  breakage.first = n;
  breakage.last = forever ? INT32_MAX : n;
  breakage.failed = NULL;
  listen_begin();
  Err err = act(run);
  breakage.is_active = false;
  listen_end();
  return err;
}

/* Saves the state of a step; `examples` distinguishes two states of the same step. The tokenizer of even
 * steps comes from memory, that of odd steps from a file. */
static Err save_state(const char *run, uint64_t step, uint64_t examples) {
  TrainArrays a = arrays(0, WITH_ALL);
  TrainCounters c = counters(step);
  Str tokenizer = {0};
  str_addf(&tokenizer, "pieces");
  if (step % 2 == 0) a.contents = &tokenizer;
  c.examples = examples;
  fill_arrays(&a, step);
  Err err = checkpoint_save(run, &a, &c);
  str_free(&tokenizer);
  return err;
}

/* Returns true if what failed was the removal of a directory that is no longer needed. */
static bool is_left_over(void) {
  return strcmp(breakage.failed, "unlink") == 0 || strcmp(breakage.failed, "rmdir") == 0;
}

enum { OLD_STATE = 7, NEW_STATE = 8 };

static Err save_step_again(const char *run) {
  return save_state(run, 1, NEW_STATE);
}

static Err save_next_step(const char *run) {
  return save_state(run, 2, NEW_STATE);
}

/* Replaces a link of a run by the directory that it names, as cp -L does. */
static void make_link_a_directory(const char *run, const char *name) {
  char link[FILE_PATH_MAX], from[FILE_PATH_MAX], to[FILE_PATH_MAX];
  static const char *const names[] = {"model.json",           "tokenizer.model",
                                      "training.json",        "weights.safetensors",
                                      "training.safetensors", "moment1.safetensors",
                                      "moment2.safetensors"};
  snprintf(link, sizeof link, "%.3000s/checkpoints/%s", run, name);
  snprintf(to, sizeof to, "%.3000s/checkpoints/copied", run);
  OK(file_mkdirs(to));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char file[FILE_PATH_MAX];
    OK(file_join(from, link, names[i]));
    OK(file_join(file, to, names[i]));
    OK(place_copy(from, file));
  }
  assert_int_equal(unlink(link), 0);
  assert_int_equal(rename(to, link), 0);
}

typedef struct {
  Err (*act)(const char *run);
  bool is_next_step, is_link_copied;
} BrokenSave;

static char broken_dir[32]; /* in memory, where files cost less */

static int make_broken_dir(void **state) {
  (void)state;
  snprintf(broken_dir, sizeof broken_dir, "/dev/shm/trireme-saver-XXXXXX");
  return mkdtemp(broken_dir) ? 0 : -1;
}

static int remove_broken_dir(void **state) {
  (void)state;
  breakage.is_active = false;
  return (int)file_remove_all(broken_dir);
}

static void write_broken(const char *run, const char *name, const char *text) {
  char path[FILE_PATH_MAX];
  snprintf(path, sizeof path, "%.3000s/checkpoints/%s", run, name);
  OK(file_write(path, text, strlen(text)));
}

static void assert_absent(const char *run, const char *name) {
  char path[FILE_PATH_MAX];
  snprintf(path, sizeof path, "%.3000s/checkpoints/%s", run, name);
  if (file_exists(path)) fail_msg("%s exists", path);
}

/* Saves with call n failing; returns false if all calls succeeded. The run has the old or the new
 * state, and the new one if the save has succeeded. */
static bool save_broken(const BrokenSave *b, int n, bool forever) {
  char run[FILE_PATH_MAX];
  OK(file_join(run, broken_dir, "run"));
  breakage.is_active = true; /* without the time of syncing */
  breakage.first = INT32_MAX;
  OK(file_remove_all(run));
  OK(save_state(run, 1, OLD_STATE));
  if (b->is_link_copied) make_link_a_directory(run, "latest");
  char unfinished[FILE_PATH_MAX]; /* of a process that was killed */
  OK(file_join(unfinished, run, "checkpoints/unfinished"));
  OK(file_mkdirs(unfinished));
  write_broken(run, "unfinished/weights.safetensors", "");
  Err err = act_broken(b->act, run, n, forever);
  if (err) assert_says("Input/output error");
  if (!breakage.failed) {
    assert_string_equal(str_text(&said), "");
    assert_absent(run, "latest.copy");
  }
  if (!forever) {
    assert_absent(run, "unfinished");
    assert_absent(run, "latest.tmp");
  }
  /* What could not be renamed back is reported. */
  char step_1[FILE_PATH_MAX], latest[FILE_PATH_MAX];
  OK(file_join(step_1, run, "checkpoints/step-00000001"));
  OK(file_join(latest, run, "checkpoints/latest"));
  bool is_told = strstr(str_text(&said), "rename it by hand") != NULL;
  assert_int_equal(is_told, !file_exists(step_1) || !file_exists(latest));
  TrainCounters found = newest_counters(run);
  bool is_new = found.examples == NEW_STATE;
  assert_true(is_new || found.examples == OLD_STATE);
  if (!err && (!is_new || (breakage.failed && !(b->is_link_copied && is_left_over()))))
    fail_msg("call %d, %s: no error", n, breakage.failed);
  /* Only the sync after the last rename can fail when the new state is already complete. */
  if (err && is_new && b->is_next_step && !forever)
    assert_string_equal(breakage.failed, "fsync");
  /* What is left over does not prevent the next save. */
  breakage.is_active = true;
  breakage.first = INT32_MAX;
  OK(save_state(run, 3, NEW_STATE));
  breakage.is_active = false;
  assert_int_equal(newest_counters(run).step, 3);
  return breakage.failed || err;
}

static void walk_saves(const BrokenSave *b) {
  int n = 1;
  while (save_broken(b, n, false)) n++;
  assert_true(n > 12);
  for (int k = 1; k < n; k++) save_broken(b, k, true);
}

static void test_checkpoint_save_that_fails_at_any_call_keeps_old_or_new_state(void **state) {
  (void)state;
  walk_saves(&(BrokenSave){save_next_step, .is_next_step = true});
  walk_saves(&(BrokenSave){save_step_again, .is_next_step = false});
}

static void test_checkpoint_save_that_fails_in_a_copied_run_keeps_old_or_new_state(
    void **state) {
  (void)state;
  walk_saves(&(BrokenSave){save_next_step, .is_next_step = true, .is_link_copied = true});
  walk_saves(&(BrokenSave){save_step_again, .is_link_copied = true});
}

#define LONG_PATH (FILE_PATH_MAX - 76)

/* The paths of some files of a checkpoint fit, and those of others do not. */
static void test_checkpoint_save_with_a_long_path_saves_all_or_nothing(void **state) {
  (void)state;
  char run[FILE_PATH_MAX], dir[FILE_PATH_MAX];
  int saved = 0;
  for (size_t len = LONG_PATH; len < FILE_PATH_MAX - strlen("/checkpoints/unf"); len++) {
    bool found;
    size_t n = strlen(broken_dir);
    memset(run, 'x', sizeof run);
    memcpy(run, broken_dir, n);
    for (size_t at = n; at < len - 1; at += 200) run[at] = '/';
    run[len] = '\0';
    breakage.is_active = true;
    breakage.first = INT32_MAX;
    Err err = save_state(run, 2, NEW_STATE);
    breakage.is_active = false;
    if (err) {
      if (!strstr(err_message(), "too long")) fail_msg("%zu: %s", len, err_message());
      err = checkpoint_find(run, dir, &found);
      if (!err && found) fail_msg("%zu: %s is found", len, dir);
    } else {
      assert_int_equal(newest_counters(run).examples, NEW_STATE);
      assert_int_equal(saved++, len - LONG_PATH);
    }
  }
  assert_true(saved > 0 && saved < 60);
  /* A path that is cut off would name this directory. */
  snprintf(dir, sizeof dir, "%.4079s/checkpoints/unf", run);
  assert_int_equal(strlen(dir), FILE_PATH_MAX - 1);
  OK(file_mkdirs(run));
  char parent[FILE_PATH_MAX];
  OK(file_join(parent, run, "checkpoints"));
  OK(file_mkdirs(parent));
  assert_int_equal(mkdir(dir, 0777), 0);
  assert_int_equal(save_state(run, 2, NEW_STATE), ERR_WORK);
  assert_true(file_is_dir(dir));
}

/* Returns the step of the checkpoint in `best`, 0 if there is none. */
static uint64_t best_step(const char *run) {
  char path[FILE_PATH_MAX];
  bool whole;
  Record r;
  OK(file_join(path, run, "checkpoints/best"));
  OK(record_read(path, &r, &whole));
  uint64_t step = whole ? r.counters.step : 0;
  record_free(&r);
  return step;
}

static Err judge_step_2(const char *run) {
  TrainCounters c = counters(2);
  c.best_step = 2;
  c.validated = 2;
  return checkpoint_add_validation(run, &c, true);
}

static void check_judged(const char *run, bool is_done) {
  TrainCounters now = newest_counters(run);
  uint64_t best = best_step(run);
  assert_int_equal(now.step, 2);
  assert_true(best == 2 || (best == 1 && !is_done));
  assert_true(now.validated == 2 || (now.validated == 0 && !is_done));
  if (now.validated == 2) assert_int_equal(best, 2); /* the link is moved first */
}

static Err settle_best_2(const char *run) {
  bool is_there, is_moved;
  TRY(checkpoint_settle_best(run, 2, &is_there, &is_moved));
  assert_true(is_there && is_moved);
  return ERR_OK;
}

static void check_settled(const char *run, bool is_done) {
  uint64_t best = best_step(run);
  assert_true(best == 2 || (best == 1 && !is_done));
}

static Err settle_no_best(const char *run) {
  bool is_there, is_moved;
  TRY(checkpoint_settle_best(run, 0, &is_there, &is_moved));
  assert_true(!is_there && is_moved);
  return ERR_OK;
}

static void check_no_best(const char *run, bool is_done) {
  assert_int_equal(best_step(run), is_done ? 0 : 1);
}

static Err prune_to_1(const char *run) {
  return checkpoint_prune(run, 1, every_step);
}

static void check_pruned(const char *run, bool is_done) {
  CheckpointList list;
  OK(checkpoint_list(&list, run));
  assert_true(list.count == 2 || (list.count == 3 && !is_done));
  checkpoint_list_free(&list);
  assert_int_equal(newest_counters(run).step, 2);
  assert_int_equal(best_step(run), 1);
}

static void test_checkpoint_change_that_fails_at_any_call_is_an_error(void **state) {
  (void)state;
  static const struct {
    Err (*act)(const char *run);
    void (*check)(const char *run, bool is_done);
    bool is_link_copied;
    int calls;
  } rows[] = {
      {judge_step_2, check_judged, false, 5},    {judge_step_2, check_judged, true, 7},
      {settle_best_2, check_settled, false, 4},  {settle_best_2, check_settled, true, 6},
      {settle_no_best, check_no_best, false, 1}, {prune_to_1, check_pruned, false, 5},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int n = 0;
    Err err;
    do {
      char run[FILE_PATH_MAX];
      OK(file_join(run, broken_dir, "run"));
      breakage.is_active = true;
      breakage.first = INT32_MAX;
      OK(file_remove_all(run));
      for (uint64_t step = 0; step <= 2; step++) OK(save_state(run, step, 0));
      TrainCounters c = counters(1);
      OK(checkpoint_add_validation(run, &c, true));
      if (rows[i].is_link_copied) make_link_a_directory(run, "best");
      err = act_broken(rows[i].act, run, ++n, false);
      if (err) assert_says("Input/output error");
      if (!err && breakage.failed && !(rows[i].is_link_copied && is_left_over()))
        fail_msg("row %zu: a failed %s is no error", i, breakage.failed);
      rows[i].check(run, err == ERR_OK);
    } while (breakage.failed);
    OK(err);
    if (n <= rows[i].calls) fail_msg("row %zu has %d calls", i, n - 1);
  }
}

static void save_mean(const char *run, uint64_t step, bool averaged) {
  TrainArrays a = arrays(0, averaged ? WITH_E : 0);
  TrainCounters c = counters(step);
  for (size_t i = 0; i < params.padded; i++) {
    float x = (float)(1.0 / (double)(1 + i % 97)) * (float)(step * step);
    a.w[i] = averaged ? 1e9f : x;
    if (averaged) a.e[i] = x;
  }
  OK(checkpoint_save(run, &a, &c));
}

static void assert_mean(const char *out, double factor) {
  char path[FILE_PATH_MAX];
  memset(floats[1][0], 0, params.padded * sizeof(float));
  OK(file_join(path, out, "weights.safetensors"));
  OK(store_load_array(&params, floats[1][0], path));
  for (size_t p = 0; p < params.count; p++) {
    for (size_t k = 0; k < params.param[p].rows * params.param[p].cols; k++) {
      size_t i = params.param[p].offset + k;
      double x = (double)(float)(1.0 / (double)(1 + i % 97));
      double mean = factor * x;
      /* Each of the k values and their mean are rounded once. */
      double error = (double)floats[1][0][i] - mean;
      if (error < 0) error = -error;
      if (error > mean * 1.2e-7) fail_msg("%.9g is not %.9g", (double)floats[1][0][i], mean);
    }
  }
}

static void test_average_of_one_checkpoint_is_not_made(void **state) {
  (void)state;
  char run[FILE_PATH_MAX];
  int count;
  OK(file_join(run, scratch, "single"));
  save_mean(run, 7, false);
  log_quiet(false);
  listen_begin();
  Err err = average_last(run, 5, every_step, at("single/average"), &count);
  const char *text = listen_end();
  OK(err);
  assert_int_equal(count, 1);
  assert_holds(text, "average  none: the run has one checkpoint, of step 7");
  assert_false(file_exists(at("single/average")));
}

static void test_average_of_checkpoints_is_mean_of_weights(void **state) {
  (void)state;
  char run[FILE_PATH_MAX], out[FILE_PATH_MAX], path[FILE_PATH_MAX];
  int count;
  OK(file_join(run, scratch, "many"));
  OK(file_join(out, scratch, "many/average/"));
  for (uint64_t step = 1; step <= 5; step++) save_mean(run, step, step % 2);
  OK(file_write(at("stderr"), "", 0));
  log_quiet(false);
  listen_begin();
  Err err = average_last(run, 3, every_step, out, &count);
  const char *text = listen_end();
  OK(err);
  assert_holds(text, "average of 3 checkpoints, steps 3 to 5");
  assert_int_equal(count, 3);
  assert_mean(out, (9.0 + 16.0 + 25.0) / 3);
  OK(file_join(path, out, "tokenizer.model"));
  assert_true(file_exists(path));
  ModelConfig back;
  OK(store_load_config(&back, NULL, out));
  assert_int_equal(transformer_config(&back)->d_model, config.d_model);
  /* Of other steps only the newest is averaged, as the last step of a run may be one. */
  err = average_last(run, 9, (SaveSteps){.save_every = 2}, out, &count);
  OK(err);
  assert_int_equal(count, 3);
  assert_mean(out, (4.0 + 16.0 + 25.0) / 3);
  /* Replaces an average, skips a damaged checkpoint, and uses fewer checkpoints than
   * requested. */
  OK(file_join(path, run, "checkpoints/step-00000004/weights.safetensors"));
  assert_int_equal(truncate(path, 2000), 0);
  listen_begin();
  err = average_last(run, 9, every_step, out, &count);
  text = listen_end();
  OK(err);
  assert_holds(text, "step-00000004/weights.safetensors");
  assert_holds(text, "average of 4 checkpoints (--average-checkpoints 9), steps 1 to 5");
  assert_mean(out, (1.0 + 4.0 + 9.0 + 25.0) / 4);
  assert_false(file_exists(at("many/average.unfinished")));
  assert_false(file_exists(at("many/average.replaced")));
  /* Replaces nothing except an average. */
  assert_int_equal(
      average_last(run, 2, every_step, at("many/checkpoints/step-00000005"), &count),
      ERR_USAGE);
  assert_int_equal(average_last(run, 2, every_step, run, &count), ERR_USAGE);
  assert_int_equal(average_last(run, 1, every_step, out, &count), ERR_USAGE);
  assert_int_equal(average_last(at("nowhere"), 2, every_step, at("nothing"), &count), ERR_WORK);
  assert_false(file_exists(at("nothing")));
  assert_mean(out, (1.0 + 4.0 + 9.0 + 25.0) / 4);
}

static Err average_2_and_3(const char *run) {
  char out[FILE_PATH_MAX];
  int count;
  OK(file_join(out, run, "average"));
  return average_last(run, 2, every_step, out, &count);
}

static void test_average_that_fails_at_any_call_keeps_an_average(void **state) {
  (void)state;
  char run[FILE_PATH_MAX], out[FILE_PATH_MAX], path[FILE_PATH_MAX];
  int n = 0;
  OK(file_join(run, broken_dir, "run"));
  OK(file_join(out, run, "average"));
  OK(file_join(path, out, "weights.safetensors"));
  do {
    FileSum before, after;
    int count;
    breakage.is_active = true;
    breakage.first = INT32_MAX;
    OK(file_remove_all(run));
    for (uint64_t step = 1; step <= 3; step++) save_mean(run, step, false);
    log_quiet(true);
    OK(average_last(run, 3, every_step, out, &count));
    OK(filesum_file(path, &before));
    Err err = act_broken(average_2_and_3, run, ++n, false);
    log_quiet(false);
    OK(filesum_file(path, &after));
    bool is_new = before.crc != after.crc;
    if (err) assert_says("Input/output error");
    if (!err && (!is_new || breakage.failed)) fail_msg("call %d: %s", n, breakage.failed);
    /* The new average is complete when its directory is synced and the old one is removed. */
    if (is_new && err && strcmp(breakage.failed, "fsync") != 0) assert_true(is_left_over());
    assert_mean(out, is_new ? (4.0 + 9.0) / 2 : (1.0 + 4.0 + 9.0) / 3);
  } while (breakage.failed);
  assert_true(n > 10);
}

static Err save_with_saver(const char *run) {
  Saver *s;
  TrainArrays shape = arrays(0, WITH_ALL);
  OK(saver_new(&s, run, &shape, 1, every_step, &here));
  commit(s, 2, false);
  Err err = wait_for(s);
  saver_free(s);
  return err;
}

static void test_saver_that_cannot_remove_older_checkpoints_warns(void **state) {
  (void)state;
  char run[FILE_PATH_MAX];
  int n = 0, warnings = 0;
  OK(file_join(run, broken_dir, "run"));
  do {
    breakage.is_active = true;
    breakage.first = INT32_MAX;
    OK(file_remove_all(run));
    OK(save_state(run, 1, OLD_STATE));
    Err err = act_broken(save_with_saver, run, ++n, false);
    bool is_told = strstr(str_text(&said),
                          "warning: cannot remove older checkpoints, training goes "
                          "on: cannot remove ") != NULL;
    assert_int_equal(is_told, !err && breakage.failed);
    warnings += is_told;
    assert_true(err || newest_counters(run).step == 2);
  } while (breakage.failed);
  assert_true(n > 12 && warnings > 4);
}

/* Makes the n-th allocation fail, for every n. */

static const char *walked_run, *walked_dir;

static Err make_saver(void) {
  Saver *s;
  TrainArrays shape = arrays(0, WITH_ALL);
  TRY(saver_new(&s, walked_run, &shape, 1, every_step, &here));
  saver_free(s);
  return ERR_OK;
}

static Err load_walked(void) {
  TrainArrays a = arrays(1, WITH_ALL);
  TrainCounters c;
  return checkpoint_load(walked_dir, &a, &c);
}

static Err find_walked(void) {
  char dir[FILE_PATH_MAX];
  bool found;
  TRY(checkpoint_find(walked_run, dir, &found));
  /* A failed allocation does not count as damage. */
  assert_true(found && str_ends(dir, "step-00000002"));
  return ERR_OK;
}

static Err save_walked(void) {
  TrainArrays a = arrays(0, WITH_ALL);
  TrainCounters c = counters(2);
  return checkpoint_save(walked_run, &a, &c);
}

static Err average_walked(void) {
  int count;
  return average_last(walked_run, 2, every_step, at("walked-average"), &count);
}

static void walk(Err (*operation)(void), uint64_t least) {
  for (uint64_t n = 1; n < 5000; n++) {
    err_set(ERR_OK, "nothing was said");
    mem_fail_after(n);
    Err err = operation();
    mem_fail_after(0);
    if (!err) {
      assert_true(n > least);
      return;
    }
    assert_int_equal(err, ERR_WORK);
    assert_says("out of memory");
  }
  fail_msg("it never succeeds");
}

static void test_saver_out_of_memory_is_error(void **state) {
  (void)state;
  char run[FILE_PATH_MAX], dir[FILE_PATH_MAX];
  OK(file_join(run, scratch, "walked"));
  OK(file_join(dir, run, "checkpoints/latest"));
  walked_run = run, walked_dir = dir;
  save(run, WITH_ALL, 1, false);
  save(run, WITH_ALL, 2, false);
  walk(make_saver, 6);
  walk(find_walked, 3);
  walk(load_walked, 20);
  log_quiet(true);
  walk(average_walked, 20);
  walk(save_walked, 20);
  log_quiet(false);
  assert_int_equal(resume(run, WITH_ALL, dir), 2);
}

/* Jansson does not allocate with base/mem.h. */
static int json_allocations, json_limit;

static void *allocate_for_json(size_t bytes) {
  return ++json_allocations > json_limit ? NULL : malloc(bytes);
}

static void test_record_write_out_of_memory_in_json_is_error(void **state) {
  (void)state;
  double second[] = {1, 2};
  Record written = {.counters = counters(2), .second = second, .seconds = 2, .files = 2}, r;
  bool whole;
  char dir[FILE_PATH_MAX];
  OK(file_join(dir, scratch, "json"));
  OK(file_mkdirs(dir));
  snprintf(written.file[0].name, STORE_NAME, "tokenizer.model");
  snprintf(written.file[1].name, STORE_NAME, "labels.txt");
  for (int i = 0; i < PARTS; i++) written.part[i].there = true;
  Err err = ERR_WORK;
  for (json_limit = 0; err; json_limit++) {
    json_allocations = 0;
    json_set_alloc_funcs(allocate_for_json, free);
    err = record_write(dir, &written);
    json_set_alloc_funcs(malloc, free);
    assert_true(json_limit < 1000);
    if (!err) break;
    assert_says("json/training.json: out of memory");
  }
  assert_true(json_limit > 50);
  OK(record_read(dir, &r, &whole));
  assert_true(whole && r.files == 2 && r.seconds == 2);
  for (int i = 0; i < PARTS; i++) assert_true(r.part[i].there);
  record_free(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_saver_snapshot_is_unchanged_by_later_steps),
      cmocka_unit_test(test_saver_snapshot_is_pinned_for_a_device),
      cmocka_unit_test(test_saver_without_pinned_memory_warns_and_saves),
      cmocka_unit_test(test_saver_commit_does_not_wait_and_begin_does),
      cmocka_unit_test(test_saver_file_size_limit_is_error),
      cmocka_unit_test(test_saver_verdict_is_added_to_the_checkpoint),
      cmocka_unit_test(test_saver_verdict_without_a_checkpoint_makes_no_best),
      cmocka_unit_test(test_saver_writes_outputs_of_the_best_validation_alone),
      cmocka_unit_test(test_saver_failed_write_is_remembered_until_one_succeeds),
      cmocka_unit_test_teardown(test_saver_full_disk_keeps_last_checkpoint, remove_disk),
      cmocka_unit_test(test_saver_killed_leaves_whole_checkpoint),
      cmocka_unit_test(test_saver_stopped_at_any_system_call_leaves_whole_checkpoint),
      cmocka_unit_test_setup_teardown(
          test_checkpoint_save_that_fails_at_any_call_keeps_old_or_new_state, make_broken_dir,
          remove_broken_dir),
      cmocka_unit_test_setup_teardown(
          test_checkpoint_save_that_fails_in_a_copied_run_keeps_old_or_new_state,
          make_broken_dir, remove_broken_dir),
      cmocka_unit_test_setup_teardown(
          test_checkpoint_save_with_a_long_path_saves_all_or_nothing, make_broken_dir,
          remove_broken_dir),
      cmocka_unit_test_setup_teardown(test_checkpoint_change_that_fails_at_any_call_is_an_error,
                                      make_broken_dir, remove_broken_dir),
      cmocka_unit_test_setup_teardown(test_average_that_fails_at_any_call_keeps_an_average,
                                      make_broken_dir, remove_broken_dir),
      cmocka_unit_test_setup_teardown(test_saver_that_cannot_remove_older_checkpoints_warns,
                                      make_broken_dir, remove_broken_dir),
      cmocka_unit_test(test_average_of_checkpoints_is_mean_of_weights),
      cmocka_unit_test(test_average_of_one_checkpoint_is_not_made),
      cmocka_unit_test(test_saver_out_of_memory_is_error),
      cmocka_unit_test(test_record_write_out_of_memory_in_json_is_error),
  };
  return cmocka_run_group_tests(tests, set_up_model, tear_down_model);
}
