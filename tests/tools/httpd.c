/* A small HTTP server for tests: serves one directory on 127.0.0.1, supports ranges, and
 * injects faults on request. Prints its port, answers one client at a time, and exits by itself
 * after a time limit. Depends on POSIX alone. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: httpd DIR [--seconds N] [--requests N] [--log FILE]\n"
    "  --fail N       the first N requests get a 503\n"
    "  --cut K        the first body ends after K bytes\n"
    "  --cut-all K    every body ends after K bytes\n"
    "  --stall K      the first body stops after K bytes, the connection stays open\n"
    "  --no-range     ranges are ignored\n"
    "  --no-if-range  If-Range is ignored, ranges are not\n"
    "  --no-etag      only a date tells versions apart\n"
    "  --no-date      nor that\n"
    "/moved/NAME answers with a redirect to /NAME, /file/NAME with one to file:///NAME.\n";

static struct {
  const char *dir, *log;
  int seconds, requests, fail;
  /* Byte offsets at which the connection is cut or stalls; -1: never. */
  long long cut, cut_all, stall;
  bool no_range, no_if_range, no_etag, no_date;
} set = {.seconds = 60, .requests = 1000, .cut = -1, .cut_all = -1, .stall = -1};

typedef struct {
  char path[1024];
  char if_range[256];
  bool ranged;
  long long start, end; /* end is -1 for the last byte */
} Request;

static void die(const char *what) {
  perror(what);
  exit(1);
}

static void on_alarm(int signal) {
  (void)signal;
  _exit(0);
}

static bool send_all(int fd, const char *bytes, size_t len) {
  while (len) {
    ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n;
    len -= (size_t)n;
  }
  return true;
}

/* Reads to the blank line; returns false if the client sent no request. */
static bool read_request(int fd, Request *q) {
  char text[8192];
  size_t len = 0;
  while (len < sizeof text - 1) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    if (poll(&ready, 1, 5000) <= 0) return false;
    ssize_t n = recv(fd, text + len, sizeof text - 1 - len, 0);
    if (n <= 0) return false;
    len += (size_t)n;
    text[len] = '\0';
    if (strstr(text, "\r\n\r\n")) break;
  }
  *q = (Request){.end = -1};
  if (sscanf(text, "GET %1023s HTTP/1", q->path) != 1) return false;
  for (char *line = strstr(text, "\r\n"); line; line = strstr(line, "\r\n")) {
    line += 2;
    if (strncasecmp(line, "Range: bytes=", 13) == 0) {
      q->ranged = sscanf(line + 13, "%lld-%lld", &q->start, &q->end) >= 1;
    } else if (strncasecmp(line, "If-Range: ", 10) == 0) {
      size_t n = strcspn(line + 10, "\r\n");
      if (n < sizeof q->if_range) memcpy(q->if_range, line + 10, n), q->if_range[n] = '\0';
    }
  }
  return true;
}

static void note(const Request *q, int status) {
  if (!set.log) return;
  FILE *log = fopen(set.log, "a");
  if (!log) die(set.log);
  if (q->ranged)
    fprintf(log, "%s %lld- %d\n", q->path, q->start, status);
  else
    fprintf(log, "%s all %d\n", q->path, status);
  fclose(log);
}

static void plain(int fd, const Request *q, int status, const char *extra) {
  char head[2048];
  int n = snprintf(head, sizeof head,
                   "HTTP/1.1 %d Test\r\nContent-Length: 5\r\nConnection: close\r\n%s\r\nsorry",
                   status, extra);
  note(q, status);
  send_all(fd, head, (size_t)n);
}

/* Keeps the connection open until the client disconnects or the server's time limit is
 * reached. */
static void hold(int fd) {
  struct pollfd gone = {.fd = fd, .events = POLLIN | POLLRDHUP};
  while (poll(&gone, 1, -1) < 0 && errno == EINTR) {}
}

static void send_body(int fd, int file, long long at, long long end) {
  long long stop = end;
  bool stall = set.stall >= 0;
  if (stall)
    stop = at + set.stall < stop ? at + set.stall : stop;
  else if (set.cut >= 0)
    stop = at + set.cut < stop ? at + set.cut : stop;
  else if (set.cut_all >= 0)
    stop = at + set.cut_all < stop ? at + set.cut_all : stop;
  set.stall = stall ? -1 : set.stall;
  set.cut = -1;
  char block[65536];
  while (at < stop) {
    size_t want = stop - at < (long long)sizeof block ? (size_t)(stop - at) : sizeof block;
    ssize_t n = pread(file, block, want, (off_t)at);
    if (n <= 0 || !send_all(fd, block, (size_t)n)) return;
    at += n;
  }
  if (stall && stop < end) hold(fd);
}

static void serve_file(int fd, Request *q) {
  char path[4096], etag[64], date[64], head[1024], range[128] = "";
  struct stat st;
  q->path[strcspn(q->path, "?")] = '\0';
  snprintf(path, sizeof path, "%s%s", set.dir, q->path);
  int file = strstr(q->path, "..") ? -1 : open(path, O_RDONLY);
  if (file < 0 || fstat(file, &st) != 0 || !S_ISREG(st.st_mode)) {
    if (file >= 0) close(file);
    plain(fd, q, 404, "");
    return;
  }
  long long size = (long long)st.st_size;
  snprintf(etag, sizeof etag, "\"%llx-%llx-%llx\"", (unsigned long long)st.st_mtim.tv_sec,
           (unsigned long long)st.st_mtim.tv_nsec, (unsigned long long)size);
  struct tm when;
  gmtime_r(&st.st_mtim.tv_sec, &when);
  strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &when);
  const char *version = set.no_etag ? date : etag;
  bool current = set.no_if_range || !q->if_range[0] || strcmp(q->if_range, version) == 0;
  bool ranged = q->ranged && !set.no_range && current;
  if (ranged && q->start >= size) {
    snprintf(range, sizeof range, "Content-Range: bytes */%lld\r\n", size);
    plain(fd, q, 416, range);
    close(file);
    return;
  }
  long long at = ranged ? q->start : 0;
  long long end = ranged && q->end >= 0 && q->end < size ? q->end + 1 : size;
  if (ranged) {
    snprintf(range, sizeof range, "Content-Range: bytes %lld-%lld/%lld\r\n", at, end - 1, size);
  }
  int n = snprintf(
      head, sizeof head,
      "HTTP/1.1 %d OK\r\nContent-Length: %lld\r\nConnection: close\r\n%s%s%s%s%s%s%s%s\r\n",
      ranged ? 206 : 200, end - at, range, set.no_etag ? "" : "ETag: ", set.no_etag ? "" : etag,
      set.no_etag ? "" : "\r\n", set.no_date ? "" : "Last-Modified: ", set.no_date ? "" : date,
      set.no_date ? "" : "\r\n", set.no_range ? "" : "Accept-Ranges: bytes\r\n");
  note(q, ranged ? 206 : 200);
  if (send_all(fd, head, (size_t)n)) send_body(fd, file, at, end);
  close(file);
}

static void answer(int fd, Request *q) {
  char extra[1200];
  if (set.fail > 0) {
    set.fail--;
    plain(fd, q, 503, "");
  } else if (strncmp(q->path, "/moved/", 7) == 0) {
    snprintf(extra, sizeof extra, "Location: /%s\r\nETag: \"of-the-redirect\"\r\n",
             q->path + 7);
    plain(fd, q, 302, extra);
  } else if (strncmp(q->path, "/file/", 6) == 0) {
    snprintf(extra, sizeof extra, "Location: file:///%s\r\n", q->path + 6);
    plain(fd, q, 302, extra);
  } else {
    serve_file(fd, q);
  }
}

static void parse(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    const char *name = argv[i];
    if (strcmp(name, "--no-range") == 0)
      set.no_range = true;
    else if (strcmp(name, "--no-if-range") == 0)
      set.no_if_range = true;
    else if (strcmp(name, "--no-etag") == 0)
      set.no_etag = true;
    else if (strcmp(name, "--no-date") == 0)
      set.no_date = true;
    else if (name[0] != '-' && !set.dir)
      set.dir = name;
    else if (name[0] == '-' && i + 1 < argc) {
      const char *value = argv[++i];
      if (strcmp(name, "--seconds") == 0)
        set.seconds = atoi(value);
      else if (strcmp(name, "--requests") == 0)
        set.requests = atoi(value);
      else if (strcmp(name, "--log") == 0)
        set.log = value;
      else if (strcmp(name, "--fail") == 0)
        set.fail = atoi(value);
      else if (strcmp(name, "--cut") == 0)
        set.cut = atoll(value);
      else if (strcmp(name, "--cut-all") == 0)
        set.cut_all = atoll(value);
      else if (strcmp(name, "--stall") == 0)
        set.stall = atoll(value);
      else
        fputs(usage, stderr), exit(2);
    } else {
      fputs(usage, stderr), exit(2);
    }
  }
  if (!set.dir || set.seconds < 1 || set.seconds > 600) fputs(usage, stderr), exit(2);
}

int main(int argc, char **argv) {
  parse(argc, argv);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGALRM, on_alarm);
  alarm((unsigned)set.seconds);
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof where;
  if (listener < 0 || bind(listener, (struct sockaddr *)&where, sizeof where) != 0 ||
      listen(listener, 16) != 0 ||
      getsockname(listener, (struct sockaddr *)&where, &len) != 0) {
    die("httpd");
  }
  printf("%d\n", ntohs(where.sin_port));
  fflush(stdout);
  while (set.requests > 0) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) continue;
    Request q;
    if (read_request(fd, &q)) {
      answer(fd, &q);
      set.requests--;
    }
    shutdown(fd, SHUT_WR);
    close(fd);
  }
  return 0;
}
