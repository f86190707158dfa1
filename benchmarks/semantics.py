"""Laws for all commands: values must not change silently if an input is written, ordered or damaged differently.

    python benchmarks/semantics.py --cases 5000 --seed 1 [--only "score csv"]

A case consists of a synthetic world (images, captions or answers, ground truth), a command and a law. The laws are:

- The same records in another container, through a pipe, in another order, in other blocks or with other workers give
  the same values.
- The account contains the number of written records.
- Repeated, empty, truncated or shifted records, unknown images and truncated files are reported or rejected.
- A results file with a changed number is rejected or shows the same values.

``faults.py`` checks that damaged input results in a message. This benchmark checks that it does not result in a wrong
value without a message. All cases follow from the seed. ``tests/integration/test_semantics.py`` runs some cases for
each change.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import os
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from scapo_eval.files import source

Records = list[dict[str, Any]]
Draw = random.Random

LABELS = ("dog", "cat", "car", "bench", "cup", "chair", "bird", "boat", "horse", "kite", "pizza", "clock")
INVENTED, MISSED = 0.1, 0.25


@dataclass(frozen=True)
class World:
    """Command with valid input.

    Attributes:
        arguments: Arguments of the command, without the file.
        records: Records of the file.
        text: Key of a record's text. None if records have no text.
        images: True if the ids are looked up in a ground truth.
    """

    arguments: tuple[str, ...]
    records: Records
    text: str | None
    images: bool = False


@dataclass(frozen=True)
class Said:
    """Output of a command: exit code, standard error, and the systems in its JSON output."""

    code: int
    errors: str
    systems: list[dict[str, Any]]

    @property
    def figures(self) -> Any:
        """Values, counts and number of records."""
        return [
            {key: system.get(key) for key in ("values", "counts", "n_captions", "n_records", "n_images")}
            for system in self.systems
        ]

    @property
    def announced(self) -> bool:
        """True if the command prints a message or rejects the input."""
        return self.code == 2 or bool(self.errors.strip())


def run(*arguments: object) -> Said:
    """Runs the command line in this process.

    Raises:
        AssertionError: If the exit code is not 0 or 2, or there is a traceback.
    """
    from scapo_eval.cli.main import main

    out, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with patch.object(sys, "argv", ["scapo-eval", *map(str, arguments)]), redirect_stdout(out), redirect_stderr(errors):
        try:
            code = main() or 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    text, said = (stream.buffer.getvalue().decode() for stream in (out, errors))  # type: ignore[attr-defined]
    assert code in (0, 2), f"exit code {code}: {said[-500:]}"
    systems = json.loads(text)["systems"] if code == 0 and text.startswith("{") else []
    return Said(code, said, systems)


# --- worlds ---------------------------------------------------------------------------------------------------------


def _objects(draw: Draw, n: int) -> dict[str, list[str]]:
    ids = draw.sample(range(1, 5000), n)
    return {str(k): [label for label in LABELS if draw.random() < 0.3] or [draw.choice(LABELS)] for k in ids}


def _caption(draw: Draw, present: list[str]) -> str:
    said = [label for label in LABELS if draw.random() < (1 - MISSED if label in present else INVENTED)]
    return "".join(f"There is a {label}. " for label in said) + f"It is {draw.randrange(10**6)} o'clock."


def _described(draw: Draw, folder: Path, key: str = "caption") -> tuple[Records, tuple[str, ...]]:
    objects = _objects(draw, draw.randrange(24, 70))
    path = folder / "truth.json"
    path.write_text(json.dumps({"labels": LABELS, "objects": objects}))
    each = draw.choice([1, 1, 2, 4])
    records = [{"image_id": int(k), key: _caption(draw, has)} for k, has in objects.items() for _ in range(each)]
    return records, ("--truth", str(path))


def _captions(verb: str, *options: str) -> Callable[[Draw, Path], World]:
    def world(draw: Draw, folder: Path) -> World:
        records, truth = _described(draw, folder)
        return World((verb, *truth, *options), records, "caption", images=True)

    return world


def _judged(draw: Draw, folder: Path) -> World:
    records, truth = _described(draw, folder)
    for record in records:
        record["extracted"] = [label for label in LABELS if f" {label}." in record["caption"]]
        record["judge_model"] = "j"
    return World(("objhal", *truth), records, "caption", images=True)


def _density(draw: Draw, folder: Path) -> World:
    records, truth = _described(draw, folder, "response")
    return World(("density", *truth), records, "response")


def _yesno(verb: str) -> Callable[[Draw, Path], World]:
    def world(draw: Draw, folder: Path) -> World:
        n = draw.randrange(24, 70)
        asked = [
            {"question_id": k, "image": f"{k}.jpg", "text": f"Is there a {draw.choice(LABELS)} in the image?",
             "label": draw.choice(["yes", "no"])}
            for k in range(1, n + 1)
        ]  # fmt: skip
        path = folder / "coco_pope_random.json"
        path.write_text("".join(json.dumps(q) + "\n" for q in asked))
        records = [
            {"question_id": q["question_id"], "prompt": q["text"], "text": draw.choice(["Yes.", "No.", "No, none."])}
            for q in asked
        ]
        return World((verb, "--questions", str(path)), records, "text")

    return world


def _phd(draw: Draw, folder: Path) -> World:
    records = [
        {"id": f"phd/base/{k}/{asked}", "response": draw.choice(["Yes", "No"]), "question": f"Is there a dog {k}?",
         "label": asked, "mode": "base", "image": str(k), "task": "object"}
        for k in range(1, draw.randrange(24, 50)) for asked in ("yes", "no")
    ]  # fmt: skip
    return World(("phd",), records, "response")


def _hallusion(draw: Draw, folder: Path) -> World:
    records = [
        {"category": "VD", "subcategory": "illusion", "visual_input": "1", "set_id": str(k // 4),
         "figure_id": str(k % 4), "question_id": "0", "gt_answer": str(k % 2),
         "model_prediction": draw.choice(["Yes", "No"]), "question": f"Is it {k}?", "filename": f"{k}.png"}
        for k in range(draw.randrange(24, 50))
    ]  # fmt: skip
    return World(("hallusionbench",), records, "model_prediction")


def _mmhal(draw: Draw, folder: Path) -> World:
    kinds = ("attribute", "adversarial", "comparison", "counting", "relation", "environment", "holistic", "other")
    records = [
        {"image_id": str(k), "question_type": kinds[k % 8], "rating": (rating := draw.randrange(7)),
         "judge_text": f"Rating: {rating} of {k}"}
        for k in range(96)
    ]  # fmt: skip
    return World(("mmhal",), records, None)


def _facts(draw: Draw, folder: Path) -> World:
    records = [
        {"id": str(k), "image_id": str(k), "claims": [f"A dog {k}.", "A cat."], "descriptive": [1, 1],
         "verified": [draw.randrange(2), draw.randrange(2)], "references": ["A dog.", "A car."], "matched": [0, None],
         "answers": ["yes", "no"], "judge_model": "j"}
        for k in range(1, draw.randrange(24, 50))
    ]  # fmt: skip
    return World(("facts",), records, None)


def _faithscore(draw: Draw, folder: Path) -> World:
    records = [
        {"id": str(k), "image_id": str(k), "facts": [f"a {k}", "b"], "verified": [draw.randrange(2), draw.randrange(2)]}
        for k in range(draw.randrange(24, 50))
    ]
    return World(("faithscore",), records, None)


def _amber(draw: Draw, folder: Path) -> World:
    data = folder / "amber"
    (data / "query").mkdir(parents=True)
    n = draw.randrange(30, 60)
    items: list[dict[str, Any]] = []
    records: Records = []
    for k in range(1, n + 1):
        if k % 2:
            truth = [label for label in LABELS if draw.random() < 0.3] or ["dog"]
            items.append(
                {"id": k, "type": "generative", "truth": truth, "hallu": [w for w in LABELS if w not in truth]}
            )
            records.append({"id": k, "response": _caption(draw, truth)})
        else:
            items.append({"id": k, "type": "discriminative-attribute-state", "truth": draw.choice(["yes", "no"])})
            records.append({"id": k, "response": draw.choice(["Yes", "No"])})
    (data / "annotations.json").write_text(json.dumps(items))
    (data / "relation.json").write_text(json.dumps({label: [label] for label in LABELS}))
    (data / "safe_words.txt").write_text("picture\n")
    asked = [{"id": k, "image": f"AMBER_{k}.jpg", "query": f"Is it {k}?"} for k in range(1, n + 1)]
    (data / "query" / "query_all.json").write_text(json.dumps(asked))
    return World(("amber", "--data", str(data)), records, "response")


WORLDS: Mapping[str, Callable[[Draw, Path], World]] = {
    "score": _captions("score"),
    "score visual": _captions("score", "--claims", "visual"),
    "chair": _captions("chair"),
    "objhal": _judged,
    "density": _density,
    "pope": _yesno("pope"),
    "yesno": _yesno("yesno"),
    "phd": _phd,
    "hallusionbench": _hallusion,
    "mmhal": _mmhal,
    "facts": _facts,
    "faithscore": _faithscore,
    "amber": _amber,
}

# --- containers -----------------------------------------------------------------------------------------------------


def lines(records: Records) -> bytes:
    """Returns records as JSON Lines."""
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def _table(records: Records, delimiter: str) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows({k: json.dumps(v) if isinstance(v, list) else v for k, v in each.items()} for each in records)
    return text.getvalue().encode()


def _parquet(records: Records) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), sink, row_group_size=17)
    return sink.getvalue()


CONTAINERS: Mapping[str, Callable[[Records], bytes]] = {
    "array": lambda records: json.dumps(records).encode(),
    "indented array": lambda records: json.dumps(records, indent=1).encode(),
    "gz": lambda records: gzip.compress(lines(records)),
    "gz of two": lambda records: gzip.compress(lines(records[:9])) + gzip.compress(lines(records[9:])),
    "csv": lambda records: _table(records, ","),
    "tsv": lambda records: _table(records, "\t"),
    "parquet": _parquet,
    "blank lines": lambda records: lines(records).replace(b"\n", b"\n\n \r\n"),
    "bom": lambda records: b"\xef\xbb\xbf" + lines(records),
    "no last end": lambda records: lines(records).rstrip(b"\n"),
}

TABLES = ("csv", "tsv", "parquet")
JSON_ONLY = ("amber", "facts", "faithscore", "objhal")
"""Commands whose records contain lists, or whose files are JSON by definition."""

# --- laws -----------------------------------------------------------------------------------------------------------


class Law:
    """One case, with a world on disk."""

    def __init__(self, world: World, draw: Draw, folder: Path) -> None:
        self.world, self.draw, self.folder = world, draw, folder
        self.path = self.write("a.jsonl", lines(world.records))
        self.plain = self.run(self.path)
        assert self.plain.code == 0, f"the valid input is refused: {self.plain.errors}"

    def write(self, name: str, content: bytes) -> Path:
        """Writes a file in the folder of the case."""
        (self.folder / name).write_bytes(content)
        return self.folder / name

    def run(self, path: object, *more: object) -> Said:
        """Runs the command on a file."""
        verb, *options = self.world.arguments
        return run(verb, path, *options, "--resamples", 20, "--json", *more)

    def same(self, other: Said, what: str) -> None:
        """Fails if the values differ from those of the original file."""
        assert other.code == 0, f"{what} is refused: {other.errors[-300:]}"
        assert other.figures == self.plain.figures, f"{what}: other figures"

    def said(self, other: Said, what: str) -> None:
        """Fails if values differ and there is no message."""
        if other.code == 0 and other.figures == self.plain.figures:
            return
        fresh = other.code == 2 or set(other.errors.splitlines()) - set(self.plain.errors.splitlines())
        assert fresh, f"{what}: other figures, not a word"

    def container(self) -> None:
        """Writes the same records in another container."""
        name = self.draw.choice(sorted(CONTAINERS))
        if self.world.arguments[0] in JSON_ONLY and name in TABLES:
            name = "array"
        self.same(self.run(self.write("a.x", CONTAINERS[name](self.world.records))), name)

    def pipe(self) -> None:
        """Sends the same bytes through a named pipe, compressed or uncompressed."""
        fifo = self.folder / "a.fifo"
        os.mkfifo(fifo)
        content = self.draw.choice([lines, CONTAINERS["gz"], CONTAINERS["array"]])(self.world.records)
        writer = threading.Thread(target=fifo.write_bytes, args=(content,), daemon=True)
        writer.start()
        done = self.run(fifo)
        writer.join(10)
        self.same(done, "a pipe")

    def stdin(self) -> None:
        """Sends the same bytes through standard input."""
        content = self.draw.choice([lines, CONTAINERS["gz"], CONTAINERS["array"]])(self.world.records)
        with patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(content))):
            self.same(self.run("-"), "standard input")

    def order(self) -> None:
        """Writes the same records in another order."""
        mixed = self.draw.sample(self.world.records, len(self.world.records))
        self.same(self.run(self.write("a.x", lines(mixed))), "another order")

    def blocks(self) -> None:
        """Uses other blocks and other workers."""
        size = self.draw.randrange(40, 3000)
        names = {"BLOCK_BYTES": size, "ARRAY_BLOCK": 1 + size // 100, "PARSED_BLOCK": 1 + size // 70}
        names["ARROW_BLOCK"] = 1 + size // 90
        names_of_forms = ["array", "gz"] if self.world.arguments[0] in JSON_ONLY else ["array", "csv", "parquet", "gz"]
        form = self.draw.choice([lines, *(CONTAINERS[name] for name in names_of_forms)])
        with patch.multiple("scapo_eval.readers.captions", **names):
            workers = ("--workers", 2) if self.world.images and self.draw.random() < 0.15 else ()
            self.same(self.run(self.write("a.x", form(self.world.records)), *workers), f"blocks of {size}")

    def conserved(self) -> None:
        """Checks that the account contains the number of written records."""
        name = self.draw.choice(["lines", *sorted(CONTAINERS)])
        if self.world.arguments[0] in JSON_ONLY and name in TABLES:
            name = "lines"
        form = lines if name == "lines" else CONTAINERS[name]
        path = self.write("a.x", form(self.world.records))
        [system] = self.run(path).systems[:1]
        account = system["account"]
        assert account["records"] == len(self.world.records), f"{name}: {account['records']} records"
        assert account["bytes"] == path.stat().st_size, f"{name}: {account['bytes']} bytes"

    def repeated(self) -> None:
        """Writes some records twice, like a resumed job."""
        again = self.draw.choices(self.world.records, k=self.draw.randrange(1, 30))
        records = [*self.world.records, *again]
        done = self.run(self.write("a.x", lines(records)))
        self.said(done, "repeated records")

    def shifted(self) -> None:
        """Replaces texts by those of the next record."""
        key = self.world.text
        by = self.draw.choice([-2, -1, 1, 2, 3])
        texts = [record[key] for record in self.world.records]  # type: ignore[index]
        texts = texts[by:] + texts[:by]
        records = [{**record, key: text} for record, text in zip(self.world.records, texts, strict=True)]  # type: ignore[dict-item]
        each = len(texts) // len({record["image_id"] for record in records})
        if abs(by) >= each:  # else some captions are still of their image
            self.said(self.run(self.write("a.x", lines(records))), f"texts shifted by {by}")

    def emptied(self) -> None:
        """Replaces some texts by empty texts or white space."""
        records = [dict(record) for record in self.world.records]
        for record in self.draw.sample(records, self.draw.randrange(1, 6)):
            record[self.world.text or ""] = self.draw.choice(["", " ", "\n", "nan", "NaN", "None"])
        self.said(self.run(self.write("a.x", lines(records))), "empty texts")

    def unfinished(self) -> None:
        """Truncates some texts, like a token limit."""
        records = [dict(record) for record in self.world.records]
        for record in self.draw.sample(records, len(records) // 3):
            text = record[self.world.text or ""]
            record[self.world.text or ""] = text[: self.draw.randrange(2, max(3, len(text) - 4))].rstrip(". ") + " and"
        self.said(self.run(self.write("a.x", lines(records))), "unfinished texts")

    def strange(self) -> None:
        """Assigns some records to images outside of the ground truth."""
        records = [dict(record) for record in self.world.records]
        changed = self.draw.sample(records, self.draw.randrange(1, len(records)))
        for record in changed:
            record["image_id"] += 10_000
        path = self.write("a.x", lines(records))
        self.said(self.run(path), "unknown images")
        done = self.run(path, "--on-unknown-image", "skip")
        if done.code == 0:
            assert done.systems[0]["counts"]["unknown_images"] == len(changed), "unknown images are miscounted"

    def cut(self) -> None:
        """Ends the file in the middle of a record."""
        form = self.draw.choice(["lines", "array", "gz", "parquet"])
        content = lines(self.world.records) if form == "lines" else CONTAINERS[form](self.world.records)
        end = self.draw.randrange(len(content) // 4, len(content) - 1)
        if form == "lines" and b"\n" in content[end - 1 : end + 1]:
            end -= 3  # between records nothing shows that some are missing
        done = self.run(self.write("a.x", content[:end]))
        assert done.code == 2, f"{form} cut at {end} of {len(content)} is read"

    def rewritten(self) -> None:
        """Writes to the file while it is read."""
        path = self.write("a.x", lines(self.world.records))
        os.utime(path, (1, 1))  # a file of long ago
        content, inode, real = path.read_bytes(), path.stat().st_ino, source._read_at
        how = self.draw.choice(["longer", "other words", "cut"])
        new = {"longer": content + content[:200], "other words": content.replace(b"e", b"a"), "cut": content[:-40]}[how]
        done = False

        def read(descriptor: int, buffer: memoryview, offset: int) -> int:
            nonlocal done
            n = real(descriptor, buffer, offset)
            if not done and os.fstat(descriptor).st_ino == inode:
                done = True
                with open(path, "r+b") as stream:
                    stream.write(new)
                    stream.truncate()
            return n

        with patch.object(source, "_read_at", read):
            said = self.run(path)
        assert said.code == 2, f"a file that became {how} while it was read is scored"

    def truth(self) -> None:
        """Writes the same ground truth in another format and order."""
        name = self.draw.choice(["table", "npz", "parquet", "gz", "reversed"])
        given = json.loads((self.folder / "truth.json").read_text())
        backwards = {**given, "objects": dict(reversed(given["objects"].items()))}
        if name in ("npz", "parquet"):
            assert run("oracle", "convert", self.folder / "truth.json", "-o", self.folder / f"t.{name}").code == 0
            path = self.folder / f"t.{name}"
        elif name == "table":
            rows = [f"{image},{label}" for image, labels in given["objects"].items() for label in labels]
            path = self.write("t.csv", "\n".join(["image_id,label", *rows]).encode())
            if {label for labels in given["objects"].values() for label in labels} != set(LABELS):
                return  # a table has no axis of its own
        elif name == "gz":
            path = self.write("t.json.gz", gzip.compress(json.dumps(given).encode()))
        else:
            path = self.write("t.json", json.dumps(backwards).encode())
        at = self.world.arguments.index("--truth") + 1
        verb, *options = (*self.world.arguments[:at], str(path), *self.world.arguments[at + 1 :])
        self.same(run(verb, self.path, *options, "--resamples", 20, "--json"), f"the truth as {name}")

    def results(self) -> None:
        """Changes one number in a results file."""
        path = self.folder / "r.json"
        assert self.run(self.path, "-o", path).code == 0
        saved = json.loads(path.read_text())
        spots = list(_numbers(saved["systems"], ()))
        *way, last = self.draw.choice(spots)
        at: Any = saved["systems"]
        for step in way:
            at = at[step]
        at[last] = at[last] + self.draw.choice([1, 3, 1000]) if isinstance(at[last], int) else at[last] * 0.5 + 0.001
        changed = self.write("changed.json", json.dumps(saved).encode())
        before, after = (run("compare", file, "--json", "--resamples", 20) for file in (path, changed))
        if after.code == 2:
            return
        assert before.figures == after.figures, f"{'.'.join(map(str, (*way, last)))} changes a figure"


def _numbers(value: Any, way: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _numbers(each, (*way, key))
    elif isinstance(value, list):
        for k, each in enumerate(value):
            yield from _numbers(each, (*way, k))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield way


def laws_of(world: str) -> list[str]:
    """Returns the laws for a command."""
    every = ["container", "pipe", "stdin", "order", "blocks", "conserved", "repeated", "cut", "rewritten", "results"]
    captions = ["shifted", "strange", "truth"] if world in ("score", "score visual", "chair") else []
    captions += ["shifted"] if world == "density" else []
    texts = ["emptied"] if world not in ("mmhal", "facts", "faithscore") else []
    described = ["unfinished"] if world in ("score", "score visual", "chair", "density") else []
    return [*every, *captions, *texts, *described]


def pairs() -> list[tuple[str, str]]:
    """Returns all pairs of a command and one of its laws."""
    return [(world, law) for world in WORLDS for law in laws_of(world)]


def campaign(number: int, seed: int, only: str = "") -> Iterator[tuple[str, str, str]]:
    """Runs cases one after another, and yields the world, the law, and the violation (empty for none)."""
    chosen = [pair for pair in pairs() if " ".join(pair).startswith(only)]
    for k in range(number):
        world, law = chosen[k % len(chosen)]
        draw = random.Random(f"{seed} {k}")
        with tempfile.TemporaryDirectory(prefix="semantics-") as name:
            folder = Path(name)
            broken = ""
            try:
                getattr(Law(WORLDS[world](draw, folder), draw, folder), law)()
            except Exception as error:
                broken = f"{type(error).__name__}: {error}".splitlines()[0]
            yield world, law, broken


def main() -> int:
    """Runs the command line. Returns 1 if a law is violated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="verb, or verb and law")
    given = parser.parse_args()
    held: Counter[str] = Counter()
    faults: dict[tuple[str, str], list[str]] = {}
    for world, law, broken in campaign(given.cases, given.seed, given.only):
        held[world] += not broken
        if broken:
            faults.setdefault((world, law), []).append(broken)
    print("| verb | cases | broken |\n|---|--:|--:|")
    for world in WORLDS:
        n = sum(len(found) for (name, _), found in faults.items() if name == world)
        print(f"| {world} | {held[world] + n} | {n or ''} |")
    print(f"{given.cases} cases, {sum(map(len, faults.values()))} broken laws")
    for (world, law), found in faults.items():
        print(f"{len(found):4} {world}: {law}")
        for text, times in Counter(found).most_common(3):
            print(f"       {times:3} {text[:300]}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
