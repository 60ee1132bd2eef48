# One guest that has soft-RoCE, the kernel's ib_iser and the target in it: the same disk over RDMA and TCP.
. /test/lib.sh

target=iqn.2026-11.org.example:kernel-test
portal=10.88.0.1:3260
over_iser='iface.transport_name=iser'

start() {
  soft_roce
  start_initiator iqn.2026-11.org.example:guest
  start_target --portal 10.88.0.1:3260 --portal iser:10.88.0.1:3260 --target-name "$target" --cores 1 --buffers 32M \
    --export memory:96M --log-level info,iser_transport=debug,appliance=debug
  wait_for 20 said 1 'iSER portal 10.88.0.1:3260 is open'
  make_files /run/files
}

# Login by text over SEND; the kernel says what carries the session.
login_over_rdma() {
  node $target $portal $over_iser
  login $target $portal
  expect 'transport' iscsi_iser "$(transport_of $target)"
  expect 'size of LUN 0' $((96 << 20)) "$(blockdev --getsize64 "$(disk $target 0)")"
  said 1 'transport="iser"' || fail 'the target does not say that the session is over RDMA'
  logout $target $portal
}
transport_of() { cat "$(readlink -f "$(session_of "$1")/device")"/../scsi_host/host*/proc_name; }

filesystem_ext4() {
  local disk
  login $target $portal
  disk=$(disk $target 0)
  mkfs.ext4 -q -F "$disk"
  mount "$disk" /mnt
  cp /run/files/* /mnt/
  umount /mnt
  logout $target $portal

  login $target $portal
  disk=$(disk $target 0)
  mount "$disk" /mnt
  (cd /mnt && sha256sum --quiet --check /run/files.sha256)
  umount /mnt
  fsck.ext4 -fn "$disk"
  logout $target $portal
}

# fio_sizes SIZE:MIB…
fio_sizes() {
  local size
  login $target $portal
  for size; do
    verify "$(disk $target 0)" "${size%:*}" "${size#*:}" $((++round))
  done
  logout $target $portal
}

# A login leaves nothing behind that it did not find.
cycles() {
  local cycle before
  login $target $portal
  logout $target $portal
  wait_for 10 eval '[ "$(in_use)" = "$(idle)" ]'
  for cycle in {1..20}; do
    login $target $portal
    dd if="$(disk $target 0)" of=/dev/null bs=4k count=1 iflag=direct status=none
    logout $target $portal
  done
  wait_for 10 eval '[ "$(in_use)" = "$(idle)" ]'
}
# What the listener holds: its domain and two regions.
idle() { echo 'qp 0 cq 0 pd 1 mr 2'; }

# The device goes and comes back; so does the listener, within five seconds.
device_returns() {
  rdma link delete rxe0
  wait_for 10 said 1 'iSER portal 10.88.0.1:3260 is closed'
  rdma link add rxe0 type rxe netdev veth0
  wait_for 5 said 2 'iSER portal 10.88.0.1:3260 is open'
  login $target $portal
  verify "$(disk $target 0)" 64k 4 90
  logout $target $portal
}

finish() {
  end_target TERM
  kernel_is_content
}

round=0
step 'start of the target in a guest with soft-RoCE' start
step 'login over RDMA' login_over_rdma
step 'ext4 over RDMA' filesystem_ext4
step 'fio verify over RDMA, 512 bytes to 1 MiB' fio_sizes 512:1 4k:8 16k:16 64k:32 256k:64 1m:64
step '20 logins leave no queue pair and no region behind' cycles
step 'the device goes and comes back, and the listener with it' device_returns
step 'stop, and a content kernel' finish
