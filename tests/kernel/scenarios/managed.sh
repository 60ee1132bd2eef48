# A stranger with the README: makes a disk in the browser, pastes the commands of its page into a Linux host, grows the disk.
# Then logins that have to fail: what open-iscsi says, and what page and log say of it.
. /test/lib.sh

initiator=iqn.2026-11.org.example:guest
target=iqn.2026-11.org.example:second
secret='correct horse #1'
page=/luns/$target/0
portal=$HOST4:3260
disk=

first_visit() {
  start_initiator $initiator
  start_udev
  host write set-up.token token-of-the-kernel-test
  host start managed --portal 0.0.0.0:3260 --admin 127.0.0.1:8080 --set-up-token-file set-up.token
  host browse http://127.0.0.1:8080
  host fill 'Set-up token' token-of-the-kernel-test
  host fill User admin
  host fill Password 'a password of the kernel test'
  host fill 'Password again' 'a password of the kernel test'
  host press 'Make the administrator'
  page_says 'No disks yet'
}

first_target() {
  host visit /
  host follow 'Make the first LUN'
  host fill Name first
  host fill Size '1 GiB'
  host fill 'iSCSI name' iqn.2026-11.org.example:first
  host choose 'Any initiator'
  host press 'Make the LUN'
  page_says 'first is LUN 0 of iqn.2026-11.org.example:first'
}

second_target() {
  host visit /luns
  host follow 'New LUN'
  host fill Name second
  host fill Size '5 GiB'
  host choose 'A new target'
  host fill 'iSCSI name' $target
  host choose 'One initiator, by its name'
  host fill 'Initiator name' "$(sed -n 's/^InitiatorName=//p' /etc/iscsi/initiatorname.iscsi)"
  host choose 'With CHAP'
  host fill 'CHAP name' guest
  host fill 'CHAP secret' "$secret"
  host press 'Make the LUN'
  page_says "second is LUN 0 of $target" '5 GiB' ready
}

# paste ELEMENT: the commands of the page, in a shell, with nothing changed but the placeholder that the page explains.
paste() {
  on_page "$1" >/run/copied
  sed -i "s/put-the-secret-here/$secret/" /run/copied
  cat /run/copied
  bash -eo pipefail /run/copied 2>&1 | tee /run/pasted
}

pasted_login() {
  page_says 'Put the secret in the place of put-the-secret-here'
  paste linux
  grep -q '5G' /run/pasted || fail "lsblk does not show the disk: $(tail -n1 /run/pasted)"
  expect 'negotiated' 'header=None data=None chap=guest mutual=' "$(negotiated $target)"
  expect 'sessions' 1 "$(iscsiadm -m session | wc -l)"
  disk=$(grep -o '/dev/disk/by-id/[^ ]*' /run/copied)
  echo "$disk" >/run/disk
  expect 'size' $((5 << 30)) "$(blockdev --getsize64 "$disk")"
}

use() {
  disk=$(cat /run/disk)
  page_says "mkfs.ext4 $disk"
  mkfs.ext4 "$disk"
  mount "$disk" /mnt
  make_files /run/files
  cp /run/files/* /mnt/
  sync
}

grow() {
  disk=$(cat /run/disk)
  host visit $page
  host fill 'New size' '8 GiB'
  host press Grow
  page_says 'It has 8 GiB now, and hosts that are logged in have been told.'
  paste linux-grown
  expect 'size' $((8 << 30)) "$(blockdev --getsize64 "$disk")"
  [ "$(df --output=size -B1M /mnt | tail -n1)" -gt 7500 ] || fail "the file system has not grown: $(df -h /mnt | tail -n1)"
  (cd /mnt && sha256sum --quiet --check /run/files.sha256)
  head -c 8M /dev/urandom >/mnt/more
  umount /mnt
  fsck.ext4 -fn "$disk"
  iscsiadm -m node -T $target -p "$portal" --logout
  if session_of $target; then fail 'the session is still there'; fi
}

# fails_with STATUS WORDS TARGET: open-iscsi's login ends with this status and says these words.
fails_with() {
  local status=0
  iscsiadm -m node -T "$3" -p "$portal" --login >/run/failed 2>&1 || status=$?
  cat /run/failed
  expect 'status of iscsiadm' "$1" $status
  grep -qF "$2" /run/failed || fail "iscsiadm does not say '$2' but: $(tail -n1 /run/failed)"
}
# explained REASON FIX: by the page, the command line and one line of the log.
explained() {
  local failures
  host visit /login-failures
  page_says 'What was wrong:' "$1" "What helps: $2"
  failures=$(lunaport managed initiator failures | sed -n 2p)
  [[ $failures == *"$1"* && $failures == *"$2"* ]] || fail "the command line does not say '$1' and '$2': $failures"
  host says managed "$1*$2"
}

wrong_secret() {
  iscsiadm -m node -T $target -p "$portal" -o update -n node.session.auth.password -v another-secret1
  fails_with 24 'authorization failure' $target
  explained 'the CHAP secret of the name "guest" is wrong' 'enter the same secret'
}

no_chap() {
  node $target "$portal"
  fails_with 24 'authorization failure' $target
  explained 'requires CHAP' 'switch CHAP on'
}

not_allowed() {
  local closed=iqn.2026-11.org.example:closed
  lunaport managed target create $closed
  iscsiadm -m node -T $closed -p "$portal" -o new
  fails_with 24 'authorization failure' $closed
  explained 'does not admit the initiator' "add $initiator"
}

unknown_target() {
  iscsiadm -m node -T $target.typo -p "$portal" -o new
  fails_with 19 'initiator reported error' $target.typo
  explained "there is no target $target.typo" 'compare the target name'
}

no_common_digest() {
  local first=iqn.2026-11.org.example:first
  lunaport managed target set $first 'limits={"HeaderDigest": "CRC32C"}'
  iscsiadm -m discovery -t sendtargets -p "$portal"
  iscsiadm -m node -T $first -p "$portal" -o update -n 'node.conn[0].iscsi.HeaderDigest' -v None
  fails_with 19 'initiator reported error' $first
  explained 'HeaderDigest=CRC32C' 'switch HeaderDigest on'
}

finish() {
  host stop managed
  kernel_is_content
}

step 'first visit: the set-up token makes the administrator' first_visit
step 'a first disk for everybody, in one form' first_target
step 'a second target with CHAP and a disk of 5 GiB' second_target
step 'the commands of its page, pasted, log in' pasted_login
step 'a file system as the page says' use
step 'grown in the browser, taken up by the commands of the page' grow
step 'wrong secret: explained on page, command line and in the log' wrong_secret
step 'CHAP missing: likewise' no_chap
step 'not allowed: likewise' not_allowed
step 'unknown target: likewise' unknown_target
step 'no common digest: likewise' no_common_digest
step 'the target ends, the kernel tells of no fault' finish
