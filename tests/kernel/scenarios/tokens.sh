# A token copy between two disks in files: what `ddpt` asks for, the target copies, and next to nothing of it moves over
# the wire.
. /test/lib.sh

target=iqn.2026-11.org.example:tokens
portal=$HOST4:3260

start() {
  start_initiator iqn.2026-11.org.example:guest
  modprobe sg
  host start tokens --portal "$portal" --target-name $target --export file:from.img,size=1G --export file:to.img,size=1G
  node $target "$portal"
  login $target "$portal"
  # Random data in places, the last block included; the rest has no space.
  for mib in 0 3 511 1007 1023; do
    dd if=/dev/urandom of="$(disk $target 0)" bs=1M count=1 seek=$mib oflag=direct status=none
  done
  # What is there before does not survive.
  dd if=/dev/urandom of="$(disk $target 1)" bs=1M count=1 seek=700 oflag=direct status=none
  [ "$(host sha256 from.img)" != "$(host sha256 to.img)" ] || fail 'the disks are the same before the copy'
}

# generic LUN: the disk's node of the generic driver.
generic() { echo /dev/"$(basename "$(echo /sys/block/"$(basename "$(disk $target "$1")")"/device/scsi_generic/*)")"; }
wire() { awk '{ bytes += $1 } END { printf "%d", bytes }' /sys/class/net/eth0/statistics/[rt]x_bytes; }

# Debian's ddpt 0.97-1 writes the range descriptors one byte too early, so that the address and the number of blocks
# arrive 256 times as large: 8192 blocks from block 0 are 2097152 blocks here, which is all of the 1 GiB. That the answers
# tell of 256 times the blocks confuses its counts, so that its closing lines mean nothing.
the_target_copies_by_token() {
  local before moved
  before=$(wire)
  ddpt if="$(generic 0)" of="$(generic 1)" --odx bs=512 skip=0,8192 seek=0,8192 verbose=4 >/run/said 2>&1 ||
    fail "ddpt: status $?, $(tail -n 1 /run/said)"
  moved=$(($(wire) - before))
  cat /run/said
  expect 'blocks that the token stands for' 1 "$(grep -c 'after PT: Transfer count=2097152 ' /run/said)"
  expect 'blocks written' 1 "$(grep -c 'for WUT: Transfer count=2097152 ' /run/said)"
  [ $moved -lt $((1 << 20)) ] || fail "$moved bytes moved over the wire"
}

both_disks_are_the_same() {
  local from to
  expect 'SHA-256 of the copy' "$(host sha256 from.img)" "$(host sha256 to.img)"
  # Holes stay holes, except where the copy had data before: zeroes may take its place. A full copy would take 1 GiB.
  from=$(host kibibytes from.img) to=$(host kibibytes to.img)
  [ "$to" -le $((from + 2048)) ] || fail "the original takes $from KiB and the copy $to"
}

end() {
  logout $target "$portal"
  host stop tokens
}

step 'two disks of 1 GiB' start
step 'ddpt copies 1 GiB by token, without moving it over the wire' the_target_copies_by_token
step 'the copy has the data of the original, and its holes' both_disks_are_the_same
step 'the kernel tells of no fault' kernel_is_content
step 'logout' end
