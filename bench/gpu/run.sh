#!/usr/bin/env bash
# All measurements and checks of Vosti on a GPU, in one run or in several, as JSON and as tables.
#
#   bench/gpu/run.sh VOSTI BUNDLE MODEL OUT
#
# VOSTI is the release binary, BUNDLE what `vosti prepare MODEL --target cuda-... --context 33024 -o BUNDLE` wrote (on any
# machine; the context is the bundle's), MODEL a config.json alone (random weights are made on the GPU) or a
# model's file or folder, OUT a folder. Nothing else is needed; python3 with torch is used for comparisons where it is there,
# plain python3 writes the tables. VLLM may name a folder with files of vLLM's wheel, whose kernels are then compared too
# (vllm_kernels.py says which files).
#
# THREADS may name a bundle of the same model that was made with `--copies threads`: then the step copies measures prefill with both.
#
# Steps are bench torch copies sampling agentic probe fp64 laws check, and run in this order or in that of STEPS; ROUNDS runs bench,
# torch and copies so often in turn, a file each (OUT/bench-1.json). LIMIT is the seconds that each step may take: then it is asked to stop,
# keeps what it has found until then, and the next one runs. TOTAL is the seconds of the whole command: a step gets what is left of
# them; if none are left it does not run, and the tables say so. Several runs may share one OUT. ONLY="batch,chunk" are check's
# relations; its result is then OUT/check-batch-chunk.json. A step that fails is recorded and the next one runs. After each step
# OUT/tables.md has the tables of everything in OUT, and OUT.tar all of OUT. The exit code is 1 if any step of this run failed.
#
# DAY=1, DAY=2 and DAY=3 are three commands of at most nine minutes each, each useful alone: is it right and how fast (probe of 64
# cases, fp64, laws, bench with the time of each kernel); Vosti and its peers in turn; sampling, agents and the suite's first relations.
# They set LIMIT, so that no step takes all of the time.
#
# Variables that set sizes, for a quick look: CASES PROFILE MAX_PROMPT PREFILL DECODE BATCH DEPTHS REPEAT TRACE SAMPLED (the batches of
# sampling). DEVICE=cpu tries the script itself.
set -u
[ $# -eq 4 ] || { echo "usage: $0 VOSTI BUNDLE MODEL OUT" >&2; exit 2; }
vosti=$1 bundle=$2 model=$3 out=${4%/}
here=$(cd "$(dirname "$0")" && pwd)
device=${DEVICE:-cuda}
case ${DAY:-} in
    "") ;;
    1) : "${STEPS:=probe fp64 laws bench}" "${CASES:=64}" "${REPEAT:=3}" "${LIMIT:=200}" "${TOTAL:=540}" ;;
    2) : "${STEPS:=bench torch copies}" "${ROUNDS:=3}" "${REPEAT:=1}" "${LIMIT:=120}" "${TOTAL:=540}" ;;
    3) : "${STEPS:=sampling agentic check}" "${REPEAT:=3}" "${ONLY:=batch,chunk}" "${LIMIT:=300}" "${TOTAL:=540}" ;;
    *) echo "DAY is 1, 2 or 3" >&2; exit 2 ;;
esac
steps=${STEPS:-bench torch copies sampling agentic probe fp64 laws check}
for name in $steps; do
    case $name in
        bench | torch | copies | sampling | agentic | probe | fp64 | laws | check) ;;
        *) echo "STEPS: there is no step $name; there are bench torch copies sampling agentic probe fp64 laws check" >&2; exit 2 ;;
    esac
done
mkdir -p "$out" || exit 2

where=(--device "$device" --model "$model")
[ "$device" = cuda ] && where+=(--bundle "$bundle")
failed=0
touch "$out/steps.txt"

wanted() { [[ " $steps " == *" $1 "* ]]; }

# note NAME CODE SECONDS: sets the step's line in OUT/steps.txt, in place of an older one.
note() {
    grep -v "^$1 " "$out/steps.txt" > "$out/steps.new"
    echo "$1 $2 $3" >> "$out/steps.new"
    mv "$out/steps.new" "$out/steps.txt"
}

# step NAME COMMAND...: runs the command; its standard output is OUT/NAME.json, its standard error OUT/NAME.log.
step() {
    local name=$1 start=$SECONDS within=() limit=${LIMIT:-}
    shift
    if [ -n "${TOTAL:-}" ]; then
        # Ten seconds are for the tables and the archive, ten for a step that does not stop when it is asked to.
        local left=$((TOTAL - SECONDS - 20))
        if [ $left -lt 5 ]; then
            echo "== $name: no time is left of $TOTAL s"
            note "$name" "no-time" 0
            failed=1
            return
        fi
        { [ -z "$limit" ] || [ "$limit" -gt $left ]; } && limit=$left
    fi
    [ -n "$limit" ] && within=(timeout -k 10 "$limit")
    echo "== $name: $*"
    # Written first: should this script itself be stopped, OUT/steps.txt shows that the step began.
    note "$name" stopped "$start"
    "${within[@]}" "$@" > "$out/$name.json" 2> "$out/$name.log"
    local code=$?
    [ -n "$limit" ] && [ $code -eq 124 ] && echo "it was stopped after $limit s: give LIMIT more, or the step less" >> "$out/$name.log"
    note "$name" $code $((SECONDS - start))
    # The last line says why; a check that found something, and work that was stopped, have their JSON all the same.
    [ $code -eq 0 ] || failed=1
    [ $code -eq 0 ] || echo "   failed ($code): $(tail -n 1 "$out/$name.log")"
    keep
}

# Writes the tables and the archive, each whole or not at all: this script may be stopped too.
keep() {
    python3 "$here/table.py" "$out" > "$out/tables.new" && mv "$out/tables.new" "$out/tables.md"
    tar -cf "$out.tar.new" --exclude launches --exclude '*.new' -C "$(dirname "$out")" "$(basename "$out")" && mv "$out.tar.new" "$out.tar" ||
        echo "== $out.tar could not be written"
}

{
    date -u +"date %F"
    "$vosti" --version
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader 2> /dev/null
} > "$out/machine.txt"

bench() {
    # The time of each kernel, once.
    local more=()
    [ -z "$turn" ] && more=(--profile)
    step "bench$turn" "$vosti" bench "${where[@]}" --prefill "${PREFILL:-2048}" --decode "${DECODE:-128}" --batch "${BATCH:-4}" \
        --depth "${DEPTHS:-0,4096,8192,12288,16384}" --repeat "${REPEAT:-5}" "${more[@]}" --json
}

torch() {
    local config=$model
    [ -d "$model" ] && config=$model/config.json
    if [[ $config != *.json ]] || [ ! -f "$config" ]; then
        echo "== torch: $model has no config.json: not compared"
        return
    fi
    local on=(--device "$device")
    if [ "$device" = cuda ] && ! python3 -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
        echo "== torch: python3 has no torch with CUDA: not compared"
        return
    elif ! python3 -c 'import torch' 2> /dev/null; then
        echo "== torch: python3 has no torch: not compared"
        return
    fi
    local peer=(python3 "$here/torch_peer.py" --config "$config" "${on[@]}")
    local sizes=(--prefill "${PREFILL:-2048}" --decode "${DECODE:-128}" --batch "${BATCH:-4}"
        --depth "${DEPTHS:-0,4096,8192,12288,16384}" --repeat "${REPEAT:-5}")
    [ -n "${VLLM:-}" ] && sizes+=(--vllm "$VLLM")
    step "torch$turn" "${peer[@]}" "${sizes[@]}"
    step "invariant$turn" "${peer[@]}" "${sizes[@]}" --mode invariant
    if [ -n "${VLLM:-}" ] && [ "$device" = cuda ]; then
        step "triton$turn" "${peer[@]}" "${sizes[@]}" --mode triton
    else
        echo "== triton: VLLM names no folder with files of its wheel (bench/gpu/vllm_kernels.py): not compared"
    fi
}

# Prefill with large products' tiles copied by descriptor and by threads, one after the other, with the time of each kernel.
copies() {
    if [ -z "${THREADS:-}" ] || [ "$device" != cuda ]; then
        echo "== copies: THREADS names no bundle that was made with --copies threads: not compared"
        return
    fi
    local shape=(--prefill "${PREFILL:-2048}" --decode 0 --depth 0 --repeat "${REPEAT:-5}" --profile --json)
    step "descriptors$turn" "$vosti" bench "${where[@]}" "${shape[@]}"
    step "threads$turn" "$vosti" bench --device "$device" --model "$model" --bundle "$THREADS" "${shape[@]}"
}

# As many tokens greedily, from lists of the largest logits, drawn by the device, and from whole rows on the host.
sampling() {
    local shape=(--prefill 0 --decode "${DECODE:-128}" --batch "${SAMPLED:-4,64}" --depth 0 --repeat "${REPEAT:-5}" --json)
    step greedy "$vosti" bench "${where[@]}" "${shape[@]}"
    step top_k "$vosti" bench "${where[@]}" "${shape[@]}" --temperature 1 --top-k 40
    step drawn "$vosti" bench "${where[@]}" "${shape[@]}" --temperature 1
    # No list has so many.
    step whole_rows "$vosti" bench "${where[@]}" "${shape[@]}" --temperature 1 --top-k 65
}

agentic() {
    step agentic "$vosti" bench "${where[@]}" --agentic "${TRACE:-4,6,16384,8192,256,768,0.5}" --json
}

probe() {
    local dump=()
    wanted fp64 && dump=(--dump "$out/launches")
    step probe "$vosti" probe "${where[@]}" --cases "${CASES:-4096}" "${dump[@]}" --json
}

# Compares the launches that the probe of the same run wrote.
fp64() {
    if [ -z "$(ls "$out/launches" 2> /dev/null)" ]; then
        echo "== fp64: there are no launches: it needs the step probe in the same run"
    elif python3 -c 'import numpy' 2> /dev/null; then
        step fp64 python3 "$here/fp64.py" "$out/launches"
    else
        echo "== fp64: python3 has no numpy: not compared"
    fi
    rm -rf "$out/launches" # as large as the weights of a layer and the lm head
}

laws() {
    step laws "$vosti" laws "${where[@]}" --json
}

check() {
    local some=() name=check
    [ -n "${MAX_PROMPT:-}" ] && some=(--max-prompt "$MAX_PROMPT")
    [ -n "${ONLY:-}" ] && some+=(--only "$ONLY") name=check-${ONLY//,/-}
    step "$name" "$vosti" check "${where[@]}" --profile "${PROFILE:-paper}" "${some[@]}" --json -
}

# In the order in which they were asked for.
for round in $(seq "${ROUNDS:-1}"); do
    turn=
    [ "${ROUNDS:-1}" -gt 1 ] && turn=-$round
    for name in $steps; do
        case $name in
            bench | torch | copies) "$name" ;;
            *) [ "$round" -eq 1 ] && "$name" ;;
        esac
    done
done
keep
cat "$out/tables.md"
exit $failed
