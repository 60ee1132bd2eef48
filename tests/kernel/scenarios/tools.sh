# The tools of sg3-utils on two disks in files: what each command does, tells and leaves behind.
. /test/lib.sh

target=iqn.2026-11.org.example:tools
portal=$HOST4:3260
mib=64

start() {
  start_initiator iqn.2026-11.org.example:guest
  modprobe sg
  host start tools --portal "$portal" --target-name $target --export file:one.img,size=${mib}M \
    --export file:two.img,size=${mib}M
  node $target "$portal"
  login $target "$portal"
  disk $target 0
  disk $target 1
  head -c $((16 << 20)) /dev/urandom >/run/data
}

# generic LUN: the disk's node of the generic driver.
generic() { echo /dev/"$(basename "$(echo /sys/block/"$(basename "$(disk $target "$1")")"/device/scsi_generic/*)")"; }
# blocks FILE LBA COUNT: from a disk past the page cache, or from a file.
blocks() {
  dd if="$1" bs=1M skip=$(($2 * 512)) count=$(($3 * 512)) iflag=skip_bytes,count_bytes${4:+,$4} status=none
}
on_disk() { blocks "$(disk $target "$1")" "$2" "$3" direct; }
# same WHAT FILE FILE
same() { cmp "$2" "$3" || fail "$1 is not what was expected"; }
# says LINE COMMAND…: the command succeeds and prints this line, among others.
says() {
  local line=$1
  shift
  "$@" >/run/said 2>&1 || fail "$*: status $?, $(tail -n 1 /run/said)"
  sed 's/^ *//; s/ *$//' /run/said | grep -Fx -e "$line" >/run/line || fail "$* does not print '$line'"
}
# refuses STATUS COMMAND…: the exit statuses of sg3-utils name the sense key.
refuses() {
  local expected=$1 status=0
  shift
  "$@" >/run/said 2>&1 || status=$?
  expect "status of $*" "$expected" $status
}
# status LUN [LBA]: each extent from there as "LBA/blocks/status", of which 0 is mapped and 1 deallocated.
status() {
  sg_get_lba_status --maxlen=4096 --brief --lba="${2:-0}" "$(disk $target "$1")" |
    awk '/^0x/ { sub(/^0x0*/, "", $1); print ($1 == "" ? 0 : $1) "/" substr($2, 3) "/" $3 }' | paste -sd ' '
}

the_disk_tells_what_it_can_do() {
  local disk line
  disk=$(disk $target 0)
  for line in 'Maximum compare and write length: 255 blocks' 'Maximum unmap LBA count: 1048576' \
    'Maximum unmap block descriptor count: 256' 'Optimal unmap granularity: 8 blocks' \
    'Maximum write same length: 0x100000 blocks'; do
    says "$line" sg_vpd --page=bl "$disk"
  done
  for line in 'Unmap command supported (LBPU): 1' 'Write same (16) with unmap bit supported (LBPWS): 1' \
    'Write same (10) with unmap bit supported (LBPWS10): 1' 'Logical block provisioning read zeros (LBPRZ): 1' \
    'Provisioning type: 2 (thin provisioned)'; do
    says "$line" sg_vpd --page=lbpv "$disk"
  done
  for line in 'Maximum range descriptors: 512' 'Maximum token transfer size: 134217728' 'Extended copy(LID1)' \
    'Populate token' 'Write using token' 'block -> block [0x2]' 'CSCD: Identification Descriptor [0xe4]' \
    'ROD type: block device zero [0xffff0001]' 'Maximum segment length: 268435456'; do
    says "$line" sg_vpd --page=tpc "$disk"
  done
  says '89                 16    0,0    Compare and write' sg_opcodes "$disk"
  says 'Command is supported [conforming to SCSI standard]' sg_opcodes --opcode=0x89 "$disk"
  says '48        2        10    0,0    Sanitize, block erase' sg_opcodes "$disk"
  # Bit 2 of byte 2: the write cache is on.
  says '00     88 12 04 00 00 00 00 00  00 00 00 00 00 00 00 00' sg_modes --page=8 "$disk"
  says '0x0c        Logical block provisioning [lbp]' sg_logs "$disk"
  refuses 9 sg_rep_zones "$disk"
}

# Status 14 is a miscompare.
compare_and_write() {
  local disk
  disk=$(disk $target 0)
  dd if=/run/data of="$disk" bs=1M oflag=direct status=none
  head -c 2048 /dev/urandom >/run/new
  { blocks /run/data 8 4; cat /run/new; } >/run/pair
  sg_compare_and_write --in=/run/pair --lba=8 --num=4 --xferlen=4096 "$disk"
  same 'what was written' /run/new <(on_disk 0 8 4)
  same 'the block before' <(blocks /run/data 7 1) <(on_disk 0 7 1)
  same 'the block after' <(blocks /run/data 12 1) <(on_disk 0 12 1)
  # It differs from byte 5 of the third block on: nothing is written.
  { head -c 1029 /run/new; tail -c +1030 /run/new | tr '\0-\377' '\1-\377\0'; blocks /run/data 100 4; } >/run/pair
  refuses 14 sg_compare_and_write --in=/run/pair --lba=8 --num=4 --xferlen=4096 "$disk"
  grep -F 'Miscompare at byte offset: 1029' /run/said
  same 'what was there' /run/new <(on_disk 0 8 4)
}

write_same_and_unmap() {
  local disk
  disk=$(disk $target 0)
  dd if=/run/data of="$disk" bs=1M oflag=direct status=none
  # 16 MiB of 64 MiB are mapped.
  expect 'extents' '0/8000/0 8000/18000/1' "$(status 0)"
  head -c 512 /dev/urandom >/run/new
  sg_write_same --in=/run/new --lba=100 --num=7 "$disk"
  same 'the same block' <(for _ in 1 2 3 4 5 6 7; do cat /run/new; done) <(on_disk 0 100 7)
  same 'the block before' <(blocks /run/data 99 1) <(on_disk 0 99 1)
  same 'the block after' <(blocks /run/data 107 1) <(on_disk 0 107 1)
  sg_write_same --16 --ndob --lba=200 --num=7 "$disk"
  same 'zeroes of no data' <(head -c 3584 /dev/zero) <(on_disk 0 200 7)
  same 'the block after' <(blocks /run/data 207 1) <(on_disk 0 207 1)
  sg_write_same --unmap --lba=1024 --num=1024 "$disk"
  expect 'extents after WRITE SAME' '0/400/0 400/400/1 800/7800/0 8000/18000/1' "$(status 0)"
  sg_unmap --force --lba=4096,16384 --num=2048,8192 "$disk"
  expect 'extents after UNMAP' \
    '0/400/0 400/400/1 800/800/0 1000/800/1 1800/2800/0 4000/2000/1 6000/2000/0 8000/18000/1' "$(status 0)"
  expect 'the extent that a block is in' '4100/1f00/1' "$(status 0 0x4100 | cut -d ' ' -f 1)"
  same 'zeroes where there is nothing' <(head -c $((8192 * 512)) /dev/zero) <(on_disk 0 16384 8192)
  same 'the blocks before' <(blocks /run/data 16376 8) <(on_disk 0 16376 8)
  same 'the blocks after' <(blocks /run/data 24576 8) <(on_disk 0 24576 8)
}

copy_from_disk_to_disk() {
  dd if=/run/data of="$(disk $target 0)" bs=1M oflag=direct status=none
  sg_xcopy if="$(generic 0)" of="$(generic 1)" bs=512 skip=4 count=32760 seek=65536
  same 'the copy' <(blocks /run/data 4 32760) <(on_disk 1 65536 32760)
  same 'the blocks before' <(head -c 4096 /dev/zero) <(on_disk 1 65528 8)
  same 'the blocks after' <(head -c 4096 /dev/zero) <(on_disk 1 98296 8)
}

# Nothing but the progress is told until it is done; then every block is what it was to be.
sanitize() {
  local disk before after
  disk=$(disk $target 1)
  echo pattern >/run/pattern
  sg_sanitize --overwrite --pattern=/run/pattern --count=31 --quick --early "$disk"
  sg_turs -v "$disk" >/run/said 2>&1 && fail 'the disk is ready while it is overwritten'
  grep -F 'Logical unit not ready, sanitize in progress' /run/said
  before=$(progress "$disk")
  refuses 2 sg_dd if="$(generic 1)" of=/dev/null count=1
  after=$(progress "$disk")
  [ "$before" -lt "$after" ] || fail "progress $before was followed by $after"
  wait_for 120 eval "sg_requests $disk 2>&1 | grep 'Additional sense: No additional sense information'"
  sg_turs "$disk"
  same 'the pattern' <(yes pattern | head -c $((mib << 20)) || true) <(on_disk 1 0 $((mib << 11)))
  sg_sanitize --block --quick --wait "$disk"
  expect 'extents after a block erase' '0/20000/1' "$(status 1)"
  same 'zeroes' <(head -c $((mib << 20)) /dev/zero) <(on_disk 1 0 $((mib << 11)))
  [ "$(host kibibytes two.img)" -lt 1024 ] || fail "the file takes $(host kibibytes two.img) KiB"
}
# In hundredths of a percent.
progress() { sg_requests --progress "$1" | sed -n 's/^Progress indication: \([0-9]*\)\.\([0-9]*\)%.*/\1\2/p'; }

end() {
  logout $target "$portal"
  host stop tools
}

step 'two disks' start
step 'pages, operation codes and modes tell what the disk can do' the_disk_tells_what_it_can_do
step 'COMPARE AND WRITE writes, or says where it differs' compare_and_write
step 'WRITE SAME and UNMAP change the blocks that were named, and their status' write_same_and_unmap
step 'EXTENDED COPY from one disk to the other' copy_from_disk_to_disk
step 'SANITIZE closes the disk, tells its progress and erases everything' sanitize
step 'the kernel tells of no fault' kernel_is_content
step 'logout' end
