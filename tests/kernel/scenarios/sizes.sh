# Disks that grow while they are mounted, give blocks back, and meet a file system without space.
. /test/lib.sh

target=iqn.2026-11.org.example:sizes
portal=$HOST4:3260

start() {
  start_initiator iqn.2026-11.org.example:guest
  modprobe sg
  host room small 24
  host start sizes --portal "$portal" --target-name $target --export file:grows.img,size=256M \
    --export file:small/full.img,size=64M,soft-threshold=16M
  node $target "$portal"
  login $target "$portal"
  disk $target 0
  disk $target 1
}

# The file system is grown too, while fio writes to it and reads what it wrote.
a_mounted_disk_grows() {
  local disk writing
  disk=$(disk $target 0)
  mkfs.ext4 -q -F "$disk"
  mount "$disk" /mnt
  verify /mnt/data 4k 64 1 --filesize=64m &
  writing=$!
  host resize grows.img 512
  wait_for 30 eval "dmesg | grep -q 'Capacity data has changed'"
  expect 'times the kernel was told' 1 "$(dmesg | grep -c 'Capacity data has changed')"
  echo 1 >/sys/block/"${disk##*/}"/device/rescan
  expect 'size of the disk' $((512 << 20)) "$(blockdev --getsize64 "$disk")"
  resize2fs "$disk"
  wait $writing || fail 'I/O was lost while the disk grew'
  [ "$(df --output=size /mnt | tail -n1)" -gt $((400 << 10)) ] || fail "the file system has $(df /mnt)"
}

discarded_blocks_are_given_back() {
  local before after
  sync
  before=$(host kibibytes grows.img)
  rm /mnt/data
  # What is free is given back as soon as the journal says so for good.
  sync
  fstrim /mnt
  after=$(host kibibytes grows.img)
  [ $((before - after)) -gt $((60 << 10)) ] || fail "the file took $before KiB and takes $after"
  umount /mnt
}

# Space runs out: writes fail as data protect, space allocation failed. It goes on when there is space again.
a_full_file_system_stops_writes_until_there_is_space() {
  local disk
  disk=$(disk $target 1)
  dmesg --clear
  if dd if=/dev/urandom of="$disk" bs=1M count=48 oflag=direct status=none; then fail 'more was written than fits'; fi
  dmesg | grep -q 'Sense Key : Data Protect'
  dmesg | grep -q 'Space allocation failed write protect'
  wait_for 20 eval "sg_turs $disk; dmesg | grep -qi 'thin provisioning soft threshold'"
  host room small 80
  dd if=/dev/urandom of="$disk" bs=1M count=64 oflag=direct status=none
  verify "$disk" 64k 32 2
  dmesg --clear
}

end() {
  logout $target "$portal"
  host stop sizes
}

step 'a disk on a small file system, and one that will grow' start
step 'a mounted disk grows under I/O' a_mounted_disk_grows
step 'discarded blocks are given back' discarded_blocks_are_given_back
step 'a full file system stops writes until there is space' a_full_file_system_stops_writes_until_there_is_space
step 'the kernel tells of no fault' kernel_is_content
step 'logout' end
