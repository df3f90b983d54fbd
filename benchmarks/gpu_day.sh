#!/bin/bash
# Measures a training step and compares four objectives on a GPU that is there for minutes only:
#   TEXT='books/*.txt' VOCAB=vocab.txt bash benchmarks/gpu_day.sh prepare FOLDER
#   bash FOLDER/benchmarks/gpu_day.sh step FOLDER
#   bash FOLDER/benchmarks/gpu_day.sh study FOLDER
#   DATA=data bash benchmarks/gpu_day.sh score FOLDER
# `prepare` and `score` run in a checkout with its environment. `step` and `study` run on the other
# machine, which needs jax, numpy, flatbuffers, torch and transformers, for less than eight minutes
# each. FOLDER, below 64 MiB, is all that travels there. FOLDER/back is all that comes back:
# results.json, logs, a trace, and the encoders in 16 bits, in pieces of 15 MiB. With BERT's
# vocabulary an encoder has 66 MiB; those whose pieces are there are scored.
# step:  cmlm/english_base, 128 pairs: this project's step and its trace, PyTorch's with masks and
#        without, and this project's without attention dropout, whose attention is cuDNN's.
# study: CMLM, QuickThought, SimCSE and MLM, 6 layers × 512 from the same random weights, train for
#        equal seconds on 256 pairs of 2 × 128 packed tokens a step, MLM on 512 × 128. Nobody knows
#        the number of steps beforehand, so the learning rate stays constant after its warm-up.
# A lowered folder carries finished batches: 90 for each objective fit, at most 5 of the books' 21
# million tokens, with their masks drawn once. A training reads them again and again. BATCHES=360
# covers some 94 % of them, but makes a folder of some 160 MiB. TOY=1 runs all at a tiny size on a CPU.
set -euo pipefail
verb=${1:-} folder=$(realpath -m "${2:-.}") python=${PYTHON:-python3} failed=0 sets=()
base=cmlm/english_base size=small layers=6 at_base="256 128" at_study="128 256" at_mlm="128 512"
batches=${BATCHES:-90} seconds=${SECONDS_EACH:-40} steps=60 report=15 slow=1
if [ "${TOY:-}" ]; then
  base=cmlm/tiny size=tiny layers=1 at_base="32 4" at_study="32 4" at_mlm="32 8"
  batches=2 seconds=1 steps=20 report=5 slow=30 sets=(--set='senteval.tasks=[MR]')
fi
export PYTHONUNBUFFERED=1 JAX_COMPILATION_CACHE_DIR=$folder/compiled

lower() { # NAME EXPERIMENT "LENGTH EXAMPLES" BATCHES OVERRIDES: writes FOLDER/NAME.
  local data=task.train_data length=${3% *} examples=${3#* }
  "$python" -m official_cmlm.command lower "$2" --to="$folder/$1" --data="$folder.records" \
    --redraw --batches="$4" --params_override="$data.seq_length=$length,$data.segment=packed,\
$data.bucket_boundaries=[$length],$data.global_batch_size=$examples,$data.streams=1,\
$data.max_bucket_batch_size=$examples,runtime.mixed_precision_dtype=bfloat16,$5"
}
run() { # NAME LIMIT COMMAND…: runs it from its beginning, LIMIT seconds at most, with a log.
  local log=$folder/back/$1.log status=0
  rm -f "$folder/$1"/{state-*.npz,history.jsonl}
  mkdir -p "$folder/back"
  timeout -k 10 $((slow * $2)) "${@:3}" 2>&1 | tee "$log" || status=$? failed=1
  echo "{\"exit_status\": $status}" >>"$log"
}
pack() { # NAME: writes FOLDER/NAME without states and steps as FOLDER/back/NAME.tgz.aa and so on.
  tar cz --exclude={'*.npz','*.bin',lowered.json} -C "$folder" "$1" |
    split -b 15M - "$folder/back/$1.tgz." || failed=1
}
collect() { # Joins the last values of each log and the scores; fails if a part failed.
  "$python" - "$folder" <<'END'
import json, sys
from pathlib import Path
folder, results = Path(sys.argv[1]), {}
for log in sorted(folder.glob("back/*.log")):
    row = results.setdefault(log.stem, {})
    for line in log.read_text(errors="replace").splitlines():
        row |= json.loads(line) if line.startswith("{") and line.endswith("}") else {}
for path in folder.glob("scored/*/scores/results.json"):
    suites = json.loads(path.read_text())["suites"].values()
    rows = [score for suite in suites for score in suite["scores"]]
    scores = {f"{score['task']} {score['metric']}": score["value"] for score in rows}
    results.setdefault(path.parts[-3], {})["scores"] = scores
(folder / "back/results.json").write_text(json.dumps(results, indent=1) + "\n")
END
  exit $failed
}
case $verb in
  prepare)
    "$python" -m official_cmlm.command create-documents --input="${TEXT:?names text files}" \
      --documents_by=file --vocab_file="${VOCAB:?names a vocabulary}" --to="$folder.records"
    lower base $base "$at_base" 4 trainer.train_steps=1000
    lower fused $base "$at_base" 4 trainer.train_steps=1000,task.encoder.attention_dropout_rate=0
    study="task.encoder.num_layers=$layers,task.encoder.max_position_embeddings=143,\
task.encoder.hidden_activation=gelu_exact,task.init_checkpoint='',trainer.train_steps=100000,\
trainer.schedule.type=constant,trainer.schedule.peak=0.0003,trainer.schedule.warmup_steps=100"
    for name in cmlm quick_thought simcse; do
      lower $name $name/$size "$at_study" "$batches" "$study"
    done
    lower mlm mlm/$size "$at_mlm" "$batches" "$study"
    install -Dt "$folder/benchmarks" "$0" \
      "$(dirname "$0")"/{__init__,train_step_lowered,train_step_torch_model}.py
    echo "$folder: $(du -sm "$folder" | cut -f1) MiB" ;;
  step)
    cd "$folder"
    train=(run_lowered.py "--steps=$steps" "--report_every=$report" --half)
    torch=("$python" -m benchmarks.train_step_lowered base "--steps=$((steps / 3))")
    run base 190 "$python" "base/${train[@]}" --profile=trace
    run torch 70 "${torch[@]}"
    run torch_no_masks 70 "${torch[@]}" --no_masks
    run fused 110 "$python" "fused/${train[@]}"
    pack trace
    collect ;;
  study)
    for name in cmlm quick_thought simcse mlm; do
      run $name 105 "$python" "$folder/$name/run_lowered.py" --seconds="$seconds" --half \
        --report_every=20 --checkpoint_every=100000 ${TOY:+--steps=$steps}
      pack $name
    done
    collect ;;
  score)
    mkdir -p "$folder/scored"
    for first in "$folder"/back/{cmlm,quick_thought,simcse,mlm}.tgz.aa; do
      [ -e "$first" ] || continue
      cat "${first%aa}"?? | tar xz -C "$folder/scored"
      encoder=$folder/scored/$(basename "$first" .tgz.aa)
      "$python" -m official_cmlm.command evaluate "$encoder" --suites=sts,senteval "${sets[@]}" \
        --data_dir="${DATA:?names the folder of evaluation data}" --set=sts.subsets=false \
        --set=sts.other_languages=false --to="$encoder/scores" || failed=1
    done
    collect ;;
  *) echo "usage: gpu_day.sh prepare|step|study|score FOLDER" >&2; exit 1 ;;
esac
