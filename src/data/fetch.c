/* Downloads through libcurl. Range requests continue a partial file (.part); its .meta file
 * identifies the version of the remote file. Depends on libcurl, base. */
#include "data/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/place.h"
#include "base/progress.h"
#include "base/str.h"
#include "base/url.h"

bool fetch_is_url(const char *text) {
  static const char *const schemes[] = {"http://", "https://", "ftp://", "file://"};
  for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
    size_t n = strlen(schemes[i]);
    if (strncmp(text, schemes[i], n) != 0 || text[n] == '\0') continue;
    for (const char *at = text; *at; at++) {
      if ((unsigned char)*at <= ' ' || *at == 127) return false;
    }
    return true;
  }
  return false;
}

/* Checks size and hash of a file; `label` is its name in errors. */
static Err check_contents(const char *path, const char *label, const char *sha256,
                          uint64_t bytes) {
  uint64_t size;
  TRY(file_size(path, &size));
  if (bytes && size != bytes) {
    return err_set(ERR_WORK, "%s has %llu bytes where %llu are expected", label,
                   (unsigned long long)size, (unsigned long long)bytes);
  }
  if (sha256) {
    char hex[65];
    TRY(place_sha256(path, hex));
    if (strcmp(hex, sha256) != 0) {
      return err_set(ERR_WORK, "%s has the SHA-256 %s where %s is expected", label, hex,
                     sha256);
    }
  }
  return ERR_OK;
}

Err fetch_check(const char *path, const char *sha256, uint64_t bytes) {
  return check_contents(path, path, sha256, bytes);
}

#ifndef HAVE_CURL

bool fetch_is_built(void) {
  return false;
}

Err fetch_file(const FetchJob *job) {
  char shown[URL_SHOWN_MAX];
  return err_set(ERR_WORK,
                 "cannot fetch %s: this program was built without libcurl; install "
                 "libcurl4-openssl-dev and build it again",
                 url_mask(job->url, shown));
}

#else

#include <curl/curl.h>
#include <pthread.h>
#include <strings.h>

#define DEFAULT_TRIES     5
/* Maximum attempts if the host does not answer: it rarely becomes reachable within seconds. */
#define UNREACHABLE_TRIES 3
#define DEFAULT_DELAY     1.0
#define MOST_DELAY        60.0
#define DEFAULT_STALL     30.0
#define CONNECT_SECONDS   30L
#define META_LIMIT        16384

/* Identifies the version of a remote file; "" and 0 mean unknown. */
typedef struct {
  char etag[256];
  char modified[64];
  uint64_t size;
} Version;

/* Result of a request. AGAIN: retry. OVER: restart from the first byte. NEVER: give up. */
typedef enum { DONE, AGAIN, OVER, NEVER } Outcome;

typedef struct {
  const FetchJob *job;
  char shown[URL_SHOWN_MAX]; /* URL without passwords and signatures, for messages */
  char identity[65];
  CURL *curl;
  char part[FILE_PATH_MAX], meta[FILE_PATH_MAX];
  int fd;
  uint64_t at;     /* bytes in the .part file */
  uint64_t asked;  /* first byte of the requested range; 0: the whole file */
  uint64_t kept;   /* bytes of the .part file that an earlier call downloaded */
  Version version; /* version of the .part file */
  Version seen;    /* version of the current response */
  uint64_t range_start;
  bool begun;   /* The first byte of this response's body has arrived. */
  bool changed; /* The remote file has changed since the .part file was begun. */
  bool unreachable;
  bool stalled;
  double last_byte; /* time at which the last byte arrived */
  int requests;
  Err err; /* error that a callback of curl has set */
  Progress progress;
  char reason[CURL_ERROR_SIZE];
} Fetch;

bool fetch_is_built(void) {
  return true;
}

/* ---- the .meta file, which describes the .part file ---- */

static void take_line(const char *text, const char *key, char *out, size_t room) {
  size_t n = strlen(key);
  out[0] = '\0';
  for (const char *line = text; line; line = strchr(line, '\n')) {
    if (*line == '\n') line++;
    if (strncmp(line, key, n) != 0) continue;
    size_t len = strcspn(line + n, "\n");
    if (len >= room) return;
    memcpy(out, line + n, len);
    out[len] = '\0';
    return;
  }
}

/* Returns true if the .part file belongs to this URL and can be continued. Fills f->version. */
static bool read_meta(Fetch *f) {
  Str text = {0};
  char identity[80], size[32];
  bool ok = file_read(f->meta, META_LIMIT, &text) == ERR_OK;
  if (ok) {
    take_line(str_text(&text), "id ", identity, sizeof identity);
    take_line(str_text(&text), "size ", size, sizeof size);
    take_line(str_text(&text), "etag ", f->version.etag, sizeof f->version.etag);
    take_line(str_text(&text), "modified ", f->version.modified, sizeof f->version.modified);
    unsigned long long n = 0;
    if (sscanf(size, "%19llu", &n) == 1) f->version.size = n;
    ok = strcmp(identity, f->identity) == 0;
  }
  str_free(&text);
  return ok;
}

static Err write_meta(Fetch *f) {
  Str text = {0};
  str_addf(&text, "url %s\nid %s\n", f->shown, f->identity);
  if (f->version.etag[0]) str_addf(&text, "etag %s\n", f->version.etag);
  if (f->version.modified[0]) str_addf(&text, "modified %s\n", f->version.modified);
  if (f->version.size) str_addf(&text, "size %llu\n", (unsigned long long)f->version.size);
  Err err = str_check(&text);
  if (!err) err = file_write(f->meta, text.s, text.len);
  str_free(&text);
  return err;
}

/* Returns true if the bytes of two responses may be concatenated: the strong ETags or the dates
 * are equal, or a hash of the complete file will be checked. */
static bool same_version(const Version *a, const Version *b, bool hash_follows) {
  if (a->size && b->size && a->size != b->size) return false;
  if (a->etag[0] && b->etag[0]) return strcmp(a->etag, b->etag) == 0;
  if (a->modified[0] && b->modified[0]) return strcmp(a->modified, b->modified) == 0;
  return hash_follows;
}

static void header_value(const char *line, size_t len, char *out, size_t room) {
  while (len && (*line == ' ' || *line == '\t')) {
    line++;
    len--;
  }
  while (len && strchr(" \t\r\n", line[len - 1])) len--;
  out[0] = '\0';
  if (len >= room || memchr(line, '\0', len)) return;
  memcpy(out, line, len);
  out[len] = '\0';
}

static size_t on_header(char *line, size_t size, size_t count, void *user) {
  Fetch *f = user;
  size_t len = size * count;
  f->last_byte = progress_clock();
  if (len >= 5 && memcmp(line, "HTTP/", 5) == 0) { /* discards headers of a redirect */
    f->seen = (Version){0};
    f->range_start = UINT64_MAX;
  } else if (len > 5 && strncasecmp(line, "etag:", 5) == 0) {
    header_value(line + 5, len - 5, f->seen.etag, sizeof f->seen.etag);
    if (f->seen.etag[0] == 'W') f->seen.etag[0] = '\0'; /* weak ETag: bytes may differ */
  } else if (len > 14 && strncasecmp(line, "last-modified:", 14) == 0) {
    header_value(line + 14, len - 14, f->seen.modified, sizeof f->seen.modified);
  } else if (len > 14 && strncasecmp(line, "content-range:", 14) == 0) {
    char value[96];
    unsigned long long start, end, total;
    header_value(line + 14, len - 14, value, sizeof value);
    int n = sscanf(value, "bytes %19llu-%19llu/%19llu", &start, &end, &total);
    if (n >= 2) f->range_start = start;
    if (n == 3) f->seen.size = total;
  }
  return len;
}

static bool is_http(const Fetch *f) {
  return str_starts(f->job->url, "http");
}

static Err reset_part(Fetch *f) {
  if (ftruncate(f->fd, 0) != 0) return err_errno("cannot truncate", f->part);
  f->at = f->kept = 0;
  return ERR_OK;
}

/* At the first byte of a body, decides whether it continues or replaces the .part file. */
static Err begin_body(Fetch *f) {
  f->begun = true;
  long status = 0;
  curl_off_t length = -1, time = -1;
  curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(f->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
  curl_easy_getinfo(f->curl, CURLINFO_FILETIME_T, &time);
  bool partial = is_http(f) ? status == 206 : f->asked > 0;
  if (!is_http(f) && time >= 0) {
    snprintf(f->seen.modified, sizeof f->seen.modified, "@%lld", (long long)time);
  }
  if (!f->seen.size && length > 0) {
    f->seen.size = (uint64_t)length + (partial ? f->asked : 0);
  }
  if (partial && is_http(f) && f->range_start != f->asked) {
    return err_set(ERR_WORK,
                   "cannot fetch %s: the server sent a different byte range than requested; "
                   "try again",
                   f->shown);
  }
  if (partial && !same_version(&f->version, &f->seen, f->job->sha256 != NULL)) {
    f->changed = true;
    return err_set(ERR_WORK, "%s changed on the server during the download", f->shown);
  }
  if (f->job->bytes && f->seen.size && f->seen.size != f->job->bytes) {
    return err_set(ERR_WORK,
                   "%s has %llu bytes on the server, but the recipe says %llu: the file was "
                   "replaced there; correct the recipe, or download the file from another "
                   "source",
                   f->shown, (unsigned long long)f->seen.size,
                   (unsigned long long)f->job->bytes);
  }
  if (!partial) {
    TRY(reset_part(f));
    f->version = f->seen;
    TRY(write_meta(f));
  }
  const char *name = strrchr(f->job->path, '/');
  const char *title = f->job->title ? f->job->title : name ? name + 1 : f->job->path;
  uint64_t total = f->seen.size ? f->seen.size : f->job->bytes;
  progress_begin(&f->progress, title, "bytes", total);
  progress_resume(&f->progress, f->at);
  return ERR_OK;
}

static Err write_bytes(Fetch *f, const char *bytes, size_t len) {
  if (f->job->bytes && f->at + len > f->job->bytes) {
    return err_set(ERR_WORK,
                   "%s is longer than the %llu bytes expected; the recipe may be outdated",
                   f->shown, (unsigned long long)f->job->bytes);
  }
  while (len) {
    ssize_t n = pwrite(f->fd, bytes, len, (off_t)f->at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return err_errno("cannot write", f->part);
    bytes += n;
    len -= (size_t)n;
    f->at += (size_t)n;
  }
  progress_set(&f->progress, f->at);
  return ERR_OK;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *user) {
  Fetch *f = user;
  f->last_byte = progress_clock();
  if (!f->begun) f->err = begin_body(f);
  if (!f->err) f->err = write_bytes(f, bytes, size * count);
  return f->err ? 0 : size * count; /* 0 makes curl abort the transfer. */
}

/* Progress callback, called about once a second while no data arrives: aborts a stalled transfer.
 * curl's own low-speed limit tests a mean rate and reacts seconds later. */
static int on_time(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total,
                   curl_off_t up) {
  (void)total;
  (void)now;
  (void)up_total;
  (void)up;
  Fetch *f = user;
  double stall = f->job->stall > 0 ? f->job->stall : DEFAULT_STALL;
  f->stalled = progress_clock() - f->last_byte > stall;
  return f->stalled;
}

static bool is_transient(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_FTP_ACCEPT_TIMEOUT:
    case CURLE_PROXY:
      return true;
    default:
      return false;
  }
}

/* Returns true if the request failed before a server answered. */
static bool is_unreachable(Fetch *f, CURLcode code) {
  long through_proxy = 0;
  curl_off_t connected = 0;
  curl_easy_getinfo(f->curl, CURLINFO_HTTP_CONNECTCODE, &through_proxy);
  curl_easy_getinfo(f->curl, CURLINFO_CONNECT_TIME_T, &connected);
  return code == CURLE_COULDNT_RESOLVE_PROXY || code == CURLE_COULDNT_RESOLVE_HOST ||
         code == CURLE_COULDNT_CONNECT || code == CURLE_PROXY || through_proxy >= 400 ||
         (code == CURLE_OPERATION_TIMEDOUT && connected == 0);
}

static Outcome failed_status(Fetch *f) {
  long status = 0;
  curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
  if (status == 416 && f->asked) return OVER;
  const char *remedy = status == 404 || status == 410   ? "; the file is no longer available"
                       : status == 401 || status == 403 ? "; it requires a password"
                                                        : "";
  f->err =
      err_set(ERR_WORK, "cannot fetch %s: the server answers %ld%s", f->shown, status, remedy);
  return status == 408 || status == 429 || status >= 500 ? AGAIN : NEVER;
}

static Outcome judge_outcome(Fetch *f, CURLcode code) {
  if (f->changed) return OVER;
  if (f->err) return NEVER;
  if (code == CURLE_HTTP_RETURNED_ERROR && is_http(f)) return failed_status(f);
  if (code != CURLE_OK) {
    f->unreachable = is_unreachable(f, code);
    f->err = err_set(ERR_WORK, "cannot fetch %s: %s", f->shown,
                     f->reason[0] ? f->reason : curl_easy_strerror(code));
    return is_transient(code) ? AGAIN : NEVER;
  }
  long status = 0;
  curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
  if (is_http(f) && status != 200 && status != 206) return failed_status(f);
  if (!f->begun) f->err = begin_body(f); /* The remote file is empty. */
  if (f->err) return f->changed ? OVER : NEVER;
  if (f->version.size && f->at < f->version.size) {
    f->err = err_set(ERR_WORK, "cannot fetch %s: the connection ended after %llu of %llu bytes",
                     f->shown, (unsigned long long)f->at, (unsigned long long)f->version.size);
    return AGAIN;
  }
  return DONE;
}

static void set_protocols(CURL *curl, const char *url) {
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https,ftp,file");
  /* Forbids redirects from a server to a local file and from https to an insecure protocol. */
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR,
                   str_starts(url, "https:") ? "https" : "http,https");
#else
  long http = CURLPROTO_HTTP | CURLPROTO_HTTPS;
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS, http | CURLPROTO_FTP | CURLPROTO_FILE);
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS,
                   str_starts(url, "https:") ? (long)CURLPROTO_HTTPS : http);
#endif
}

static Outcome send_request(Fetch *f) {
  CURL *curl = f->curl;
  struct curl_slist *headers = NULL;
  char range[32], condition[sizeof f->version.etag + 16];
  f->asked = f->at;
  f->begun = f->changed = f->unreachable = f->stalled = false;
  f->last_byte = progress_clock();
  f->seen = (Version){0};
  f->range_start = UINT64_MAX;
  f->err = ERR_OK;
  f->reason[0] = '\0';
  curl_easy_reset(curl);
  set_protocols(curl, f->job->url);
  curl_easy_setopt(curl, CURLOPT_URL, f->job->url);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "trireme/" TRIREME_VERSION);
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl, CURLOPT_FILETIME, 1L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 262144L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_time);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, f);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, f->reason);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, f);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, f);
  if (f->asked) {
    /* CURLOPT_RESUME_FROM is not used, because it fails if a server ignores the range. */
    snprintf(range, sizeof range, "%llu-", (unsigned long long)f->asked);
    curl_easy_setopt(curl, CURLOPT_RANGE, range);
    const char *validator = f->version.etag[0] ? f->version.etag : f->version.modified;
    if (is_http(f) && validator[0]) {
      snprintf(condition, sizeof condition, "If-Range: %s", validator);
      headers = curl_slist_append(NULL, condition);
      curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    }
  }
  f->requests++;
  CURLcode code = curl_easy_perform(curl);
  if (f->stalled) {
    code = CURLE_OPERATION_TIMEDOUT;
    snprintf(f->reason, sizeof f->reason, "no data arrived for %.0f s",
             progress_clock() - f->last_byte);
  }
  Outcome outcome = judge_outcome(f, code);
  if (f->begun && f->progress.title[0]) progress_end(&f->progress);
  f->progress.title[0] = '\0';
  curl_slist_free_all(headers);
  return outcome;
}

static void wait_for(double seconds) {
  struct timespec left = {.tv_sec = (time_t)seconds};
  left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
  nanosleep(&left, NULL);
}

static double delay_before(Fetch *f, int failures) {
  double seconds = f->job->delay > 0 ? f->job->delay : DEFAULT_DELAY;
  for (int i = 1; i < failures && seconds < MOST_DELAY; i++) seconds *= 2;
  curl_off_t asked_for = 0;
  curl_easy_getinfo(f->curl, CURLINFO_RETRY_AFTER, &asked_for);
  if ((double)asked_for > seconds) seconds = (double)asked_for;
  return seconds < MOST_DELAY ? seconds : MOST_DELAY;
}

/* Repeats requests until the .part file is complete or the attempts are used up. */
static Err download_part(Fetch *f) {
  int tries = f->job->tries > 0 ? f->job->tries : DEFAULT_TRIES;
  int failures = 0;
  uint64_t most = f->at;
  /* An earlier call completed the .part file but did not rename it. */
  if (f->at && f->at == f->version.size) return ERR_OK;
  for (;;) {
    Outcome outcome = send_request(f);
    if (outcome == DONE) return ERR_OK;
    if (outcome == NEVER) return f->err;
    if (outcome == OVER) {
      log_info("%s has changed on the server: starting over", f->shown);
      TRY(reset_part(f));
      f->err = err_set(ERR_WORK,
                       "cannot fetch %s: the file changes on the server during every download; "
                       "try again later",
                       f->shown);
    }
    /* Counts consecutive attempts that did not extend the .part file. */
    if (f->at > most) {
      failures = 0;
      most = f->at;
    }
    failures++;
    if (failures >= tries || (f->unreachable && failures >= UNREACHABLE_TRIES)) {
      return failures > 1 ? err_context("after %d tries", failures) : f->err;
    }
    if (outcome == OVER) continue;
    double seconds = delay_before(f, failures);
    log_info("%s; trying again in %.3g s", err_message(), seconds);
    wait_for(seconds);
  }
}

static Err verify_part(Fetch *f) {
  Err err = check_contents(f->part, f->shown, f->job->sha256, f->job->bytes);
  if (err && f->kept) { /* The .part file may mix two versions of the remote file. */
    log_info("%s: starting over", err_message());
    TRY(reset_part(f));
    TRY(download_part(f));
    err = check_contents(f->part, f->shown, f->job->sha256, f->job->bytes);
  }
  if (!err) return ERR_OK;
  char bad[FILE_PATH_MAX];
  if (snprintf(bad, sizeof bad, "%s.bad", f->job->path) >= (int)sizeof bad ||
      rename(f->part, bad) != 0) {
    unlink(f->part);
    return err;
  }
  unlink(f->meta);
  ErrRecord why = err_take(err);
  return err_set(err, "%s; the download is kept as %s and not used", why.text, bad);
}

/* Opens and locks the .part file, so that only one process writes to it. Sets *done if another
 * process completed the download while this one waited for the lock. */
static Err open_part(Fetch *f, bool *done) {
  for (bool waited = false;; waited = true) {
    f->fd = open(f->part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (f->fd < 0) return err_errno("cannot create", f->part);
    bool busy = flock(f->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (busy) {
      log_info("waiting for another process that fetches %s", f->job->path);
      while (flock(f->fd, LOCK_EX) != 0 && errno == EINTR) {}
    }
    struct stat mine, named;
    if (fstat(f->fd, &mine) != 0) return err_errno("cannot read", f->part);
    bool current = stat(f->part, &named) == 0 && mine.st_ino == named.st_ino;
    if (current) {
      f->at = f->kept = (uint64_t)mine.st_size;
      return ERR_OK;
    }
    close(f->fd); /* Another process has renamed or removed the .part file. */
    f->fd = -1;
    *done = (busy || waited) && file_exists(f->job->path) &&
            fetch_check(f->job->path, f->job->sha256, f->job->bytes) == ERR_OK;
    if (*done) return ERR_OK;
  }
}

static Err fetch_locked(Fetch *f) {
  bool done = false;
  TRY(open_part(f, &done));
  if (done) return ERR_OK;
  bool known = read_meta(f);
  if (f->at && !(known && same_version(&f->version, &f->version, f->job->sha256 != NULL) &&
                 (!f->version.size || f->at <= f->version.size))) {
    TRY(reset_part(f));
  }
  TRY(download_part(f));
  if (f->job->sha256 || f->job->bytes) TRY(verify_part(f));
  if (fsync(f->fd) != 0 && errno != EINVAL) return err_errno("cannot sync", f->part);
  TRY(file_rename(f->part, f->job->path));
  unlink(f->meta);
  return ERR_OK;
}

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_ready;

static void curl_begin(void) {
  curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
}

Err fetch_file(const FetchJob *job) {
  Fetch f = {.job = job, .fd = -1};
  url_mask(job->url, f.shown);
  url_identify(job->url, f.identity);
  if (!fetch_is_url(job->url)) {
    return err_set(ERR_USAGE, "'%s' is not an http, https, ftp or file address", f.shown);
  }
  if (snprintf(f.part, sizeof f.part, "%s.part", job->path) >= (int)sizeof f.part ||
      snprintf(f.meta, sizeof f.meta, "%s.part.meta", job->path) >= (int)sizeof f.meta) {
    return err_set(ERR_WORK, "the path %s is too long; choose a directory with a shorter path",
                   job->path);
  }
  pthread_once(&curl_once, curl_begin);
  f.curl = curl_ready == CURLE_OK ? curl_easy_init() : NULL;
  if (!f.curl)
    return err_set(ERR_WORK, "cannot fetch %s: libcurl cannot start; free some memory",
                   f.shown);
  Err err = fetch_locked(&f);
  if (err && f.at == 0 && f.fd >= 0) { /* An empty .part file is not worth keeping. */
    unlink(f.part);
    unlink(f.meta);
  }
  if (f.fd >= 0) close(f.fd);
  curl_easy_cleanup(f.curl);
  if (job->report) {
    *job->report = (FetchReport){
        .unreachable = err && f.unreachable, .requests = f.requests, .resumed = f.kept};
  }
  return err;
}

#endif
