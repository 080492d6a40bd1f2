# Leader of an engine on several nodes: mpirun starts the ranks of all nodes over SSH.
# bash -c THIS leader RANKS "VARIABLES FOR ALL RANKS" COMMAND...
# The kubelet expands this first: it replaces two dollar signs by one, and variables in parentheses
# by their values.
set -euo pipefail
# A shell that is process 1 ignores the signal by default.
trap 'exit 143' TERM
ranks=$1 variables=$2
shift 2

# ssh rejects a key that others can read, and the mounted key is readable by all.
home=$(mktemp -d)
install -m 600 /ssh-pk/private.key "$home/key"

# A worker has the name of the leader with the suffix -1, -2 and so on. Pulling images takes time,
# so only the startup probe ends the wait.
hosts=$LWS_LEADER_ADDRESS
for index in $(seq $((LWS_GROUP_SIZE - 1))); do
  worker=${LWS_LEADER_ADDRESS/./-$index.}
  until (: <"/dev/tcp/$worker/2222") 2>/dev/null; do
    echo "waiting for sshd on $worker"
    sleep 2
  done
  hosts+=,$worker
done

exported=()
for name in $variables; do
  [ -z "${!name+set}" ] || exported+=(-x "$name")
done

# Runs on rank 0 only, and writes its process ID. A file, as trtllm-llmapi-launch splits at spaces.
cat >"$home/main" <<END
#!/bin/bash
echo \$BASHPID >"$home/pid"
exec "\$@"
END
chmod +x "$home/main"

ssh="-p 2222 -i $home/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
mpirun --allow-run-as-root --oversubscribe -n "$ranks" -H "$hosts" --mca pml ob1 \
  --mca plm_rsh_args "$ssh" "${exported[@]}" trtllm-llmapi-launch "$home/main" "$@" &
mpirun=$!

# mpirun would kill its processes at once. Instead Dynamo's worker gets the signal: it leaves
# discovery and finishes its requests.
trap 'kill -TERM "$(cat "$home/pid" 2>/dev/null || echo "$mpirun")" || true' TERM
status=0
wait "$mpirun" || status=$?
# A signal ends the wait, not mpirun.
while kill -0 "$mpirun" 2>/dev/null; do
  status=0
  wait "$mpirun" || status=$?
done
exit "$status"
