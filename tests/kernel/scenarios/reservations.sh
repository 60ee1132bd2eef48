# Two initiators of one kernel reserve a disk with sg_persist, fence each other off under load, and find what they asked
# to be kept after the target was killed.
. /test/lib.sh

target=iqn.2026-11.org.example:kernel-test.reserved
portal=$HOST4:3260

start() {
  start_initiator iqn.2026-11.org.example:guest
  host start reserved --portal "$portal" --target-name "$target" --export memory:64M
  login_as one $target "$portal"
  login_as two $target "$portal"
}

write() { dd if=/dev/zero of="$(disk_of "$1")" bs=4096 count=1 oflag=direct 2>&1; }

register_and_reserve() {
  out one --register --param-sark=0x11
  out two --register --param-sark=0x22
  expect 'generation and keys' '0x2 0x11 0x22' "$(keys two)"
  out one --reserve --param-rk=0x11 --prout-type=5
  expect 'the holder' 'Key=0x11 scope: LU_SCOPE,  type: Write Exclusive, registrants only' "$(holder two)"
  write one
  write two
  sg_persist --no-inquiry --in --read-full-status "$(disk_of one)" | tee /run/full
  expect 'initiator ports' 2 "$(grep -c 'iqn.2026-11.org.example:\(one\|two\),i,0x' /run/full)"
  sg_persist --no-inquiry --in --report-capabilities "$(disk_of one)" | tee /run/capabilities
  grep -q 'Persist Through Power Loss Capable(PTPL_C): 1' /run/capabilities
}

# The loser's load ends with an error, and the winner's does not notice.
fence() {
  local winner=$1 loser=$2 key=$3 victim=$4 load status=0
  fio --name=load --filename="$(disk_of "$loser")" --rw=randwrite --bs=4k --iodepth=16 --ioengine=libaio --direct=1 \
    --time_based --runtime=300 >/run/fio.load 2>&1 &
  load=$!
  wait_for 60 eval "[ \$(cat /sys/block/$(basename "$(disk_of "$loser")")/stat | awk '{ print \$5 }') -gt 100 ]"
  out "$winner" --preempt-abort --param-rk="$key" --param-sark="$victim" --prout-type=5
  verify "$(disk_of "$winner")" 4k 8 "$key"
  wait $load || status=$?
  [ $status != 0 ] || fail 'the load of the loser ended well'
  if write "$loser"; then fail 'the loser still writes'; fi
  out "$loser" --register --param-sark="$victim"
  write "$loser"
}

kept_over_kill() {
  out one --register --param-rk=0x11 --param-sark=0x11 --param-aptpl
  host kill reserved
  host restart reserved
  wait_for 120 eval "[ \"\$(keys one 2>/dev/null)\" = '0x0 0x22 0x11' ]"
  expect 'the holder' 'Key=0x22 scope: LU_SCOPE,  type: Write Exclusive, registrants only' "$(holder one)"
  out two --clear --param-rk=0x22
  expect 'after CLEAR' '0x1' "$(keys one)"
}

step 'two initiators have the same disk' start
step 'sg_persist registers, reserves and reads' register_and_reserve
step 'the one fences the other off' fence one two 0x11 0x22
step 'and the other the one' fence two one 0x22 0x11
step 'what was to be kept survives the kill of the target' kept_over_kill
