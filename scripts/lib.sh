# Shared by the scripts: steps that are timed and counted, packages that are installed when missing.
# Sourced, not run. Expects `set -u` and sets ROOT.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
PASSED=0
FAILED=0
FAILURES=()
TIMES=()
LOGS="$(mktemp -d)"
trap 'rm -rf "$LOGS"' EXIT
# Longest a single step may take: a test that hangs must not hang the whole run.
STEP_TIMEOUT="${STEP_TIMEOUT:-1200}"

# has COMMAND
has() { command -v "$1" >/dev/null 2>&1; }

# need_packages COMMAND:PACKAGE...: installs the Debian packages of the commands that are missing, if any.
need_packages() {
  local missing=() pair
  for pair in "$@"; do
    # Debian keeps servers where only root's PATH looks.
    has "${pair%%:*}" || [ -x "/usr/sbin/${pair%%:*}" ] || missing+=("${pair#*:}")
  done
  [ "${#missing[@]}" -eq 0 ] && return 0
  if [ "$(id -u)" -ne 0 ]; then
    echo "missing: ${missing[*]} (as root: apt-get install ${missing[*]})" >&2
    return 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# sum_of PATTERN LOG: the sum of the numbers that PATTERN (an extended regular expression of sed) captures.
sum_of() { sed -nE "s/$1/\\1/p" "$2" | awk '{ s += $1 } END { print s + 0 }'; }

# step NAME COMMAND...: runs a command, shows its output, counts the tests it reports. A step that reports none counts
# as one test; one that fails without a failed test (it did not compile, it hung) counts as one failure.
step() {
  local name="$1" log="$LOGS/step" start=$SECONDS rc passed failed
  shift
  echo
  echo "==> $name"
  timeout --kill-after=30 "$STEP_TIMEOUT" "$@" 2>&1 | tee "$log"
  rc="${PIPESTATUS[0]}"
  if tail -n 1 "$log" | grep -qE '^[0-9]+ passed, [0-9]+ failed$'; then
    # A script of ours: its count includes what its own steps report.
    passed=$(tail -n 1 "$log" | cut -d' ' -f1)
    failed=$(tail -n 1 "$log" | cut -d' ' -f3)
  else
    # cargo test; node --test.
    passed=$(($(sum_of '^test result: .* ([0-9]+) passed;.*' "$log") + $(sum_of '^# pass ([0-9]+)$' "$log")))
    failed=$(($(sum_of '^test result: .* ([0-9]+) failed;.*' "$log") + $(sum_of '^# fail ([0-9]+)$' "$log")))
  fi
  [ "$rc" -eq 124 ] && echo "$name: no end after $STEP_TIMEOUT s"
  if [ "$rc" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi
  if [ "$rc" -eq 0 ] && [ "$((passed + failed))" -eq 0 ]; then passed=1; fi
  PASSED=$((PASSED + passed))
  FAILED=$((FAILED + failed))
  [ "$failed" -gt 0 ] && FAILURES+=("$name ($failed failed)")
  TIMES+=("$(printf '%5d s  %6d passed  %4d failed  %s' "$((SECONDS - start))" "$passed" "$failed" "$name")")
  return 0
}

# finish: the table of steps, what failed, and the count, alone on the last line.
finish() {
  echo
  printf '%s\n' ${TIMES[@]+"${TIMES[@]}"}
  printf '%5d s  in all\n' "$SECONDS"
  local failure
  for failure in ${FAILURES[@]+"${FAILURES[@]}"}; do echo "FAILED: $failure"; done
  echo "$PASSED passed, $FAILED failed"
  [ "$FAILED" -eq 0 ]
}
