/* Reads curves from metrics.jsonl. Depends on board_buckets, board_line, base. */
#include "monitor/board_series.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define SAMPLE_PLACES 128
#define SAMPLE_BYTES  ((size_t)4 << 10)  /* read at each place */
#define TAIL_BYTES    ((size_t)32 << 10) /* of the end of the file, read whole for a sample */
#define LINE_MOST     ((size_t)64 << 10) /* longer lines are skipped */
#define CHUNK_BYTES   ((size_t)256 << 10)
#define UNDO_MOST     65536 /* stored roll-backs; beyond that, a zoom shows undone steps */
/* Parts of the file may be read again so often: AGAIN_BYTES, and AGAIN_SHARE times what was read of
 * the file. Each time counts AGAIN_LEAST bytes more. */
#define AGAIN_BYTES ((uint64_t)16 << 20)
#define AGAIN_SHARE 4
#define AGAIN_LEAST 4096

/* Reads at most `len` bytes; returns how many were read, 0 at the end of the file or on failure. */
static size_t read_at(int fd, char *into, size_t len, uint64_t offset) {
  size_t done = 0;
  while (done < len) {
    ssize_t n = pread(fd, into + done, len - done, (off_t)(offset + done));
    if (n <= 0) break;
    done += (size_t)n;
  }
  return done;
}

/* Opens the file; returns -1 if it does not exist or is no regular file by now. */
static int open_metrics(const char *path) {
  int fd;
  uint64_t bytes;
  return file_open(path, &fd, &bytes) ? -1 : fd;
}

void series_free_data(SeriesData *d) {
  if (!d) return;
  for (int k = 0; k < LINE_KINDS; k++) {
    buckets_free(&d->kind[k].buckets);
    mem_free(d->kind[k].undo);
  }
  mem_free(d);
}

void series_free(Series *s) {
  series_free_data(s->sample);
  series_free_data(s->exact);
  s->sample = NULL;
  s->exact = NULL;
  s->is_exact = false;
  s->generation++;
}

bool series_is_same_time(struct timespec a, struct timespec b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Returns false if the file has other bytes than those that were read last: it was written anew, under
 * the same name. */
static bool is_same_file(const Series *s) {
  char tail[SERIES_TAIL];
  const SeriesData *d = s->exact;
  int fd = open_metrics(s->path);
  if (fd < 0) return true; /* removed: what was read stays */
  size_t got = read_at(fd, tail, d->tail_len, d->offset - d->tail_len);
  close(fd);
  return got == d->tail_len && memcmp(tail, d->tail, got) == 0;
}

/* Returns true if the file is the one that was last looked at, and has at most grown. The inode does
 * not tell, as a new file may get that of the one before. A file that was changed and has the same size
 * was written anew, or a record is just being appended: the kernel changes the time before the size. */
static bool has_only_grown(const Series *s, const struct stat *st) {
  uint64_t size = (uint64_t)st->st_size;
  bool is_same = s->device == (uint64_t)st->st_dev && s->inode == (uint64_t)st->st_ino;
  if (!is_same || size != s->size) return is_same && size > s->size;
  return series_is_same_time(s->changed, st->st_ctim) || (s->exact && is_same_file(s));
}

bool series_refresh(Series *s) {
  struct stat st;
  if (stat(s->path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
  if (!has_only_grown(s, &st)) series_free(s);
  s->device = (uint64_t)st.st_dev;
  s->inode = (uint64_t)st.st_ino;
  s->size = (uint64_t)st.st_size;
  s->changed = st.st_ctim;
  if (s->exact && s->exact->offset < s->size) s->is_exact = false;
  return true;
}

const SeriesData *series_data(const Series *s) {
  return s->sample ? s->sample : s->exact;
}

/* Returns true if no later line undoes a record of this step at this offset. */
static bool is_valid(const SeriesKind *k, uint64_t offset, double step) {
  size_t low = 0, high = k->undos;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (k->undo[middle].offset > offset)
      high = middle;
    else
      low = middle + 1;
  }
  return low == k->undos || step <= k->undo[low].step;
}

/* Returns the tokens trained up to this record: a record has the mean rates since the previous
 * one, so that tokens / s divided by steps / s are the tokens of each step since then. */
static double count_tokens(const BucketPlace *before, const Line *line) {
  double tokens = NAN, steps = NAN;
  for (size_t i = 0; i < line->values; i++) {
    size_t len = line->value[i].name_len;
    const char *name = line->value[i].name;
    bool is_target = len == 19 && memcmp(name, "target_tokens_per_s", len) == 0;
    bool is_text = len == 12 && memcmp(name, "tokens_per_s", len) == 0; /* classify, mlm */
    if (is_target || is_text) tokens = line->value[i].number;
    if (len == 11 && memcmp(name, "steps_per_s", len) == 0) steps = line->value[i].number;
  }
  double sum = isnan(before->tokens) ? 0 : before->tokens;
  return steps > 0 ? sum + tokens / steps * (line->step - before->step) : NAN;
}

static Err add_record(Buckets *b, const Line *line, BucketPlace place) {
  TRY(buckets_begin(b, place));
  for (size_t i = 0; i < line->values; i++) {
    int column = buckets_column(b, line->value[i].name, line->value[i].name_len);
    buckets_add(b, column, line->value[i].number);
  }
  return ERR_OK;
}

/* Returns the place of the last record in the first `count` buckets. */
static BucketPlace get_end(const Buckets *b, size_t count) {
  return count ? b->bucket[count - 1].last : (BucketPlace){0};
}

/* Which records read_range takes. */
typedef struct {
  LineKind kind;
  double from, to;
  uint64_t begin, end; /* lines that begin at these offsets, end not included */
  BucketPlace before;  /* of the record before them */
} Range;

static Err take_from_range(Range *r, const SeriesKind *k, const char *text, size_t len,
                           uint64_t offset, Buckets *out) {
  Line line;
  if (len > LINE_MOST || !line_read(&line, text, len)) return ERR_OK;
  if (line.kind != r->kind || line.event[0]) return ERR_OK;
  if (line.values == 0 || !is_valid(k, offset, line.step)) return ERR_OK;
  r->before = (BucketPlace){line.step, line.seconds, count_tokens(&r->before, &line), offset};
  if (line.step < r->from || line.step > r->to) return ERR_OK;
  return add_record(out, &line, r->before);
}

/* Returns how many bytes to read at `at`: the range, and with most files the end of its last line.
 * `is_long`: that was not enough. */
static size_t get_chunk(const Range *r, uint64_t at, bool is_long) {
  enum { SLACK = 4096 };
  uint64_t left = r->end - at;
  return is_long || left > CHUNK_BYTES - SLACK ? CHUNK_BYTES : (size_t)left + SLACK;
}

/* Adds the records of a part of the file to buckets. */
static Err read_range(int fd, const SeriesKind *k, Range r, Buckets *out) {
  char *text;
  Err err = mem_alloc(&text, CHUNK_BYTES, 1);
  uint64_t at = r.begin;
  bool is_long = false;
  while (!err && at < r.end) {
    size_t chunk = get_chunk(&r, at, is_long), got = read_at(fd, text, chunk, at), used = 0;
    const char *stop;
    while (!err && at + used < r.end && (stop = memchr(text + used, '\n', got - used))) {
      size_t len = (size_t)(stop - text) - used;
      err = take_from_range(&r, k, text + used, len, at + used, out);
      used += len + 1;
    }
    is_long = used == 0 && chunk < CHUNK_BYTES;
    if (used == 0 && got == CHUNK_BYTES) used = got; /* within a line that is too long */
    if (used == 0 && !is_long) break;
    at += used;
  }
  mem_free(text);
  return err;
}

/* Returns true if the bucket may be read again, and counts its bytes. The time to read a file stays
 * in proportion to its size, however many of its lines undo others. `offset`: of the line that undoes
 * records. */
static bool may_read_again(SeriesData *d, const Bucket *bucket, uint64_t offset) {
  uint64_t bytes = bucket->last.offset - bucket->first.offset + AGAIN_LEAST;
  if (d->read_again + bytes > AGAIN_BYTES + AGAIN_SHARE * offset) return false;
  d->read_again += bytes;
  return true;
}

/* Removes the records whose step is greater than `step`. A bucket that has records on both sides
 * is read again; in a sample (`fd` -1), and where lines undo too much, it is removed. */
static Err drop_later(SeriesData *d, LineKind kind, uint64_t offset, double step, int fd) {
  SeriesKind *k = &d->kind[kind];
  Buckets *b = &k->buckets;
  size_t keep = b->count;
  while (keep > 0 && b->bucket[keep - 1].first.step > step) keep--;
  if (keep == 0 || b->bucket[keep - 1].last.step <= step) {
    buckets_cut(b, keep);
    return ERR_OK;
  }
  Bucket both = b->bucket[keep - 1];
  buckets_cut(b, keep - 1);
  if (fd < 0 || !may_read_again(d, &both, offset)) return ERR_OK;
  Range range = {.kind = kind,
                 .from = both.first.step,
                 .to = step,
                 .begin = both.first.offset,
                 .end = both.last.offset + 1,
                 .before = get_end(b, keep - 1)};
  return read_range(fd, k, range, b);
}

/* The run has returned to `step`, as the line at `offset` shows. */
static Err undo_later(SeriesData *d, LineKind kind, uint64_t offset, double step, int fd) {
  SeriesKind *k = &d->kind[kind];
  while (k->undos && k->undo[k->undos - 1].step >= step) k->undos--;
  if (k->undos < UNDO_MOST) {
    TRY(mem_grow(&k->undo, &k->undo_room, k->undos + 1, sizeof *k->undo));
    k->undo[k->undos++] = (SeriesUndo){offset, step};
  }
  return drop_later(d, kind, offset, step, fd);
}

static void add_event(SeriesData *d, const Line *line, SeriesLine where) {
  if (strcmp(line->event, "ranks") == 0)
    d->ranks = where;
  else
    d->event[d->events++ % SERIES_EVENTS] = where;
}

/* Takes one line of the file. `fd`: the file, or -1 for a sample. */
static Err take_line(SeriesData *d, const char *text, size_t len, uint64_t offset, int fd) {
  Line line;
  if (!line_read(&line, text, len)) return ERR_OK;
  /* A line that undoes steps and is no event was written by a process that resumed the run. */
  if (line.event[0] || line.undoes_later)
    add_event(d, &line, (SeriesLine){offset, (uint32_t)len});
  for (int k = 0; k < LINE_KINDS && line.undoes_later; k++)
    TRY(undo_later(d, (LineKind)k, offset, line.undone_after, fd));
  if (line.event[0] || line.values == 0) return ERR_OK;
  Buckets *b = &d->kind[line.kind].buckets;
  /* The line that undoes this step may be missing: it is between two lines of a sample, or was
   * lost with a full disk. Of two validations of one step the later one counts. */
  if (b->count && b->bucket[b->count - 1].last.step >= line.step)
    TRY(undo_later(d, line.kind, offset, line.step - 0.5, fd));
  BucketPlace before = get_end(b, b->count);
  double tokens = count_tokens(&before, &line);
  return add_record(b, &line, (BucketPlace){line.step, line.seconds, tokens, offset});
}

/* Takes the complete lines of a text; *used: how many bytes these are. */
static Err take_lines(SeriesData *d, const char *text, size_t len, uint64_t offset, int fd,
                      size_t *used) {
  const char *stop;
  *used = 0;
  while ((stop = memchr(text + *used, '\n', len - *used))) {
    size_t line = (size_t)(stop - text) - *used;
    if (line <= LINE_MOST) TRY(take_line(d, text + *used, line, offset + *used, fd));
    *used += line + 1;
  }
  return ERR_OK;
}

/* Takes the complete lines of a block of the file, which may begin within a line. */
static Err sample_block(SeriesData *d, int fd, char *text, uint64_t offset, size_t bytes) {
  enum { SAMPLE = -1 };
  size_t used;
  uint64_t begin =
      offset ? offset - 1 : 0; /* the byte before tells whether a line begins here */
  size_t got = read_at(fd, text, bytes + (offset ? 1 : 0), begin);
  size_t skip = 0;
  if (offset) {
    const char *stop = memchr(text, '\n', got);
    if (!stop) return ERR_OK;
    skip = (size_t)(stop - text) + 1;
  }
  return take_lines(d, text + skip, got - skip, begin + skip, SAMPLE, &used);
}

static Err sample_file(const Series *s, SeriesData *d, int fd, char *text) {
  uint64_t tail = s->size > TAIL_BYTES ? s->size - TAIL_BYTES : 0;
  /* Requests all places first, so that the disk can read them in parallel. */
  for (uint64_t i = 0; tail && i < SAMPLE_PLACES; i++)
    posix_fadvise(fd, (off_t)(tail / SAMPLE_PLACES * i), SAMPLE_BYTES, POSIX_FADV_WILLNEED);
  for (uint64_t i = 0; i < SAMPLE_PLACES; i++) {
    uint64_t at = tail / SAMPLE_PLACES * i;
    if (tail) TRY(sample_block(d, fd, text, at, SAMPLE_BYTES));
  }
  return sample_block(d, fd, text, tail, TAIL_BYTES);
}

Err series_sample(Series *s) {
  char *text = NULL;
  if (s->sample || s->exact) return ERR_OK;
  int fd = open_metrics(s->path);
  if (fd < 0) return ERR_OK; /* removed in the meantime: there is nothing to show */
  Err err = mem_alloc(&text, TAIL_BYTES + 1, 1);
  if (!err) err = mem_alloc(&s->sample, 1, sizeof *s->sample);
  if (!err) err = sample_file(s, s->sample, fd, text);
  mem_free(text);
  close(fd);
  return err;
}

/* Reads the next chunk; *got: bytes read. A line longer than a chunk is skipped. */
static Err read_chunk(SeriesData *d, int fd, char *text, size_t *got) {
  size_t used;
  *got = read_at(fd, text, CHUNK_BYTES, d->offset);
  TRY(take_lines(d, text, *got, d->offset, fd, &used));
  if (used == 0 && *got == CHUNK_BYTES) used = *got;
  *got = used;
  d->offset += used;
  if (used == 0) return ERR_OK;
  d->tail_len = used < SERIES_TAIL ? used : SERIES_TAIL;
  memcpy(d->tail, text + used - d->tail_len, d->tail_len);
  return ERR_OK;
}

Err series_read_data(const char *path, SeriesData *d, size_t bytes, bool *is_end) {
  char *text;
  size_t got = 1;
  *is_end = true;
  int fd = open_metrics(path);
  if (fd < 0) return ERR_OK;
  Err err = mem_alloc(&text, CHUNK_BYTES, 1);
  for (size_t done = 0; !err && got > 0 && done < bytes; done += got)
    err = read_chunk(d, fd, text, &got);
  mem_free(text);
  close(fd);
  *is_end = got == 0;
  return err;
}

Err series_read(Series *s, size_t bytes) {
  bool is_end;
  if (s->is_exact) return ERR_OK;
  if (s->exact && !is_same_file(s)) series_free(s);
  if (!s->exact) TRY(mem_alloc(&s->exact, 1, sizeof *s->exact));
  TRY(series_read_data(s->path, s->exact, bytes, &is_end));
  s->is_exact = is_end;
  return ERR_OK;
}

void series_publish(Series *s, SeriesData *d) {
  series_free_data(s->sample);
  s->sample = NULL;
  s->exact = d;
  s->is_exact = true;
}

Err series_zoom(const Series *s, LineKind kind, double from, double to, size_t bytes,
                Buckets *out, bool *is_read) {
  *is_read = false;
  if (!s->exact || s->sample) return ERR_OK;
  const Buckets *b = &s->exact->kind[kind].buckets;
  Range range = {.kind = kind, .from = from, .to = to, .begin = UINT64_MAX};
  for (size_t i = 0; i < b->count; i++) {
    const Bucket *bucket = &b->bucket[i];
    if (bucket->last.step < from || bucket->first.step > to) continue;
    if (range.end == 0) {
      range.begin = bucket->first.offset;
      range.before = get_end(b, i);
    }
    range.end = bucket->last.offset + 1;
  }
  if (range.end && range.end - range.begin > bytes) return ERR_OK;
  int fd = open_metrics(s->path);
  if (fd < 0) return ERR_OK;
  *is_read = true;
  Err err = read_range(fd, &s->exact->kind[kind], range, out);
  close(fd);
  return err;
}

void series_line(const Series *s, SeriesLine line, Str *out) {
  char *text;
  int fd = open_metrics(s->path);
  if (fd < 0) return;
  if (mem_alloc(&text, (size_t)line.len + 1, 1) == ERR_OK) {
    size_t got = read_at(fd, text, line.len, line.offset);
    if (got == line.len) str_addn(out, text, got);
    mem_free(text);
  }
  close(fd);
}
