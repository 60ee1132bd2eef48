# Two portals as two paths to one disk: the kernel's ALUA handler, multipathd over udev, and the tools of sg3-utils.
. /test/lib.sh

target=iqn.2026-11.org.example:paths
first=$HOST4:3260
second=[$HOST6]:3260
mib=128

start() {
  local portal
  start_initiator iqn.2026-11.org.example:guest
  modprobe -a sg scsi_dh_alua dm_multipath dm_service_time
  host start paths --portal "$first,group=1" --portal "$second,group=7,state=non-optimized" --target-name $target \
    --export "file:paths.img,size=${mib}M,vendor=ACME,product=Two paths,soft-threshold=50%"
  for portal in "$first" "$second"; do
    # A path that is lost is to be given up soon.
    node $target "$portal" node.session.timeo.replacement_timeout=5 'node.conn[0].timeo.noop_out_interval=2' \
      'node.conn[0].timeo.noop_out_timeout=3'
    login $target "$portal"
  done
  wait_for 30 eval 'path "$HOST4" && path "$HOST6"'
}

# path ADDRESS: the disk behind the portal of this address.
path() {
  local session connection block
  for session in /sys/class/iscsi_session/session*; do
    connection=$(echo "$session"/device/connection*/iscsi_connection/connection*)
    [ "$(cat "$connection/persistent_address")" = "$1" ] || continue
    for block in "$session"/device/target*/*:0/block/*; do
      [ -b "/dev/${block##*/}" ] && echo "/dev/${block##*/}" && return
    done
  done
  return 1
}
states() { cat /sys/block/"${1##*/}"/device/access_state /sys/block/"${2##*/}"/device/access_state | paste -sd ' '; }

both_paths_are_the_same_disk() {
  local one two
  one=$(path "$HOST4") two=$(path "$HOST6")
  expect 'names of the disk' "$(cat /sys/block/"${one##*/}"/device/wwid)" "$(cat /sys/block/"${two##*/}"/device/wwid)"
  expect 'vendor and product' 'ACME Two paths' \
    "$(sed 's/ *$//' /sys/block/"${one##*/}"/device/vendor) $(sed 's/ *$//' /sys/block/"${one##*/}"/device/model)"
  expect 'states the kernel found' 'active/optimized active/non-optimized' "$(states "$one" "$two")"
  sg_vpd --page=di "$two" | grep -E 'Relative target port: 0x7|Target port group: 0x7' | wc -l >/run/named
  expect 'port and group named' 2 "$(cat /run/named)"
  sg_vpd --page=sp "$one" | grep -cE 'Relative port=(1|7)' >/run/ports
  expect 'ports' 2 "$(cat /run/ports)"
}

the_tools_print_what_the_standard_says() {
  local disk page
  disk=$(path "$HOST4")
  sg_rtpg --decode "$disk"
  sg_rtpg --decode --extended "$disk"
  for page in sv sn di mna ei mpp sp bl bdc lbpv; do sg_vpd --page=$page "$disk"; done
  sg_modes --all "$disk"
  expect 'mode page of the threshold' 1 "$(sg_modes --page=0x1c,0x02 "$disk" | grep -c 'Logical block provisioning')"
  sg_logs --all "$disk"
  sg_logs --page=0xc "$disk" | grep -E 'Used LBA mapping.* count: '
  sg_opcodes "$disk"
  sg_opcodes --opcode=0xa3,0x0a "$disk"
  sg_senddiag --test "$disk"
  sg_ident --set <<<'rack 7' "$disk"
  expect 'identifying information' 'rack 7' "$(sg_ident --ascii "$disk" | sed -n 1p)"
  sg_timestamp "$disk"
  sg_timestamp --milliseconds=1000000 "$disk"
  expect 'who set the clock' 1 "$(sg_timestamp --origin "$disk" | grep -c 'SET TIMESTAMP')"
  sg_logs --reset "$disk"
  sg_luns "$disk"
  sg_turs "$disk"
}

# The other path is told, and its state follows.
states_change_by_command() {
  local one two
  one=$(path "$HOST4") two=$(path "$HOST6")
  sg_stpg --tp=7 --state=s "$one"
  wait_for 20 eval "[[ \$(sg_turs -v $two 2>&1) == *'target port in standby state'* ]]"
  sg_rtpg --decode "$one" | grep -q 'standby'
  sg_stpg --tp=7 --state=an "$one"
  wait_for 20 sg_turs "$two"
}

# multipathd finds both paths by itself, as on an installed system: with udev's names, and priorities from the states.
multipathd_builds_the_map() {
  cat >/etc/multipath.conf <<'END'
defaults {
  find_multipaths no
  user_friendly_names yes
  path_grouping_policy group_by_prio
  detect_prio no
  prio alua
  failback immediate
  no_path_retry queue
  polling_interval 2
  max_polling_interval 2
}
END
  systemd-udevd --daemon 4>&-
  udevadm trigger
  udevadm settle
  multipathd -d >>/run/multipathd.log 2>&1 4>&- &
  wait_for 60 [ -b /dev/mapper/mpatha ]
  multipath -ll
  expect 'paths and priorities' "$(priorities 50 10)" "$(paths '%d %p')"
  expect 'hardware handler and paths' '1 alua 2' "$(multipathd show maps raw format '%h %N' | sed 's/  */ /g; s/ *$//')"
}
# paths FORMAT: what multipathd knows of the paths, a line each, in the order of names.
paths() { multipathd show paths raw format "$1" | sed 's/  */ /g; s/ *$//' | sort; }
# priorities FIRST SECOND
priorities() {
  local one two
  one=$(path "$HOST4") two=$(path "$HOST6")
  printf '%s\n' "${one##*/} $1" "${two##*/} $2" | sort
}
# written DISK: how many sectors the kernel wrote over this path.
written() { awk '{ print $7 }' "/sys/block/${1##*/}/stat"; }

# The path in use is cut off in the middle of random writes that are read again.
the_loss_of_a_path_costs_no_io() {
  local one two writing before
  one=$(path "$HOST4") two=$(path "$HOST6")
  verify /dev/mapper/mpatha 4k 8 4
  expect 'sectors written over the worse path' 0 "$(written "$two")"
  verify /dev/mapper/mpatha 4k $((mib / 2)) 1 &
  writing=$!
  sleep 2
  ip route add blackhole "$HOST4/32"
  wait_for 90 eval '[[ $(paths "%d %t") == *"'"${one##*/}"' failed"* ]]'
  wait $writing || fail 'I/O was lost with the path'
  # The kernel asked the path that is left to be the best one, and multipathd sees it.
  wait_for 60 eval '[[ $(paths "%d %p") == *"'"${two##*/}"' 50"* ]]'
  before=$(written "$two")
  verify /dev/mapper/mpatha 4k 8 2
  expect 'sectors written over the path that is left' $((8 << 11)) $(($(written "$two") - before))
  ip route del blackhole "$HOST4/32"
  wait_for 90 eval '[[ $(paths "%d %t") != *failed* ]]'
  multipath -ll
  verify /dev/mapper/mpatha 4k 8 3
  multipathd shutdown
  udevadm settle
  # Whoever looks at new block devices may still have it open.
  wait_for 60 dmsetup remove --retry mpatha
}

end() {
  logout $target "$first"
  logout $target "$second"
  host stop paths
}

step 'two portals are two paths with states of their own' start
step 'both paths are the same disk' both_paths_are_the_same_disk
step 'sg3-utils prints what the standard says' the_tools_print_what_the_standard_says
step 'states change by command' states_change_by_command
step 'multipathd builds the map' multipathd_builds_the_map
step 'the loss of a path costs no I/O' the_loss_of_a_path_costs_no_io
step 'logout' end
