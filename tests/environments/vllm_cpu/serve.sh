#!/bin/bash
# serve.sh MODEL_DIR PORT [vllm arguments...]: real vLLM on the CPU, in the foreground, on loopback, offline.
# For MTP add: --no-enable-prefix-caching --speculative-config '{"method":"mtp","num_speculative_tokens":3}'
# (with prefix caching and MTP together this build dies on the first request). Send greedy requests only.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
vllm=${AUDITION_VLLM:-$here/../../../.live/vllm/bin/vllm}
model=$1 port=$2
shift 2
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1}
exec "$vllm" serve "$model" --host 127.0.0.1 --port "$port" --served-model-name tiny --max-model-len 2048 \
  --max-num-seqs 8 --enforce-eager --language-model-only --reasoning-parser qwen3 --generation-config vllm "$@"
