# The machine that runs the target is reset without a warning. What the target had acknowledged as stable is there
# afterwards: persistent reservations with APTPL, data written with FUA, and data before SYNCHRONIZE CACHE.
#
# Target and initiators share the guest here, and the target's files are on its disk. The reset takes all that only
# memory held; the scenario then starts from the top and finds a file system on the disk. The disk's own cache is the
# host's and stays: whether the target has the disk flush it does not show here.
#
# guest: target disk=256
. /test/lib.sh

target=iqn.2026-11.org.example:power-cut
portal=127.0.0.1:3260
write_exclusive='Key=0x11 scope: LU_SCOPE,  type: Write Exclusive'

# Nothing goes to the disk unless a program asks for it: no write-back by age, no commit of the journal by time.
mount_disk() {
  mkdir -p /disk
  mount -o commit=3600 /dev/vda /disk
  echo 0 >/proc/sys/vm/dirty_writeback_centisecs
}

# LUN 0 is for SYNCHRONIZE CACHE and the reservation, LUN 1 for FUA: the flush of one file writes nothing of the other.
start() {
  local name
  /test/lib/ld-linux-x86-64.so.2 --library-path /test/lib /test/lunaport serve --state-dir /disk/state --cores 1 \
    --portal $portal --target-name $target --export file:/disk/synchronized,size=16M,cache=writeback,thin=off \
    --export file:/disk/forced,size=16M,cache=writeback,thin=off >>/run/target.log 2>&1 4>&- &
  wait_for 30 eval ': </dev/tcp/127.0.0.1/3260'
  start_initiator iqn.2026-11.org.example:guest
  modprobe sg
  for name in one two; do login_as $name $target $portal; done
}

# pattern NAME: 64 KiB that follow from the name.
pattern() { printf "$(printf '%-15s' "$1")%.0s\\n" {1..4096}; }
# put NAME LUN OPTION…: the pattern becomes the first blocks of the LUN.
put() {
  pattern "$1" >/run/pattern
  sg_dd if=/run/pattern of="$(disk_of one "$2")" bs=512 bpt=128 "${@:3}"
}
# holds NAME LUN
holds() {
  expect "LUN $2" "$(pattern "$1" | sha256sum)" \
    "$(dd if="$(disk_of one "$2")" bs=64k count=1 iflag=direct status=none | sha256sum)"
}

# A journal writes newly taken blocks with its next commit, whoever asks for that. So the blocks are taken before, and
# what is to be kept is written over old data.
prepare() {
  mkfs.ext4 -q /dev/vda
  mount_disk
  start
  put old 0
  put old 1
  sg_sync "$(disk_of one 0)"
  sg_sync "$(disk_of one 1)"
  pattern old >/disk/witness
  sync
  # The witness of the reset: without it this test would prove nothing.
  pattern new | dd of=/disk/witness conv=notrunc status=none
}

acknowledge_and_reset() {
  local one
  one=$(disk_of one)
  heard two
  host reset
  put synchronized 0 oflag=sgio
  sg_sync "$one"
  put forced 1 oflag=sgio,fua
  out two --register --param-sark=0x22 --param-aptpl
  out one --register --param-sark=0x11 --param-aptpl
  sg_persist --no-inquiry --out --reserve --param-rk=0x11 --prout-type=1 "$one"
  echo b >/proc/sysrq-trigger
  sleep 60
  fail 'the machine was not reset'
}

replay() {
  mount_disk
  dmesg | grep 'EXT4-fs (vda): recovery complete'
  expect 'what nobody had asked to be stable' "$(pattern old | sha256sum)" "$(sha256sum </disk/witness)"
  start
}

the_reservation_is_there() {
  expect 'generation and keys' '0x0 0x22 0x11' "$(keys one)"
  expect 'the holder' "$write_exclusive" "$(holder two)"
}

# The reservation belongs to who had it: the same initiator in a new session.
the_reservation_is_in_force() {
  put later 0 oflag=sgio
  holds later 0
  if dd if=/dev/zero of="$(disk_of two)" bs=4096 count=1 oflag=direct; then fail 'the other initiator writes'; fi
  out one --release --param-rk=0x11 --prout-type=1
  dd if=/dev/zero of="$(disk_of two)" bs=4096 count=1 oflag=direct
}

the_data_are_there() {
  holds synchronized 0
  holds forced 1
}

modprobe -a virtio_blk ext4
if [ -z "$(blkid -o value -s TYPE /dev/vda)" ]; then
  step 'the target serves two LUNs on a disk of its machine' prepare
  step 'the machine is reset right after acknowledgements' acknowledge_and_reset
else
  step 'the target starts again after the journal is replayed' replay
  step 'data of FUA and SYNCHRONIZE CACHE are there' the_data_are_there
  step 'keys, holder and type of the reservation are there' the_reservation_is_there
  step 'and in force' the_reservation_is_in_force
fi
