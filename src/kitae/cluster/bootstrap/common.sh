#!/usr/bin/env bash
# Made by kitae: what ParallelCluster runs on a node once it is configured. Arguments say what to install:
#   sdk=VERSION    a Neuron SDK begins; what follows is its own
#   apt=PIN        a Debian package with its version, as apt takes it
#   pip=PIN        a Python package with its version, for the environment of that SDK
#   wheel=URL      kitae itself
#   guard=URL      the program that watches the machines of jobs
#   watch=FOLDER   of the bucket, for that program
# It may be run any number of times: what is there already is left alone. Everything is logged.
set -Eeuo pipefail

# Tests put another root in front of all that is written.
ROOT="${KITAE_ROOT:-}"
LOG="$ROOT/var/log/kitae-bootstrap.log"
DONE="$ROOT/var/lib/kitae/done"
APT_HOST=https://apt.repos.neuron.amazonaws.com
ATTEMPTS="${KITAE_ATTEMPTS:-5}"
PAUSE="${KITAE_PAUSE_S:-10}"

mkdir -p "$(dirname "$LOG")" "$DONE"
exec > >(tee -a "$LOG") 2>&1
trap 'echo "kitae: FAILED in line $LINENO: $BASH_COMMAND (all of it is in $LOG)"' ERR

# Not to standard output, which may be somebody's value.
say() { echo "kitae: $(date -u +%FT%TZ) $*" >&2; }

# A step runs once for what it is about; another pin is another step.
once() {
  local name="$1" about="$2"
  shift 2
  local mark
  mark="$DONE/$name-$(printf '%s' "$about" | sha256sum | cut -c1-16)"
  if [ -e "$mark" ]; then
    say "$name: there already"
    return 0
  fi
  say "$name: $about"
  "$@"
  touch "$mark"
}

# Repositories are slow to answer when many nodes start at once.
again() {
  local attempt
  for ((attempt = 1; attempt <= ATTEMPTS; attempt++)); do
    if "$@"; then return 0; fi
    say "attempt $attempt of $ATTEMPTS failed: $*"
    sleep "$((PAUSE * attempt))"
  done
  return 1
}

# A file gets its content as a whole, and only where it differs.
put() {
  local path="$ROOT$1" content="$2"
  if [ -e "$path" ] && [ "$(cat "$path")" = "$content" ]; then return 0; fi
  mkdir -p "$(dirname "$path")"
  printf '%s\n' "$content" >"$path.kitae"
  mv "$path.kitae" "$path"
}

limits() {
  put /etc/security/limits.d/99-kitae.conf "* soft nofile 65535
* hard nofile 65535
* soft memlock unlimited
* hard memlock unlimited"
  # Ports where collectives meet must not be handed out to anybody else.
  put /etc/sysctl.d/99-kitae.conf "net.ipv4.ip_local_reserved_ports = 44000,48620"
  sysctl -q -p "$ROOT/etc/sysctl.d/99-kitae.conf"
  # shellcheck disable=SC2016 # it is expanded by the shells that read it
  put /etc/profile.d/kitae.sh 'export PATH="/opt/aws/neuron/bin:$PATH"'
}

neuron_repository() {
  local codename
  # shellcheck disable=SC1091 # it is on the node
  codename="$(. "$ROOT/etc/os-release" && printf '%s' "$VERSION_CODENAME")"
  mkdir -p "$ROOT/usr/share/keyrings"
  again curl -fsSL -o "$ROOT/usr/share/keyrings/neuron.asc" "$APT_HOST/GPG-PUB-KEY-AMAZON-AWS-NEURON.PUB"
  put /etc/apt/sources.list.d/neuron.list "deb [signed-by=/usr/share/keyrings/neuron.asc] $APT_HOST $codename main"
}

neuron_packages() {
  local pin
  export DEBIAN_FRONTEND=noninteractive
  again apt-get -qq update
  again apt-get -qq install -y --allow-downgrades --allow-change-held-packages "linux-headers-$(uname -r)" "$@"
  # Unattended upgrades would take the driver away under a running training.
  for pin in "$@"; do apt-mark -q hold "${pin%%=*}"; done
}

# What the arguments say: SDKs in order, and pins behind the number of their SDK, from 1; 0: of none.
SDKS=()
# shellcheck disable=SC2034 # of the head node
WHEEL=""
# shellcheck disable=SC2034 # of the head node
GUARD=""
# shellcheck disable=SC2034 # of the head node
WATCH=""
APT=()
PIP=()
# shellcheck disable=SC2034 # wheel and guard are the head node's
read_arguments() {
  local word
  for word in "$@"; do
    case "$word" in
      sdk=*) SDKS+=("${word#sdk=}") ;;
      apt=*) APT+=("${#SDKS[@]} ${word#apt=}") ;;
      pip=*) PIP+=("${#SDKS[@]} ${word#pip=}") ;;
      wheel=*) WHEEL="${word#wheel=}" ;;
      guard=*) GUARD="${word#guard=}" ;;
      watch=*) WATCH="${word#watch=}" ;;
      *)
        say "unknown argument: $word"
        return 2
        ;;
    esac
  done
}

# Entries of a list that belong to the SDK of a number (from 1), one a line.
of_sdk() {
  local number="$1" entry
  shift
  for entry in "$@"; do
    if [ "${entry%% *}" = "$number" ]; then printf '%s\n' "${entry#* }"; fi
  done
}
