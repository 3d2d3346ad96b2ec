/* Work recorded and replayed: CUDA graphs of the compute stream. Nothing is done while one
 * is recorded, so what has to happen at once (memory, copies, waiting, timing) is refused
 * then; see cuda_refuses. TRIREME_GRAPH=0 does without. Depends on memory. */
#include "backend/cuda/record.h"

#include <stdlib.h>

#include "backend/cuda/memory.h"
#include "base/mem.h"

struct Graph {
  cudaGraphExec_t graph;
};

/* The stream takes work again after a recording, however it ended. */
static void end(Cuda *c) {
  c->recording = c->products.settled = false;
}

/* The capture is this thread's: what other threads ask of the GPU is their business. */
static Err record(const Backend *b) {
  Cuda *c = cuda_of(b);
  if (c->failed.code) return err_give(&c->failed);
  cuda_note(c, "beginning to record",
            cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal));
  if (c->failed.code) return err_give(&c->failed);
  c->recording = c->products.settled = true;
  return ERR_OK;
}

static Err recorded(const Backend *b, Graph **out) {
  Cuda *c = cuda_of(b);
  cudaGraph_t graph = NULL;
  Graph *r = NULL;
  *out = NULL;
  end(c);
  /* First of all: it frees the stream, and an operation that failed has told more. */
  cuda_note(c, "recording", cudaStreamEndCapture(c->stream, &graph));
  if (!c->failed.code) cuda_note_err(c, mem_alloc(&r, 1, sizeof *r));
  if (!c->failed.code)
    cuda_note(c, "making a recording ready",
              cudaGraphInstantiateWithFlags(&r->graph, graph, 0));
  if (!c->failed.code)
    cuda_note(c, "taking a recording in", cudaGraphUpload(r->graph, c->stream));
  if (graph) cudaGraphDestroy(graph);
  if (c->failed.code) {
    (void)cudaGetLastError();
    if (r && r->graph) cudaGraphExecDestroy(r->graph);
    mem_free(r);
    (void)err_give(&c->failed);
    return err_context("a step could not be recorded; TRIREME_GRAPH=0 does without");
  }
  c->recordings++;
  *out = r;
  return ERR_OK;
}

static void replay(const Backend *b, Graph *r) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "replaying", cudaGraphLaunch(r->graph, c->stream));
}

/* CUDA keeps what is still under way until it is done. */
static void forget(const Backend *b, Graph *r) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "forgetting a recording", cudaGraphExecDestroy(r->graph));
  c->recordings--;
  mem_free(r);
}

void cuda_records(Backend *b) {
  const char *wanted = getenv("TRIREME_GRAPH");
  if (wanted && wanted[0] == '0' && !wanted[1]) return;
  b->graph_begin = record, b->graph_end = recorded, b->graph_launch = replay,
  b->graph_free = forget;
}
