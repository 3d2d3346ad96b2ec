/* The MPI carrier, built as a plug-in: libtrireme-mpi.so. Relies on MPI alone. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "base/plugin.h"
#include "comm/carrier.h"

__attribute__((visibility("default"))) const char trireme_plugin_version[] = PLUGIN_VERSION;

_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request fits its handle");

static MPI_Comm world;

static const char *explain(int code) {
  static char text[MPI_MAX_ERROR_STRING];
  int len;
  if (code == MPI_SUCCESS) return NULL;
  if (MPI_Error_string(code, text, &len) != MPI_SUCCESS) return "an unknown MPI error";
  return text;
}

static MPI_Request get(const CarrierRequest *r) {
  MPI_Request request;
  memcpy(&request, &r->handle, sizeof request);
  return request;
}

static void set(CarrierRequest *r, MPI_Request request) {
  memcpy(&r->handle, &request, sizeof request);
}

static const char *begin(CarrierInfo *info) {
  int provided, len, found = 0, *tag_max;
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  const char *wrong = explain(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided));
  if (wrong) return wrong;
  info->any_thread = provided >= MPI_THREAD_SERIALIZED;
  /* A duplicate: nothing else in the process can meet our messages. */
  if ((wrong = explain(MPI_Comm_dup(MPI_COMM_WORLD, &world)))) return wrong;
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  MPI_Comm_rank(world, &info->rank);
  MPI_Comm_size(world, &info->size);
  MPI_Comm_get_attr(world, MPI_TAG_UB, &tag_max, &found);
  info->tag_max = found ? *tag_max : 32767;
  MPI_Get_library_version(version, &len);
  version[strcspn(version, ",\n")] = '\0';
  snprintf(info->about, sizeof info->about, "%.63s", version);
  return NULL;
}

static const char *send(int to, int tag, const void *bytes, size_t n, CarrierRequest *r) {
  MPI_Request request;
  int code = MPI_Isend(bytes, (int)n, MPI_BYTE, to, tag, world, &request);
  if (code == MPI_SUCCESS) set(r, request);
  return explain(code);
}

static const char *receive(int from, int tag, void *bytes, size_t n, CarrierRequest *r) {
  MPI_Request request;
  int code = MPI_Irecv(bytes, (int)n, MPI_BYTE, from, tag, world, &request);
  if (code == MPI_SUCCESS) set(r, request);
  return explain(code);
}

static const char *test(CarrierRequest *r, bool *done) {
  MPI_Request request = get(r);
  int flag = 0, code = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
  set(r, request);
  *done = flag != 0;
  return explain(code);
}

static void abandon(CarrierRequest *r) {
  MPI_Request request = get(r);
  if (request == MPI_REQUEST_NULL) return;
  MPI_Cancel(&request);
  MPI_Request_free(&request);
}

static void abort_all(int status) {
  MPI_Abort(world, status);
}

static void end(void) {
  MPI_Comm_free(&world);
  MPI_Finalize();
}

__attribute__((visibility("default")))
const Carrier trireme_carrier = {begin, send, receive, test, abandon, abort_all, end};
