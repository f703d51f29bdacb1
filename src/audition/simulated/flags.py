"""The names of vLLM's `serve` flags that the simulated server accepts, as data.

Facts about vLLM's command line (0.9 to 0.33); a flag missing here is reported as unrecognized, as vLLM would.
What must not live here: parsing (see `arguments`).
"""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())

# Take no value; each also has a --no- form.
SWITCHES = _names(
    """
    aggregate-engine-logging allow-credentials allow-deprecated-quantization api-server-lite async-scheduling
    calculate-kv-scales cpu-offload-pin-memory  data-parallel-external-lb data-parallel-hybrid-lb
    disable-access-log-for-health disable-cascade-attn disable-chunked-mm-input disable-custom-all-reduce
     disable-fastapi-docs disable-frontend-multiprocessing disable-hybrid-kv-cache-manager
    disable-log-requests disable-log-stats disable-mm-preprocessor-cache disable-nccl-for-dp-synchronization
    disable-sliding-window disable-uvicorn-access-log enable-auto-tool-choice enable-chunked-prefill
    enable-cumem-allocator enable-dbo enable-elastic-ep enable-ep-weight-filter enable-eplb enable-expert-parallel
    enable-flashinfer-autotune enable-force-include-usage enable-log-deltas enable-log-outputs enable-log-requests
    enable-logging-iteration-details enable-lora enable-lora-bias enable-mfu-metrics enable-mm-embeds
     enable-offline-docs enable-prefix-caching enable-prompt-adapter
    enable-prompt-embeds enable-prompt-tokens-details  enable-request-id-headers
    enable-return-routed-experts enable-scale-out enable-server-load-tracking enable-sleep-mode enable-ssl-refresh
    enable-tokenizer-info-endpoint enable-tower-connector-lora enforce-eager exclude-tools-when-tool-choice-none
    fully-sharded-loras guided-decoding-disable-additional-properties guided-decoding-disable-any-whitespace
    guided-decoding-disable-fallback h11-allow-insecure headless interleave-mm-strings kv-sharing-fast-prefill
    language-model-only  log-error-stack  numa-bind
    ray-workers-use-nsight return-tokens-as-token-ids scheduler-reserve-full-isl show-hidden-metrics skip-mm-profiling
    skip-tokenizer-init   trust-remote-code
    trust-request-chat-template use-replayssm use-tqdm-on-load use-v2-block-manager
    """
)

# Take one value (some take several).
VALUES = _names(
    """
    additional-config all2all-backend allowed-headers allowed-local-media-path allowed-media-domains allowed-methods
    allowed-origins api-key api-server-count attention-backend attention-config block-size chat-template
    chat-template-content-format code-revision collect-detailed-traces compilation-config config config-format
    convert cp-kv-cache-interleave-size cpu-offload-gb cpu-offload-params cuda-graph-sizes cudagraph-capture-sizes
    cudagraph-metrics data-parallel-address data-parallel-backend data-parallel-rank data-parallel-rpc-port
    data-parallel-size data-parallel-size-local data-parallel-start-rank dbo-decode-token-threshold
    dbo-prefill-token-threshold dcp-comm-backend dcp-kv-cache-interleave-size decode-context-parallel-size
    default-chat-template-kwargs default-mm-loras device device-ids distributed-executor-backend
    distributed-timeout-seconds download-dir dtype ec-transfer-config eplb-config expert-placement-strategy
      generation-config  gpu-memory-utilization grpc
    guided-decoding-backend h11-max-header-count h11-max-incomplete-event-size  hf-config-path hf-overrides
    hf-token host ignore-patterns io-processor-plugin ir-op-priority kernel-config kv-cache-dtype
    kv-cache-dtype-skip-layers kv-cache-memory-bytes kv-cache-metrics kv-cache-metrics-sample kv-events-config
    kv-offloading-backend kv-offloading-size kv-transfer-config limit-mm-per-prompt linear-backend load-format
    log-config-file  logits-processors logprobs-mode long-prefill-token-threshold
    lora-dtype lora-extra-vocab-size lora-modules lora-target-modules mamba-backend mamba-block-size
    mamba-cache-dtype mamba-cache-mode mamba-ssm-cache-dtype master-addr master-port max-cpu-loras
    max-cudagraph-capture-size max-log-len max-logprobs max-lora-rank max-loras max-model-len
    max-long-partial-prefills max-num-batched-tokens max-num-partial-prefills max-num-queued-reqs
    max-num-queued-tokens max-num-seqs  max-parallel-loading-workers max-seq-len-to-capture media-io-kwargs middleware
    mm-encoder-attn-backend mm-encoder-attn-dtype mm-encoder-only mm-encoder-tp-mode mm-processor-cache-gb
    mm-processor-cache-type mm-processor-kwargs mm-shm-cache-max-object-size-mb model  model-impl
    model-loader-extra-config moe-backend nnodes node-rank num-gpu-blocks-override num-lookahead-slots
    num-redundant-experts num-scheduler-steps numa-bind-cpus numa-bind-nodes offload-backend offload-group-size
    offload-num-in-group offload-params offload-prefetch-step optimization-level otlp-traces-endpoint
    override-attention-dtype override-generation-config override-neuron-config override-pooler-config
    override-profiling-config performance-mode pipeline-parallel-size pooler-config port prefetch-offload-layers
    prefill-context-parallel-size prefix-cache-retention-interval prefix-caching-hash-algo prefix-match-unit
    preemption-mode profiler-config pt-load-map-location quantization quantization-config reasoning-config
    reasoning-parser reasoning-parser-plugin renderer-num-workers response-role revision rope-scaling rope-theta root-path runner
    safetensors-load-strategy safetensors-prefetch-block-size safetensors-prefetch-num-threads scheduler-cls
    scheduling-policy seed served-model-name show-hidden-metrics-for-version shutdown-timeout speculative-config
    ssl-ca-certs ssl-cert-reqs ssl-certfile ssl-ciphers ssl-keyfile stream-interval structured-outputs-config swap-space
    task tensor-parallel-size tokenizer tokenizer-mode tokenizer-revision tokens-only tool-call-parser
    tool-parser-plugin tool-server ubatch-size uds uvicorn-log-level video-pruning-rate  weight-transfer-config
    worker-cls worker-extension-cls
    """
)

# vLLM's short forms.
SHORT = {
    "-ac": "attention-config",
    "-asc": "api-server-count",
    "-cc": "compilation-config",
    "-dcp": "decode-context-parallel-size",
    "-dp": "data-parallel-size",
    "-dpa": "data-parallel-address",
    "-dpb": "data-parallel-backend",
    "-dpl": "data-parallel-size-local",
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
