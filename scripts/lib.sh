# Shared by the scripts: steps that are timed and counted, packages that are installed when missing.
# Sourced, not run. Expects `set -u` and sets ROOT.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# Where cargo builds.
TARGET="${CARGO_TARGET_DIR:-$ROOT/target}"
LOGS="$(mktemp -d)"
# A line for each step that has ended: SECONDS PASSED FAILED LOG NAME. A file, since steps of a lane run in a process of
# their own.
RESULTS="$LOGS/results"
# Lanes and what they run, which a Ctrl-C does not reach.
end_lanes() {
  local lane children
  for lane in $(jobs -p); do
    children="$(pgrep -P "$lane")"
    # shellcheck disable=SC2086 # several
    kill "$lane" $children 2>/dev/null
  done
}
trap 'end_lanes; rm -rf "$LOGS"' EXIT
trap 'exit 130' INT TERM
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

# test_programs: builds all of the workspace's tests, and prints a line for each program: CRATE KIND TARGET PATH.
# Always all: a selection would give dependencies other features, and so build them again.
test_programs() {
  cargo test --workspace --no-run --message-format=json-render-diagnostics |
    sed -nE 's/^.*"package_id":"[^"]*\/([a-z]+)#[^"]*".*"target":\{"kind":\["([a-z]+)"\].*"name":"([^"]+)","src_path".*"test":true\},"features".*"executable":"([^"]+)".*$/\1 \2 \3 \4/p'
  return "${PIPESTATUS[0]}"
}

# The model checks: the core alone, optimised, without the link-time optimisation and line tables of a release.
loom() {
  RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$TARGET/loom" CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=none \
    CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 cargo test -p tidegate-core --release --test loom
}

# sum_of PATTERN LOG: the sum of the numbers that PATTERN (an extended regular expression of sed) captures.
sum_of() { sed -nE "s/$1/\\1/p" "$2" | awk '{ s += $1 } END { print s + 0 }'; }

# step NAME COMMAND...: runs a command, shows its output, counts the tests it reports. A step that reports none counts
# as one test; one that fails without a failed test (it did not compile, it hung) counts as one failure.
# The command may be a function that is exported.
step() {
  local name="$1" log start=$SECONDS rc
  shift
  # `timeout` runs programs.
  [ "$(type -t "$1")" = function ] && set -- bash -c '"$@"' bash "$@"
  log="$(mktemp -p "$LOGS")"
  if [ -n "${IN_LANE:-}" ]; then
    timeout --kill-after=30 "$STEP_TIMEOUT" "$@" >"$log" 2>&1 </dev/null
    rc=$?
    # All of it at once: lines of several steps at the same time could not be told apart.
    (flock 9 && echo && echo "==> $name" && cat "$log") 9>"$LOGS/lock"
  else
    echo
    echo "==> $name"
    timeout --kill-after=30 "$STEP_TIMEOUT" "$@" 2>&1 | tee "$log"
    rc="${PIPESTATUS[0]}"
  fi
  count "$name" "$log" "$rc" "$((SECONDS - start))"
}

# count NAME LOG RC SECONDS: notes how a step ended.
count() {
  local name="$1" log="$2" rc="$3" passed failed
  if tail -n 1 "$log" | grep -qE '^[0-9]+ (passed|caught), [0-9]+ (failed|survived)$'; then
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
  echo "$4 $passed $failed $log $name" >>"$RESULTS"
}

# reasons LOG: the lines of a step that failed which say why, of the first failures. Without such lines, the last ones.
reasons() {
  local found
  found="$(grep -hE -A7 "^thread .* panicked at|^ *not ok |^error(\[|:)|^ *FAILED" "$1" |
    grep -vE '^(--|stack backtrace:)?$|^ +([0-9]+: |at |---)')"
  { if [ -n "$found" ]; then head -n 30 <<<"$found"; else tail -n 12 "$1"; fi; } | cut -c1-400 | sed 's/^/    /'
}

# lane FUNCTION: runs a function of steps beside the others. What a step of it prints appears when the step has ended.
# `finish` waits for all lanes.
lane() {
  IN_LANE=yes
  "$@" &
  IN_LANE=
}

# finish: the table of steps, what failed and why, and the count, alone on the last line.
finish() {
  local seconds passed failed log name all_passed=0 all_failed=0 failures=()
  wait
  echo
  while read -r seconds passed failed log name; do
    printf '%5d s  %6d passed  %4d failed  %s\n' "$seconds" "$passed" "$failed" "$name"
    all_passed=$((all_passed + passed))
    all_failed=$((all_failed + failed))
    [ "$failed" -gt 0 ] && failures+=("$log $name ($failed failed)")
  done <"$RESULTS"
  printf '%5d s  in all\n' "$SECONDS"
  for name in ${failures[@]+"${failures[@]}"}; do
    echo "FAILED: ${name#* }"
    reasons "${name%% *}"
  done
  echo "$all_passed passed, $all_failed failed"
  [ "$all_failed" -eq 0 ]
}
