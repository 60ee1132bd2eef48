# The tests of libiscsi over RDMA, by libiscsi's own initiator, beside the same tests over TCP in the same guest: the verdicts
# have to be the same, but for the tests that its initiator over RDMA cannot run. Those are named here, and fail for the same
# cause against another target.
#
# guest: target libiscsi memory=3072
. /test/lib.sh
. /test/iser.sh
. /test/peers.sh

# What release 1.19 of it cannot do over RDMA, with any target. `TEST=WITNESS`: no other target has what the test is about, or
# the test comes to no end there; the cause is shown by the other test.
unable=(
  # It sends no command of more than 256 KiB, nor one with a direction and nothing to transfer. Each has taken its CmdSN all the
  # same, so that the target waits for it, and all that comes later is never answered.
  ExtendedCopy.Simple WriteSame16.Unmap=ExtendedCopy.Simple
  iSCSIResiduals.Read10Invalid iSCSIResiduals.Read10Residuals iSCSIResiduals.Read12Residuals iSCSIResiduals.Read16Residuals
  iSCSIResiduals.Write10Residuals iSCSIResiduals.Write12Residuals iSCSIResiduals.Write16Residuals
  iSCSIResiduals.WriteVerify10Residuals iSCSIResiduals.WriteVerify16Residuals
  iSCSIResiduals.WriteVerify12Residuals=iSCSIResiduals.WriteVerify10Residuals
  # It takes the length that it asked for as received; what is behind the answer is left from an earlier one.
  Inquiry.AllocLength Inquiry.BlockLimits ModeSense6.Residuals ModeSense6.Control-SWP
  Sanitize.Readonly=ModeSense6.Control-SWP
  # It ends with a signal when it sends a task management request (mended in 1.20),
  MultipathIO.Reset PreventAllow.ColdReset PreventAllow.WarmReset PreventAllow.LUNReset Reserve6.LUNReset
  Reserve6.TargetColdReset Reserve6.TargetWarmReset iSCSITMF.AbortTaskSimpleAsync
  Sanitize.Reset=PreventAllow.LUNReset
  # and when there are more commands than its 256 buffers.
  MultipathIO.CompareAndWriteAsync Read10.Async Write10.Async
  # It does not end a command that takes too long.
  iSCSIcmdsn.iSCSICmdSnTooHigh iSCSIcmdsn.iSCSICmdSnTooLow
  # It cannot lose a nexus: its connections stay open (guest/keep.c).
  PreventAllow.ITNexusLoss Reserve6.ITNexusLoss
  # Over RDMA there are no solicited Data-Outs that could be numbered wrongly (RFC 7145 section 7.3.4).
  iSCSIdatasn.iSCSIDataSnInvalid
)

# They want blocks to be zero that they have not written, and leave them otherwise: passing once, they fail the next time.
untidy=(MultipathIO.CompareAndWrite)

start() {
  soft_rdma rxe
  head -c 64 /dev/urandom >/run/key
  chmod 600 /run/key
  serve_for_judging
  mkdir /run/different
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

# verdict TEST URL SECONDS [VARIABLE=VALUE…]: pass, fail or skip, and why; the environment for it is added to.
verdict() {
  local status=0
  env "${@:4}" timeout -k 1 "$3" iscsi-test-cu --dataloss --allow-sanitize --verbose --Verbose-scsi -t "ALL.$1" \
    "$2" "$2" >/run/judged 2>&1 || status=$?
  host judge "$1" $status "$(gzip -c /run/judged | base64 -w 0)"
}

# over_rdma TEST PORTAL/TARGET/LUN SECONDS: likewise over RDMA. There it frees what it has not taken from its small cache into
# it (mended in 1.20), which corrupts its memory at every read that ends with sense: so it is told to use no cache.
over_rdma() { verdict "$1" "iscsi://$2?iser" "$3" LD_PRELOAD=/test/keep.so LIBISCSI_CACHE_ALLOCATIONS=0; }

# cause VERDICT: what the last test came to grief by, a line each.
cause() {
  [[ $1 != *'exit code 139'* ]] || echo 'signal 11'
  grep -aoE 'revents is not POLLIN|SWP is not changeable|test_[a-z0-9_]+\.c:[0-9]+' /run/judged | sort -u || true
}

# both TEST: over TCP and over RDMA.
both() {
  local test=$1 tcp rdma lun seconds
  read -r lun seconds <<<"$(host conformance_lun "$test")"
  seconds=$((seconds > 120 ? seconds : 120))
  prepare "$test"
  tcp=$(verdict "$test" "iscsi://$portal/$target/$lun" $seconds)
  prepare "$test"
  rdma=$(over_rdma "$test" "$portal/$target/$lun" $seconds)
  echo "$test: TCP $tcp; RDMA $rdma"
  if [ "${tcp%% *}" != "${rdma%% *}" ]; then
    cause "$rdma" >"/run/different/$test"
    [[ " ${unable[*]} " == *" $test"[\ =]* ]] || echo "$test: TCP $tcp, RDMA $rdma;" >>/run/unnamed
  fi
  # What a failed test left behind must not be paid for by the next one.
  [[ "$tcp $rdma" != *fail* ]] || anew
}

# prepare TEST: with empty disks for one that is untidy.
prepare() { [[ " ${untidy[*]} " != *" $1 "* ]] || anew; }

# With empty disks.
anew() {
  end_target TERM
  serve_for_judging
}

# What differs has to be named above, and what is named has to differ.
all_named() {
  local name
  for name in "${unable[@]%=*}"; do
    [ -e "/run/different/$name" ] || echo "$name is named, and has the same verdict;" >>/run/unnamed
  done
  [ ! -s /run/unnamed ] || fail "$(tr '\n' ' ' </run/unnamed)"
}

others() {
  end_target TERM
  lio 10.88.0.1:3262 $target.lio 128
}

# shown TEST [WITNESS]: another target over RDMA comes to grief by the same: the kernel's, or tgt where that one skips.
shown() {
  # That it did not differ is for `all_named` to tell.
  [ -e "/run/different/$1" ] || return 0
  : >/run/theirs
  against LIO "${2:-$1}" "10.88.0.1:3262/$target.lio/0"
  theirs_too "$@" || against_tgt "${2:-$1}"
  theirs_too "$@" ||
    fail "not for the same cause: $(tr '\n' ' ' <"/run/different/$1") here, $(tr '\n' ' ' </run/theirs) there"
}

# theirs_too TEST [WITNESS]: all that libiscsi says of the cause, or where it says nothing a place in the test: at how many
# others it then fails as well depends on what the disk is like. A witness shows a cause: what follows from it is each test's
# own, down to the signal with which libiscsi may end once it has lost count of its commands.
theirs_too() {
  grep -v '^test_' "/run/different/$1" >/run/words || true
  if [ -n "${2:-}" ] || [ ! -s /run/words ]; then
    grep -qxFf "/run/different/$1" /run/theirs
  else
    ! grep -qvxFf /run/theirs /run/words
  fi
}

# against NAME TEST PORTAL/TARGET/LUN: what it comes to grief by there.
against() {
  local found
  found=$(over_rdma "$2" "$3" 240)
  host print "$2 over RDMA against $1: $found"
  cause "$found" >>/run/theirs
}

# Each time a new one: what was ejected would stay so.
against_tgt() {
  local initiator=iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-test
  tgt 10.88.0.1 $target.tgt 128 $initiator $initiator-2
  tgtadm --lld iser --op update --mode logicalunit --tid 1 --lun 1 --params removable=1,thin_provisioning=1
  against tgt "$1" "10.88.0.1:3260/$target.tgt/1"
  kill -KILL $tgtd
  wait $tgtd || true
}

step 'start of the target in a guest with soft-RoCE' start
for name in $(cat /run/tests); do step "$name over TCP and RDMA" both "$name"; done
# Before other targets come: what the kernel says of its own is not about this one.
step 'a content kernel' kernel_is_content
step 'other targets over RDMA' others
for name in "${unable[@]}"; do step "${name%=*} fails there for the same cause" shown ${name/=/ }; done
step 'the same verdicts, but for the tests that are named' all_named
