/* Parses --mount, the credentials for CIFS and the program directory. They become part of a
 * shell script and of /etc/fstab, so only some characters are allowed. Depends on base. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/url.h"
#include "launch/cluster.h"

#define CREDENTIALS_LIMIT ((size_t)4096)

/* Returns true if the text contains only characters that neither a shell nor /etc/fstab
 * interprets, and those in `others`. */
static bool is_plain(const char *text, const char *others) {
  for (const char *c = text; *c; c++) {
    if (!isalnum((unsigned char)*c) && !strchr(others, *c)) return false;
  }
  return *text && *text != '-';
}

static bool has_dots(const char *path) {
  return strstr(path, "/../") || strstr(path, "/./") || str_ends(path, "/..") ||
         str_ends(path, "/.");
}

static void strip_slashes(char *path) {
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') path[--n] = '\0';
}

static Err refuse_mount(const char *text, const char *why) {
  char shown[URL_SHOWN_MAX];
  return err_set(ERR_USAGE,
                 "--mount %s: %s; pass nfs://SERVER/PATH:/MOUNT-POINT or "
                 "cifs://SERVER/SHARE:/MOUNT-POINT",
                 url_mask(text, shown), why);
}

/* Splits TYPE://SERVER/PATH:/POINT. The mount point begins at the last ":/". */
static Err split_mount(ClusterMount *m, const char *text, char path[1024]) {
  bool is_nfs = str_starts(text, "nfs://");
  if (!is_nfs && !str_starts(text, "cifs://")) return refuse_mount(text, "unknown kind");
  snprintf(m->type, sizeof m->type, "%s", is_nfs ? "nfs" : "cifs");
  const char *server = strstr(text, "://") + 3;
  const char *slash = strchr(server, '/');
  if (memchr(server, '@', slash ? (size_t)(slash - server) : strlen(server)))
    return refuse_mount(text, "a user or password does not belong here (--credentials FILE)");
  if (!slash) return refuse_mount(text, "no path");
  const char *point = NULL;
  for (const char *at = slash; (at = strstr(at, ":/")); at++) point = at + 1;
  if (!point) return refuse_mount(text, "no mount point");
  size_t server_len = (size_t)(slash - server), path_len = (size_t)(point - 1 - slash);
  if (server_len >= sizeof m->server || path_len >= 512 || strlen(point) >= 512)
    return refuse_mount(text, "too long");
  snprintf(m->server, sizeof m->server, "%.*s", (int)server_len, server);
  snprintf(path, 1024, "%.*s", (int)path_len, slash);
  snprintf(m->point, sizeof m->point, "%s", point);
  strip_slashes(path);
  strip_slashes(m->point);
  return ERR_OK;
}

/* Returns the mount options: for EFS those that Amazon documents; for other NFS servers the
 * defaults of the client. */
static const char *default_options(const ClusterMount *m) {
  if (strcmp(m->type, "cifs") == 0) return "vers=3.0,mfsymlinks";
  if (str_ends(m->server, ".amazonaws.com"))
    return "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport";
  return "hard";
}

Err cluster_parse_mount(ClusterMount *m, const char *text, const char *more) {
  char path[1024];
  *m = (ClusterMount){0};
  TRY(split_mount(m, text, path));
  if (!is_plain(m->server, ".-_[]:") || strchr(m->server, '\\'))
    return refuse_mount(text, "the server is no host name or address");
  if (strchr(m->server, ':') && m->server[0] != '[')
    return refuse_mount(text, "a port is given with --mount-options port=N");
  if (!is_plain(path, "/._-+@=,") || !is_plain(m->point, "/._-+@"))
    return refuse_mount(text, "blanks and special characters in a path are not supported");
  if (has_dots(m->point) || strcmp(m->point, "/") == 0)
    return refuse_mount(text, "the mount point must be the absolute path of a directory");
  bool is_nfs = strcmp(m->type, "nfs") == 0;
  if (!is_nfs && strcmp(path, "/") == 0) return refuse_mount(text, "no share");
  if (more && !is_plain(more, "._-+@=,:/"))
    return err_set(ERR_USAGE,
                   "--mount-options %s: pass options as in /etc/fstab, with commas between",
                   more);
  if (more && (strstr(more, "password") || strstr(more, "pass=")))
    return err_set(ERR_USAGE,
                   "--mount-options: a password would be readable in /etc/fstab by all users; "
                   "pass --credentials FILE");
  if (is_nfs)
    snprintf(m->source, sizeof m->source, "%s:%s", m->server, path);
  else
    snprintf(m->source, sizeof m->source, "//%s%s", m->server, path);
  int n = snprintf(m->options, sizeof m->options, "nofail,_netdev,%s%s%s", default_options(m),
                   more ? "," : "", more ? more : "");
  if (n < 0 || (size_t)n >= sizeof m->options)
    return err_set(
        ERR_USAGE,
        "--mount-options is too long for a line of /etc/fstab; leave some options out");
  return ERR_OK;
}

Err cluster_read_credentials(Str *into, const char *path) {
  struct stat s;
  if (stat(path, &s)) return err_errno("cannot read the credentials file", path);
  if (s.st_mode & 077)
    return err_set(ERR_USAGE,
                   "--credentials %s: other users can read it (mode %04o); call 'chmod 600 %s'",
                   path, (unsigned)(s.st_mode & 07777), path);
  TRY(file_read(path, CREDENTIALS_LIMIT, into));
  if (!strstr(str_text(into), "username=") || !strstr(str_text(into), "password="))
    return err_set(ERR_USAGE,
                   "--credentials %s: expected the lines username=NAME and password=SECRET "
                   "(and domain=NAME where there is one)",
                   path);
  return ERR_OK;
}

Err cluster_check_dir(const char *dir) {
  static const char *const system[] = {
      "/",     "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/mnt",       "/opt", "/proc",
      "/root", "/run", "/sbin", "/srv", "/sys", "/tmp",  "/usr", "/usr/local", "/var"};
  char absolute[1024];
  snprintf(absolute, sizeof absolute, "%s%s", dir[0] == '/' ? "" : "/home/user/", dir);
  if (strlen(dir) > 256 || !is_plain(dir, "/._-+@") || has_dots(absolute) ||
      str_starts(dir, "../"))
    return err_set(ERR_USAGE,
                   "--dir %s: pass a path of letters, digits and /._-, absolute or below the "
                   "home directory",
                   dir);
  for (size_t i = 0; i < sizeof system / sizeof *system; i++) {
    size_t n = strlen(system[i]);
    if (strncmp(dir, system[i], n) == 0 && dir[n + strspn(dir + n, "/")] == '\0')
      return err_set(ERR_USAGE,
                     "--dir %s is a directory of the system; pass one of its own, "
                     "such as /opt/trireme",
                     dir);
  }
  return ERR_OK;
}
