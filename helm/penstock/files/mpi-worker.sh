# Another node of an engine on several: sshd, by which the leader's mpirun starts its ranks here.
set -euo pipefail
keys=$(mktemp -d)
ssh-keygen -q -t ed25519 -N '' -f "$keys/host"
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd # as root sshd wants it

# Sessions get this container's paths, where orted and its libraries are; mpirun sends the rest.
exec /usr/sbin/sshd -D -e -f /dev/null -p 2222 -h "$keys/host" -o PidFile=none -o StrictModes=no \
  -o PasswordAuthentication=no -o AuthorizedKeysFile=/ssh-pk/private.key.pub \
  -o "SetEnv=PATH=$PATH LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}"
