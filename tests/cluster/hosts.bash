# Test hosts: machines that exist only inside namespaces of this one, for tests in bats.
#
#   make_hosts N [--decoy isolated|partial]   hosts h1 … hN, N < 10; in setup_file or setup
#   need_hosts                                skips the test if they could not be made, with the reason
#   remove_hosts                              ends everything that runs on them
#
# A host has its own network cards, hostname, process ids, /proc, /sys, /etc, /run, /tmp, /dev/shm,
# and an sshd on port 4444. It shares the other directories with this machine, as if by NFS, also the
# test's temporary directory and the program under test.
#
#   on HOST COMMAND…       runs a command there, with this environment and working directory
#   host_address HOST      its address on the network that connects all hosts
#   host_card HOST         its network card there; the names differ from host to host
#   processes_on HOST      "PID COMMAND" of each process there, with process ids of this machine;
#                          without sshd, which every host has
#   cut_link HOST          loses all packets without a sign; open connections stay open
#   heal_link HOST
#   slow_link HOST RATE    both directions, as tc writes a rate: 1gbit
#   fast_link HOST         after slow_link
#   block_port HOST PORT   a firewall: connections to this TCP port get no answer
#   unblock_port HOST PORT
#   set_clock HOST OFFSET  a clock that is wrong by +1h or -30s (libfaketime); skips without it
#   kill_all_on HOST       kill -9 of all processes; the machine stays up
#   kill_host HOST         power failure: no process ends in order, no connection is closed
#   start_host HOST        after kill_host
#
# With --decoy every host has a second card, the first in the list, that does not lead to the others:
#   isolated   all have an address in one subnet, but no cable leads anywhere
#   partial    h1 and h2 are connected through it, the other hosts have other subnets
#
# Everything is inside one process namespace ("the lab") that the kernel ends when the process which
# called make_hosts ends, even by kill -9. So no bridge, host or process can be left behind, and the
# names in it collide with no others.
# Depends on tests/tools/wait.bash, host_init.

SSH_PORT=4444
LAN=10.7.0  # network that connects all hosts
DECOY=10.6.0  # network of the decoy cards, which connects no hosts or two

hosts_source=$(realpath "${BASH_SOURCE[0]%/*}")

# missing_for_hosts: prints what is missing to make hosts; nothing if nothing is missing.
missing_for_hosts() {
  local tool
  if [ "$(id -u)" -ne 0 ]; then
    echo "test hosts need root"
    return
  fi
  for tool in ip bridge tc unshare nsenter setpriv ssh ssh-keygen; do
    if ! command -v $tool > /dev/null; then
      echo "test hosts need $tool: install iproute2, util-linux and openssh-client"
      return
    fi
  done
  if [ ! -x /usr/sbin/sshd ]; then
    echo "test hosts need sshd: install openssh-server"
    return
  fi
  unshare --fork --pid --net --mount --uts --ipc --mount-proc sh -c \
    'ip link add one type bridge && ip link add two type veth peer name three && mount -t sysfs none /sys && mount -t tmpfs none /run' \
    > /dev/null 2>&1 || echo "test hosts need the right to make namespaces, bridges and mounts (CAP_SYS_ADMIN, CAP_NET_ADMIN)"
}

make_hosts() {
  local n=$1 i
  shift
  LAB_MISSING=$(missing_for_hosts)
  export LAB_MISSING
  [ -z "$LAB_MISSING" ] || return 0
  LAB=$(mktemp -d "${BATS_FILE_TMPDIR:-/tmp}/lab.XXXXXX")
  LAB_DECOY=
  if [ "${1:-}" = --decoy ]; then LAB_DECOY=$2; fi
  make_ssh_files "$n"
  # The kernel kills process 1 of the lab when this shell ends (pdeathsig), and with it everything
  # in the lab.
  setpriv --pdeathsig KILL unshare --fork --kill-child --pid --net --mount --uts --ipc --mount-proc --propagation private \
    "$hosts_source/host_init" lab "$LAB" > "$LAB/log" 2>&1 3>&- &
  LAB_PID=$!
  export LAB LAB_PID LAB_DECOY
  until_true test -e "$LAB/is_up" || { cat "$LAB/log"; return 1; }
  for i in $(seq "$n"); do boot_host "h$i"; done
  for i in $(seq "$n"); do connect_host "h$i" || return 1; done
}

need_hosts() { [ -z "${LAB_MISSING-not made}" ] || skip "$LAB_MISSING"; }

remove_hosts() {
  [ -n "${LAB_PID:-}" ] || return 0
  kill -9 "$LAB_PID" 2> /dev/null || true  # kills unshare, and the kernel then kills the lab
  wait "$LAB_PID" 2> /dev/null || true
  rm -rf "$LAB"
  unset LAB LAB_PID
}

make_ssh_files() {
  local i key
  ssh-keygen -q -t ed25519 -N '' -C test -f "$LAB/key"
  for i in $(seq "$1"); do
    mkdir "$LAB/h$i"
    ssh-keygen -q -t ed25519 -N '' -C "h$i" -f "$LAB/h$i/host_key"
    key=$(cut -d ' ' -f 1,2 "$LAB/h$i/host_key.pub")
    echo "[h$i]:$SSH_PORT,[$LAN.$i]:$SSH_PORT,[$DECOY.$i]:$SSH_PORT $key" >> "$LAB/known_hosts"
    echo "$LAN.$i h$i" >> "$LAB/hosts"
  done
}

# child_of PID: prints its only child. The kernel's list takes no process to read; pgrep, for kernels
# without it, looks at all processes.
child_of() {
  local children=/proc/$1/task/$1/children list=
  if [ ! -e /proc/$$/task/$$/children ]; then
    pgrep -P "$1" | head -n 1
    return
  fi
  { read -r list < "$children"; } 2> /dev/null || true  # false: there is no line break at the end
  echo "${list%% *}"
}
lab_init() { child_of "$LAB_PID"; }
# host_init_of HOST: prints process 1 of the host, below nsenter and unshare; nothing if the host
# is off.
host_init_of() {
  local pid
  pid=$(child_of "$(< "$LAB/$1/nsenter")")
  if [ -n "$pid" ]; then child_of "$pid"; fi
}
# until_reached HOST FILE: waits until host_init has created this file; fails if host_init has
# ended.
until_reached() {
  until_true has_reached_or_ended "$1" "$2" || return 1
  [ -e "$LAB/$1/$2" ] || { cat "$LAB/$1/log"; return 1; }
}
has_reached_or_ended() { [ -e "$LAB/$1/$2" ] || ! kill -0 "$(< "$LAB/$1/nsenter")" 2> /dev/null; }

# in_switch COMMAND…: runs in the network namespace that has the other ends of the hosts' cables.
in_switch() { nsenter --target "$(lab_init)" --net "$@"; }

start_host() {
  boot_host "$1"
  connect_host "$1"
}

boot_host() {
  local host=$1
  rm -f "$LAB/$host/"is_* "$LAB/$host/clock"
  # Directories that hosts share although they are below /tmp, which is private to each host.
  printf '%s\n' "$LAB" "${BATS_RUN_TMPDIR:-$LAB}" "$(realpath "$hosts_source/../..")" \
    "$(dirname "$(realpath "${TRIREME:-/bin/true}")")" > "$LAB/$host/shared"
  nsenter --target "$(lab_init)" --pid --net --mount --ipc \
    unshare --fork --kill-child --pid --net --mount --uts --ipc --mount-proc --propagation private \
    env -u TMPDIR "$hosts_source/host_init" "$host" "$LAB" "$SSH_PORT" >> "$LAB/$host/log" 2>&1 3>&- &
  echo $! > "$LAB/$host/nsenter"
  disown $!  # so that bash does not print that the process was killed
}

connect_host() {
  until_reached "$1" is_made || return 1
  lay_cables "$1"
  touch "$LAB/$1/is_wired"
  until_reached "$1" is_up
}

# lay_cables HOST: creates its cards and their other ends in the switch (for h1: d1 for the decoy,
# p1).
lay_cables() {
  local i=${1#h} pid decoy=
  pid=$(host_init_of "$1")
  if [ -n "$LAB_DECOY" ]; then
    in_switch ip link add "d$i" type veth peer name eth0 address "02:00:00:00:06:0$i" netns "$pid"
    case $LAB_DECOY in
      isolated) decoy=$DECOY.$i/24 ;;
      partial)
        decoy=10.$((20 + i)).0.$i/24
        if [ "$i" -le 2 ]; then
          decoy=$DECOY.$i/24
          in_switch ip link set "d$i" master decoy
        fi
        ;;
    esac
    in_switch ip link set "d$i" up
    enter "$1" ip address add "$decoy" dev eth0
    enter "$1" ip link set eth0 up
  fi
  # Fixed MAC addresses: a host that is started again has the same card.
  in_switch ip link add "p$i" type veth peer name "$(host_card "$1")" address "02:00:00:00:07:0$i" netns "$pid"
  in_switch ip link set "p$i" master lan up
  enter "$1" ip address add "$(host_address "$1")/24" dev "$(host_card "$1")"
  enter "$1" ip link set "$(host_card "$1")" up
  until_true is_card_up "$1"
}

# Succeeds when the card and its port in the switch forward packets. The kernel brings both up in
# the background, which takes seconds on a busy machine.
is_card_up() {
  [[ $(enter "$1" ip -brief link show dev "$(host_card "$1")") =~ "UP" ]] &&
    [[ $(in_switch bridge link show dev "p${1#h}") =~ "state forwarding" ]]
}

host_address() { echo "$LAN.${1#h}"; }
host_card() { echo "lan${1#h}"; }

# enter HOST COMMAND…: like `on`, but in the root directory.
enter() {
  local pid
  pid=$(host_init_of "$1")
  if [ -z "$pid" ]; then
    echo "host $1 is off" >&2
    return 1
  fi
  shift
  nsenter --target "$pid" --pid --net --mount --uts --ipc "$@"
}

on() {
  local host=$1 clock
  shift
  clock=$(cat "$LAB/$host/clock" 2> /dev/null) || true
  # shellcheck disable=SC2016  # for the inner shell
  enter "$host" env -u TMPDIR $clock bash -c 'cd "$1" && shift && exec "$@"' - "$PWD" "$@"
}

processes_on() {
  local init
  init=$(host_init_of "$1")
  [ -n "$init" ] || return 0
  perl -e 'my ($init) = @ARGV; my $space = readlink "/proc/$init/ns/pid";
    for my $dir (glob "/proc/[0-9]*") {
      my $pid = substr $dir, 6;
      next if $pid == $init or (readlink "$dir/ns/pid" // "") ne $space;
      open my $f, "<", "$dir/cmdline" or next;
      local $/; my $command = <$f> // ""; $command =~ tr/\0/ /;
      next if $command eq "" or $command =~ m{^sleep infinity |^sshd: |^/usr/sbin/sshd }; # "": it has ended
      print "$pid $command\n";
    }' "$init"
}

cut_link() { in_switch ip link set "p${1#h}" nomaster; }
heal_link() { in_switch ip link set "p${1#h}" master lan; }

slow_link() {
  local shape=(root tbf rate "$2" burst 256kb latency 100ms)
  in_switch tc qdisc replace dev "p${1#h}" "${shape[@]}"
  enter "$1" tc qdisc replace dev "$(host_card "$1")" "${shape[@]}"
}

fast_link() {
  in_switch tc qdisc delete dev "p${1#h}" root
  enter "$1" tc qdisc delete dev "$(host_card "$1")" root
}

# Replies from the port get no route, so that connecting hangs as behind a firewall. This works
# without netfilter in the kernel.
block_port() { enter "$1" ip rule add priority 1 ipproto tcp sport "$2" blackhole; }
unblock_port() { enter "$1" ip rule delete priority 1 ipproto tcp sport "$2" blackhole; }

# Commands of `on` and of ssh get the wrong clock; sshd itself cannot, because of its sandbox.
set_clock() {
  local library
  library=$(find /usr/lib /usr/local/lib -name libfaketime.so.1 2> /dev/null | head -n 1)
  [ -n "$library" ] || skip "a wrong clock needs libfaketime: install faketime"
  echo "LD_PRELOAD=$library FAKETIME=$2 FAKETIME_DONT_FAKE_MONOTONIC=1" > "$LAB/$1/clock"
  # shellcheck disable=SC2016  # for the inner shell
  enter "$1" bash -c 'sed -i "s|^SetEnv .*|& $1|" /run/sshd_config; kill -HUP "$(cat /run/sshd.pid)"' - "$(cat "$LAB/$1/clock")"
}

kill_all_on() { enter "$1" bash -c 'kill -9 -1' || true; }

kill_host() {
  local pid
  pid=$(host_init_of "$1")
  cut_link "$1"  # before the kernel closes the connections of the processes
  kill -9 "$pid"
  until_true is_off "$1"
}

# Succeeds when the host has ended and its cables are gone. The kernel removes them some time
# after the last process; removing them here is faster.
is_off() {
  local cable
  [ -z "$(host_init_of "$1")" ] || return 1
  for cable in p d; do in_switch ip link delete "$cable${1#h}" 2> /dev/null || true; done
  [ -z "$(in_switch ip -brief link | grep "^[pd]${1#h}@")" ]
}
