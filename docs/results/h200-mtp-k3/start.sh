#!/bin/bash
# start.sh: on the GPU machine, beside spike.yaml, with audition on the PATH or named by AUDITION. Writes the model folder, watches the GPU, runs the spike.
# Leaves run.log (with times), rc, gpu.csv and the run folder under _iteration_log/. Start it with setsid, and it outlives the terminal.
set -u
cd "$(dirname "$0")" || exit 1
python3 make_shape.py /tmp/shape
nvidia-smi --query-gpu=timestamp,utilization.gpu,memory.used,clocks.sm,clocks.mem,temperature.gpu,power.draw,clocks_event_reasons.active \
  --format=csv,noheader,nounits -l 1 > gpu.csv 2>&1 < /dev/null &
sampler=$!
PYTHONUNBUFFERED=1 "${AUDITION:-audition}" run "${1:-spike.yaml}" 2>&1 < /dev/null | while IFS= read -r line; do echo "$(date +%T) $line"; done > run.log
echo "${PIPESTATUS[0]}" > rc
kill "$sampler"
