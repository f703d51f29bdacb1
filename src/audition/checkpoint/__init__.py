"""What a checkpoint is and what an engine will make of it, known before anything is stopped. Reads headers, never weights.

Import from the modules; this file imports nothing, so that asking for help stays quick.

- ``reader.read(model, cache=CacheRoots(...), revision="main") -> Facts``: the edge. ``model`` is a folder, or a model id looked
  up in a Hugging Face cache. Raises ``problem.CheckpointError`` (unreadable, one sentence) or ``problem.NotInCache``.
- ``reader.read_folder(folder) -> Facts``: the same for a folder that is known.
- ``facts.Facts``: ``shape`` (``config.Shape``), ``quantisation`` (``quantisation.Quantisation``), ``mtp`` (``mtp.Mtp``),
  ``weights`` (``weights.Weights`` or ``NoData``). ``facts.build(...)`` makes them from plain data and touches no file.
- ``serving.Serving``, ``serving.Speculation``: how the checkpoint is to be served, as far as memory depends on it.
- ``predict.predict(facts, serving) -> Prediction``: weights per GPU, reserve, KV memory, pages, concurrency, KV capacity by both
  formulas, largest context; each as ``serving.Estimate`` (low, expected, high) or ``NoData``.
- ``compare.compare(prediction, Reported(...)) -> tuple[Comparison, ...]`` and ``compare.reported_from(leg facts)``: after the run.
- ``findings.findings(facts, speculation=..., serving=...) -> list[problem.Problem]``: what to say about it beforehand; without
  ``serving`` (GPUs not known) memory is left out.

What must not live here: importing torch, safetensors or transformers; flags of vLLM versions; GPUs of this machine.
"""
