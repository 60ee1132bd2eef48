# Functions for the scenarios, which run in the guest. A scenario is a list of `step`s; each step is a function that
# fails by the first command that fails. What a step prints goes to the guest's console, which `run` keeps.
#
# The conversation with `run` on the host goes over the second serial port, a line each way:
#   step TITLE | pass TITLE | fail TITLE: CAUSE     how far the scenario is
#   host VERB ARGUMENTS                             asks for something; the answer is `ok TEXT` or `error TEXT`
if [ -e /test/scenario.sh ]; then
  exec 4<>/dev/ttyS1
  stty raw -echo <&4
else
  exec 4>/dev/null # an interactive shell
fi

# step TITLE FUNCTION [ARGUMENT…]: runs the function; ends the scenario when it fails.
# Call it as a plain command: after `||` or in `if`, bash would ignore failing commands inside of it.
step() {
  local title=$1
  shift
  tell "step $title"
  echo "--- $title"
  rm -f /run/cause
  watch "$title" &
  local watcher=$!
  (
    set -eEu -o pipefail
    trap 'note_cause "$BASH_COMMAND (line $LINENO)"' ERR
    "$@"
  )
  local status=$?
  kill $watcher 2>/dev/null
  if [ $status = 0 ]; then
    tell "pass $title"
  else
    tell "fail $title: $(cat /run/cause 2>/dev/null || echo "status $status")"
    show_logs
    exit 1
  fi
}

# A step that hangs, most likely in the kernel where it cannot be ended, is given up with all that the kernel knows.
watch() {
  sleep $SECONDS_PER_STEP
  echo w >/proc/sysrq-trigger
  grep . /sys/block/sd*/inflight
  show_logs
  tell "fail $1: no end within $SECONDS_PER_STEP s"
  tell 'end 1'
}
SECONDS_PER_STEP=540

show_logs() {
  echo '--- the last of iscsid'
  [ ! -e /run/iscsid.log ] || grep -avE ' in |nlpayload|thread' /run/iscsid.log | tail -n 25
  [ ! -e /run/target.log ] || { echo '--- the last of the target'; tail -n 40 /run/target.log; }
  [ ! -e /run/multipathd.log ] || { echo '--- the last of multipathd'; tail -n 25 /run/multipathd.log; }
  echo '--- the last of the kernel'
  dmesg | tail -n 80
}

# The first cause counts: those after it are the callers of the command that failed.
note_cause() { [ -e /run/cause ] || { echo "$1" >/run/cause; echo "failed: $1"; }; }
fail() { note_cause "$*"; exit 1; }

tell() { printf '%s\n' "$*" >&4; }

# host VERB [ARGUMENT…]: prints the answer's text; the verbs are the methods `do_…` of `run`.
host() {
  local answer
  tell "host $(printf '%q ' "$@")"
  read -r answer <&4
  case $answer in
    ok*) answer=${answer#ok}; echo "${answer# }" ;;
    *) fail "host $*: ${answer#error }" ;;
  esac
}

# wait_for SECONDS COMMAND…: until the command succeeds.
wait_for() {
  local seconds=$1 deadline
  shift
  deadline=$((SECONDS + seconds))
  until "$@"; do
    [ $SECONDS -lt $deadline ] || fail "not within $seconds s: $*"
    sleep 0.1
  done
}

# expect WHAT EXPECTED ACTUAL
expect() { [ "$2" = "$3" ] || fail "$1: expected '$2', found '$3'"; }

# --- target in the guest

# start_target OPTION…: the target, as a process of the guest; ready when its TCP portal is.
start_target() {
  /test/lunaport serve --state-dir /run/state "$@" >>/run/target.log 2>&1 4>&- &
  target_pid=$!
  echo $target_pid >/run/target.pid
  wait_for 60 eval 'ss_listens 3260'
}
ss_listens() { grep -qE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$1") 00000000:0000 0A " /proc/net/tcp; }
# end_target SIGNAL
end_target() {
  local pid
  pid=$(cat /run/target.pid)
  kill "-$1" "$pid"
  wait_for 60 eval "[ ! -e /proc/$pid ] || grep -q '^State:.Z' /proc/$pid/status"
}
# said COUNT TEXT: the target has logged a line with this text at least so many times.
said() { [ "$(grep -cF -- "$2" /run/target.log)" -ge "$1" ]; }

# soft_rdma KIND: a veth pair with soft-RoCE (rxe) or soft-iWARP (siw) on its first end; the guest talks to itself over it.
soft_rdma() {
  # In this order: when a device goes, Linux asks its users in the opposite one, and ib_uverbs waits, for a software device,
  # until programs have closed it, which they only know to do when rdma_cm has told them.
  modprobe -a ib_uverbs rdma_ucm veth
  modprobe ib_iser max_sectors=4096
  if [ "$1" = siw ]; then
    modprobe -a libcrc32c crc32c_generic
    insmod /test/siw.ko
  else
    modprobe rdma_rxe
  fi
  ip link add veth0 type veth peer name veth1
  # 4096 bytes of payload in a packet.
  ip link set veth0 mtu 4200 up
  ip link set veth1 mtu 4200 up
  ip address add 10.88.0.1/24 dev veth0
  rdma link add "${1}0" type "$1" netdev veth0
}
# in_use: queue pairs, completion queues, domains and regions of processes (the kernel's own have no pid).
in_use() {
  local kind
  for kind in qp cq pd mr; do echo "$kind $(rdma resource show $kind | grep -c ' pid ' || true)"; done | paste -sd ' '
}

# is_idle: exactly what was in use when `in_use >/run/idle` noted it.
is_idle() { [ "$(in_use)" = "$(cat /run/idle)" ] || { in_use; false; }; }
# footprint: descriptors of the target, and KiB that it has resident.
footprint() {
  local pid descriptors
  pid=$(cat /run/target.pid)
  descriptors=(/proc/"$pid"/fd/*)
  echo "${#descriptors[@]} $(sed -n 's/^VmRSS: *\([0-9]*\) kB/\1/p' /proc/$pid/status)"
}
# footprint_as_at FILE KIB: as many descriptors as when the file was made from `footprint`, at most so much more memory.
footprint_as_at() {
  local now then
  read -ra now <<<"$(footprint)"
  read -ra then <"$1"
  [ "${now[0]}" = "${then[0]}" ] && [ $((now[1] - then[1])) -le "$2" ] || { echo "${now[*]}, at first ${then[*]}"; false; }
}

# --- initiator

# start_initiator NAME: modules and iscsid, whose log shows the text keys of every login.
start_initiator() {
  modprobe -a iscsi_tcp sd_mod crc32c
  echo "InitiatorName=$1" >/etc/iscsi/initiatorname.iscsi
  mkdir -p /run/lock/iscsi
  iscsid --foreground --debug 8 >>/run/iscsid.log 2>&1 4>&- &
  wait_for 20 eval 'iscsiadm -m iface >/dev/null 2>&1'
}

# node TARGET PORTAL [KEY=VALUE…]: a fresh node record. Error handling is told to wait for a target that restarts.
node() {
  local target=$1 portal=$2 setting
  shift 2
  iscsiadm -m node -T "$target" -p "$portal" -o delete >/dev/null 2>&1 || true
  iscsiadm -m node -T "$target" -p "$portal" -o new >/dev/null
  for setting in node.session.timeo.replacement_timeout=600 "$@"; do
    iscsiadm -m node -T "$target" -p "$portal" -o update -n "${setting%%=*}" -v "${setting#*=}"
  done
}

login() { iscsiadm -m node -T "$1" -p "$2" --login; }
logout() { iscsiadm -m node -T "$1" -p "$2" --logout; }

# refused TARGET PORTAL STATUS: the login must fail with this exit status of iscsiadm, and leave no session.
refused() {
  local status=0
  login "$1" "$2" || status=$?
  expect 'status of iscsiadm' "$3" $status
  if session_of "$1"; then fail "the refused login left a session"; fi
}

# session_of TARGET: the sysfs directory of its one session.
session_of() {
  local session
  for session in /sys/class/iscsi_session/session*; do
    [ "$(cat "$session/targetname" 2>/dev/null)" != "$1" ] || { echo "$session"; return; }
  done
  return 1
}

# disk TARGET LUN: the device node, as soon as the kernel has it.
disk() {
  wait_for 30 eval "disk_now '$1' '$2' >/dev/null"
  disk_now "$1" "$2"
}
disk_now() {
  local session block
  session=$(session_of "$1") || return 1
  for block in "$session"/device/target*/*:"$2"/block/*; do
    [ -b "/dev/${block##*/}" ] || return 1
    echo "/dev/${block##*/}"
  done
}

# negotiated TARGET: what the kernel runs the session with, e.g. "header=CRC32C data=None chap=alice mutual=bob".
negotiated() {
  local session connection
  session=$(session_of "$1")
  connection=$(echo "$session"/device/connection*/iscsi_connection/connection*)
  echo "header=$(digest "$connection/header_digest") data=$(digest "$connection/data_digest")" \
    "chap=$(attribute "$session/username") mutual=$(attribute "$session/username_in")"
}
digest() { case $(cat "$1") in 0) echo None ;; 1) echo CRC32C ;; *) cat "$1" ;; esac; }
attribute() { sed 's/^(null)$//' "$1"; }

# --- data

# verify DISK BLOCK-SIZE MIB SEED [OPTION…]: random writes at depth 32, then reads that check each block's CRC32C and
# the seed, so that data of an earlier round does not pass.
verify() {
  local disk=$1 size=$2 mib=$3 seed=$4 result
  shift 4
  fio --name=verify --filename="$disk" --rw=randwrite --bs="$size" --size="${mib}m" --iodepth=32 --ioengine=libaio \
    --direct=1 --verify=crc32c --verify_fatal=1 --randseed="$seed" --output-format=terse --terse-version=3 \
    "$@" >"/run/fio.${disk##*/}" 2>/run/fio.errors ||
    fail "fio: status $? (block size $size on $disk): $(tee /dev/stderr </run/fio.errors | tail -n 1)"
  # Fields of the terse format: 5 error, 6 KiB read, 47 KiB written.
  result=$(awk -F';' '{ print $5, $6, $47 }' "/run/fio.${disk##*/}")
  expect "fio's error, KiB read and written (block size $size on $disk)" "0 $((mib * 1024)) $((mib * 1024))" "$result"
}

# verify_unaligned DISK BLOCK-SIZE COUNT SEED: as `verify`, at a distance from the start of the disk and with memory that
# begin anywhere but on a page: with block sizes of an odd number of sectors each buffer begins elsewhere in its page.
verify_unaligned() {
  local disk=$1 size=$2 count=$3 seed=$4
  fio --name=verify --filename="$disk" --rw=randwrite --bs="$size" --offset=512 --size=$((size * count)) --iodepth=16 \
    --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --randseed="$seed" --output-format=terse \
    --terse-version=3 >/run/fio.unaligned || fail "fio: status $? (block size $size, unaligned)"
  expect "fio's error and KiB written (block size $size, unaligned)" "0 $((size * count / 1024))" \
    "$(awk -F';' '{ print $5, $47 }' /run/fio.unaligned)"
}

# a_filesystem ext4|xfs TARGET PORTAL: made, filled with the files of make_files, and looked at after another login.
a_filesystem() {
  local kind=$1 disk
  login "$2" "$3"
  disk=$(disk "$2" 0)
  if [ "$kind" = xfs ]; then mkfs.xfs -q -f "$disk"; else mkfs.ext4 -q -F "$disk"; fi
  mount "$disk" /mnt
  cp /run/files/* /mnt/
  umount /mnt
  logout "$2" "$3"

  login "$2" "$3"
  disk=$(disk "$2" 0)
  mount "$disk" /mnt
  (cd /mnt && sha256sum --quiet --check /run/files.sha256)
  umount /mnt
  if [ "$kind" = xfs ]; then xfs_repair -n "$disk"; else fsck.ext4 -fn "$disk"; fi
  logout "$2" "$3"
}

# make_files DIRECTORY: files of many sizes and their SHA-256 beside them.
make_files() {
  local size
  mkdir -p "$1"
  for size in 0 1 511 4096 65537 1048576 7340033 16777216; do head -c $size /dev/urandom >"$1/$size"; done
  (cd "$1" && sha256sum -- * >../"$(basename "$1")".sha256)
}

# kernel_is_content: the kernel's log tells of no fault. Lost connections are none: scenarios restart the target.
kernel_is_content() {
  local fault='BUG|WARNING|Oops|[Cc]all [Tt]race|blocked for more than|I/O error|EXT4-fs (error|warning)'
  fault+='|XFS .*([Cc]orrupt|error|[Ss]hut)|rejecting I/O|Sense Key : (Hardware|Medium|Aborted)'
  if dmesg | grep -E "$fault"; then fail "the kernel's log: $(dmesg | grep -m1 -E "$fault")"; fi
}

# --- several initiators in one kernel, and reservations

# login_as NAME TARGET PORTAL: as initiator iqn.2026-11.org.example:NAME; prints the disk.
login_as() {
  iscsiadm -m iface -I "$1" -o new
  iscsiadm -m iface -I "$1" -o update -n iface.initiatorname -v "iqn.2026-11.org.example:$1"
  iscsiadm -m node -T "$2" -p "$3" -I "$1" -o new
  iscsiadm -m node -T "$2" -p "$3" -I "$1" --login
  disk_of "$1"
}

# disk_of NAME [LUN]: the disk as this initiator sees it.
disk_of() {
  wait_for 30 eval "disk_of_now $1 ${2:-0} >/dev/null"
  disk_of_now "$1" "${2:-0}"
}
disk_of_now() {
  local session block
  for session in /sys/class/iscsi_session/session*; do
    [ "$(cat "$session/initiatorname" 2>/dev/null)" = "iqn.2026-11.org.example:$1" ] || continue
    for block in "$session"/device/target*/*:"$2"/block/*; do
      [ -b "/dev/${block##*/}" ] || return 1
      echo "/dev/${block##*/}"
      return
    done
  done
  return 1
}

# out NAME OPTION…: PERSISTENT RESERVE OUT. keys: generation and registered keys. holder: key and type. Unit attentions
# are heard before.
out() { local name=$1; shift; sg_persist --no-inquiry --out "$@" "$(heard "$name")"; }
keys() { sg_persist --no-inquiry --in --read-keys "$(heard "$1")" | grep -o '0x[0-9a-f]*' | paste -sd ' '; }
holder() {
  sg_persist --no-inquiry --in --read-reservation "$(heard "$1")" | grep -E 'Key|type' | sed 's/^ *//' | paste -sd ' '
}
heard() {
  local disk
  disk=$(disk_of "$1")
  for _ in 1 2 3 4; do ! sg_turs "$disk" >&2 || break; done
  echo "$disk"
}

# --- a target that is managed

# on_page ELEMENT: the text of this element of the page that is open on the host, as a person would copy it.
on_page() { host copy "$1" | base64 -d; }
# page_says TEXT…: the open page has each of these.
page_says() {
  local page text
  page=$(on_page main)
  for text; do
    [[ $page == *"$text"* ]] || fail "the page does not say '$text' but: ${page:0:1500}"
  done
}
# lunaport NAME ARGUMENT…: the command line on the host.
lunaport() { host lunaport "$@" | base64 -d; }
# udev names disks, as on an installed system.
start_udev() {
  systemd-udevd --daemon 4>&-
  udevadm trigger
  udevadm settle
}
