#!/usr/bin/env bash
# guidellm, a load generator from PyPI, against a running server; prints its tables.
#
#   bench/server/guidellm.sh http://127.0.0.1:8000
#
# CLIENTS (1,8,32) is how many requests it keeps in flight, one run each; SECONDS_EACH (30) is how long a run takes. Makes a
# Python environment with the pinned packages of guidellm.txt under target/. KEY is the server's API key, if it asks for one.
# guidellm gets two processes, which are enough and leave cores to a server on this machine. Prompts come from a file, so that no
# tokenizer must be fetched: the server counts the tokens.
set -euo pipefail
url=${1:?which server, such as http://127.0.0.1:8000}
here=$(cd "$(dirname "$0")" && pwd)
home=${CARGO_TARGET_DIR:-$here/../../target}/guidellm
python=$home/bin/python
if ! cmp -s "$here/guidellm.txt" "$home/installed.txt"; then
  python3 -m venv --clear "$home"
  "$python" -m pip install --quiet --disable-pip-version-check -r "$here/guidellm.txt"
  cp "$here/guidellm.txt" "$home/installed.txt"
fi
export HF_HOME=$home/cache HF_HUB_OFFLINE=1 GUIDELLM__MAX_WORKER_PROCESSES=2 COLUMNS=250 ${KEY:+GUIDELLM__OPENAI__API_KEY="$KEY"}
PYTHONPATH=$here "$python" - > "$home/prompts.jsonl" <<'PY'
import json, random
from client import text
draw = random.Random(1)
for _ in range(2000):
    print(json.dumps({"prompt": text(draw, draw.choice([10, 30, 60, 120])), "output_tokens_count": draw.choice([16, 32, 64])}))
PY
exec "$home/bin/guidellm" benchmark run --target "$url" --data "$home/prompts.jsonl" \
  --rate-type concurrent --rate "${CLIENTS:-1,8,32}" --max-seconds "${SECONDS_EACH:-30}" --disable-progress \
  --output-path "$home/report.json"
