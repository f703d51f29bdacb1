"""The names of vLLM's `serve` flags that the simulated server accepts, as data.

Facts about vLLM's command line (0.9 to 0.33); a flag missing here is reported as unrecognized, as vLLM would.
What must not live here: parsing (see `arguments`).
"""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Take no value; each also has a --no- form.
SWITCHES = _names(
    """
    aggregate-engine-logging allow-credentials allow-deprecated-quantization async-scheduling calculate-kv-scales
    cohere-is-reasoning-model cudagraph-metrics data-parallel-external-lb data-parallel-hybrid-lb
    data-parallel-multi-port-external-lb dcp-q-replicate disable-cascade-attn disable-chunked-mm-input
    disable-custom-all-reduce disable-fastapi-docs disable-frontend-multiprocessing disable-hybrid-kv-cache-manager
    disable-log-requests disable-log-stats disable-mm-preprocessor-cache disable-nccl-for-dp-synchronization
    disable-sliding-window disable-uvicorn-access-log enable-auto-tool-choice enable-batch-sharded-sampling
    enable-bf16x3-router-gemm enable-chunked-prefill enable-cumem-allocator enable-dbo enable-elastic-ep
    enable-ep-weight-filter enable-eplb enable-expert-parallel enable-fault-tolerance enable-flash-late-interaction
    enable-flashinfer-autotune enable-force-include-usage enable-layerwise-nvtx-tracing enable-log-deltas
    enable-log-outputs enable-log-requests enable-logging-iteration-details enable-lora enable-lora-bias
    enable-mamba-cache-stochastic-rounding enable-mfu-metrics enable-mixed-moe-lora-format enable-mm-embeds
    enable-moe-shared-loras enable-nccl-comm-suspend enable-offline-docs enable-per-request-metrics
    enable-prefix-caching enable-prompt-embeds enable-prompt-tokens-details enable-request-id-headers
    enable-return-routed-experts enable-scale-out enable-server-load-tracking enable-sleep-mode enable-ssl-refresh
    enable-tokenizer-info-endpoint enable-tower-connector-lora enable-trace-replay enforce-eager
    exclude-tools-when-tool-choice-none fail-on-environ-validation fully-sharded-loras headless
    interleave-mm-strings jit-monitor-verbose kv-cache-metrics kv-sharing-fast-prefill language-model-only
    log-error-stack mm-device-do-normalize mm-encoder-only numa-bind per-request-spec-decode-metrics
    ray-workers-use-nsight return-sampling-mask return-tokens-as-token-ids scheduler-reserve-full-isl
    skip-mm-profiling skip-tokenizer-init specialize-active-lora tokens-only trust-remote-code
    trust-request-chat-template use-fp64-gumbel use-replayssm use-tqdm-on-load
    """
)

# Take one value (some take several).
VALUES = _names(
    """
    additional-config all2all-backend allowed-headers allowed-local-media-path allowed-media-domains allowed-methods
    allowed-origins api-key api-server-count attention-backend attention-config block-size chat-template
    chat-template-content-format code-revision cohere-format collect-detailed-traces compilation-config config
    config-format convert cp-kv-cache-interleave-size cpu-distributed-timeout-seconds cpu-offload-gb
    cpu-offload-params cuda-graph-sizes cudagraph-capture-sizes data-parallel-address data-parallel-backend
    data-parallel-rank data-parallel-rpc-port data-parallel-size data-parallel-size-local data-parallel-start-rank
    data-parallel-supervisor-port dbo-decode-token-threshold dbo-prefill-token-threshold dcp-comm-backend
    dcp-kv-cache-interleave-size decode-context-parallel-size default-chat-template-kwargs default-mm-loras device
    device-ids diffusion-config disable-access-log-for-endpoints distributed-executor-backend
    distributed-timeout-seconds download-dir dp-supervisor-probe-failure-threshold dp-supervisor-probe-interval-s
    dp-supervisor-probe-timeout-s dp-sync-interval dtype ec-manager-config ec-transfer-config eplb-config
    expert-placement-strategy fault-tolerance-config fingerprint-mode fingerprint-value gdn-prefill-backend
    generation-config gpu-memory-utilization guided-decoding-backend h11-max-header-count
    h11-max-incomplete-event-size hf-config-path hf-overrides hf-token host ignore-patterns io-processor-plugin
    ir-op-priority jit-monitor-mode kda-prefill-backend kernel-config kv-cache-dtype kv-cache-dtype-skip-layers
    kv-cache-memory-bytes kv-cache-metrics-sample kv-events-config kv-offloading-backend kv-offloading-size
    kv-transfer-config limit-mm-per-prompt linear-backend load-format log-config-file logits-processor-pattern
    logits-processors logprobs-mode long-prefill-token-threshold lora-dtype lora-extra-vocab-size lora-modules
    lora-target-modules mamba-backend mamba-block-size mamba-cache-dtype mamba-cache-mode mamba-cache-philox-rounds
    mamba-ssm-cache-dtype mamba-ssu-algorithm master-addr master-port max-cpu-loras max-cudagraph-capture-size
    max-log-len max-logprobs max-long-partial-prefills max-lora-rank max-loras max-model-len max-num-batched-tokens
    max-num-partial-prefills max-num-queued-reqs max-num-queued-tokens max-num-scheduled-tokens max-num-seqs
    max-parallel-loading-workers max-seq-len-to-capture media-io-kwargs middleware mm-encoder-attn-backend
    mm-encoder-attn-dtype mm-encoder-fp8-scale-path mm-encoder-fp8-scale-save-margin mm-encoder-fp8-scale-save-path
    mm-encoder-tp-mode mm-hasher-algorithm mm-ipc-gpu-memory-gb mm-processor-cache-gb mm-processor-cache-type
    mm-processor-device mm-processor-kwargs mm-shm-cache-max-object-size-mb mm-tensor-ipc model
    model-class-overrides model-impl model-loader-extra-config moe-backend nnodes node-rank num-gpu-blocks-override
    num-lookahead-slots num-redundant-experts numa-bind-cpus numa-bind-nodes offload-backend offload-group-size
    offload-num-in-group offload-params offload-prefetch-step optimization-level otlp-traces-endpoint
    override-attention-dtype override-generation-config override-pooler-config performance-mode
    pipeline-parallel-size pooler-config port prefill-context-parallel-size prefill-schedule-interval
    prefix-cache-retention-interval prefix-caching-hash-algo prefix-match-unit profiler-config pt-load-map-location
    quantization quantization-config reasoning-config reasoning-parser reasoning-parser-plugin renderer-num-workers
    replayssm-buffer-len response-role revision root-path rope-scaling rope-theta runner safetensors-load-strategy
    safetensors-prefetch-block-size safetensors-prefetch-num-threads scheduler-cls scheduling-policy seed
    served-model-name show-hidden-metrics-for-version shutdown-timeout spec-method spec-model spec-tokens
    speculative-config ssl-ca-certs ssl-cert-reqs ssl-certfile ssl-ciphers ssl-keyfile stream-interval
    structured-outputs-config swap-space task tensor-parallel-size tokenizer tokenizer-mode tokenizer-revision
    tool-call-parser tool-parser-plugin tool-server ubatch-size uds uvicorn-log-level video-pruning-method
    video-pruning-rate watermark weight-transfer-config worker-cls worker-extension-cls
    """
)

# vLLM's short forms.
SHORT = {
    "-ac": "attention-config",
    "-asc": "api-server-count",
    "-cc": "compilation-config",
    "-dcp": "decode-context-parallel-size",
    "-dc": "diffusion-config",
    "-dp": "data-parallel-size",
    "-dpa": "data-parallel-address",
    "-dpb": "data-parallel-backend",
    "-dpe": "data-parallel-external-lb",
    "-dph": "data-parallel-hybrid-lb",
    "-dpl": "data-parallel-size-local",
    "-dpm": "data-parallel-multi-port-external-lb",
    "-dpn": "data-parallel-rank",
    "-dpp": "data-parallel-rpc-port",
    "-dpr": "data-parallel-start-rank",
    "-ep": "enable-expert-parallel",
    "-n": "nnodes",
    "-O": "optimization-level",
    "-pcp": "prefill-context-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-q": "quantization",
    "-r": "node-rank",
    "-sc": "speculative-config",
    "-tp": "tensor-parallel-size",
}

# Values that vLLM decodes as JSON.
JSON_VALUES = _names(
    """
    additional-config attention-config chat-template-kwargs compilation-config default-chat-template-kwargs
    default-mm-loras ec-transfer-config eplb-config hf-overrides kernel-config kv-events-config kv-transfer-config
    limit-mm-per-prompt media-io-kwargs mm-processor-kwargs model-loader-extra-config override-generation-config
    pooler-config profiler-config quantization-config reasoning-config speculative-config structured-outputs-config
    """
)

# Take any number of values up to the next flag.
MANY = _names(
    """api-key served-model-name lora-modules logits-processors middleware cuda-graph-sizes cudagraph-capture-sizes
    kv-cache-dtype-skip-layers ignore-patterns numa-bind-cpus numa-bind-nodes device-ids"""
)

SPECULATIVE_FIELDS = _names(
    """
    method model num_speculative_tokens quantization draft_tensor_parallel_size max_model_len revision code_revision
    enforce_eager disable_by_batch_size disable_padded_drafter_batch prompt_lookup_max prompt_lookup_min
    speculative_token_tree parallel_drafting rejection_sample_method synthetic_acceptance_rate
    synthetic_acceptance_rates synthetic_acceptance_length num_speculative_tokens_per_batch_size attention_backend
    moe_backend disable_eagle_block_drop suffix_decoding_max_tree_depth suffix_decoding_max_cached_requests
    suffix_decoding_max_spec_factor suffix_decoding_min_token_prob use_local_argmax_reduction draft_load_config
    acceptance_method posterior_threshold posterior_alpha tensor_parallel_size draft_sample_method
    """
)
