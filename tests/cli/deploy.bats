#!/usr/bin/env bats
# The files in deploy/, checked by the tools of their systems as far as these work without them.
# tests/cluster/slurm.bats runs the batch file, tests/cluster/cluster.bats the container's ssh daemon.
bats_require_minimum_version 1.5.0

setup() {
  cd "$BATS_TEST_TMPDIR"
  deploy=$BATS_TEST_DIRNAME/../../deploy
  tools=$BATS_TEST_DIRNAME/../tools
}

# verify_unit FILE: systemd accepts the unit without a remark. The program of ExecStart must exist.
verify_unit() {
  run systemd-analyze verify --man=no "./$1"
  echo "$output"
  [ "$status" -eq 0 ]
  [ -z "$output" ]
}

@test "systemd accepts the unit" {
  command -v systemd-analyze > /dev/null || skip "systemd-analyze is not installed (package systemd)"
  sed "s|^ExecStart=/opt/trireme/bin/trireme|ExecStart=$(command -v true)|" "$deploy/systemd/trireme@.service" > trireme@.service
  grep -q "^ExecStart=$(command -v true) launch" trireme@.service
  verify_unit trireme@.service
  sed -i 's/^KillMode=/KilMode=/' trireme@.service  # a misspelt key is found
  run systemd-analyze verify --man=no ./trireme@.service
  [[ "$output" == *"Unknown key"*"'KilMode'"* ]]
}

@test "systemd accepts the unit that cloud-init writes" {
  command -v systemd-analyze > /dev/null || skip "systemd-analyze is not installed (package systemd)"
  sed -n '/^    content: |$/,/^[a-z]/s/^      //p' "$deploy/cloud-init/user-data.yaml" |
    sed "s|^ExecStart=/mnt/shared/trireme/bin/trireme|ExecStart=$(command -v true)|" > trireme.service
  grep -q "^ExecStart=$(command -v true) launch" trireme.service
  grep -qx "WantedBy=multi-user.target" trireme.service
  verify_unit trireme.service
}

@test "cloud-init accepts the user data" {
  command -v cloud-init > /dev/null || skip "cloud-init is not installed"
  run cloud-init schema --config-file "$deploy/cloud-init/user-data.yaml"
  echo "$output"
  [ "$status" -eq 0 ]
  [[ "$output" == *"Valid"* ]]
}

@test "the MPIJob has the fields of the operator's API, with values that it allows" {
  python3 -c 'import yaml' 2> /dev/null || skip "python3 has no yaml (package python3-yaml)"
  run python3 "$tools/check_mpijob.py" "$deploy/kubernetes/mpijob.yaml"
  echo "$output"
  [ "$status" -eq 0 ]
  sed 's/^  slotsPerWorker: 1/  slotsPerWorkers: "1"/; s/cleanPodPolicy: Running/cleanPodPolicy: Runing/' "$deploy/kubernetes/mpijob.yaml" > job.yaml
  run -1 python3 "$tools/check_mpijob.py" job.yaml
  [[ "$output" == *"MPIJob.spec.slotsPerWorkers: unknown field"* ]]
  [[ "$output" == *"MPIJob.spec.runPolicy.cleanPodPolicy: not allowed: 'Runing'"* ]]
}

@test "the MPIJob's command is one that trireme launch accepts" {
  python3 -c 'import yaml' 2> /dev/null || skip "python3 has no yaml (package python3-yaml)"
  printf 'nohost.invalid slots=1\n' > hostfile
  mapfile -t words < <(python3 - "$deploy/kubernetes/mpijob.yaml" << 'EOF'
import sys, yaml
job = yaml.safe_load(open(sys.argv[1]))
args = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["args"]
print("\n".join(args))
EOF
  )
  [ "${words[3]}" = trireme ]
  words[3]=$TRIREME
  # The host cannot be reached: the options were accepted, and launch has tried it.
  run -1 "${words[@]//\/etc\/mpi\/hostfile/$PWD/hostfile}" --steps 1
  echo "$output"
  [[ "$output" == *nohost.invalid* ]]
}
