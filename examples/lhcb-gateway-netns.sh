#!/usr/bin/env bash
# LHCb's gateway (Gaidioz et al., IEEE TNS 53 (2006) 1046) on hosts of its own: sources, gateway and farm are network
# namespaces of this machine, joined by a bridge. Packets are directly in IP, as in the paper. At the end the accounts of all
# three are compared, and the run files are verified.
#
#   examples/lhcb-gateway-netns.sh [sockets|rings|af_xdp]... [SECONDS]      as root; all three ways, 5 s each, by default
#
#     sources 10.88.0.1 ----+                          sockets   raw IP sockets, recvmmsg and sendmmsg
#   126 + 323 addresses     |                          rings     a ring that the kernel fills, a ring of frames to send
#                        bridge ---- 10.88.0.2 gateway af_xdp    the card's own queue, both ways
#     farm    10.88.0.3 ----+
#
# The program is $ROPEWALK, or target/release/ropewalk. It removes everything at the end, also after Ctrl-C.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ways=() seconds=5
for word in "$@"; do
    case $word in
        sockets | rings | af_xdp) ways+=("$word") ;;
        *[!0-9]* | '') echo "usage: $0 [sockets|rings|af_xdp]... [SECONDS]" >&2; exit 2 ;;
        *) seconds=$word ;;
    esac
done
[ ${#ways[@]} -gt 0 ] || ways=(sockets rings af_xdp)
ropewalk=$(realpath "${ROPEWALK:-target/release/ropewalk}")
[ -x "$ropewalk" ] || { echo "$ropewalk is not there: cargo build --release, or say where with ROPEWALK" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "network namespaces are for root" >&2; exit 2; }

# ---- hosts ---------------------------------------------------------------------------------------------------------

scratch=$(mktemp -d)
hosts=(switch sources gateway farm)
host() { echo "ropewalk-$$-$1"; }
processes=()

tidy_up() {
    trap '' INT TERM
    { for process in "${processes[@]}"; do kill -KILL "$process" || true; done; wait; } 2>/dev/null
    for name in "${hosts[@]}"; do ip netns delete "$(host "$name")" 2>/dev/null || true; done
    rm -rf "$scratch"
}
trap tidy_up EXIT
trap 'exit 130' INT TERM

for name in "${hosts[@]}"; do ip netns add "$(host "$name")"; done
ip -n "$(host switch)" link add bridge type bridge
ip -n "$(host switch)" link set bridge up
plug_in() {
    ip -n "$(host switch)" link add "$1" type veth peer name eth0 netns "$(host "$1")"
    ip -n "$(host switch)" link set "$1" master bridge up
    ip -n "$(host "$1")" link set lo up
    ip -n "$(host "$1")" address add "$2/16" dev eth0
    ip -n "$(host "$1")" link set eth0 up
}
plug_in sources 10.88.0.1
plug_in gateway 10.88.0.2
plug_in farm 10.88.0.3
# A veth port with an XDP program holds 256 frames and drops the next one. With a queueing discipline the switch waits
# instead (since Linux 6.16), like a switch with flow control.
tc -n "$(host switch)" qdisc add dev gateway root pfifo limit 10000
# All of these are the sources' host.
ip -n "$(host sources)" route add local 10.88.1.0/24 dev lo
ip -n "$(host sources)" route add local 10.88.2.0/23 dev lo

# ---- runs ----------------------------------------------------------------------------------------------------------

configuration() {
    local receive send
    case $1 in
        sockets) receive=recvmmsg send=sendmmsg ;;
        rings) receive=tpacket send=tx_ring ;;
        af_xdp) receive=af_xdp send=af_xdp ;;
    esac
    cat <<EOF
version = 1

[[flow]]
name = "l1"
packing = 25
protocol = 253
sources = { count = 126, first = 0, address = "10.88.1.1" }
timeout = "500ms"
sets = 1024
assembling = 256
output = "stream"
decision_timeout = "5s"
default_decision = "accept"
budget = "20ms"
emulate = { fragment_size = "32", rate = "poisson(4kHz)" }

[[flow]]
name = "hlt"
packing = 10
protocol = 252
sources = { count = 323, first = 1000, address = "10.88.2.1" }
timeout = "500ms"
decision_timeout = "5s"
emulate = { fragment_size = "100", rate = "poisson(200Hz)" }

[[gateway]]
name = "gw0"
listen = { l1 = "10.88.0.2:0", hlt = "10.88.0.2:0" }
control = "10.88.0.2:9700"
interface = "eth0"
receive = "$receive"
send = "$send"

[trigger]
listen = { l1 = "10.88.0.1:9711", hlt = "10.88.0.1:9712" }

[farm]
nodes = 2
address = "10.88.0.3:9720"
emulate = { decision_time = "exponential(1ms)", accept = 0.05 }
EOF
}

# Starts the program on a host, and writes its account into a file.
start() {
    local where=$1
    shift
    ip netns exec "$(host "$where")" "$ropewalk" "$@" --json >"$scratch/$where.json" 2>"$scratch/$where.log" &
    processes+=($!)
}

# Waits for a process; prints its last lines if it failed.
finish() {
    wait "$2" && return
    echo "$1 ended with status $?:" >&2
    tail -5 "$scratch/$1.log" >&2
    echo "frames that the switch dropped:" >&2
    ip -n "$(host switch)" -s -json link | python3 -c 'import json, sys
for port in json.load(sys.stdin): print(" ", port["ifname"], port["stats64"]["tx"]["dropped"])' >&2
    return 1
}

run() {
    local way=$1 gateway farm sources output=$scratch/$1
    configuration "$way" >"$scratch/$way.toml"
    start gateway node gateway "$scratch/$way.toml" --name gw0 --output "$output"
    gateway=$!
    start farm farm-node "$scratch/$way.toml"
    farm=$!
    start sources source mep "$scratch/$way.toml" --duration "${seconds}s"
    sources=$!
    finish sources $sources
    kill -INT $gateway && finish gateway $gateway
    kill -INT $farm && finish farm $farm
    processes=()
    # Status 3: the rejected events are missing.
    "$ropewalk" verify "$output"/run* --json >"$scratch/verify.json" || [ $? = 3 ]
    python3 - "$way" "$scratch" <<'EOF'
import json, sys

way, scratch = sys.argv[1:]
last_line = lambda name: json.loads(open(f"{scratch}/{name}.json").read().splitlines()[-1])
sources, gateway, files = last_line("sources"), last_line("gateway"), last_line("verify")
assert gateway["ledger"]["balanced"], gateway["ledger"]
for name, flow in gateway["flows"].items():
    sent, received = sources["flows"][name]["sent"], flow["packets"]["received"]
    assert sent["packets"] > 0 and received == sent["packets"], f"{name}: {received} of {sent['packets']} packets came"
    events = flow["events"]
    assert events["built"] == sent["events"] == events["accepted"] + events["rejected"], f"{name}: {events}"
# Some decisions are sent after the sources have ended.
decided = sources["flows"]["l1"]["sent"]
assert decided["decisions_missed"] == 0 < decided["decisions_in_order"] <= gateway["flows"]["l1"]["farm"]["streamed"]
assert files["events"] == gateway["events"]["written"] > 0 and files["incomplete"] == 0, files
decisions = sum(flow["farm"]["decided"] for flow in gateway["flows"].values())
packets = sum(flow["packets"]["received"] for flow in gateway["flows"].values())
print(f"{way}: {packets} packets, {decisions} "
      f"decisions, {gateway['events']['written']} events in files; all accounts agree")
EOF
}

for way in "${ways[@]}"; do run "$way"; done
