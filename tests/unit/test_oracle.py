"""The presence oracle: every format, spellings of image ids, label sets, round trips, damaged files."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from scapo_eval import InputError, InputErrors, PresenceOracle, ScapoError, Vocabulary, score_captions
from scapo_eval.base.ids import canonical_image_id
from scapo_eval.truths.oracle import Truth

LABELS = ["dog", "cat", "car"]
OBJECTS = {"9": ["dog", "car"], "226988": ["cat"], "31": []}

COCO: dict[str, Any] = {
    "info": {"description": "synthetic"},
    "images": [{"id": int(i), "file_name": f"COCO_val2014_{int(i):012}.jpg", "height": 4, "width": 4} for i in OBJECTS],
    "annotations": [
        {
            "id": k,
            "image_id": image,
            "category_id": category,
            "segmentation": [[0.5, 1.25, 3e0, 2, 1, 1]] if k % 2 else {"counts": [1, 2], "size": [4, 4]},
            "bbox": [0, 0, 1.5, 2],
            "iscrowd": 0,
        }
        for k, (image, category) in enumerate([(9, 18), (9, 3), (9, 18), (226988, 17)])
    ],
    "categories": [
        {"id": 18, "name": "dog", "supercategory": "animal"},
        {"id": 17, "name": "cat", "supercategory": "animal"},
        {"id": 3, "name": "car", "supercategory": "vehicle"},
    ],
}
AMBER = [
    {"id": 9, "type": "generative", "truth": ["dog", "car"], "hallu": ["cat"]},
    {"id": 226988, "type": "generative", "truth": ["cat"], "hallu": []},
    {"id": 31, "type": "generative", "truth": [], "hallu": ["dog"]},
    {"id": 1005, "type": "discriminative-attribute-state", "truth": "yes"},
]


def npz(**arrays: Any) -> bytes:
    content = {
        "matrix": np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]], dtype=np.int8),
        "image_ids": np.array(list(OBJECTS)),
        "labels": np.array(LABELS),
        "vocabulary_fingerprint": np.array(""),
        "version": np.array("1"),
    } | arrays
    stream = io.BytesIO()
    np.savez(stream, **{key: value for key, value in content.items() if value is not None})
    return stream.getvalue()


def parquet(columns: dict[str, Any], metadata: bytes | None = None) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(columns).replace_schema_metadata({"scapo": metadata} if metadata is not None else None)
    stream = io.BytesIO()
    pq.write_table(table, stream)
    return stream.getvalue()


def int8(*values: int) -> Any:
    return np.array(values, dtype=np.int8)


PARQUET = {"image_id": list(OBJECTS), "dog": int8(1, 0, 0), "cat": int8(0, 1, 0), "car": int8(1, 0, 0)}
FORMATS: dict[str, bytes] = {
    "coco": json.dumps(COCO).encode(),
    "coco indented": json.dumps(COCO, indent=1).encode(),
    "objects with axis": json.dumps({"objects": OBJECTS, "labels": LABELS}).encode(),
    "amber": json.dumps(AMBER, indent=2).encode(),
    "npz": npz(),
    "parquet": parquet(PARQUET),
    "objects": json.dumps({"objects": OBJECTS}).encode(),
    "objects with more": json.dumps({"source": "x", "objects": OBJECTS}, indent=2).encode(),
    "map": json.dumps(OBJECTS).encode(),
    "jsonl": "".join(json.dumps({"image_id": int(i), "objects": o}) + "\n" for i, o in OBJECTS.items()).encode(),
    "jsonl crlf": "".join(json.dumps({"objects": o, "image_id": i}) + "\r\n\r\n" for i, o in OBJECTS.items()).encode(),
    "array": json.dumps([{"image_id": i, "objects": o} for i, o in OBJECTS.items()], indent=1).encode(),
}
OPEN = {"objects", "objects with more", "map", "jsonl", "jsonl crlf", "array"}
TOTAL = {"npz", "parquet"}


@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, zstandard.compress, lambda b: b"\xef\xbb\xbf" + b], ids=["plain", "gz", "zst", "bom"]
)
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_says_the_same(tmp_path: Path, name: str, pack: Any) -> None:
    if name in TOTAL and pack(b"x")[:1] == b"\xef":
        pytest.skip("a byte-order mark belongs to text")
    path = tmp_path / "truth"  # recognised by content, never by name
    path.write_bytes(pack(FORMATS[name]))
    oracle = PresenceOracle.load(path)
    for image, present in OBJECTS.items():
        assert oracle.present(image) == frozenset(present)
        for label in LABELS:
            assert oracle.state(image, label) == (label in present)
        assert oracle.state(image, "sky") == (0 if name in OPEN else -1)
    assert oracle.world == ("open-axis" if name in OPEN else "total" if name in TOTAL else "closed")
    axis = ["sky", *LABELS]
    assert oracle.states(axis).tolist() == [[oracle.state(i, label) for label in axis] for i in oracle.image_ids]


def test_fingerprints_are_equal_across_formats_and_orders(tmp_path: Path) -> None:
    def fingerprint(data: bytes) -> str:
        (tmp_path / "x").write_bytes(data)
        return PresenceOracle.load(tmp_path / "x").fingerprint

    backwards = {image: list(reversed(OBJECTS[image])) for image in reversed(OBJECTS)}
    FULL = {name: fingerprint(data) for name, data in FORMATS.items()}
    assert len({FULL[name] for name in FORMATS if name not in OPEN}) == 1
    assert len({FULL[name] for name in OPEN}) == 1
    assert FULL["map"] != FULL["coco"]  # an open axis is another truth
    assert fingerprint(json.dumps({"objects": backwards, "labels": LABELS[::-1]}).encode()) == FULL["coco"]
    assert fingerprint(json.dumps(backwards).encode()) == FULL["map"]
    padded = {f"COCO_val2014_{int(image):012}.jpg": present for image, present in OBJECTS.items()}
    assert fingerprint(json.dumps(padded).encode()) == FULL["map"]
    for changed in (OBJECTS | {"31": ["dog"]}, OBJECTS | {"32": []}, {"9": ["dog", "car"], "226988": ["cat"]}):
        assert fingerprint(json.dumps(changed).encode()) != FULL["map"]
    assert fingerprint(json.dumps({"objects": OBJECTS, "labels": [*LABELS, "sky"]}).encode()) != FULL["coco"]


# ---- image ids ----


@pytest.mark.parametrize(
    "spelling",
    [226988, "226988", "000000226988", "COCO_val2014_000000226988.jpg", "val2014/COCO_val2014_000000226988.jpg",
     226988.0, "COCO_train2014_000000226988.JPG", "000000226988.jpg", " 226988 ", "C:\\x\\000000226988.png",
     np.int64(226988), Decimal(226988), Decimal("226988.00")],
)  # fmt: skip
def test_spellings_of_one_coco_image(spelling: object) -> None:
    oracle = PresenceOracle.from_objects(OBJECTS)
    assert canonical_image_id(spelling) == "226988"
    assert oracle.present(spelling) == {"cat"}


@pytest.mark.parametrize(
    ("spelling", "canonical"),
    [
        (0, "0"),
        ("0", "0"),
        ("000", "0"),
        ("AMBER_7.jpg", "7"),
        ("img_7", "img_7"),
        ("7a", "7a"),
        ("a b.jpg", "a b.jpg"),
        ("-7", "-7"),
        ("\u0667", "\u0667"),
    ],
)
def test_other_ids(spelling: object, canonical: str) -> None:
    assert canonical_image_id(spelling) == canonical


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        "",
        "  ",
        float("nan"),
        float("inf"),
        1.5,
        -3,
        [],
        {},
        2.0**60,
        b"7",
        Decimal("1.5"),
        Decimal("NaN"),
    ],
)
def test_what_is_no_id(value: object) -> None:
    with pytest.raises(ValueError, match=r"must|is an empty"):
        canonical_image_id(value)


@pytest.mark.parametrize("value", [1.5, Decimal("1.5")])
def test_a_number_with_a_fraction_is_no_id(value: object) -> None:
    with pytest.raises(ValueError, match=r"must be a whole number, got 1\.5"):
        canonical_image_id(value)


def test_an_image_that_the_oracle_does_not_know() -> None:
    oracle = PresenceOracle.from_objects(OBJECTS, source="truth.json")
    truth = Truth.of(oracle, Vocabulary.from_mapping({"dog": ["dog"]}))
    for ask in (oracle.present, lambda image: oracle.state(image, "dog"), lambda image: truth.rows([image])):
        with pytest.raises(InputError, match=r"truth\.json: unknown image id 'COCO_val2014_000000000010\.jpg'"):
            ask("COCO_val2014_000000000010.jpg")
        with pytest.raises(InputError, match="image id must be a number or a string, not null"):
            ask(None)


# ---- unknown cells, Truth ----


def test_explicit_unknown_cells(tmp_path: Path) -> None:
    (tmp_path / "m.npz").write_bytes(npz(matrix=np.array([[1, -1, 1], [-1, 1, 0], [0, 0, -1]], dtype=np.int8)))
    oracle = PresenceOracle.load(tmp_path / "m.npz")
    assert [[oracle.state(i, label) for label in LABELS] for i in OBJECTS] == [[1, -1, 1], [-1, 1, 0], [0, 0, -1]]
    assert oracle.present("9") == {"dog", "car"}
    assert oracle.states(["car", "x", "cat", "dog"]).tolist() == [[1, -1, -1, 1], [0, -1, 1, -1], [-1, -1, 0, 0]]
    for ending in ("json", "jsonl.gz"):  # never a silent "absent"
        with pytest.raises(InputError, match="cannot represent unknown cells"):
            oracle.save(tmp_path / f"t.{ending}")
    assert [p.name for p in tmp_path.iterdir()] == ["m.npz"]


def test_a_matrix_for_another_vocabulary(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_mapping({label: [label] for label in LABELS}, name="mine")
    (tmp_path / "a.npz").write_bytes(npz(vocabulary_fingerprint=np.array(vocabulary.fingerprint)))
    (tmp_path / "b.npz").write_bytes(npz(vocabulary_fingerprint=np.array("0000")))
    assert Truth.of(PresenceOracle.load(tmp_path / "a.npz"), vocabulary).n_present.tolist() == [2, 1, 0]
    other = PresenceOracle.load(tmp_path / "b.npz")
    with pytest.raises(InputError, match="fingerprint 0000, but 'mine' has"):
        Truth.of(other, vocabulary)
    assert Truth.of(other, vocabulary, any_fingerprint=True).n_present.tolist() == [2, 1, 0]


def test_truth_restricts_to_the_vocabulary_in_its_order() -> None:
    oracle = PresenceOracle.from_objects(OBJECTS, labels=LABELS)
    truth = Truth.of(oracle, Vocabulary.from_mapping({"sky": ["sky"], "car": ["car"], "dog": ["dog"]}))
    assert truth.states.tolist() == [[-1, 1, 1], [-1, 0, 0], [-1, 0, 0]]
    assert truth.n_present.tolist() == [2, 0, 0]
    assert truth.dropped == {"cat": 1}


# ---- round trips ----


@pytest.mark.parametrize("ending", ["npz", "parquet", "json", "json.gz", "npz.gz", "parquet.zst", "json.zst"])
def test_a_closed_truth_survives_saving(tmp_path: Path, ending: str) -> None:
    rng = random.Random(1)
    names = [f"label {k}" for k in range(30)]
    objects = {f"{k}": rng.sample(names, rng.randrange(8)) for k in range(200)} | {"caf\u00e9 \u732b.jpg": names[:2]}
    oracle = PresenceOracle.from_objects(objects, labels=names)
    path = tmp_path / f"truth.{ending}"
    oracle.save(path)
    back = PresenceOracle.load(path)
    assert back.fingerprint == oracle.fingerprint
    assert back.image_ids == oracle.image_ids
    assert np.array_equal(back.states([*names, "other"]), oracle.states([*names, "other"]))
    first = path.read_bytes()
    oracle.save(path)
    assert path.read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", ["json", "jsonl", "jsonl.gz", "jsonl.zst"])
def test_an_open_truth_survives_saving(tmp_path: Path, ending: str) -> None:
    oracle = PresenceOracle.from_objects(OBJECTS | {"\ud800": ["caf\u00e9"]})
    oracle.save(tmp_path / f"t.{ending}")
    back = PresenceOracle.load(tmp_path / f"t.{ending}")
    assert back.fingerprint == oracle.fingerprint
    assert back.present("\ud800") == {"caf\u00e9"}


def test_unknown_cells_and_fingerprint_survive_in_matrices(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(
        npz(
            matrix=np.array([[1, -1, 1], [-1, 1, 0], [0, 0, -1]], dtype=np.int8),
            vocabulary_fingerprint=np.array("cafe"),
        )
    )
    oracle = PresenceOracle.load(tmp_path / "m")
    for ending in ("npz", "parquet"):
        oracle.save(tmp_path / f"n.{ending}")
        back = PresenceOracle.load(tmp_path / f"n.{ending}")
        assert np.array_equal(back.states(LABELS), oracle.states(LABELS))
        assert back.vocabulary_fingerprint == "cafe"
        assert back.fingerprint == oracle.fingerprint


def test_saving_where_it_cannot_be(tmp_path: Path) -> None:
    oracle = PresenceOracle.from_objects(OBJECTS)
    for path, reason in [
        (tmp_path / "x.pkl", "unknown format"),
        (tmp_path / "no" / "x.npz", "cannot be written"),
        (tmp_path, "unknown format"),
    ]:
        with pytest.raises(InputError, match=reason):
            oracle.save(path)
    assert list(tmp_path.iterdir()) == []


# ---- COCO oddities ----


def test_a_coco_file_that_lists_an_image_twice(tmp_path: Path) -> None:
    """As merged files do; rows must not shift."""
    doubled = COCO | {"images": [{"id": 9}, {"id": 9}, {"id": 226988}, {"id": 31}]}
    (tmp_path / "coco.json").write_text(json.dumps(doubled))
    oracle = PresenceOracle.load(tmp_path / "coco.json")
    assert {image: oracle.present(image) for image in OBJECTS} == {i: frozenset(o) for i, o in OBJECTS.items()}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"images": [], "annotations": []}, "has no images"),
        ({"annotations": [{"image_id": 5, "category_id": 18}]}, "image or category 5, which the file does not list"),
        ({"annotations": [{"image_id": 9, "category_id": 99}]}, "image or category 99"),
        ({"annotations": [{"image_id": 9}]}, "not a valid COCO instances file: .*category_id"),
        ({"images": [{"id": "nine"}]}, "not a valid COCO instances file"),
        (
            {"categories": [{"id": 18, "name": "dog"}, {"id": 17, "name": "dog"}, {"id": 3, "name": "car"}]},
            "category 'dog' appears twice",
        ),
    ],
)
def test_coco_files_that_are_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    (tmp_path / "coco.json").write_text(json.dumps(COCO | change))
    with pytest.raises(InputError, match=reason):
        PresenceOracle.load(tmp_path / "coco.json")


# ---- files that are no truth ----


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b" \n\n ", "the file is empty"),
        (b"[]", "empty JSON array"),
        (b"{}", "has no images"),
        (b"5", "expected an object or a list, found a number"),
        (b"null", "found null"),
        (b'{"1": ["dog"', ":1: not valid JSON"),
        (b'{\n"1": ["dog"],\n"2": [dog]}', ":3: not valid JSON"),
        (b'{"1": [NaN]}', ":1: not valid JSON: NaN is not JSON"),
        (b'{"1": "dog"}', r"expected COCO .*\(found keys: 1; '1' has a string where a list of labels is expected\)"),
        (b'{"1": [1]}', "objects of image 1: a label is a number"),
        (b'{"1": ["a"], "01": ["b"]}', "'1' and '01' are the same image, 1"),
        (b'{"": ["a"]}', "image id is an empty string"),
        (b'{"objects": {"1": ["dog"]}, "labels": ["cat"]}', "image 1 lists 'dog', which is not in 'labels'"),
        (b'{"objects": {"1": ["dog"]}, "labels": "cat"}', "'labels' must be a list of strings"),
        (
            b'{"image_id": 1, "objects": ["a"]}\n{"image_id": "01", "objects": ["b"]}\n',
            ":2: '1' and '01' are the same image, 1",
        ),
        (b'{"image_id": 1, "objects": "a"}\n', ":1: objects of image 1: expected a list of labels, found a string"),
        (b'{"image_id": null, "objects": []}\n', ":1: image id must be a number or a string, not null"),
        (b'{"image_id": NaN, "objects": []}\n', ":1: not valid JSON: NaN is not JSON"),
        (b'[{"image_id": 1}]', ":1: missing key 'objects'"),
        (b"[1]", ":1: expected a JSON object, found a number"),
        (b'[{"id": 1, "type": "generative"}]', "expected a list of labels, found null"),
        (b'[{"id": 1, "type": "generative", "truth": [{}]}]', "a label is an object"),
        (b'[{"id": 1, "type": "generative", "truth": 5}]', "found a number"),
        (b'[{"id": 1, "type": "generative", "truth": ["a"], "hallu": 5}]', "'hallu' must be a list of strings"),
        (b'[{"id": 1, "type": "generative", "truth": ["a"], "hallu": [null]}]', "'hallu' must be a list of strings"),
        ('{"1": ["dog"]}'.encode("utf-16"), "UTF-16"),
        ('{"1": ["dog"]}'.encode("utf-16-le"), "UTF-16"),
        ('{"1": ["caf\u00e9"]}'.encode("latin-1"), ":1: not UTF-8"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "not UTF-8"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"a": "\\ud800", "b": ' + b"[" * 100_000, "not valid JSON"),
        (pickle.dumps({"1": ["dog"]}), "not UTF-8"),
        (gzip.compress(json.dumps(OBJECTS).encode(), mtime=0)[:-4], "damaged or truncated"),
        (zstandard.compress(json.dumps(OBJECTS).encode() * 50)[:-4], "damaged or truncated"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "truth.json"
    path.write_bytes(content)
    with pytest.raises(ScapoError, match=reason) as caught:
        PresenceOracle.load(path)
    assert str(caught.value).startswith(str(path))


def test_every_fault_of_a_jsonl_truth_is_counted_in_reading_order(tmp_path: Path) -> None:
    lines = ['{"image_id": 1, "objects": ["a"]}', '{"image_id": 2}', "xx", '{"image_id": null, "objects": ["a"]}'] + [
        "{}"
    ] * 30
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    with pytest.raises(InputErrors) as caught:
        PresenceOracle.load(tmp_path / "t.jsonl")
    assert caught.value.total == 33
    shown = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in shown] == ["2", "3", "4", "5"]
    assert shown[-1].endswith(" (30 records, lines 5-34)")


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"matrix": None}, "not a valid DOPA matrix: missing matrix"),
        ({"labels": None, "image_ids": None}, "missing image_ids, labels"),
        ({"matrix": np.zeros((2, 3), np.int8)}, r"shape \(2, 3\) does not fit 3 images and 3 labels"),
        ({"matrix": np.zeros(9, np.int8)}, "does not fit"),
        ({"matrix": np.full((3, 3), 2, np.int8)}, "cells must be 1"),
        ({"matrix": np.full((3, 3), 0.5)}, "cells must be 1"),
        ({"matrix": np.full((3, 3), np.nan)}, "cells must be 1"),
        ({"matrix": np.full((3, 3), 255, np.uint8)}, "cells must be 1"),
        ({"image_ids": np.array(["1", "01", "2"])}, "image '1' appears twice"),
        ({"image_ids": np.array(["1", "", "2"])}, "image id is an empty string"),
        ({"image_ids": np.array([1.5, 2, 3])}, "image id must be a whole number"),
        ({"labels": np.array(["a", "b", "a"])}, "label 'a' appears twice"),
        ({"matrix": np.zeros((0, 3), np.int8), "image_ids": np.array([], dtype=np.str_)}, "has no images"),
    ],
)  # fmt: skip
def test_npz_files_that_are_refused(tmp_path: Path, arrays: dict[str, Any], reason: str) -> None:
    (tmp_path / "m.npz").write_bytes(npz(**arrays))
    with pytest.raises(InputError, match=reason):
        PresenceOracle.load(tmp_path / "m.npz")


def test_a_matrix_that_is_not_compressed_is_mapped(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_mapping({label: [label] for label in LABELS}, name="three")
    (tmp_path / "m.npz").write_bytes(npz())
    oracle = PresenceOracle.load(tmp_path / "m.npz")
    states = Truth.of(oracle, vocabulary).states
    assert states is oracle.cells
    assert not states.flags.writeable
    oracle.save(tmp_path / "packed.npz")
    packed = PresenceOracle.load(tmp_path / "packed.npz")
    assert packed.cells is None
    assert packed.fingerprint == oracle.fingerprint
    assert np.array_equal(Truth.of(packed, vocabulary).states, states)
    other = Vocabulary.from_mapping({label: [label] for label in LABELS[::-1]}, name="another order")
    assert np.array_equal(Truth.of(oracle, other).states, states[:, ::-1])
    assert np.array_equal(pickle.loads(pickle.dumps(oracle)).cells, states)
    (tmp_path / "m.npz").unlink()  # the mapping keeps what it has
    assert oracle.states_of(vocabulary).tolist() == packed.matrix().tolist()
    for matrix in (np.asfortranarray(states), states.astype(np.int64)):
        (tmp_path / "m.npz").write_bytes(npz(matrix=matrix))
        plain = PresenceOracle.load(tmp_path / "m.npz")
        assert (plain.cells, plain.fingerprint) == (None, oracle.fingerprint)


def test_a_damaged_matrix_is_not_mapped(tmp_path: Path) -> None:
    data = npz(matrix=np.zeros((3, 3), dtype=np.int8) - 1)
    at = data.index(b"\xff" * 9)
    (tmp_path / "m.npz").write_bytes(data[:at] + b"\1" + data[at + 1 :])
    with pytest.raises(InputError, match=r"damaged npz file \(BadZipFile: Bad CRC"):
        PresenceOracle.load(tmp_path / "m.npz")


def test_no_pickle_is_ever_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "sprung",)

    trap = np.empty(3, dtype=object)
    trap[:] = [Trap(), "b", "c"]
    for key in ("labels", "image_ids", "matrix"):
        (tmp_path / "m.npz").write_bytes(npz(**{key: trap}))
        with pytest.raises(InputError, match="damaged npz file"):
            PresenceOracle.load(tmp_path / "m.npz")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda: parquet({"nr": ["1"], "dog": int8(1)}), r"missing column 'image_id' \(found: nr, dog\)"),
        (lambda: parquet({"image_id": ["1"], "dog": [0.5]}), "cells must be 1"),
        (lambda: parquet({"image_id": ["1"], "dog": ["yes"]}), "cells must be 1"),
        (lambda: parquet({"image_id": ["1", "2"], "dog": [1, None]}), "cells must be 1"),
        (lambda: parquet({"image_id": ["1", "01"], "dog": int8(1, 0)}), "image '1' appears twice"),
        (lambda: parquet({"image_id": [None], "dog": int8(1)}), "image id must be"),
        (lambda: parquet({"image_id": ["1"], "dog": int8(1)}, b"{broken"), "damaged parquet file"),
        (lambda: FORMATS["parquet"][:-20], "damaged parquet file"),
        (lambda: b"PAR1" + bytes(50), "damaged parquet file"),
    ],
)
def test_parquet_files_that_are_refused(tmp_path: Path, content: Any, reason: str) -> None:
    (tmp_path / "m.parquet").write_bytes(content())
    with pytest.raises(InputError, match=reason):
        PresenceOracle.load(tmp_path / "m.parquet")


@pytest.mark.parametrize("name", ["npz", "parquet", "coco", "jsonl", "amber", "gz", "zst"])
def test_damage_is_an_input_error_or_harmless(tmp_path: Path, name: str) -> None:
    data = FORMATS.get(name) or {"gz": gzip.compress, "zst": zstandard.compress}[name](FORMATS["map"])
    rng = random.Random(name)
    damaged = [data[:k] for k in range(0, len(data), 1 + len(data) // 40)]
    for _ in range(150):
        changed = bytearray(data)
        for _ in range(rng.choice([1, 1, 5])):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        damaged.append(bytes(changed))
    refused = 0
    for k, content in enumerate(damaged):
        path = tmp_path / f"{k}"
        path.write_bytes(content)
        try:
            PresenceOracle.load(path).states(LABELS)
        except ScapoError as error:
            refused += str(error).startswith(str(path))
    assert refused > len(damaged) // 5


def test_a_directory_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the folder contains no file"):
        PresenceOracle.load(tmp_path)
    with pytest.raises(InputError, match="file not found"):
        PresenceOracle.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "found NoneType"),
        ({1: ["dog"]}, r"one mapping \(keys: 1\), not records"),
        (["a.json"], "a list of file names"),
    ],
)
def test_what_is_neither_a_file_nor_records(given: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        PresenceOracle.load(given)
    if given is not None:  # inline objects
        with pytest.raises(InputError, match=said):
            score_captions([{"image_id": 1, "caption": "A dog."}], oracle=given)


def test_records_in_memory_are_read_like_lines() -> None:
    assert PresenceOracle.load([{"image_id": 1, "objects": ["dog"]}]).present(1) == {"dog"}


def test_a_matrix_may_be_a_list() -> None:
    truth = PresenceOracle.from_matrix([[1]], [7], ["dog"], probabilities=[[0.5]])
    assert truth.probabilities == np.array([[0.5]], dtype=np.float32)
    assert PresenceOracle.from_matrix([[1]], iter([7]), ["dog"]).state(7, "dog") == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"matrix": [[1, 0], [1]]}, "the rows of the matrix have different lengths"),
        ({"matrix": None}, r"matrix of shape \(\) does not fit 2 images and 2 labels"),
        ({"probabilities": [[0.5, 0.5], [0.5]]}, "the rows of the probabilities have different lengths"),
        ({"probabilities": [[0.5, 0.5]]}, "probabilities must be numbers of the matrix's shape"),
        ({"labels": None}, "labels must be a list, got None"),
        ({"image_ids": 7}, "image ids must be a list, got 7"),
    ],
)
def test_matrices_that_are_refused(changed: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"matrix": [[1, 0], [1, 1]], "image_ids": [7, 8], "labels": ["dog", "cat"], **changed}
    with pytest.raises(InputError, match=said):
        PresenceOracle.from_matrix(**given)


@pytest.mark.parametrize(
    "objects", [{"1": "dog"}, {"1": None}, {"1": [1]}, {None: ["dog"]}, {1: ["a"], "1": ["b"]}, {}, [["dog"]], None]
)
def test_mappings_that_are_refused(objects: Any) -> None:
    with pytest.raises(ScapoError):
        PresenceOracle.from_objects(objects)
