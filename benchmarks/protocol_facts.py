"""Builds the tables of facts in protocols from public data: the objects in each image, and CHAIR's words.

    python benchmarks/protocol_facts.py ../shared

Writes ``scapo_eval/benchmarks/protocols/facts/*.json`` and ``scapo_eval/benchmarks/chair/words.json``. The facts are in
this project's own format, with one image or object per line. Each file and NOTICE contain sources, licenses and
attribution. tests/golden/test_protocol_facts.py rebuilds the tables.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scapo_eval.base.ids import canonical_image_id
from scapo_eval.benchmarks.protocol import Protocol, shipped_protocols

PACKAGE = Path(__file__).resolve().parents[1] / "scapo_eval" / "benchmarks"
FACTS = PACKAGE / "protocols" / "facts"
COCO = "COCO annotations (c) the COCO Consortium, cocodataset.org, CC BY 4.0"


def read(path: Path) -> Any:
    """Reads a JSON file, compressed or uncompressed."""
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())


def table(head: Mapping[str, Any], key: str, rows: Mapping[str, Any]) -> str:
    """Returns a JSON object whose last value has one row per line."""
    lines = [f'  "{name}": {json.dumps(value)},' for name, value in head.items()]
    body = ",\n".join(f"    {json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in rows.items())
    return "\n".join(["{", *lines, f'  "{key}": {{', body, "  }", "}", ""])


def words(data: Path) -> str:
    """Returns CHAIR's words, as object -> synonyms in the order of CHAIR's list."""
    aliases = read(data / "coco_chair" / "vocabulary.json")["aliases"]
    return table(
        {
            "source": "data/synonyms.txt of github.com/LisaAnne/Hallucination, commit 6e4d33c (Rohrbach et al. 2018)",
            "license": "BSD 2-clause, as its README states",
            "note": "words as they are there, three that no caption can hold among them (two begin with a space, one "
            "has a capital letter); repeated ones once",
        },
        "words",
        {node: sorted(named) for node, named in aliases.items()},
    )


def coco(objects: Mapping[str, list[str]], images: list[str], labels: list[str], head: Mapping[str, Any]) -> str:
    """Returns the objects in the images, in the format of this project's ground truth files."""
    found = {image: sorted(objects[image]) for image in sorted(images, key=int)}
    return table({**head, "labels": labels}, "objects", found)


def questions(path: Path, head: Mapping[str, Any]) -> str:
    """Returns POPE's image -> object -> 1 if it is present and 0 if it is absent, in the order of the questions."""
    images: dict[str, dict[str, int]] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        row = json.loads(line)
        assert row["question_id"] == number
        asked = row["text"].removeprefix("Is there a").removeprefix("n").strip()
        name = asked.removesuffix(" in the imange?").removesuffix(" in the image?")
        of_image = images.setdefault(canonical_image_id(row["image"]), {})
        assert name not in of_image
        assert list(images)[-1] == canonical_image_id(row["image"]), "questions about an image stand together"
        of_image[name] = int(row["label"] == "yes")
    return table(head, "questions", images)


def files(shared: Path) -> Iterator[tuple[Path, str]]:
    """Yields all tables with their paths."""
    data = shared / "data"
    yield PACKAGE / "chair" / "words.json", words(data)
    labels = list(read(data / "coco_chair" / "vocabulary.json")["aliases"])
    chair = [name for name in shipped_protocols() if name.startswith("chair-")]
    images = sorted({image for name in chair for image in Protocol.load(name).image_ids or ()}, key=int)
    full = read(data / "coco_chair" / "ground_truth_full.json.gz")["objects"]
    joined = {
        "source": "COCO 2014: instances joined with the words of five reference captions, as the CHAIR script does it "
        "(chair.pkl of github.com/Maxlinn/CHAIR-metric-standalone, commit 640c507)",
        "license": "CC BY 4.0",
        "attribution": COCO,
    }
    yield FACTS / "coco-chair.json", coco(full, images, labels, joined)
    halbench = read(data / "objhal" / "coco_objects.json")["objects"]
    source = "COCO 2014: instances joined with reference captions by OPERA's CHAIR script (public evaluation files)"
    yield FACTS / "objhal.json", coco(halbench, list(halbench), labels, {**joined, "source": source})
    for split in ("adversarial", "popular", "random"):
        head = {
            "source": f"coco_pope_{split}.json of github.com/AoiDragon/POPE, as shikiw/OPERA has it (61426ef)",
            "license": "MIT",
            "attribution": f"POPE: Li et al., EMNLP 2023; {COCO}",
        }
        yield FACTS / f"pope-{split}.json", questions(data / "pope" / f"coco_pope_{split}.json", head)


def main() -> None:
    FACTS.mkdir(exist_ok=True)
    for path, text in files(Path(sys.argv[1])):
        path.write_text(text, encoding="utf-8")
        print(f"{len(text):8,}  {path.relative_to(PACKAGE)}")


if __name__ == "__main__":
    main()
