/* The test of the networks between the members of a generation. The supervisor's array of
 * machines changes, so the test has copies of their address lists, and each machine stores its
 * index in the test. Depends on network_proof, machine, protocol. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "launch/protocol.h"
#include "launch/supervisor_internal.h"

static Machine *find_in_proof(Supervisor *s, size_t index) {
  for (size_t i = 0; i < s->machines; i++)
    if (s->machine[i].proof == (int)index) return &s->machine[i];
  return NULL;
}

/* Sends a message to a member. If the machine cannot be reached, its channel will report
 * that. */
static Err send_to_member(void *context, size_t index, uint8_t type, json_t *body) {
  Machine *m = find_in_proof(context, index);
  if (m)
    supervisor_send(m, type, body);
  else
    json_decref(body);
  return ERR_OK;
}

static Err copy_members(Supervisor *s, size_t members) {
  size_t count = 0;
  TRY(mem_alloc(&s->proof_member, members, sizeof *s->proof_member));
  TRY(mem_alloc(&s->proof_list, members, sizeof *s->proof_list));
  for (size_t i = 0; i < s->machines; i++) {
    Machine *m = &s->machine[i];
    m->proof = -1;
    if (!m->is_member || count == members) continue;
    char *name;
    TRY(mem_dup(&name, m->name, strlen(m->name)));
    s->proof_list[count] = m->networks;
    s->proof_member[count] = (NetworkMachine){name, &s->proof_list[count]};
    s->proof_members = count + 1;
    m->proof = (int)count++;
  }
  return ERR_OK;
}

Err supervisor_begin_proof(Supervisor *s, size_t members, double now) {
  supervisor_end_proof(s);
  TRY(copy_members(s, members));
  return network_proof_begin(&s->proof, s->proof_member, members, s->spec.network,
                             s->network[0] ? s->network : NULL,
                             (NetworkLink){send_to_member, s}, now);
}

Err supervisor_handle_proof(Supervisor *s, const Machine *m, uint8_t type, const json_t *body,
                            double now) {
  if (!s->proof || m->proof < 0) return ERR_OK;
  return network_proof_handle(s->proof, (size_t)m->proof, type, body, now);
}

Err supervisor_continue_proof(Supervisor *s, double now, bool *is_done, char *include,
                              size_t room) {
  TRY(network_proof_advance(s->proof, now, is_done));
  if (!*is_done) return ERR_OK;
  const Network *n = network_proof_result(s->proof);
  memcpy(s->network, n->cidr, sizeof s->network);
  for (size_t i = 0; i < s->proof_members; i++) {
    Machine *m = find_in_proof(s, i);
    if (!m) continue;
    snprintf(m->address, sizeof m->address, "%s", n->member[i]->address);
    memcpy(m->card, n->member[i]->card, sizeof m->card);
  }
  return network_mpi_include(n, s->proof_members, include, room);
}

void supervisor_end_proof(Supervisor *s) {
  ErrRecord kept = err_copy();
  network_proof_end(s->proof);
  for (size_t i = 0; i < s->machines; i++) s->machine[i].proof = -1;
  for (size_t i = 0; i < s->proof_members; i++)
    mem_free((void *)(uintptr_t)s->proof_member[i].name);
  mem_free(s->proof_member);
  mem_free(s->proof_list);
  s->proof = NULL;
  s->proof_member = NULL;
  s->proof_list = NULL;
  s->proof_members = 0;
  if (kept.code) err_give(&kept);
}

void supervisor_abandon_proof(Supervisor *s, double now) {
  supervisor_end_proof(s);
  for (size_t i = 0; i < s->machines; i++) s->machine[i].is_member = false;
  supervisor_enter(s, PHASE_GATHER, now);
}
