# One target, measured from inside its guest; `iser-in-guest` puts the name of the target in.
#
# guest: target icount memory=2048
. /test/lib.sh
. /test/peers.sh

peer=@PEER@
target=iqn.2026-11.org.example:bench
initiator=iqn.2026-11.org.example:guest
portal=10.88.0.1:3260
lun=0

start() {
  # Commands of its usual size: tgt takes no larger ones.
  modprobe ib_iser
  soft_rdma rxe
  start_initiator $initiator
  case $peer in
    lunaport-*)
      start_target --portal $portal --portal iser:$portal --target-name $target --cores 1 --buffers 64M --export memory:256M
      wait_for 20 said 1 "iSER portal $portal is open"
      ;;
    lio-iser) lio $portal $target 256 ;;
    tgt-iser)
      lun=1
      tgt 10.88.0.1 $target 256 $initiator
      ;;
  esac
  if [ $peer = lunaport-tcp ]; then node $target $portal; else node $target $portal iface.transport_name=iser; fi
  login $target $portal
  disk $target $lun
}

# 64 MiB are measured; each block is written once, so that no target reads what was never there.
fill() { dd if=/dev/zero of="$(disk_to_measure)" bs=128k count=512 oflag=direct status=none; }
disk_to_measure() { disk $target "$([ $peer = tgt-iser ] && echo 1 || echo 0)"; }

# measure PATTERN SIZE
measure() {
  local fio figures before after share=-
  fio --name=bench --filename="$(disk_to_measure)" --rw="$1" --bs="$2" --iodepth=32 --ioengine=libaio --direct=1 \
    --size=64m --time_based --runtime=3 --ramp_time=0.5 --output-format=terse --terse-version=3 >/run/fio.figures &
  fio=$!
  sleep 1.2
  if [ $peer != lio-iser ]; then
    read -ra before <<<"$(user_time)"
    sleep 1.6
    read -ra after <<<"$(user_time)"
    share=$(((after[0] - before[0]) * 100 / (after[1] - before[1])))%
  fi
  wait $fio
  figures=$(awk -F';' '{ printf "%d %.1f", $8 + $49, ($7 + $48) * 1024 / 1e6 }' /run/fio.figures)
  host print "figure $1/$2 $figures $share"
}
# user_time: what the target's program has run outside the kernel, and the time that is; both in hundredths of a second.
user_time() {
  local pid
  pid=$(grep -lxE 'lunaport|tgtd' /proc/[0-9]*/comm | head -n 1 | cut -d / -f 3)
  echo "$(cut -d ' ' -f 14 "/proc/$pid/stat") $(tr -d . </proc/uptime | cut -d ' ' -f 1)"
}

step "start of $peer" start
step 'each block is written' fill
step '4 KiB, random reads' measure randread 4k
step '4 KiB, random writes' measure randwrite 4k
step '128 KiB, reads' measure read 128k
step '128 KiB, writes' measure write 128k
