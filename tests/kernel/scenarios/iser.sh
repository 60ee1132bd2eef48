# One guest that has soft-RoCE, the kernel's ib_iser and the target in it: the same disk over RDMA and TCP.
# RDMA needs a kernel that has it, so the target runs in the guest.
#
# guest: target libiscsi memory=1536
. /test/lib.sh
. /test/iser.sh

# Another initiator, whose RDMA is its own: the disk's name, its size, and data both ways. Its release 1.19 promises immediate
# data and does not send them.
libiscsi() {
  local url="iscsi://$portal/$target/0?iser" test inquiry
  opened_by start_it --set ImmediateData=No
  export LD_PRELOAD=/test/keep.so
  inquiry=$(iscsi-inq "$url" 2>&1) || fail "iscsi-inq over RDMA: status $?: ${inquiry##*$'\n'}"
  grep -q LUNAPORT <<<"$inquiry" || fail "iscsi-inq over RDMA: ${inquiry##*$'\n'}"
  expect 'its idea of the size' $((megabytes << 20)) "$(iscsi-readcapacity16 -s "$url")"
  for test in Read10.Simple Write10.Simple Write16.Simple; do
    iscsi-test-cu --dataloss -t "ALL.$test" "$url" >/run/libiscsi.log 2>&1 ||
      fail "libiscsi's $test over RDMA: $(tail -n 3 /run/libiscsi.log)"
    grep -qE '^ *tests +1 +1 +1 +0' /run/libiscsi.log || fail "libiscsi's $test over RDMA: $(tail -n 5 /run/libiscsi.log)"
  done
  unset LD_PRELOAD
  opened_by start_it
}
# opened_by START…: the target ends, and starts so.
opened_by() {
  local opened
  opened=$(grep -cF "$open" /run/target.log)
  end_target TERM
  "$@"
  wait_for 20 said $((opened + 1)) "$open"
}

twenty_logins() { cycles 20; }

# A portal on every address listens through whatever device there is and is never closed; a device that is taken away while
# nobody is connected is let go of all the same, and serves again when it is back.
wildcard() {
  local removed
  end_target TERM
  start_with --portal iser:0.0.0.0:3260
  wait_for 20 said 1 'iSER portal 0.0.0.0:3260 is open'
  in_and_out
  removed=$(grep -cF 'RDMA device removed' /run/target.log || true)
  timeout 30 rdma link delete rxe0 || fail 'the device cannot be deleted: the target holds it'
  wait_for 5 said $((removed + 1)) 'RDMA device removed'
  rdma link add rxe0 type rxe netdev veth0
  login $target $portal
  verify "$(disk $target 0)" 64k 4 92
  logout $target $portal
}

# Over IPv6: an address of the device, and the one that Linux gave its interface, which means nothing without its interface.
over_ipv6() {
  local near scope address
  end_target TERM
  ip address add fd88::1/64 dev veth0 nodad
  near=$(ip -6 -o address show dev veth0 scope link | awk '{ sub("/.*", "", $4); print $4 }')
  scope=$(cat /sys/class/net/veth0/ifindex)
  start_with --portal iser:[fd88::1]:3260 --portal "iser:[$near%$scope]:3260"
  for address in fd88::1 "$near%$scope"; do wait_for 20 said 1 "iSER portal [$address]:3260 is open"; done
  for address in fd88::1 "$near%veth0"; do
    node $target "[$address]:3260" $over_iser
    login $target "[$address]:3260"
    expect 'transport' iscsi_iser "$(transport_of $target)"
    verify "$(disk $target 0)" 64k 8 $((++round))
    logout $target "[$address]:3260"
  done
}

step 'start of the target in a guest with soft-RoCE' start_all rxe
step 'login over RDMA' login_over_rdma
step 'ext4 over RDMA' a_filesystem ext4 $target $portal
step 'xfs over RDMA' a_filesystem xfs $target $portal
step 'fio verify over RDMA, 512 bytes to 1 MiB' fio_sizes 512:1 4k:4 16k:8 64k:16 256k:32 1m:32
step 'commands of 2044 KiB' large_commands 2044
step 'depths 1 and 128, and memory that begins anywhere' depths_and_alignment
step "libiscsi's own initiator over RDMA" libiscsi
step 'one disk over RDMA and TCP at once' both_transports
step 'killed under I/O, and back' killed_under_io
step '20 logins leave no queue pair and no region behind' twenty_logins
step 'the device goes and comes back, and the listener with it' device_returns rxe0
step 'a device that nobody is connected through goes and comes back' wildcard
step 'over IPv6, an address of the interface alone too' over_ipv6
step 'stop, and a content kernel' finish
