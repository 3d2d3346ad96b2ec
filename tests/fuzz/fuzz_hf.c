/* JSON files of Hugging Face as hostile bytes. The first byte selects the file: config.json,
 * tokenizer.json, tokenizer_config.json, the list of the files of weights, or vocab.json of MarianMT. What is
 * accepted is in range: a configuration is that of a model, a vocabulary has ids without gaps, labels are
 * lines. Depends on format, model/hf_bert, model/marian. */
#include "base/file.h"
#include "format/hf_wordpiece.h"
#include "format/tensors.h"
#include "fuzz_file.h"
#include "model/hf_bert.h"
#include "model/marian.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json",
                                    "model.safetensors.index.json", "vocab.json"};
#define FILES (sizeof files / sizeof *files)

static char dir[] = "/tmp/trireme-fuzz-hf-XXXXXX";

/* Links a file of tests/golden into the directory. */
static void add_golden(const char *from, const char *name) {
  char path[FILE_PATH_MAX], target[FILE_PATH_MAX], golden[128];
  snprintf(golden, sizeof golden, "tests/golden/%s/%s", from, name);
  REQUIRE(realpath(golden, target));
  REQUIRE(!file_join(path, dir, name));
  REQUIRE(symlink(target, path) == 0);
}

static void make_directory(void) {
  static bool is_made;
  if (is_made) return;
  REQUIRE(mkdtemp(dir));
  is_made = true;
  add_golden("marian/hf", "source.spm");
  add_golden("marian/hf", "target.spm");
  add_golden("bert_import/base", "model-00001-of-00004.safetensors");
  add_golden("bert_import/base", "model-00004-of-00004.safetensors");
}

/* Writes the file `kind`; the other files that are fuzzed do not exist. */
static void write_file(size_t kind, const uint8_t *data, size_t size) {
  char path[FILE_PATH_MAX];
  for (size_t i = 0; i < FILES; i++) {
    REQUIRE(!file_join(path, dir, files[i]));
    unlink(path);
  }
  REQUIRE(!file_join(path, dir, files[kind]));
  FILE *f = fopen(path, "wb");
  REQUIRE(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static size_t count_lines(const Str *text) {
  size_t lines = 0;
  for (size_t i = 0; i < text->len; i++) lines += text->s[i] == '\n';
  return lines;
}

static void read_config(void) {
  HfConfig hf;
  TransformerConfig marian;
  if (hf_open(&hf, dir)) return;
  if (!marian_read_config(&marian, &hf)) REQUIRE(marian.d_model % marian.heads == 0);
  for (int form = 0; form < HF_BERT_FORMS; form++) {
    BertConfig c;
    Str labels = {0};
    if (hf_bert_read_config(&c, (HfBertForm)form, &hf)) continue;
    REQUIRE(!bert_check_config(&c));
    REQUIRE(c.position_offset < c.max_positions);
    if (!hf_print_labels(&hf, c.labels, &labels))
      REQUIRE(count_lines(&labels) == (size_t)c.labels);
    str_free(&labels);
  }
  hf_close(&hf);
}

static void read_vocab(void) {
  Str vocab = {0};
  BertRules rules = {0};
  if (!hf_read_wordpiece(dir, &vocab, &rules)) REQUIRE(count_lines(&vocab) > 0);
  str_free(&vocab);
}

static void read_index(void) {
  TensorSource source;
  if (tensors_open(&source, dir)) return;
  for (size_t i = 0; i < source.entries; i++) {
    float out[4096];
    uint64_t count = 1;
    const TensorEntry *e = &source.entry[i];
    for (int k = 0; k < e->dimensions; k++) count *= e->shape[k];
    if (count <= sizeof out / sizeof *out) (void)!tensors_read(&source, e, out, count);
  }
  tensors_close(&source);
}

static void read_pair(void) {
  Tokenizer t;
  IdList ids = {0};
  if (tokenizer_open_pair(&t, dir)) return;
  if (!tokenizer_encode(&t, "a man", 5, &ids)) {
    for (size_t i = 0; i < ids.len; i++) REQUIRE(ids.id[i] >= 0 && ids.id[i] < t.vocab);
  }
  ids_free(&ids);
  tokenizer_close(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static void (*const readers[FILES])(void) = {read_config, read_vocab, read_vocab, read_index,
                                               read_pair};
  if (size == 0) return 0;
  make_directory();
  size_t kind = data[0] % FILES;
  write_file(kind, data + 1, size - 1);
  readers[kind]();
  return 0;
}
