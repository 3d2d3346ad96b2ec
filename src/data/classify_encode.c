/* The last pass over the tables: encodes the rows on all cores of all ranks; rank 0 stores them in
 * order.
 *
 * The rows are divided into stretches of consecutive rows. In every round rank r encodes stretch r and
 * sends it to rank 0, which stores the rows of the round. Every rank reads all rows, since rows of a
 * table cannot be found without reading those before, and encoding takes many times longer. One process
 * has rounds of one stretch.
 *
 * A rank that fails passes its error to ranks_agree, with which every round begins. Depends on ranks,
 * classify_store. */
#include <inttypes.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "data/classify_work.h"

#define STRETCH_ROWS  1024
#define STRETCH_BYTES ((size_t)1 << 22) /* a stretch with more text ends early */

/* What a rank sends for each row of its stretch, before the ids. */
typedef struct {
  uint32_t tokens, first;
  uint32_t is_cut, is_empty;
} RowHead;

/* A round. */
typedef struct {
  ClassifyWork *w;
  size_t count, rank; /* number of ranks, number of this rank */
  EncodedRow *row;    /* (count * most_rows) */
  size_t rows;
  EncodedText *encoded; /* (count * most_rows) */
  float *value;         /* (count * most_rows, label columns) */
  size_t *at;           /* (count * most_rows, columns + 1) positions of the fields in `text` */
  Str text;             /* fields of the rows that this rank needs, each followed by NUL */
  size_t *begin;        /* (count + 1) first row of each stretch */
  size_t stretch;       /* the stretch that is being filled */
  size_t stretch_bytes;
  size_t stretch_rows;
  size_t most_rows;  /* of a stretch: STRETCH_ROWS, fewer in tests */
  uint64_t trains;   /* training rows so far */
  TableField *field; /* (columns) */
  Str packed;        /* rows of this rank's stretch, for rank 0 */
  char *received;    /* on rank 0: rows of all other ranks */
  size_t received_cap;
  /* A round could not be finished because memory ran out; comm stops the other ranks. */
  bool is_broken;
} Round;

/* ---- encoding ---- */

/* Sets `field` to the fields of row k. */
static void get_fields(const Round *b, size_t k, TableField *field) {
  const size_t *at = b->at + k * (b->w->columns + 1);
  for (size_t i = 0; i < b->w->columns; i++)
    field[i] = (TableField){b->text.s + at[i], at[i + 1] - at[i] - 1};
}

static Err encode_row(const Round *b, size_t k) {
  const ClassifyWork *w = b->w;
  const size_t *at = b->at + k * (w->columns + 1);
  TableField text[2] = {{0}};
  for (size_t i = 0; i < w->spec->texts; i++)
    text[i] = (TableField){b->text.s + at[i], at[i + 1] - at[i] - 1};
  uint32_t most = w->spec->labels.kind == LABEL_NONE ? UINT32_MAX : w->spec->max_tokens;
  return text_encode(&w->encoder, text, w->spec->texts, most, &b->encoded[k]);
}

/* Encodes the rows of this rank's stretch on all cores. */
static Err encode_stretch(const Round *b) {
  ErrRecord failed = {.code = ERR_OK};
  int threads = b->w->spec->threads > 0 ? b->w->spec->threads : thread_cores();
#pragma omp parallel for schedule(dynamic, 16) num_threads(threads)
  for (size_t k = b->begin[b->rank]; k < b->begin[b->rank + 1]; k++) {
    Err err = encode_row(b, k);
    if (err) {
#pragma omp critical(classify_encode_error)
      failed = err_take(err);
    }
  }
  return failed.code ? err_give(&failed) : ERR_OK;
}

/* ---- ranks ---- */

static Err pack_stretch(Round *b) {
  str_clear(&b->packed);
  for (size_t k = b->begin[b->rank]; k < b->begin[b->rank + 1] && b->rank; k++) {
    const EncodedText *t = &b->encoded[k];
    RowHead head = {(uint32_t)t->ids.len, t->first, t->is_cut, t->is_empty};
    str_addn(&b->packed, (const char *)&head, sizeof head);
    str_addn(&b->packed, (const char *)t->ids.id, t->ids.len * sizeof *t->ids.id);
  }
  return str_check(&b->packed);
}

/* Reads row k from the bytes that a rank sent; moves *at past it. */
static Err unpack_row(Round *b, size_t k, const char **at, const char *end) {
  EncodedText *t = &b->encoded[k];
  RowHead head = {0};
  bool is_whole = (size_t)(end - *at) >= sizeof head;
  if (is_whole) memcpy(&head, *at, sizeof head);
  size_t bytes = head.tokens * sizeof *t->ids.id;
  if (!is_whole || (size_t)(end - *at) - sizeof head < bytes)
    return err_set(
        ERR_WORK,
        "a rank has sent fewer rows than it has read: the tables differ between "
        "hosts, or were changed while they were read; give all ranks the same files");
  TRY(mem_grow(&t->ids.id, &t->ids.cap, head.tokens, sizeof *t->ids.id));
  memcpy(t->ids.id, *at + sizeof head, bytes);
  t->ids.len = head.tokens;
  t->first = head.first;
  t->is_cut = head.is_cut;
  t->is_empty = head.is_empty;
  *at += sizeof head + bytes;
  return ERR_OK;
}

/* Reads the rows of all other ranks, which lie in `received` in the order of the ranks. */
static Err unpack_rows(Round *b, const uint64_t *bytes) {
  const char *at = b->received;
  for (size_t r = 1; r < b->count; r++) {
    const char *end = at + bytes[r];
    for (size_t k = b->begin[r]; k < b->begin[r + 1]; k++) TRY(unpack_row(b, k, &at, end));
    at = end;
  }
  return ERR_OK;
}

/* What each rank sends and receives; arrays have `count` elements. */
typedef struct {
  const void **send;
  void **recv;
  size_t *send_n, *recv_n;
  uint64_t *bytes; /* that each rank sends to rank 0 */
} Mail;

static Err new_mail(Mail *m, size_t count) {
  TRY(mem_alloc(&m->send, count, sizeof *m->send));
  TRY(mem_alloc(&m->recv, count, sizeof *m->recv));
  TRY(mem_alloc(&m->send_n, count, sizeof *m->send_n));
  TRY(mem_alloc(&m->recv_n, count, sizeof *m->recv_n));
  return mem_alloc(&m->bytes, count, sizeof *m->bytes);
}

static void free_mail(Mail *m) {
  mem_free((void *)m->send);
  mem_free(m->recv);
  mem_free(m->send_n);
  mem_free(m->recv_n);
  mem_free(m->bytes);
}

/* Makes room on rank 0 for the rows of the other ranks. */
static Err address_mail(Round *b, Mail *m) {
  size_t all = 0;
  m->send[0] = str_text(&b->packed);
  m->send_n[0] = b->packed.len;
  if (b->rank) return ERR_OK;
  for (size_t r = 1; r < b->count; r++) all += m->bytes[r];
  TRY(mem_grow(&b->received, &b->received_cap, all + 1, 1));
  for (size_t r = 1, at = 0; r < b->count; at += m->bytes[r++]) {
    m->recv[r] = b->received + at;
    m->recv_n[r] = m->bytes[r];
  }
  m->send_n[0] = 0;
  return ERR_OK;
}

static Err exchange_mail(Round *b, Mail *m) {
  const Ranks *r = b->w->spec->ranks;
  uint64_t bytes = b->packed.len;
  TRY(ranks_gather(r, "bytes of encoded rows", &bytes, sizeof bytes, m->bytes));
  TRY(address_mail(b, m));
  r->exchange(r->context, "encoded rows", m->send, m->send_n, m->recv, m->recv_n);
  return ERR_OK;
}

/* Sends the rows of this rank's stretch to rank 0. */
static Err gather_rows(Round *b) {
  Mail m = {0};
  Err err = new_mail(&m, b->count);
  b->is_broken = true;
  if (!err) err = pack_stretch(b);
  if (!err) err = exchange_mail(b, &m);
  b->is_broken = err != ERR_OK;
  if (!err && b->rank == 0) err = unpack_rows(b, m.bytes);
  free_mail(&m);
  return err;
}

/* ---- rounds ---- */

static Err store_rows(Round *b) {
  for (size_t k = 0; k < b->rows; k++) {
    EncodedRow *row = &b->row[k];
    row->value = b->value + k * b->w->spec->labels.columns;
    row->encoded = &b->encoded[k];
    row->field = b->field;
    if (classify_keeps_row(b->w, row->split)) get_fields(b, k, b->field);
    TRY(classify_store_row(b->w, row));
  }
  return ERR_OK;
}

static void clear_round(Round *b) {
  b->rows = 0;
  b->stretch = 0;
  b->stretch_bytes = 0;
  b->stretch_rows = 0;
  str_clear(&b->text);
}

static Err run_round(Round *b) {
  Ranks *r = b->w->spec->ranks;
  char place[64];
  for (size_t i = b->stretch + 1; i <= b->count; i++) b->begin[i] = b->rows;
  fault_point("classify-round");
  TRY(ranks_agree(r, encode_stretch(b)));
  if (b->count > 1) TRY(gather_rows(b));
  TRY(ranks_agree(r, b->rank == 0 ? store_rows(b) : ERR_OK));
  clear_round(b);
  snprintf(place, sizeof place, "encoding training rows from %" PRIu64 " on", b->trains + 1);
  ranks_report(r, place);
  return ERR_OK;
}

/* Returns true if this rank needs the fields of the row that is added: to encode it, or to copy it to
 * a CSV file. */
static bool needs_fields(const Round *b, Split split) {
  return b->stretch == b->rank || (b->rank == 0 && classify_keeps_row(b->w, split));
}

static void copy_fields(Round *b, const TableField *field) {
  size_t *at = b->at + b->rows * (b->w->columns + 1);
  for (size_t i = 0; i < b->w->columns; i++) {
    at[i] = b->text.len;
    str_addn(&b->text, field[i].text, field[i].len);
    str_addc(&b->text, '\0');
  }
  at[b->w->columns] = b->text.len;
}

/* Ends the stretch if it is full, and the round after the last stretch. All ranks do so at the same
 * rows. */
static Err end_stretch(Round *b) {
  if (b->stretch_rows < b->most_rows && b->stretch_bytes < STRETCH_BYTES) return ERR_OK;
  if (b->stretch + 1 == b->count) return run_round(b);
  b->begin[++b->stretch] = b->rows;
  b->stretch_rows = 0;
  b->stretch_bytes = 0;
  return ERR_OK;
}

static Err take_row(void *context, const ClassifyRow *from) {
  Round *b = context;
  ClassifyWork *w = b->w;
  if (from->split == SPLIT_TRAIN && from->index >= w->rows)
    return err_set(ERR_WORK, "%s has changed while it was read; start again", from->path);
  TRY(classify_read_labels(w, from));
  EncodedRow row = {.split = from->split, .label = w->labels.label, .value = w->labels.value};
  if (from->split == SPLIT_TRAIN) row.split = (Split)w->part[from->index];
  if (row.split == SPLIT_TRAIN && b->trains++ < w->rows_done) {
    classify_count_labels(w, &row); /* with --resume: the row is in a finished shard */
    return ERR_OK;
  }
  for (size_t i = 0; i < w->spec->texts; i++) row.bytes += from->field[i].len;
  for (size_t i = 0; i < w->columns; i++) b->stretch_bytes += from->field[i].len;
  memcpy(b->value + b->rows * w->spec->labels.columns, w->labels.value,
         w->spec->labels.columns * sizeof *b->value);
  if (needs_fields(b, row.split)) copy_fields(b, from->field);
  TRY(str_check(&b->text));
  b->row[b->rows++] = row;
  b->stretch_rows++;
  return end_stretch(b);
}

static Err new_round(Round *b, ClassifyWork *w) {
  const Ranks *r = w->spec->ranks;
  *b = (Round){.w = w, .count = (size_t)ranks_count(r), .rank = r ? (size_t)r->rank : 0};
  b->most_rows = fault_number("stretch", STRETCH_ROWS);
  size_t rows = b->count * b->most_rows;
  TRY(mem_alloc(&b->row, rows, sizeof *b->row));
  TRY(mem_alloc(&b->encoded, rows, sizeof *b->encoded));
  TRY(mem_alloc(&b->at, rows * (w->columns + 1), sizeof *b->at));
  TRY(mem_alloc(&b->begin, b->count + 1, sizeof *b->begin));
  TRY(mem_alloc(&b->field, w->columns, sizeof *b->field));
  return mem_alloc(&b->value, rows * w->spec->labels.columns, sizeof *b->value);
}

static void free_round(Round *b) {
  for (size_t k = 0; b->encoded && k < b->count * b->most_rows; k++)
    encoded_text_free(&b->encoded[k]);
  mem_free(b->row);
  mem_free(b->encoded);
  mem_free(b->at);
  mem_free(b->begin);
  mem_free(b->field);
  mem_free(b->value);
  str_free(&b->text);
  str_free(&b->packed);
  mem_free(b->received);
}

static Err begin_rounds(Round *b, ClassifyWork *w) {
  uint64_t bytes;
  TRY(new_round(b, w));
  TRY(classify_input_bytes(w, &bytes));
  if (b->rank == 0) TRY(classify_begin_store(w));
  progress_begin(&w->progress, "encode", "bytes", bytes);
  return ERR_OK;
}

static Err encode_tables(ClassifyWork *w, Round *b) {
  for (int s = 0; s < SPLITS; s++) TRY(classify_read(w, (Split)s, take_row, b));
  TRY(run_round(b));
  progress_end(&w->progress);
  return ranks_agree(w->spec->ranks, b->rank == 0 ? classify_finish_store(w) : ERR_OK);
}

Err classify_encode(ClassifyWork *w) {
  Ranks *r = w->spec->ranks;
  Round b = {0};
  ranks_report(r, "encoding the texts");
  Err err = ranks_agree(r, begin_rounds(&b, w));
  if (!err) err = encode_tables(w, &b);
  /* An error of this rank alone: the others learn of it where they begin a round. */
  if (err && r && !r->has_agreed_error && !b.is_broken) err = ranks_agree(r, err);
  free_round(&b);
  return err;
}
