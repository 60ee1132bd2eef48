# Two guests on a cable: the initiator's kernel here, the target there, with soft-RoCE on an interface, later on a bond of two.
# The cable is pulled out, the link goes down at either end, the bond fails over, the device is taken away, each under I/O:
# sessions come back, data are right, the portal is open again within five seconds, and TCP serves on while RDMA is away.
#
# guest: target peer
. /test/lib.sh

target=iqn.2026-11.org.example:kernel-test
address=10.99.0.2
portal=$address:3260
open="iSER portal $portal is open"

peer() { host peer "$*"; }

start() {
  peer 'modprobe -a ib_uverbs rdma_rxe rdma_ucm; modprobe bonding max_bonds=0'
  peer 'ip link set eth1 mtu 4200 up'
  ip link set eth1 mtu 4200 up
  ip address add 10.99.0.1/24 dev eth1
  serve_on eth1

  modprobe -a rdma_rxe ib_iser
  rdma link add rxe0 type rxe netdev eth1
  start_initiator iqn.2026-11.org.example:guest
  make_files /run/files
  node $target $portal iface.transport_name=iser
}
# serve_on INTERFACE: known to the initiator's kernel by hand. When the neighbour's hardware address gets lost, as it does
# after three seconds without the link, or changes, rdma_cm of Linux 6.1 calls an established connection UNREACHABLE; ib_iser
# then sends nothing over it any more and tells nobody, so that the session hangs until a command has waited for its minute.
serve_on() {
  peer "ip address add $address/24 dev $1; rdma link add rxe0 type rxe netdev $1; rm -f /run/target.log"
  peer "start_target --portal $portal --portal iser:$portal --target-name $target --cores 1 --buffers 32M" \
    "--export file:/run/disk.img,size=96M --log-level info,iser_transport=debug,lunaport=debug"
  peer "wait_for 20 said 1 '$open'"
  neighbour "$1"
}
neighbour() { ip neighbour replace $address lladdr "$(peer "cat /sys/class/net/$1/address")" dev eth1 nud permanent; }

move_to_a_bond() {
  peer 'end_target TERM; rdma link delete rxe0; ip address flush dev eth1; ip link set eth1 down'
  # With the hardware address of whichever interface is in use, a failover changes the bond's: that is what RDMA hears of.
  peer 'ip link add bond0 type bond mode active-backup fail_over_mac active miimon 100'
  peer 'for port in eth1 eth2; do ip link set $port mtu 4200; ip link set $port master bond0; done'
  peer 'ip link set bond0 mtu 4200 up'
  serve_on bond0
}

# What the target uses when nobody is there any more.
steady() {
  login $target $portal
  verify "$(disk $target 0)" 64k 8 1
  logout $target $portal
  peer 'sleep 2; in_use >/run/idle; footprint >/run/footprint; cat /run/idle /run/footprint'
}

# under_io SEED ACTION…: an action while a paced job writes and verifies, which must end well.
under_io() {
  local seed=$1 disk job
  shift
  login $target $portal
  disk=$(disk $target 0)
  kernel_is_content
  dmesg -C
  verify "$disk" 16k 8 "$seed" --rate_iops=50 &
  job=$!
  wait_for 60 eval "[ \$(awk '{ print \$5 }' /sys/block/${disk##*/}/stat) -gt 60 ]"
  "$@"
  wait $job || once_more "$disk" "$seed"
  logout $target $portal
}
# Commands that Linux 6.1 has queued when its queue pair ends it may fail itself (DID_ABORT, "Failed to init task"): then fio
# fails, and does the job again, which must end well.
once_more() {
  dmesg | grep -q 'hostbyte=DID_ABORT' || fail "$(cat /run/cause)"
  rm -f /run/cause
  # When the initiator knows that its session has ended, commands wait for the next one.
  wait_for 60 dd if="$1" of=/dev/null bs=4k count=1 iflag=direct status=none
  # Its errors are understood.
  dmesg -C
  host print "Linux's initiator failed commands itself: once more"
  verify "$1" 16k 8 "$2"
}

# The initiator's side of the cable is pulled out for longer than a packet is repeated quickly. Nobody is told.
cable_out() { host cable cable0 down; sleep 3; host cable cable0 up; }
# link_down GUEST: its interface loses the carrier, and with it RDMA its port, and has them again.
link_down() {
  local seen
  host carrier "$1" eth1 off
  sleep 3
  seen=$(if [ "$1" = 0 ]; then rdma link show rxe0/1; else peer 'rdma link show rxe0/1'; fi)
  host carrier "$1" eth1 on
  [[ $seen == *'state DOWN'* ]] || fail "the port of RDMA was not down: $seen"
  opened_again_or_never_closed
}
opened_again_or_never_closed() {
  peer "wait_for 5 eval '[ \$(grep -c \"$open\" /run/target.log) -gt \$(grep -c \"$portal is closed\" /run/target.log) ]'"
}
failover() {
  local opened
  opened=$(peer "grep -c '$open' /run/target.log")
  peer 'ip link set "$(cat /sys/class/net/bond0/bonding/active_slave)" down'
  peer "wait_for 5 said $((opened + 1)) '$open'"
  # The target's kernel cannot disconnect from the address that is gone (ib_send_cm_dreq): the initiator finds out by a ping.
  wait_for 30 session_has_failed
  neighbour bond0
  peer 'ip link set eth1 up; ip link set eth2 up'
}
session_has_failed() { [ "$(cat "$(session_of $target)/state")" != LOGGED_IN ]; }
removal() {
  local opened
  opened=$(peer "grep -c '$open' /run/target.log")
  peer 'timeout 20 rdma link delete rxe0'
  iscsi-inq "iscsi://$portal/$target/0" | grep -q LUNAPORT || fail 'TCP does not serve while RDMA is away'
  peer 'rdma link add rxe0 type rxe netdev bond0'
  peer "wait_for 5 said $((opened + 1)) '$open'"
  peer "said 1 'is closed: the RDMA device was removed'"
}

cycles() {
  local cycle
  for cycle in {1..10}; do
    login $target $portal
    dd if="$(disk $target 0)" of=/dev/null bs=4k count=1 iflag=direct status=none
    logout $target $portal
  done
}

# Descriptors and everything of RDMA are where they were, and so is memory, but for what an allocator keeps.
nothing_is_left() {
  peer 'wait_for 20 is_idle'
  peer 'wait_for 20 footprint_as_at /run/footprint 4096'
}

finish() {
  peer 'end_target TERM'
  kernel_is_content
  peer kernel_is_content
}

step 'start of the target in a second guest, with soft-RoCE' start
step 'ext4 over RDMA from guest to guest' a_filesystem ext4 $target $portal
step 'what a portal without sessions holds' steady
step 'the cable is pulled out under I/O, and put back' under_io 2 cable_out
step "the link of the target goes down under I/O, and up" under_io 3 link_down 1
step "the link of the initiator goes down under I/O, and up" under_io 4 link_down 0
step '10 logins' cycles
step 'queue pairs, regions, descriptors and memory are where they were' nothing_is_left
step 'the target moves to a bond' move_to_a_bond
step 'what a portal without sessions holds there' steady
step 'the bond fails over under I/O' under_io 5 failover
step 'the device is deleted and added under I/O' under_io 6 removal
step '10 more logins' cycles
step 'queue pairs, regions, descriptors and memory are where they were there' nothing_is_left
step 'stop, and content kernels' finish
