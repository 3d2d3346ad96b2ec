/* Checks directories that all hosts must see: the data set and the directory of the run.
 * Depends on doctor_hosts.h. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/progress.h"
#include "launch/doctor_hosts.h"

#define ANSWER_SECONDS 60.0
/* Largest number of bytes written to measure the directory. */
#define WRITE_BYTES   ((uint64_t)256 << 20)
#define WRITE_SECONDS 3.0
/* Attempts, one per second: NFS clients cache for some seconds that a file does not exist. */
#define VISIBLE_TRIES 8

/* Returns the index of the first host that can be reached; the number of hosts if there is
 * none. */
static size_t find_first(const DoctorHosts *d) {
  size_t first = 0;
  while (first < d->sessions.count && !doctor_is_member(d, first)) first++;
  return first;
}

void doctor_check_data(DoctorHosts *d, const char *data) {
  Sessions *s = &d->sessions;
  char path[FILE_PATH_MAX], own[65] = "";
  if (!data || file_join(path, data, "dataset.json")) return;
  for (size_t i = 0; i < s->count; i++)
    if (doctor_is_member(d, i))
      session_ask(&s->list[i], json_pack("{s:s, s:s}", "ask", "hash", "path", path));
  sessions_wait(s, ANSWER_SECONDS);
  for (size_t i = 0; i < s->count; i++) {
    const char *hash = protocol_text(s->list[i].answer, "sha256");
    if (!doctor_is_member(d, i)) continue;
    if (!own[0]) snprintf(own, sizeof own, "%.64s", hash);
    if (hash[0] && strcmp(hash, own) == 0) {
      findings_add(&d->findings, FINDING_OK, doctor_name(d, i), "data set", "%s is there",
                   data);
      continue;
    }
    findings_add(&d->findings, FINDING_PROBLEM, doctor_name(d, i), "data set",
                 hash[0] ? "%s is another data set than on %s" : "%s cannot be read", path,
                 doctor_name(d, find_first(d)));
    findings_remedy(&d->findings,
                    "mount the directory there, or copy the data set to the same "
                    "path on every host");
  }
}

/* Lets the first host measure the directory; returns false if it cannot write there. */
static bool measure_directory(DoctorHosts *d, size_t first, const char *run) {
  Session *s = &d->sessions.list[first];
  uint64_t bytes = d->needs.checkpoint < WRITE_BYTES ? d->needs.checkpoint : WRITE_BYTES;
  session_ask(s, json_pack("{s:s, s:s, s:I, s:f}", "ask", "directory", "path", run, "bytes",
                           (json_int_t)bytes, "seconds", WRITE_SECONDS));
  sessions_wait(&d->sessions, ANSWER_SECONDS);
  const json_t *facts = json_object_get(s->answer, "directory");
  if (!s->is_ready) return false;
  if (facts_directory_from_json(&d->directory, facts, s->host.name)) {
    findings_add(&d->findings, FINDING_PROBLEM, s->host.name, "directory", "%s", err_message());
    findings_remedy(&d->findings, "install the same version of trireme on all hosts");
    return false;
  }
  doctor_judge_directory(&d->findings, s->host.name, &d->directory, &d->needs);
  return !d->directory.problem[0];
}

/* Asks host i to write or read the file DIR/.trireme-doctor-TOKEN-WRITER. */
static void ask_file(DoctorHosts *d, size_t i, const char *ask, size_t writer) {
  char path[FILE_PATH_MAX + 64];
  snprintf(path, sizeof path, "%s/.trireme-doctor-%s-%zu", d->directory.measured, d->token,
           writer);
  session_ask(&d->sessions.list[i],
              json_pack("{s:s, s:s, s:s}", "ask", ask, "path", path, "text", d->token));
}

static bool is_read(const DoctorHosts *d, size_t i) {
  return strcmp(protocol_text(d->sessions.list[i].answer, "text"), d->token) == 0;
}

/* Asks all hosts except the first to read the file of the first, until each has read it or the
 * attempts are used up. */
static void read_everywhere(DoctorHosts *d, size_t first, bool *can_read, char (*why)[128]) {
  Sessions *s = &d->sessions;
  for (int times = 0; times < VISIBLE_TRIES; times++) {
    bool is_over = true;
    for (size_t i = 0; i < s->count; i++)
      if (i != first && !can_read[i] && doctor_is_member(d, i)) ask_file(d, i, "read", first);
    sessions_wait(s, ANSWER_SECONDS);
    for (size_t i = 0; i < s->count; i++) {
      if (i == first || can_read[i] || !doctor_is_member(d, i)) continue;
      can_read[i] = is_read(d, i);
      snprintf(why[i], sizeof *why, "%.120s", protocol_text(s->list[i].answer, "why"));
      if (!can_read[i]) is_over = false;
    }
    if (is_over) return;
    if (times + 1 < VISIBLE_TRIES) poll(NULL, 0, 1000);
  }
}

static void report_shared(DoctorHosts *d, size_t i) {
  findings_add(&d->findings, FINDING_OK, doctor_name(d, i), "shared dir",
               "%s is shared and writable", d->directory.measured);
}

/* Says of the first host only what was seen: the directory is shared if another host has read its
 * file. */
static void report_first(DoctorHosts *d, size_t first, const bool *can_read) {
  for (size_t i = 0; i < d->sessions.count; i++) {
    if (i == first || !can_read[i]) continue;
    report_shared(d, first);
    return;
  }
  findings_add(&d->findings, FINDING_OK, doctor_name(d, first), "shared dir",
               "%s is writable; no other host has seen it", d->directory.measured);
}

static void judge_visible(DoctorHosts *d, size_t first, size_t i, const char *why) {
  findings_add(
      &d->findings, FINDING_PROBLEM, doctor_name(d, i), "shared dir",
      "a file that %s writes in %s is not seen here (%s): the directory is missing, or "
      "it is not the same file system",
      doctor_name(d, first), d->directory.measured, why[0] ? why : "another file is there");
  findings_remedy(&d->findings,
                  "mount the same network drive at the same path on all hosts; "
                  "'trireme cluster up' does it");
}

static void judge_writable(DoctorHosts *d, size_t i) {
  const char *why = protocol_text(d->sessions.list[i].answer, "why");
  if (!why[0]) {
    report_shared(d, i);
    return;
  }
  findings_add(&d->findings, FINDING_PROBLEM, doctor_name(d, i), "shared dir",
               "%s cannot be written: %s", d->directory.measured, why);
  findings_remedy(&d->findings, "mount it for writing, with the same user ids as on %s",
                  doctor_name(d, find_first(d)));
}

static void check_files(DoctorHosts *d, size_t first, bool *can_read, char (*why)[128]) {
  Sessions *s = &d->sessions;
  ask_file(d, first, "write", first);
  sessions_wait(s, ANSWER_SECONDS);
  read_everywhere(d, first, can_read, why);
  for (size_t i = 0; i < s->count; i++)
    if (i != first && can_read[i]) ask_file(d, i, "write", i);
  sessions_wait(s, ANSWER_SECONDS);
  report_first(d, first, can_read);
  for (size_t i = 0; i < s->count; i++) {
    if (i == first || !doctor_is_member(d, i)) continue;
    if (can_read[i])
      judge_writable(d, i);
    else
      judge_visible(d, first, i, why[i]);
  }
  for (size_t i = 0; i < s->count; i++)
    if (i == first || can_read[i]) ask_file(d, i, "remove", i);
  sessions_wait(s, ANSWER_SECONDS);
}

void doctor_check_shared(DoctorHosts *d, const char *run) {
  static bool can_read[HOSTS_MAX];
  static char why[HOSTS_MAX][128];
  size_t first = find_first(d);
  if (first == d->sessions.count) return;
  if (!run) {
    findings_add(&d->findings, FINDING_WARNING, "", "shared dir",
                 "not checked, because the directory of the run is not known");
    findings_remedy(&d->findings, "pass it with --run DIR");
    return;
  }
  memset(can_read, 0, sizeof can_read);
  if (measure_directory(d, first, run)) check_files(d, first, can_read, why);
}
