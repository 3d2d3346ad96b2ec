/* CUDA graphs of the compute stream. During a capture nothing executes, so operations that must
 * execute immediately (allocation, copies to and from the host, synchronization, timing) are
 * refused; see cuda_refuses(). TRIREME_GRAPH=0 disables graphs. Depends on memory.h. */
#include "backend/cuda/graph.h"

#include <stdlib.h>

#include "backend/cuda/memory.h"
#include "base/mem.h"

struct Graph {
  cudaGraphExec_t graph;
};

static void set_capturing(Cuda *c, bool is_capturing) {
  c->is_capturing = is_capturing;
  c->matmul.is_capturing = is_capturing;
}

/* Begins a capture in thread-local mode: calls of other threads (NCCL, the saver) do not
 * invalidate it. */
static Err graph_begin(const Backend *b) {
  Cuda *c = cuda_of(b);
  if (c->failed.code) return err_give(&c->failed);
  algo_shared_begin_use(c->matmul.shared);
  cuda_note(c, "starting a graph capture",
            cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal));
  if (c->failed.code) {
    algo_shared_end_use(c->matmul.shared);
    return err_give(&c->failed);
  }
  set_capturing(c, true);
  return ERR_OK;
}

static Err graph_end(const Backend *b, Graph **out) {
  Cuda *c = cuda_of(b);
  cudaGraph_t graph = NULL;
  size_t nodes = 0;
  Graph *r = NULL;
  *out = NULL;
  set_capturing(c, false);
  /* Ends the capture even after an error, so that the stream executes again. The error of the
   * operation that failed is kept, because it is more specific than that of the capture. */
  cuda_note(c, "a graph capture", cudaStreamEndCapture(c->stream, &graph));
  algo_shared_end_use(c->matmul.shared);
  if (!c->failed.code) cuda_note(c, "a graph capture", cudaGraphGetNodes(graph, NULL, &nodes));
  if (!c->failed.code && nodes == 0) {
    cudaGraphDestroy(graph);
    return ERR_OK;
  }
  if (!c->failed.code) cuda_note_err(c, mem_alloc(&r, 1, sizeof *r));
  if (!c->failed.code)
    cuda_note(c, "instantiating a graph", cudaGraphInstantiateWithFlags(&r->graph, graph, 0));
  if (!c->failed.code) cuda_note(c, "uploading a graph", cudaGraphUpload(r->graph, c->stream));
  if (graph) cudaGraphDestroy(graph);
  if (c->failed.code) {
    (void)cudaGetLastError();
    if (r && r->graph) cudaGraphExecDestroy(r->graph);
    mem_free(r);
    (void)err_give(&c->failed);
    return err_context("cannot capture a CUDA graph; set TRIREME_GRAPH=0 to do without");
  }
  c->graphs++;
  *out = r;
  return ERR_OK;
}

static void graph_launch(const Backend *b, Graph *r) {
  Cuda *c = cuda_of(b);
  algo_shared_begin_use(c->matmul.shared);
  cuda_note(c, "launching a graph", cudaGraphLaunch(r->graph, c->stream));
  algo_shared_end_use(c->matmul.shared);
}

/* Frees a graph. CUDA destroys a graph that is still running when it is done. */
static void graph_free(const Backend *b, Graph *r) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "destroying a graph", cudaGraphExecDestroy(r->graph));
  c->graphs--;
  mem_free(r);
}

void cuda_fill_graphs(Backend *b) {
  const char *wanted = getenv("TRIREME_GRAPH");
  if (wanted && wanted[0] == '0' && !wanted[1]) return;
  b->graph_begin = graph_begin;
  b->graph_end = graph_end;
  b->graph_launch = graph_launch;
  b->graph_free = graph_free;
}
