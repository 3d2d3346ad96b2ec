/* One-way messages to rank 0. Depends on base. */
#include "comm/post.h"

#include <string.h>

#include "base/mem.h"
#include "comm/sequence.h"

/* Returns the place for one more post, or NULL if the ring is full. */
static Post *get_free(PostRing *r) {
  return r->count < POST_ROOM ? &r->post[(r->first + r->count) % POST_ROOM] : NULL;
}

static void copy_post(Post *to, const Post *from) {
  to->bytes = from->bytes;
  memcpy(to->text, from->text, from->bytes);
}

/* Removes the oldest post; returns false if there is none. */
static bool remove_first(PostRing *r, Post *to) {
  if (!r->count) return false;
  copy_post(to, &r->post[r->first]);
  r->first = (r->first + 1) % POST_ROOM;
  r->count--;
  return true;
}

static bool is_sender(const Posts *p) {
  return p->group->rank > 0 && p->group->local_rank == 0;
}

Err post_open(Posts **out, const Group *group) {
  Posts *p;
  size_t hosts = (size_t)group->hosts;
  *out = NULL;
  TRY(mem_alloc(&p, 1, sizeof *p));
  p->group = group;
  if (group->rank == 0 && hosts > 1) {
    Err err = mem_alloc(&p->box, hosts - 1, sizeof *p->box);
    if (err) {
      mem_free(p);
      return err;
    }
    for (int r = 1; r < group->size; r++)
      if (group_is_first_of_host(group, r)) p->box[p->boxes++].from = r;
  }
  pthread_mutex_init(&p->lock, NULL);
  *out = p;
  return ERR_OK;
}

void post_free(Posts *p) {
  if (!p) return;
  pthread_mutex_destroy(&p->lock);
  mem_free(p->box);
  mem_free(p);
}

bool post_add(Posts *p, const void *bytes, size_t n) {
  pthread_mutex_lock(&p->lock);
  Post *post = is_sender(p) && n <= POST_BYTES ? get_free(&p->ring) : NULL;
  if (post) {
    post->bytes = (uint32_t)n;
    memcpy(post->text, bytes, n);
    p->ring.count++;
  } else {
    p->dropped++;
  }
  pthread_mutex_unlock(&p->lock);
  return post != NULL;
}

bool post_take(Posts *p, void *bytes, size_t *n) {
  bool is_found = false;
  pthread_mutex_lock(&p->lock);
  for (size_t i = 0; i < p->boxes && !is_found; i++) {
    PostRing *r = &p->box[(p->next + i) % p->boxes].ring;
    if (!r->count) continue;
    const Post *post = &r->post[r->first];
    *n = post->bytes;
    memcpy(bytes, post->text, post->bytes);
    r->first = (r->first + 1) % POST_ROOM;
    r->count--;
    p->next = (p->next + i + 1) % p->boxes;
    is_found = true;
  }
  pthread_mutex_unlock(&p->lock);
  return is_found;
}

uint64_t post_dropped(Posts *p) {
  pthread_mutex_lock(&p->lock);
  uint64_t dropped = p->dropped;
  pthread_mutex_unlock(&p->lock);
  return dropped;
}

/* A message always has the size of a Post, because Transport.recv needs the size in advance. */
static void send_next(Posts *p) {
  const Transport *transport = p->group->transport;
  bool is_done = false;
  if (p->is_sending && (transport->test(&p->send, &is_done) || !is_done)) return;
  p->is_sending = false;
  pthread_mutex_lock(&p->lock);
  bool is_next = remove_first(&p->ring, &p->outgoing);
  pthread_mutex_unlock(&p->lock);
  if (is_next)
    p->is_sending =
        transport->send(0, TAG_POST, &p->outgoing, sizeof p->outgoing, &p->send) == NULL;
}

/* Stores a post that has arrived. The length comes from another process and is checked. */
static void store_post(Posts *p, PostBox *b) {
  pthread_mutex_lock(&p->lock);
  Post *post = b->incoming.bytes <= POST_BYTES ? get_free(&b->ring) : NULL;
  if (post) {
    copy_post(post, &b->incoming);
    b->ring.count++;
  } else {
    p->dropped++;
  }
  pthread_mutex_unlock(&p->lock);
}

/* Takes all posts of one sender that have arrived, even if there is no room for them: otherwise
 * the transport would keep them, in memory without a limit. */
static void receive_posts(Posts *p, PostBox *b) {
  const Transport *transport = p->group->transport;
  for (;;) {
    bool is_done = false;
    if (!b->is_receiving) {
      b->is_receiving = transport->recv(b->from, TAG_POST, &b->incoming, sizeof b->incoming,
                                        &b->receive) == NULL;
      if (!b->is_receiving) return;
    }
    if (transport->test(&b->receive, &is_done) || !is_done) return;
    b->is_receiving = false;
    store_post(p, b);
  }
}

void post_move(Posts *p) {
  if (is_sender(p)) send_next(p);
  for (size_t i = 0; i < p->boxes; i++) receive_posts(p, &p->box[i]);
}

bool post_is_sending(Posts *p) {
  pthread_mutex_lock(&p->lock);
  bool has_waiting = p->ring.count > 0;
  pthread_mutex_unlock(&p->lock);
  return p->is_sending || has_waiting;
}

void post_cancel(Posts *p) {
  const Transport *transport = p->group->transport;
  if (p->is_sending) transport->abandon(&p->send);
  p->is_sending = false;
  for (size_t i = 0; i < p->boxes; i++) {
    if (p->box[i].is_receiving) transport->abandon(&p->box[i].receive);
    p->box[i].is_receiving = false;
  }
}
