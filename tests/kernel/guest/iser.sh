# What the scenarios over RDMA in one guest have in common: the target in the guest, with soft-RoCE or soft-iWARP, and its
# disk over RDMA and TCP.

target=iqn.2026-11.org.example:kernel-test
portal=10.88.0.1:3260
over_iser='iface.transport_name=iser'
over_tcp=$GUEST4:3260
open="iSER portal $portal is open"
megabytes=320
# TCP beside RDMA on one address and port, which soft-iWARP does not allow.
beside=(--portal $portal)

# The disk is a file on tmpfs, so it outlives the target and not the guest.
start_it() { start_with "${beside[@]}" --portal iser:$portal "$@"; }
# start_with OPTION…: with these portals beside the one over TCP alone.
start_with() {
  start_target --portal "$over_tcp" --target-name $target --cores 1 --buffers 32M \
    --export file:/run/disk.img,size=${megabytes}M --log-level info,iser_transport=debug,lunaport=debug "$@"
}

# start_all rxe|siw
start_all() {
  soft_rdma "$1"
  start_initiator iqn.2026-11.org.example:guest
  start_it
  wait_for 60 said 1 "$open"
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

# large_commands KIB: the largest that soft RDMA carries: 512 pages a registration (soft-RoCE) or 256 (soft-iWARP), of which
# Linux keeps one for memory that does not begin on a page. A job of blocks of that size is as many commands as blocks.
large_commands() {
  local disk before after size=$(($1 * 1024))
  login $target $portal
  disk=$(disk $target 0)
  expect 'KiB of the largest command' "$1" "$(cat /sys/block/"${disk##*/}"/queue/max_hw_sectors_kb)"
  echo "$1" >/sys/block/"${disk##*/}"/queue/max_sectors_kb
  before=$(written "$disk")
  fio --name=verify --filename="$disk" --rw=randwrite --bs=$size --size=$((16 * size)) --iodepth=4 --ioengine=libaio \
    --direct=1 --iomem_align=4096 --verify=crc32c --verify_fatal=1
  after=$(written "$disk")
  expect 'sectors written' $((16 * $1 * 2)) $((${after#* } - ${before#* }))
  host print "commands for 16 blocks of $1 KiB: $((${after% *} - ${before% *}))"
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
  verify "$disk" 16k 4 91 --rate_iops=100 &
  job=$!
  wait_for 30 eval "[ \$(awk '{ print \$5 }' /sys/block/${disk##*/}/stat) -gt 60 ]"
  end_target KILL
  start_it
  wait $job
  logout $target $portal
}

# in_and_out: a login, and a logout when the kernel has looked for partitions: reads that it was cut off from are faults to it.
in_and_out() {
  login $target $portal
  dd if="$(disk $target 0)" of=/dev/null bs=4k count=1 iflag=direct status=none
  logout $target $portal
}

# cycles COUNT: logins leave nothing behind that they did not find; what the listener alone holds was noted at the start.
cycles() {
  local cycle
  in_and_out
  wait_for 10 is_idle
  footprint >/run/footprint
  for ((cycle = 0; cycle < $1; cycle++)); do in_and_out; done
  wait_for 10 is_idle
  wait_for 10 footprint_as_at /run/footprint 4096
}

# The device goes and comes back; so does the listener, within five seconds.
device_returns() {
  local opened closed
  opened=$(grep -cF "$open" /run/target.log)
  closed=$(grep -cF "$portal is closed" /run/target.log || true)
  rdma link delete "$1"
  wait_for 10 said $((closed + 1)) "iSER portal $portal is closed"
  rdma link add "$1" type "${1%0}" netdev veth0
  wait_for 5 said $((opened + 1)) "$open"
  login $target $portal
  verify "$(disk $target 0)" 64k 4 90
  logout $target $portal
}

finish() {
  end_target TERM
  kernel_is_content
}

round=0
