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
  c->is_capturing = true;
  matmul_begin_capture(&c->matmul);
  return ERR_OK;
}

/* CUDA 13 added a parameter for edge data to these functions; NULL is the default. */
#if CUDART_VERSION >= 13000
#define get_nodes_before(node, list, n) cudaGraphNodeGetDependencies(node, list, NULL, n)
#define get_nodes_after(node, list, n)  cudaGraphNodeGetDependentNodes(node, list, NULL, n)
#define add_edge(graph, from, to)       cudaGraphAddDependencies(graph, from, to, NULL, 1)
#else
#define get_nodes_before(node, list, n) cudaGraphNodeGetDependencies(node, list, n)
#define get_nodes_after(node, list, n)  cudaGraphNodeGetDependentNodes(node, list, n)
#define add_edge(graph, from, to)       cudaGraphAddDependencies(graph, from, to, 1)
#endif

/* Removes a node and connects the node before it with the node after it. Keeps it if several nodes
 * are before or after it, or if that cannot be queried. */
static cudaError_t remove_node(cudaGraph_t graph, cudaGraphNode_t node) {
  cudaGraphNode_t before[2], after[2];
  size_t n_before = 2, n_after = 2;
  if (get_nodes_before(node, before, &n_before) || get_nodes_after(node, after, &n_after) ||
      n_before > 1 || n_after > 1)
    return cudaSuccess;
  cudaError_t e = cudaGraphDestroyNode(node);
  return e || n_before == 0 || n_after == 0 ? e : add_edge(graph, before, after);
}

/* Returns the number of the tile counter that the node sets to 0, or MATMUL_COUNTERS. */
static size_t find_counter(const Cuda *c, cudaGraphNode_t node) {
  enum cudaGraphNodeType type;
  struct cudaMemsetParams set;
  if (cudaGraphNodeGetType(node, &type) || type != cudaGraphNodeTypeMemset ||
      cudaGraphMemsetNodeGetParams(node, &set) || set.value != 0 || set.height != 1)
    return MATMUL_COUNTERS;
  return matmul_find_counter(&c->matmul, set.dst, set.elementSize * set.width);
}

/* Removes cuBLASLt's memsets of tile counters: the first GEMM that has a counter has zeroed all of
 * them. A counter that is set to 0 twice is used twice, so both memsets stay. */
static cudaError_t remove_memsets(const Cuda *c, cudaGraph_t graph, cudaGraphNode_t *node,
                                  size_t nodes) {
  size_t times[MATMUL_COUNTERS + 1] = {0};
  cudaError_t e = cudaGraphGetNodes(graph, node, &nodes);
  if (e) return e;
  for (size_t i = 0; i < nodes; i++) times[find_counter(c, node[i])]++;
  for (size_t i = 0; i < nodes && !e; i++) {
    size_t counter = find_counter(c, node[i]);
    if (counter < MATMUL_COUNTERS && times[counter] == 1) e = remove_node(graph, node[i]);
  }
  (void)cudaGetLastError(); /* of a query that failed */
  return e;
}

static Err graph_end(const Backend *b, Graph **out) {
  Cuda *c = cuda_of(b);
  cudaGraph_t graph = NULL;
  size_t nodes = 0;
  cudaGraphNode_t *node = NULL;
  Graph *r = NULL;
  *out = NULL;
  c->is_capturing = false;
  matmul_end_capture(&c->matmul);
  /* Ends the capture even after an error, so that the stream executes again. The error of the
   * operation that failed is kept, because it is more specific than that of the capture. */
  cuda_note(c, "a graph capture", cudaStreamEndCapture(c->stream, &graph));
  algo_shared_end_use(c->matmul.shared);
  if (!c->failed.code) cuda_note(c, "a graph capture", cudaGraphGetNodes(graph, NULL, &nodes));
  if (!c->failed.code && nodes == 0) {
    cudaGraphDestroy(graph);
    return ERR_OK;
  }
  if (!c->failed.code) cuda_note_err(c, mem_alloc(&node, nodes, sizeof *node));
  if (!c->failed.code) cuda_note(c, "a graph capture", remove_memsets(c, graph, node, nodes));
  mem_free(node);
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
