# The head node: environments on the disk that all nodes see. It has no accelerator, so it gets no driver.

SHARED="$ROOT/home/kitae"
PIP_HOST=https://pip.repos.neuron.amazonaws.com

environment() {
  local folder="$1"
  shift
  local python="$folder/bin/python"
  rm -rf "$folder"
  again python3 -m venv "$folder"
  again "$python" -m pip install --quiet --upgrade pip
  again "$python" -m pip install --quiet --extra-index-url "$PIP_HOST" "$@"
}

# One environment for each SDK, or a plain one where there is none: the SDK's packages, and kitae.
environments() {
  local number name pins
  mkdir -p "$SHARED"
  for ((number = ${#SDKS[@]} > 0; number <= ${#SDKS[@]}; number++)); do
    name="plain"
    if [ "$number" -gt 0 ]; then name="${SDKS[number - 1]}"; fi
    mapfile -t pins < <(of_sdk "$number" "${PIP[@]}")
    if [ -n "$WHEEL" ]; then pins+=("$ROOT/var/lib/kitae/$(basename "$WHEEL")"); fi
    if [ "${#pins[@]}" -gt 0 ]; then
      once "environment-$name" "${pins[*]}" environment "$SHARED/env-$name" "${pins[@]}"
    fi
  done
}

fetch_wheel() { again aws s3 cp --only-show-errors "$WHEEL" "$ROOT/var/lib/kitae/$(basename "$WHEEL")"; }

fetch_guard() { again aws s3 cp --only-show-errors "$GUARD" "$ROOT/var/lib/kitae/guard.py"; }

# A look every minute; the next begins only when the last is over. Slurm's commands are not in systemd's path.
guard() {
  put /etc/systemd/system/kitae-guard.service "[Unit]
Description=Ends machines of jobs that bill and do not come
[Service]
Type=oneshot
TimeoutStartSec=300
Environment=PATH=/opt/slurm/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
ExecStart=/usr/bin/python3 /var/lib/kitae/guard.py $WATCH"
  put /etc/systemd/system/kitae-guard.timer "[Unit]
Description=Ends machines of jobs that bill and do not come, every minute
[Timer]
OnBootSec=60
OnUnitInactiveSec=60
[Install]
WantedBy=timers.target"
  systemctl daemon-reload
  systemctl enable --now kitae-guard.timer
}

read_arguments "$@"
limits
# Before all that takes long and may fail: machines come as soon as this script is over, or sooner.
if [ -n "$GUARD" ]; then
  once guard "$GUARD" fetch_guard
  guard
fi
once venv-package python3-venv again apt-get -qq install -y python3-venv
if [ -n "$WHEEL" ]; then once wheel "$WHEEL" fetch_wheel; fi
environments
say "head node: done"
