"""Examples of commands, for their help pages and their pages in ``docs/cli``. The record of a benchmark contains the
example of its command, and this module contains all others.

Tests run the examples in a folder that contains the output of ``scapo-eval example`` and the files of the example.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..results.benchmark import BENCHMARK_OF, CommandExample, find_benchmark

_CAPTIONS = "examples/captions_baseline.jsonl"
_ALIGNED = "examples/captions_aligned.jsonl"
_TRUTH = "--truth examples/truth.json"


def broken(line: str) -> str:
    """Returns a command line in lines of at most 78 characters, which end in backslashes."""
    lines = [""]
    for word in line.split():
        if lines[-1] and len(lines[-1]) + len(word) > 75:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return " \\\n  ".join(lines)


def _example(*lines: str, **files: str) -> CommandExample:
    return CommandExample(lines, {name.replace("_", "."): content for name, content in files.items()})


def _elsewhere(*lines: str) -> CommandExample:
    return CommandExample(lines, runs=False)


_RESULTS = (
    f"scapo-eval score base={_CAPTIONS} {_TRUTH} -o base.json",
    f"scapo-eval score ours={_ALIGNED} {_TRUTH} -o ours.json",
)
_ROLLOUTS = """\
{"image_id": 3, "response": "A dog waits. A cat sleeps."}
{"image_id": 3, "response": "People eat at a dining table."}
"""
_LLAVA = '{"question_id": 3, "prompt": "Describe.", "text": "A dog.", "model_id": "llava"}\n'
_PETS = """\
name: pets
labels:
  dog: [dog, dogs, puppy, puppies]
  cat: [cat, cats]
"""
_FACTS = """\
{"id": 1, "image_id": 3, "facts": ["There is a dog.", "It sleeps."], "verified": [1, 0]}
"""
_MODEL = "--engine vllm --model Qwen2.5-VL-7B-Instruct/"
_JUDGE = "--model JUDGE --base-url http://127.0.0.1:8000/v1"

EXAMPLES: Mapping[str, CommandExample] = {
    "labels": _example(f"scapo-eval labels {_CAPTIONS} {_TRUTH}"),
    "power": _example(*_RESULTS, "scapo-eval power base.json ours.json"),
    "compare": _example(*_RESULTS, "scapo-eval compare base.json ours.json"),
    "validate": _elsewhere(f"scapo-eval validate judgments.jsonl {_TRUTH}"),
    "protocol list": _example("scapo-eval protocol list"),
    "protocol show": _example("scapo-eval protocol show chair-opera"),
    "protocol check": _example(f"scapo-eval protocol check {_CAPTIONS} --protocol chair-opera"),
    "reward": _example(f"scapo-eval reward rollouts.jsonl {_TRUTH}", rollouts_jsonl=_ROLLOUTS),
    "describe": _elsewhere(f"scapo-eval describe images/ {_MODEL} -o captions.jsonl"),
    "answer": _elsewhere(f"scapo-eval answer questions.jsonl --images-root images/ {_MODEL} -o answers.jsonl"),
    "judge mmhal": _elsewhere(f"scapo-eval judge mmhal answers.jsonl {_JUDGE} -o ratings.jsonl"),
    "judge faithscore": _elsewhere(
        f"scapo-eval judge faithscore answers.jsonl --images-root images/ {_JUDGE} -o facts.jsonl"
    ),
    "judge objhal": _elsewhere(f"scapo-eval judge objhal captions.jsonl {_JUDGE} -o objects.jsonl"),
    "judge facts": _elsewhere(
        f"scapo-eval judge facts captions.jsonl --images-root images/ {_JUDGE} -o verdicts.jsonl"
    ),
    "judge uses": _elsewhere(f"scapo-eval judge uses captions.jsonl {_JUDGE} -o uses.jsonl"),
    "judge claims": _elsewhere(
        f"scapo-eval judge claims captions.jsonl --images-root images/ {_JUDGE} -o answers.jsonl"
    ),
    "merge": _elsewhere("scapo-eval merge captions.0-of-2.jsonl captions.1-of-2.jsonl -o captions.jsonl"),
    "doctor": _elsewhere("scapo-eval doctor"),
    "example": _example("scapo-eval example"),
    "show": _example(f"scapo-eval show {_CAPTIONS} {_TRUTH} --image 3"),
    "report": _example(f"scapo-eval report {_CAPTIONS} {_ALIGNED} {_TRUTH} --format markdown"),
    "plot": _elsewhere("scapo-eval plot frontier base.json ours.json -o frontier.svg"),
    "import": _example("scapo-eval import answers.jsonl", answers_jsonl=_LLAVA),
    "export": _example(*_RESULTS, "scapo-eval export base.json --to eee -o eee.json"),
    "pairs": _elsewhere(f"scapo-eval pairs rollouts.jsonl {_TRUTH} --images images/ --format trl -o pairs.jsonl"),
    "vocab check": _elsewhere("scapo-eval vocab check pets.yaml"),
    "vocab stats": _example("scapo-eval vocab stats coco80"),
    "vocab diff": _example("scapo-eval vocab diff coco80 dopa160"),
    "vocab mine": _example(f"scapo-eval vocab mine {_CAPTIONS} -o phrases.jsonl"),
    "vocab build": _example(
        f"scapo-eval vocab mine {_CAPTIONS} -o phrases.jsonl",
        "scapo-eval vocab build phrases.jsonl --min-captions 3 -o draft.yaml",
    ),
    "vocab expand": _example("scapo-eval vocab expand pets.yaml", pets_yaml=_PETS),
    "oracle check": _example("scapo-eval oracle check examples/truth.json"),
    "oracle stats": _example("scapo-eval oracle stats examples/truth.json"),
    "oracle convert": _example("scapo-eval oracle convert examples/truth.json -o truth.npz"),
    "oracle chair": _elsewhere(
        "scapo-eval oracle chair --instances instances_val2014.json --captions captions_val2014.json -o chair.json"
    ),
    "oracle references": _example(
        "scapo-eval oracle references references.jsonl -o truth.npz",
        references_jsonl='{"image_id": 1, "references": ["A dog on a couch.", "A brown dog."]}\n',
    ),
    "oracle open-images": _elsewhere(
        "scapo-eval oracle open-images validation-labels.csv --classes class-descriptions.csv -o truth.npz"
    ),
    "oracle overlap": _example("scapo-eval oracle overlap train.jsonl examples/truth.json", train_jsonl=_ROLLOUTS),
    "annotate sample": _elsewhere("scapo-eval annotate sample train2017/ -n 1000 --exclude truth.json -o images.jsonl"),
    "annotate coarse": _elsewhere(f"scapo-eval annotate coarse images.jsonl {_JUDGE} -o runs/dopa"),
    "annotate qc draw": _elsewhere("scapo-eval annotate qc draw runs/dopa"),
    "annotate qc serve": _elsewhere("scapo-eval annotate qc serve runs/dopa --open"),
    "annotate qc status": _elsewhere("scapo-eval annotate qc status runs/dopa"),
    "annotate qc close": _elsewhere("scapo-eval annotate qc close runs/dopa"),
    "annotate qc export": _elsewhere("scapo-eval annotate qc export runs/dopa -o pairs.csv"),
    "annotate qc import": _elsewhere("scapo-eval annotate qc import runs/dopa pairs.csv"),
    "annotate refine": _elsewhere(f"scapo-eval annotate refine runs/dopa --labels knife,fork {_JUDGE}"),
    "annotate mine": _elsewhere("scapo-eval annotate mine runs/dopa rollouts.jsonl -o cells.jsonl"),
    "annotate lint": _elsewhere("scapo-eval annotate lint runs/dopa"),
    "annotate compare": _elsewhere("scapo-eval annotate compare runs/dopa runs/other"),
    "annotate status": _elsewhere("scapo-eval annotate status runs/dopa"),
    "annotate history": _elsewhere("scapo-eval annotate history runs/dopa 3 dog"),
    "annotate finalize": _elsewhere("scapo-eval annotate finalize runs/dopa -o dopa.npz"),
}
"""Command (without ``scapo-eval``) -> example, without the commands of benchmarks."""


def example_of(name: str) -> CommandExample | None:
    """Returns the example of a command, or None if it has none.

    Args:
        name: Name of the command with its groups, without the name of the program (``vocab check``).
    """
    if name in EXAMPLES:
        return EXAMPLES[name]
    record = find_benchmark(BENCHMARK_OF.get(name, name))
    return record.command_example if record is not None else None
