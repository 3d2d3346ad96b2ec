/* The steps of `cluster up`, `down` and `status`. Depends on cluster_host, cluster_table. */
#include "launch/cluster.h"

#include <stdio.h>
#include <string.h>

#include "launch/cluster_internal.h"

/* Sets the shell variables that describe the program's files. */
static void set_program(Str *settings, const ClusterProgram *p) {
  Str sums = {0};
  for (size_t i = 0; i < p->files; i++)
    str_addf(&sums, "%s%s %s", i ? "\n" : "", p->file[i].sum, p->file[i].path);
  cluster_set(settings, "SUMS", str_text(&sums));
  cluster_set(settings, "ARCH", p->arch);
  settings->failed = settings->failed || sums.failed;
  str_free(&sums);
}

static Err call_with_program(Member *m, const char *function) {
  Str settings = {0};
  set_program(&settings, &m->spec->program);
  Err err = str_check(&settings);
  if (!err) err = cluster_call(m, function, &settings);
  str_free(&settings);
  return err;
}

static Err connect_host(Member *m, const void *unused) {
  (void)unused;
  return call_with_program(m, "probe");
}

/* Sends the files that are missing on the host or differ there. An unchanged program is not
 * transferred. */
static Err copy_program(Member *m, const void *unused) {
  (void)unused;
  for (size_t i = 0; i < m->spec->program.files; i++) {
    const ClusterFile *f = &m->spec->program.file[i];
    if (m->wants[i]) TRY(cluster_send(m, strrchr(f->path, '/') + 1, &f->bytes));
  }
  return call_with_program(m, "install_program");
}

static Err install_packages(Member *m, const void *unused) {
  (void)unused;
  Str settings = {0}, commands = {0};
  str_add(&commands, "mpirun");
  for (size_t i = 0; i < m->spec->mounts; i++)
    str_addf(&commands, " mount.%s", m->spec->mount[i].type);
  cluster_set(&settings, "COMMANDS", str_text(&commands));
  cluster_set(&settings, "INSTALL", m->spec->may_install ? "yes" : "no");
  Err err = str_check(&commands);
  if (!err) err = str_check(&settings);
  if (!err) err = cluster_call(m, "install_packages", &settings);
  str_free(&commands);
  str_free(&settings);
  return err;
}

static Err mount_drive(Member *m, const void *argument) {
  const ClusterMount *drive = argument;
  Str settings = {0}, options = {0};
  char name[32] = "";
  Err err = ERR_OK;
  str_add(&options, drive->options);
  if (strcmp(drive->type, "cifs") == 0) {
    snprintf(name, sizeof name, "credentials.%d", (int)(drive - m->spec->mount) + 1);
    str_addf(&options, ",credentials=%s/%s", m->dir, name);
    TRY_DONE(cluster_call(m, "receive_credentials", NULL));
    TRY_DONE(cluster_send(m, name, &m->spec->credentials));
  }
  cluster_set(&settings, "SOURCE", drive->source);
  cluster_set(&settings, "POINT", drive->point);
  cluster_set(&settings, "TYPE", drive->type);
  cluster_set(&settings, "OPTIONS", str_text(&options));
  cluster_set(&settings, "CREDENTIALS", name);
  TRY_DONE(str_check(&options));
  TRY_DONE(str_check(&settings));
  TRY_DONE(cluster_call(m, "mount_drive", &settings));
done:
  str_free(&options);
  str_free(&settings);
  return err;
}

Err cluster_up(const ClusterSpec *spec, char dir[CLUSTER_DIR_MAX]) {
  Step steps[CLUSTER_STEPS] = {{"connect", connect_host, NULL},
                               {"program", copy_program, NULL},
                               {"packages", install_packages, NULL}};
  size_t n = 3;
  for (size_t i = 0; i < spec->mounts; i++) {
    const ClusterMount *drive = &spec->mount[i];
    steps[n++] = (Step){drive->point, mount_drive, drive};
  }
  return cluster_steps(spec, steps, n, PROGRESS_SHOWN, dir);
}

static Err call_plain(Member *m, const void *function) {
  return cluster_call(m, function, NULL);
}

Err cluster_down(const ClusterSpec *spec) {
  const Step steps[] = {{"removal", call_plain, "remove_all"}};
  return cluster_steps(spec, steps, 1, PROGRESS_SHOWN, NULL);
}

static Err call_for_program(Member *m, const void *function) {
  return call_with_program(m, function);
}

Err cluster_status(const ClusterSpec *spec) {
  const Step steps[] = {{"program", call_for_program, "show_program"},
                        {"drives", call_plain, "show_drives"},
                        {"load", call_plain, "show_load"}};
  return cluster_steps(spec, steps, sizeof steps / sizeof *steps, PROGRESS_HIDDEN, NULL);
}
