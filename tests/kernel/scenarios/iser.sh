# One guest that has soft-RoCE, the kernel's ib_iser and the target in it: the same disk over RDMA and TCP.
# RDMA needs a kernel that has it, so the target runs in the guest.
#
# guest: target libiscsi
. /test/lib.sh

target=iqn.2026-11.org.example:kernel-test
portal=10.88.0.1:3260
over_iser='iface.transport_name=iser'

over_tcp=$GUEST4:3260
open="iSER portal $portal is open"
megabytes=320

# The disk is a file on tmpfs, so it outlives the target and not the guest.
start_it() {
  start_target --portal $portal --portal "$over_tcp" --portal iser:$portal --target-name $target --cores 1 \
    --buffers 32M --export file:/run/disk.img,size=${megabytes}M --log-level info,iser_transport=debug,lunaport=debug
}

start() {
  soft_rdma rxe
  start_initiator iqn.2026-11.org.example:guest
  start_it
  wait_for 20 said 1 "$open"
  in_use >/run/idle
  make_files /run/files
}

# Login by text over SEND; the kernel says what carries the session.
login_over_rdma() {
  node $target $portal $over_iser
  login $target $portal
  expect 'transport' iscsi_iser "$(transport_of $target)"
  expect 'size of LUN 0' $((megabytes << 20)) "$(blockdev --getsize64 "$(disk $target 0)")"
  said 1 'transport="iser"' || fail 'the target does not say that the session is over RDMA'
  logout $target $portal
}
transport_of() { cat "$(readlink -f "$(session_of "$1")/device")"/../scsi_host/host*/proc_name; }

# fio_sizes SIZE:MIB…
fio_sizes() {
  local size
  login $target $portal
  for size; do
    verify "$(disk $target 0)" "${size%:*}" "${size#*:}" $((++round))
  done
  logout $target $portal
}

# The largest that soft RDMA carries: 512 pages a registration.
large_commands() {
  local disk before after
  login $target $portal
  disk=$(disk $target 0)
  echo 2048 >/sys/block/"${disk##*/}"/queue/max_sectors_kb
  before=$(written "$disk")
  verify "$disk" 2m 32 70 --iodepth=4
  after=$(written "$disk")
  expect 'commands and sectors written' '16 65536' "$((${after% *} - ${before% *})) $((${after#* } - ${before#* }))"
  logout $target $portal
}
written() { awk '{ print $5, $7 }' "/sys/block/${1##*/}/stat"; }

depths_and_alignment() {
  local disk size
  login $target $portal
  disk=$(disk $target 0)
  verify "$disk" 4k 1 80 --iodepth=1
  verify "$disk" 4k 4 81 --iodepth=128
  for size in 1536 4608 66048; do verify_unaligned "$disk" $size 48 $size; done
  logout $target $portal
}

# Another initiator, whose RDMA is its own: the disk's name, its size, and data both ways.
libiscsi() {
  local url="iscsi://$portal/$target/0?iser" test
  iscsi-inq "$url" | grep -q Lunaport || fail 'no INQUIRY data over libiscsi and RDMA'
  expect 'its idea of the size' $((megabytes << 20)) "$(iscsi-readcapacity16 -s "$url")"
  for test in Read10.Simple Write10.Simple Write16.Simple; do
    LD_PRELOAD=/test/keep.so iscsi-test-cu --dataloss -t "ALL.$test" "$url" >/run/libiscsi.log 2>&1 ||
      fail "libiscsi's $test over RDMA: $(tail -n 3 /run/libiscsi.log)"
    grep -qE '^ *tests +1 +1 +1 +0' /run/libiscsi.log || fail "libiscsi's $test over RDMA: $(tail -n 5 /run/libiscsi.log)"
  done
}

# A login leaves nothing behind that it did not find: what the listener alone holds was noted at the start.
cycles() {
  local cycle
  login $target $portal
  logout $target $portal
  wait_for 10 is_idle
  for cycle in {1..20}; do
    login $target $portal
    dd if="$(disk $target 0)" of=/dev/null bs=4k count=1 iflag=direct status=none
    logout $target $portal
  done
  wait_for 10 is_idle
}
# The device goes and comes back; so does the listener, within five seconds.
device_returns() {
  rdma link delete rxe0
  wait_for 10 said 1 "iSER portal $portal is closed"
  rdma link add rxe0 type rxe netdev veth0
  wait_for 5 said 2 "$open"
  login $target $portal
  verify "$(disk $target 0)" 64k 4 90
  logout $target $portal
}

# One disk, two transports at once: what went in through one comes out of the other.
both_transports() {
  login $target $portal
  node $target "$over_tcp"
  login $target "$over_tcp"
  wait_for 30 eval 'disk_over iscsi_iser >/dev/null && disk_over iscsi_tcp >/dev/null'
  copy "$(disk_over iscsi_iser)" "$(disk_over iscsi_tcp)"
  copy "$(disk_over iscsi_tcp)" "$(disk_over iscsi_iser)"
  logout $target "$over_tcp"
  logout $target $portal
}
copy() {
  head -c 4194304 /dev/urandom >/run/pattern
  dd if=/run/pattern of="$1" bs=256k oflag=direct status=none
  expect 'SHA-256' "$(sha256sum </run/pattern)" "$(dd if="$2" bs=256k count=16 iflag=direct status=none | sha256sum)"
}
disk_over() {
  local session block
  for session in /sys/class/iscsi_session/session*; do
    [ "$(cat "$(readlink -f "$session/device")"/../scsi_host/host*/proc_name)" = "$1" ] || continue
    for block in "$session"/device/target*/*:0/block/*; do
      [ ! -b "/dev/${block##*/}" ] || { echo "/dev/${block##*/}"; return; }
    done
  done
  return 1
}

# Killed under I/O, it comes back; the kernel logs in again, and every block is what was written.
killed_under_io() {
  local disk job
  login $target $portal
  disk=$(disk $target 0)
  verify "$disk" 16k 16 91 --rate_iops=100 &
  job=$!
  wait_for 30 eval "[ \$(awk '{ print \$5 }' /sys/block/${disk##*/}/stat) -gt 100 ]"
  end_target KILL
  start_it
  wait $job
  logout $target $portal
}

finish() {
  end_target TERM
  kernel_is_content
}

round=0
step 'start of the target in a guest with soft-RoCE' start
step 'login over RDMA' login_over_rdma
step 'ext4 over RDMA' a_filesystem ext4 $target $portal
step 'xfs over RDMA' a_filesystem xfs $target $portal
step 'fio verify over RDMA, 512 bytes to 1 MiB' fio_sizes 512:1 4k:4 16k:8 64k:16 256k:32 1m:32
step 'commands of 2 MiB' large_commands
step 'depths 1 and 128, and memory that begins anywhere' depths_and_alignment
step "libiscsi's own initiator over RDMA" libiscsi
step 'one disk over RDMA and TCP at once' both_transports
step 'killed under I/O, and back' killed_under_io
step '20 logins leave no queue pair and no region behind' cycles
step 'the device goes and comes back, and the listener with it' device_returns
step 'stop, and a content kernel' finish
