#!/usr/bin/env bash
# Sends requests, valid and invalid, that schemathesis makes from a server's own OpenAPI document: any 5xx answer is a failure.
#
#   EXAMPLES=2000 bench/server/malformed.sh http://127.0.0.1:8000
#
# PYTHON is an interpreter that has schemathesis: `$(cargo xtask python)`, say. EXAMPLES (200) is the number of requests of each
# operation and phase. Let the server be ready first: while it loads or drains it answers 503.
set -euo pipefail
url=${1:?which server, such as http://127.0.0.1:8000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The only check: no answer is a 5xx.
cat > "$folder/schemathesis.toml" <<TOML
[checks]
enabled = false
not_a_server_error.enabled = true
TOML
cd "$folder"
"${PYTHON:-python3}" -m schemathesis.cli --config-file schemathesis.toml run "$url/openapi.json" --url "$url" \
  --phases examples,coverage,fuzzing --mode all --max-examples "${EXAMPLES:-200}" --seed "${SEED:-1}" \
  --request-timeout "${TIMEOUT:-60}" --generation-database none --suppress-health-check all --no-color ${KEY:+-H "Authorization: Bearer $KEY"}
