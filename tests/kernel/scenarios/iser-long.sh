# What takes long over soft-RoCE: every block size at every depth, memory and places that begin anywhere, 200 logins.
#
# guest: target memory=1536
. /test/lib.sh
. /test/iser.sh

depths() {
  local depth
  login $target $portal
  for depth in 1 2 8 32 128; do verify "$(disk $target 0)" "$1" "$2" $((++round)) --iodepth=$depth; done
  logout $target $portal
}

alignment() {
  local size
  login $target $portal
  for size in 512 1536 4608 12800 66048 262656 1049088; do
    verify_unaligned "$(disk $target 0)" $size 64 $((++round))
  done
  logout $target $portal
}

step 'start of the target in a guest with soft-RoCE' start_all rxe
step 'login over RDMA' login_over_rdma
for size in 512:1 4k:4 16k:8 64k:16 256k:32 1m:32; do step "${size%:*} at depths from 1 to 128" depths ${size%:*} ${size#*:}; done
step 'commands of 2044 KiB' large_commands 2044
step 'memory and places that begin anywhere' alignment
for hundred in 1 2; do step "a hundred logins leave nothing behind, $hundred" cycles 100; done
step 'stop, and a content kernel' finish
