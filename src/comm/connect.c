/* Exchanges an empty message between each pair of ranks, within a time limit. Depends on group,
 * heartbeat, transport. */
#include "comm/connect.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/progress.h"
#include "comm/heartbeat.h"
#include "comm/sequence.h"

#define LISTED 8 /* ranks that the error names */

/* The messages are empty: after an error no buffer must outlive their requests. */
typedef struct {
  TransportRequest send, receive;
  bool is_sending, is_receiving;
} Contact;

/* Sets *is_pending to false when the request is complete. */
static const char *test_pending(const Transport *t, TransportRequest *request,
                                bool *is_pending) {
  bool done = false;
  if (!*is_pending) return NULL;
  const char *wrong = t->test(request, &done);
  if (!wrong && done) *is_pending = false;
  return wrong;
}

static Err report_error(const char *wrong, int rank) {
  return err_set(ERR_WORK, "MPI cannot exchange messages with rank %d: %s", rank, wrong);
}

static Err start_contact(const Group *g, Contact *contact, int r) {
  Contact *c = &contact[r];
  const char *wrong = g->transport->recv(r, TAG_HEARTBEAT, NULL, 0, &c->receive);
  if (wrong) return report_error(wrong, r);
  c->is_receiving = true;
  wrong = g->transport->send(r, TAG_HEARTBEAT, NULL, 0, &c->send);
  if (wrong) return report_error(wrong, r);
  c->is_sending = true;
  return ERR_OK;
}

static Err count_pending(const Group *g, Contact *contact, int *pending) {
  *pending = 0;
  for (int r = 0; r < g->size; r++) {
    Contact *c = &contact[r];
    const char *wrong = test_pending(g->transport, &c->receive, &c->is_receiving);
    if (!wrong) wrong = test_pending(g->transport, &c->send, &c->is_sending);
    if (wrong) return report_error(wrong, r);
    *pending += c->is_receiving || c->is_sending;
  }
  return ERR_OK;
}

/* The error names at most LISTED of the `pending` ranks: "rank 1, rank 5, and 3 more". */
static Err report_silence(const Group *g, const Contact *contact, int pending, double limit) {
  char list[LISTED * 24 + 32] = "";
  size_t len = 0;
  int listed = 0;
  for (int r = 0; r < g->size && listed < LISTED; r++) {
    if (!contact[r].is_receiving && !contact[r].is_sending) continue;
    len += (size_t)snprintf(list + len, sizeof list - len, "%srank %d", listed ? ", " : "", r);
    listed++;
  }
  if (pending > listed)
    snprintf(list + len, sizeof list - len, ", and %d more", pending - listed);
  Identity own;
  identity_read(&own);
  return err_set(
      ERR_WORK,
      "MPI does not connect rank %d on %s with %s: no message within %.0f s, although "
      "all processes have started. Open MPI knows only the first address of a network card "
      "and drops connections from another one, and a firewall may block its ports: remove the "
      "second address, make that of the same network the first on all machines, or choose "
      "another network (--network of trireme launch, or mpirun --mca btl_tcp_if_include); "
      "'trireme doctor' tests the network",
      g->rank, own.host, list, limit);
}

Err connect_ranks(const Group *g, double limit) {
  Contact *contact;
  double begin = progress_clock();
  int pending = 0;
  TRY(mem_alloc(&contact, (size_t)g->size, sizeof *contact));
  Err err = ERR_OK;
  for (int r = 0; r < g->size && !err; r++)
    if (r != g->rank) err = start_contact(g, contact, r);
  if (!err) err = count_pending(g, contact, &pending);
  while (!err && pending) {
    if (progress_clock() - begin > limit) {
      err = report_silence(g, contact, pending, limit);
      break;
    }
    sleep_seconds(0.001);
    err = count_pending(g, contact, &pending);
  }
  mem_free(contact);
  return err;
}
