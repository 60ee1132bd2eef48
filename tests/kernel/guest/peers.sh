# Other targets over RDMA in the guest, each with a disk in memory: to compare with.

# lio ADDRESS:PORT TARGET MIB: the kernel's own, without access control.
lio() {
  modprobe -a target_core_mod iscsi_target_mod ib_isert
  mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
  local core=/sys/kernel/config/target/core/rd_mcp_0/disk group=/sys/kernel/config/target/iscsi/$2/tpgt_1
  mkdir -p $core
  echo "rd_pages=$(($3 * 256))" >$core/control
  echo 1 >$core/enable
  mkdir -p /sys/kernel/config/target/iscsi "$group/lun/lun_0" "$group/np/$1"
  ln -s $core "$group/lun/lun_0/disk"
  echo 1 >"$group/np/$1/iser"
  echo 0 >"$group/attrib/authentication"
  echo 1 >"$group/attrib/generate_node_acls"
  echo 1 >"$group/attrib/cache_dynamic_acls"
  echo 0 >"$group/attrib/demo_mode_write_protect"
  echo 1 >"$group/enable"
}

# tgt ADDRESS TARGET MIB INITIATOR…: LUN 1, a file on tmpfs; sets `tgtd` to its process. It locks what `pool_sz_mb` says, by
# default 1 GiB.
tgt() {
  local initiator
  # Where it makes its socket.
  mkdir -p /var/run/tgtd
  tgtd --foreground --iser pool_sz_mb=128 --iscsi portal="$1:3261" >/run/tgtd.log 2>&1 4>&- &
  tgtd=$!
  wait_for 60 eval "[ ! -e /proc/$tgtd ] || tgtadm --op show --mode sys >/dev/null 2>&1"
  [ -e /proc/$tgtd ] || fail "tgtd: $(tail -n 3 /run/tgtd.log)"
  truncate -s "$3M" /run/tgt.img
  tgtadm --lld iser --op new --mode target --tid 1 -T "$2"
  tgtadm --lld iser --op new --mode logicalunit --tid 1 --lun 1 -b /run/tgt.img
  # Over RDMA it wants both.
  tgtadm --lld iser --op bind --mode target --tid 1 -I ALL
  for initiator in "${@:4}"; do tgtadm --lld iser --op bind --mode target --tid 1 --initiator-name "$initiator"; done
}
