# Soft-iWARP: the same I/O as over soft-RoCE, by a device whose ports are those of TCP and whose reads are written to.
# Debian's kernel comes without its module; build-siw makes it of Debian's source.
#
# guest: target siw memory=1536
. /test/lib.sh
. /test/iser.sh

# It counts against the limit of locked memory even what a process with every privilege registers.
ulimit -l unlimited
beside=()

start() { start_all siw; }

# TCP and RDMA ask for one port of one address: TCP has it, and the reason is given.
one_port_for_both() {
  end_target TERM
  beside=(--portal $portal)
  start_it
  wait_for 20 said 1 'iWARP devices share the ports of TCP'
  end_target TERM
  beside=()
  start_it
  wait_for 20 said 2 "$open"
}

step 'start of the target in a guest with soft-iWARP' start
step 'login over RDMA' login_over_rdma
step 'ext4 over RDMA' a_filesystem ext4 $target $portal
step 'xfs over RDMA' a_filesystem xfs $target $portal
step 'fio verify over RDMA, 512 bytes to 1 MiB' fio_sizes 512:1 4k:4 16k:8 64k:16 256k:32 1m:32
step 'commands of 1020 KiB' large_commands 1020
step 'depths 1 and 128, and memory that begins anywhere' depths_and_alignment
step 'one disk over RDMA and TCP at once' both_transports
step 'one port for RDMA and TCP' one_port_for_both
step '20 logins leave no queue pair and no region behind' cycles 20
step 'the device goes and comes back, and the listener with it' device_returns siw0
step 'stop, and a content kernel' finish
