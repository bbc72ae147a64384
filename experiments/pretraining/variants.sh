#!/usr/bin/env bash
# Compare additions to the recipe: each variant continues from the same weights for the same number of steps, all in parallel on
# one GPU; then SG-OPT with the paper's defaults is trained on each. Choose by STS-B dev.
#
#   experiments/pretraining/variants.sh START DATA RUNS STEPS      START holds encoder/ and head/, DATA the prepared parts
set -euo pipefail
start=$1 data=$2 runs=$3 steps=$4
common="--init $start --data $data --tokenizer $start/encoder --steps $steps --warmup 150 --decay 0.8 --lr 4e-4 --eval-minutes 60 --save-minutes 60"
declare -A variants=(
  [base]=""
  [dropout]="--dropout 0.1"
  [own]="--cls-own 0.3"
  [next]="--cls-next 0.3"
)
mkdir -p "$runs"
for name in "${!variants[@]}"; do
  # shellcheck disable=SC2086
  python3 -m experiments.pretraining train $common ${variants[$name]} --out "$runs/$name" > "$runs/$name.log" 2>&1 &
done
wait
grep -h held-out "$runs"/*/results.jsonl || true
for name in "${!variants[@]}"; do
  python3 -m experiments.stsb --encoder "$runs/$name/encoder" --seeds 1 --out "$runs/stsb-$name.json" > "$runs/stsb-$name.log" 2>&1 &
done
wait
for name in "${!variants[@]}"; do echo "== $name"; tail -n 4 "$runs/stsb-$name.log" | cut -c1-240; done
