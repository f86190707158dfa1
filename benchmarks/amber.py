"""Speed and fidelity of AMBER, compared with a direct transcription of the official script's loops on the same answers.

    python benchmarks/amber.py ../shared/data/amber [responses.json ...]

Prints the run times for each file of descriptions: the transcribed loops after tagging, NLTK's tagging alone, parity
mode (with and without its cache), and embedded mode (its loop, and the whole process). Also prints the differences
between embedded mode and the official figures. The official script additionally computes spaCy's similarities.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amber_plain import official_nouns, plain_credit, plain_scores, same_word

from scapo_eval.benchmarks.amber import Amber, AmberData, NltkNouns, read_responses


def read(path: Path) -> Any:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def run(folder: Path, path: Path) -> None:
    data = AmberData.load(folder)
    root = folder / "data" if (folder / "data").is_dir() else folder
    relation, annotations = (
        next(p for p in (root / name, root / f"{name}.gz") if p.exists())
        for name in ("relation.json", "annotations.json")
    )
    associations, entries = read(relation), read(annotations)
    answers = [answer for answer in read(path) if entries[answer["id"] - 1]["type"] == "generative"]
    texts = [answer["response"] for answer in answers]

    official_nouns("two dogs")  # NLTK's models are loaded before the clock runs
    tagging, nouns = timed(lambda: [official_nouns(text) for text in texts])
    pairs = [(entries[answer["id"] - 1], found) for answer, found in zip(answers, nouns, strict=True)]
    plain, credits = timed(
        lambda: [plain_credit(n, e["truth"], e["hallu"], associations, data.safe, same_word) for e, n in pairs]
    )
    expected = plain_scores(credits)

    tagger = NltkNouns(workers=1)
    parity = Amber(data, "parity", tagger=tagger)
    responses = read_responses(path, data, official=True)
    one_process, _ = timed(lambda: parity.score(responses))
    cached, _ = timed(lambda: parity.score(responses))
    spread, _ = timed(lambda: Amber(data, "parity", tagger=NltkNouns()).score(responses))

    responses = read_responses(path, data)
    embedded, scored = timed(lambda: Amber(data).score(responses))
    command = [sys.executable, "-m", "scapo_eval.cli.main", "amber", str(path), "--data", str(folder)]
    whole, _ = timed(lambda: subprocess.run(command, check=True, capture_output=True))

    found = scored.run.values
    print(f"{path.name}: {len(texts):,} descriptions")
    rows = [
        ("NLTK tagging alone", tagging, ""),
        ("plain loops, no vectors", plain, "without the tagging"),
        ("parity, one process", one_process, f"{100 * one_process / tagging - 100:+.0f} % of the tagging"),
        ("parity, all processors", spread, ""),
        ("parity, tagged before", cached, ""),
        ("embedded", embedded, f"{(tagging + plain) / embedded:,.0f} times as fast as tagging and plain loops"),
        ("embedded, whole process", whole, ""),
    ]
    for label, seconds, remark in rows:
        print(f"  {label:<24}{seconds:8.3f} s   {remark}".rstrip())
    for name, official in expected.items():
        value = 100 * (found[name] or 0)
        print(
            f"  embedded {name:<15}{value:8.2f} %   {value - official:+.2f} from the official script's without vectors"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="AMBER's data folder or checkout")
    parser.add_argument("responses", type=Path, nargs="*", help="files of descriptions; default: DATA/responses/gen_*")
    args = parser.parse_args()
    found = sorted(p for p in (args.data / "responses").glob("gen_*.json*") if p.name.count(".") <= 2)
    for path in args.responses or found:
        run(args.data, path)


if __name__ == "__main__":
    main()
