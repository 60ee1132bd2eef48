# A CD-ROM that is mounted, ejected and loaded again; and a disk with protection information that tells damage.
. /test/lib.sh

target=iqn.2026-11.org.example:discs
portal=$HOST4:3260

start() {
  start_initiator iqn.2026-11.org.example:guest
  modprobe -a sg sr_mod isofs
  host iso disc.iso >/run/sums
  host start discs --portal "$portal" --target-name $target --export cdrom:disc.iso --export file:pi.img,size=16M,pi=1
  node $target "$portal"
  login $target "$portal"
  drive=$(disk $target 0)
  expect 'the drive' /dev/sr0 "$drive"
  disk $target 1
}

# `host` answers in one line: SHA-256 and name, one after the other.
the_disc_has_the_files() {
  mount -t iso9660 -o ro /dev/sr0 /mnt
  tr ' ' '\n' </run/sums | paste -d ' ' - - | sed 's/ /  /' >/run/files.sha256
  [ "$(wc -l </run/files.sha256)" = 6 ] || fail "the host told of $(wc -l </run/files.sha256) files"
  (cd /mnt && sha256sum --check --quiet /run/files.sha256)
}

the_disc_is_ejected_and_loaded() {
  local before
  # Mounted, the drive is locked: medium removal prevented.
  refuses 5 sg_start --eject /dev/sr0
  umount /mnt
  before=$(cat /sys/block/sr0/diskseq)
  sg_start --eject /dev/sr0
  refuses 2 sg_turs -v /dev/sr0
  grep -F 'Medium not present' /run/said
  sg_start --load /dev/sr0
  wait_for 20 sg_turs /dev/sr0
  mount -t iso9660 -o ro /dev/sr0 /mnt
  (cd /mnt && sha256sum --check --quiet /run/files.sha256)
  umount /mnt
  # The kernel counts the media that it was told of.
  [ "$(cat /sys/block/sr0/diskseq)" -gt "$before" ] || fail 'the kernel was not told that the medium changed'
  if dd if=/dev/zero of=/dev/sr0 bs=2048 count=1 status=none; then fail 'the disc was written to'; fi
}

# refuses STATUS COMMAND…: the exit statuses of sg3-utils name the sense key; 40 is ABORTED COMMAND for protection.
refuses() {
  local expected=$1 status=0
  shift
  "$@" >/run/said 2>&1 || status=$?
  expect "status of $*" "$expected" $status
}

# The guard of 512 bytes of zeroes is 0; the reference tag of type 1 is the address.
protection_information_is_kept_and_checked() {
  local disk
  disk=$(disk $target 1)
  { head -c 512 /dev/zero; printf '\0\0\x12\x34\0\0\0\x08'; } >/run/good
  sg_raw -s 520 -i /run/good "$disk" 2a 20 00 00 00 08 00 00 01 00
  sg_raw -r 520 -o /run/read "$disk" 28 20 00 00 00 08 00 00 01 00
  cmp /run/good /run/read || fail 'what was read is not what was written'
  { head -c 512 /dev/zero; printf '\0\1\x12\x34\0\0\0\x08'; } >/run/bad
  refuses 40 sg_raw -s 520 -i /run/bad "$disk" 2a 20 00 00 00 08 00 00 01 00
  grep -F 'Logical block guard check failed' /run/said
  { head -c 512 /dev/zero; printf '\0\0\x12\x34\0\0\0\x09'; } >/run/bad
  refuses 40 sg_raw -s 520 -i /run/bad "$disk" 2a 20 00 00 00 08 00 00 01 00
  grep -F 'Logical block reference tag check failed' /run/said
  sg_raw -r 520 -o /run/read "$disk" 28 20 00 00 00 08 00 00 01 00
  cmp /run/good /run/read || fail 'a write that was refused changed something'
}

damage_to_the_file_is_an_error() {
  local disk
  disk=$(disk $target 1)
  dd if=/dev/urandom of="$disk" bs=64k count=1 oflag=direct status=none
  host damage pi.img $((20 * 512 + 7))
  refuses 40 sg_raw -r 512 "$disk" 28 00 00 00 00 14 00 00 01 00
  grep -F 'Logical block guard check failed' /run/said
  # Its neighbours are whole.
  sg_raw -r 512 "$disk" 28 00 00 00 00 13 00 00 01 00
  sg_raw -r 512 "$disk" 28 00 00 00 00 15 00 00 01 00
  # Written again, it is too.
  dd if=/dev/urandom of="$disk" bs=64k count=1 oflag=direct status=none
  sg_raw -r 512 "$disk" 28 00 00 00 00 14 00 00 01 00
}

end() {
  logout $target "$portal"
  host stop discs
}

step 'a drive and a protected disk' start
step 'the files on the disc are what the host put there' the_disc_has_the_files
step 'the disc is ejected and loaded' the_disc_is_ejected_and_loaded
step 'protection information is kept and checked' protection_information_is_kept_and_checked
step 'damage to the file is an error' damage_to_the_file_is_an_error
step 'logout' end
