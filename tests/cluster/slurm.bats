#!/usr/bin/env bats
# trireme launch in a real Slurm on test hosts: slurmctld and slurmd on h1, slurmd on h2. h3 is a
# login node, on which jobs are submitted and no rank may run.

bats_require_minimum_version 1.5.0
load ../ranks/support
load hosts

setup_file() {
  export SLURM_MISSING=
  local tool
  for tool in slurmctld slurmd srun munged; do
    command -v $tool > /dev/null || SLURM_MISSING="a Slurm of its own needs $tool: install slurm-wlm and munge"
  done
  [ -z "$SLURM_MISSING" ] || return 0
  make_hosts 3
  [ -z "$LAB_MISSING" ] || return 0
  start_slurm
  make_set
}
teardown_file() { remove_hosts; }

setup() {
  if [ -n "$SLURM_MISSING" ]; then skip "$SLURM_MISSING"; fi
  need_hosts
  need_mpi
  T=$BATS_TEST_TMPDIR
  RUN=$T/run
  cd "$T"
  BATCH=$BATS_TEST_DIRNAME/../../deploy/slurm/train.sbatch
}

teardown() {
  if [ -n "${SLURM_CONF:-}" ]; then
    on h3 scancel --user="$(id -un)" || true
    until_true has_no_job
  fi
}
has_no_job() { [ -z "$(on h3 squeue --noheader)" ]; }

# start_slurm: starts munge on every host, one controller, and two nodes with two slots each,
# independent of the cores of this machine.
start_slurm() {
  local host
  export SLURM_CONF=$BATS_FILE_TMPDIR/slurm.conf
  cat > "$SLURM_CONF" << END
ClusterName=lab
SlurmctldHost=h1($(host_address h1))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=/run/slurmctld
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=$LAB/slurmctld.log
SlurmdLogFile=$LAB/%h/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=sched_interval=2,sched_min_interval=0
KillWait=300
NodeName=h1 NodeAddr=$(host_address h1) CPUs=2 State=UNKNOWN
NodeName=h2 NodeAddr=$(host_address h2) CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
  echo CgroupPlugin=cgroup/v1 > "$BATS_FILE_TMPDIR/cgroup.conf"  # the test hosts have no cgroups
  head -c 1024 /dev/urandom > "$LAB/munge.key"
  for host in h1 h2 h3; do
    # shellcheck disable=SC2016  # for the host's shell
    on $host bash -c 'mkdir -m 755 /run/munge /run/slurmd && mkdir -m 700 /run/key && cp "$1" /run/key/ && chmod 400 /run/key/munge.key &&
      munged --force --socket=/run/munge/socket --key-file=/run/key/munge.key --pid-file=/run/munge/pid \
        --log-file=/run/munge/log --seed-file=/run/key/seed' - "$LAB/munge.key" 3>&-
  done
  on h1 mkdir /run/slurmctld
  on h1 slurmctld -c 3>&-
  on h1 slurmd 3>&-
  on h2 slurmd 3>&-
  until_true has_nodes
}
has_nodes() { [ "$(on h3 sinfo --noheader --format=%T:%D 2> /dev/null)" = idle:2 ]; }

# Prints the processes of jobs, without Slurm's daemons.
jobs_on() { processes_on "$1" | grep -vE '^[0-9]+ (munged|slurmctld|slurmd|: slurmscriptd) '; }
nothing_runs() {
  local host
  for host in h1 h2 h3; do
    [ -z "$(jobs_on $host)" ] || return 1
  done
}

# training [OPTION…]: prints the options of train, one per line.
training() { printf '%s\n' --data "$SET" --run "$RUN" "${MODEL[@]}" "$@"; }

@test "the batch file trains on all nodes of its allocation, with the bits of one process" {
  mapfile -t options < <(training --steps 3 --reproducible)
  on h3 sbatch --nodes=2 --output=log "$BATCH" "${options[@]}"
  until_true has_log "done at step 3" || { cat log; false; }
  until_true has_no_job
  grep -q "2 ranks on 2 machines over 10.7.0.0/24" log
  until_true nothing_runs
  train 1 "$T/alone" --steps 3 --reproducible
  same_state "$RUN" "$T/alone"
}

@test "from a login node, with the tasks that the allocation has on each node" {
  mapfile -t options < <(training --steps 3)
  run on h3 salloc --nodes=2 --ntasks=3 "$TRIREME" launch --all-output -- train "${options[@]}"
  echo "$output"
  [ "$status" -eq 0 ]
  [[ "$output" == *"3 ranks on 2 machines over 10.7.0.0/24"* ]]
  until_true nothing_runs
}

@test "srun starts ranks without launch" {
  mapfile -t options < <(training --steps 3)
  run on h3 srun --nodes=2 --ntasks=2 --mpi=pmix "$TRIREME" train "${options[@]}"
  echo "$output"
  [ "$status" -eq 0 ]
  [ "$(last_step "$RUN")" -eq 3 ]
}

has_step() { [ "$(last_step "$RUN")" -ge "$1" ]; }
has_log() { grep -q "$1" log; }

@test "a job whose time is over saves, is queued again and continues" {
  mapfile -t options < <(training --steps 1000000 --save-every 1000)
  on h3 sbatch --nodes=2 --output=log "$BATCH" "${options[@]}"
  until_true has_step 2 || { cat log; false; }
  # Sends the signal that Slurm sends before the time limit.
  on h3 scancel --batch --signal=USR1 --name=trireme
  until_true has_log "stopping: " || { cat log; false; }
  until_true has_resumed || { cat log; on h3 squeue; tail "$LAB/slurmctld.log"; false; }
  until_true has_log "^resume" || { cat log; false; }
  on h3 scancel --name=trireme
  until_true nothing_runs
}
# The log shows that two launches have begun.
has_resumed() { [ "$(grep -c "2 ranks on 2 machines" log)" -eq 2 ]; }

@test "a job that is cancelled saves, and the same command continues it" {
  mapfile -t options < <(training --steps 1000000 --save-every 1000000)
  on h3 sbatch --nodes=2 --output=log "$BATCH" "${options[@]}"
  until_true has_step 2 || { cat log; false; }
  on h3 scancel --name=trireme  # SIGTERM to all processes of the job, then SIGKILL after KillWait
  until_true has_no_job
  cat log
  grep -q "continue with: " log
  [ -e "$RUN/checkpoints/latest/weights.safetensors" ]
  until_true nothing_runs
}

# stopped: checks that the launch has stopped after a checkpoint, although it got no signal.
stopped() {
  cat log
  grep -q "no other machine can take its place: stopping" log || return 1
  grep -q "continue with: " log || return 1
  grep -q "ended with status 3" "$RUN/launch/launch.log" || return 1
  [ -e "$RUN/checkpoints/latest/weights.safetensors" ] || return 1
  until_true nothing_runs
}

@test "a signal to the steps of a job alone stops it after a checkpoint" {
  mapfile -t options < <(training --steps 1000000 --save-every 1000000)
  on h3 sbatch --nodes=2 --output=log "$BATCH" "${options[@]}"
  until_true has_step 2 || { cat log; false; }
  on h3 scancel --signal=TERM --name=trireme  # without --batch the script and launch do not get it
  until_true has_no_job
  stopped
}

@test "an allocation of salloc that is cancelled stops the run after a checkpoint" {
  mapfile -t options < <(training --steps 1000000 --save-every 1000000)
  on h3 salloc --nodes=2 --job-name=trireme "$TRIREME" launch -- train "${options[@]}" > log 2>&1 3>&- &
  until_true has_step 2 || { cat log; false; }
  on h3 scancel --name=trireme
  wait $! || true
  stopped
}

@test "launch ends when its allocation has ended" {
  local host
  mapfile -t options < <(training --steps 1000000 --save-every 5)
  on h3 salloc --nodes=2 --job-name=trireme "$TRIREME" launch -- train "${options[@]}" > log 2>&1 3>&- &
  until_true has_step 6 || { cat log; false; }
  for host in h1 h2; do
    kill -9 "$(jobs_on $host | grep -e "launch --agent-slurm" | tail -n 1 | cut -d ' ' -f 1)"
  done
  on h3 scancel --name=trireme
  wait $! || true
  cat log
  grep -q "0 of 2 required machines are connected, and no other can join" log
  until_true nothing_runs
}

@test "an agent that cannot begin says why, with the name of its node" {
  mapfile -t options < <(training --steps 3)
  on h2 mount -t tmpfs -o nr_inodes=1 none /dev/shm  # full
  on h3 sbatch --nodes=2 --output=log "$BATCH" "${options[@]}"
  until_true has_log "warning: h2: cannot make a directory .*No space left on device" || { cat log; false; }
  on h2 umount /dev/shm
  until_true has_log "done at step 3" || { cat log; false; }
  run ! grep -q "trireme: cannot make a directory" log
  until_true has_no_job
  until_true nothing_runs
}

@test "a node whose agent was killed is used again" {
  mapfile -t options < <(training --steps 1000000 --save-every 5)
  on h3 sbatch --nodes=2 --output=log "$BATCH" "${options[@]}"
  until_true has_step 6 || { cat log; false; }
  kill -9 "$(jobs_on h2 | grep -e "launch --agent-slurm" | tail -n 1 | cut -d ' ' -f 1)"
  until_true has_log "h2 is lost" || { cat log; false; }
  until_true has_log "h2 joined\|restart .*2 ranks on 2 machines" || { cat log; false; }
  on h3 scancel --name=trireme
  until_true nothing_runs
}
