#!/usr/bin/env bash
# The three days of run.sh without a GPU, within the same limits of time: the `vosti` command itself on a libcuda.so that executes the
# kernels' TTIR on a processor (crates/vosti-cuda/examples/cuda.rs). It shows that the commands, the bundle, the calls to the driver,
# the tables and the archive fit together and end in time. None of its rates is a GPU's.
#
#   bench/gpu/rehearse.sh VOSTI FOLDER [PYTHON]
#
# VOSTI is the binary that the days will use, PYTHON an interpreter that has Triton, if there is one already. FOLDER gets the model
# (SmolLM2's shapes, one layer, a small vocabulary), its two bundles, `out` and `out.tar`. The variables of run.sh that set sizes may be set;
# the defaults here are what a processor can do in time. The exit code is 1 if a step of a day failed.
set -eu
[ $# -ge 2 ] || { echo "usage: $0 VOSTI FOLDER [PYTHON]" >&2; exit 2; }
vosti=$(realpath "$1") folder=$2
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
mkdir -p "$folder"
config=$folder/one-layer.json
python3 - "$root/crates/vosti-model/configs/smollm2-135m.json" "$config" << 'END'
import json
import sys

with open(sys.argv[1]) as file:
    config = json.load(file)
config.update(num_hidden_layers=1, vocab_size=4096, max_position_embeddings=33024)
with open(sys.argv[2], "w") as file:
    json.dump(config, file)
END
(cd "$root" && cargo build --quiet -p vosti -p vosti-cuda --example cuda)

# The environment that `vosti` would make in the user's cache is the given Python, so that nothing is fetched.
export XDG_CACHE_HOME
XDG_CACHE_HOME=$(realpath "$folder")/cache
if [ $# -gt 2 ]; then
    triton=$(grep -o 'triton==[0-9.]*' "$root/xtask/requirements.txt")
    tool=$XDG_CACHE_HOME/vosti/tools/$triton
    mkdir -p "$tool/bin"
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$(realpath -s "$3")" > "$tool/bin/python"
    chmod +x "$tool/bin/python"
    printf %s "$triton" > "$tool/installed.txt"
fi
made() {
    [ -e "$folder/$1" ] || "$vosti" prepare "$config" --target cuda-sm90 --context 33024 --copies "$2" -o "$folder/$1"
}
made bundle descriptors
made threads threads

target=$(cd "$root" && realpath -m "${CARGO_TARGET_DIR:-target}")
export THREADS=$folder/threads STAND_IN=$folder/bundle:$folder/threads LD_LIBRARY_PATH=$target/debug/examples
export PREFILL=${PREFILL:-128} DECODE=${DECODE:-8} BATCH=${BATCH:-2} DEPTHS=${DEPTHS:-0,1100} SAMPLED=${SAMPLED:-2,4}
export TRACE=${TRACE:-2,2,96,64,4,8,0} PROFILE=${PROFILE:-quick}
failed=0
for day in 1 2 3; do
    start=$SECONDS code=0
    DAY=$day "$here/run.sh" "$vosti" "$folder/bundle" "$config" "$folder/out" || code=$?
    echo "day $day: exit code $code, $((SECONDS - start)) s" | tee -a "$folder/days.txt"
    [ $code -eq 0 ] || failed=1
done

# Without a bundle the command takes the kernels that `prepare` kept, and has the bundle's fingerprint.
fingerprint() {
    "$vosti" bench --device cuda --model "$config" "$@" --context 33024 --prefill 64 --decode 4 --batch 1 --depth 0 --repeat 1 \
        --json 2>> "$folder/without.log" | grep '"fingerprint"' || true
}
with=$(fingerprint --bundle "$folder/bundle") without=$(fingerprint)
if [ -z "$with" ] || [ "$with" != "$without" ] || grep -q compiling "$folder/without.log"; then
    echo "with the bundle $with, without it $without: $folder/without.log" >&2
    failed=1
fi
exit $failed
