/* Files of torch.save: tensors of files that PyTorch wrote (tests/golden/torch), pickles that want to
 * run code, and damaged files. */
#include <stdio.h>

#include "base/mem.h"
#include "format/torch_file.h"
#include "support.h"
#include "zip_support.h"

#define GOLDEN "tests/golden/torch/"

/* A pickle as a string literal. */
#define PICKLE(text) text, sizeof(text) - 1

/* Parts of a state dict {"w": tensor of 2 x 3 floats}. */
#define STORAGE(numel)                                    \
  "((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0" \
  "0X\x03\0\0\0cpu" numel "tQ"
#define TENSOR_BEGIN "\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n"
#define TENSOR_END   "\x89}tRs."
#define GOOD         TENSOR_BEGIN STORAGE("K\x06") "K\0K\x02K\x03\x86K\x03K\x01\x86" TENSOR_END

/* Writes a file like file_write, without waiting for the disk. */
static void put_file(const char *path, const Str *bytes) {
  FILE *f = fopen(path, "wb");
  OK(str_check(bytes));
  assert_non_null(f);
  assert_int_equal(fwrite(bytes->s, 1, bytes->len, f), bytes->len);
  assert_int_equal(fclose(f), 0);
}

static void write_pickle(const char *path, const char *pickle, size_t len) {
  static const float storage[6] = {1, 2, 3, 4, 5, 6};
  Str file = {0};
  ZipPart part[] = {{"x/data.pkl", pickle, len}, {"x/data/0", storage, sizeof storage}};
  zip_build(&file, part, 2);
  put_file(path, &file);
  str_free(&file);
}

/* The pickle, as data.pkl of an archive, must be refused with these words. */
static void assert_refused(const char *pickle, size_t len, const char *words) {
  TorchFile f;
  write_pickle(at("x.bin"), pickle, len);
  assert_int_equal(torch_open(&f, at("x.bin")), ERR_WORK);
  assert_says(words);
}

static size_t find_tensor(const TorchFile *f, const char *name) {
  for (size_t i = 0; i < f->state.tensors; i++) {
    if (strcmp(f->state.tensor[i].name, name) == 0) return i;
  }
  fail_msg("no tensor %s", name);
  return 0;
}

/* Element i must be (first + i) / 4 - 2. */
static void assert_ramp(const TorchFile *f, const char *name, uint64_t count, int first) {
  float out[16];
  OK(torch_read(f, find_tensor(f, name), out, count));
  for (uint64_t i = 0; i < count; i++) assert_true(out[i] == (float)(first + (int)i) / 4 - 2);
}

static void check_golden(const char *path) {
  TorchFile f;
  float out[4];
  OK(torch_open(&f, path));
  assert_int_equal(f.state.tensors, 9);
  assert_ramp(&f, "parameter", 5, 0);
  assert_ramp(&f, "float32", 12, 0);
  assert_ramp(&f, "float16", 6, 0);
  assert_ramp(&f, "bfloat16", 6, 0);
  assert_ramp(&f, "float64", 6, 0);
  assert_ramp(&f, "transposed", 12, 0);
  assert_ramp(&f, "part", 4, 4);
  assert_ramp(&f, "scalar", 1, 0);
  assert_int_equal(torch_read(&f, find_tensor(&f, "int64"), out, 4), ERR_WORK);
  assert_says("not of a floating-point type");
  assert_int_equal(torch_read(&f, find_tensor(&f, "part"), out, 3), ERR_WORK);
  assert_says("'part' has 4 elements, expected 3");
  torch_close(&f);
}

static void test_torch_archive_gives_all_tensors(void **state) {
  (void)state;
  check_golden(GOLDEN "state.bin");
}

static void test_torch_older_file_gives_all_tensors(void **state) {
  (void)state;
  check_golden(GOLDEN "older.bin");
}

/* little_endian tells the machine that wrote the file; its numbers are little-endian on all machines. */
static void test_torch_older_file_of_a_big_endian_machine_is_the_same(void **state) {
  static const char key[] = "little_endianq\x02";
  Str whole = {0};
  (void)state;
  OK(file_read(GOLDEN "older.bin", (size_t)1 << 20, &whole));
  size_t i = 0;
  while (memcmp(whole.s + i, key, strlen(key)) != 0) i++;
  assert_int_equal((uint8_t)whole.s[i + strlen(key)], 0x88); /* True */
  whole.s[i + strlen(key)] = (char)0x89;                     /* False */
  OK(file_write(at("big.bin"), whole.s, whole.len));
  str_free(&whole);
  check_golden(at("big.bin"));
}

static void test_torch_truncated_file_is_refused(void **state) {
  static const char *const names[] = {GOLDEN "state.bin", GOLDEN "older.bin"};
  (void)state;
  for (int k = 0; k < 2; k++) {
    Str whole = {0};
    TorchFile f;
    OK(file_read(names[k], (size_t)1 << 20, &whole));
    for (size_t len = 0; len < whole.len; len += len < 1500 ? 1 : 37) {
      put_file(at("cut.bin"), &(Str){.s = whole.s, .len = len});
      assert_int_equal(torch_open(&f, at("cut.bin")), ERR_WORK);
      assert_says("cut.bin");
    }
    str_free(&whole);
  }
}

static void test_torch_damaged_storage_is_refused(void **state) {
  Str file = {0};
  TorchFile f;
  (void)state;
  write_pickle(at("x.bin"), PICKLE(GOOD));
  OK(file_read(at("x.bin"), (size_t)1 << 20, &file));
  char *storage = memmem(file.s, file.len, "\x00\x00\x80\x3f\x00\x00\x00\x40", 8);
  assert_non_null(storage);
  storage[1] = 1;
  OK(file_write(at("x.bin"), file.s, file.len));
  str_free(&file);
  assert_int_equal(torch_open(&f, at("x.bin")), ERR_WORK);
  assert_says("CRC-32 of its member x/data/0");
}

static void test_torch_handmade_state_dict_is_read(void **state) {
  float out[6];
  TorchFile f;
  (void)state;
  write_pickle(at("x.bin"), PICKLE(GOOD));
  OK(torch_open(&f, at("x.bin")));
  OK(torch_read(&f, 0, out, 6));
  assert_true(out[0] == 1 && out[5] == 6);
  torch_close(&f);
}

/* POP and POP_MARK, which pickles of PyTorch do not need. */
static void test_pickle_values_that_are_removed_are_not_read(void **state) {
  (void)state;
  static const struct {
    const char *pickle;
    size_t len;
  } cases[] = {{PICKLE("\x80\x02K\x01"
                       "0" /* POP */ GOOD)},
               {PICKLE("\x80\x02(0" GOOD)},
               {PICKLE("\x80\x02(K\x01K\x02"
                       "1" /* POP_MARK */ GOOD)},
               {PICKLE("\x80\x02K\x01((K\x01"
                       "110" GOOD)}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    TorchFile f;
    float out[6];
    write_pickle(at("x.bin"), cases[i].pickle, cases[i].len);
    OK(torch_open(&f, at("x.bin")));
    assert_int_equal(f.state.tensors, 1);
    OK(torch_read(&f, 0, out, 6));
    assert_true(out[0] == 1 && out[5] == 6);
    torch_close(&f);
  }
  assert_refused(PICKLE("\x80\x02"
                        "0."),
                 "its stack is empty");
  assert_refused(PICKLE("\x80\x02K\x01"
                        "00."),
                 "its stack is empty");
  assert_refused(PICKLE("\x80\x02K\x01"
                        "1."),
                 "no mark");
  assert_refused(PICKLE("\x80\x02}K\x01("
                        "100."),
                 "stack is empty");
}

static void test_pickle_that_calls_a_function_is_refused_by_name(void **state) {
  (void)state;
  assert_refused(PICKLE("\x80\x02"
                        "cos\nsystem\nX\x04\0\0\0true\x85R."),
                 "os.system");
  assert_refused(PICKLE("\x80\x02"
                        "cposix\nsystem\nX\x04\0\0\0true\x85R."),
                 "posix.system");
  assert_refused(PICKLE("c__builtin__\neval\n(X\x01\0\0\0"
                        "1tR."),
                 "__builtin__.eval");
  assert_refused(PICKLE("\x80\x04\x8c\x08"
                        "builtins\x8c\x04"
                        "exec\x93\x8c\x01"
                        "1\x85R."),
                 "builtins.exec");
  assert_refused(PICKLE("\x80\x04\x8c\x0asubprocess\x8c\x05Popen\x93)R."), "subprocess.Popen");
  assert_refused(PICKLE("\x80\x02"
                        "ctorch\nload\nX\x01\0\0\0x\x85R."),
                 "torch.load");
  assert_refused(PICKLE("\x80\x02"
                        "ctorch._utils\n_rebuild_tensor_v2.x\n)R."),
                 "torch._utils._rebuild_tensor_v2.x");
  assert_refused(PICKLE("\x80\x02"
                        "ccollections\nOrderedDictX\n)R."),
                 "OrderedDictX");
}

static void test_pickle_that_hides_a_call_in_the_state_dict_is_refused(void **state) {
  (void)state;
  assert_refused(PICKLE("\x80\x02}X\x01\0\0\0a"
                        "cos\nsystem\nX\x02\0\0\0id\x85Rs."),
                 "os.system");
  assert_refused(PICKLE("\x80\x02"
                        "ccollections\nOrderedDict\n)R}X\x01\0\0\0a"
                        "cbuiltins\ngetattr\nsb."),
                 "builtins.getattr");
  assert_refused(PICKLE("\x80\x02"
                        "cos\nsystem\n0}."),
                 "os.system"); /* never applied */
}

static void test_pickle_with_class_opcodes_is_refused(void **state) {
  (void)state;
  assert_refused(PICKLE("(X\x02\0\0\0idios\nsystem\n."), "opcode 0x69");       /* INST */
  assert_refused(PICKLE("(ccollections\nOrderedDict\no."), "opcode 0x6f");     /* OBJ */
  assert_refused(PICKLE("ccollections\nOrderedDict\n)\x81."), "opcode 0x81");  /* NEWOBJ */
  assert_refused(PICKLE("ccollections\nOrderedDict\n)}\x92."), "opcode 0x92"); /* NEWOBJ_EX */
  assert_refused(PICKLE("\x82\x01."), "opcode 0x82");                          /* EXT1 */
  assert_refused(PICKLE("P0\n."), "opcode 0x50");                              /* PERSID */
  assert_refused(PICKLE("\x80\x02"
                        "ctorch\nFloatStorage\n)R."),
                 "storage type");
  assert_refused(PICKLE("\x80\x02K\x01)R."), "no global");
  assert_refused(PICKLE("\x80\x02"
                        "ctorch\nFloatStorage\n}b."),
                 "sets attributes");
}

static void test_pickle_of_something_else_is_refused(void **state) {
  (void)state;
  assert_refused(PICKLE("\x80\x02K\x01."), "does not hold a state dict");
  assert_refused(PICKLE("\x80\x02}X\x01\0\0\0aK\x01s."), "dictionary without tensors");
  assert_refused(PICKLE("\x80\x02}X\x01\0\0\0a}s."), "one level deeper");
  assert_refused(PICKLE("\x80\x09}."), "protocol");
  assert_refused(PICKLE("."), "stack is empty");
  assert_refused(PICKLE(""), "truncated");
}

static void test_pickle_numbers_out_of_range_are_refused(void **state) {
  (void)state;
  assert_refused(PICKLE("}r\xff\xff\xff\xff."), "memo number");
  assert_refused(PICKLE("h\x05."), "never stored");
  assert_refused(PICKLE("X\xff\xff\xff\xff."), "truncated");
  assert_refused(PICKLE("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), "truncated");
  assert_refused(PICKLE("(K\x01"
                        "d."),
                 "key has no value");
  assert_refused(PICKLE("K\x01K\x01"
                        "a."),
                 "no list or dictionary");
  assert_refused(PICKLE("]e."), "no mark");
}

#define VIEW(offset, sizes, strides) \
  PICKLE(TENSOR_BEGIN STORAGE("K\x06") offset sizes strides TENSOR_END)

static void test_pickle_view_outside_its_storage_is_refused(void **state) {
  (void)state;
  assert_refused(VIEW("K\x01", "K\x02K\x03\x86", "K\x03K\x01\x86"), "larger than its storage");
  assert_refused(VIEW("K\x00", "K\x02K\x04\x86", "K\x03K\x01\x86"), "larger than its storage");
  assert_refused(VIEW("K\x00", "K\x02K\x03\x86", "J\xff\xff\xff\x7fK\x01\x86"),
                 "larger than its storage");
  assert_refused(VIEW("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", "K\x02\x85", "K\x01\x85"),
                 "larger than its storage");
  assert_refused(VIEW("J\xff\xff\xff\xff", "K\x02\x85", "K\x01\x85"), "unusable arguments");
  assert_refused(VIEW("K\x00", "J\xff\xff\xff\xff\x85", "K\x01\x85"), "non-negative");
  assert_refused(VIEW("K\x00", "K\x02\x85", "K\x01K\x01\x86"), "unusable arguments");
  assert_refused(
      VIEW("K\x00", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\x02\x86", "K\x00K\x00\x86"),
      "shape is too large");
}

static void test_pickle_storage_of_another_size_is_refused(void **state) {
  (void)state;
  assert_refused(PICKLE(TENSOR_BEGIN STORAGE("K\x07") "K\0K\x02\x85K\x01\x85" TENSOR_END),
                 "size of its elements: that of w");
  assert_refused(
      PICKLE(TENSOR_BEGIN STORAGE(
          "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f") "K\0K\x02\x85K\x01\x85" TENSOR_END),
      "unusable arguments");
}

static void test_pickle_storage_key_with_a_path_is_refused(void **state) {
  (void)state;
  assert_refused(
      PICKLE(TENSOR_BEGIN
             "((X\x07\0\0\0storagectorch\nFloatStorage\nX\x04\0\0\0../0X\x03\0\0\0cpuK\x06tQ"
             "K\0K\x02\x85K\x01\x85" TENSOR_END),
      "unusable key");
}

/* A list that contains itself, and marks without end, need no recursion. */
static void test_pickle_that_is_deep_or_cyclic_is_refused(void **state) {
  static char deep[200001];
  (void)state;
  assert_refused(PICKLE("\x80\x02]q\0h\0"
                        "a."),
                 "does not hold a state dict");
  memset(deep, '(', sizeof deep - 1);
  deep[sizeof deep - 1] = '.';
  assert_refused(deep, sizeof deep, "stack is empty");
  memset(deep, ']', 100001); /* each list but the first is appended to the one before it */
  memset(deep + 100001, 'a', 99999);
  deep[200000] = 'a';
  assert_refused(deep, sizeof deep, "truncated");
}

static void test_zip_of_other_kinds_is_refused(void **state) {
  static const ZipPart twice[] = {{"x/data.pkl", "}.", 2}, {"x/data.pkl", "}.", 2}};
  static const ZipPart none[] = {{"x/other", "}.", 2}};
  Str file = {0};
  TorchFile f;
  (void)state;
  zip_build(&file, twice, 2);
  put_file(at("z.bin"), &file);
  assert_int_equal(torch_open(&f, at("z.bin")), ERR_WORK);
  assert_says("two members have the same name");
  str_clear(&file);
  zip_build(&file, none, 1);
  put_file(at("z.bin"), &file);
  assert_int_equal(torch_open(&f, at("z.bin")), ERR_WORK);
  assert_says("no member data.pkl");
  char *entry = memmem(file.s, file.len, "PK\1\2", 4);
  entry[10] = 8; /* deflated */
  put_file(at("z.bin"), &file);
  assert_int_equal(torch_open(&f, at("z.bin")), ERR_WORK);
  assert_says("compressed");
  str_free(&file);
}

/* ---- zip64 ---- */

enum { SIZE = 1, PACKED = 2, OFFSET = 4 }; /* values that are only in the extra field */

typedef struct {
  int unknown;
  uint64_t size, offset; /* added to the values of the extra field */
  size_t stray;          /* bytes before the zip64 field: a field of another kind */
  int missing;           /* bytes that the zip64 field is shorter */
  int longer;            /* added to the length that the zip64 field says */
} Zip64;

/* Appends the extra field of a directory entry. */
static void put_extra(Str *out, const Zip64 *z, size_t size, size_t offset) {
  Str value = {0};
  if (z->stray) {
    zip_put(out, 0x5455, 2);
    zip_put(out, z->stray - 4, 2);
    for (size_t i = 4; i < z->stray; i++) str_addc(out, 'x');
  }
  if (z->unknown & SIZE) zip_put(&value, size + z->size, 8);
  if (z->unknown & PACKED) zip_put(&value, size + z->size, 8);
  if (z->unknown & OFFSET) zip_put(&value, offset + z->offset, 8);
  value.len -= (size_t)z->missing;
  zip_put(out, 1, 2);
  zip_put(out, value.len + (size_t)z->longer, 2);
  str_addn(out, str_text(&value), value.len);
  str_free(&value);
}

/* Writes an archive of two members whose directory is in zip64 form. Returns the offset of the
 * zip64 end record in *end64. */
static void build_zip64(Str *out, const Zip64 *z, size_t *end64) {
  static const float storage[6] = {1, 2, 3, 4, 5, 6};
  const ZipPart part[] = {{"x/data.pkl", PICKLE(GOOD)}, {"x/data/0", storage, sizeof storage}};
  Str local = {0}, extra = {0};
  zip_build(&local, part, 2);
  size_t first = (size_t)((char *)memmem(local.s, local.len, "PK\1\2", 4) - local.s);
  size_t offset[] = {0, 30 + strlen(part[0].name) + part[0].size};
  str_addn(out, local.s, first);
  for (int i = 0; i < 2; i++) {
    size_t entry = out->len;
    zip_put_entry(out, &part[i], offset[i]);
    str_clear(&extra);
    put_extra(&extra, z, part[i].size, offset[i]);
    out->s[entry + 30] = (char)extra.len;
    if (z->unknown & PACKED) memset(out->s + entry + 20, 255, 4);
    if (z->unknown & SIZE) memset(out->s + entry + 24, 255, 4);
    if (z->unknown & OFFSET) memset(out->s + entry + 42, 255, 4);
    str_addn(out, extra.s, extra.len);
  }
  *end64 = out->len;
  zip_put(out, 0x06064b50, 4); /* zip64 end record */
  zip_put(out, 44, 8);
  zip_put(out, 45, 2 + 2);
  zip_put(out, 0, 4 + 4); /* disks */
  zip_put(out, 2, 8);
  zip_put(out, 2, 8);
  zip_put(out, *end64 - first, 8);
  zip_put(out, first, 8);
  zip_put(out, 0x07064b50, 4); /* locator */
  zip_put(out, 0, 4);
  zip_put(out, *end64, 8);
  zip_put(out, 1, 4);
  zip_put(out, 0x06054b50, 4); /* end record, whose numbers do not fit */
  zip_put(out, 0, 4);
  zip_put(out, UINT32_MAX, 4);
  zip_put(out, UINT64_MAX, 8);
  zip_put(out, 0, 2);
  OK(str_check(out));
  str_free(&local);
  str_free(&extra);
}

static void test_zip64_extra_field_has_the_values_that_do_not_fit(void **state) {
  (void)state;
  static const struct {
    Zip64 zip;
    const char *words; /* NULL: is read */
  } cases[] = {
      {{.unknown = SIZE | PACKED | OFFSET}, NULL},
      {{.unknown = SIZE | PACKED}, NULL},
      {{.unknown = OFFSET}, NULL},
      {{.unknown = 0}, NULL},
      {{.unknown = SIZE | PACKED | OFFSET, .stray = 4}, NULL},
      {{.unknown = SIZE | PACKED | OFFSET, .stray = 9}, NULL},
      {{.unknown = SIZE | PACKED | OFFSET, .missing = 1}, "a damaged extra field"},
      {{.unknown = SIZE | PACKED | OFFSET, .missing = 8}, "a damaged extra field"},
      {{.unknown = SIZE | PACKED | OFFSET, .missing = 24}, "a damaged extra field"},
      {{.unknown = SIZE | PACKED | OFFSET, .longer = 1}, "a damaged extra field"},
      {{.unknown = SIZE, .size = 0}, NULL},
      {{.unknown = SIZE, .size = 1}, "compressed"},
      {{.unknown = SIZE | PACKED, .size = 1 << 20}, "a member lies outside the file"},
      {{.unknown = SIZE | PACKED, .size = UINT64_MAX / 2}, "a member lies outside the file"},
      {{.unknown = OFFSET, .offset = 1}, "not where its directory says"},
      {{.unknown = OFFSET, .offset = UINT64_MAX / 2}, "not where its directory says"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Str file = {0};
    TorchFile f;
    size_t end64;
    float out[6];
    build_zip64(&file, &cases[i].zip, &end64);
    put_file(at("z.bin"), &file);
    str_free(&file);
    Err err = torch_open(&f, at("z.bin"));
    if (cases[i].words) {
      assert_int_equal(err, ERR_WORK);
      assert_says("z.bin");
      assert_says(cases[i].words);
      continue;
    }
    if (err) fail_msg("case %zu: %s", i, err_message());
    OK(torch_read(&f, 0, out, 6));
    assert_true(out[0] == 1 && out[5] == 6);
    torch_close(&f);
  }
}

/* The end record is 98 bytes before the end of the file, the locator 42. */
static void test_zip64_end_record_that_is_damaged_is_refused(void **state) {
  (void)state;
  static const struct {
    size_t from_end;
    uint64_t value;
    bool is_added; /* to the value of the file */
    const char *words;
  } cases[] = {
      {42 - 8, 1, true, "zip64 end record is not where it should be"},
      {42 - 8, 21, true, "zip64 end record is not where it should be"},
      {42 - 8, UINT64_MAX, false, "zip64 end record is not where it should be"},
      {98, 0, false, "zip64 end record is not where it should be"},
      {98 - 32, 3, false, "its directory is damaged"},
      {98 - 32, (1 << 20) + 1, false, "too many members"},
      {98 - 40, UINT64_MAX, false, "its directory lies outside the file"},
      {98 - 48, UINT64_MAX, false, "its directory lies outside the file"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Str file = {0};
    TorchFile f;
    size_t end64;
    uint64_t value;
    build_zip64(&file, &(Zip64){.unknown = OFFSET}, &end64);
    assert_int_equal(file.len - end64, 98);
    char *field = file.s + file.len - cases[i].from_end;
    memcpy(&value, field, sizeof value);
    value = cases[i].is_added ? value + cases[i].value : cases[i].value;
    memcpy(field, &value, sizeof value);
    put_file(at("z.bin"), &file);
    str_free(&file);
    assert_int_equal(torch_open(&f, at("z.bin")), ERR_WORK);
    assert_says("z.bin");
    assert_says(cases[i].words);
  }
}

static void test_torch_without_memory_fails_cleanly(void **state) {
  TorchFile f;
  (void)state;
  for (uint64_t n = 1;; n++) {
    uint64_t before = mem_count();
    mem_fail_once(n);
    Err err = torch_open(&f, GOLDEN "state.bin");
    mem_fail_once(0);
    if (!err) {
      assert_true(mem_count() - before < n); /* no allocation failed */
      break;
    }
    assert_true(n < 10000);
  }
  torch_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_torch_archive_gives_all_tensors),
      cmocka_unit_test(test_torch_older_file_gives_all_tensors),
      cmocka_unit_test(test_torch_older_file_of_a_big_endian_machine_is_the_same),
      cmocka_unit_test(test_torch_truncated_file_is_refused),
      cmocka_unit_test(test_torch_damaged_storage_is_refused),
      cmocka_unit_test(test_torch_handmade_state_dict_is_read),
      cmocka_unit_test(test_pickle_values_that_are_removed_are_not_read),
      cmocka_unit_test(test_pickle_that_calls_a_function_is_refused_by_name),
      cmocka_unit_test(test_pickle_that_hides_a_call_in_the_state_dict_is_refused),
      cmocka_unit_test(test_pickle_with_class_opcodes_is_refused),
      cmocka_unit_test(test_pickle_of_something_else_is_refused),
      cmocka_unit_test(test_pickle_numbers_out_of_range_are_refused),
      cmocka_unit_test(test_pickle_view_outside_its_storage_is_refused),
      cmocka_unit_test(test_pickle_storage_of_another_size_is_refused),
      cmocka_unit_test(test_pickle_storage_key_with_a_path_is_refused),
      cmocka_unit_test(test_pickle_that_is_deep_or_cyclic_is_refused),
      cmocka_unit_test(test_zip_of_other_kinds_is_refused),
      cmocka_unit_test(test_zip64_extra_field_has_the_values_that_do_not_fit),
      cmocka_unit_test(test_zip64_end_record_that_is_damaged_is_refused),
      cmocka_unit_test(test_torch_without_memory_fails_cleanly),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
