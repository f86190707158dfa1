"""Robustness against hostile input: valid inputs of every command are damaged on purpose, and the reactions are judged.

    python benchmarks/faults.py --cases 5000 --seed 1 [--only score] [--show 40]

A case is a command with one damaged input file. The damage affects the bytes (flips, cuts, NULs, other encodings), the
structure (another type, NaN, huge numbers, deep nesting, duplicate keys, unusual ids, a key in all records), the
container (truncated archives, bombs, pictures) or, for commands with a server, the replies of the server. In some
cases, the file is replaced by another valid file, a folder, a broken link or a pipe, or the command contains an unusual
path. Each case runs in a fork of one prepared process, in its own folder. A case passes if the command ends with 0 or a
documented code (2, 3, 4), names the damaged file if it rejects it, leaves no incomplete files, and needs at most 10
seconds of processor time and 1 GiB of memory. All cases follow from the seed. ``tests/integration/test_faults.py`` runs
some cases for each change.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import logging
import os
import random
import re
import resource
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent

SECONDS, GIBIBYTES = 10, 1.0
"""Maximum processor time and memory of a command."""

EXIT_CODES = (0, 2, 3, 4)
_MESSAGE = 100_000  # characters that a command may say on standard error: 20 faults, and warnings
_WALL = 60  # a machine under load is slow; asleep so long is a hang
_ADDRESS_SPACE = 6 * 2**30  # what a bomb may take from the machine before it is cut off

# --- valid inputs ---------------------------------------------------------------------------------------------------

LABELS = ["person", "dog", "cat", "car", "chair", "bench", "cup"]
OBJECTS = {str(k): [LABELS[j] for j in range(len(LABELS)) if (k * 7 + j * 3) % 4 == 0] for k in range(1, 7)}
TEXTS = (
    "A person walks a dog. A car is parked behind the bench.",
    "There is no cat here, but two chairs and a cup.",
    "A dog sits on a bench \u2013 caf\u00e9 style.",
)
VOCABULARY = """\
name: small
version: "1"
source: made up
include: rules.yaml
labels:
  person: {aliases: [person, man, woman], definition: A human., group: person, coco: [person]}
  dog: [dog, puppy]
  cat: {aliases: [cat], coco: cat}
  car: [car]
ignore:
  - hot dog
  - class: idiom
    reason: An idiom.
    phrases: ["raining cats{| and dogs}"]
heads: [cat]
reviewed:
  ambiguous: [dog]
"""
RULES = """\
lists:
  color: [red, green]
ignore:
  - class: color
    reason: A color.
    phrases: ["{color} car"]
kin: [man]
kin_of: [dog]
"""
CONFIG = """\
[run]
output = "run-out"
steps = 2
[model]
path = "absent-model"
[data]
train = "prompts.jsonl"
images = "images"
oracle = "truth.json"
vocabulary = "vocabulary.yaml"
prompts_per_step = 2
[rollout]
group = 3
[optim]
lr = 1e-6
[loss]
clip_low = 0.2
"""


def lines(records: Sequence[Any]) -> bytes:
    """Returns records as JSON Lines."""
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def inputs() -> dict[str, bytes]:
    """Returns name -> content of all valid text input files."""
    captions = [{"image_id": k, "caption": TEXTS[k % 3]} for k in range(1, 7)]
    responses = [
        {"image_id": k, "response": TEXTS[(k + j) % 3], "prompt": "Describe.", "sample": j}
        for k in range(1, 7)
        for j in range(2)
    ]
    asked = [
        {"question_id": k, "image": f"{k}.jpg", "text": f"Is there a {LABELS[k % 7]} in the image?", "label": "yes"}
        for k in range(1, 7)
    ]
    answers = [
        {"question_id": q["question_id"], "prompt": q["text"], "text": "Yes, there is.", "model_id": "m"} for q in asked
    ]
    box = [0, 0, 1, 1]
    categories = [{"id": j + 1, "name": label} for j, label in enumerate(LABELS)]
    cells = [(int(k), LABELS.index(label) + 1) for k, labels in OBJECTS.items() for label in labels]
    marked = [{"id": n, "image_id": k, "category_id": c, "bbox": box} for n, (k, c) in enumerate(cells, 1)]
    coco: dict[str, Any] = {
        "images": [{"id": int(k), "file_name": f"{k}.jpg"} for k in OBJECTS],
        "categories": categories,
        "annotations": marked,
    }
    lvis = {**coco, "images": [{**image, "neg_category_ids": [1], "file_name": "1.jpg"} for image in coco["images"]]}
    lvis["annotations"] = [each for each in marked if each["category_id"] != 1]
    genome = [
        {"image_id": int(k), "objects": [{"names": [label], "x": 1} for label in labels]}
        for k, labels in OBJECTS.items()
    ]
    hallusion = [
        {
            "category": "VD", "subcategory": "illusion", "visual_input": "1", "set_id": "0", "figure_id": str(k),
            "question_id": "0", "gt_answer": str(k % 2), "model_prediction": "Yes", "question": "Is it?",
            "filename": "1.png",
        }
        for k in range(4)
    ]  # fmt: skip
    lmms = [
        {"doc_id": k, "doc": {"question_id": str(k), "image_id": str(k), "question": "Is it?", "answer": "yes"},
         "filtered_resps": ["yes"], "target": "yes", "pope_accuracy": {"question_id": str(k)}}
        for k in range(1, 5)
    ]  # fmt: skip
    claims = [
        {
            "id": str(k), "image_id": str(k), "claims": ["A dog.", "A cat."], "descriptive": [1, 1],
            "verified": [1, 0], "references": ["A dog.", "A car."], "matched": [0, None], "answers": ["yes", "no"],
            "judge_model": "j",
        }
        for k in range(1, 5)
    ]  # fmt: skip
    phd = [
        {"id": f"phd/base/{k}/yes", "response": "Yes", "question": "Is there a dog?", "label": "yes",
         "mode": "base", "image": str(k), "task": "object"}
        for k in range(1, 4)
    ]  # fmt: skip
    phd_data = [
        {"image_id": f"{k:012d}", "task": "object recognition", "yes_question": "Is there a dog?",
         "no_question": "Is there a cat?", "hitem": "cat", "gt": "dog", "context": {"sec": "A.", "icc": "B."}}
        for k in range(1, 4)
    ]  # fmt: skip
    mmhal = [
        {"image_id": str(k), "question_type": "attribute", "rating": k % 7, "judge_text": f"Rating: {k % 7}"}
        for k in range(1, 9)
    ]
    amber = [
        {"id": 1, "type": "generative", "truth": ["dog", "car"], "hallu": ["cat"]},
        {"id": 2, "type": "discriminative-hallucination", "truth": "yes"},
        {"id": 3, "type": "discriminative-relation", "truth": "no"},
    ]
    relation = {word: [f"{word}s"] for word in ("dog", "cat", "car")}
    lmms_results = {
        "results": {"mme": {"mme_perception_score,none": 1717.8}, "ai2d": {"exact_match,flexible-extract": 0.8}},
        "configs": {"mme": {"task": "mme"}}, "versions": {"mme": "Yaml"}, "n-samples": {"mme": {"effective": 10}},
        "config": {"model": "m", "model_args": "pretrained=a/b"},
    }  # fmt: skip
    step = {"step": 1, "reward": 0.5, "loss": 0.1, "length": 20.0, "cap_score": 0.5, "cover_rate": 0.4, "hal_rate": 0.2}
    table = [f"{k},{label},1" for k, labels in OBJECTS.items() for label in labels]
    vlm = [f"{k}\tIs there a dog?\tYes\tYes\t{k}.jpg" for k in range(1, 4)]
    return {
        "captions.jsonl": lines(captions),
        "other.jsonl": lines([{**each, "caption": TEXTS[0]} for each in captions]),
        "captions.json": json.dumps(captions).encode(),
        "owned.jsonl": lines([{**each, "objects": OBJECTS[str(each["image_id"])]} for each in captions]),
        "rollouts.jsonl": lines(responses),
        "verl.jsonl": lines(
            [{"input": "user\nDescribe.", "output": r["response"], "gts": "", "score": 0.5, "step": 1, **r}
             for r in responses]
        ),
        "lmms.jsonl": lines(lmms),
        "lmms_log.json": json.dumps({"args": {"model": "m"}, "logs": lmms}, indent=1).encode(),
        "lmms_results.json": json.dumps(lmms_results).encode(),
        "truth.json": json.dumps({"labels": LABELS, "objects": OBJECTS}).encode(),
        "map.json": json.dumps(OBJECTS, indent=1).encode(),
        "truth.jsonl": lines([{"image_id": k, "objects": labels} for k, labels in OBJECTS.items()]),
        "coco.json": json.dumps(coco).encode(),
        "coco_captions.json": json.dumps(
            {"images": coco["images"],
             "annotations": [{"id": k, "image_id": k, "caption": TEXTS[k % 3]} for k in range(1, 7)]}
        ).encode(),
        "lvis.json": json.dumps(lvis).encode(),
        "genome.json": json.dumps(genome).encode(),
        "table.csv": "\n".join(["image_id,label,present", *table]).encode(),
        "open_images.csv": "\n".join(
            ["ImageID,Source,LabelName,Confidence", *(f"{k:06d},verification,/m/0{k % 3}x,{k % 2}" for k in range(9))]
        ).encode(),
        "classes.csv": b"/m/00x,Dog\n/m/01x,Cat\n/m/02x,Car\n",
        "vocabulary.yaml": VOCABULARY.encode(),
        "rules.yaml": RULES.encode(),
        "synonyms.txt": b"person, man, woman\ndog, puppy\ncat\ncar\nchair\nbench\ncup\n",
        "questions.jsonl": lines(asked),
        "answers.jsonl": lines(answers),
        "answers_other.jsonl": lines([{**each, "text": "No"} for each in answers]),
        "pope.json": lines([{"question": q["text"], "answer": "Yes"} for q in asked]),
        "own.jsonl": lines([{"id": k, "response": "Yes", "label": "yes", "question": "Is it?"} for k in range(4)]),
        "vlm.tsv": "\n".join(["index\tquestion\tanswer\tprediction\timage_path", *vlm]).encode(),
        "hallusion.json": json.dumps(hallusion).encode(),
        "claims.jsonl": lines(claims),
        "facts.jsonl": lines([{"id": str(k), "facts": ["a", "b"], "verified": [1, 0]} for k in range(4)]),
        "fact_counts.jsonl": lines([{"id": str(k), "facts": 3, "verified": 2} for k in range(4)]),
        "mmhal.jsonl": lines(mmhal),
        "mmhal_official.json": json.dumps(
            [{"choices": [{"message": {"content": each["judge_text"]}}]} for each in mmhal]
        ).encode(),
        "mmhal_answers.json": json.dumps(
            [{"image_id": "1.png", "question": "What?", "gt_answer": "A dog.", "model_answer": "A cat.",
              "question_type": "attribute", "image_content": ["dog"]}]
        ).encode(),
        "phd.jsonl": lines(phd),
        "phd_data.json": json.dumps(phd_data).encode(),
        "judged.jsonl": lines([{**each, "judge_objects": ["dog", "car"]} for each in captions]),
        "amber/annotations.json": json.dumps(amber).encode(),
        "amber/relation.json": json.dumps(relation).encode(),
        "amber/safe_words.txt": b"picture\nimage\n",
        "amber/query/query_all.json": json.dumps(
            [{"id": k, "image": f"AMBER_{k}.jpg", "query": "Is there a dog?"} for k in (1, 2, 3)]
        ).encode(),
        "amber.json": json.dumps(
            [{"id": 1, "response": "A dog and a cat."}, {"id": 2, "response": "Yes"}, {"id": 3, "response": "No"}]
        ).encode(),
        "pairs.json": json.dumps([["dog", "puppy"], ["car", "cars"]]).encode(),
        "protocol.json": json.dumps(
            {"name": "own", "title": "Own.", "benchmarks": ["capscore", "chair"], "counted": "captions", "records": [6],
             "prompts": ["Describe."], "decoding": {"max_new_tokens": 512}, "post_processing": "none", "truth": "COCO",
             "metrics": ["hal_rate"], "settings": {"capscore": {"claims": "all"}}, "publications": ["A paper"],
             "source": "here", "note": "none", "image_ids": {"first": 1, "last": 6}}
        ).encode(),
        "images.jsonl": lines([{"image_id": k, "image": f"{k}.png"} for k in (1, 2, 3)]),
        "prompts.jsonl": lines([{"image": f"{k}.png", "image_id": k, "prompt": "Describe."} for k in (1, 2, 3)]),
        "references.jsonl": lines([{"image_id": k, "claims": ["A dog.", "A car."]} for k in range(1, 7)]),
        "config.toml": CONFIG.encode(),
        "pairs.jsonl": lines(
            [{"images": [f"images/{k}.png"], "prompt": [{"role": "user", "content": "Describe."}],
              "chosen": [{"role": "assistant", "content": TEXTS[0]}],
              "rejected": [{"role": "assistant", "content": TEXTS[1]}]} for k in (1, 2, 3)]
        ),
        "dpo.toml": CONFIG.replace("prompts.jsonl", "pairs.jsonl").replace('images = "images"', "").encode(),
        "prompt.txt": b"Is there a {object} in the image? {definition}",
        "cells.jsonl": lines([{"image_id": "1", "label": "dog"}, {"image_id": "2", "label": "cat"}]),
        "examples/truth.json": b"{}",
        "training/metrics.jsonl": lines([{**step, "step": k} for k in range(4)]),
        "training/samples.jsonl": lines(
            [{"step": k, "image_id": "1", "response": TEXTS[k % 3], "reward": 0.5} for k in range(4)]
        ),
        "training/config.toml": CONFIG.encode(),
        "scores.csv": b'"perception","reasoning","OCR"\n"1717.8","625.7","185.0"\n',
        "qc.csv": b"image_id,label,verdict\n1,dog,yes\n",
        "judged_cells.jsonl": lines([{"image_id": "1", "label": "dog", "value": 1.0}]),
    }  # fmt: skip


def prepare(folder: Path, server: int) -> None:
    """Writes all valid inputs: text files, containers, results files, an annotation run with an open round, and shards.

    Args:
        folder: Output folder.
        server: Port of the server that answers prompts.
    """
    for name, content in inputs().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    captions = (folder / "captions.jsonl").read_bytes()
    (folder / "captions.jsonl.gz").write_bytes(gzip.compress(captions, mtime=0))
    (folder / "truth.json.gz").write_bytes(gzip.compress((folder / "truth.json").read_bytes(), mtime=0))
    import zstandard

    (folder / "captions.jsonl.zst").write_bytes(zstandard.compress(captions))
    (folder / "images").mkdir()
    from PIL import Image

    for k in range(1, 7):
        Image.new("RGB", (8, 8), (40 * k, 9, 0)).save(folder / "images" / f"{k}.png")
    _tables(folder)
    _uses(folder)
    _run_folder(folder)
    _checkpoint(folder)
    plain = f"--model m --base-url http://127.0.0.1:{server}/plain/v1 -q"
    coarse = f"annotate coarse images.jsonl --images-root images --vocabulary vocabulary.yaml {plain}"
    for command in (
        "score captions.jsonl other.jsonl --truth truth.json --vocabulary vocabulary.yaml -o results.json -q",
        "yesno answers.jsonl answers_other.jsonl --labels questions.jsonl -o yesno.json -q",
        "vocab mine rollouts.jsonl --vocabulary vocabulary.yaml --min-captions 1 -o candidates.jsonl",
        "oracle convert truth.json -o matrix.npz",
        "oracle convert truth.json -o matrix.parquet",
        f"describe images.jsonl --images-root images -o begun.jsonl {plain}",
        *(f"describe images.jsonl --images-root images -o part.jsonl --shard {k}/2 {plain}" for k in (1, 2)),
        *(f"{coarse} -o shard --shard {k}/2" for k in (1, 2)),
        f"{coarse} -o judged",
    ):
        outcome = run_case(Case(command, "", b""), folder)
        assert outcome.code == 0, (command, outcome.said)


def _tables(folder: Path) -> None:
    import openpyxl  # type: ignore[import-untyped]
    import pyarrow  # type: ignore[import-untyped]
    import pyarrow.parquet  # type: ignore[import-untyped]

    book = openpyxl.Workbook()
    book.active.append(["index", "question", "answer", "prediction"])
    for k in range(1, 5):
        book.active.append([k, "Is there a dog?", "Yes", "Yes, there is."])
    book.save(folder / "vlm.xlsx")
    columns = {"prompt": ["Describe."] * 6, "completion": list(TEXTS) * 2, "image_id": [str(k) for k in range(1, 7)]}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "trl.parquet")
    captions = {"image_id": [str(k) for k in range(1, 7)], "caption": list(TEXTS) * 2}
    pyarrow.parquet.write_table(pyarrow.table(captions), folder / "own.parquet", row_group_size=2)


def _uses(folder: Path) -> None:
    """Writes uses of mentions in which every mention is a claim."""
    from scapo_eval import AliasMatcher, Vocabulary

    matcher = AliasMatcher(Vocabulary.load(str(folder / "vocabulary.yaml")))
    about = {"vocabulary": matcher.vocabulary.identity, "judge_model": "m"}
    uses = [[{"start": each.start, "end": each.end, "use": "claim"} for each in matcher.find(text)] for text in TEXTS]
    rows = [{"caption": text, "uses": told, **about} for text, told in zip(TEXTS, uses, strict=True)]
    (folder / "uses.jsonl").write_bytes(lines(rows))


def _checkpoint(folder: Path) -> None:
    """Writes a checkpoint of two small layers in the format of ``scapo_train``."""
    import torch

    from scapo_train.checkpoint.save import Checkpoints

    torch.set_num_threads(1)
    model, optimizer = _layers()
    state = {"bad": [], "config": CONFIG, "reward": "scapo|x", "best": {"value": None, "step": 0, "waited": 0},
             "alarms": {"start": {"length": 20.0}, "said": ["length"], "raised": {}}}  # fmt: skip
    Checkpoints(folder / "checkpoints", 1).save(3, model, optimizer, state)


def _layers() -> tuple[Any, Any]:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def _run_folder(folder: Path) -> None:
    """Writes an annotation run with verdicts, prompts, an excluded image, a closed round and an open round.

    Also writes a run of claims with its claim matrix.
    """
    import numpy as np

    from scapo_eval.annotate.finalize import finalize
    from scapo_eval.annotate.prompts import Template
    from scapo_eval.annotate.qc.rounds import close_round, draw_round, open_round
    from scapo_eval.annotate.qc.summary import write_summary
    from scapo_eval.annotate.store import CellProvenance, Store
    from scapo_eval.claiming.claim import ClaimKey
    from scapo_eval.inference.sources import ImageFile
    from scapo_eval.matching.vocabulary import Vocabulary

    vocabulary = Vocabulary.load(folder / "vocabulary.yaml")
    pictures = [ImageFile(str(k), f"{k}.png", str(folder / "images" / f"{k}.png")) for k in range(1, 7)]
    prompt = Template.shipped("coarse").prompt("coarse", ["dog"], vocabulary)
    with Store.create(folder / "run", pictures, vocabulary) as store:
        rows, columns = (each.ravel() for each in np.indices(store.matrix.shape))
        store.write(rows, columns, (rows + columns) % 2, CellProvenance("coarse", prompt.id, "judge@1"))
        store.keep_prompt(prompt.id, prompt.document())
        store.exclude("6", "not a readable image")
        store.append("passes.jsonl", {"judge": "judge@1", "finished": "2026-01-01T00:00:00+00:00", "engine": {}})
        draw_round(store, random=2, present=1, at_least=1)
        with open_round(store, write=True) as round_:
            round_.answer_many([(pair, "yes") for pair in range(len(round_.answers))], by="Ada")
            close_round(store, round_)
        write_summary(store)
        store.compact()
        store.write([0], [0], [1], CellProvenance("label", "label@12345678", "judge@1", 1, "asked again"))
        draw_round(store, random=1, present=1, at_least=1)
    listed: list[ClaimKey] = [
        ("count", "dog", "2+", ""),
        ("attribute", "car", "red", ""),
        ("relation", "dog", "on", "bench"),
    ]
    with Store.create(folder / "claimed", pictures, vocabulary, {str(k): listed for k in range(1, 7)}) as store:
        rows, columns = np.nonzero(store.cells)
        store.write(rows, columns, rows % 2, CellProvenance("coarse", "claim@12345678", "judge@1"))
        store.write([0], [0], [-1], CellProvenance("coarse", "claim@12345678", "judge@1", answer="absent"))
        draw_round(store, random=2, present=1, at_least=1)
        finalize(store, str(folder / "claims.npz"))


# --- commands -------------------------------------------------------------------------------------------------------

_WORDS = {
    "TRUTH": "--truth truth.json --vocabulary vocabulary.yaml --resamples 20",
    "SMALL": "--truth truth.json --vocabulary vocabulary.yaml",
    "SERVER": "--model m --base-url {server} --tries 2 --timeout 20 -q",
    "RUN": (
        "run/run.json run/vocabulary.json run/images.jsonl run/excluded.jsonl run/sources.jsonl run/prompts.jsonl "
        "run/verdicts.npz run/verdicts.1.log run/qc/round-001.jsonl run/qc/round-002.jsonl run/qc/summary.json "
        "run/passes.jsonl"
    ),
    "CLAIMED": "claimed/run.json claimed/images.jsonl claimed/sources.jsonl",
}
_COMMANDS = """\
score captions.jsonl other.jsonl TRUTH -o out.json | captions.jsonl truth.json vocabulary.yaml rules.yaml
score captions.json TRUTH --per-caption out.jsonl | captions.json
score captions.jsonl.gz TRUTH | captions.jsonl.gz
score captions.jsonl.zst TRUTH | captions.jsonl.zst
score owned.jsonl --resamples 20 --format markdown --vocabulary vocabulary.yaml | owned.jsonl
score captions.jsonl --truth truth.json.gz --vocabulary vocabulary.yaml --resamples 20 | truth.json.gz
score captions.jsonl --truth map.json --vocabulary vocabulary.yaml --resamples 20 | map.json
score captions.jsonl --truth truth.jsonl --vocabulary vocabulary.yaml --resamples 20 | truth.jsonl
score captions.jsonl --truth coco.json --vocabulary vocabulary.yaml --resamples 20 | coco.json
score captions.jsonl --truth lvis.json --vocabulary vocabulary.yaml --resamples 20 | lvis.json
score captions.jsonl --truth genome.json --vocabulary vocabulary.yaml --resamples 20 | genome.json
score captions.jsonl --truth table.csv --vocabulary vocabulary.yaml --resamples 20 | table.csv
score captions.jsonl --truth matrix.npz --vocabulary vocabulary.yaml | matrix.npz
score captions.jsonl --truth matrix.parquet --vocabulary vocabulary.yaml | matrix.parquet
chair captions.jsonl TRUTH | captions.jsonl vocabulary.yaml
chair captions.jsonl --truth map.json --profile reference --synonyms synonyms.txt | synonyms.txt map.json
objhal judged.jsonl TRUTH | judged.jsonl
score captions.jsonl TRUTH --claims visual --uses uses.jsonl | uses.jsonl captions.jsonl
reward rollouts.jsonl SMALL --claims asserted --uses uses.jsonl -o out.jsonl | uses.jsonl
density rollouts.jsonl TRUTH | rollouts.jsonl
reward rollouts.jsonl SMALL -o out.jsonl | rollouts.jsonl truth.json
reward verl.jsonl SMALL -o out.jsonl | verl.jsonl
reward trl.parquet SMALL -o out.jsonl | trl.parquet
pairs rollouts.jsonl SMALL --images images --format trl -o out.jsonl --min-gap 0 | rollouts.jsonl
labels captions.jsonl SMALL | captions.jsonl truth.json
show captions.jsonl SMALL --width 80 | captions.jsonl truth.json
amber amber.json --data amber --resamples 20 \
    | amber.json amber/annotations.json amber/relation.json amber/safe_words.txt amber/query/query_all.json
amber amber.json --data amber --similarity pairs.json --resamples 20 | pairs.json
pope answers.jsonl --questions questions.jsonl --resamples 20 | answers.jsonl questions.jsonl
pope pope.json --questions questions.jsonl --resamples 20 --json | pope.json
yesno answers.jsonl answers_other.jsonl --labels questions.jsonl --resamples 20 | answers.jsonl questions.jsonl
yesno own.jsonl --resamples 20 | own.jsonl
yesno lmms.jsonl --resamples 20 | lmms.jsonl
yesno lmms_log.json --resamples 20 | lmms_log.json
yesno vlm.tsv --resamples 20 | vlm.tsv
yesno vlm.xlsx --resamples 20 | vlm.xlsx
hallusionbench hallusion.json --resamples 20 | hallusion.json
phd phd.jsonl --resamples 20 | phd.jsonl
phd --data phd_data.json --prompts out.jsonl | phd_data.json
mmhal mmhal.jsonl --resamples 20 | mmhal.jsonl
mmhal mmhal_official.json --resamples 20 | mmhal_official.json
facts claims.jsonl --resamples 20 | claims.jsonl
faithscore facts.jsonl --resamples 20 | facts.jsonl
faithscore fact_counts.jsonl --resamples 20 | fact_counts.jsonl
augmented answers.jsonl answers_other.jsonl --benchmark pope --questions questions.jsonl --resamples 20 \
    | answers.jsonl
compare results.json --resamples 20 | results.json
compare yesno.json --resamples 20 | yesno.json
report results.json yesno.json training -o out.html --resamples 20 SMALL \
    | results.json yesno.json training/metrics.jsonl training/samples.jsonl training/config.toml
report results.json --format csv | results.json
export results.json --to eee -o out.json | results.json
import lmms.jsonl | lmms.jsonl
import vlm.xlsx | vlm.xlsx
import vlm.tsv | vlm.tsv
import answers.jsonl | answers.jsonl
import captions.json | captions.json
import hallusion.json | hallusion.json
import trl.parquet | trl.parquet
import pope.json | pope.json
import lmms_results.json --name system -o out.json | lmms_results.json
import scores.csv --name system -o out.json | scores.csv
vocab check vocabulary.yaml | vocabulary.yaml rules.yaml
vocab stats vocabulary.yaml --json | vocabulary.yaml
vocab diff coco80 vocabulary.yaml | vocabulary.yaml rules.yaml
vocab expand vocabulary.yaml | vocabulary.yaml
vocab mine rollouts.jsonl --vocabulary vocabulary.yaml --min-captions 1 | rollouts.jsonl vocabulary.yaml
vocab build candidates.jsonl --min-captions 1 -o out.yaml | candidates.jsonl
oracle check truth.json --vocabulary vocabulary.yaml --captions captions.jsonl | truth.json captions.jsonl
oracle stats matrix.npz --json | matrix.npz
oracle stats matrix.parquet --json | matrix.parquet
oracle stats coco.json --json | coco.json
oracle convert table.csv -o out.npz | table.csv
oracle chair --instances coco.json --captions coco_captions.json --synonyms synonyms.txt -o out.json \
    | coco.json coco_captions.json synonyms.txt
oracle open-images open_images.csv --classes classes.csv -o out.npz | open_images.csv classes.csv
oracle overlap truth.json captions.jsonl | truth.json captions.jsonl
protocol check captions.jsonl --protocol protocol.json | protocol.json captions.jsonl
annotate sample images.jsonl --images-root images -n 2 -o out.jsonl | images.jsonl
annotate status run --json | RUN
annotate history run 1 dog | RUN
annotate finalize run -o out.npz --allow-unknown | RUN
annotate mine run rollouts.jsonl --no-words -o out.jsonl | RUN rollouts.jsonl
annotate qc status run --json | RUN
annotate qc export run -o out.csv | RUN
annotate qc import run qc.csv --by Ada | qc.csv run/qc/round-002.jsonl
annotate qc close run --abandon | RUN
annotate compare run run | RUN
annotate refine run --labels dog SERVER | RUN reply
annotate status claimed --json | CLAIMED
annotate qc status claimed --json | CLAIMED claimed/qc/round-001.jsonl
annotate finalize claimed -o out.npz --allow-unknown | CLAIMED
annotate coarse images.jsonl --images-root images -o new --vocabulary vocabulary.yaml --captions captions.jsonl \
    --kinds presence SERVER | images.jsonl vocabulary.yaml captions.jsonl reply
claims captions.jsonl --scenes claims.npz --vocabulary vocabulary.yaml --resamples 20 | claims.npz captions.jsonl
annotate coarse images.jsonl --images-root images -o new --vocabulary vocabulary.yaml SERVER \
    | images.jsonl vocabulary.yaml reply
describe images.jsonl --images-root images -o out.jsonl SERVER | images.jsonl reply
answer questions.jsonl --images-root images -o out.jsonl SERVER | questions.jsonl reply
judge mmhal mmhal_answers.json -o out.jsonl SERVER | mmhal_answers.json reply
judge faithscore captions.jsonl --images-root images -o out.jsonl SERVER | captions.jsonl reply
judge facts captions.jsonl --references references.jsonl -o out.jsonl SERVER | captions.jsonl references.jsonl reply
judge objhal captions.jsonl -o out.jsonl SERVER | captions.jsonl reply
judge uses captions.jsonl -o out.jsonl --vocabulary vocabulary.yaml SERVER | captions.jsonl vocabulary.yaml reply
train config.toml | config.toml prompts.jsonl truth.json vocabulary.yaml
preference dpo.toml | dpo.toml pairs.jsonl
checkpoint checkpoints | checkpoints/step-000003/state.json checkpoints/step-000003/index.json \
    checkpoints/step-000003/rank-0-0.safetensors
distributed truth.json captions.jsonl own.parquet vlm.tsv | truth.json captions.jsonl own.parquet
score captions.jsonl TRUTH --engine ray --address auto | captions.jsonl truth.json
describe images.jsonl --images-root images -o out.jsonl --engine ray --model m --engine-option max_model_len=9 \
    | images.jsonl
merge part.1-of-2.jsonl part.2-of-2.jsonl -o out.jsonl \
    | part.1-of-2.jsonl part.1-of-2.jsonl.shard.json part.2-of-2.jsonl.run.json part.2-of-2.jsonl.journal \
      part.1-of-2.jsonl.run.json part.2-of-2.jsonl.shard.json
merge shard.1-of-2 shard.2-of-2 -o out.run \
    | shard.1-of-2/shard.json shard.1-of-2/run.json shard.2-of-2/images.jsonl shard.1-of-2/passes.jsonl \
      shard.2-of-2/verdicts.0.log shard.2-of-2/sources.jsonl shard.1-of-2/answers.journal shard.2-of-2/shard.json
describe images.jsonl --images-root images -o out.jsonl --shard 2/3 SERVER | images.jsonl reply
describe images.jsonl --images-root images -o begun.jsonl SERVER \
    | begun.jsonl.journal begun.jsonl.run.json images.jsonl images/1.png
annotate coarse images.jsonl --images-root images --vocabulary vocabulary.yaml -o judged SERVER \
    | judged/answers.journal judged/run.json judged/passes.jsonl judged/images.jsonl judged/sources.jsonl \
      judged/prompts.jsonl images/2.png vocabulary.yaml
annotate coarse images.jsonl --images-root images -o new --vocabulary vocabulary.yaml --prompt prompt.txt SERVER \
    | prompt.txt images/1.png
annotate refine run --labels dog,cat --cells cells.jsonl SERVER | cells.jsonl
annotate lint run | RUN
answer questions.jsonl --images-root images -o out.jsonl --descriptions captions.jsonl SERVER \
    | questions.jsonl captions.jsonl images/1.png
judge mmhal mmhal_answers.json -o out.jsonl --prompt-file prompt.txt SERVER | prompt.txt mmhal_answers.json
judge faithscore begun.jsonl --images-root images -o out.jsonl SERVER | begun.jsonl images/3.png reply
chair captions.jsonl TRUTH --protocol protocol.json --off-protocol | protocol.json
protocol show protocol.json | protocol.json
plot frontier results.json -o out.svg | results.json
plot training training -o out.svg | training/metrics.jsonl training/config.toml
report captions.jsonl --images images -o out.html SMALL --resamples 20 | captions.jsonl images/1.png
compare captions.jsonl other.jsonl --benchmark score TRUTH | captions.jsonl other.jsonl
oracle convert truth.json -o out.npz --vocabulary vocabulary.yaml | truth.json vocabulary.yaml
example examples | examples/truth.json
plan config.toml --gpus 2xH100 --set model.path=Qwen/Qwen2.5-VL-7B-Instruct | config.toml
"""


def _commands() -> Iterator[tuple[str, tuple[str, ...]]]:
    for line in re.sub(r"\b[A-Z]{3,}\b", lambda word: _WORDS.get(word[0], word[0]), _COMMANDS).splitlines():
        command, _, files = line.partition("|")
        yield " ".join(command.split()), tuple(files.split())


COMMANDS = tuple(_commands())
"""Commands and their files to damage (``reply`` is the reply of the server)."""

# --- damage ---------------------------------------------------------------------------------------------------------

Draw = random.Random

ODD_TEXTS = (
    "", " ", "\0", "\ud800", "\x1b[31mred\x07", "\u202e\u200b", "a" * 5000, "1", "01", "-1", "1.0", "=1+1", "nan",
    "\r\n", "A\nB", "../../etc/passwd", "\U0001f600", "{", "%s%n", "COCO_val2014_000000000001.jpg", "\ufeff1",
)  # fmt: skip
ODD_PATHS = (
    "absent.jsonl", "", ".", "..", "/", "-", "/dev/null", "images", "a" * 5000, "*", "[", "[a-", "**/*", "~root",
    "\udcff", "a\nb", "\x1b[2J", "http://127.0.0.1:9/x", "file:///etc/passwd", "file://", "file:///", "s3://", "a://b", "://",
    "data:,x", "hdfs://x", "file:///%00", "images/1.png", "run", "matrix.npz", "trl.parquet", "/proc/self/mem",
    "/proc/self/environ", "=x", "a=b=c", "x=captions.jsonl", "..jsonl", "-x", "--", "@captions.jsonl", "coco80",
)  # fmt: skip
ODD_IDS = (
    "COCO_val2014_{:012d}.jpg", "{:012d}", " {} ", "{}.0", "\uff11{}", "\u00b2", "\u0661{}", "{}\n", "a/{}.jpg",
    "../{}", "{}.jpg?x=1", "http://x/{}.jpg", "-{}", "{}e0", "0x{}", "{}" + "0" * 400, "\u200b{}", "AMBER_{}.jpg",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 5, 1.5, -0.0, 2**31, 2**53, 2**63, 2**64, -(2**63) - 1, 1e308, 1e-320, [], {}, [[]],
    [None], [1], ["a"], {"a": 1}, {"": {}}, [{}], ["dog", 1], *ODD_TEXTS,
)  # fmt: skip
ODD_TOKENS = (
    "NaN", "Infinity", "-Infinity", "1e400", "1e-400", "9" * 400, "9" * 5000, "-0", "01", "+1", "0x10", "1_000",
    '"\\ud800"', '"\\udc00"', '"\\u0000"', "[" * 100 + "]" * 100, "[" * 3000 + "]" * 3000, "[" * 100000,
    '{"a":' * 3000 + "1" + "}" * 3000, "null", "undefined", '"', "//", "tru", '{"a":1,"a":2}', "18446744073709551616",
    '"\x01"', "-9223372036854775809", "1.7976931348623157e309", '"\\x"', "[1,]", "{,}",
)  # fmt: skip
YAML_TOKENS = (
    "[a]", "{a: b}", "!!map [1]", "!!seq {a: b}", "2001-99-99", "2001-01-01", "0x_", "0b_", "0o9", "!!bool maybe",
    "!!int x", "!!float x", "!!timestamp x", "!!binary '*'", "!!null x", "!!set [a]", "!!omap [a]", "!!pairs [a]",
    "!!python/object/apply:os.system [id]", "!foo bar", "*a", "&a [*a]", "&a {x: *a}", "<<: 1", "~", "null", ".inf",
    ".nan", "1e400", "9" * 5000, "190:20:30", "1:60", "-", "? [a]", "'", '"\\ud800"', '"\\0"', "|", ">", "%YAML 9",
    "[" * 3000, "[" * 3000 + "]" * 3000, "{a: " * 3000, "- " * 3000 + "a", "{<<: {a: 1}, a: 2}", "{? {a: b} : c}",
    "{1: a, 1.0: b}", "{true: a, 1: b}", "! a", "!!str [a]", "---", "...", "\t- a", "@", "`", "!!float 1_", "._",
    " ".join(["word"] * 50000), "[" + "a, " * 50000 + "]", "{a|b|c}" * 12, "{color}" * 40, "yes", "12:30:45.5",
)  # fmt: skip
TOML_TOKENS = (
    "inf", "-inf", "nan", "1e400", "9" * 400, "9" * 5000, "-1", "0", "1.5", "5", '"\\u0000"', '"\\ud800"', "[]", "{}",
    "true", "2001-01-01", "2001-99-99", "[" * 3000 + "]" * 3000, "[" * 100000, "{a={" * 500, '""', "'a'", "0x_", "1_0",
    '"\\x"', "[1, 'a']", "{a = 1, a = 2}", "07:32:00", "9223372036854775808", '"a' + "\n" + 'b"', "1e-400", '"/"',
    '"' + "a" * 5000 + '"', "2", "1.0", "-0.0", '"absent.py:f"', '"\\n"', "1000000000000",
)  # fmt: skip


def damaged(name: str, data: bytes, draw: Draw) -> bytes:
    """Returns a valid file with one or two kinds of damage that are suitable for its type."""
    ways = _WAYS.get("".join(Path(name).suffixes[-1:]), (_bytes,))
    ways = (*ways, *ways, _bytes, _encoded) if ways[0] is not _bytes else ways
    for _ in range(draw.choice((2, 5)) if draw.random() < 0.1 else 1):
        try:
            data = draw.choice(ways)(data, draw)
        except Exception:  # it is damaged already, or the library will not write such a file
            data = _bytes(data, draw)
    return data


def _bytes(data: bytes, draw: Draw) -> bytes:
    """Flips, cuts, inserts or repeats bytes."""
    out = bytearray(data)
    place = draw.randrange(len(out) + 1)
    way = draw.randrange(9)
    if way == 0:
        for _ in range(draw.choice((1, 3, 30))):
            if out:
                out[draw.randrange(len(out))] ^= 1 << draw.randrange(8)
    elif way == 1:
        del out[place:]
    elif way == 2:
        del out[place : place + draw.randrange(1, 40)]
    elif way == 3:
        out[place:place] = draw.choice((b"\0", b"\xff", b"\xed\xa0\x80", b"\xc3", b"\r", b"\n", b"\x1b[2J", b"\x0c"))
    elif way == 4:
        out[place:place] = out[place : place + draw.randrange(1, 400)]
    elif way == 5:
        out[place:place] = draw.randbytes(draw.choice((1, 8, 300)))
    elif way == 6:
        out[place : place + 1] = draw.choice((b"[", b"]", b"{", b"}", b'"', b",", b":", b"\\", b"-", b"."))
    elif way == 7:
        return draw.choice((b"", b"\n", b" ", b"\0" * 100, b"null", b"[]", b"{}", b"[{}]", b"0", b'""', b"[[]]", b"{"))
    else:
        out[place:place] = draw.choice((b"a", b"\0", b" ", b"9", b"[")) * draw.choice((1000, 1 << 20))
    return bytes(out)


def _encoded(data: bytes, draw: Draw) -> bytes:
    """Changes the encoding, the line ends or the byte-order mark, or compresses the data: truncated, with a tail, or as
    a bomb.
    """
    way = draw.randrange(6) if draw.random() < 0.95 else 6
    if way == 0:
        return data.decode("utf-8", "replace").encode(
            draw.choice(("utf-16", "utf-32", "utf-16-le", "utf-7", "cp037")), "replace"
        )
    if way == 1:
        return b"\xef\xbb\xbf" * draw.choice((1, 2)) + data
    if way == 2:
        return data.replace(b"\n", draw.choice((b"\r\n", b"\r", b"\x0b", b"\xe2\x80\xa8")))
    if draw.random() < 0.2:
        return _otherwise_packed(data, draw)
    packed = gzip.compress(data, mtime=0)
    if way == 3:
        return packed[: draw.randrange(1, len(packed))]
    if way == 4:
        return packed + draw.choice((b"tail", b"\0" * 9, packed))
    import zstandard

    if way == 5:
        framed = zstandard.compress(data)
        return framed[: draw.randrange(1, len(framed))]
    return _bomb(data, draw)


def _otherwise_packed(data: bytes, draw: Draw) -> bytes:
    """Packs the data in unsupported containers, twice, or with additional content that the format permits."""
    import bz2
    import lzma
    import tarfile

    import zstandard

    def archive(kind: str) -> bytes:
        sink = io.BytesIO()
        if kind == "tar":
            with tarfile.open(fileobj=sink, mode="w:gz") as packed:
                packed.addfile(tarfile.TarInfo("x"), io.BytesIO(b""))
        else:
            with zipfile.ZipFile(sink, "w") as zipped:
                zipped.writestr("../x", data)
        return sink.getvalue()

    named = b"\x1f\x8b\x08\x08" + b"\0" * 6 + b"n" * 70000 + b"\0"  # a name without end
    framed = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    return draw.choice(
        (
            lambda: bz2.compress(data), lambda: lzma.compress(data), lambda: archive("tar"), lambda: archive("zip"),
            lambda: gzip.compress(gzip.compress(data, mtime=0), mtime=0), lambda: named, lambda: named[:-1],
            lambda: b"\x50\x2a\x4d\x18\x04\0\0\0skip" + framed, lambda: framed + b"\x50\x2a\x4d\x18\xff\xff\xff\x7f",
            lambda: b"\x28\xb5\x2f\xfd\x00\xff" + data, lambda: zstandard.compress(gzip.compress(data, mtime=0)),
            lambda: gzip.compress(data[: len(data) // 2], mtime=0) + gzip.compress(data[len(data) // 2 :], mtime=0),
        )
    )()  # fmt: skip


_BOMB = 1 << 30
_bombs: dict[tuple[str, bytes], bytes] = {}


def _bomb(data: bytes, draw: Draw) -> bytes:
    """Returns 1 GiB of zeros, spaces or lines in 1 MB, after a valid beginning."""
    import zlib

    filling = draw.choice((b"\0", b"\n", b"{}\n"))
    kind = draw.choice(("gzip", "zstd"))
    if (kind, filling) not in _bombs:
        chunk = filling * ((1 << 20) // len(filling))
        if kind == "gzip":
            packer = zlib.compressobj(1, wbits=31)
            parts = [packer.compress(chunk) for _ in range(_BOMB >> 20)]
            _bombs[kind, filling] = b"".join(parts) + packer.flush()
        else:
            import zstandard

            sink = io.BytesIO()
            with zstandard.ZstdCompressor().stream_writer(sink, closefd=False) as stream:
                for _ in range(_BOMB >> 20):
                    stream.write(chunk)
            _bombs[kind, filling] = sink.getvalue()
    head = data if draw.random() < 0.7 else b""
    if kind == "gzip":
        return gzip.compress(head, mtime=0) + _bombs[kind, filling]
    import zstandard

    return zstandard.compress(head) + _bombs[kind, filling]


def _json(data: bytes, draw: Draw) -> bytes:
    """Changes a value, removes or duplicates a key, or inserts an unusual token in the JSON or in one of its lines."""
    try:
        text = data.decode()
        rows = (
            text.splitlines()
            if text.count("\n") > 1 and text[:1] == "{" and text.split("\n")[0][-1:] == "}"
            else [text]
        )
        place = draw.randrange(len(rows))
        value = json.loads(rows[place])
    except (ValueError, IndexError, RecursionError):
        return _bytes(data, draw)
    spots = list(_spots(value))
    way = draw.randrange(6)
    if not spots or way == 0:
        new: Any = draw.choice(ODD_VALUES)
        rows[place] = json.dumps(new)
    else:
        holder, key = draw.choice(spots)
        if way == 1 and isinstance(holder, dict):
            del holder[key]
        elif way == 2 and isinstance(holder, dict):  # a key twice
            token = json.dumps(key)
            other = json.dumps(draw.choice((*ODD_VALUES, holder[key])))
            rows[place] = json.dumps(value).replace(f"{token}:", f"{token}: {other}, {token}:", 1)
            return "\n".join(rows).encode("utf-8", "surrogatepass")
        elif way == 3:
            holder[key] = "\u2603mark\u2603"
            mark = json.dumps("\u2603mark\u2603")
            rows[place] = json.dumps(value).replace(mark, draw.choice(ODD_TOKENS), 1)
            return "\n".join(rows).encode("utf-8", "surrogatepass")
        elif way == 4 and isinstance(holder, dict):
            holder[draw.choice((*ODD_TEXTS, key.upper(), f" {key}"))] = holder.pop(key)
        else:
            holder[key] = draw.choice(ODD_VALUES)
        rows[place] = json.dumps(value, ensure_ascii=draw.random() < 0.8)
    return "\n".join(rows).encode("utf-8", "surrogatepass")


def _records(data: bytes, draw: Draw) -> bytes:
    """Changes all records: a key of each record, their form or their number, or arrays that need the most memory."""
    array = data[:1] == b"["
    rows = json.loads(data) if array else [json.loads(line) for line in data.splitlines()]
    way = draw.randrange(9) if all(isinstance(row, dict) for row in rows) else 8
    keys = sorted({key for row in rows if isinstance(row, dict) for key in row})
    key = draw.choice(keys) if keys else ""
    if way == 0:
        value = draw.choice(ODD_VALUES)
        rows = [{**row, key: value} for row in rows]
    elif way == 1:
        rows = [{**row, key: draw.choice(ODD_VALUES)} for row in rows]
    elif way == 2:
        values = [row.get(key) for row in rows]
        draw.shuffle(values)
        rows = [{**row, key: value} for row, value in zip(rows, values, strict=True)]
    elif way == 3:
        rows = [{name: value for name, value in row.items() if name != key} for row in rows]
    elif way == 4:
        odd = draw.choice(ODD_IDS)
        ids = [name for name in keys if name == "id" or name.endswith("_id")] or keys
        name = draw.choice(ids)
        numbered = ((k, row) for k, row in enumerate(rows))
        rows = [{**row, name: odd.replace("{:012d}", f"{k:012d}").replace("{}", str(k))} for k, row in numbered]
    elif way == 5:
        rows = [draw.choice(([row], {"data": row}, json.dumps(row), list(row.values()))) for row in rows]
    elif way == 6:
        rows = draw.choice((rows * 2, rows * 3000, rows[::-1], rows[:1] * 9999))
    elif way == 7:
        rows = [{f"{name}{extra}": value for name, value in row.items() for extra in ("", "_2")} for row in rows]
    else:
        filling = draw.choice((b"[],", b"{},", b'{"":0},', b'"a",', b"1,", b"[[]],", b'[""],', b"1.5,", b"null,"))
        return b"[" + filling * ((8 << 20) // len(filling)) + b"0]"
    joint = draw.choice((b"\n",) * 6 + (b"", b" ", b",\n", b"\n\n", b"\r", b"\x1e"))
    texts = [json.dumps(row, indent=2 if way == 5 and draw.random() < 0.3 else None).encode() for row in rows]
    return b"[" + b",".join(texts) + b"]" if array else joint.join(texts)


def _yaml_tree(data: bytes, draw: Draw) -> bytes:
    """Changes a value or removes a key in the tree."""
    import yaml

    value = yaml.safe_load(data)
    for _ in range(draw.choice((1, 1, 3))):
        holder, key = draw.choice(list(_spots(value)))
        if draw.random() < 0.3:
            del holder[key]
        elif isinstance(holder, dict) and draw.random() < 0.3:
            holder[draw.choice((*ODD_TEXTS, 1, None, True))] = holder.pop(key)
        else:
            holder[key] = draw.choice(ODD_VALUES)
    return bytes(yaml.safe_dump(value, allow_unicode=draw.random() < 0.5, width=draw.choice((20, 10**6))), "utf-8")


def _toml_lines(data: bytes, draw: Draw) -> bytes:
    """Changes tables and keys to forms that a section does not support."""
    rows = data.decode("utf-8", "replace").split("\n")
    head = next((row for row in rows if row.startswith("[")), "[run]")[1:-1]
    new = draw.choice(
        (
            f"[[{head}]]", f"[{head}]", f"[{head}.x]", f"{head} = 1", f"{head}.output.x = 1", "[x]", '"" = 1',
            "[[x]]\n[x.y]", "[" + ".".join("a" * 900) + "]", "a" * 70000 + " = 1",
            "\n".join(f"k{k} = {k}" for k in range(9000)),
            'credit = {scheme = "/etc/passwd:f"}', '[credit]\nscheme = "absent.py:f"', "[lora]\nrank = 99999999",
            '[lora]\ntargets = ["", 1]', "[rollout]\ngroup = 1000000000000", '[run]\ntrackers = ["x"]', "\ufeff", "\r",
            "[alarms]\nlength_factor = 0.0", "[data]\nprompts_per_step = 9223372036854775807",
            "[preference]\nbeta = -1", '[credit]\ncalculator = 1', '[model]\npath = "../../../etc"',
            '[data]\nimages = "/dev"',
        )
    )  # fmt: skip
    rows.insert(draw.randrange(len(rows) + 1), new)
    return "\n".join(rows).encode("utf-8", "surrogatepass")


def _picture(data: bytes, draw: Draw) -> bytes:
    """Changes the format, mode or size of a picture, falsifies headers, or declares more pixels than fit into
    memory.
    """
    import struct
    import zlib

    from PIL import Image

    with Image.open(io.BytesIO(data)) as opened:
        image = opened.convert("RGB")

    def saved(picture: Any, form: str, **more: Any) -> bytes:
        sink = io.BytesIO()
        picture.save(sink, form, **more)
        return sink.getvalue()

    def png(width: int, height: int, depth: int, color: int, content: bytes, *more: tuple[bytes, bytes]) -> bytes:
        head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
        chunks = ((b"IHDR", head), *more, (b"IDAT", content), (b"IEND", b""))
        said = [struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks]
        return b"\x89PNG\r\n\x1a\n" + b"".join(said)

    def plain(side: int, mode: str) -> bytes:
        depth, color, size = {"L": (8, 0, 1), "I;16": (16, 0, 2), "RGB": (8, 2, 3), "RGBA": (8, 6, 4)}[mode]
        packer = zlib.compressobj(1)
        line = bytes(1 + side * size)
        return png(side, side, depth, color, b"".join(packer.compress(line) for _ in range(side)) + packer.flush())

    bomb = zlib.compress(bytes(200 << 20), 1)
    return draw.choice(
        (
            lambda: saved(image, "EPS"), lambda: saved(image, "PPM"), lambda: saved(image, "BMP"),
            lambda: saved(image.convert("F"), "TIFF"), lambda: saved(image.convert("I"), "TIFF"),
            lambda: saved(image.convert("CMYK"), "TIFF"), lambda: saved(image, "ICO"), lambda: saved(image, "WEBP"),
            lambda: saved(image.convert("P"), "GIF", save_all=True, append_images=[image] * 3),
            lambda: saved(image.resize((1, 5000)), "PNG"), lambda: saved(image.resize((9000, 1)), "JPEG"),
            lambda: plain(10000, "L"), lambda: plain(9000, "I;16"), lambda: plain(9000, "RGBA"),
            lambda: plain(13000, "RGB"),
            lambda: png(2**31 - 1, 2**31 - 1, 8, 2, b""), lambda: png(0, 0, 8, 2, b""), lambda: png(9, 9, 8, 3, b"x"),
            lambda: png(8, 8, 8, 2, bomb), lambda: png(8, 8, 8, 2, b"", (b"iCCP", b"x\0\0" + bomb)),
            lambda: png(8, 8, 8, 2, b"", (b"zTXt", b"x\0\0" + bomb)),
            lambda: png(8, 8, 8, 2, b"", (b"eXIf", b"MM\0*" * 9)),
            lambda: b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
            lambda: _bytes(saved(image, draw.choice(("JPEG", "TIFF", "GIF", "WEBP", "BMP"))), draw),
        )
    )()  # fmt: skip


def _spots(value: Any) -> Iterator[tuple[Any, Any]]:
    pairs = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    for key, inner in pairs:
        yield value, key
        yield from _spots(inner)


def _tokens(tokens: Sequence[str]) -> Callable[[bytes, Draw], bytes]:
    def damage(data: bytes, draw: Draw) -> bytes:
        """Inserts an unusual value in a line, or duplicates, removes, indents or renames a line."""
        rows = data.decode("utf-8", "replace").split("\n")
        place = draw.randrange(len(rows))
        way, token = draw.randrange(6), draw.choice(tokens)
        if way < 3:
            head, mark, value = re.fullmatch(r"(.*?)([:=] ?|- |$)(.*)", rows[place], re.DOTALL).groups()  # type: ignore[union-attr]
            inner = [match.span() for match in re.finditer(r"[\w. ]+", value)]
            if inner and draw.random() < 0.5:
                start, end = draw.choice(inner)
                rows[place] = head + mark + value[:start] + token + value[end:]
            elif draw.random() < 0.2:
                rows[place] = token + mark + value
            else:
                rows[place] = head + (mark or ": ") + token
        elif way == 3:
            rows[place:place] = [rows[place]]
        elif way == 4:
            del rows[place]
        else:
            rows[place] = draw.choice(("  ", "\t", "- ", "# ", "")) + rows[place] + draw.choice(("", ":", " #", "]"))
        return "\n".join(rows).encode("utf-8", "surrogatepass")

    return damage


def _table(data: bytes, draw: Draw) -> bytes:
    """Changes cells to unusual values, changes their number, or inserts quotation marks."""
    rows = data.decode("utf-8", "replace").split("\n")
    place = draw.randrange(len(rows))
    mark = "\t" if "\t" in rows[0] else ","
    cells = rows[place].split(mark)
    way = draw.randrange(4)
    if way == 0:
        cells[draw.randrange(len(cells))] = str(draw.choice(ODD_VALUES))
    elif way == 1:
        cells[draw.randrange(len(cells))] = draw.choice(
            ('"', '""', "'", '"a""', "9" * 400, "nan", "inf", "1e400", "-1")
        )
    elif way == 2:
        cells *= draw.choice((2, 100))
    else:
        del cells[draw.randrange(len(cells))]
    rows[place] = mark.join(cells)
    return "\n".join(rows).encode("utf-8", "surrogatepass")


def _npz(data: bytes, draw: Draw) -> bytes:
    """Changes the type or shape of an array, removes a member, declares a too large size in a header, or inserts a
    bomb.
    """
    import numpy as np

    try:
        with np.load(io.BytesIO(data)) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception:  # damaged once already
        return _bytes(data, draw)
    name = draw.choice(list(arrays))
    way = draw.randrange(3) if draw.random() < 0.95 else 3
    if way == 0:
        del arrays[name]
    elif way == 1:
        old = arrays[name]
        arrays[name] = draw.choice(
            (
                lambda: np.array(1), lambda: np.array("x"), lambda: np.zeros((0, 0)), lambda: old[..., None],
                lambda: np.array([None, {}], dtype=object), lambda: np.full(old.shape, np.nan),
                lambda: np.zeros(old.shape, "M8[ns]"), lambda: np.zeros(old.shape, "m8[s]"),
                lambda: np.zeros(3, [("a", "i4"), ("b", "f8")]), lambda: np.zeros(old.shape, complex),
                lambda: np.array([b"\xff", b"a"]), lambda: np.zeros((2,) * 32, np.int8)[:0], lambda: old[::-1],
                lambda: np.concatenate([old, old]) if old.ndim else old, lambda: np.full(old.shape, 2**63, np.uint64),
            )
        )()  # fmt: skip
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as packed:
        for key, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=True)
            content = member.getvalue()
            if key == name and way == 2:
                content = _header(content, draw)
            packed.writestr(f"{key}.npy", content + (b"\0" * (1 << 30) if key == name and way == 3 else b""))
    return sink.getvalue()


def _header(content: bytes, draw: Draw) -> bytes:
    start = content.index(b"{")
    end = content.index(b"\n", start)
    header = draw.choice(
        (
            "{'descr': '|i1', 'fortran_order': False, 'shape': (100000, 100000), }",
            "{'descr': '|i1', 'fortran_order': False, 'shape': (-1, 5), }",
            "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '<U1000000', 'fortran_order': False, 'shape': (100000,), }",
            "{'descr': 'x', 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '|i1', 'fortran_order': 1, 'shape': 'a', }",
            "{'descr': '|i1'}",
            "[" * 90,
            "{'descr': [('a', '<i4', (3,))], 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807,), }",
        )
    )
    return content[:start] + header.encode().ljust(end - start)[: end - start] + content[end:]


def _parquet(data: bytes, draw: Draw) -> bytes:
    """Changes the type of a column, or removes or duplicates a column."""
    import datetime
    import decimal

    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(data))
    except Exception:  # damaged once already
        return _bytes(data, draw)
    k, n = draw.randrange(table.num_columns), table.num_rows
    name = table.column_names[k]
    column = draw.choice(
        (
            lambda: pa.array([datetime.datetime(2001, 1, 1)] * n), lambda: pa.array([datetime.date(2001, 1, 1)] * n),
            lambda: pa.array([datetime.time(1)] * n), lambda: pa.array([decimal.Decimal("1.5")] * n),
            lambda: pa.nulls(n), lambda: pa.array([None] * n, pa.int8()), lambda: pa.array([b"\xff"] * n),
            lambda: pa.array([[1, None]] * n), lambda: pa.array([{"a": 1}] * n), lambda: pa.array([1.5] * n),
            lambda: pa.array([float("nan")] * n), lambda: pa.array([2**64 - 1] * n, pa.uint64()),
            lambda: pa.array(["x"] * n).dictionary_encode(), lambda: pa.array([datetime.timedelta(1)] * n),
            lambda: pa.array([2**63 - 1] * n, pa.timestamp("ns")), lambda: pa.array([True] * n),
            lambda: pa.array([-(2**40)] * n, pa.timestamp("s")), lambda: pa.array([""] * n),
            lambda: pa.array([{"a": [{"b": None}]}] * n), lambda: pa.array([["x"] * 9] * n, pa.list_(pa.string(), 9)),
            lambda: pa.array([2**63 - 1] * n, pa.duration("s")), lambda: pa.array(["\0\x1b"] * n, pa.large_string()),
            lambda: pa.array([[("k", 1)]] * n, pa.map_(pa.string(), pa.int8())),
            lambda: pa.array([b"ab"] * n, pa.binary(2)),
        )
    )()  # fmt: skip
    way = draw.randrange(4) if draw.random() < 0.85 else 4
    if way == 4:
        text = pa.array(["x" * draw.choice((9, 1 << 20))])
        cells = pa.DictionaryArray.from_arrays(pa.array([0] * draw.choice((1000, 3 << 20)), pa.int32()), text)
        table = draw.choice(
            (
                lambda: table.slice(0, 0), lambda: pa.table({}), lambda: table.select([name]),
                lambda: pa.table(dict.fromkeys(table.column_names, cells)),
                lambda: table.rename_columns([""] * len(table.columns)),
                lambda: pa.table({f"c{k}": [1] for k in range(9000)}),
                lambda: pa.table({name: pa.array([[[[[1]]]]] * n)}),
            )
        )()  # fmt: skip
    elif way == 0:
        table = table.remove_column(k)
    elif way == 1:
        table = table.append_column(name, table.column(k))
    else:
        table = table.set_column(k, name, column)
    if draw.random() < 0.1:
        table = table.replace_schema_metadata({"scapo": draw.choice((b"{", b"[" * 3000, b"5", b"null", b"\xff"))})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _xlsx(data: bytes, draw: Draw) -> bytes:
    """Changes the XML of a sheet: distant rows and columns, entities, unusual types, or a bomb."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:  # damaged once already
        return _bytes(data, draw)
    sheet = "xl/worksheets/sheet1.xml"
    way = draw.choice((0, 1, 2, 3, 4, 5, 7, 8, 9)) if draw.random() < 0.95 else 6
    xml = members.get(sheet, b"")
    if way == 0:
        xml = xml.replace(b'<row r="3"', b'<row r="1048576"').replace(b'r="A3"', b'r="A1048576"')
    elif way == 1:
        xml = xml.replace(b'r="B2"', b'r="XFD2"')
    elif way == 2:
        entities = b"".join(b'<!ENTITY a%d "%s">' % (k + 1, b"&a%d;" % k * 10) for k in range(9))
        xml = b'<!DOCTYPE w [<!ENTITY a0 "ha">' + entities + b"]>" + xml.replace(b"<v>1</v>", b"<v>&a9;</v>", 1)
    elif way == 3:
        xml = xml.replace(
            b"<v>1</v>", draw.choice((b"<v>x</v>", b"<v>1e999</v>", b"<v/>", b"<v>" + b"9" * 5000 + b"</v>"))
        )
    elif way == 4:
        xml = xml.replace(b't="s"', draw.choice((b't="b"', b't="e"', b't="d"', b't="x"', b't="n"')))
    elif way == 5:
        del members[draw.choice(list(members))]
    elif way == 6:
        xml = xml.replace(
            b"</sheetData>", b'<row r="9"><c r="A9"><v>1</v></c></row>' * 3 + b" " * (600 << 20) + b"</sheetData>"
        )
    elif way == 7:
        name = draw.choice(list(members))
        members[name] = _bytes(members[name], draw)
        xml = members.get(sheet, xml)
    elif way == 9:
        name, new = draw.choice(
            (
                ("xl/_rels/workbook.xml.rels", b'Target="../../../../etc/passwd"'),
                ("xl/_rels/workbook.xml.rels", b'Target="http://127.0.0.1:9/x" TargetMode="External"'),
                ("xl/workbook.xml", b'Target="x"'),
                ("[Content_Types].xml", b'PartName="/x"'),
            )
        )
        members[name] = re.sub(rb'(Target|PartName|sheetId)="[^"]*"', new, members[name], count=1)
        entity = b'<!DOCTYPE w [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
        xml = draw.choice((xml, entity + xml.replace(b"<v>1</v>", b"<v>&a;</v>", 1), xml[:-20], b"", b"<a>" * 9000))
    else:
        xml = xml.replace(b'r="A2"', draw.choice((b'r="A0"', b'r="2"', b'r=""', b'r="A99999999999"', b'r="ZZZZ2"')))
    if sheet in members:
        members[sheet] = xml
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return sink.getvalue()


_WAYS: dict[str, tuple[Callable[[bytes, Draw], bytes], ...]] = {
    ".json": (_json, _json, _records),
    ".jsonl": (_json, _json, _records),
    ".journal": (_json, _records),
    ".yaml": (_tokens(YAML_TOKENS), _yaml_tree),
    ".toml": (_tokens(TOML_TOKENS), _toml_lines),
    ".png": (_picture,),
    ".csv": (_table,),
    ".tsv": (_table,),
    ".npz": (_npz,),
    ".parquet": (_parquet,),
    ".xlsx": (_xlsx,),
    ".txt": (_table,),
}


# --- a server that answers what the case says -----------------------------------------------------------------------

REPLY = {
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": '{"present": true}'}}
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 5},
}


def reply_of(seed: int) -> bytes:
    """Returns the complete HTTP reply for a case: a damaged completion, or damaged HTTP."""
    draw = random.Random(f"reply {seed}")
    said = draw.choice(
        (
            "yes", "[]", "null", '["a dog"]', '[{"claim": "A dog.", "descriptive": true}]', "1: yes\n2: no", "9" * 5000,
            "[" * 3000, '{"present": 5}', "\ud800\x1b[2J", "1: " + "9" * 400, "Rating: " + "9" * 400,
        )
    )  # fmt: skip
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
    body = json.dumps({**REPLY, "choices": [choice]}).encode()
    if draw.random() < 0.7:
        body = draw.choice((_json, _bytes))(body, draw)
    head = draw.choice(
        ("200 OK", "200 OK", "200 OK", "200 OK", "400 Bad", "429 Slow", "500 No", "302 Found", "204 None")
    )
    extra = draw.choice(("", "", "", "Retry-After: 999999999\r\n", "Retry-After: nan\r\n", "Retry-After: -5\r\n",
                         "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\n", "Content-Encoding: gzip\r\n",
                         "Content-Encoding: deflate\r\n", "Location: http://127.0.0.1:9/x\r\n",
                         "X: " + "a" * 9000 + "\r\n"))  # fmt: skip
    length = draw.choice((len(body),) * 5 + (0, len(body) // 2))
    return f"HTTP/1.1 {head}\r\n{extra}Content-Length: {length}\r\nConnection: close\r\n\r\n".encode() + body[:length]


def serve() -> tuple[int, int]:
    """Starts the server as a separate process, and returns its port and process id. The address /SEED/v1 selects the
    reply.
    """
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    port = listening.getsockname()[1]
    if child := os.fork():
        listening.close()
        return port, child
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listening.accept()
        if not os.fork():
            _answer(connection)
        connection.close()


def _answer(connection: socket.socket) -> NoReturn:
    try:
        connection.settimeout(5)
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(1 << 16)
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        while length and len(body) < int(length[1]):
            body += connection.recv(1 << 16)
        seed = head.split(b" ")[1].split(b"/")[1]
        valid = json.dumps(REPLY).encode()
        plain = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(valid), valid)
        connection.sendall(plain if seed == b"plain" else reply_of(int(seed)))
    finally:
        os._exit(0)


# --- running --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Command with a damaged file (empty for none), and the damaged content or its replacement."""

    command: str
    file: str
    content: bytes
    instead: str = ""


INSTEAD: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "folder": Path.mkdir,
    "link to nowhere": lambda path: path.symlink_to("absent"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to a device": lambda path: path.symlink_to("/dev/null"),
    "socket": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
    "sparse": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 5 << 30),
}
PICTURE_INSTEAD: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
}
"""Replacements only for pictures, whose names are part of the data. A user may deliberately name a pipe as an input and
wait for it.
"""


@dataclass(frozen=True)
class Outcome:
    """Result of a case.

    Attributes:
        kind: ``held``, or the kind of failure (``traceback``, ``code``, ``slow``, ``memory``, ``unnamed``,
            ``half-written``, ``long`` for a message of excessive length).
        place: File and line of a traceback.
        code: Exit code. Negative for a signal.
        said: Standard error.
        out: Standard output.
        seconds, mebibytes: Processor time, and memory in addition to that of the prepared process.
    """

    kind: str
    place: str
    code: int
    said: str
    out: str
    seconds: float
    mebibytes: float


def warm_up() -> None:
    """Imports the modules that commands need, so that forks do not import them."""
    from importlib import import_module

    for name in (
        "scapo_eval.cli.main", "scapo_eval.api", "yaml", "msgspec", "pyarrow.parquet", "openpyxl", "zstandard", "numpy",
        "PIL.Image", "rich.console", "rich.table", "scapo_train.config", "scapo_train.data", "scapo_train.plan.planner",
        "scapo_train.plan.__main__", "scapo_eval.annotate.finalize", "scapo_eval.annotate.refine", "aiohttp",
        "scapo_eval.engines.openai_http", "inflect", "nltk", "matplotlib.figure", "scapo_eval.report.plots",
        "scapo_eval.distributed.batch", "scapo_eval.distributed.files", "scapo_train.checkpoint.save",
        "scapo_train.checkpoint.resume", "scapo_train.preference.trainer", "torch.distributed.checkpoint",
    ):  # fmt: skip
        import_module(name)
    from scapo_eval.cli.main import VERBS, cli

    for verb in VERBS:
        cli.get_command(None, verb)  # type: ignore[arg-type]  # which looks into no context


def run_case(case: Case, folder: Path, *, keep: bool = False) -> Outcome:
    """Runs a case in a fork in its folder, and judges the result.

    Args:
        case: Case to run.
        folder: Folder with the other inputs, which is the current folder of the fork.
        keep: True to keep the outputs.
    """
    if case.instead:
        path = folder / case.file
        path.unlink()
        {**INSTEAD, **PICTURE_INSTEAD}[case.instead](path)
    elif case.file and case.file != "reply":
        (folder / case.file).write_bytes(case.content)
    before = _files(folder)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
        sys.stdout.flush()
        sys.stderr.flush()
        warm = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()  # a fork begins with it
        if not (child := os.fork()):
            _execute(case.command, folder, out.fileno(), said.fileno())
        _, status, used = os.wait4(child, 0)
        code = os.waitstatus_to_exitcode(status)
        texts = []
        for stream in (out, said):
            stream.seek(0)
            texts.append(stream.read(1 << 22).decode("utf-8", "replace"))
    written = [name for name in _files(folder) if name not in before]
    seconds, mebibytes = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024 - warm / 2**20
    kind, place = _judged(case, code, texts[1], written, seconds, mebibytes)
    return Outcome(kind, place, code, texts[1], texts[0] if keep else "", seconds, mebibytes)


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def _execute(command: str, folder: Path, out: int, said: int) -> NoReturn:
    """Runs the command in the fork, with limits and redirected streams."""
    code: Any = 1
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS + 1, SECONDS + 2))
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(_WALL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, stream in enumerate((nothing, out, said)):
            os.dup2(stream, number)
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w", encoding="utf-8")
        sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace")
        for name in (None, "scapo_eval", "scapo_train"):
            logging.getLogger(name).handlers.clear()  # of a test run, say, whose streams are closed by now
        os.chdir(folder)
        os.environ.update(NO_COLOR="1", XDG_CACHE_HOME=str(folder / ".cache"))
        verb, *rest = shlex.split(command)
        if verb in _IN_PART:
            code = _in_part(verb, rest)
        elif verb == "plan":
            from scapo_train.plan.__main__ import main as plan

            code = plan(rest)
        else:
            from scapo_eval.cli.main import main

            sys.argv = ["scapo-eval", verb, *rest]
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        code = 1
    os._exit(code)


def _in_part(verb: str, arguments: Sequence[str]) -> int:
    """Runs the reading part of a training run or a cluster worker, before its model or scheduler."""
    from scapo_eval.base.errors import ScapoError
    from scapo_eval.base.text import printable

    try:
        _IN_PART[verb](*arguments)
    except ScapoError as error:
        print(f"scapo: {printable(str(error))}", file=sys.stderr)
        return 2
    return 0


def _train(file: str) -> None:
    from scapo_eval.matching.vocabulary import Vocabulary
    from scapo_eval.rewarding.reward import SubsentenceReward
    from scapo_eval.truths.oracle import PresenceOracle
    from scapo_train import config, data

    settings = config.load(file)
    config.required(settings, file)
    config.from_toml(config.to_toml(settings))
    vocabulary, oracle = Vocabulary.load(settings.data.vocabulary), PresenceOracle.load(settings.data.oracle)
    SubsentenceReward(vocabulary, oracle, settings.credit.reward_config())
    sources = data.read_prompts(settings.data.train, settings.data.images, oracle)
    data.check_pictures(sources)
    data.indices_of_step(0, len(sources), settings.data.prompts_per_step, settings.run.seed, source=settings.data.train)


def _preference(file: str) -> None:
    from scapo_eval.engines.images import ImageFault
    from scapo_train import config, data
    from scapo_train.preference import trainer as preference

    settings = config.load(file)
    pairs = data.read_pairs(settings.data.train, settings.data.images)
    data.check_pictures([pair.source for pair in pairs])
    data.indices_of_step(0, len(pairs), settings.data.prompts_per_step, settings.run.seed, source=settings.data.train)
    for pair in pairs[:5]:
        for picture in pair.source.pictures:
            with contextlib.suppress(ImageFault):  # the pair is omitted
                preference.cropped(picture)


def _checkpoint_read(folder: str) -> None:
    from scapo_train.checkpoint.resume import known_state
    from scapo_train.checkpoint.save import Checkpoints
    from scapo_train.config import from_toml

    checkpoints, (model, optimizer) = Checkpoints(Path(folder), 1), _layers()
    if (newest := checkpoints.latest()) is not None:
        known_state(checkpoints.load(newest, model, optimizer), newest)
        checkpoints.load_weights(newest, model)
    assert from_toml(CONFIG)


def _distributed(truth: str, *captions: str) -> None:
    """Processes files like workers of Ray and Spark, one part after another."""
    from scapo_eval.distributed.batch import Counter as Counts
    from scapo_eval.distributed.batch import merged
    from scapo_eval.distributed.files import files_of, parts_of

    for name in captions:
        counter = Counts.of(name, truth, vocabulary="vocabulary.yaml", on_unknown_image="skip")
        parts = parts_of(files_of(name))
        counts = merged([counter.of_parts(parts.slice(k, 1)) for k in range(parts.num_rows)])
        counter.run(counts, name, on_bad_file="skip" if name == "vlm.tsv" else "fail")


_IN_PART: dict[str, Callable[..., None]] = {
    "train": _train, "preference": _preference, "checkpoint": _checkpoint_read, "distributed": _distributed,
}  # fmt: skip


def _judged(
    case: Case, code: int, said: str, written: Sequence[str], seconds: float, mebibytes: float
) -> tuple[str, str]:
    if -code in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL) or seconds > SECONDS:
        return "slow", ""
    if mebibytes > 1024 * GIBIBYTES or "MemoryError" in said:
        return "memory", ""
    if len(said) > _MESSAGE:
        return "long", said[:160]
    if "Traceback (most recent call last)" in said:
        frames = re.findall(r'File "[^"]*/((?:scapo_eval|scapo_train)/[^"]+)", line (\d+)', said)
        last = said.strip().splitlines()[-1][:160]
        return "traceback", f"{':'.join(frames[-1]) if frames else '?'} {last}"
    if code not in EXIT_CODES:
        return "code", f"{code} {said.strip()[-160:]}"
    if code == 2:
        if any(name.endswith(".part") or re.match(r"out\.", name) for name in written if ".journal" not in name):
            return "half-written", " ".join(written)
        if case.command.startswith("oracle overlap") and not said:  # what it found, said on standard output
            return "held", ""
        folders = ("run", "training", "checkpoints", "judged", "shard.1-of-2", "claimed")
        words = {case.file, *(word for word in shlex.split(case.command) if "." in word or word in folders)}
        if case.content and (
            named := re.search(r"([^\s:]+): file not found\s*$", said[-5000:])
        ):  # as the damaged file names it
            words.add(named[1])
        if " --engine ray " in case.command and "needs the extra" in said:  # before it looks at a file
            return "held", ""
        if case.file not in ("", "reply") and not any(Path(word).name in said for word in words - {"reply"}):
            return "unnamed", said.strip()[:160]
    elif any(name.endswith(".part") for name in written):
        return "half-written", " ".join(written)
    return "held", ""


def cases(number: int, seed: int, folder: Path, server: int, only: str = "") -> Iterator[Case]:
    """Yields a number of cases, distributed over the commands."""
    chosen = [entry for entry in COMMANDS if entry[0].startswith(only)]
    for k in range(number):
        draw = random.Random(f"{seed} {k}")
        command, files = chosen[k % len(chosen)]
        file = draw.choice(files)
        reply = f"http://127.0.0.1:{server}/{draw.randrange(10**9) if file == 'reply' else 'plain'}/v1"
        command, way = command.replace("{server}", reply), draw.random()
        if file == "reply":
            yield Case(command, file, b"")
        elif way < 0.04:
            yield Case(_with_odd_path(command, draw), "", b"")
        elif way < 0.09:
            places = {**INSTEAD, **PICTURE_INSTEAD} if file.endswith(".png") else INSTEAD
            yield Case(command, file, b"", draw.choice(sorted(places)))
        elif way < 0.15:
            others = sorted(path for path in folder.rglob("*") if path.is_file())
            yield Case(command, file, draw.choice(others).read_bytes())
        else:
            yield Case(command, file, damaged(file, (folder / file).read_bytes(), draw))


def _with_odd_path(command: str, draw: Draw) -> str:
    """Returns the command with another path in place of one of its files."""
    words = shlex.split(command)
    named = [k for k, word in enumerate(words) if k and ("." in word or word == "run") and "://" not in word]
    if named:  # a server's or a package's command names no file
        words[draw.choice(named)] = draw.choice(ODD_PATHS)
    return shlex.join(words)


def campaign(number: int, seed: int, only: str = "", keep: Path | None = None) -> Iterator[tuple[Case, Outcome]]:
    """Runs cases one after another."""
    warm_up()
    if keep is not None:
        keep.mkdir(exist_ok=True)
    server, process = serve()
    try:
        with tempfile.TemporaryDirectory(prefix="faults-") as name:
            valid = Path(name) / "valid"
            valid.mkdir()
            prepare(valid, server)
            for k, case in enumerate(cases(number, seed, valid, server, only)):
                place = Path(name) / "case"
                shutil.copytree(valid, place, symlinks=True)
                outcome = run_case(case, place)
                shutil.rmtree(place)
                if keep is not None and outcome.kind != "held":
                    (keep / f"{k}-{Path(case.file).name}").write_bytes(case.content[: 1 << 20])
                yield case, outcome
    finally:
        os.kill(process, signal.SIGTERM)
        os.waitpid(process, 0)


def main() -> int:
    """Runs the command line. Returns 1 if a case fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="commands that begin so")
    parser.add_argument("--show", type=int, default=30, help="different faults to show")
    parser.add_argument("--keep", type=Path, help="folder for the damaged files of cases that did not hold")
    given = parser.parse_args()
    began = time.monotonic()
    by_verb: dict[str, Counter[str]] = {}
    faults: Counter[str] = Counter()
    example: dict[str, str] = {}
    for case, outcome in campaign(given.cases, given.seed, given.only, given.keep):
        if given.keep:
            with open(given.keep / "log.txt", "a", errors="backslashreplace") as log:
                log.write(
                    f"{_verb(case.command)}\t{outcome.kind}\t{outcome.place}\t{case.command}\t{case.file}\t{case.instead}\n"
                )
        by_verb.setdefault(_verb(case.command), Counter())[outcome.kind] += 1
        if outcome.kind != "held":
            key = f"{outcome.kind} {outcome.place}"
            faults[key] += 1
            example.setdefault(key, f"{case.command}  [{case.file}: {case.instead or case.content[:60]!r}]")
    kinds = ("held", "traceback", "code", "slow", "memory", "unnamed", "half-written", "long")
    print(f"| verb | {' | '.join(kinds)} |\n|---|{'--:|' * len(kinds)}")
    for verb, counts in sorted(by_verb.items()):
        print(f"| {verb} | {' | '.join(str(counts[kind] or '') for kind in kinds)} |")
    total = sum(by_verb.values(), Counter())
    print(f"| all | {' | '.join(str(total[kind]) for kind in kinds)} |")
    places = len({key.split(" ")[1] for key in faults if key.startswith("traceback")})
    print(f"{total.total()} cases, {places} places of tracebacks, {time.monotonic() - began:.0f} s")
    for key, count in faults.most_common(given.show):
        print(f"{count:5} {key}\n        {example[key]}")
    return 1 if faults else 0


def _verb(command: str) -> str:
    verb, second = command.split()[:2]
    return f"{verb} {second}" if verb in ("annotate", "oracle", "vocab", "judge", "protocol") else verb


if __name__ == "__main__":
    sys.exit(main())
