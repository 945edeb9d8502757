# A node of a queue: driver and runtime, a cache of compiled graphs on its own disk, and its own name.

# With several network interfaces the name of a node may point at any of them, or at the address of an older node
# of this name; trainings meet by name, so it has to be that of the first interface.
hosts() {
  local token address name rest
  token="$(again curl -fsS -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' http://169.254.169.254/latest/api/token)"
  address="$(again curl -fsS -H "X-aws-ec2-metadata-token: $token" http://169.254.169.254/latest/meta-data/local-ipv4)"
  name="$(hostname -s)"
  rest="$(grep -vE "[[:space:]]$name([[:space:].]|$)" "$ROOT/etc/hosts" || true)"
  put /etc/hosts "$rest
$address $name"
}

# This cache's locks break on shared file systems, so each host has its own.
compile_cache() {
  local disk="$ROOT/local_storage"
  if [ ! -d "$disk" ]; then disk="$ROOT/var/tmp"; fi
  mkdir -p "$disk/kitae/compiled"
  chmod 1777 "$disk/kitae" "$disk/kitae/compiled"
  put /etc/profile.d/kitae-cache.sh "export NEURON_COMPILE_CACHE_URL=\"\${NEURON_COMPILE_CACHE_URL:-${disk#"$ROOT"}/kitae/compiled}\""
}

packages() {
  local pins
  if [ "${#SDKS[@]}" -eq 0 ]; then return 0; fi
  mapfile -t pins < <(of_sdk 1 "${APT[@]}")
  once neuron-repository "$APT_HOST" neuron_repository
  once neuron-packages "${pins[*]}" neuron_packages "${pins[@]}"
}

read_arguments "$@"
limits
hosts
compile_cache
packages
say "node: done"
