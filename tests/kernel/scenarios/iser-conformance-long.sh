# The tests of libiscsi over RDMA, by libiscsi's own initiator, beside the same tests over TCP in the same guest: the verdicts
# have to be the same, but for the tests that its initiator over RDMA cannot run. Those are named here, and fail the same way
# against another target.
#
# guest: target libiscsi memory=3072
. /test/lib.sh
. /test/iser.sh
. /test/peers.sh

# What release 1.19 of it cannot do over RDMA, with any target: it takes a second without an event for an error (half a minute
# with guest/keep.c), so no slow command and no waiting; it ends with a signal when it sends a task management request or more
# commands than the window has room for; it does not send a read that expects nothing; it reports the length that was asked for
# as received; and it cannot lose a nexus, since its connections stay open (guest/keep.c).
unable='ExtendedCopy.Simple Inquiry.AllocLength Inquiry.BlockLimits ModeSense6.Residuals MultipathIO.CompareAndWriteAsync
  MultipathIO.Reset PreventAllow.ColdReset PreventAllow.ITNexusLoss Read10.Async Reserve6.ITNexusLoss
  Reserve6.LUNReset Reserve6.TargetColdReset Reserve6.TargetWarmReset
  Sanitize.Reset Write10.Async iSCSIResiduals.Read10Invalid iSCSIResiduals.Read10Residuals iSCSIResiduals.Read12Residuals
  iSCSIResiduals.Read16Residuals iSCSIResiduals.Write10Residuals iSCSIResiduals.Write12Residuals
  iSCSIResiduals.Write16Residuals iSCSITMF.AbortTaskSimpleAsync iSCSITMF.LUNResetSimpleAsync iSCSIcmdsn.iSCSICmdSnTooHigh
  iSCSIcmdsn.iSCSICmdSnTooLow'

start() {
  soft_rdma rxe
  head -c 64 /dev/urandom >/run/key
  chmod 600 /run/key
  serve_for_judging
  iscsi-test-cu -l | sed -n 's/^ALL\.\([^. ]*\.[^ ]*\) *$/\1/p' >/run/tests
  [ "$(wc -l </run/tests)" -ge 200 ] || fail 'the tool names too few tests'
}

serve_for_judging() {
  local number=0 export options=()
  while export=$(host conformance_export $number) && [ -n "$export" ]; do
    # The guest has less memory than the table counts on.
    export=${export/1023M/128M}
    options+=(--export "${export/'{key}'//run/key}")
    number=$((number + 1))
  done
  start_target --portal $portal --portal iser:$portal --target-name $target --cores 1 --buffers 128M \
    --set nop-interval=5m --set ImmediateData=No "${options[@]}"
  wait_for 60 eval 'tail -n 5 /run/target.log | grep -qF "$open"'
}

# verdict TEST URL SECONDS [PRELOADED]: pass, fail or skip, and why.
verdict() {
  local status=0
  LD_PRELOAD=${4:-} timeout -k 1 "$3" iscsi-test-cu --dataloss --allow-sanitize --verbose --Verbose-scsi -t "ALL.$1" \
    "$2" "$2" >/run/judged 2>&1 || status=$?
  host judge "$1" $status "$(gzip -c /run/judged | base64 -w 0)"
}

# over_rdma TEST LUN SECONDS: likewise over RDMA. Its initiator ends with a signal now and then while it disconnects; what it
# does three times in a row is no accident.
over_rdma() {
  local try found
  for try in 1 2 3; do
    found=$(verdict "$1" "iscsi://$portal/$target/$2?iser" "$3" /test/keep.so)
    [[ $found == *'exit code 139'* ]] || break
  done
  echo "$found"
}

# suite NAME: every test of it over both.
suite() {
  local test over_tcp over_rdma lun seconds
  for test in $(grep "^$1\." /run/tests); do
    read -r lun seconds <<<"$(host conformance_lun "$test")"
    seconds=$((seconds > 120 ? seconds : 120))
    over_tcp=$(verdict "$test" "iscsi://$portal/$target/$lun" $seconds)
    over_rdma=$(over_rdma "$test" "$lun" $seconds)
    echo "$test: TCP $over_tcp; RDMA $over_rdma"
    if [ "${over_tcp%% *}" != "${over_rdma%% *}" ]; then
      echo "$test" >>/run/different
      [[ " $(echo $unable) " == *" $test "* ]] || echo "$test: TCP $over_tcp, RDMA $over_rdma;" >>/run/unnamed
    fi
    # What a failed test left behind must not be paid for by the next one.
    if [[ "$over_tcp $over_rdma" == *fail* ]]; then
      end_target TERM
      serve_for_judging
    fi
  done
}

# What differs has to be named above.
all_named() {
  [ ! -s /run/unnamed ] || fail "not the same: $(cat /run/unnamed)"
}

# Each test that differs fails against the kernel's target, over RDMA, too.
peer_fails_too() {
  local test found passed=''
  end_target TERM
  lio 10.88.0.1:3262 $target.lio 64
  for test in $(cat /run/different 2>/dev/null); do
    found=$(verdict "$test" "iscsi://10.88.0.1:3262/$target.lio/0?iser" 60 /test/keep.so)
    host print "$test over RDMA against LIO: $found"
    [[ $found == fail* ]] || passed+=" $test"
  done
  for test in $unable; do
    grep -qxF "$test" /run/different || host print "$test is named above, and did not differ"
  done
  [ -z "$passed" ] || fail "these do not fail against LIO:$passed"
}

step 'start of the target in a guest with soft-RoCE' start
for name in $(cut -d . -f 1 /run/tests | uniq); do step "$name over TCP and RDMA" suite "$name"; done
step 'what differs fails over RDMA against another target too' peer_fails_too
step 'the same verdicts, but for the tests that are named' all_named
step 'a content kernel' kernel_is_content
