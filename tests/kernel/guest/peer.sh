# The second guest of a scenario: runs each line that `run` passes on from the first one (`host peer LINE`), with the
# functions of lib.sh, and answers `ok OUTPUT` or `error CAUSE` in one line. The first `ok` means that it is up.
. /test/lib.sh

tell ok
while read -r line <&4; do
  rm -f /run/cause
  echo "--- $line"
  (
    set -eEu -o pipefail
    trap 'note_cause "$BASH_COMMAND"' ERR
    eval "$line"
  ) >/run/output 4>&-
  status=$?
  cat /run/output
  if [ $status = 0 ]; then
    tell "ok $(paste -sd ' ' /run/output)"
  else
    tell "error $line: $(cat /run/cause 2>/dev/null || echo "status $status")"
    show_logs
  fi
done
