#!/usr/bin/env bash
# Checks and timings on one GPU: results against the CPU's, chain-steps per second of the engine.
#   bash experiments/benchmarks/gpu.sh [OUTDIR] [--quick]
# GPU_PLATFORM=cpu runs the whole script on the CPU with tiny sizes. PYTHON: interpreter.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$root/results/gpu
if [ $# -gt 0 ] && [ "${1#--}" = "$1" ]; then out=$1; shift; fi
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL=2
mkdir -p "$out"
exec "${PYTHON:-python3}" "$root/experiments/benchmarks/gpu.py" all --output "$out" "$@"
