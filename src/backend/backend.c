/* Opens the backend that --device and --precision name: the CPU, or a GPU through the CUDA
 * plug-in. Depends on backend/cpu, base/plugin. */
#include "backend/backend.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/log.h"
#include "base/plugin.h"

#define PLUGIN "libtrireme-cuda.so"

typedef enum { FP32, TF32, BF16, FP16, FP8 } Precision;

static Err read_precision(const char *text, Precision *precision) {
  static const char *const names[] = {"fp32", "tf32", "bf16", "fp16", "fp8"};
  for (int i = 0; i < 5; i++) {
    if (strcmp(text, names[i]) == 0) {
      *precision = (Precision)i;
      return ERR_OK;
    }
  }
  return err_set(ERR_USAGE,
                 "unknown --precision '%s'; valid values: fp32, tf32, bf16, fp16, fp8", text);
}

/* Parses "auto", "cpu", "cuda" and "cuda:N". *number receives the index of the GPU, or -1 for the
 * CPU. *any receives true if the plug-in may take *number modulo the number of GPUs. */
static Err read_device(const char *text, int local_rank, int *number, bool *any) {
  *number = -1;
  *any = strcmp(text, "auto") == 0 || strcmp(text, "cuda") == 0;
  if (*any) *number = local_rank;
  if (*any || strcmp(text, "cpu") == 0) return ERR_OK;
  char *end = NULL;
  long n = strncmp(text, "cuda:", 5) == 0 ? strtol(text + 5, &end, 10) : -1;
  if (!end || end == text + 5 || *end || text[5] < '0' || text[5] > '9' || n < 0 || n > 1023)
    return err_set(ERR_USAGE,
                   "unknown --device '%s'; valid values: auto, cpu, cuda, cuda:N (N: index of "
                   "a GPU)",
                   text);
  *number = (int)n;
  return ERR_OK;
}

static Err open_cpu(Backend *b, const BackendSpec *spec, Precision precision) {
  if (precision == TF32 || precision == FP16 || precision == FP8)
    return err_set(
        ERR_USAGE,
        "--precision %s is not available on the CPU; use --precision fp32 or bf16, or "
        "--device cuda",
        spec->precision);
  return backend_cpu(b, spec->threads, precision == BF16);
}

/* Loads the CUDA plug-in, which stays loaded until the program ends: the CUDA runtime has threads
 * and exit handlers that do not survive dlclose. */
static Err open_cuda(Backend *b, int device, bool any, Precision precision) {
  static Plugin plugin;
  static const Type types[] = {TYPE_F32, TYPE_F32, TYPE_BF16, TYPE_F16, TYPE_BF16};
  CudaOpen *open;
  if (!plugin.handle) TRY(plugin_open(&plugin, PLUGIN));
  TRY(plugin_symbol(&plugin, "trireme_backend_cuda", &open));
  CudaSpec spec = {sizeof *b,         device,          any, types[precision],
                   precision == TF32, precision == FP8};
  return open(b, &spec);
}

/* Returns true if a driver is installed. The device files are those of the desktop and server driver, of
 * Jetson and of WSL 2. */
static bool has_driver(void) {
  static const char *const devices[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-ctrl",
                                        "/dev/nvgpu", "/dev/dxg"};
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
    if (file_exists(devices[i])) return true;
  }
  return false;
}

/* Returns true if the driver or the plug-in is installed. Only then is it logged why no GPU is used. */
static bool is_gpu_expected(void) {
  return has_driver() || plugin_exists(PLUGIN);
}

bool backend_expects_gpu(const char *device) {
  if (strcmp(device, "auto") != 0) return strcmp(device, "cpu") != 0;
  return has_driver() && plugin_exists(PLUGIN);
}

Err backend_open(Backend *b, const BackendSpec *spec) {
  return backend_open_for_rank(b, spec, 0);
}

Err backend_open_for_rank(Backend *b, const BackendSpec *spec, int local_rank) {
  Precision precision = FP32;
  int device = -1;
  bool any = false;
  *b = (Backend){0};
  TRY(read_precision(spec->precision, &precision));
  TRY(read_device(spec->device, local_rank, &device, &any));
  if (device < 0) return open_cpu(b, spec, precision);
  Err err = open_cuda(b, device, any, precision);
  if (!err || err == ERR_USAGE) return err;
  if (strcmp(spec->device, "auto") != 0)
    return err_set(err, "--device %s is not available: %s; --device cpu works everywhere",
                   spec->device, err_message());
  ErrRecord why = err_take(err); /* is_gpu_expected() may overwrite the current error */
  if (is_gpu_expected()) log_info("no GPU is used: %s", why.text);
  return open_cpu(b, spec, precision);
}

Err backend_check_fp8(const Backend *b, size_t d_model, size_t ffn_dim, size_t tokens) {
  if (!b->fp8 || (backend_takes_fp8(tokens, d_model, d_model) && ffn_dim % FP8_MULTIPLE == 0))
    return ERR_OK;
  return err_set(ERR_USAGE,
                 "--precision fp8 needs --d-model %d or more, --d-model and --ffn-dim in "
                 "multiples of %d, and --batch-tokens %d or more; this model has %zu, %zu and "
                 "%zu: use --precision bf16",
                 FP8_MIN_DIM, FP8_MULTIPLE, FP8_MIN_TOKENS, d_model, ffn_dim, tokens);
}

void backend_close(Backend *b) {
  if (b->close) b->close(b);
  *b = (Backend){0};
}
