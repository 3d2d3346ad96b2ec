#!/usr/bin/env bats
# trireme cluster on hosts that hang: a login shell that does not start commands, locks of apt that
# another process holds.
bats_require_minimum_version 1.5.0
load ../tools/wait
load hosts

setup_file() {
  make_hosts 2
  if [ -n "$LAB_MISSING" ]; then return; fi
  for host in h1 h2; do
    enter $host bash -c 'for dir in /opt /usr/local/bin; do mount -t tmpfs -o mode=755 none $dir; done'
  done
}
teardown_file() { remove_hosts; }

setup() {
  need_hosts
  cd "$BATS_TEST_TMPDIR"
  hosts=(--hosts "h1,h2" --ssh-port $SSH_PORT --ssh-key "$LAB/key")
}
teardown() {
  [ -z "${LAB_MISSING-not made}" ] || return 0
  set_shell h2 /bin/bash
  for host in h1 h2; do enter $host bash -c 'rm -rf /opt/* /usr/local/bin/*'; done
}

# set_shell HOST SHELL: sets root's login shell.
set_shell() { enter "$1" sed -i "s|^\(root:.*:\)[^:]*$|\1$2|" /etc/passwd; }
# hang_shell HOST: gives root a login shell that starts no command. Ends those that an earlier test has
# left, which is_hanging would find.
hang_shell() {
  enter "$1" pkill -KILL -f "^sleep 98765" || true
  enter "$1" bash -c 'printf "#!/bin/sh\necho welcome\nexec sleep 98765\n" > /run/hang; chmod 755 /run/hang'
  set_shell "$1" /run/hang
}
is_hanging() { enter "$1" pgrep -f "^sleep 98765" > /dev/null; }

@test "a host whose login shell hangs is named, and the others go on" {
  hang_shell h2
  local verb pids=()
  for verb in up status down; do
    on h1 "$TRIREME" cluster $verb "${hosts[@]}" --dir "/opt/$verb" --host-timeout 15 > $verb.out 2> $verb.err 3>&- &
    pids+=($!)
  done
  on h1 "$TRIREME" cluster run "${hosts[@]}" --host-timeout 15 -- echo hello > run.out 2> run.err 3>&- &
  pids+=($!)
  for pid in "${pids[@]}"; do
    code=0
    wait "$pid" || code=$?
    [ $code -eq 1 ]
  done
  for verb in up status down; do
    grep -E "^2 h2: (connect|program|removal) FAILED: host h2 does not start a command \(no command was started in 15 s\); the login shell" $verb.out
  done
  grep -E "^1 h1  .*(copied|up to date)" up.out
  grep -E "^1 h1  .*absent" status.out
  grep -E "^1 h1  .*nothing to remove" down.out
  grep -x "h1: hello" run.out
  grep "h2: host h2 does not start a command" run.err
}

@test "a host that hangs is left at once when the call is interrupted, exit status 3" {
  hang_shell h2
  on h1 "$TRIREME" cluster status "${hosts[@]}" --host-timeout 3600 > out 2>&1 3>&- &
  until_true is_hanging h2
  enter h1 pkill -TERM -f "^[^ ]*trireme cluster status"
  code=0
  wait $! || code=$?
  [ $code -eq 3 ]
  until_true no_ssh_on h1
}

@test "no ssh is left when the call is ended at once" {
  hang_shell h2
  on h1 "$TRIREME" cluster status "${hosts[@]}" --host-timeout 3600 > out 2>&1 3>&- &
  until_true is_hanging h2
  enter h1 bash -c 'pid=$(pgrep -f "^[^ ]*trireme cluster status"); kill -TERM $pid; kill -TERM $pid'
  wait $! || true
  until_true no_ssh_on h1
}
no_ssh_on() { ! enter "$1" pgrep -x ssh; }

# make_apt HOST MESSAGE TIMES: an apt-get that fails with the message so many times, then installs
# mpirun; the clock of its host runs fast.
make_apt() {
  enter "$1" bash -c '
    printf "#!/bin/sh\nexit 0\n" > /usr/local/bin/apt-cache
    cp /usr/local/bin/apt-cache /usr/local/bin/sleep
    { echo "#!/bin/sh"
      echo "times=\$(cat /run/apt.times)"
      echo "if [ \$times -gt 0 ]; then echo \$((times - 1)) > /run/apt.times; echo \"$1\"; exit 100; fi"
      echo "case \"\$*\" in *install*) ln -sf /bin/true /usr/local/bin/mpirun ;; esac"; } > /usr/local/bin/apt-get
    echo $2 > /run/apt.times
    chmod 755 /usr/local/bin/*' - "$2" "$3"
  # mpirun's link is in /etc/alternatives, which is private to each host.
  [ -L /etc/alternatives/mpirun ] || skip "mpirun is no link to /etc/alternatives here"
  enter "$1" rm -f /etc/alternatives/mpirun
}
lock="E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711 (unattended-upgr)"

@test "up waits for a lock of apt and says who holds it" {
  make_apt h2 "$lock" 3
  run --separate-stderr on h1 "$TRIREME" cluster up --no-doctor "${hosts[@]}"
  [ "$status" -eq 0 ]
  [[ "$stderr" == *"h2: packages: waiting for a lock of apt: /var/lib/dpkg/lock-frontend is held by process 4711 (unattended-upgr); waited 20 s of at most 300 s"* ]]
  [[ "$output" =~ "2 h2 ".*"installed openmpi-bin" ]]
}

@test "up fails after 300 s with the name of the process that holds apt's lock" {
  make_apt h2 "${lock%. It is*} - open (11: Resource temporarily unavailable)" 1000
  run --separate-stderr on h1 "$TRIREME" cluster up --no-doctor "${hosts[@]}"
  [ "$status" -eq 1 ]
  [[ "$output" == *"2 h2: packages FAILED: apt-get update: waited 300 s for a lock: /var/lib/dpkg/lock-frontend is held by another process; "* ]]
  make_apt h2 "$lock" 1000
  run --separate-stderr on h1 "$TRIREME" cluster up --no-doctor "${hosts[@]}"
  [[ "$output" == *"waited 300 s for a lock: /var/lib/dpkg/lock-frontend is held by process 4711 (unattended-upgr); let it end"* ]]
  [[ "$output" =~ "1 h1 ".*"none missing" ]]
}
