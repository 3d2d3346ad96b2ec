/* Runs the opcodes of a pickle, one function for each kind of opcode. What an opcode makes is bounded
 * by the bytes it has. Globals are compared with a table; none is ever called. Depends on base. */
#include "format/pickle_machine.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define VALUES_MAX ((size_t)1 << 21) /* at most 500 MB; a tensor needs about 15 values */

typedef Err (*Opcode)(PickleMachine *m);

/* What a global of the table does when it is applied to a tuple (REDUCE). */
typedef enum { MAKE_DICT, MAKE_TENSOR, MAKE_PARAMETER, STORAGE_TYPE } GlobalKind;

static const struct {
  const char *name; /* module and name */
  GlobalKind kind;
  SafeType type; /* of a storage */
} globals[] = {
    {"collections.OrderedDict", MAKE_DICT, SAFE_OTHER},
    {"torch._utils._rebuild_tensor_v2", MAKE_TENSOR, SAFE_OTHER},
    {"torch._utils._rebuild_parameter", MAKE_PARAMETER, SAFE_OTHER},
    {"torch.FloatStorage", STORAGE_TYPE, SAFE_F32},
    {"torch.HalfStorage", STORAGE_TYPE, SAFE_F16},
    {"torch.BFloat16Storage", STORAGE_TYPE, SAFE_BF16},
    {"torch.DoubleStorage", STORAGE_TYPE, SAFE_F64},
    {"torch.LongStorage", STORAGE_TYPE, SAFE_I64},
    {"torch.IntStorage", STORAGE_TYPE, SAFE_I32},
    {"torch.ByteStorage", STORAGE_TYPE, SAFE_U8},
    {"torch.BoolStorage", STORAGE_TYPE, SAFE_U8},
};
#define GLOBALS (sizeof globals / sizeof *globals)

Err pickle_damaged(const PickleMachine *m, const char *what) {
  return err_set(
      ERR_WORK,
      "%s is not a usable PyTorch file: %s (byte %zu of the pickle); copy the file again",
      m->where, what, m->at);
}

/* Takes n bytes of the pickle. */
static Err take_bytes(PickleMachine *m, uint64_t n, const uint8_t **p) {
  *p = NULL;
  if (n > m->len - m->at) return pickle_damaged(m, "it is truncated");
  *p = m->bytes + m->at;
  m->at += (size_t)n;
  return ERR_OK;
}

/* Takes a little-endian number of n bytes. */
static Err take_number(PickleMachine *m, int n, uint64_t *value) {
  const uint8_t *p;
  *value = 0;
  TRY(take_bytes(m, (uint64_t)n, &p));
  for (int i = n; i-- > 0;) *value = *value << 8 | p[i];
  return ERR_OK;
}

/* Takes a text up to a line break, as GLOBAL has two of. */
static Err take_line(PickleMachine *m, const char **text, size_t *len) {
  *text = NULL;
  *len = 0;
  const uint8_t *begin = m->bytes + m->at, *end = memchr(begin, '\n', m->len - m->at);
  if (!end) return pickle_damaged(m, "it is truncated");
  *text = (const char *)begin;
  *len = (size_t)(end - begin);
  m->at += *len + 1;
  return ERR_OK;
}

static Err push_number(PickleMachine *m, uint32_t number) {
  TRY(mem_grow(&m->stack, &m->stack_cap, m->depth + 1, sizeof *m->stack));
  m->stack[m->depth++] = number;
  return ERR_OK;
}

static Err push_value(PickleMachine *m, PickleValue v) {
  if (m->values == VALUES_MAX) return pickle_damaged(m, "it has too many values");
  TRY(mem_grow(&m->value, &m->value_cap, m->values + 1, sizeof *m->value));
  m->value[m->values] = v;
  return push_number(m, (uint32_t)m->values++);
}

/* Pops a value that is not a mark. */
static Err pop_value(PickleMachine *m, uint32_t *number) {
  *number = 0;
  if (!m->depth || m->value[m->stack[m->depth - 1]].kind == PICKLE_MARK)
    return pickle_damaged(m, "its stack is empty");
  *number = m->stack[--m->depth];
  return ERR_OK;
}

static Err append_item(PickleMachine *m, uint32_t to, uint32_t item) {
  PickleValue *v = &m->value[to];
  TRY(mem_grow(&v->item, &v->cap, v->count + 1, sizeof *v->item));
  v->item[v->count++] = item;
  return ERR_OK;
}

/* Finds the topmost mark; *first receives the stack position after it. */
static Err find_mark(PickleMachine *m, size_t *first) {
  *first = 0;
  for (size_t i = m->depth; i-- > 0;) {
    if (m->value[m->stack[i]].kind != PICKLE_MARK) continue;
    *first = i + 1;
    return ERR_OK;
  }
  return pickle_damaged(m, "its stack has no mark");
}

/* Moves the values after the topmost mark into the container `to` and removes the mark. */
static Err append_marked(PickleMachine *m, uint32_t to, size_t first) {
  for (size_t i = first; i < m->depth; i++) TRY(append_item(m, to, m->stack[i]));
  m->depth = first - 1;
  return ERR_OK;
}

static Err make_from_mark(PickleMachine *m, PickleKind kind) {
  size_t first;
  TRY(find_mark(m, &first));
  TRY(push_value(m, (PickleValue){.kind = kind}));
  uint32_t made = m->stack[--m->depth];
  if (kind == PICKLE_DICT && (m->depth - first) % 2)
    return pickle_damaged(m, "a key has no value");
  TRY(append_marked(m, made, first));
  return push_number(m, made);
}

/* Makes a tuple of the n topmost values. */
static Err make_tuple(PickleMachine *m, int n) {
  uint32_t item[3];
  for (int i = n; i-- > 0;) TRY(pop_value(m, &item[i]));
  TRY(push_value(m, (PickleValue){.kind = PICKLE_TUPLE}));
  uint32_t made = m->stack[m->depth - 1];
  for (int i = 0; i < n; i++) TRY(append_item(m, made, item[i]));
  return ERR_OK;
}

/* Returns the topmost value, which must be of this kind. */
static Err peek_container(PickleMachine *m, PickleKind kind, size_t below, uint32_t *number) {
  *number = 0;
  if (below == 0 || m->value[m->stack[below - 1]].kind != kind)
    return pickle_damaged(m, "something is added to what is no list or dictionary");
  *number = m->stack[below - 1];
  return ERR_OK;
}

static Err put_memo(PickleMachine *m, uint64_t index) {
  if (!m->depth || m->value[m->stack[m->depth - 1]].kind == PICKLE_MARK)
    return pickle_damaged(m, "its stack is empty");
  /* A pickle numbers its memo from 0, and each number takes at least one byte. */
  if (index > m->len) return pickle_damaged(m, "a memo number is too large");
  size_t need = (size_t)index + 1;
  TRY(mem_grow(&m->memo, &m->memo_cap, need, sizeof *m->memo));
  for (; m->memos < need; m->memos++) m->memo[m->memos] = UINT32_MAX;
  m->memo[index] = m->stack[m->depth - 1];
  return ERR_OK;
}

static Err get_memo(PickleMachine *m, uint64_t index) {
  if (index >= m->memos || m->memo[index] == UINT32_MAX)
    return pickle_damaged(m, "a memo number was never stored");
  return push_number(m, m->memo[index]);
}

static Err push_text(PickleMachine *m, uint64_t len) {
  const uint8_t *p;
  TRY(take_bytes(m, len, &p));
  return push_value(
      m, (PickleValue){.kind = PICKLE_TEXT, .text = (const char *)p, .len = (size_t)len});
}

static Err push_int(PickleMachine *m, int64_t number) {
  return push_value(m, (PickleValue){.kind = PICKLE_INT, .number = number});
}

static Err refuse_global(const PickleMachine *m, const char *module, size_t module_len,
                         const char *name, size_t len) {
  int a = module_len < 200 ? (int)module_len : 200, b = len < 200 ? (int)len : 200;
  return err_set(
      ERR_WORK,
      "%s is refused: its pickle names %.*s.%.*s (byte %zu), which a file of weights "
      "does not need and which could run code; nothing was executed. Use "
      "model.safetensors, or a file from a source you trust saved with "
      "torch.save(model.state_dict(), FILE)",
      m->where, a, module, b, name, m->at);
}

static Err push_global(PickleMachine *m, const char *module, size_t module_len,
                       const char *name, size_t len) {
  for (size_t i = 0; i < GLOBALS; i++) {
    const char *known = globals[i].name;
    if (strlen(known) == module_len + 1 + len && memcmp(known, module, module_len) == 0 &&
        known[module_len] == '.' && memcmp(known + module_len + 1, name, len) == 0)
      return push_value(m, (PickleValue){.kind = PICKLE_GLOBAL, .number = (int64_t)i});
  }
  return refuse_global(m, module, module_len, name, len);
}

/* Reads a tuple of sizes or strides. */
static Err read_sizes(const PickleMachine *m, const PickleValue *tuple, uint64_t *out) {
  for (size_t i = 0; i < tuple->count; i++) {
    const PickleValue *v = &m->value[tuple->item[i]];
    if (v->kind != PICKLE_INT || v->number < 0)
      return pickle_damaged(m, "a size of a tensor is not a non-negative integer");
    out[i] = (uint64_t)v->number;
  }
  return ERR_OK;
}

/* Checks that the last element of a view is inside its storage, and that its number of elements
 * fits into 63 bits. */
static Err check_view(const PickleMachine *m, const PickleView *view) {
  uint64_t last = view->offset, limit = (uint64_t)m->value[view->storage].number, elements = 1;
  for (int i = 0; i < view->dimensions; i++) {
    if (view->shape[i] == 0) return ERR_OK;
    if (elements > INT64_MAX / view->shape[i]) return pickle_damaged(m, "a shape is too large");
    elements *= view->shape[i];
  }
  for (int i = 0; i < view->dimensions; i++) {
    uint64_t steps = view->shape[i] - 1;
    if (steps && view->stride[i] > limit / steps)
      return pickle_damaged(m, "a tensor is larger than its storage");
    last += steps * view->stride[i]; /* at most SAFE_DIMENSIONS * limit + offset, below 2^64 */
  }
  return last < limit ? ERR_OK : pickle_damaged(m, "a tensor is larger than its storage");
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, metadata]) */
static Err make_tensor(PickleMachine *m, const PickleValue *args) {
  PickleView view = {0};
  if (args->count < 6) return pickle_damaged(m, "a tensor lacks arguments");
  const PickleValue *storage = &m->value[args->item[0]], *offset = &m->value[args->item[1]],
                    *size = &m->value[args->item[2]], *stride = &m->value[args->item[3]];
  if (storage->kind != PICKLE_STORAGE || offset->kind != PICKLE_INT || offset->number < 0 ||
      size->kind != PICKLE_TUPLE || stride->kind != PICKLE_TUPLE ||
      size->count != stride->count || size->count > SAFE_DIMENSIONS)
    return pickle_damaged(m, "a tensor has unusable arguments");
  view.storage = args->item[0];
  view.offset = (uint64_t)offset->number;
  view.dimensions = (int)size->count;
  TRY(read_sizes(m, size, view.shape));
  TRY(read_sizes(m, stride, view.stride));
  if (view.offset > (uint64_t)storage->number)
    return pickle_damaged(m, "a tensor is larger than its storage");
  TRY(check_view(m, &view));
  PickleValue made = {.kind = PICKLE_TENSOR};
  TRY(mem_alloc(&made.view, 1, sizeof *made.view));
  *made.view = view;
  Err err = push_value(m, made);
  /* if the value was stored, pickle_free frees the view */
  if (err && (!m->values || m->value[m->values - 1].view != made.view)) mem_free(made.view);
  return err;
}

/* _rebuild_parameter(tensor, requires_grad, hooks): the tensor itself. */
static Err make_parameter(PickleMachine *m, const PickleValue *args) {
  if (args->count < 1 || m->value[args->item[0]].kind != PICKLE_TENSOR)
    return pickle_damaged(m, "a parameter has no tensor");
  return push_number(m, args->item[0]);
}

/* Makes a storage of ("storage", type, key, device, elements[, view]). */
static Err make_storage(PickleMachine *m) {
  uint32_t id;
  TRY(pop_value(m, &id));
  const PickleValue *t = &m->value[id];
  if (t->kind != PICKLE_TUPLE || t->count < 5 || t->count > 6)
    return pickle_damaged(m, "a storage has unusable arguments");
  const PickleValue *type = &m->value[t->item[1]], *key = &m->value[t->item[2]],
                    *elements = &m->value[t->item[4]];
  if (type->kind != PICKLE_GLOBAL || globals[type->number].kind != STORAGE_TYPE ||
      key->kind != PICKLE_TEXT || elements->kind != PICKLE_INT || elements->number < 0 ||
      elements->number > INT64_MAX / 64)
    return pickle_damaged(m, "a storage has unusable arguments");
  if (t->count == 6 && m->value[t->item[5]].kind != PICKLE_NONE)
    return pickle_damaged(m, "a storage is a view of another one, which is not supported");
  return push_value(m, (PickleValue){.kind = PICKLE_STORAGE,
                                     .type = globals[type->number].type,
                                     .number = elements->number,
                                     .text = key->text,
                                     .len = key->len});
}

static Err op_proto(PickleMachine *m) {
  uint64_t version;
  TRY(take_number(m, 1, &version));
  return version <= 5 ? ERR_OK : pickle_damaged(m, "its protocol is not known");
}

static Err op_frame(PickleMachine *m) {
  uint64_t bytes;
  return take_number(m, 8, &bytes);
}

static Err op_mark(PickleMachine *m) {
  return push_value(m, (PickleValue){.kind = PICKLE_MARK});
}

static Err op_none(PickleMachine *m) {
  return push_value(m, (PickleValue){.kind = PICKLE_NONE});
}

static Err op_true(PickleMachine *m) {
  return push_value(m, (PickleValue){.kind = PICKLE_BOOL, .number = 1});
}

static Err op_false(PickleMachine *m) {
  return push_value(m, (PickleValue){.kind = PICKLE_BOOL});
}

static Err op_int1(PickleMachine *m) {
  uint64_t n;
  TRY(take_number(m, 1, &n));
  return push_int(m, (int64_t)n);
}

static Err op_int2(PickleMachine *m) {
  uint64_t n;
  TRY(take_number(m, 2, &n));
  return push_int(m, (int64_t)n);
}

static Err op_int4(PickleMachine *m) {
  uint64_t n;
  TRY(take_number(m, 4, &n));
  return push_int(m, (int32_t)(uint32_t)n);
}

/* LONG1: a two's complement number of up to 255 bytes. Longer ones than 8 bytes are not read. */
static Err op_long1(PickleMachine *m) {
  uint64_t bytes, n = 0;
  const uint8_t *p;
  TRY(take_number(m, 1, &bytes));
  TRY(take_bytes(m, bytes, &p));
  if (bytes > 8) return push_value(m, (PickleValue){.kind = PICKLE_OTHER});
  if (bytes && p[bytes - 1] & 0x80) n = UINT64_MAX;
  for (size_t i = (size_t)bytes; i-- > 0;) n = n << 8 | p[i];
  return push_int(m, (int64_t)n);
}

static Err op_float(PickleMachine *m) {
  const uint8_t *p;
  TRY(take_bytes(m, 8, &p));
  return push_value(m, (PickleValue){.kind = PICKLE_OTHER});
}

static Err op_text1(PickleMachine *m) {
  uint64_t len;
  TRY(take_number(m, 1, &len));
  return push_text(m, len);
}

static Err op_text4(PickleMachine *m) {
  uint64_t len;
  TRY(take_number(m, 4, &len));
  return push_text(m, len);
}

static Err op_text8(PickleMachine *m) {
  uint64_t len;
  TRY(take_number(m, 8, &len));
  return push_text(m, len);
}

static Err op_empty_dict(PickleMachine *m) {
  return push_value(m, (PickleValue){.kind = PICKLE_DICT});
}

static Err op_empty_list(PickleMachine *m) {
  return push_value(m, (PickleValue){.kind = PICKLE_LIST});
}

static Err op_empty_tuple(PickleMachine *m) {
  return make_tuple(m, 0);
}

static Err op_tuple1(PickleMachine *m) {
  return make_tuple(m, 1);
}

static Err op_tuple2(PickleMachine *m) {
  return make_tuple(m, 2);
}

static Err op_tuple3(PickleMachine *m) {
  return make_tuple(m, 3);
}

static Err op_tuple(PickleMachine *m) {
  return make_from_mark(m, PICKLE_TUPLE);
}

static Err op_list(PickleMachine *m) {
  return make_from_mark(m, PICKLE_LIST);
}

static Err op_dict(PickleMachine *m) {
  return make_from_mark(m, PICKLE_DICT);
}

static Err op_append(PickleMachine *m) {
  uint32_t item, list;
  TRY(pop_value(m, &item));
  TRY(peek_container(m, PICKLE_LIST, m->depth, &list));
  return append_item(m, list, item);
}

static Err op_appends(PickleMachine *m) {
  size_t first;
  uint32_t list;
  TRY(find_mark(m, &first));
  TRY(peek_container(m, PICKLE_LIST, first - 1, &list));
  return append_marked(m, list, first);
}

static Err op_setitem(PickleMachine *m) {
  uint32_t key, value, dict;
  TRY(pop_value(m, &value));
  TRY(pop_value(m, &key));
  TRY(peek_container(m, PICKLE_DICT, m->depth, &dict));
  TRY(append_item(m, dict, key));
  return append_item(m, dict, value);
}

static Err op_setitems(PickleMachine *m) {
  size_t first;
  uint32_t dict;
  TRY(find_mark(m, &first));
  TRY(peek_container(m, PICKLE_DICT, first - 1, &dict));
  if ((m->depth - first) % 2) return pickle_damaged(m, "a key has no value");
  return append_marked(m, dict, first);
}

static Err op_pop(PickleMachine *m) {
  if (!m->depth) return pickle_damaged(m, "its stack is empty");
  m->depth--;
  return ERR_OK;
}

static Err op_pop_mark(PickleMachine *m) {
  size_t first;
  TRY(find_mark(m, &first));
  m->depth = first - 1;
  return ERR_OK;
}

static Err op_put1(PickleMachine *m) {
  uint64_t index;
  TRY(take_number(m, 1, &index));
  return put_memo(m, index);
}

static Err op_put4(PickleMachine *m) {
  uint64_t index;
  TRY(take_number(m, 4, &index));
  return put_memo(m, index);
}

static Err op_memoize(PickleMachine *m) {
  return put_memo(m, m->memos);
}

static Err op_get1(PickleMachine *m) {
  uint64_t index;
  TRY(take_number(m, 1, &index));
  return get_memo(m, index);
}

static Err op_get4(PickleMachine *m) {
  uint64_t index;
  TRY(take_number(m, 4, &index));
  return get_memo(m, index);
}

static Err op_global(PickleMachine *m) {
  const char *module, *name;
  size_t module_len, len;
  TRY(take_line(m, &module, &module_len));
  TRY(take_line(m, &name, &len));
  return push_global(m, module, module_len, name, len);
}

static Err op_stack_global(PickleMachine *m) {
  uint32_t name, module;
  TRY(pop_value(m, &name));
  TRY(pop_value(m, &module));
  const PickleValue *a = &m->value[module], *b = &m->value[name];
  if (a->kind != PICKLE_TEXT || b->kind != PICKLE_TEXT)
    return pickle_damaged(m, "a global has no name");
  return push_global(m, a->text, a->len, b->text, b->len);
}

static Err op_reduce(PickleMachine *m) {
  uint32_t args, callable;
  TRY(pop_value(m, &args));
  TRY(pop_value(m, &callable));
  const PickleValue *f = &m->value[callable], *tuple = &m->value[args];
  if (f->kind != PICKLE_GLOBAL || tuple->kind != PICKLE_TUPLE)
    return pickle_damaged(m, "it applies what is no global");
  switch (globals[f->number].kind) {
    case MAKE_TENSOR:
      return make_tensor(m, tuple);
    case MAKE_PARAMETER:
      return make_parameter(m, tuple);
    case MAKE_DICT:
      if (tuple->count) return pickle_damaged(m, "an OrderedDict has arguments");
      return op_empty_dict(m);
    case STORAGE_TYPE:
      break;
  }
  return pickle_damaged(m, "it applies a storage type");
}

/* BUILD sets attributes, such as the _metadata of a state dict; they are dropped. */
static Err op_build(PickleMachine *m) {
  uint32_t state;
  TRY(pop_value(m, &state));
  if (!m->depth) return pickle_damaged(m, "its stack is empty");
  PickleKind kind = m->value[m->stack[m->depth - 1]].kind;
  if (kind == PICKLE_DICT || kind == PICKLE_TENSOR) return ERR_OK;
  return pickle_damaged(m, "it sets attributes of what is no dictionary or tensor");
}

static const Opcode opcodes[256] = {
    [0x80] = op_proto,     [0x95] = op_frame,        ['('] = op_mark,        ['N'] = op_none,
    [0x88] = op_true,      [0x89] = op_false,        ['K'] = op_int1,        ['M'] = op_int2,
    ['J'] = op_int4,       [0x8a] = op_long1,        ['G'] = op_float,       ['X'] = op_text4,
    [0x8c] = op_text1,     [0x8d] = op_text8,        ['U'] = op_text1,       ['T'] = op_text4,
    ['}'] = op_empty_dict, [']'] = op_empty_list,    [')'] = op_empty_tuple, [0x85] = op_tuple1,
    [0x86] = op_tuple2,    [0x87] = op_tuple3,       ['t'] = op_tuple,       ['l'] = op_list,
    ['d'] = op_dict,       ['a'] = op_append,        ['e'] = op_appends,     ['s'] = op_setitem,
    ['u'] = op_setitems,   ['0'] = op_pop,           ['1'] = op_pop_mark,    ['q'] = op_put1,
    ['r'] = op_put4,       [0x94] = op_memoize,      ['h'] = op_get1,        ['j'] = op_get4,
    ['c'] = op_global,     [0x93] = op_stack_global, ['R'] = op_reduce,      ['b'] = op_build,
    ['Q'] = make_storage,
};

static Err run_opcodes(PickleMachine *m) {
  for (;;) {
    uint64_t code;
    char text[64];
    TRY(take_number(m, 1, &code));
    if (code == '.') return ERR_OK;
    if (!opcodes[code]) {
      snprintf(text, sizeof text, "opcode 0x%02x is not one of a state dict", (unsigned)code);
      return pickle_damaged(m, text);
    }
    TRY(opcodes[code](m));
  }
}

Err pickle_run(PickleMachine *m, const uint8_t *bytes, size_t len, const char *where,
               uint32_t *root) {
  *m = (PickleMachine){.bytes = bytes, .len = len, .where = where};
  TRY(run_opcodes(m));
  return pop_value(m, root);
}

void pickle_free(PickleMachine *m) {
  for (size_t i = 0; i < m->values; i++) {
    mem_free(m->value[i].item);
    mem_free(m->value[i].view);
  }
  mem_free(m->value);
  mem_free(m->stack);
  mem_free(m->memo);
}
