#!/usr/bin/env bats
# trireme cluster on test hosts: up, down, status, ssh, run. Each host has its own /etc/fstab,
# /opt, /mnt, /usr/local/bin and /usr/sbin. The kernel of a test machine may lack an NFS client,
# so mount.nfs and mount.cifs are replaced by a script that mounts a tmpfs with the same source.
bats_require_minimum_version 1.5.0
load ../tools/wait
load hosts

setup_file() {
  make_program
  make_hosts 2
  if [ -n "$LAB_MISSING" ]; then return; fi
  for host in h1 h2; do make_private "$host"; done
}
teardown_file() { remove_hosts; }

# make_program: the program under test is a copy without debugging information, because `up` sends it to
# the hosts in almost every test, encrypted.
make_program() {
  local file dir=$BATS_FILE_TMPDIR/program
  mkdir "$dir"
  for file in "$TRIREME" "${TRIREME%/*}"/libtrireme-{mpi,cuda}.so; do
    [ -e "$file" ] || continue
    strip --strip-debug -o "$dir/${file##*/}" "$file" 2> /dev/null || cp "$file" "$dir/"
  done
  export TRIREME=$dir/${TRIREME##*/}
}

# make_private HOST: makes private copies of the directories that `up` changes, mount helpers that
# need no server, and a user.
make_private() {
  enter "$1" bash -c '
    set -e
    for dir in /opt /mnt /usr/local/bin; do mount -t tmpfs -o mode=755 none $dir; done
    mkdir /run/sbin
    mount --bind /usr/sbin /run/sbin
    mount -t tmpfs -o mode=755 none /usr/sbin
    ln -s /run/sbin/* /usr/sbin/
    rm -f /usr/sbin/mount.nfs /usr/sbin/mount.cifs
    cat > /usr/sbin/mount.nfs << "EOF"
#!/bin/sh
echo "$*" >> /run/mount.log
case $1 in *nowhere*) echo "mount.nfs: Connection timed out for $1" >&2; exit 32 ;; esac
exec mount -i -t tmpfs "$1" "$2"
EOF
    chmod 755 /usr/sbin/mount.nfs
    cp /usr/sbin/mount.nfs /usr/sbin/mount.cifs
    echo "ann:x:4321:4321::/run/ann:/bin/sh" >> /etc/passwd
    echo "ann:*:19000::::::" >> /etc/shadow
    mkdir /run/ann
    chown 4321 /run/ann
    cp "$1" /etc/ann_keys
    printf "Match User ann\nAuthorizedKeysFile /etc/ann_keys\n" >> /run/sshd_config
    kill -HUP $(cat /run/sshd.pid)' - "$LAB/key.pub"
  until_true enter "$1" bash -c 'echo > /dev/tcp/127.0.0.1/$1' - $SSH_PORT 2> /dev/null
}

setup() {
  need_hosts
  cd "$BATS_TEST_TMPDIR"
  hosts=(--hosts "h1,h2" --ssh-port $SSH_PORT --ssh-key "$LAB/key")
  drive=nfs://nas/export:/mnt/data
  for host in h1 h2; do
    enter $host bash -c 'printf "# the system\n/dev/vda1 / ext4 defaults 0 1\n" > /etc/fstab; rm -f /run/mount.log /usr/local/bin/*'
  done
}
# Cleans up without `cluster down`, because that is what these tests check.
teardown() {
  [ -z "${LAB_MISSING-not made}" ] || return 0
  for host in h1 h2; do
    enter $host bash -c 'umount /mnt/*/* /mnt/* 2> /dev/null; rm -rf /mnt/* /opt/* /run/ann/*'
  done
}

# cluster VERB OPTION…: calls `cluster` on h1 for both hosts.
cluster() { on h1 "$TRIREME" cluster "$@" "${hosts[@]}"; }
# files_on HOST: prints all files that `up` may change there, with their contents.
files_on() {
  enter "$1" bash -c 'find /opt /mnt /usr/local/bin -printf "%p %y %m %l %i\n" | sort; cat /etc/fstab; ls /etc; find /opt -type f -exec sha256sum {} +; grep " /mnt" /proc/mounts || true'
}
# row HOST: prints its row of the table in $output.
row() { echo "$output" | grep -E "^[0-9]+ $1  " | head -n 1; }

@test "up copies program and plug-ins, mounts the drive, prints ports and launch line" {
  local plugins files
  plugins=$(find "${TRIREME%/*}" -maxdepth 1 \( -name libtrireme-mpi.so -o -name libtrireme-cuda.so \) | wc -l)
  files=$((1 + plugins))
  run --separate-stderr cluster up --no-doctor --mount $drive
  [ "$status" -eq 0 ]
  for host in h1 h2; do
    [[ "$(row $host)" =~ "copied $files of $files files"\ +none\ missing\ +mounted ]]
    cmp "$TRIREME" <(enter $host cat /opt/trireme/bin/trireme)
    [ "$(enter $host /usr/local/bin/trireme --version)" = "$("$TRIREME" --version)" ]
    [ "$(enter $host grep -c x-trireme.cluster /etc/fstab)" -eq 1 ]
    [ "$(enter $host sed -n 3p /etc/fstab)" = "nas:/export /mnt/data nfs nofail,_netdev,hard,x-trireme.cluster 0 0" ]
    enter $host grep -q "^nas:/export /mnt/data " /proc/mounts
  done
  [[ "$output" == *"TCP 4444        from this machine to every other host: ssh"* ]]
  [[ "$output" == *"TCP 1024-65535  from host to host, from nowhere else"* ]]
  [[ "$output" == *"TCP 2049        from every host to nas: NFS"* ]]
  [[ "$output" == *"trireme launch --hosts h1,h2 "*" --remote-program /opt/trireme/bin/trireme -- train --data /mnt/data/data --run /mnt/data/run"* ]]
}

@test "up called again changes nothing" {
  cluster up --no-doctor --mount $drive
  for host in h1 h2; do files_on $host > before.$host; done
  run --separate-stderr cluster up --no-doctor --mount $drive
  [ "$status" -eq 0 ]
  for host in h1 h2; do
    [[ "$(row $host)" =~ "up to date"\ +none\ missing\ +already\ mounted ]]
    files_on $host | diff before.$host -
    [ "$(enter $host cat /run/mount.log | wc -l)" -eq 1 ]
  done
}

@test "two calls of up at once mount once" {
  cluster up --no-doctor > first 2>&1
  cluster up --no-doctor --mount $drive > one 2>&1 3>&- &
  cluster up --no-doctor --mount $drive > two 2>&1
  wait $!
  for host in h1 h2; do
    [ "$(enter $host grep -c /mnt/data /etc/fstab)" -eq 1 ]
    [ "$(enter $host grep -c ' /mnt/data ' /proc/mounts)" -eq 1 ]
  done
}

@test "down undoes what up did and leaves all else" {
  for host in h1 h2; do
    enter $host bash -c 'mkdir -p /mnt/other; echo own > /mnt/other/file; echo own > /usr/local/bin/tool; echo >> /etc/fstab'
    files_on $host > before.$host
  done
  cluster up --no-doctor --mount $drive --mount nfs://nas/b:/mnt/deep/er
  enter h2 grep -q "^nas:/b /mnt/deep/er " /proc/mounts
  run --separate-stderr cluster down
  [ "$status" -eq 0 ]
  for host in h1 h2; do
    [[ "$(row $host)" == *removed ]]
    files_on $host | diff before.$host -
    enter $host rm -r /mnt/other
  done
  run --separate-stderr cluster down
  [ "$status" -eq 0 ]
  [[ "$(row h2)" == *"nothing to remove" ]]
}

@test "down leaves other files in the program directory and says so" {
  cluster up --no-doctor
  enter h2 bash -c 'echo mine > /opt/trireme/notes'
  run --separate-stderr cluster down
  [ "$status" -eq 0 ]
  [[ "$output" == *$'\n'"h2: /opt/trireme holds other files and stays" ]]
  [ "$(enter h2 find /opt -type f)" = /opt/trireme/notes ]
  enter h2 rm -r /opt/trireme
  enter h1 test ! -e /opt/trireme
}

@test "down does not touch a directory that up did not make" {
  enter h2 bash -c 'mkdir /opt/trireme; echo own > /opt/trireme/file'
  run --separate-stderr cluster up --no-doctor
  [ "$status" -eq 1 ]
  [[ "$output" == *"2 h2: connect FAILED: /opt/trireme exists and was not made by trireme cluster"* ]]
  run --separate-stderr cluster down
  [ "$status" -eq 1 ]
  [ "$(enter h2 cat /opt/trireme/file)" = own ]
  enter h2 rm -r /opt/trireme
}

@test "down of a drive in use names the process, and can be repeated" {
  cluster up --no-doctor --mount $drive
  enter h2 bash -c 'cd /mnt/data && exec sleep 1000' > out 2>&1 3>&- &
  until_true enter h2 fuser -s -m /mnt/data
  run --separate-stderr cluster down
  [ "$status" -eq 1 ]
  [[ "$output" =~ "2 h2: removal FAILED: umount".*"used by the processes" ]]
  [[ "$(row h1)" == *removed ]]
  enter h2 grep -q x-trireme.cluster /etc/fstab
  enter h2 fuser -s -k -m /mnt/data || true
  wait
  cluster down
  enter h2 test ! -e /mnt/data
}

@test "a host that cannot be reached is named, the others go on, exit status 1" {
  hosts[1]=h1,10.7.0.77,h2
  run --separate-stderr cluster up --no-doctor --mount $drive
  [ "$status" -eq 1 ]
  [[ "$(row 10.7.0.77)" =~ FAILED\ +-\ +-\ +- ]]
  [[ "$(row h2)" == *mounted* ]]
  [[ "$output" == *"2 10.7.0.77: connect FAILED: host 10.7.0.77 cannot be reached"* ]]
  [[ "$output" == *"TCP 4444"* ]]
  [[ "$output" != *"trireme launch"* ]]
  [[ "$stderr" == *"1 of 3 hosts failed: 10.7.0.77: connect"* ]]
  hosts[1]=h1,h2
  cluster down
}

@test "an unknown host key is a failure, also where the configuration switches checks off" {
  enter h1 bash -c 'cp /etc/ssh/ssh_config /run/kept; grep -v GlobalKnown /run/kept > /etc/ssh/ssh_config; echo "StrictHostKeyChecking no" >> /etc/ssh/ssh_config'
  run --separate-stderr cluster up --no-doctor
  enter h1 cp /run/kept /etc/ssh/ssh_config
  [ "$status" -eq 1 ]
  [[ "$output" == *"2 h2: connect FAILED: host h2 has a host key that is not known here"* ]]
  enter h2 test ! -e /opt/trireme
}

@test "a drive that cannot be mounted leaves no line in fstab" {
  run --separate-stderr cluster up --no-doctor --mount nfs://nowhere/x:/mnt/data
  [ "$status" -eq 1 ]
  [[ "$output" == *"1 h1: /mnt/data FAILED: mount nowhere:/x: mount.nfs: Connection timed out"* ]]
  [ "$(enter h1 cat /etc/fstab)" = "$(printf '# the system\n/dev/vda1 / ext4 defaults 0 1')" ]
  cluster up --no-doctor --mount $drive
}

@test "a full /tmp on a host is named and does not shorten fstab" {
  cluster up --no-doctor --mount nfs://nas/b:/mnt/b
  enter h2 bash -c 'cat /etc/fstab > /run/fstab; mount -o remount,size=1m /tmp; head -c 2m /dev/zero > /tmp/fill || true'
  run --separate-stderr cluster up --no-doctor --mount $drive
  [ "$status" -eq 1 ]
  [[ "$output" == *"2 h2: /mnt/data FAILED: "*"cannot write /tmp/"*" on this host; free space there"* ]]
  [[ "$(row h1)" == *mounted ]]
  enter h2 cmp /etc/fstab /run/fstab
  run --separate-stderr cluster down
  [ "$status" -eq 1 ]
  enter h2 cmp /etc/fstab /run/fstab
  enter h2 bash -c 'rm /tmp/fill; mount -o remount,size=50% /tmp'
  cluster down
  [ "$(enter h2 cat /etc/fstab)" = "$(printf '# the system\n/dev/vda1 / ext4 defaults 0 1')" ]
}

@test "a line of fstab for another drive at the mount point is refused and left alone" {
  enter h2 bash -c 'printf "\nnas:/old /mnt/data nfs ro 0 0\n" >> /etc/fstab; cat /etc/fstab > /run/fstab'
  run --separate-stderr cluster up --no-doctor --mount $drive
  [ "$status" -eq 1 ]
  [[ "$output" == *"2 h2: /mnt/data FAILED: /etc/fstab has another line for /mnt/data: nas:/old /mnt/data nfs ro 0 0"* ]]
  enter h2 cmp /etc/fstab /run/fstab
}

@test "a line of fstab for the same drive is used, and stays after down" {
  enter h2 bash -c 'printf "\nnas:/export /mnt/data nfs ro 0 0\n" >> /etc/fstab; cat /etc/fstab > /run/fstab'
  cluster up --no-doctor --mount $drive
  enter h2 cmp /etc/fstab /run/fstab
  enter h2 grep -q "^nas:/export /mnt/data " /proc/mounts
  cluster down
  enter h2 cmp /etc/fstab /run/fstab
  run -1 enter h2 grep " /mnt/data " /proc/mounts
}

@test "a drive that was mounted before stays mounted after down" {
  enter h2 bash -c 'mkdir /mnt/data; mount -i -t tmpfs nas:/export /mnt/data'
  cluster up --no-doctor --mount $drive
  [ "$(enter h2 grep -c ' /mnt/data ' /proc/mounts)" -eq 1 ]
  cluster down
  [ "$(enter h2 grep -c ' /mnt/data ' /proc/mounts)" -eq 1 ]
  enter h2 bash -c 'umount /mnt/data; rmdir /mnt/data'
}

@test "credentials of CIFS are in no argument, no output and no file that others can read" {
  mkdir bin
  printf '#!/bin/sh\nprintf "%%s\\n" "$@" >> "%s/arguments"\nexec /usr/bin/ssh "$@"\n' "$PWD" > bin/ssh
  chmod 755 bin/ssh
  (umask 077 && printf 'username=ann\npassword=S3cr3t-word\n' > secret)
  PATH=$PWD/bin:$PATH run cluster up --no-doctor --mount cifs://nas/share:/mnt/data --credentials secret
  [ "$status" -eq 0 ]
  [[ "$output" != *S3cr3t* ]]
  [ -s arguments ]
  run -1 grep S3cr3t arguments
  [ "$(enter h2 stat -c '%a %u' /opt/trireme/credentials.1)" = "600 0" ]
  enter h2 cmp /opt/trireme/credentials.1 "$PWD/secret"
  run -1 enter h2 grep -r S3cr3t /etc/fstab /run/mount.log /opt/trireme/cluster.record
  [ "$(enter h2 tail -n 1 /etc/fstab)" = "//nas/share /mnt/data cifs nofail,_netdev,vers=3.0,mfsymlinks,credentials=/opt/trireme/credentials.1,x-trireme.cluster 0 0" ]
  enter h2 grep -q "credentials=/opt/trireme/credentials.1" /run/mount.log
  cluster up --no-doctor --mount cifs://nas/share:/mnt/data --credentials secret
  [ "$(enter h2 stat -c '%a %u' /opt/trireme/credentials.1)" = "600 0" ]
  cluster down
  enter h2 test ! -e /opt/trireme
}

@test "a credentials file that others can read is refused" {
  printf 'username=ann\npassword=S3cr3t-word\n' > secret
  chmod 644 secret
  run cluster up --no-doctor --mount cifs://nas/share:/mnt/data --credentials secret
  [ "$status" -eq 2 ]
  [[ "$output" == *"other users can read it (mode 0644)"* ]]
  [[ "$output" != *S3cr3t* ]]
}

@test "missing packages are installed and named, or refused with --no-install" {
  for host in h1 h2; do
    enter $host bash -c '
      printf "#!/bin/sh\nexit 0\n" > /usr/local/bin/apt-cache
      printf "#!/bin/sh\necho \"\$*\" >> /run/apt.log\ncase \"\$*\" in *install*) ln -sf /bin/true /usr/local/bin/mpirun ;; esac\n" > /usr/local/bin/apt-get
      chmod 755 /usr/local/bin/apt-*; rm -f /run/apt.log'
  done
  # Removes mpirun on h2 only: its link is in /etc/alternatives, which is private to each host.
  [ -L /etc/alternatives/mpirun ] || skip "mpirun is no link to /etc/alternatives here"
  enter h2 mv /etc/alternatives/mpirun /run/mpirun
  run --separate-stderr cluster up --no-doctor --no-install
  [ "$status" -eq 1 ]
  [[ "$output" == *"2 h2: packages FAILED: missing: mpirun"* ]]
  enter h2 test ! -e /run/apt.log
  run --separate-stderr cluster up --no-doctor
  [ "$status" -eq 0 ]
  [[ "$(row h2)" == *"installed openmpi-bin"* ]]
  [[ "$(row h1)" == *"none missing"* ]]
  enter h2 grep -q -- "install --no-install-recommends openmpi-bin" /run/apt.log
  run --separate-stderr cluster down
  [[ "$output" == *$'\n'"h2: packages that 'up' installed stay: openmpi-bin" ]]
  enter h2 mv /run/mpirun /etc/alternatives/mpirun
}

@test "a host of another architecture is refused" {
  enter h2 bash -c 'printf "#!/bin/sh\necho riscv64\n" > /usr/local/bin/uname; chmod 755 /usr/local/bin/uname'
  run --separate-stderr cluster up --no-doctor
  [ "$status" -eq 1 ]
  [[ "$output" == *"2 h2: connect FAILED: this host is riscv64, the program was built for $(uname -m)"* ]]
  enter h2 test ! -e /opt/trireme
}

@test "status shows a missing program, another build, and a drive that is not mounted" {
  run --separate-stderr cluster status
  [ "$status" -eq 0 ]
  [[ "$(row h1)" =~ absent\ +none ]]
  cluster up --no-doctor --mount $drive
  enter h2 umount /mnt/data
  enter h1 bash -c 'echo >> /opt/trireme/bin/trireme'
  run --separate-stderr cluster status
  [ "$status" -eq 0 ]
  [[ "$(row h1)" =~ another\ build\ +/mnt/data\ mounted ]]
  [[ "$(row h2)" =~ same\ +/mnt/data\ NOT\ mounted ]]
}

@test "a user without sudo is told so, and can install below the home directory" {
  hosts[1]=ann@h1,ann@h2
  run --separate-stderr cluster up --no-doctor
  [ "$status" -eq 1 ]
  [[ "$output" == *"h2: connect FAILED: writing to /opt needs root, but user ann cannot use sudo without a password; pass --dir trireme"* ]]
  run --separate-stderr cluster up --no-doctor --dir trireme
  [ "$status" -eq 0 ]
  [ "$(enter h2 /run/ann/trireme/bin/trireme --version)" = "$("$TRIREME" --version)" ]
  run --separate-stderr cluster up --no-doctor --dir trireme --mount $drive
  [ "$status" -eq 1 ]
  [[ "$output" == *"h2: /mnt/data FAILED: mounting nas:/export needs root"* ]]
  cluster down --dir trireme
  enter h2 test ! -e /run/ann/trireme
}

@test "a user with sudo installs and mounts" {
  command -v sudo > /dev/null || skip "sudo is not installed"
  for host in h1 h2; do
    files_on $host > before.$host
    enter $host bash -c 'echo "ann ALL=(ALL) NOPASSWD: ALL" > /etc/sudoers.d/ann'
  done
  hosts[1]=ann@h1,ann@h2
  (umask 077 && printf 'username=ann\npassword=S3cr3t-word\n' > secret)
  cluster up --no-doctor --mount $drive --mount cifs://nas/share:/mnt/share --credentials secret
  [ "$(enter h2 stat -c %u /opt/trireme/bin/trireme)" -eq 0 ]
  [ "$(enter h2 stat -c '%a %u' /opt/trireme/credentials.2)" = "600 0" ]
  enter h2 grep -q "^//nas/share /mnt/share " /proc/mounts
  cluster down
  for host in h1 h2; do
    files_on $host | diff before.$host -
    enter $host rm /etc/sudoers.d/ann
  done
}

@test "run keeps words as they are, prefixes lines, reports exit statuses" {
  run --separate-stderr on h1 "$TRIREME" cluster run "${hosts[@]}" -- printf '%s|' "a  b" '$HOME;*' "it's"
  [ "$status" -eq 0 ]
  [ "$(echo "$output" | sort)" = "$(printf "h%d: a  b|\$HOME;*|it's|\n" 1 2)" ]
  run --separate-stderr on h1 "$TRIREME" cluster run "${hosts[@]}" -- 'hostname; echo no >&2; [ $(hostname) != h2 ] || exit 7'
  [ "$status" -eq 1 ]
  [ "$(echo "$output" | sort)" = "$(printf 'h%d: h%d\n' 1 1 2 2)" ]
  [[ "$stderr" == *"h1: no"* ]]
  [[ "$stderr" == *"h2: exit status 7"* ]]
  [[ "$stderr" == *"the command failed on 1 of 2 hosts"* ]]
}

# is_running HOST, is_gone HOST: state of the command of the test below.
is_running() { enter "$1" pgrep -f "^sleep 4321" > /dev/null; }
is_gone() { ! is_running "$1"; }

@test "run ends the command on the hosts when it is interrupted" {
  on h1 "$TRIREME" cluster run "${hosts[@]}" -- 'sleep 4321 | cat' > out 2>&1 3>&- &
  for host in h1 h2; do until_true is_running $host; done
  enter h1 pkill -TERM -f "cluster run .*sleep 4321"
  wait $! || true
  for host in h1 h2; do until_true is_gone $host; done
}

@test "ssh opens a shell on the host with that number or name" {
  [ "$(echo hostname | on h1 "$TRIREME" cluster ssh 2 "${hosts[@]}" 2> /dev/null)" = h2 ]
  [ "$(echo hostname | on h1 "$TRIREME" cluster ssh h2 "${hosts[@]}" 2> /dev/null)" = h2 ]
  run on h1 "$TRIREME" cluster ssh 3 "${hosts[@]}"
  [ "$status" -eq 2 ]
  [[ "$output" == *"there is no host 3; pass a number from 1 to 2, or a name"* ]]
}

@test "an inventory of AWS gives the hosts and the rule of their security group" {
  for i in 1 2; do
    echo "{\"State\":{\"Name\":\"running\"},\"PrivateIpAddress\":\"10.7.0.$i\",\"SecurityGroups\":[{\"GroupId\":\"sg-0$i\"},{\"GroupId\":\"sg-0abc\"}],\"Tags\":[{\"Key\":\"Name\",\"Value\":\"gpu$i\"}]}"
  done | paste -sd , | sed 's/.*/{"Reservations":[{"Instances":[&]}]}/' > instances.json
  hosts=(--inventory instances.json --ssh-user root --ssh-port $SSH_PORT --ssh-key "$LAB/key")
  run --separate-stderr cluster up --no-doctor
  [ "$status" -eq 0 ]
  [[ "$(row gpu2)" == *copied* ]]
  users=$(on h1 "$TRIREME" cluster run "${hosts[@]}" --ssh-user ann -- id -un | sort)
  [ "$users" = "$(printf 'gpu1: ann\ngpu2: ann')" ]
  [[ "$output" == *"authorize-security-group-ingress --group-id sg-0abc --protocol tcp"*"--port 1024-65535 --source-group sg-0abc"* ]]
  [[ "$output" == *"trireme launch --inventory instances.json --ssh-user root "* ]]
}

@test "up checks the hosts with doctor, and its launch line trains on them" {
  TRIREME_RECIPES=$BATS_TEST_DIRNAME/../../recipes "$TRIREME" prepare --recipe demo --demo-pairs 300 --vocab-size 300 --out "$BATS_TEST_TMPDIR/data" --quiet > /dev/null
  run --separate-stderr cluster up
  [ "$status" -eq 0 ]
  [[ "$output" =~ "same program".*"OK" ]]
  [[ "$output" =~ "all-reduce".*"OK" ]]
  [[ "$output" == *" 0 problems"* || "$output" == *"0 problems,"* ]]
  line=$(echo "$output" | sed -n 's/^  trireme launch \(.*\) -- train .*/\1/p')
  [ -n "$line" ]
  # shellcheck disable=SC2086  # the words of the printed line
  on h1 "$TRIREME" launch $line --nproc-per-node 1 -- train --data "$BATS_TEST_TMPDIR/data" --run "$BATS_TEST_TMPDIR/run" \
    --preset tiny --steps 2 --valid-every 0 --batch-tokens 256 --micro-batches 2 > out 2>&1 || { cat out; false; }
  grep -q "done at step 2" out
  [ -e run/checkpoints ]
}

@test "a home directory that does not exist is an error, and nothing is made" {
  run --separate-stderr on h1 env HOME="$PWD/none" "$TRIREME" cluster up --hosts localhost --dir trireme --no-doctor
  [ "$status" -eq 1 ]
  [[ "$output" == *"localhost: connect FAILED: the home directory of user root, '$PWD/none', does not exist; pass an absolute directory with --dir"* ]]
  [[ "$output" == *$'trireme opens none:\n  none'* ]]
  [ ! -e none ]
}

@test "localhost is this machine, without ssh; the port of ssh's configuration is printed" {
  mkdir bin
  printf '#!/bin/sh\nprintf "%%s\\n" "$@" >> "%s/arguments"\nexec /usr/bin/ssh "$@"\n' "$PWD" > bin/ssh
  chmod 755 bin/ssh
  enter h1 bash -c 'cp /etc/ssh/ssh_config /run/kept; printf "Host h2\n  Port %s\n" "$1" >> /etc/ssh/ssh_config' - $SSH_PORT
  hosts=(--hosts "localhost,h2" --ssh-key "$LAB/key")
  PATH=$PWD/bin:$PATH run --separate-stderr cluster up --no-doctor
  [ "$status" -eq 0 ]
  [[ "$(row localhost)" == *copied* ]]
  [ "$(enter h1 /opt/trireme/bin/trireme --version)" = "$("$TRIREME" --version)" ]
  [[ "$output" == *"TCP 4444        from this machine to every other host: ssh"* ]]
  [[ "$output" == *"TCP 1024-65535  from host to host, from nowhere else"* ]]
  [[ "$output" == *"trireme launch --hosts localhost,h2 --ssh-key $LAB/key --remote-program /opt/trireme/bin/trireme -- train --data DATA --run RUN"* ]]
  PATH=$PWD/bin:$PATH run --separate-stderr on h1 "$TRIREME" cluster run "${hosts[@]}" -- hostname
  [ "$(echo "$output" | sort)" = "$(printf 'h2: h2\nlocalhost: h1')" ]
  [ "$(echo hostname | SHELL=/bin/sh on h1 "$TRIREME" cluster ssh 1 "${hosts[@]}")" = h1 ]
  cluster down
  enter h1 test ! -e /opt/trireme
  enter h1 cp /run/kept /etc/ssh/ssh_config
  grep -qx h2 arguments
  run -1 grep -x localhost arguments
}

@test "up from a machine that is not one of the hosts names their ports and lines alone" {
  hosts[1]=h2
  run --separate-stderr cluster up --no-doctor
  [ "$status" -eq 0 ]
  [[ "$output" == *"TCP 4444        from this machine to every host: ssh"* ]]
  [[ "$output" != *"1024-65535"* ]]
  [[ "$output" == *"trireme launch --hosts h2 "* ]]
}

@test "up prints the launch line also if doctor finds a problem, exit status 1" {
  enter h2 bash -c 'mount -o remount,size=1m /tmp; head -c 2m /dev/zero > /tmp/fill || true'
  run --separate-stderr cluster up
  enter h2 bash -c 'rm /tmp/fill; mount -o remount,size=50% /tmp'
  [ "$status" -eq 1 ]
  [[ "$output" == *"h2   /tmp           problem  0 B free in /tmp"* ]]
  [[ "$output" == *$'When the problems are mended, start ranks on these hosts with:\n  trireme launch --hosts h1,h2 '* ]]
  [[ "$stderr" == *"trireme doctor ended with status 1"* ]]
}

@test "findmnt finds no fault in the lines of fstab" {
  (umask 077 && printf 'username=ann\npassword=S3cr3t-word\n' > secret)
  cluster up --no-doctor --mount $drive --mount cifs://nas/share:/mnt/share --credentials secret \
    --mount nfs://fs-0123456789abcdef0.efs.eu-west-1.amazonaws.com/:/mnt/efs
  enter h2 bash -c 'grep x-trireme.cluster /etc/fstab > /run/fstab.trireme'
  run enter h2 findmnt --verify --tab-file /run/fstab.trireme
  [ "$status" -eq 0 ]
  [[ "$output" == *"Success, no errors or warnings detected"* ]]
  [ "$(enter h2 grep -c . /run/fstab.trireme)" -eq 3 ]
}

@test "the container's ssh daemon uses the job's key pair, and a pod without it is refused" {
  for host in h1 h2; do
    enter $host bash -c 'set -e; cp "$1" /run/ann/entrypoint; chmod 755 /run/ann/entrypoint; mkdir /run/ann/.ssh; cp "$2" /run/ann/.ssh/id_rsa; cp "$2.pub" /run/ann/.ssh/id_rsa.pub; chown -R 4321 /run/ann' - \
      "$BATS_TEST_DIRNAME/../../deploy/container/entrypoint" "$LAB/key"
  done
  as_ann() { enter "$1" setpriv --reuid 4321 --regid 4321 --clear-groups env HOME=/run/ann "${@:2}"; }
  run as_ann h1 /run/ann/entrypoint sshd 2222
  [ "$status" -eq 2 ]
  [[ "$output" == *"no ~/.ssh/authorized_keys"* ]]
  enter h1 cp /run/ann/.ssh/id_rsa.pub /run/ann/.ssh/authorized_keys
  as_ann h1 /run/ann/entrypoint sshd 2222 > daemon 2>&1 3>&- &
  until_true grep -qs "listening on 0.0.0.0" daemon
  grep -q "^host key: ssh-ed25519 $(cut -d ' ' -f 2 "$LAB/key.pub")" daemon
  known=(-o GlobalKnownHostsFile=none -o UserKnownHostsFile=/run/ann/.trireme/known_hosts)
  [ "$(as_ann h2 /run/ann/entrypoint ssh "${known[@]}" -o BatchMode=yes -p 2222 -i /run/ann/.ssh/id_rsa 10.7.0.1 hostname)" = h1 ]
  # A daemon that does not have the job's key is refused.
  enter h1 pkill -f "sshd -D -e -f /run/ann"
  wait $! || true
  enter h1 rm /run/ann/.ssh/id_rsa
  as_ann h1 /run/ann/entrypoint sshd 2222 > other 2>&1 3>&- &
  until_true grep -qs "listening on 0.0.0.0" other
  run as_ann h2 ssh "${known[@]}" -o BatchMode=yes -p 2222 -i /run/ann/.ssh/id_rsa 10.7.0.1 hostname
  [ "$status" -eq 255 ]
  [[ "$output" == *"Host key verification failed"* ]]
  enter h1 pkill -f "sshd -D -e -f /run/ann"
}
