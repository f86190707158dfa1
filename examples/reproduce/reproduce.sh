#!/usr/bin/env bash
# The paper's whole way: from images to a matrix, to aligned models, to its tables. docs/reproduce.md says of every
# stage what it takes and what it leaves.
#
#   bash reproduce.sh toy.env                 # drawn pictures and tiny models: minutes on a CPU
#   bash reproduce.sh paper.env               # everything; a stage that is done costs seconds
#   bash reproduce.sh paper.env train         # one stage
#
# Every command resumes where it was interrupted, so repeat the same line after a failure.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$1"
shift
mkdir -p "$WORK"
cd "$WORK"

# The images that are described in the end, and those that are trained on: none is both.
pool() {
    scapo-eval annotate sample "$EVALUATION" --images-root "$EVALUATION_IMAGES" -n "$EVALUATION_SIZE" -o evaluation.jsonl
    scapo-eval annotate sample "$TRAIN" --images-root "$TRAIN_IMAGES" -n "$TRAIN_SIZE" --exclude evaluation.jsonl -o pool.jsonl
}

# Eight responses to each by the model that will be trained: what the vocabulary must know, and where to doubt the judge.
rollouts() {
    scapo-eval describe pool.jsonl --model "$POLICY" "${ENGINE[@]}" --samples 8 --temperature 1 --max-tokens "$LONGEST" -o rollouts.jsonl
    scapo-eval vocab mine rollouts.jsonl -o candidates.jsonl
    if [ ! -f draft.yaml ]; then # somebody may have edited it
        scapo-eval vocab build candidates.jsonl "${DRAFT[@]}" -o draft.yaml
    fi
    scapo-eval vocab check "$VOCABULARY"
}

# A verdict on every label of every image: the coarse matrix.
judge() {
    start_judge
    scapo-eval annotate coarse pool.jsonl -o matrix --vocabulary "$VOCABULARY" "${JUDGE[@]}" "${COARSE[@]}"
    scapo-eval annotate coarse evaluation.jsonl -o matrix_evaluation --vocabulary "$VOCABULARY" "${JUDGE[@]}" "${COARSE[@]}"
}

# Doubtful cells, and better prompts for the labels that they name.
refine() {
    start_judge
    scapo-eval annotate mine matrix rollouts.jsonl -o cells.jsonl
    scapo-eval annotate lint --vocabulary "$VOCABULARY" "${REFINE[@]}"
    scapo-eval annotate refine matrix "${REFINE[@]}" --reason "see cells.jsonl" "${JUDGE[@]}"
    scapo-eval annotate refine matrix_evaluation "${REFINE[@]}" --reason "as the training images" "${JUDGE[@]}"
}

# People look at random pairs. Again, with refine between, until a round is clean.
people() {
    for run in matrix matrix_evaluation; do
        case $(last_round "$run") in
            clean) continue ;;
            open) ;; # it was interrupted
            *)
                scapo-eval annotate qc draw "$run" "${ROUND[@]}"
                ;;
        esac
        look "$run"
        [ "$(last_round "$run")" != open ] || { echo "$run: its round is not finished: run this again" >&2; return 1; }
    done
}

last_round() { # RUN -> clean (over all labels, no errors, no verdict changed since), or its state
    scapo-eval annotate qc status "$1" --json |
        python -c 'import json, sys; s = json.load(sys.stdin); r = [{"state": "none"}, *s["rounds"]][-1]; print("clean" if r["state"] == "closed" and r["full"] and not r["errors"] and not s["stale"] else r["state"])'
}

# The matrices, the training prompts, and what the paper's Tables 5 and 6 say of them.
finalize() {
    scapo-eval annotate finalize matrix -o dopa.npz --prompts train.jsonl --license CC-BY-4.0
    scapo-eval annotate finalize matrix_evaluation -o dopa_evaluation.npz --license CC-BY-4.0
    scapo-eval oracle stats dopa.npz --vocabulary "$VOCABULARY"
    scapo-eval oracle overlap dopa.npz evaluation.jsonl
}

# Table 3: how much of the rollouts each annotation can reward.
density() {
    scapo-eval density rollouts.jsonl --truth "$TRAIN" --vocabulary coco80 --truth dopa.npz --vocabulary "$VOCABULARY" -o density.json
}

# Does it fit, and how long does it take?
plan() {
    python -m scapo_train.plan "$CONFIG" --gpus "$GPUS" --set model.path="$POLICY" "${SETTINGS[@]}"
}

# SCAPO, the on-policy baselines of Table 1, SCAPO on COCO's annotations (Table 2), the figure of training dynamics.
train() {
    train_one scapo
    train_one grpo --set credit.scheme=grpo --set credit.reward=hal
    train_one dapo --set credit.scheme=dapo --set credit.reward=hal --set credit.form=original --set loss.kl=0 --set loss.clip_high=0.28
    train_one dr_grpo --set credit.scheme=dr_grpo --set credit.reward=hal
    train_one coco --set data.oracle="$TRAIN" --set data.vocabulary=coco80
    train_one cap --set credit.scheme=grpo --set credit.reward=cap
    train_one object --set credit.scheme=object
    for ablation in additive full_repeat no_reg; do
        train_one "$ablation" --set credit.ablation="$ablation"
    done
}

train_one() { # NAME [--set ...]; of the runs that RUNS names
    [[ " $RUNS " == *" $1 "* ]] || return 0
    "${TRAINER[@]}" "$CONFIG" --resume auto --set run.output="runs/$1" --set model.path="$POLICY" \
        --set data.train=train.jsonl --set data.oracle=dopa.npz --set data.vocabulary="$VOCABULARY" "${SETTINGS[@]}" "${@:2}"
}

# The off-policy rows of Table 1, on pairs of the same rollouts.
prefer() {
    [ -n "$PREFERRED" ] || return 0
    scapo-eval pairs rollouts.jsonl --truth dopa.npz --vocabulary "$VOCABULARY" --images "$TRAIN_IMAGES" --format trl -o pairs.jsonl
    for loss in $PREFERRED; do
        "${PREFERENCE[@]}" "$CONFIG" --resume auto --set run.output="runs/$loss" --set model.path="$POLICY" --set preference.loss="$loss" --set data.train=pairs.jsonl "${SETTINGS[@]}"
    done
}

# Every system describes the evaluation images and AMBER's, and answers AMBER, PhD and MMHal-Bench.
describe() {
    mkdir -p captions amber amber_described phd phd_described mmhal
    for name in $SYSTEMS; do
        model=runs/$name/model
        [ "$name" != base ] || model=$POLICY
        scapo-eval describe evaluation.jsonl --model "$model" "${ENGINE[@]}" -o "captions/$name.jsonl"
        scapo-eval answer "$AMBER/data/query/query_all.json" --images-root "$AMBER/image" --model "$model" "${ENGINE[@]}" -o "amber/$name.jsonl"
        scapo-eval answer "$AMBER/data/query/query_all.json" --images-root "$AMBER/image" --model "$model" "${ENGINE[@]}" --describe -o "amber_described/$name.jsonl"
        scapo-eval answer "$PHD" --images-root "$PHD_IMAGES" --model "$model" "${ENGINE[@]}" -o "phd/$name.jsonl"
        scapo-eval answer "$PHD" --images-root "$PHD_IMAGES" --model "$model" "${ENGINE[@]}" --describe -o "phd_described/$name.jsonl"
        scapo-eval answer "$MMHAL" --images-root "$MMHAL_IMAGES" --model "$model" "${ENGINE[@]}" -o "mmhal/$name.jsonl"
    done
}

# MMHal-Bench is rated by a judge, a text model. For FaithScore it takes captions apart and checks each fact.
rate() {
    start_judge
    mkdir -p ratings facts
    for name in $SYSTEMS; do
        scapo-eval judge mmhal "mmhal/$name.jsonl" "${JUDGE[@]}" "${RATE[@]}" -o "ratings/$name.jsonl"
    done
    for name in $FACTS_OF; do
        scapo-eval judge faithscore "captions/$name.jsonl" --images-root "$EVALUATION_IMAGES" "${JUDGE[@]}" -o "facts/$name.jsonl"
    done
}

# The numbers. Every results file holds counts per image, so nothing below reads a caption again.
score() {
    mkdir -p results
    scapo-eval $(files captions) --truth "$EVALUATION" --dopa dopa_evaluation.npz --dopa-vocabulary "$VOCABULARY" -o results/coco.json
    scapo-eval amber $(files amber) --data "$AMBER" -o results/amber.json
    scapo-eval amber $(files amber_described) --data "$AMBER" -o results/amber_described.json
    scapo-eval phd $(files phd) --data "$PHD" -o results/phd.json
    scapo-eval phd $(files phd_described) --data "$PHD" -o results/phd_described.json
    scapo-eval mmhal $(files ratings) -o results/mmhal.json
    if [ -n "$FACTS_OF" ]; then
        scapo-eval faithscore $(files facts "$FACTS_OF") -o results/faithscore.json
    fi
    for name in $GENERAL_OF; do # what lmms-eval or VLMEvalKit wrote of this system
        scapo-eval import "$GENERAL/$name/"* --name "$name" -o "results/general_$name.json"
    done
    scapo-eval augmented amber/base.jsonl plain+description=amber_described/base.jsonl SCAPO=amber_described/scapo.jsonl --data "$AMBER" -o results/augmented.json
}

files() { # FOLDER [NAMES] -> NAME=FOLDER/NAME.jsonl of every system, and of those whose outputs others made
    others=""
    case $1 in captions | amber_described | phd_described) others=$OTHERS ;; esac
    for name in ${2:-$SYSTEMS $others}; do printf '%s=%s/%s.jsonl ' "$name" "$1" "$name"; done
}

# The paper's tables and figures, and the page to look at.
report() {
    mkdir -p tables
    general=$(for name in $GENERAL_OF; do printf 'results/general_%s.json ' "$name"; done)
    for format in markdown latex; do
        scapo-eval report density.json --format "$format" --table 3 -o "tables/3.$format"
        [ -z "$FACTS_OF" ] || scapo-eval report results/faithscore.json --format "$format" --table faithscore -o "tables/faithscore.$format"
        [ -z "$general" ] || scapo-eval report $general --format "$format" --table general -o "tables/general.$format"
        scapo-eval report results/coco.json results/amber_described.json results/phd_described.json --format "$format" --table 1 -o "tables/1.$format"
        scapo-eval report results/coco.json results/amber_described.json results/mmhal.json --format "$format" --table 2 -o "tables/2.$format"
        scapo-eval report results/augmented.json --format "$format" --table 4 -o "tables/4.$format"
        scapo-eval report results/mmhal.json --format "$format" --table ablation -o "tables/ablation.$format"
        scapo-eval report results/coco.json results/amber_described.json results/phd_described.json --format "$format" --table backbone -o "tables/backbone.$format"
    done
    runs=$(for name in $RUNS; do printf 'runs/%s ' "$name"; done)
    scapo-eval plot training $runs -o tables/dynamics.png
    captions=$(for name in $SYSTEMS; do printf 'captions/%s.jsonl ' "$name"; done)
    scapo-eval report $captions results/amber_described.json results/phd_described.json results/mmhal.json $runs \
        --truth "$EVALUATION" --dopa dopa_evaluation.npz --dopa-vocabulary "$VOCABULARY" --images "$EVALUATION_IMAGES" -o report.html
}

[ $# -gt 0 ] || set -- pool rollouts judge refine people finalize density plan train prefer describe rate score report
for stage in "$@"; do
    printf '\n== %s\n' "$stage" >&2
    "$stage"
done
