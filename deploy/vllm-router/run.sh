#!/usr/bin/env bash
# Replicas of `vosti serve` behind vllm-router: pip install vllm-router && deploy/vllm-router/run.sh
# REPLICAS and PORT may be given. A replica that dies is noticed by its requests and by /ready; clients resume with vosti.client.
set -euo pipefail
exec "${PYTHON:-python3}" -m vllm_router.launch_router \
    --worker-urls ${REPLICAS:-http://127.0.0.1:8001 http://127.0.0.1:8002 http://127.0.0.1:8003} \
    --host 127.0.0.1 --port "${PORT:-8080}" --prometheus-port "${METRICS_PORT:-29000}" \
    --policy cache_aware \
    --health-check-endpoint /ready --health-check-interval-secs 1 --health-check-timeout-secs 1 \
    --health-failure-threshold 1 --health-success-threshold 1 \
    --cb-failure-threshold 1 --cb-success-threshold 1 --cb-timeout-duration-secs 1 \
    --retry-max-retries 5 --retry-initial-backoff-ms 50 --retry-max-backoff-ms 1000 \
    --log-level warning "$@"
