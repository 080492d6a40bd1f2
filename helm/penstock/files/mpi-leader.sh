# Rank 0 of an engine on several nodes: mpirun starts the ranks of all of them, over ssh.
# bash -c THIS leader RANKS "VARIABLES FOR ALL RANKS" COMMAND...
# The kubelet reads this first: of two dollar signs it leaves one, and it fills in variables that
# stand in round brackets.
set -euo pipefail
trap 'exit 143' TERM # as process 1 a shell ignores it otherwise
ranks=$1 variables=$2
shift 2

# ssh refuses a key that others can read, and the mounted one can be read by all.
home=$(mktemp -d)
install -m 600 /ssh-pk/private.key "$home/key"

# Workers are called as the leader, with -1 and so on behind. Images take their time, so nothing but
# the startup probe ends the waiting.
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

# Runs on rank 0 alone and leaves its process id. A file: trtllm-llmapi-launch splits at spaces.
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

# mpirun would kill at once what it started. Dynamo's worker is told instead: it leaves discovery
# and finishes what it has.
trap 'kill -TERM "$(cat "$home/pid" 2>/dev/null || echo "$mpirun")" || true' TERM
status=0
wait "$mpirun" || status=$?
while kill -0 "$mpirun" 2>/dev/null; do # a signal ends the wait, not mpirun
  status=0
  wait "$mpirun" || status=$?
done
exit "$status"
