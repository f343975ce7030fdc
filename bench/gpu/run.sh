#!/usr/bin/env bash
# Everything that a GPU has to say of Vosti, in one run, as JSON and as tables.
#
#   bench/gpu/run.sh VOSTI BUNDLE MODEL OUT
#
# VOSTI is the release binary, BUNDLE what `vosti prepare MODEL --target cuda-... -o BUNDLE` wrote (on any machine), MODEL a
# config.json alone (random weights are made on the host and uploaded) or a model's file or folder, OUT a new folder.
# Nothing else is needed; python3 with torch is used for comparisons where it is there, plain python3 for the tables. VLLM may
# name a folder with files of vLLM's wheel, whose kernels are then compared too (vllm_kernels.py says which files).
# A step that fails is written down and the next one runs. The exit code is 1 if any failed.
#
# Sizes, for a quick look: CASES PROFILE MAX_PROMPT PREFILL DECODE BATCH DEPTHS REPEAT TRACE. DEVICE=cpu tries the script itself.
set -u
[ $# -eq 4 ] || { echo "usage: $0 VOSTI BUNDLE MODEL OUT" >&2; exit 2; }
vosti=$1 bundle=$2 model=$3 out=$4
here=$(cd "$(dirname "$0")" && pwd)
device=${DEVICE:-cuda}
mkdir -p "$out" || exit 2

where=(--device "$device" --model "$model")
[ "$device" = cuda ] && where+=(--bundle "$bundle")
failed=0
: > "$out/steps.txt"

# step NAME COMMAND...: its standard output is OUT/NAME.json, what it says OUT/NAME.log.
step() {
    local name=$1 start=$SECONDS
    shift
    echo "== $name: $*"
    "$@" > "$out/$name.json" 2> "$out/$name.log"
    local code=$?
    echo "$name $code $((SECONDS - start))" >> "$out/steps.txt"
    [ $code -eq 0 ] && return
    failed=1
    # The last line says why; a check that found something has its JSON all the same.
    echo "   failed ($code): $(tail -n 1 "$out/$name.log")"
}

{
    date -u +"date %F"
    "$vosti" --version
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader 2> /dev/null
} > "$out/machine.txt"

step probe "$vosti" probe "${where[@]}" --cases "${CASES:-4096}" --dump "$out/launches" --json
if [ -n "$(ls "$out/launches" 2> /dev/null)" ]; then
    if python3 -c 'import numpy' 2> /dev/null; then
        step fp64 python3 "$here/fp64.py" "$out/launches"
    else
        echo "== fp64: python3 has no numpy: not compared"
    fi
    rm -r "$out/launches" # as large as the weights of a layer and the lm head
fi
limit=()
[ -n "${MAX_PROMPT:-}" ] && limit=(--max-prompt "$MAX_PROMPT")
step check "$vosti" check "${where[@]}" --profile "${PROFILE:-paper}" "${limit[@]}" --json -
step bench "$vosti" bench "${where[@]}" --prefill "${PREFILL:-2048}" --decode "${DECODE:-128}" --batch "${BATCH:-4}" \
    --depth "${DEPTHS:-0,4096,8192,12288,16384}" --repeat "${REPEAT:-5}" --json
step agentic "$vosti" bench "${where[@]}" --agentic "${TRACE:-4,6,16384,8192,256,768,0.5}" --json
if python3 -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
    peer=(python3 "$here/torch_peer.py" --config "$model" --prefill "${PREFILL:-2048}" --decode "${DECODE:-128}"
        --batch "${BATCH:-4}" --depth "${DEPTHS:-0,4096,8192,12288,16384}" --repeat "${REPEAT:-5}")
    step torch "${peer[@]}"
    step no_split_k "${peer[@]}" --products no-split-k
    if [ -n "${VLLM:-}" ]; then
        step vllm "${peer[@]}" --vllm "$VLLM"
    else
        echo "== vllm: VLLM names no folder with files of its wheel (bench/gpu/vllm_kernels.py): not compared"
    fi
else
    echo "== torch: python3 has no torch with CUDA: not compared"
fi
python3 "$here/table.py" "$out" > "$out/tables.md" && cat "$out/tables.md"
exit $failed
