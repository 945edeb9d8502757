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

read_arguments "$@"
limits
once venv-package python3-venv again apt-get -qq install -y python3-venv
if [ -n "$WHEEL" ]; then once wheel "$WHEEL" fetch_wheel; fi
environments
say "head node: done"
