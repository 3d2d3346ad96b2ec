/* Frames from a hostile head to the part of an agent that sends and stores in-memory
 * copies. The agent must not write outside of its directory for copies. Input: frames, each
 * a type byte, a length byte and the body. Depends on launch/peer. */
#include <dirent.h>
#include <sys/socket.h>

#include "fuzz_file.h"
#include "launch/peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char root[64];

static void remove_root(void) {
  if (file_remove_all(root)) fprintf(stderr, "%s\n", err_message());
}

/* Creates root, which contains only the agent's directory for copies. */
static void make_root(void) {
  char dir[128];
  if (*root) return;
  snprintf(root, sizeof root, "/tmp/fuzz-peer-%d", (int)getpid());
  snprintf(dir, sizeof dir, "%s/copies", root);
  REQUIRE(file_mkdirs(dir) == ERR_OK);
  atexit(remove_root);
}

static void check_root(void) {
  DIR *dir = opendir(root);
  REQUIRE(dir);
  for (struct dirent *entry; (entry = readdir(dir));)
    REQUIRE(entry->d_name[0] == '.' || strcmp(entry->d_name, "copies") == 0);
  closedir(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const uint8_t types[] = {PEER_SEND, PEER_READ, PEER_PART};
  char dir[128];
  PeerAgent p;
  Channel *head;
  int fds[2];
  make_root();
  snprintf(dir, sizeof dir, "%s/copies", root);
  REQUIRE(file_remove_all(dir) == ERR_OK && file_mkdirs(dir) == ERR_OK);
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  REQUIRE(channel_open(&head, fds[0], fds[0], "fuzz") == ERR_OK);
  REQUIRE(peer_open(&p, dir) == ERR_OK);
  Err err = ERR_OK;
  for (size_t at = 0; !err && at + 2 <= size;) {
    size_t len = data[at + 1] < size - at - 2 ? data[at + 1] : size - at - 2;
    Frame f = {.type = types[data[at] % 3], .data = data + at + 2, .len = len};
    err = peer_handle(&p, head, &f);
    at += 2 + len;
  }
  peer_close(&p);
  channel_close(head);
  close(fds[1]);
  check_root();
  return 0;
}
