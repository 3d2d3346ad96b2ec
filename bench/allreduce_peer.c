/* The baseline for `trireme bench allreduce`: in-place MPI_Allreduce of floats, with the same
 * sizes and about the same time per size. Prints bytes and microseconds. Built and run by
 * bench/allreduce. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define LEAST ((size_t)4096)

static double time_of(float *x, size_t n, int times) {
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (int i = 0; i < times; i++)
    MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  double mean = (MPI_Wtime() - start) / times;
  MPI_Allreduce(MPI_IN_PLACE, &mean, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return mean;
}

int main(int argc, char **argv) {
  int rank;
  MPI_Init(&argc, &argv);
  double seconds = argc > 1 ? atof(argv[1]) : 0.3; /* seconds per size */
  /* largest size in bytes */
  size_t largest = argc > 2 ? (size_t)atoll(argv[2]) : (size_t)256 << 20;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  float *x = calloc(largest, 1);
  if (!x) MPI_Abort(MPI_COMM_WORLD, 1);
  for (size_t bytes = LEAST; bytes <= largest; bytes *= 4) {
    size_t n = bytes / sizeof *x;
    /* The number of repetitions is the same on all ranks. */
    double once = time_of(x, n, 2), times = seconds / once;
    double mean = time_of(x, n, times < 1 ? 1 : times > 1e5 ? 100000 : (int)times);
    if (rank == 0) printf("%zu %.1f\n", bytes, 1e6 * mean);
  }
  free(x);
  MPI_Finalize();
}
