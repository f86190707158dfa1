"""Safety net for refactoring: the output of every scoring command on the shared data, before and after a change.

    PYTHONPATH=TREE python tests/safety_net.py record DIR     output of the code in TREE, one JSON file per case
    python tests/safety_net.py compare BEFORE AFTER           differences; exit code 1 if there are any
    PYTHONPATH=TREE python tests/safety_net.py golden         deliberate update of tests/golden/figures.json

A case is a command of ``scapo-eval`` that runs in a temporary folder with ``data`` (../shared/data), ``examples`` and
derived inputs. A recording contains the exit code, standard output, warnings and errors, and the written files. Floats
have 12 significant digits, and signatures and local paths are removed. For JSON Lines, the recording contains a digest
per line, the number of lines, and the sums of their numbers. A recording contains captions by others, so never commit a
recording. The golden file contains only counts and values.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
import io
import json
import math
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
GOLDEN = Path(__file__).resolve().parent / "golden" / "figures.json"

Record = dict[str, Any]

# --- the cases ------------------------------------------------------------------------------------------------------

COCO = "data/coco_chair"
SIX = " ".join(
    f"{COCO}/captions/{model}_{way}.jsonl"
    for model in ("llava-1.5", "instructblip")
    for way in ("greedy", "beam5", "ours")
)
GREEDY, OURS = f"{COCO}/captions/llava-1.5_greedy.jsonl", f"{COCO}/captions/llava-1.5_ours.jsonl"
TRUTH = f"--truth {COCO}/ground_truth.json.gz"
FULL_TRUTH = f"--truth {COCO}/ground_truth_full.json.gz"
REAL = "data/captions_real/coco_val2014"
REAL_TRUTH = "--truth data/captions_real/gt/coco_chair_gt.jsonl"
MODERN = "data/captions_modern/comprecap_gpt4o.jsonl data/captions_modern/comprecap_llava_next_34b.jsonl"
EXAMPLES = "examples/captions_baseline.jsonl examples/captions_aligned.jsonl --truth examples/truth.json"
AMBER = "data/amber/responses"
AMBER_DATA = "--data data/amber"
STAND_IN = "--similarity data/amber/standin_pairs.json"
POPE = "data/pope/llava-v1.5-13b.answers.jsonl"
POPE_QUESTIONS = " ".join(
    f"--questions data/pope/coco_pope_{category}.json" for category in ("adversarial", "popular", "random")
)
VERBOSE = "data/pope/hallusionbench_verbose_254.jsonl"
FORMATS = (
    "llava_answers.jsonl", "lmms_eval_v0.2_pope.json", "lmms_eval_v0.3_samples_pope.jsonl",
    "lmms_eval_v0.5_samples_pope.jsonl", "lmms_eval_v0.7_samples_pope.jsonl", "pope_official_answers.json",
    "trl_completions_00001.parquet", "unified_yesno.jsonl", "verl_rollout_1.jsonl",
    "vlmevalkit_LLaVA-13B_POPE.json", "vlmevalkit_LLaVA-13B_POPE.tsv", "vlmevalkit_LLaVA-13B_POPE.xlsx",
)  # fmt: skip
WITHOUT_LABELS = ("llava_answers.jsonl", "pope_official_answers.json")
PHD = "data/phd/phd_synthetic_answers.jsonl"
MMHAL = "data/captions_real/mmhal_bench_qwen3vl4b.jsonl"
PARSERS = ("default", "pope", "vlmevalkit", "lmms", "amber", "contains")
CLAIMS = ("all", "asserted", "certain")
TESTS = ("approximate_randomization", "paired_bootstrap", "mcnemar")
RULES = ("subsentence", "sentence", "clause", "object", "response")
LAMBDAS = ("min1", "linear", "sqrt", "log1p")

GOLDEN_CASES = (
    "score.six", "score.claims-asserted", "score.claims-certain", "score.dopa", "score.own-objects", "score.skip-bad",
    "score.real", "score.per-caption", "chair.native", "chair.reference", "amber.embedded", "amber.stand-in",
    "amber.questions-first-word", "pope.pooled", "pope.format-unified_yesno.jsonl", "phd.synthetic", "phd.ccs-real",
    "yesno.drop", "yesno.parser-contains", "mmhal.two", "faithscore.settings", "augmented.amber", "augmented.phd",
    "density.two", "density.calibrate", *(f"reward.subsentence-{rule}" for rule in RULES), "reward.hal-sentence",
    "reward.cap-sentence", "reward.lam-sqrt-log1p", "reward.additive", "import.captions-amber",
)  # fmt: skip
"""Cases of tests/golden/test_figures.py: all metrics without optional packages, in about 20 seconds."""


def cases(work: Path) -> dict[str, str]:
    """Returns name -> command, in an order in which the input files of each case already exist."""
    return dict(
        [
            *_score(), *_chair(), *_amber(work), *_yes_no(), *_judged(), *_augmented(), *_rewards(), *_shown(),
            *_compared(), *_tools(), *_tsv(), *_refused(),
        ]
    )  # fmt: skip


Cases = Iterator[tuple[str, str]]


def scored(command: str, resamples: int = 200) -> str:
    """Returns a scoring command with JSON output and few resamples."""
    return f"{command} --json --resamples {resamples}"


def _score() -> Cases:
    yield "score.six", scored(f"score {SIX} {TRUTH} -o out/six.json")
    yield "score.default-resamples", f"score {GREEDY} {OURS} {TRUTH} --json"
    yield "score.seed", scored(f"score {GREEDY} {OURS} {TRUTH} --seed 7", 100)
    yield "score.no-intervals", scored(f"score {GREEDY} {OURS} {TRUTH}", 0)
    for test in TESTS:
        yield f"score.test-{test}", scored(f"score {GREEDY} {OURS} {TRUTH} --test {test}")
    for claims in CLAIMS:
        yield f"score.claims-{claims}", scored(f"score {GREEDY} {OURS} {TRUTH} --claims {claims}")
        yield f"score.modern-{claims}", scored(f"score {MODERN} {FULL_TRUTH} --on-unknown-image skip --claims {claims}")
    for vocabulary in ("coco80", "dopa160"):
        yield f"score.vocabulary-{vocabulary}", scored(f"score {SIX} --truth in/dopa.json --vocabulary {vocabulary}")
        yield f"score.modern-{vocabulary}", scored(f"score {MODERN} --truth in/dopa.json --vocabulary {vocabulary}")
    yield "score.dopa", scored(f"score {GREEDY} {OURS} {TRUTH} --dopa in/dopa.json -o out/dopa_figures.json")
    yield "score.dopa-vocabulary", scored(f"score {GREEDY} {TRUTH} --dopa in/dopa.json --dopa-vocabulary coco80")
    yield "score.on-unknown-image", scored(f"score {SIX} --truth data/objhal/coco_objects.json --on-unknown-image skip")
    yield "score.skip-bad", scored(f"score in/bad.jsonl in/plain.jsonl {TRUTH} --skip-bad --on-unknown-image skip")
    yield "score.workers", scored(f"score {GREEDY} {OURS} {TRUTH} --dopa in/dopa.json --workers 2")
    yield "score.per-caption", scored(f"score {GREEDY} {TRUTH} --dopa in/dopa.json --per-caption out/score.jsonl")
    yield (
        "score.per-caption-certain",
        scored(f"score {OURS} {TRUTH} --claims certain --per-caption out/score_certain.jsonl"),
    )
    yield "score.own-objects", scored("score in/own_objects.jsonl")
    yield "score.gates", scored(f"score {GREEDY} {TRUTH} --fail-under cap_score=0.99 --fail-above hal_rate=0.01")
    yield "score.gates-kept", scored(f"score {GREEDY} {TRUTH} --fail-under cap_score=0.01")
    yield "score.quiet", scored(f"score {GREEDY} --truth in/dopa.json -q")
    real = [f"lessismore_{name}" for name in ("r1_llava15_7b", "r2_vcd", "r3_opera", "r6_lim", "r7_llava15_13b")]
    real += [f"opera_{model}_{way}" for model in ("instructblip", "llava15") for way in ("greedy", "opera")]
    yield "score.real", scored(f"score {' '.join(f'{REAL}_{name}.jsonl' for name in real)} {REAL_TRUTH}")
    yield "score.examples", scored(f"score {EXAMPLES} -o out/examples.json")
    yield "score.default-verb", scored(f"{EXAMPLES}")


def _chair() -> Cases:
    yield "chair.native", scored(f"chair {SIX} {TRUTH} -o out/chair.json")
    yield "chair.native-claims", scored(f"chair {GREEDY} --truth in/dopa.json --vocabulary dopa160")
    yield "chair.native-evidence", scored(f"chair {GREEDY} {TRUTH} --per-caption out/chair_native.jsonl")
    yield "chair.skip-bad", scored(f"chair in/bad.jsonl in/plain.jsonl {TRUTH} --skip-bad --on-unknown-image skip")
    scripts = f"{TRUTH} --synonyms in/synonyms.txt --profile"
    yield "chair.reference", scored(f"chair {SIX} {scripts} reference")
    yield "chair.reference-evidence", scored(f"chair {OURS} {scripts} reference --per-caption out/chair_ref.jsonl")
    short = "in/short_llava.jsonl in/short_instructblip.jsonl"
    yield "chair.opera", scored(f"chair {short} {scripts} opera --workers 1")
    yield (
        "chair.opera-evidence",
        scored(f"chair in/short_llava.jsonl {scripts} opera --workers 2 --per-caption out/chair_opera.jsonl"),
    )
    yield "chair.examples", scored(f"chair {EXAMPLES}")
    yield "chair.unfinished", scored(f"chair {GREEDY} {TRUTH} --drop-unfinished --protocol chair-opera")
    yield "objhal.matcher", scored(f"objhal {GREEDY} {OURS} {scripts} reference -o out/objhal.json")


def _amber(work: Path) -> Cases:
    described = f"{AMBER}/gen_llava_base.json.gz {AMBER}/gen_instructblip_agla_small.json.gz"
    yield "amber.embedded", scored(f"amber {described} {AMBER_DATA} -o out/amber.json")
    yield "amber.stand-in", scored(f"amber {described} {AMBER_DATA} {STAND_IN}")
    yield "amber.evidence", scored(f"amber {AMBER}/gen_llava_base.json.gz {AMBER_DATA} --per-answer out/amber.jsonl")
    parity = "--mode parity --workers 1 --noun-cache out/nouns"
    yield "amber.parity", scored(f"amber in/amber_short.json {AMBER_DATA} {parity}")
    yield "amber.parity-cached", scored(f"amber in/amber_short.json {AMBER_DATA} {STAND_IN} {parity}")
    yield (
        "amber.parity-evidence",
        scored(f"amber in/amber_short.json {AMBER_DATA} {parity} --per-answer out/amber_parity.jsonl"),
    )
    yield "amber.parity-partial", scored(f"amber {AMBER}/partial_a.json.gz {AMBER_DATA} {STAND_IN} {parity}")
    asked = " ".join(
        f"{AMBER}/{name}.json.gz" for name in ("disc_synth_a", "disc_messy_a", "disc_real_sentences_relation")
    )
    for rule in ("exact", "first-word"):
        yield f"amber.questions-{rule}", scored(f"amber {asked} {AMBER_DATA} --answers {rule}")
        yield f"amber.questions-parity-{rule}", scored(f"amber {asked} {AMBER_DATA} --mode parity --answers {rule}")
    yield "amber.questions-mcnemar", scored(f"amber {asked} {AMBER_DATA} --test mcnemar -o out/amber_asked.json")
    yield (
        "amber.questions-evidence",
        scored(f"amber {AMBER}/disc_messy_a.json.gz {AMBER_DATA} --per-answer out/amber_asked.jsonl"),
    )
    yield "amber.both", scored(f"amber in/amber_both.jsonl {AMBER_DATA}")
    yield "amber.partial", scored(f"amber {AMBER}/partial_a.json.gz {AMBER_DATA}")
    yield "amber.skip-bad", scored(f"amber in/amber_bad.jsonl {AMBER_DATA} --skip-bad")
    for path in sorted((work / "in" / "odd").glob("*.json")):
        yield f"amber.odd-{path.stem}", scored(f"amber in/odd/{path.name} {AMBER_DATA}", 20)
        yield f"amber.odd-parity-{path.stem}", scored(f"amber in/odd/{path.name} {AMBER_DATA} --mode parity", 20)


def _yes_no() -> Cases:
    yield "pope.pooled", scored(f"pope {POPE} {POPE_QUESTIONS} -o out/pope_a.json")
    yield "pope.other", scored(f"pope in/pope_other.jsonl {POPE_QUESTIONS} -o out/pope_b.json")
    for test in TESTS:
        yield f"pope.two-{test}", scored(f"pope {POPE} in/pope_other.jsonl {POPE_QUESTIONS} --test {test}")
    yield "pope.one-category", scored(f"pope {POPE} --questions data/pope/coco_pope_random.json")
    yield (
        "pope.evidence",
        scored(f"pope {POPE} --questions data/pope/coco_pope_random.json --per-answer out/pope.jsonl"),
    )
    for parser in PARSERS:
        yield f"pope.parser-{parser}", scored(f"pope {POPE} {POPE_QUESTIONS} --parser {parser}", 50)
        yield f"yesno.parser-{parser}", scored(f"yesno {VERBOSE} --parser {parser}")
        yield f"phd.parser-{parser}", scored(f"phd {PHD} --parser {parser}", 50)
    for name in FORMATS:
        own = " --questions data/pope/formats/labels.jsonl" if name in WITHOUT_LABELS else ""
        yield f"pope.format-{name}", scored(f"pope data/pope/formats/{name}{own}")
        yield f"pope.format-questions-{name}", scored(f"pope data/pope/formats/{name} {POPE_QUESTIONS}", 20)
        yield f"yesno.format-{name}", scored(f"yesno data/pope/formats/{name}{own.replace('questions', 'labels')}")
    yield "pope.drop", scored(f"pope in/pope_other.jsonl {POPE_QUESTIONS} --unparsed drop")
    yield "yesno.drop", scored(f"yesno {VERBOSE} in/verbose_other.jsonl --unparsed drop -o out/yesno.json")
    yield "yesno.mcnemar", scored(f"yesno {VERBOSE} in/verbose_other.jsonl --test mcnemar")
    yield "yesno.words", scored(f"yesno {VERBOSE} --yes the --no it")
    yield "yesno.evidence", scored(f"yesno {VERBOSE} --per-answer out/yesno.jsonl")
    yield "hallusionbench.own", scored(f"hallusionbench {VERBOSE} in/verbose_other.jsonl -o out/hallusionbench.json")
    yield "hallusionbench.figures", scored(f"hallusionbench {VERBOSE} --text-only out --parser vlmevalkit")
    yield "phd.synthetic", scored(f"phd {PHD} in/phd_other.jsonl --data data/phd/phd_synthetic.json -o out/phd.json")
    yield "phd.own-labels", scored(f"phd {PHD}")
    yield "phd.iac-key", scored(f"phd {PHD} --data data/phd/phd_synthetic_iac_key.json")
    yield "phd.drop", scored(f"phd {PHD} in/phd_other.jsonl --unparsed drop --test mcnemar")
    yield "phd.ccs-real", scored("phd data/phd/sarab_ccs_gpt-4o-mini.jsonl")
    yield "phd.evidence", scored(f"phd {PHD} --data data/phd/phd_synthetic.json --per-answer out/phd.jsonl")
    for name in ("phd_synthetic", "phd_ccs_prerelease_excerpt"):
        yield f"phd.prompts-{name}", f"phd --data data/phd/{name}.json --prompts out/prompts_{name}.jsonl"


def _judged() -> Cases:
    yield "mmhal.one", scored(f"mmhal {MMHAL}")
    yield "mmhal.two", scored(f"mmhal {MMHAL} in/mmhal_other.jsonl -o out/mmhal.json")
    yield "mmhal.seed", scored(f"mmhal {MMHAL} in/mmhal_other.jsonl --seed 3", 100)
    yield "mmhal.official", scored("mmhal in/mmhal_official.json")
    yield "mmhal.partial", scored("mmhal in/mmhal_partial.jsonl")
    yield "facts.two", scored("facts in/claims_a.jsonl in/claims_b.jsonl -o out/facts.json")
    yield "facts.one", scored("facts in/claims_a.jsonl --seed 3")
    yield "faithscore.one", scored("faithscore in/facts_a.jsonl")
    yield "faithscore.two", scored("faithscore in/facts_a.jsonl in/facts_b.jsonl --seed 3 -o out/faithscore.json")
    yield (
        "faithscore.settings",
        scored("faithscore x/detailed=in/facts_a.jsonl x/brief=in/facts_b.jsonl y/detailed=in/facts_b.jsonl"),
    )
    yield "faithscore.official", scored("faithscore in/facts_official.jsonl in/facts_scores.json")


def _augmented() -> Cases:
    messy = f"{AMBER}/disc_messy_a.json.gz"
    yield "augmented.amber", scored(f"augmented {messy} in/amber_described.jsonl {AMBER_DATA} -o out/augmented.json")
    yield "augmented.amber-exact", scored(f"augmented {messy} in/amber_described.jsonl {AMBER_DATA} --parser exact")
    yield "augmented.phd", scored(f"augmented {PHD} in/phd_other.jsonl --benchmark phd --test mcnemar")
    yield (
        "augmented.pope",
        scored(f"augmented {POPE} in/pope_other.jsonl --benchmark pope {POPE_QUESTIONS} --parser pope"),
    )
    yield "augmented.yesno", scored(f"augmented {VERBOSE} in/verbose_other.jsonl --benchmark yesno --test mcnemar")


def _rewards() -> Cases:
    both = f"--truth {COCO}/ground_truth.json.gz --vocabulary coco80 --truth in/dopa.json --vocabulary dopa160"
    yield "density.two", scored(f"density in/rollouts.jsonl {both} -o out/density.json")
    yield "density.calibrate", scored(f"density in/rollouts.jsonl {TRUTH} --calibrate")
    yield "density.captions", scored(f"density {GREEDY} {TRUTH}")
    yield "density.skip-bad", scored(f"density in/bad.jsonl {TRUTH} --skip-bad --on-unknown-image skip")
    for claims in CLAIMS:
        yield f"density.claims-{claims}", scored(f"density in/rollouts.jsonl {TRUTH} --claims {claims}")
        yield f"reward.claims-{claims}", f"reward in/rollouts.jsonl {TRUTH} --claims {claims} -o out/reward.jsonl"
    for rule in RULES:
        yield f"density.rule-{rule}", scored(f"density in/rollouts.jsonl {TRUTH} --rule {rule}")
        for level in ("subsentence", "hal", "cap"):
            yield (
                f"reward.{level}-{rule}",
                (f"reward in/rollouts.jsonl {TRUTH} --level {level} --rule {rule} -o out/reward.jsonl"),
            )
    for gain in LAMBDAS:
        for penalty in LAMBDAS:
            yield (
                f"reward.lam-{gain}-{penalty}",
                (f"reward in/short_rollouts.jsonl {TRUTH} --lam-g {gain} --lam-h {penalty} -o out/reward.jsonl"),
            )
    yield "reward.additive", f"reward in/rollouts.jsonl {TRUTH} --additive --lam-g linear -o out/reward.jsonl"
    yield "reward.weights", f"reward in/rollouts.jsonl {TRUTH} --r-g 2 --r-rep 0.25 --r-h 3 --r-reg 0.5"
    yield "reward.dopa", "reward in/rollouts.jsonl --truth in/dopa.json --vocabulary dopa160 -o out/reward.jsonl"
    yield "reward.captions", f"reward {OURS} {TRUTH} -o out/reward.jsonl"
    yield "reward.verl", f"reward in/verl.jsonl {TRUTH} -o out/reward.jsonl"
    yield "reward.trl", f"reward in/completions_00001.parquet {TRUTH} -o out/reward.jsonl"
    yield "reward.skip-bad", (f"reward in/bad.jsonl {TRUTH} --skip-bad --on-unknown-image skip -o out/reward.jsonl")


def _shown() -> Cases:
    yield "show.json", f"show {GREEDY} {OURS} --image COCO_val2014_000000226988.jpg {TRUTH} --json"
    yield (
        "show.certain",
        f"show {GREEDY} --image 226988 --truth in/dopa.json --vocabulary dopa160 --claims certain --json",
    )
    yield "show.text", f"show {EXAMPLES} --image 3 --width 80 --no-color"


def _compared() -> Cases:
    for test in TESTS:
        yield f"compare.six-{test}", scored(f"compare out/six.json --test {test}")
        yield f"compare.pope-{test}", scored(f"compare out/pope_a.json out/pope_b.json --test {test}")
        yield f"compare.amber-{test}", scored(f"compare out/amber_asked.json --test {test}")
    yield "compare.seed", scored("compare out/six.json --seed 9 -o out/compared.json", 100)
    for name in ("examples", "dopa_figures", "chair", "amber", "yesno", "phd", "mmhal", "faithscore", "augmented",
                 "density", "compared"):  # fmt: skip
        yield f"compare.{name}", scored(f"compare out/{name}.json")
    yield "compare.same-names", scored("compare out/six.json out/dopa_figures.json")
    yield "compare.benchmark-score", scored(f"compare --benchmark score {GREEDY} {OURS} {TRUTH}")
    yield "compare.benchmark-chair", scored(f"compare {GREEDY} {OURS} --benchmark chair {TRUTH}")
    yield "compare.benchmark-pope", scored(f"compare {POPE} in/pope_other.jsonl --benchmark pope {POPE_QUESTIONS}")
    for layout in ("latex", "markdown", "csv"):
        yield f"report.{layout}", f"report out/six.json out/pope_a.json out/phd.json --format {layout} --resamples 200"
    for table in "1234":
        yield (
            f"report.table-{table}",
            (
                f"report out/six.json out/amber.json out/amber_asked.json out/phd.json out/mmhal.json "
                f"out/augmented.json --format csv --table {table} --resamples 200"
            ),
        )


def _tools() -> Cases:
    for name in ("coco_chair/ground_truth.json.gz", "objhal/coco_objects.json", "captions_real/gt/coco_chair_gt.jsonl"):
        yield f"oracle.stats-{Path(name).name}", f"oracle stats data/{name} --json --top 100"
    yield "oracle.stats-dopa", "oracle stats in/dopa.json --json --vocabulary dopa160"
    yield "oracle.stats-amber", "oracle stats data/amber/annotations.json.gz --json"
    yield "oracle.stats-text", f"oracle stats {COCO}/ground_truth.json.gz"
    yield "oracle.check", f"oracle check {COCO}/ground_truth.json.gz --captions {GREEDY}"
    yield "oracle.check-dopa", "oracle check in/dopa.json --vocabulary dopa160"
    yield "oracle.check-misfit", "oracle check data/objhal/coco_objects.json --vocabulary dopa160"
    yield "oracle.convert-json", f"oracle convert {COCO}/ground_truth.json.gz -o out/truth.json"
    yield "oracle.convert-npz", "oracle convert in/dopa.json -o out/dopa.npz --vocabulary dopa160"
    yield "oracle.stats-npz", "oracle stats out/dopa.npz --json"
    yield "score.dopa-npz", scored(f"score {GREEDY} {TRUTH} --dopa out/dopa.npz")
    yield "oracle.overlap", f"oracle overlap {COCO}/ground_truth.json.gz {MODERN} --json"
    for name in FORMATS:
        yield f"import.{name}", f"import data/pope/formats/{name}"
        yield f"import.labels-{name}", f"import data/pope/formats/{name} --labels data/pope/formats/labels.jsonl"
    for name, path in {
        "captions": GREEDY,
        "captions-modern": MODERN.split()[0],
        "captions-amber": f"{AMBER}/gen_llava_base.json.gz --as captions",
        "answers-amber": f"{AMBER}/disc_messy_a.json.gz",
        "coco-results": "in/coco_results.json",
        "llava": POPE,
        "yesno": VERBOSE,
        "phd": PHD,
        "rollouts": "in/short_rollouts.jsonl",
        "verl": "in/verl.jsonl",
        "trl": "in/completions_00001.parquet",
        "questions": "data/pope/coco_pope_random.json",
        "results": "in/lmms_results.json --name system -o out/handed.json",
        "scores": "in/Qwen_MME_score.csv in/Qwen_MMBench_DEV_EN_acc.csv --name other -o out/handed_too.json",
    }.items():
        yield f"import.{name}", f"import {path}"
    yield "report.handed", "report out/handed.json out/handed_too.json --format csv"
    yield "compare.handed", "compare out/handed.json out/handed_too.json --json"
    for name in ("coco80", "dopa160"):
        yield f"vocab.stats-{name}", f"vocab stats {name} --json"
        yield f"vocab.expand-{name}", f"vocab expand {name}"
    yield "vocab.check", "vocab check dopa160"  # coco80, with ten times its aliases, takes ten times as long
    yield "vocab.stats-text", "vocab stats dopa160"
    yield "vocab.diff", "vocab diff coco80 dopa160"


def _tsv() -> Cases:
    few = "--resamples 200"
    yield "tsv.score", f"score {SIX} {TRUTH} {few}"
    yield "tsv.score-table", f"score {GREEDY} {OURS} {TRUTH} {few} --width 140 --no-color"
    yield "tsv.chair", f"chair {GREEDY} {OURS} {TRUTH} {few}"
    yield "tsv.amber", f"amber {AMBER}/gen_llava_base.json.gz {AMBER_DATA} {few}"
    yield "tsv.pope", f"pope {POPE} {POPE_QUESTIONS} {few}"
    yield "tsv.phd", f"phd {PHD} {few}"
    yield "tsv.yesno", f"yesno {VERBOSE} {few}"
    yield "tsv.mmhal", f"mmhal {MMHAL} in/mmhal_other.jsonl {few}"
    yield "tsv.faithscore", f"faithscore in/facts_a.jsonl in/facts_b.jsonl {few}"
    yield "tsv.augmented", f"augmented {PHD} in/phd_other.jsonl --benchmark phd {few}"
    yield "tsv.density", f"density in/rollouts.jsonl {TRUTH} {few}"
    yield "tsv.density-calibrate", f"density in/rollouts.jsonl {TRUTH} --calibrate {few}"
    yield "tsv.compare", f"compare out/six.json {few}"


def _refused() -> Cases:
    yield "refused.unknown-images", f"score {MODERN.split()[0]} {TRUTH} --json"
    yield "refused.bad-lines", f"score in/bad.jsonl {TRUTH}"
    yield "refused.absent", f"score absent.jsonl {TRUTH}"
    yield "refused.answers", f"score {PHD} {TRUTH}"
    yield "refused.vocabulary", f"score {GREEDY} {TRUTH} --vocabulary absent"
    yield "refused.no-truth", f"score {GREEDY}"
    yield "refused.captions-as-results", f"compare {GREEDY} {OURS}"
    yield "refused.reward-unknown-images", "reward in/rollouts.jsonl --truth data/objhal/coco_objects.json"
    yield "refused.phd-without-labels", "phd data/pope/llava-v1.5-13b.answers.jsonl"
    yield "refused.amber-bad", f"amber in/amber_bad.jsonl {AMBER_DATA}"


# --- inputs that are derived from the data --------------------------------------------------------------------------


def _read(path: Path) -> Any:
    text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
    name = path.name.removesuffix(".gz")
    return [json.loads(line) for line in text.splitlines()] if name.endswith(".jsonl") else json.loads(text)


def _lines(path: Path, records: Iterable[Any]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def _judged_claims(name: str, k: int) -> dict[str, Any]:
    """Returns verdicts on the claims of one description in the format of ``judge facts``."""
    number, known = int(9 * _draw("claims", name, k)), 1 + k % 5
    draws = [_draw("claim", name, k, j) for j in range(number)]
    return {
        "id": str(k), "image_id": str(k), "claims": [f"Claim {j}." for j in range(number)],
        "descriptive": [int(draw < 0.8) for draw in draws], "verified": [int(draw > 0.2) for draw in draws],
        "references": [f"Reference {j}." for j in range(known)],
        "matched": [j % known if draw < 0.6 else None for j, draw in enumerate(draws)],
        "answers": [("yes", "no", "unsaid")[(j + k) % 3] for j in range(known)], "judge_model": "made up",
    }  # fmt: skip


def _draw(*words: object) -> float:
    """Returns a number in [0, 1) that depends only on the words."""
    return int.from_bytes(hashlib.sha256(repr(words).encode()).digest()[:6], "big") / 2**48


def prepare(work: Path, shared: Path = SHARED) -> None:
    """Puts ``data``, ``examples`` and the derived inputs (``in``) into an empty folder."""
    (work / "data").symlink_to(shared / "data")
    (work / "examples").symlink_to(ROOT / "examples")
    (work / "out").mkdir()
    (work / "in" / "odd").mkdir(parents=True)
    _prepare_captions(work, work / "in")
    _prepare_answers(work, work / "in")
    _prepare_results(work / "in")


def _prepare_captions(work: Path, made: Path) -> None:
    truth = _read(work / COCO / "ground_truth.json.gz")["objects"]
    words = _read(work / COCO / "vocabulary.json")["aliases"]
    (made / "synonyms.txt").write_text("\n".join(", ".join(synonyms) for synonyms in words.values()))
    files = {name: _read(work / path) for name, path in (("greedy", GREEDY), ("ours", OURS))}
    files["beam5"] = _read(work / COCO / "captions/llava-1.5_beam5.jsonl")
    files["instructblip"] = _read(work / COCO / "captions/instructblip_ours.jsonl")
    _lines(made / "short_llava.jsonl", files["greedy"][:120])
    _lines(made / "short_instructblip.jsonl", files["instructblip"][:120])
    _lines(made / "plain.jsonl", files["ours"][:150])
    bad = [json.dumps(record) for record in files["greedy"][:150]]
    bad[20:20] = ["not JSON", '{"image_id": 1}', '{"image_id": 9999999, "caption": "A dog."}', '{"caption": "A dog."}']
    (made / "bad.jsonl").write_text("\n".join(bad) + "\n")
    owned = ({**record, "objects": truth[str(record["image_id"])]} for record in files["greedy"])
    _lines(made / "own_objects.jsonl", owned)
    (made / "coco_results.json").write_text(json.dumps(files["greedy"][:50]))
    responses = [
        {"image_id": record["image_id"], "response": record["caption"]}
        for group in zip(files["greedy"], files["beam5"], files["ours"], strict=True)
        for record in group
    ]
    _lines(made / "rollouts.jsonl", responses[:600])
    _lines(made / "short_rollouts.jsonl", responses[:150])
    _lines(
        made / "verl.jsonl",
        (
            {"input": "user\nDescribe.", "output": r["response"], "gts": "", "score": 0.0, "step": 1, **r}
            for r in responses[:150]
        ),
    )
    if importlib.util.find_spec("pyarrow"):
        import pyarrow
        import pyarrow.parquet

        columns = {
            "prompt": ["Describe this image."] * 150,
            "completion": [r["response"] for r in responses[:150]],
            "image_id": [str(r["image_id"]) for r in responses[:150]],
        }
        pyarrow.parquet.write_table(pyarrow.table(columns), made / "completions_00001.parquet")
    _prepare_matrix(work, made, truth)


def _prepare_matrix(work: Path, made: Path, truth: Mapping[str, list[str]]) -> None:
    """Writes a stand-in for a DOPA matrix: COCO's ground truth for COCO's labels, and random values for all other
    labels.
    """
    import yaml

    labels = list(yaml.safe_load((ROOT / "vocab" / "dopa160.yaml").read_text(encoding="utf-8"))["labels"])
    coco = set(yaml.safe_load((ROOT / "vocab" / "coco80.yaml").read_text(encoding="utf-8"))["labels"])
    known = {**_read(work / COCO / "ground_truth_full.json.gz")["objects"], **truth}
    modern = [str(int(Path(r["image_id"]).stem)) for path in MODERN.split() for r in _read(work / path)]
    objects = {
        image: [
            label
            for label in labels
            if (label in known.get(image, ()) if label in coco else _draw(image, label) < 0.15)
        ]
        for image in dict.fromkeys([*truth, *modern])
    }
    (made / "dopa.json").write_text(json.dumps({"labels": labels, "objects": objects}))


def _prepare_answers(work: Path, made: Path) -> None:
    described = _read(work / AMBER / "gen_llava_base.json.gz")
    asked = _read(work / AMBER / "disc_synth_a.json.gz")
    messy = _read(work / AMBER / "disc_messy_a.json.gz")
    (made / "amber_short.json").write_text(json.dumps(described[:150]))
    _lines(made / "amber_both.jsonl", [*described, *asked])
    _lines(made / "amber_bad.jsonl", [*asked[:200], {"id": "x", "response": "Yes"}, {"id": 1010}, *described[:50]])
    _lines(
        made / "amber_described.jsonl",
        ({**_changed(answer, "id", "response"), "description": "A room."} for answer in messy),
    )
    for case in _read(work / "data/amber/odd_inputs.json")["cases"]:
        if "input" in case:
            (made / "odd" / f"{case['name']}.json").write_text(json.dumps(case["input"]))
    _lines(made / "pope_other.jsonl", (_changed(answer, "question_id", "text") for answer in _read(work / POPE)))
    _lines(made / "verbose_other.jsonl", (_changed(answer, "id", "response") for answer in _read(work / VERBOSE)))
    _lines(made / "phd_other.jsonl", (_changed(answer, "id", "response") for answer in _read(work / PHD)))


def _changed(answer: Mapping[str, Any], key: str, text: str) -> Record:
    """Returns the answer of another system, which is sometimes the opposite, and sometimes neither yes nor no."""
    drawn = _draw("other", answer[key])
    if drawn < 0.05:
        return {**answer, text: "It cannot be told."}
    if drawn < 0.2:
        return {**answer, text: "No" if str(answer[text]).lower().startswith("yes") else "Yes"}
    return dict(answer)


def _prepare_results(made: Path) -> None:
    ratings = _read(made.parent / MMHAL)
    other = [{**r, "rating": (r["rating"] + 2 * (k % 3 == 0)) % 7} for k, r in enumerate(ratings)]
    _lines(made / "mmhal_other.jsonl", other)
    _lines(made / "mmhal_partial.jsonl", ratings[:60])
    official = [{"choices": [{"message": {"content": r["judge_text"]}}]} for r in ratings]
    official[3]["choices"][0]["message"]["content"] = "No verdict."
    (made / "mmhal_official.json").write_text(json.dumps(official))
    for name in "ab":
        _lines(made / f"claims_{name}.jsonl", [_judged_claims(name, k) for k in range(60)])
    for name, shift in (("a", 0), ("b", 1)):
        facts = [int(12 * _draw("facts", name, k)) for k in range(120)]
        verified = [round(n * _draw("verified", name, k) ** (0.5 + shift)) for k, n in enumerate(facts)]
        pairs = enumerate(zip(facts, verified, strict=True))
        _lines(made / f"facts_{name}.jsonl", ({"id": k, "facts": n, "verified": v} for k, (n, v) in pairs))
    verdicts = [[int(_draw("fact", k, i) < 0.7) for i in range(1 + k % 9)] for k in range(60)]
    (made / "facts_scores.json").write_text(json.dumps(verdicts))
    _lines(
        made / "facts_official.jsonl",
        ({"atomic_facts": [f"fact {i}" for i in range(len(v))], "fact_scores": v} for v in verdicts),
    )
    results = {
        "mme": {"mme_perception_score,none": 1717.8, "mme_cognition_score,none": 625.7},
        "mmmu_val": {"mmmu_acc,none": 0.538, "mmmu_acc_stderr,none": 0.01},
        "ai2d": {"exact_match,flexible-extract": 0.8},
    }
    document = {
        "results": results,
        "configs": {task: {"task": task} for task in results},
        "versions": dict.fromkeys(results, "Yaml"),
        "n-samples": {task: {"original": 10, "effective": 10} for task in results},
        "config": {"model": "qwen2_5_vl", "model_args": "pretrained=Qwen/Qwen2.5-VL-7B-Instruct"},
        "lmms_eval_version": "main@v0.6",
    }
    (made / "lmms_results.json").write_text(json.dumps(document))
    (made / "Qwen_MME_score.csv").write_text('"perception","reasoning","OCR"\n"1717.8","625.7","185.0"\n')
    (made / "Qwen_MMBench_DEV_EN_acc.csv").write_text('"split","Overall","AR"\n"dev","0.848","0.8"\n')


# --- running and recording ------------------------------------------------------------------------------------------

_WRITES = ("-o", "--per-caption", "--per-answer", "--prompts")
_SIGNATURE = re.compile(r"[\w.:+-]+\|[\w.+-]+:\S*")


@contextmanager
def workplace() -> Iterator[Path]:
    """Yields a folder with all inputs as the current folder, with fixed environment settings."""
    before, place = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory(prefix="safety-net-") as name:
        work = Path(name).resolve()
        prepare(work)
        os.environ.update(NLTK_DATA=str(SHARED / "nltk_data"), XDG_CACHE_HOME=str(work / "cache"), NO_COLOR="1")
        os.environ.pop("FORCE_COLOR", None)
        os.chdir(work)
        try:
            yield work
        finally:
            os.chdir(place)
            os.environ.clear()
            os.environ.update(before)


_opened: Counter[str] | None = None


def _count_open(event: str, arguments: tuple[Any, ...]) -> None:
    """Counts how often each file is opened for reading while a command runs, as an audit hook."""
    if event == "open" and _opened is not None and isinstance(arguments[0], (str, bytes)) and arguments[1] != "w":
        _opened[os.path.realpath(os.fsdecode(arguments[0]))] += 1


@cache
def _install_hook() -> None:
    sys.addaudithook(_count_open)


def run(command: str, work: Path, digits: int = 12) -> Record:
    """Runs one command in this process, and records its results with ``digits`` significant digits.

    Raises:
        AssertionError: If an input is opened more than once.
    """
    global _opened
    from scapo_eval.cli.main import main

    words = shlex.split(command)
    written = [work / word for option, word in zip(words, words[1:], strict=False) if option in _WRITES]
    for path in written:
        path.unlink(missing_ok=True)
    argv, streams = sys.argv, (sys.stdout, sys.stderr)
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    sys.argv, sys.stdout, sys.stderr = ["scapo-eval", *words], out, err
    _install_hook()
    _opened = Counter()
    code: int | str | None
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            main()
        code = None
    except SystemExit as leaving:
        code = leaving.code
    except Exception as error:
        code = f"crash: {''.join(traceback.format_exception_only(error)).strip()}"
    finally:
        sys.argv, (sys.stdout, sys.stderr) = argv, streams
        opened, _opened = _opened, None
    inputs = {os.path.realpath(work / word) for word in words} - {str(path) for path in written}
    again = [path for path, times in opened.items() if path in inputs and times > 1 and os.path.exists(path)]
    assert not again, f"{command}: opened more than once: {again}"
    said = _text(err, work).splitlines()
    return {
        "command": command,
        "exit": code,
        "stdout": _content(_text(out, work), digits),
        "stderr": [
            *(line for line in said if code != 0 or line.startswith("scapo-eval: warning:")),
            *(f"{w.category.__name__}: {w.message}" for w in warned if issubclass(w.category, UserWarning)),
        ],
        "files": {
            path.relative_to(work).as_posix(): _content(path.read_text(encoding="utf-8"), digits)
            for path in written
            if path.exists() and path.suffix != ".npz"
        },
    }


def _text(stream: io.TextIOWrapper, work: Path) -> str:
    raw = stream.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]
    for path, name in ((work, "."), (SHARED, "SHARED"), (ROOT, "ROOT")):
        raw = raw.replace(str(path), name)
    return str(raw)


def _content(text: str, digits: int) -> Any:
    """Returns JSON as a document, JSON Lines as digests and sums, and any other text as lines."""
    try:
        return normal(json.loads(text), digits)
    except ValueError:
        pass
    lines = text.splitlines()
    try:
        records = [normal(json.loads(line), digits) for line in lines]
    except ValueError:
        return [_SIGNATURE.sub("SIGNATURE", line) for line in lines]
    if not records:
        return []
    sums = normal(_sums(records), digits)
    return {"lines": len(records), "sums": sums, "digests": [_digest(record) for record in records]}


def normal(value: Any, digits: int) -> Any:
    """Returns a value without signatures and accounts of files, and with rounded floats."""
    if isinstance(value, dict):
        return {key: normal(each, digits) for key, each in value.items() if key not in ("signature", "account")}
    if isinstance(value, list):
        return [normal(each, digits) for each in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def _sums(records: Sequence[Any]) -> dict[str, float]:
    """Returns the sum of the numbers, or of the lengths of the lists, for each key."""
    columns: dict[str, list[float]] = {}
    for record in records:
        for key, value in record.items() if isinstance(record, dict) else ():
            if isinstance(value, (int, float, list)):
                columns.setdefault(key, []).append(len(value) if isinstance(value, list) else value)
    return {key: math.fsum(values) for key, values in columns.items()}


def _digest(record: Any) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:12]


def record(folder: Path) -> None:
    """Records all cases into an empty or new folder."""
    import scapo_eval

    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder} is not empty; record into a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"code: {Path(scapo_eval.__file__).parent}", file=sys.stderr)
    target, spent = folder.resolve(), {}
    try:
        with workplace() as work:
            for name, command in cases(work).items():
                began = time.monotonic()
                text = json.dumps(run(command, work), indent=1, sort_keys=True, ensure_ascii=False)
                (target / f"{name}.json").write_text(text + "\n", encoding="utf-8")
                spent[name] = time.monotonic() - began
    except BaseException:
        shutil.rmtree(target)  # half a recording would compare as missing cases
        raise
    slowest = ", ".join(f"{name} {spent[name]:.1f} s" for name in sorted(spent, key=spent.__getitem__)[:-6:-1])
    print(f"{len(spent)} cases in {sum(spent.values()):.0f} s (slowest: {slowest}) -> {folder}", file=sys.stderr)


# --- comparing ------------------------------------------------------------------------------------------------------


def differences(a: Any, b: Any, path: str = "") -> Iterator[str]:
    """Yields ``path: a -> b`` for every leaf in which two JSON values differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]):
            yield from differences(a.get(key, "(absent)"), b.get(key, "(absent)"), f"{path}/{key}")
    elif isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            extra = max(a, b, key=len)[min(len(a), len(b))]
            yield f"{path}: {len(a)} -> {len(b)} entries, the first without a counterpart: {_brief(extra)}"
        for k, (one, other) in enumerate(zip(a, b, strict=False)):
            yield from differences(one, other, f"{path}/{k}")
    elif type(a) is not type(b) or a != b:
        yield f"{path}: {_brief(a)} -> {_brief(b)}"


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


def compare(before: Path, after: Path, ignored: Sequence[str], shown: int) -> int:
    """Prints the cases that differ, and returns the exit code."""
    for folder in (before, after):
        if not any(folder.glob("*.json")):
            sys.exit(f"{folder} holds no recording")
    names = sorted({path.name for folder in (before, after) for path in folder.glob("*.json")})
    differing = 0
    for name in names:
        absent = [str(folder) for folder in (before, after) if not (folder / name).exists()]
        if absent:
            found = [f"not recorded in {absent[0]}"]
        else:
            one, other = (
                {k: v for k, v in _read(folder / name).items() if k not in ignored} for folder in (before, after)
            )
            found = list(differences(one, other))
        if found:
            differing += 1
            print(f"{name.removesuffix('.json')}: {len(found)} differences")
            print("".join(f"  {line}\n" for line in found[:shown]), end="")
    print(f"{differing} of {len(names)} cases differ" if differing else f"all {len(names)} cases are equal")
    return 1 if differing else 0


# --- golden figures -------------------------------------------------------------------------------------------------


def figures() -> dict[str, Any]:
    """Returns the counts and values of the golden cases, in the format of tests/golden/figures.json."""
    with workplace() as work:
        commands = cases(work)
        return {name: _figures(run(commands[name], work, digits=17)) for name in GOLDEN_CASES}


def _figures(case: Record) -> Record:
    said, files = case["stdout"], case["files"].values()
    lines = [each for each in (said, *files) if isinstance(each, dict) and "digests" in each]
    found: Record = {"exit": case["exit"], "lines": [{"lines": e["lines"], "sums": e["sums"]} for e in lines]}
    if isinstance(said, dict) and "systems" in said:
        found["systems"] = {
            system["name"]: {
                **{key: system[key] for key in ("n_captions", "n_images", "counts")},
                "values": {name: figure["value"] for name, figure in system["metrics"].items()},
            }
            for system in said["systems"]
        }
    return found


def renew() -> None:
    """Updates tests/golden/figures.json."""
    lines = (f"{json.dumps(name)}: {json.dumps(case)}" for name, case in figures().items())
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(GOLDEN_CASES)} cases -> {GOLDEN}; look at the difference (git diff) and say why in the commit")


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("record", help="record every case").add_argument("folder", type=Path)
    comparing = verbs.add_parser("compare", help="list what differs between two recordings")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument(
        "--ignore", action="append", default=[], choices=["exit", "stdout", "stderr", "files"], help="part to leave out"
    )
    comparing.add_argument("--show", type=int, default=5, metavar="N", help="differences shown per case (default: 5)")
    verbs.add_parser("golden", help="renew tests/golden/figures.json")
    options = parser.parse_args()
    if options.verb == "compare":
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # | head
        return compare(options.before, options.after, [*options.ignore, "command"], options.show)
    if not (SHARED / "data").is_dir():
        sys.exit(f"no real data at {SHARED}")
    if options.verb == "record":
        record(options.folder)
    else:
        renew()
    return 0


if __name__ == "__main__":
    sys.exit(main())
