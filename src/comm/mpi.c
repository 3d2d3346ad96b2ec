/* The MPI transport, built as a plug-in: libtrireme-mpi.so. Depends on MPI alone. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "base/plugin.h"
#include "comm/transport.h"

__attribute__((visibility("default"))) const char trireme_plugin_version[] = PLUGIN_VERSION;

_Static_assert(sizeof(MPI_Request) <= sizeof(void *),
               "an MPI_Request fits into a TransportRequest");

static MPI_Comm world;

static const char *explain_error(int code) {
  static char text[MPI_MAX_ERROR_STRING];
  int len;
  if (code == MPI_SUCCESS) return NULL;
  if (MPI_Error_string(code, text, &len) != MPI_SUCCESS) return "an unknown MPI error";
  return text;
}

static MPI_Request get_request(const TransportRequest *r) {
  MPI_Request request;
  memcpy(&request, &r->handle, sizeof request);
  return request;
}

static void set_request(TransportRequest *r, MPI_Request request) {
  memcpy(&r->handle, &request, sizeof request);
}

static const char *begin_mpi(TransportInfo *info) {
  int provided, len, found = 0, *tag_max;
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  const char *wrong =
      explain_error(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided));
  if (wrong) return wrong;
  info->any_thread = provided >= MPI_THREAD_SERIALIZED;
  world = MPI_COMM_WORLD;
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

/* Duplicates MPI_COMM_WORLD, so that other users of MPI in this process cannot receive our
 * messages. */
static const char *separate_messages(void) {
  return explain_error(MPI_Comm_dup(MPI_COMM_WORLD, &world));
}

static const char *send_message(int to, int tag, const void *bytes, size_t n,
                                TransportRequest *r) {
  MPI_Request request;
  int code = MPI_Isend(bytes, (int)n, MPI_BYTE, to, tag, world, &request);
  if (code == MPI_SUCCESS) set_request(r, request);
  return explain_error(code);
}

static const char *receive_message(int from, int tag, void *bytes, size_t n,
                                   TransportRequest *r) {
  MPI_Request request;
  int code = MPI_Irecv(bytes, (int)n, MPI_BYTE, from, tag, world, &request);
  if (code == MPI_SUCCESS) set_request(r, request);
  return explain_error(code);
}

static const char *test_request(TransportRequest *r, bool *done) {
  MPI_Request request = get_request(r);
  int flag = 0, code = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
  set_request(r, request);
  *done = flag != 0;
  return explain_error(code);
}

static void abandon_request(TransportRequest *r) {
  MPI_Request request = get_request(r);
  if (request == MPI_REQUEST_NULL) return;
  MPI_Cancel(&request);
  MPI_Request_free(&request);
}

static void abort_ranks(int status) {
  MPI_Abort(world, status);
}

static void end_mpi(void) {
  if (world != MPI_COMM_WORLD) MPI_Comm_free(&world);
  MPI_Finalize();
}

__attribute__((visibility("default")))
const Transport trireme_transport = {.begin = begin_mpi,
                                     .separate = separate_messages,
                                     .send = send_message,
                                     .recv = receive_message,
                                     .test = test_request,
                                     .abandon = abandon_request,
                                     .abort = abort_ranks,
                                     .end = end_mpi};
