/* Posts: short one-way messages to rank 0 that nobody waits for, such as measurements. The first
 * rank of every other host may send them. Nothing here blocks, and memory is bounded: a post that
 * finds no room, because the network or the reader is slower than the sender, is dropped and
 * counted. Threads: any thread may call post_add, post_take and post_dropped; only the queue's
 * current runner (queue.h) calls the other functions. Depends on group, sequence, transport. */
#ifndef COMM_POST_H
#define COMM_POST_H

#include <pthread.h>

#include "comm/group.h"

#define POST_BYTES 16384 /* largest post */
#define POST_ROOM  4     /* posts that wait, for each sender */

typedef struct {
  uint32_t bytes;
  char text[POST_BYTES];
} Post;

/* A first-in-first-out queue of at most POST_ROOM posts. */
typedef struct {
  Post post[POST_ROOM];
  size_t first, count;
} PostRing;

/* Rank 0: the posts of one sender. */
typedef struct {
  int from;
  Post incoming;
  TransportRequest receive;
  bool is_receiving;
  PostRing ring; /* received, not taken yet */
} PostBox;

typedef struct {
  const Group *group;
  pthread_mutex_t lock; /* guards the rings, `dropped` and `next` */
  PostRing ring;        /* a sender: posts that are not sent yet */
  Post outgoing;
  TransportRequest send;
  bool is_sending;
  size_t boxes; /* rank 0: number of senders */
  PostBox *box;
  size_t next; /* box in which post_take looks first, so that all senders have their turn */
  uint64_t dropped;
} Posts;

/* Allocates the memory; `group` must outlive the posts. All ranks call it if one calls it. */
NODISCARD Err post_open(Posts **posts, const Group *group);
void post_free(Posts *p); /* accepts NULL */

/* Queues a copy of the message. Returns false if it is dropped: there is no room, it is longer than
 * POST_BYTES, or this rank is not a sender. */
bool post_add(Posts *p, const void *bytes, size_t n);
/* On rank 0: copies the next post to `bytes` (POST_BYTES) and returns true; false: there is none. */
bool post_take(Posts *p, void *bytes, size_t *n);
/* Returns the number of posts that this rank has dropped so far. */
uint64_t post_dropped(Posts *p);

/* Sends and receives what is possible without waiting. A failing transport loses posts; what else
 * fails with it ends the run. */
void post_move(Posts *p);
/* Returns true while this rank has posts that are not sent completely. */
bool post_is_sending(Posts *p);
/* Cancels pending sends and receives at the end of a run. */
void post_cancel(Posts *p);

#endif
