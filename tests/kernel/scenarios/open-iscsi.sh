# One guest, the kernel's initiator, one target with a disk in a file and a disk on a block device; over TCP.
. /test/lib.sh

target=iqn.2026-11.org.example:kernel-test
guarded=iqn.2026-11.org.example:kernel-test.guarded
portal=$HOST4:3260
guarded_portal=$HOST4:3261
file_mib=1024
block_mib=768
digests='node.conn[0].iscsi.HeaderDigest=CRC32C node.conn[0].iscsi.DataDigest=CRC32C'

start() {
  local loop
  start_initiator iqn.2026-11.org.example:guest
  loop=$(host loop disk.img $block_mib)
  host start disks --portal "$portal" --portal "[$HOST6]:3260" --target-name "$target" \
    --export "file:file.img,size=${file_mib}M" --export "block:$loop"
  make_files /run/files
}

# The target answers with all its portals, the one that was asked first.
discovery() {
  expect 'SendTargets over IPv4' "$portal,1 $target;[$HOST6]:3260,1 $target;" "$(send_targets "$portal")"
  expect 'SendTargets over IPv6' "[$HOST6]:3260,1 $target;$portal,1 $target;" "$(send_targets "[$HOST6]:3260")"
}
send_targets() { iscsiadm -m discovery -t sendtargets -p "$1" | tr '\n' ';'; }

login_plain() {
  node $target $portal
  login $target $portal
  expect 'negotiated' 'header=None data=None chap= mutual=' "$(negotiated $target)"
  expect 'size of LUN 0' $((file_mib << 20)) "$(blockdev --getsize64 "$(disk $target 0)")"
  expect 'size of LUN 1' $((block_mib << 20)) "$(blockdev --getsize64 "$(disk $target 1)")"
  logout $target $portal
  node $target "[$HOST6]:3260"
  login $target "[$HOST6]:3260"
  disk $target 1
  logout $target "[$HOST6]:3260"
}

# A second process, on every IPv4 address, that wants CHAP and proves itself too.
login_mutual_chap() {
  local credentials
  host write initiator.secret initiator-secret
  host write target.secret target-secret-1
  host start guarded --portal 0.0.0.0:3261 --target-name "$guarded" --export file:guarded.img,size=64M \
    --chap guest:initiator.secret --mutual-chap lunaport:target.secret
  expect 'SendTargets of a portal on every address' "$guarded_portal,1 $guarded;" "$(send_targets "$guarded_portal")"

  credentials='node.session.auth.authmethod=CHAP node.session.auth.chap_algs=SHA3-256
    node.session.auth.username=guest node.session.auth.password=initiator-secret
    node.session.auth.username_in=lunaport node.session.auth.password_in=target-secret-1'
  node $guarded $guarded_portal $credentials
  : >/run/iscsid.log
  login $guarded $guarded_portal
  expect 'negotiated' 'header=None data=None chap=guest mutual=lunaport' "$(negotiated $guarded)"
  # 8 is SHA3-256: the only algorithm offered, and the one the target chose.
  expect 'CHAP_A offered and chosen' 'CHAP_A=8 CHAP_A=8' "$(grep -ao 'CHAP_A=.*' /run/iscsid.log | paste -sd ' ')"
  verify "$(disk $guarded 0)" 64k 16 1
  logout $guarded $guarded_portal

  # 24: the target refuses. 19: the initiator does, since the target does not prove that it knows the secret.
  node $guarded $guarded_portal
  refused $guarded $guarded_portal 24
  node $guarded $guarded_portal $credentials node.session.auth.password=another-secret1
  refused $guarded $guarded_portal 24
  node $guarded $guarded_portal $credentials node.session.auth.password_in=another-secret1
  refused $guarded $guarded_portal 19
  host stop guarded
}

login_digests() {
  node $target $portal $digests
  login $target $portal
  expect 'negotiated' 'header=CRC32C data=CRC32C chap= mutual=' "$(negotiated $target)"
  expect 'digests that iscsiadm reports' 'HeaderDigest: CRC32C DataDigest: CRC32C' \
    "$(iscsiadm -m session -P 3 | grep -oE '(Header|Data)Digest: .*' | paste -sd ' ')"
  verify "$(disk $target 0)" 64k 64 2
  logout $target $portal
}

# filesystem TYPE LUN: files written before a logout are there, whole, after the next login.
filesystem() {
  local kind=$1 lun=$2 disk
  login $target $portal
  disk=$(disk $target "$lun")
  case $kind in ext4) mkfs.ext4 -q -F "$disk" ;; xfs) mkfs.xfs -q -f "$disk" ;; esac
  mount "$disk" /mnt
  cp /run/files/* /mnt/
  umount /mnt
  logout $target $portal

  login $target $portal
  disk=$(disk $target "$lun")
  mount "$disk" /mnt
  (cd /mnt && sha256sum --quiet --check /run/files.sha256)
  umount /mnt
  case $kind in ext4) fsck.ext4 -fn "$disk" ;; xfs) xfs_repair -n "$disk" ;; esac
  logout $target $portal
}

# fio_sizes LUN SIZE:MIB…
fio_sizes() {
  local lun=$1 size
  shift
  login $target $portal
  for size; do
    verify "$(disk $target "$lun")" "${size%:*}" "${size#*:}" $((++round))
  done
  logout $target $portal
}

cycles() {
  local cycle
  for cycle in {1..20}; do
    login $target $portal
    dd if="$(disk $target 0)" of=/dev/null bs=4k count=1 iflag=direct status=none
    dd if="$(disk $target 1)" of=/dev/null bs=4k count=1 iflag=direct status=none
    logout $target $portal
    if session_of $target; then fail "cycle $cycle left a session"; fi
  done
}

# Two jobs write, re-read and check, mixed; the target goes away under them once politely and once not.
restarts() {
  local disks before first second
  login $target $portal
  disks=("$(disk $target 0)" "$(disk $target 1)")
  before=$(recoveries)
  verify "${disks[0]}" 16k 256 30 --verify_backlog=512 &
  first=$!
  verify "${disks[1]}" 64k 256 31 --verify_backlog=128 &
  second=$!

  under_io stop
  under_io kill

  wait $first
  wait $second
  expect 'recoveries that iscsid tells of' $((before + 2)) "$(recoveries)"
  logout $target $portal
}

# under_io VERB: both disks move data, the target ends and starts again, both disks move data again, all of it within
# the same two jobs.
under_io() {
  both_move
  wait_for 10 eval '[ "$(in_flight)" -gt 0 ]'
  host "$1" disks
  host restart disks
  both_move
}
# Waits until each disk has moved 8 MiB more.
both_move() {
  local disk goal
  for disk in "${disks[@]}"; do
    goal=$(($(sectors "$disk") + 16384))
    wait_for 120 has_reached "$disk" $goal
  done
}
has_reached() {
  kill -0 $first $second || fail 'fio ended before its time'
  [ "$(sectors "$1")" -ge "$2" ]
}
sectors() { awk '{ print $3 + $7 }' "/sys/block/${1##*/}/stat"; }
in_flight() { cat /sys/block/{${disks[0]##*/},${disks[1]##*/}}/inflight | awk '{ n += $1 + $2 } END { print n }'; }
recoveries() { grep -ac 'operational after recovery' /run/iscsid.log || true; }

finish() {
  host stop disks
  kernel_is_content
}

step 'start of target and initiator' start
step 'discovery lists exactly the portals' discovery
step 'plain login over IPv4 and IPv6' login_plain
step 'login with mutual CHAP, SHA3-256' login_mutual_chap
step 'login with both digests' login_digests
round=10
step 'ext4 on the file, digests' filesystem ext4 0
step 'xfs on the block device, digests' filesystem xfs 1
node $target $portal
step 'ext4 on the block device' filesystem ext4 1
step 'xfs on the file' filesystem xfs 0
step 'fio 4k to 1M on the file' fio_sizes 0 4k:96 16k:128 64k:256 256k:256 1m:256
step 'fio 4k to 1M on the block device' fio_sizes 1 4k:64 16k:128 64k:256 256k:256 1m:256
step '20 logouts and logins' cycles
step 'fio across SIGTERM and SIGKILL of the target' restarts
step 'the target ends, the kernel tells of no fault' finish
