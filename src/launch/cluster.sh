#!/bin/sh
# The script that `trireme cluster` runs on a host with `sh -s`. The lines sent before it set VERB,
# the function to run, and the variables that the comment of this function lists. Works in any
# POSIX shell, for root or a user with sudo.
#
# Standard output is read by cluster_host.c:
#   cell TEXT    the cell of this step in the table
#   note TEXT    a message for the user
#   busy TEXT    what a long step is waiting for; printed at once
#   send P       file P of the program is missing or differs
#   directory P  absolute path of the program directory
# Standard error and an exit status other than 0: why the step failed.
#
# DIR/cluster.record lists what `up` did on this host, so that `down` undoes that and nothing else:
#   file PATH      a file below DIR
#   directory PATH a directory that did not exist
#   link PATH      a link to the program
#   fstab PATH     a line of /etc/fstab for this mount point, with the option x-trireme.cluster
#   mounted PATH   PATH was not mounted before
#   package NAME   a package that was installed
set -u
umask 022
LC_ALL=C
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH
MARK=x-trireme.cluster
# Time limit in seconds of mount and umount, which block for ever if a server does not answer.
LIMIT=90
# Time limit in seconds for a lock of apt or dpkg that another process holds.
LOCK_LIMIT=300
# Seconds between two lines that report a long step. Without them the caller gives this host up
# after its --host-timeout, which is at least 15 s.
TICK=10

scratch=$(mktemp) || exit 1
trap 'rm -f "$scratch"' EXIT
fail() {
  printf '%s\n' "$*" >&2
  exit 1
}
# A full disk must not shorten what is copied back from the scratch file.
fail_scratch() {
  fail "cannot write $scratch on this host; free space there ('df -h ${TMPDIR:-/tmp}')"
}

# root: the prefix that runs a command as root, "" or "sudo -n"; "none" if that is not possible.
root=
if [ "$(id -u)" -ne 0 ]; then
  if sudo -n true < /dev/null > /dev/null 2>&1; then root='sudo -n'; else root=none; fi
fi
as_root() {
  if [ "$root" = none ]; then
    echo "user $(id -un) is not root and cannot use sudo without a password" >&2
    return 1
  fi
  $root "$@"
}
need_root() {
  [ "$root" != none ] || fail "$1 needs root, but user $(id -un) cannot use sudo without a password; $2"
}

# Makes DIR absolute; it may be relative to the home directory. Root is used only if the user
# cannot write there.
case $DIR in
  /*) ;;
  *)
    [ -n "${HOME:-}" ] && [ -d "$HOME" ] ||
      fail "the home directory of user $(id -un), '${HOME:-}', does not exist; pass an absolute directory with --dir"
    DIR=$HOME/$DIR
    ;;
esac
case $DIR in *[!A-Za-z0-9/._@+-]*) fail "$DIR: a directory with blanks or special characters; pass another with --dir" ;; esac
RECORD=$DIR/cluster.record
writable=$DIR
while [ ! -e "$writable" ]; do
  writable=${writable%/*}
  [ -n "$writable" ] || writable=/
done
as_owner() {
  if [ -w "$writable" ]; then "$@"; else as_root "$@"; fi
}

is_recorded() {
  [ -f "$RECORD" ] && grep -qxF "$1" "$RECORD"
}
record() {
  is_recorded "$1" || echo "$1" | as_owner tee -a "$RECORD" > /dev/null || fail "cannot write $RECORD"
}
forget() {
  grep -vxF "$1" "$RECORD" > "$scratch"
  [ $? -le 1 ] || fail_scratch  # 1: no other line
  as_owner tee "$RECORD" < "$scratch" > /dev/null || fail "cannot write $RECORD"
}
recorded() {
  [ ! -f "$RECORD" ] || sed -n "s/^$1 //p" "$RECORD"
}

# make_directory PATH OWNER: creates a directory with its parents, and records those that did not
# exist.
make_directory() {
  [ ! -d "$1" ] || return 0
  make_directory "$(dirname "$1")" "$2"
  "$2" mkdir "$1" || fail "cannot make the directory $1"
  made="${made:-}$1
"
}
record_made() {
  while read -r directory; do
    [ -z "$directory" ] || record "directory $directory"
  done <<EOF
${made:-}
EOF
  made=
}

# report TEXT COMMAND…: runs a command and reports every TICK seconds that it is still running.
# sshd waits until no process has its output open: sleep, and a daemon that the command may start,
# must not inherit it.
report() {
  text=$1
  shift
  (
    seconds=0
    while sleep "$TICK" > /dev/null 2>&1 7>&- && kill -0 $$ 2> /dev/null; do
      seconds=$((seconds + TICK))
      echo "busy $text, for $seconds s" >&7
    done
  ) 9<&- &
  reporter=$!
  "$@" 7>&-
  result=$?
  kill $reporter 2> /dev/null
  wait $reporter 2> /dev/null
  return $result
}
exec 7>&1  # for lines of `report`, also where a command's output is redirected

sum_of() {
  sha256sum "$1" 2> /dev/null | cut -d ' ' -f 1
}

# Compares the program's files with those in DIR, prints which ones must be sent, and creates
# DIR/incoming. SUMS: lines "SHA-256 PATH" of the files, relative to DIR. ARCH: architecture of
# the program.
probe() {
  arch=$(uname -m)
  [ "$arch" = "$ARCH" ] || fail "this host is $arch, the program was built for $ARCH; build trireme on a host of this kind and call cluster from there"
  if [ -e "$DIR" ] && [ ! -f "$RECORD" ] && [ -n "$(ls -A "$DIR" 2>&1)" ]; then
    fail "$DIR exists and was not made by trireme cluster; pass another directory with --dir"
  fi
  [ -w "$writable" ] || need_root "writing to $writable" "pass --dir trireme for a directory below its home"
  need=
  while read -r sum path; do
    [ "$(sum_of "$DIR/$path")" = "$sum" ] || need="$need send $path
"
  done <<EOF
$SUMS
EOF
  if [ -n "$need" ]; then
    made=
    make_directory "$DIR" as_owner
    record_made
    as_owner rm -rf "$DIR/incoming"
    as_owner mkdir "$DIR/incoming" || fail "cannot make the directory $DIR/incoming"
    as_owner chown "$(id -u)" "$DIR/incoming" || fail "cannot change the owner of $DIR/incoming"
    printf '%s' "$need" | sed 's/^ //'
  fi
  echo "directory $DIR"
  echo "cell $(id -un), $arch"
}

# Moves the files from DIR/incoming to their places. SUMS: lines "SHA-256 PATH" of the program's
# files.
install_program() {
  changed=0
  while read -r sum path; do
    part=$DIR/incoming/${path##*/}
    [ -f "$part" ] || continue
    [ "$(sum_of "$part")" = "$sum" ] || fail "$path arrived damaged: its SHA-256 differs; try again"
    changed=$((changed + 1))
  done <<EOF
$SUMS
EOF
  while read -r sum path; do
    part=$DIR/incoming/${path##*/}
    [ -f "$part" ] || continue
    make_directory "$(dirname "$DIR/$path")" as_owner
    record_made
    record "file $DIR/$path"
    as_owner chmod 755 "$part" && as_owner chown "$(as_owner id -u)" "$part" && as_owner mv -f "$part" "$DIR/$path" ||
      fail "cannot write $DIR/$path"
  done <<EOF
$SUMS
EOF
  as_owner rm -rf "$DIR/incoming"
  remove_former_files
  link_program
  total=$(echo "$SUMS" | wc -l | tr -d ' ')
  if [ "$changed" -eq 0 ]; then echo "cell up to date"; else echo "cell copied $changed of $total files"; fi
}

# Removes files that an earlier `up` installed and that are no longer part of the program, such as
# a plug-in.
remove_former_files() {
  for path in $(recorded file); do
    name=${path#"$DIR"/}
    case $name in credentials.*) continue ;; esac
    if echo "$SUMS" | grep -q " $name\$"; then continue; fi
    as_owner rm -f "$path"
    forget "file $path"
  done
}

# Links the program in /usr/local/bin, where `ssh HOST trireme` finds it. An existing program
# there is not replaced.
link_program() {
  link=/usr/local/bin/trireme
  if [ -e "$link" ] || [ -L "$link" ]; then return 0; fi
  [ -w /usr/local/bin ] || [ "$root" != none ] || return 0
  record "link $link"
  if [ -w /usr/local/bin ]; then ln -s "$DIR/bin/trireme" "$link"; else as_root ln -s "$DIR/bin/trireme" "$link"; fi ||
    fail "cannot make the link $link"
}

# Prints the shared libraries that the program and its plug-ins need and this host lacks, one per
# line.
missing_libraries() {
  for path in "$DIR/bin/trireme" "$DIR"/lib/trireme/*.so; do
    [ -f "$path" ] || continue
    case $path in */libtrireme-cuda.so) [ -e /dev/nvidiactl ] || continue ;; esac
    ldd "$path" 2>&1
  done | sed -n 's/^[ \t]*\([^ ]*\) => not found.*/\1/p' | sort -u
}

# Prints packages of Debian and Ubuntu that may contain a library or a command, the most likely
# first.
debian_names() {
  case $1 in
    mpirun) echo openmpi-bin ;;
    mount.nfs) echo nfs-common ;;
    mount.cifs) echo cifs-utils ;;
    libz.so.*) echo zlib1g ;;
    libcrypto.so.* | libssl.so.*) echo "libssl${1##*.so.} libssl${1##*.so.}t64" ;;
    libmpi.so.40 | libopen-*.so.40) echo libopenmpi3 libopenmpi3t64 libopenmpi40 ;;
    libsentencepiece*.so.*) echo "libsentencepiece${1##*.so.}" ;;
    libgomp.so.* | libstdc++.so.*) echo "${1%.so.*}${1##*.so.}" ;;
    *)
      name=$(echo "${1%.so.*}" | tr '_A-Z' '-a-z')
      case $name in *[0-9]) name=$name- ;; esac
      echo "$name${1##*.so.} $name${1##*.so.}t64"
      ;;
  esac
}
debian_package() {
  for name in $(debian_names "$1"); do
    if apt-cache show "$name" > /dev/null 2>&1; then
      echo "$name"
      return
    fi
  done
}
# run_apt ARGUMENT…: runs apt-get as root; its output is in $scratch. While another process, such as
# unattended upgrades, holds a lock of apt or dpkg, waits and reports it, for LOCK_LIMIT seconds.
run_apt() {
  waited=0
  until report "apt-get $1 is running" as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y -o DPkg::Lock::Timeout=0 "$@" < /dev/null > "$scratch" 2>&1; do
    held=$(sed -n 's/^E: Could not get lock \([^ ]*[^ .]\)\(\. It is\( held by process [0-9]* ([^)]*)\)\)\{0,1\}.*/\1 is\3/p' "$scratch" | head -n 1)
    [ -n "$held" ] || fail "apt-get $*: $(tail -n 3 "$scratch" | tr '\n' ' ')"
    case $held in *" is") held="$held held by another process" ;; esac
    [ "$waited" -lt "$LOCK_LIMIT" ] ||
      fail "apt-get $1: waited $waited s for a lock: $held; let it end, or end it, and repeat the call"
    echo "busy waiting for a lock of apt: $held; waited $waited s of at most $LOCK_LIMIT s"
    sleep "$TICK"
    waited=$((waited + TICK))
  done
}
install_debian() {
  run_apt update
  packages=
  for lack in $1; do
    package=$(debian_package "$lack")
    [ -n "$package" ] || fail "no package of this distribution has $lack, which trireme needs; build trireme on this system, or install $lack by hand"
    case " $packages " in *" $package "*) ;; *) packages="$packages $package" ;; esac
  done
  run_apt install --no-install-recommends $packages
}
# dnf finds the package that provides a library by the library's name.
install_dnf() {
  packages=
  for lack in $1; do
    case $lack in
      mpirun) packages="$packages openmpi" ;;
      mount.nfs) packages="$packages nfs-utils" ;;
      mount.cifs) packages="$packages cifs-utils" ;;
      *) packages="$packages $lack()(64bit)" ;;
    esac
  done
  report "dnf install is running" as_root dnf -q -y install $packages < /dev/null > "$scratch" 2>&1 ||
    fail "dnf install$packages: $(tail -n 3 "$scratch" | tr '\n' ' ')"
}

# Installs missing libraries and commands. INSTALL: yes, or no to only report them. COMMANDS:
# commands that this host needs, such as mount.nfs.
install_packages() {
  if ldd "$DIR/bin/trireme" 2>&1 | grep -q "version .* not found"; then
    fail "the program needs a newer system: $(ldd "$DIR/bin/trireme" 2>&1 | sed -n 's/.*version .\(.*\). not found.*/\1/p' | sort -u | tr '\n' ' ')is missing; build trireme on the oldest system of the cluster"
  fi
  lacks=$(missing_libraries | tr '\n' ' ')
  for command in $COMMANDS; do
    command -v "$command" > /dev/null 2>&1 || lacks="$lacks$command "
  done
  if [ -n "$lacks" ]; then
    [ "$INSTALL" = yes ] || fail "missing: $lacks(nothing is installed with --no-install)"
    need_root "installing ${lacks% }" "install it by hand"
    if command -v apt-get > /dev/null; then
      install_debian "$lacks"
    elif command -v dnf > /dev/null; then
      install_dnf "$lacks"
    else
      fail "missing: $lacks; this system has neither apt-get nor dnf: install them by hand"
    fi
    for package in $packages; do record "package $package"; done
    lacks=$(missing_libraries | tr '\n' ' ')
    [ -z "$lacks" ] || fail "still missing after the installation of$packages: $lacks"
  fi
  version=$("$DIR/bin/trireme" --version 2>&1) || fail "$DIR/bin/trireme does not run: $version"
  if [ -n "${packages:-}" ]; then echo "cell installed$packages"; else echo "cell none missing"; fi
}

# Prints the lines of /etc/fstab for a mount point.
fstab_lines() {
  [ ! -f /etc/fstab ] || awk -v point="$1" '$1 !~ /^#/ && $2 == point' /etc/fstab
}
is_marked() {
  case ",$(echo "$1" | awk '{ print $4 }')," in *",$MARK,"*) true ;; *) false ;; esac
}
# Replaces /etc/fstab with standard input, atomically, and keeps its owner and mode.
replace_fstab() {
  new=/etc/fstab.trireme.$$
  if [ -f /etc/fstab ]; then as_root cp -p /etc/fstab "$new"; fi &&
    as_root tee "$new" > /dev/null && as_root sync -d "$new" && as_root mv -f "$new" /etc/fstab || {
    as_root rm -f "$new"
    fail "cannot write /etc/fstab"
  }
  [ ! -d /run/systemd/system ] || as_root systemctl daemon-reload 9<&-
}
remove_line() {
  awk -v point="$1" -v mark=",$MARK," \
    '$1 ~ /^#/ || $2 != point || index("," $4 ",", mark) == 0' /etc/fstab > "$scratch" || fail_scratch
  cmp -s "$scratch" /etc/fstab || replace_fstab < "$scratch"
}
add_line() {
  { if [ -f /etc/fstab ]; then sed -e '$a\' /etc/fstab; fi && echo "$1"; } > "$scratch" || fail_scratch
  replace_fstab < "$scratch"
}
# Prints what is mounted at a mount point; the last mount if there are several.
mounted_source() {
  awk -v point="$1" '$2 == point { source = $1 } END { if (source != "") print source }' /proc/mounts
}

# Mounts a drive. SOURCE, POINT, TYPE, OPTIONS: fields of its line in /etc/fstab. CREDENTIALS:
# name below DIR of a file that was sent to DIR/incoming, or "".
mount_drive() {
  need_root "mounting $SOURCE" "connect as another user"
  exec 9< /etc
  report "waiting for another call of cluster on this host" flock -w 60 9 ||
    fail "another process has held the lock on /etc for a minute"
  keep_credentials
  line="$SOURCE $POINT $TYPE $OPTIONS,$MARK 0 0"
  present=$(fstab_lines "$POINT")
  now=$(mounted_source "$POINT")
  if [ -n "$now" ] && [ "$now" != "$SOURCE" ]; then fail "$now is mounted at $POINT; unmount it, or choose another mount point"; fi
  added=
  if [ -z "$present" ]; then
    record "fstab $POINT"
    add_line "$line"
    added=yes
  elif [ "$present" != "$line" ]; then
    check_present_line
  fi
  if [ -n "$now" ]; then
    echo "cell already mounted"
    return
  fi
  made=
  make_directory "$POINT" as_root
  record_made
  record "mounted $POINT"
  if ! why=$(report "mounting $SOURCE" as_root timeout "$LIMIT" mount "$POINT" 2>&1 9<&-); then
    [ -z "$added" ] || { remove_line "$POINT" && forget "fstab $POINT"; }
    forget "mounted $POINT"
    fail "mount $SOURCE: ${why:-no answer for $LIMIT s; does the server allow this host, and is its port open?}"
  fi
  echo "cell mounted"
}
# An existing line for the same drive that Trireme did not write is used and not changed.
check_present_line() {
  if [ "$(echo "$present" | wc -l)" -gt 1 ]; then fail "/etc/fstab has several lines for $POINT; remove all but one"; fi
  if [ "$(echo "$present" | awk '{ print $1 }')" != "$SOURCE" ] || is_marked "$present"; then
    fail "/etc/fstab has another line for $POINT: $present; $(is_marked "$present" && echo "call 'trireme cluster down' first" || echo "choose another mount point")"
  fi
}
keep_credentials() {
  [ -n "$CREDENTIALS" ] || return 0
  record "file $DIR/$CREDENTIALS"
  as_root chown 0:0 "$DIR/incoming/$CREDENTIALS" && as_root chmod 600 "$DIR/incoming/$CREDENTIALS" &&
    as_root mv -f "$DIR/incoming/$CREDENTIALS" "$DIR/$CREDENTIALS" && as_owner rm -rf "$DIR/incoming" ||
    fail "cannot write $DIR/$CREDENTIALS"
}
# Creates DIR/incoming for a file with credentials, which other users must not be able to read.
receive_credentials() {
  as_owner rm -rf "$DIR/incoming"
  as_owner mkdir "$DIR/incoming" && as_owner chmod 700 "$DIR/incoming" && as_owner chown "$(id -u)" "$DIR/incoming" ||
    fail "cannot make the directory $DIR/incoming"
}

unmount_drive() {
  [ -n "$(mounted_source "$1")" ] || return 0
  why=$(report "unmounting $1" as_root timeout "$LIMIT" umount "$1" 2>&1) && return 0
  users=$(as_root fuser -m "$1" 2> /dev/null | tr -s ' ')
  fail "umount $1: ${why:-no answer for $LIMIT s}${users:+; it is used by the processes$users}"
}
# Undoes everything that DIR/cluster.record lists. If a drive is busy, the record is kept.
remove_all() {
  if [ ! -e "$DIR" ]; then
    echo "cell nothing to remove"
    return
  fi
  [ -f "$RECORD" ] || fail "$DIR was not made by trireme cluster and stays as it is"
  [ -w "$writable" ] || need_root "removing $DIR" "connect as the user that called 'up'"
  [ -z "$(recorded fstab)$(recorded mounted)" ] || need_root "unmounting" "connect as another user"
  exec 9< /etc
  report "waiting for another call of cluster on this host" flock -w 60 9 ||
    fail "another process has held the lock on /etc for a minute"
  for path in $(recorded mounted); do unmount_drive "$path"; done
  for path in $(recorded fstab); do remove_line "$path"; done
  for path in $(recorded link); do
    [ "$(readlink "$path")" != "$DIR/bin/trireme" ] || rm -f "$path" 2> /dev/null || as_root rm -f "$path"
  done
  packages=$(recorded package | paste -s -d ' ' -)
  for path in $(recorded file); do as_owner rm -f "$path" || fail "cannot remove $path"; done
  directories=$(recorded directory | sort -r)
  as_owner rm -rf "$DIR/incoming" "$RECORD" || fail "cannot remove $RECORD"
  for path in $directories; do remove_empty "$path"; done
  [ -z "$packages" ] || echo "note packages that 'up' installed stay: $packages"
  echo "cell removed"
}
remove_empty() {
  [ -d "$1" ] || return 0
  if [ -n "$(ls -A "$1")" ]; then
    echo "note $1 holds other files and stays"
  elif [ -w "$(dirname "$1")" ]; then
    rmdir "$1"
  else
    as_root rmdir "$1"
  fi || fail "cannot remove the directory $1"
}

# Prints the state of the installed program. SUMS: lines "SHA-256 PATH" of the program's files.
show_program() {
  differ=0
  while read -r sum path; do
    [ "$(sum_of "$DIR/$path")" = "$sum" ] || differ=$((differ + 1))
  done <<EOF
$SUMS
EOF
  if [ ! -f "$DIR/bin/trireme" ]; then
    echo "cell absent"
  elif [ "$differ" -gt 0 ]; then
    echo "cell another build"
  else
    echo "cell same"
  fi
}
show_drives() {
  cell=
  for path in $(recorded fstab; recorded mounted); do
    case " $cell" in *" $path "*) continue ;; esac
    if [ -n "$(mounted_source "$path")" ]; then cell="$cell$path mounted, "; else cell="$cell$path NOT mounted, "; fi
  done
  cell=${cell%, }
  echo "cell ${cell:-none}"
}
show_load() {
  gpus=0
  for path in /dev/nvidia[0-9]*; do
    [ ! -e "$path" ] || gpus=$((gpus + 1))
  done
  echo "cell $(cut -d ' ' -f 1 /proc/loadavg) on $(getconf _NPROCESSORS_ONLN) cores, $gpus GPUs"
}

# Redirect standard input, from which the shell reads this script.
{
  $VERB < /dev/null
  exit 0
}
