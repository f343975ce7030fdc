#!/usr/bin/env bash
# Requests made from a server's own OpenAPI document, valid and invalid, by schemathesis: no 5xx but 503 may come.
#
#   EXAMPLES=2000 bench/server/malformed.sh http://127.0.0.1:8000
#
# PYTHON is an interpreter that has schemathesis: `$(cargo xtask python)`, say. EXAMPLES is per operation and phase.
set -euo pipefail
url=${1:?which server, such as http://127.0.0.1:8000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# `not_a_server_error` lets no 5xx pass; a server that loads or drains answers 503, so let it be ready first.
cat > "$folder/schemathesis.toml" <<TOML
[checks]
enabled = false
not_a_server_error.enabled = true
TOML
cd "$folder"
"${PYTHON:-python3}" -m schemathesis.cli --config-file schemathesis.toml run "$url/openapi.json" --url "$url" \
  --phases examples,coverage,fuzzing --mode all --max-examples "${EXAMPLES:-200}" --seed "${SEED:-1}" \
  --request-timeout "${TIMEOUT:-60}" --generation-database none --suppress-health-check all --no-color ${KEY:+-H "Authorization: Bearer $KEY"}
