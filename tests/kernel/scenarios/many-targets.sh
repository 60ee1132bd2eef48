# A thousand targets: applied in one change, found by the kernel's initiator, found again after a restart.
. /test/lib.sh

portal=$HOST4:3260
targets=1000

start() {
  # On a busy host an emulated iscsiadm needs longer for a thousand names than it has patience.
  echo 'discovery.sendtargets.timeo.active_timeout = 300' >>/etc/iscsi/iscsid.conf
  start_initiator iqn.2026-11.org.example:guest
  host descriptors 20000
  host start many --portal "$portal" --admin 127.0.0.1:8080
  host many_targets many.json $targets 4
  lunaport many config apply many.json >/dev/null
  seq -f 'iqn.2026-11.org.example:t%04g' 0 $((targets - 1)) >/run/expected
}

# found: all names, each once, at the portal.
found() {
  iscsiadm -m discovery -t sendtargets -p "$portal" >/run/discovered
  awk -v portal="$portal,1" '$1 == portal { print $2 }' /run/discovered | sort >/run/names
  cmp /run/expected /run/names || fail "$(wc -l </run/discovered) lines, of $(wc -l </run/names) names at $portal,1"
}

# 72 bytes a target, in as many PDUs as open-iscsi's MaxRecvDataSegmentLength makes them, each asked for.
in_several_pdus() {
  lunaport many session trace start --address "$GUEST4/32" >/dev/null
  found
  lunaport many session trace show 1 >/run/trace
  expect 'Text Requests' 3 "$(grep -c -- '-> Text Request:' /run/trace)"
  expect 'bytes of the Text Responses' '32768 32768 6464' \
    "$(sed -nE 's/.*<- Text Response: [^=]*, ([0-9]+) bytes.*/\1/p' /run/trace | paste -sd ' ')"
}

one_of_them() {
  local one=iqn.2026-11.org.example:t0777
  login $one "$portal"
  expect 'disks' "$(printf '%s\n' 0 1 2 3)" "$(ls -d "$(session_of $one)"/device/target*/*:*:*:*/ | sed 's/.*:\([0-9]*\)\/$/\1/' | sort)"
  expect 'size' $((1 << 30)) "$(blockdev --getsize64 "$(disk $one 3)")"
  verify "$(disk $one 3)" 64k 8 1
  logout $one "$portal"
}

restarted() {
  host stop many
  host restart many
  rm -r /etc/iscsi/nodes /etc/iscsi/send_targets
  found
}

finish() {
  host stop many
  kernel_is_content
}

step "$targets targets with 4 disks each, in one change" start
step 'discovery lists every one of them, in three PDUs' in_several_pdus
step 'login to one of them' one_of_them
step 'after a restart all are found again' restarted
step 'the target ends, the kernel tells of no fault' finish
