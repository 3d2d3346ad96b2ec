/* The ranks of prepare, and data sets that are complete already. Depends on data/ranks, comm,
 * train/agree. */
#include "cmd/prepare_ranks.h"

#include "base/file.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "data/prepare.h"
#include "train/agree.h"

#define RANK_TIMEOUT 6 /* seconds without a heartbeat after which a rank is lost */

Err prepare_check_out_given(const OptSet *opts) {
  const char *out = opt_text(opts, "out");
  if (out && out[0]) return ERR_OK;
  return err_set(ERR_USAGE, "pass the directory of the data set to make: --out DIR");
}

/* The collectives of comm with the signatures of data/ranks.h. */

static const char *host_of(void *comm, int rank) {
  return comm_host(comm, rank);
}

/* Reports progress without a time limit: reading text, learning a vocabulary and writing take a
 * time that depends on the text and the disk. */
static void report_place(void *comm, const char *place) {
  comm_report(comm, COMM_NO_LIMIT, "%s", place);
}

static void broadcast_bytes(void *comm, const char *name, void *bytes, size_t n) {
  comm_broadcast(comm, name, bytes, n);
}

static void allgather_bytes(void *comm, const char *name, void *all, const size_t *off) {
  comm_allgather(comm, name, all, off);
}

static void exchange_bytes(void *comm, const char *name, const void *const *send,
                           const size_t *send_n, void *const *recv, const size_t *recv_n) {
  comm_exchange(comm, name, send, send_n, recv, recv_n);
}

static Ranks make_ranks(Comm *comm) {
  return (Ranks){.rank = comm_rank(comm),
                 .count = comm_size(comm),
                 .context = comm,
                 .host = host_of,
                 .report = report_place,
                 .broadcast = broadcast_bytes,
                 .allgather = allgather_bytes,
                 .exchange = exchange_bytes};
}

/* Ends communication. If all ranks have the same error, rank 0 prints it before any rank exits,
 * because mpirun kills the other ranks when one exits with an error. */
static void leave_ranks(Comm *comm, const Ranks *ranks, Err err) {
  bool is_agreed = err && ranks && ranks->has_agreed_error;
  if (is_agreed) {
    log_speaker(""); /* the error text already names the rank */
    if (ranks->rank == 0) log_error("%s", err_message());
    log_mute();
  }
  comm_close(comm, is_agreed ? ERR_OK : err);
}

static Err agree_on_options(Comm *comm, const OptSet *opts) {
  Str options = {0};
  opt_record(opts, &options);
  Err err = str_check(&options);
  if (!err) err = agree_ranks(comm, str_text(&options), "command", "prepare");
  str_free(&options);
  return err;
}

static bool is_complete(const char *out) {
  char path[FILE_PATH_MAX];
  return file_join(path, out, "dataset.json") == ERR_OK && file_exists(path);
}

static Err check_complete(OptSet *opts, PrepareCompare compare) {
  const char *out = opt_text(opts, "out");
  Str differences = {0};
  Err err = compare(opts, &differences);
  if (!err && differences.len)
    err = err_set(ERR_WORK,
                  "%s is complete, but was made with other options: %s; give the same options, "
                  "or another --out",
                  out, str_text(&differences));
  if (!err) err = prepare_tidy(out);
  str_free(&differences);
  return err;
}

Err prepare_find_complete(OptSet *opts, Ranks *ranks, PrepareCompare compare, bool *is_done) {
  const char *out = opt_text(opts, "out");
  TRY(ranks_agree(ranks, prepare_check_out_given(opts)));
  uint8_t done = ranks_is_first(ranks) && opt_flag(opts, "resume") && is_complete(out);
  ranks_broadcast(ranks, "data set is complete", &done, sizeof done);
  *is_done = done;
  if (!done) return ERR_OK;
  TRY(ranks_agree(ranks, ranks_is_first(ranks) ? check_complete(opts, compare) : ERR_OK));
  log_info("%s is complete: there is nothing to resume", out);
  return ERR_OK;
}

Err prepare_on_ranks(OptSet *opts, PrepareSet prepare) {
  Comm *comm;
  TRY(comm_open(&comm, RANK_TIMEOUT));
  cmd_introduce(comm);
  comm_set_remedy(comm, "continue with --resume");
  Ranks ranks = make_ranks(comm), *shared = comm_size(comm) > 1 ? &ranks : NULL;
  Err err = agree_on_options(comm, opts);
  if (!err) err = prepare(opts, comm, shared);
  leave_ranks(comm, shared, err);
  return err;
}
