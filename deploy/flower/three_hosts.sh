#!/bin/sh
# Three hosts on one machine: network namespaces joined by veth, the server in one, a client in each of two others, with
# TLS and authenticated nodes. The second client's cable is pulled in the middle and put back. Needs root and iproute2.
#   sh deploy/flower/three_hosts.sh [FOLDER]      PATH: that of the environment with requirements/flower.txt
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$(mktemp -d)}
rounds=${ROUNDS:-8}
export PYTHONPATH="${here%/deploy/flower}" FLWR_HOME="$folder/flower" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.1
flags="--task lc-biid-digits --num-clients 2 --num-rounds $rounds --arch ${ARCH:-alexnet} --lr 5e-3 --threads-per-worker 1"
mkdir -p "$folder/flower"
cd "$folder"

clean_up() {
    for host in server one two; do
        for process in $(ip netns pids "fm-$host" 2>/dev/null); do kill -9 "$process" 2>/dev/null || true; done
        ip netns del "fm-$host" 2>/dev/null || true
    done
}
trap clean_up EXIT
trap 'exit 1' INT TERM

on() {  # a command on a host
    at=$1
    shift
    ip netns exec "fm-$at" "$@"
}
say() { echo "[$(date +%T)] $*"; }

clean_up
for host in server one two; do
    ip netns add "fm-$host"
    on "$host" ip link set lo up
done
on server ip address add 10.77.0.1/32 dev lo
number=0
for host in one two; do
    number=$((number + 1))
    ip link add "to-$host" netns fm-server type veth peer name eth0 netns "fm-$host"
    on server ip address add "10.77.$number.1/24" dev "to-$host"
    on server ip link set "to-$host" up
    on "$host" ip address add "10.77.$number.2/24" dev eth0
    on "$host" ip link set eth0 up
    on "$host" ip route add 10.77.0.1 via "10.77.$number.1"
done
say "Three hosts: server 10.77.0.1, one 10.77.1.2, two 10.77.2.2"

sh "$here/keys.sh" keys 10.77.0.1 one two
# shellcheck disable=SC2086
python -m fedmatch_tf gen_data $flags --quiet >gen_data.log 2>&1
client=0
for host in one two; do
    mkdir -p "$host"
    cp datasets/lc-biid-digits/manifest.json datasets/lc-biid-digits/valid_* datasets/lc-biid-digits/[su]_*_$client.npy "$host"
    client=$((client + 1))
done
rm datasets/lc-biid-digits/[su]_*.npy # the server does not have them
say "The server has $(ls datasets/lc-biid-digits | wc -l) files, one and two have $(ls one | wc -l) each"

on server flower-superlink --host 10.77.0.1 --port 8000 --ssl-ca-certfile keys/ca.crt --ssl-certfile keys/server.pem \
    --ssl-keyfile keys/server.key --enable-supernode-auth --disable-runtime-dependency-installation >link.log 2>&1 &
printf '[superlink]\ndefault = "here"\n[superlink.here]\naddress = "10.77.0.1:8000"\nroot-certificates = "%s"\n' \
    "$folder/keys/ca.crt" >flower/config.toml
until grep -qs "Uvicorn running" link.log; do sleep 0.5; done
for host in one two; do
    on server flwr supernode register "keys/$host.pub" >>register.log 2>&1
    on "$host" flower-supernode --superlink 10.77.0.1:8000 --root-certificates keys/ca.crt \
        --auth-supernode-private-key "keys/$host.key" --node-config "partition=\"$folder/$host\"" >"$host.log" 2>&1 &
done
on server flwr run "$here" --run-config "flags=\"$flags\" min-clients=1 join-time=300" >run.log 2>&1
say "The run has begun"

records() { cat outputs/logs/*/rounds.jsonl 2>/dev/null || true; }
done_rounds() { records | wc -l; }
shown=0
show() {  # what the record has of the rounds that are new
    records | python -c '
import json, sys
for line in list(sys.stdin)[int(sys.argv[1]):]:
    r = json.loads(line)
    print("           round %d: clients %s, test accuracy %.2f, %.0f s, left out: %s" % (
        r["round"] + 1, r["clients"], r["test_acc"], r["seconds"], r["hosts"]["left_out"] or "nobody"))' "$shown"
    shown=$(done_rounds)
}
until [ "$(done_rounds)" -ge 2 ]; do sleep 1; done
on two ip link set eth0 down
show
say "The cable of two is pulled"
until records | grep -q '"left_out": {"1"'; do sleep 1; done
on two ip link set eth0 up
on two ip route replace 10.77.0.1 via 10.77.2.1
show
say "It is back"
until ls outputs/logs/*/confusion.json >/dev/null 2>&1; do
    sleep 1
    [ "$(done_rounds)" -le "$shown" ] || show
done
say "The end: $folder/$(echo outputs/logs/*)"
