/* The agent's side of in-memory checkpoint copies (peer.h): sends the files of a copy, and stores
 * those of another machine. Names and sizes from the sender are checked: no file is written
 * outside the directory for copies, and none becomes longer than announced. Depends on base,
 * peer.h. */
#include "launch/peer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/place.h"

static uint64_t read_number(const uint8_t *bytes, int n) {
  uint64_t value = 0;
  for (int i = n; i-- > 0;) value = value << 8 | bytes[i];
  return value;
}

static void write_number(uint8_t *bytes, int n, uint64_t value) {
  for (int i = 0; i < n; i++) bytes[i] = (uint8_t)(value >> 8 * i);
}

bool peer_parse(const Frame *f, uint32_t *id, uint8_t *kind, const uint8_t **bytes,
                size_t *len) {
  if (f->len < PEER_HEADER) return false;
  *id = (uint32_t)read_number(f->data, 4);
  *kind = f->data[4];
  *bytes = f->data + PEER_HEADER;
  *len = f->len - PEER_HEADER;
  return true;
}

/* Returns true for a file name without a path: letters, digits, '-', '_' and '.', not beginning
 * with '.'. */
static bool is_plain_name(const char *name) {
  size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");
  return n > 0 && n < PEER_NAME && !name[n] && name[0] != '.';
}

Err peer_open(PeerAgent *p, const char *dir) {
  *p = PEER_AGENT_CLOSED;
  if (strlen(dir) >= sizeof p->dir - 4 * PEER_NAME)
    return err_set(
        ERR_WORK,
        "the path of the directory for copies is too long: %s; set TMPDIR to a shorter path",
        dir);
  snprintf(p->dir, sizeof p->dir, "%s", dir);
  return ERR_OK;
}

static void end_sending(PeerAgent *p) {
  for (int i = 0; i < p->out.files; i++) close(p->out.fd[i]);
  p->out.files = 0;
  p->out.id = 0;
}

static void end_receiving(PeerAgent *p) {
  if (p->in.fd >= 0) close(p->in.fd);
  p->in.fd = -1;
  p->in.id = 0;
}

void peer_close(PeerAgent *p) {
  end_sending(p);
  end_receiving(p);
}

static void name_incoming(const PeerAgent *p, char path[FILE_PATH_MAX]) {
  snprintf(path, FILE_PATH_MAX, "%.*s/incoming", FILE_PATH_MAX - 16, p->dir);
}

/* Removes the files of an incomplete copy. */
static void abandon_copy(PeerAgent *p) {
  char path[FILE_PATH_MAX];
  end_receiving(p);
  name_incoming(p, path);
  if (file_remove_all(path)) log_warn("%s", err_message());
}

void peer_cancel(PeerAgent *p) {
  end_sending(p);
  abandon_copy(p);
}

/* Reports the current error (err_message) to the head. */
static Err report_failure(Channel *head, uint32_t id) {
  return protocol_send(head, PEER_FAILED,
                       json_pack("{s:I, s:s}", "id", (json_int_t)id, "text", err_message()));
}

static Err open_file(PeerAgent *p, const char *dir, const char *name) {
  char path[FILE_PATH_MAX];
  int i = p->out.files;
  if (i == PEER_FILES || !is_plain_name(name))
    return err_set(ERR_WORK, "%s is not a checkpoint: it contains %s", dir, name);
  TRY(file_join(path, dir, name));
  TRY(file_open(path, &p->out.fd[i], &p->out.size[i]));
  snprintf(p->out.name[i], PEER_NAME, "%s", name);
  p->out.files++;
  return ERR_OK;
}

typedef struct {
  PeerAgent *peer;
  const char *dir;
} OpenFiles;

static Err open_entry(void *context, const char *name) {
  const OpenFiles *o = context;
  return open_file(o->peer, o->dir, name);
}

/* Opens all files of the copy in `dir`. After that, train may replace or remove them. */
static Err begin_sending(PeerAgent *p, uint32_t id, const char *dir) {
  char link[FILE_PATH_MAX], copy[FILE_PATH_MAX], step[PEER_NAME];
  size_t base = strlen(p->dir);
  end_sending(p);
  if (strncmp(dir, p->dir, base) != 0 || dir[base] != '/' || !is_plain_name(dir + base + 1))
    return err_set(ERR_WORK, "%s is not in the directory for copies, %s", dir, p->dir);
  const char *run = dir + base + 1;
  snprintf(link, sizeof link, "%s/%s/checkpoints/latest", p->dir, run);
  ssize_t n = readlink(link, step, sizeof step - 1);
  if (n < 0) return err_errno("cannot read", link);
  step[n] = '\0';
  if (!is_plain_name(step)) return err_set(ERR_WORK, "%s points to %s", link, step);
  snprintf(copy, sizeof copy, "%s/%s/checkpoints/%s", p->dir, run, step);
  TRY(place_list(copy, open_entry, &(OpenFiles){p, copy}));
  snprintf(p->out.place, sizeof p->out.place, "%s/%s", run, step);
  p->out.id = id;
  p->out.file = 0;
  p->out.offset = 0;
  p->out.is_named = false;
  return ERR_OK;
}

static Err send_part(const PeerAgent *p, Channel *head, uint8_t kind, uint8_t *part,
                     size_t len) {
  write_number(part, 4, p->out.id);
  part[4] = kind;
  return channel_send(head, PEER_PART, part, PEER_HEADER + len);
}

/* Reads the next bytes of the file, at most PEER_BYTES. */
static Err read_bytes(PeerAgent *p, uint8_t *bytes, size_t *len) {
  int i = p->out.file;
  uint64_t left = p->out.size[i] - p->out.offset;
  size_t wanted = left < PEER_BYTES ? (size_t)left : PEER_BYTES;
  ssize_t n = pread(p->out.fd[i], bytes, wanted, (off_t)p->out.offset);
  if (n < 0) return err_errno("cannot read", p->out.name[i]);
  if (n == 0 && left > 0)
    return err_set(ERR_WORK, "%s of the copy was truncated", p->out.name[i]);
  *len = (size_t)n;
  return ERR_OK;
}

/* Sends the next part: a file name, bytes or the end of the copy. `part` has room for
 * PEER_HEADER + PEER_BYTES. *is_read is false if a file could not be read. */
static Err send_next(PeerAgent *p, Channel *head, uint8_t *part, bool *is_read) {
  int i = p->out.file;
  uint8_t *bytes = part + PEER_HEADER;
  size_t len = 0;
  *is_read = true;
  if (i == p->out.files) {
    len = strlen(p->out.place);
    memcpy(bytes, p->out.place, len);
    Err err = send_part(p, head, PART_END, part, len);
    end_sending(p);
    return err;
  }
  if (!p->out.is_named) {
    len = strlen(p->out.name[i]);
    write_number(bytes, 8, p->out.size[i]);
    memcpy(bytes + 8, p->out.name[i], len);
    p->out.is_named = true;
    return send_part(p, head, PART_FILE, part, len + 8);
  }
  if (read_bytes(p, bytes, &len)) {
    *is_read = false;
    return ERR_OK;
  }
  p->out.offset += len;
  if (p->out.offset == p->out.size[i]) {
    p->out.file++;
    p->out.offset = 0;
    p->out.is_named = false;
  }
  return send_part(p, head, PART_BYTES, part, len);
}

static Err handle_read(PeerAgent *p, Channel *head, uint32_t id) {
  uint8_t *part;
  bool is_read;
  if (!id || id != p->out.id) return ERR_OK; /* the request belongs to an earlier copy */
  TRY(mem_alloc(&part, PEER_HEADER + PEER_BYTES, 1));
  Err err = send_next(p, head, part, &is_read);
  mem_free(part);
  if (is_read) return err;
  end_sending(p);
  return report_failure(head, id);
}

static Err begin_receiving(PeerAgent *p, uint32_t id) {
  char path[FILE_PATH_MAX];
  end_receiving(p);
  name_incoming(p, path);
  TRY(file_remove_all(path));
  if (mkdir(path, 0700) != 0) return err_errno("cannot make", path);
  p->in.id = id;
  p->in.left = 0;
  p->in.files = 0;
  return ERR_OK;
}

static Err finish_file(PeerAgent *p) {
  if (p->in.fd < 0) return ERR_OK;
  close(p->in.fd);
  p->in.fd = -1;
  return p->in.left
             ? err_set(ERR_WORK, "a file of the copy ended %" PRIu64 " bytes early", p->in.left)
             : ERR_OK;
}

static Err receive_file(PeerAgent *p, const uint8_t *bytes, size_t len) {
  char dir[FILE_PATH_MAX], path[FILE_PATH_MAX], name[PEER_NAME] = "";
  TRY(finish_file(p));
  if (len > 8 && len - 8 < sizeof name) memcpy(name, bytes + 8, len - 8);
  if (!is_plain_name(name) || strlen(name) != len - 8 || p->in.files++ == PEER_FILES)
    return err_set(ERR_WORK, "the copy has a file with a wrong name, or too many files");
  TRY(file_check_memory(p->dir, read_number(bytes, 8)));
  name_incoming(p, dir);
  TRY(file_join(path, dir, name));
  p->in.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (p->in.fd < 0) return err_errno("cannot create", path);
  p->in.left = read_number(bytes, 8);
  return ERR_OK;
}

static Err receive_bytes(PeerAgent *p, const uint8_t *bytes, size_t len) {
  if (p->in.fd < 0 || len > p->in.left)
    return err_set(ERR_WORK, "the copy has a file that is longer than announced");
  for (size_t done = 0; done < len;) {
    ssize_t n = write(p->in.fd, bytes + done, len - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return err_errno("cannot write to", p->dir);
    done += (size_t)n;
  }
  p->in.left -= len;
  return ERR_OK;
}

/* Removes all copies except `step`. */
static Err remove_others(const char *checkpoints, const char *step) {
  char path[FILE_PATH_MAX];
  DIR *dir = opendir(checkpoints);
  if (!dir) return err_errno("cannot read", checkpoints);
  Err err = ERR_OK;
  for (struct dirent *entry; !err && (entry = readdir(dir));) {
    if (strncmp(entry->d_name, "step-", 5) != 0 || strcmp(entry->d_name, step) == 0) continue;
    err = file_join(path, checkpoints, entry->d_name);
    if (!err) err = file_remove_all(path);
  }
  closedir(dir);
  return err;
}

/* Moves the complete copy to RUN/checkpoints/STEP, where train searches for it. */
static Err move_copy(const PeerAgent *p, const char *run, const char *step) {
  char incoming[FILE_PATH_MAX], dir[FILE_PATH_MAX], copy[FILE_PATH_MAX], beside[FILE_PATH_MAX],
      link[FILE_PATH_MAX];
  name_incoming(p, incoming);
  TRY(file_join(beside, p->dir, run));
  TRY(file_join(dir, beside, "checkpoints"));
  TRY(file_mkdirs(dir));
  TRY(file_join(copy, dir, step));
  TRY(file_remove_all(copy));
  TRY(file_rename(incoming, copy));
  TRY(file_join(beside, dir, "latest.tmp"));
  TRY(file_join(link, dir, "latest"));
  if (unlink(beside) != 0 && errno != ENOENT) return err_errno("cannot remove", beside);
  if (symlink(step, beside) != 0) return err_errno("cannot create", beside);
  TRY(file_rename(beside, link));
  return remove_others(dir, step);
}

static Err receive_end(PeerAgent *p, const uint8_t *bytes, size_t len) {
  char place[2 * PEER_NAME] = "";
  TRY(finish_file(p));
  if (len < sizeof place) memcpy(place, bytes, len);
  char *slash = strchr(place, '/');
  if (!slash || !p->in.files) return err_set(ERR_WORK, "the copy ended without its name");
  *slash = '\0';
  if (!is_plain_name(place) || !is_plain_name(slash + 1) || strncmp(slash + 1, "step-", 5) != 0)
    return err_set(ERR_WORK, "the copy has a wrong name");
  TRY(move_copy(p, place, slash + 1));
  end_receiving(p);
  return ERR_OK;
}

static Err receive_part(PeerAgent *p, uint32_t id, uint8_t kind, const uint8_t *bytes,
                        size_t len) {
  if (kind == PART_FILE && id != p->in.id) TRY(begin_receiving(p, id));
  if (!id || id != p->in.id) return err_set(ERR_WORK, "the copy has no beginning");
  if (kind == PART_FILE) return receive_file(p, bytes, len);
  if (kind == PART_BYTES) return receive_bytes(p, bytes, len);
  return receive_end(p, bytes, len);
}

static Err handle_part(PeerAgent *p, Channel *head, const Frame *f) {
  uint32_t id;
  uint8_t kind;
  const uint8_t *bytes;
  size_t len;
  if (!peer_parse(f, &id, &kind, &bytes, &len) || kind < PART_FILE || kind > PART_END)
    return err_set(ERR_WORK,
                   "the head sent an invalid part of a copy; install the same version of "
                   "trireme on all machines");
  /* The failure of this copy has already been reported. */
  if (id == p->in.refused) return ERR_OK;
  if (receive_part(p, id, kind, bytes, len)) {
    ErrRecord why = err_copy();
    abandon_copy(p);
    p->in.refused = id;
    err_give(&why);
    return report_failure(head, id);
  }
  if (kind != PART_END) return ERR_OK;
  return protocol_send(head, PEER_STORED, json_pack("{s:I}", "id", (json_int_t)id));
}

Err peer_handle(PeerAgent *p, Channel *head, const Frame *f) {
  json_t *body;
  if (f->type == PEER_PART) return handle_part(p, head, f);
  TRY(protocol_parse(f, "the head", &body));
  uint32_t id = (uint32_t)protocol_int(body, "id", 0);
  Err err = ERR_OK;
  if (f->type == PEER_READ)
    err = handle_read(p, head, id);
  else if (f->type == PEER_SEND && begin_sending(p, id, protocol_text(body, "dir")))
    err = report_failure(head, id);
  json_decref(body);
  return err;
}
