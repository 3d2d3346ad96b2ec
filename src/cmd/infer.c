/* Options and model directories of commands that apply a model. Depends on train/checkpoint,
 * train/agree. */
#include "cmd/infer.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/out.h"
#include "base/place.h"
#include "train/agree.h"
#include "train/checkpoint.h"

/* Selects a checkpoint of a run: the best one or, if there is none, the newest one that is not
 * damaged. */
static Err find_checkpoint(const char *run, char dir[FILE_PATH_MAX]) {
  char model[FILE_PATH_MAX];
  TRY(file_join(dir, run, "checkpoints/best"));
  TRY(file_join(model, dir, "model.json"));
  bool found = place_exists(model);
  if (found) {
    log_info("model    %s", dir);
    return ERR_OK;
  }
  TRY(checkpoint_find(run, dir, &found));
  if (!found)
    return err_set(ERR_WORK,
                   "%s is a run without a checkpoint: training has saved none yet; wait for "
                   "the first one (--save-every), or continue it with --resume",
                   run);
  log_info(
      "model    %s, the latest checkpoint: the run has not validated, so it has no best one",
      dir);
  return ERR_OK;
}

/* Suggests the best checkpoint of a run for a wrong path inside the run's directory, such as
 * RUN/best. Returns false if there is none. */
static bool find_nearby(const char *given, char best[FILE_PATH_MAX]) {
  char run[FILE_PATH_MAX], model[FILE_PATH_MAX];
  snprintf(run, sizeof run, "%s", given);
  for (char *slash; (slash = strrchr(run, '/')) && slash > run;) {
    *slash = '\0';
    if (file_join(best, run, "checkpoints/best")) return false;
    if (file_join(model, best, "model.json")) return false;
    if (place_exists(model)) return true;
  }
  return false;
}

static Err refuse_missing(const char *option, const char *given) {
  char best[FILE_PATH_MAX];
  if (find_nearby(given, best))
    return err_set(ERR_WORK, "%s%s: there is no such directory; its run has a model in %s",
                   option, given, best);
  return err_set(
      ERR_WORK,
      "%s%s: there is no such directory; give a directory with a model.json: a "
      "run of 'trireme train' (RUN), a checkpoint (RUN/checkpoints/best) or RUN/average",
      option, given);
}

Err infer_find_model(const char *option, const char *given, char dir[FILE_PATH_MAX]) {
  char model[FILE_PATH_MAX], checkpoints[FILE_PATH_MAX];
  TRY(place_check(given));
  TRY(file_join(model, given, "model.json"));
  TRY(file_join(checkpoints, given, "checkpoints"));
  if (!place_exists(given)) return refuse_missing(option, given);
  if (place_exists(model)) {
    memcpy(dir, given, strlen(given) + 1);
    return ERR_OK;
  }
  if (place_type(checkpoints) == PLACE_DIRECTORY) return find_checkpoint(given, dir);
  char config[FILE_PATH_MAX];
  TRY(file_join(config, given, "config.json"));
  if (place_exists(config))
    return err_set(ERR_WORK,
                   "%s%s: it is not a model of trireme, but has a config.json, as models of "
                   "Hugging Face do; import it with 'trireme import --from %s --out DIR'",
                   option, given, given);
  return err_set(ERR_WORK,
                 "%s%s: it is not a model, as it has no model.json; give a run of 'trireme "
                 "train' (RUN), a checkpoint (RUN/checkpoints/best) or RUN/average",
                 option, given);
}

Err infer_check_older_model(const char *dir) {
  char path[FILE_PATH_MAX];
  bool whole;
  TRY(file_join(path, dir, "training.json"));
  if (!place_exists(path)) {
    log_warn(
        "%s is not verified: its model.json, of an earlier version, has no checksums; damage "
        "would not be detected",
        dir);
    return ERR_OK;
  }
  TRY(checkpoint_check(dir, /*model_only=*/true, &whole));
  return whole ? ERR_OK : ERR_WORK; /* err_message() has the reason */
}

/* Reports a wrong --input before a large model is loaded. */
static Err check_input(const char *path) {
  if (strcmp(path, "-") == 0 || access(path, R_OK) == 0) return ERR_OK;
  return err_errno("cannot open", path);
}

/* Opens --output on rank 0. Unlike redirected standard output, write errors are detected under mpirun,
 * and the file appears only when it is complete. */
static Err open_output(const OptSet *opts) {
  const char *path = opt_text(opts, "output");
  const char *input = opt_text(opts, "input");
  struct stat from, to;
  if (strcmp(path, "-") == 0) return ERR_OK;
  if (strcmp(input, "-") != 0 && stat(input, &from) == 0 && stat(path, &to) == 0 &&
      from.st_dev == to.st_dev && from.st_ino == to.st_ino)
    return err_set(ERR_USAGE, "--output %s is the --input too; pass another file", path);
  return out_to(path, input);
}

Err infer_check_files(const OptSet *opts, const Comm *comm) {
  if (!opt_text(opts, "model"))
    return err_set(
        ERR_USAGE,
        "no model given: pass --model DIR, a run, a checkpoint or a model directory");
  if (comm_rank(comm) != 0) return ERR_OK;
  TRY(check_input(opt_text(opts, "input")));
  return open_output(opts);
}

Err infer_end_output(Err err) {
  if (!err) err = out_finish();
  if (err) out_give_up();
  if (!err || !out_partial()) return err;
  log_warn("--output is not complete: what was finished before the error is in %s",
           out_partial());
  return err;
}

Err infer_open_backend(Backend *backend, const OptSet *opts, const Comm *comm) {
  BackendSpec spec = {opt_text(opts, "device"), opt_text(opts, "precision"),
                      (int)opt_count(opts, "threads")};
  if (!spec.threads && comm_size(comm) > 1) spec.threads = comm_threads(comm);
  TRY(backend_open_for_rank(backend, &spec, comm_local_rank(comm)));
  if (!backend->host) log_info("device   %s", backend->about);
  return ERR_OK;
}

Err infer_agree(Comm *comm, const OptSet *opts, const char *dir) {
  if (comm_size(comm) == 1) return ERR_OK;
  char path[FILE_PATH_MAX], hash[65];
  Str options = {0};
  Err err;
  opt_record(opts, &options);
  TRY_DONE(str_check(&options));
  /* model.json contains the checksums of the other files. */
  TRY_DONE(file_join(path, dir, "model.json"));
  TRY_DONE(place_sha256(path, hash));
  err = agree_ranks(comm, str_text(&options), "model-hash", hash);
done:
  str_free(&options);
  return err;
}
