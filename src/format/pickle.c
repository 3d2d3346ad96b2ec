/* What a pickle of PyTorch holds: a dictionary of tensors, or a list of texts. Depends on
 * pickle_machine. */
#include "format/pickle.h"

#include <string.h>

#include "base/mem.h"
#include "format/pickle_machine.h"

/* The dictionary may name one value many times, so that its size does not bound the memory. */
#define TENSORS_MAX ((size_t)1 << 18)
#define TEXT_MAX    1024

/* Copies a text that must be a C string. */
static Err copy_text(const PickleMachine *m, const char *text, size_t len, char **out) {
  if (len > TEXT_MAX) return pickle_damaged(m, "a name is too long");
  if (memchr(text, 0, len)) return pickle_damaged(m, "a name has a NUL byte");
  return mem_dup(out, text, len);
}

static bool is_key(const char *key) {
  return *key && !strchr(key, '/') && strcmp(key, ".") != 0 && strcmp(key, "..") != 0;
}

static Err add_tensor(PickleState *state, const PickleMachine *m, const PickleValue *name,
                      const PickleView *view) {
  const PickleValue *storage = &m->value[view->storage];
  if (state->tensors == TENSORS_MAX) return pickle_damaged(m, "it has too many tensors");
  TRY(mem_grow(&state->tensor, &state->cap, state->tensors + 1, sizeof *state->tensor));
  PickleTensor *t = &state->tensor[state->tensors];
  *t = (PickleTensor){.storage_elements = (uint64_t)storage->number,
                      .type = storage->type,
                      .dimensions = view->dimensions,
                      .offset = view->offset};
  memcpy(t->shape, view->shape, sizeof t->shape);
  memcpy(t->stride, view->stride, sizeof t->stride);
  state->tensors++; /* from here on pickle_free_state frees the texts */
  TRY(copy_text(m, name->text, name->len, &t->name));
  TRY(copy_text(m, storage->text, storage->len, &t->storage));
  return is_key(t->storage) ? ERR_OK : pickle_damaged(m, "a storage has an unusable key");
}

static Err collect_tensors(PickleState *state, const PickleMachine *m, uint32_t root) {
  const PickleValue *dict = &m->value[root];
  if (dict->kind != PICKLE_DICT)
    return err_set(ERR_WORK,
                   "%s does not hold a state dict (a dictionary of tensors); save it with "
                   "torch.save(model.state_dict(), FILE)",
                   m->where);
  for (size_t i = 0; i + 1 < dict->count; i += 2) {
    const PickleValue *name = &m->value[dict->item[i]];
    const PickleValue *tensor = &m->value[dict->item[i + 1]];
    if (name->kind == PICKLE_TEXT && tensor->kind == PICKLE_TENSOR)
      TRY(add_tensor(state, m, name, tensor->view));
  }
  if (state->tensors) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s holds a dictionary without tensors; a training checkpoint keeps them one "
                 "level deeper: save that part alone, with torch.save(checkpoint[NAME], FILE)",
                 m->where);
}

Err pickle_read_state(PickleState *state, const uint8_t *bytes, size_t len, size_t *used,
                      const char *where) {
  PickleMachine m;
  uint32_t root;
  *state = (PickleState){0};
  Err err = pickle_run(&m, bytes, len, where, &root);
  if (!err) err = collect_tensors(state, &m, root);
  *used = m.at;
  pickle_free(&m);
  if (err) pickle_free_state(state);
  return err;
}

void pickle_free_state(PickleState *state) {
  for (size_t i = 0; i < state->tensors; i++) {
    mem_free(state->tensor[i].name);
    mem_free(state->tensor[i].storage);
  }
  mem_free(state->tensor);
  *state = (PickleState){0};
}

Err pickle_skip(const uint8_t *bytes, size_t len, size_t *used, const char *where) {
  PickleMachine m;
  uint32_t root;
  Err err = pickle_run(&m, bytes, len, where, &root);
  *used = m.at;
  pickle_free(&m);
  return err;
}

static Err collect_texts(PickleTexts *texts, const PickleMachine *m, uint32_t root) {
  const PickleValue *list = &m->value[root];
  if (list->kind != PICKLE_LIST || list->count > TENSORS_MAX)
    return pickle_damaged(m, "it has no list of storages");
  TRY(mem_alloc(&texts->text, list->count, sizeof *texts->text));
  for (size_t i = 0; i < list->count; i++) {
    const PickleValue *v = &m->value[list->item[i]];
    if (v->kind != PICKLE_TEXT) return pickle_damaged(m, "the key of a storage is no text");
    TRY(copy_text(m, v->text, v->len, &texts->text[texts->count]));
    texts->count++;
  }
  return ERR_OK;
}

Err pickle_read_texts(PickleTexts *texts, const uint8_t *bytes, size_t len, size_t *used,
                      const char *where) {
  PickleMachine m;
  uint32_t root;
  *texts = (PickleTexts){0};
  Err err = pickle_run(&m, bytes, len, where, &root);
  if (!err) err = collect_texts(texts, &m, root);
  *used = m.at;
  pickle_free(&m);
  if (err) pickle_free_texts(texts);
  return err;
}

void pickle_free_texts(PickleTexts *texts) {
  for (size_t i = 0; i < texts->count; i++) mem_free(texts->text[i]);
  mem_free(texts->text);
  *texts = (PickleTexts){0};
}
