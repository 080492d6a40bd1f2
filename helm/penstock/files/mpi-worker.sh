# Worker of an engine on several nodes: sshd, through which the leader's mpirun starts ranks here.
set -euo pipefail
keys=$(mktemp -d)
ssh-keygen -q -t ed25519 -N '' -f "$keys/host"
# As root, sshd needs this directory.
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd

# Sessions get the paths of this container, for orted and its libraries. mpirun sends the rest.
exec /usr/sbin/sshd -D -e -f /dev/null -p 2222 -h "$keys/host" -o PidFile=none -o StrictModes=no \
  -o PasswordAuthentication=no -o AuthorizedKeysFile=/ssh-pk/private.key.pub \
  -o "SetEnv=PATH=$PATH LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}"
