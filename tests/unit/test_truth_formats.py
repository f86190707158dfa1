"""Truths of other data sets: LVIS, Visual Genome, Open Images, tables, data frames, CHAIR's join of COCO's files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapo_eval import InputError, InputErrors, PresenceOracle, ScapoError, Vocabulary
from scapo_eval.benchmarks.chair import Reference, Synonyms
from scapo_eval.benchmarks.chair.truth import joined_truth
from scapo_eval.files.containers import open_rows
from scapo_eval.truths.oracle import Truth
from scapo_eval.truths.truth_table import read_open_images

PETS = Vocabulary.from_mapping(
    {
        "dog": ["dog", "dogs", "puppy"],
        "person": ["person", "man", "woman"],
        "cell phone": ["cell phone", "mobile phone"],
    }
)

LVIS: dict[str, Any] = {
    "images": [
        {"id": 9, "coco_url": "x", "neg_category_ids": [2, 3], "not_exhaustive_category_ids": [1]},
        {"id": 12, "coco_url": "y", "neg_category_ids": [], "not_exhaustive_category_ids": []},
    ],
    "annotations": [
        {"id": 1, "image_id": 9, "category_id": 1, "segmentation": [[1.5, 2, 3, 4]], "bbox": [0, 0, 1, 1]},
        {"id": 2, "image_id": 12, "category_id": 3, "segmentation": [[1.5, 2, 3, 4]], "bbox": [0, 0, 1, 1]},
        {"id": 3, "image_id": 9, "category_id": 1, "segmentation": [[1.5, 2, 3, 4]], "bbox": [0, 0, 1, 1]},
    ],
    "categories": [
        {"id": 1, "name": "dog", "synonyms": ["dog"], "frequency": "f"},
        {"id": 2, "name": "cellular_telephone", "synonyms": ["cellular_telephone", "mobile_phone"], "frequency": "f"},
        {"id": 3, "name": "man_(chess_piece)", "synonyms": ["man_(chess_piece)"], "frequency": "r"},
    ],
}
VISUAL_GENOME = [
    {
        "image_id": 2315353,
        "objects": [
            {"object_id": 1, "x": 0, "y": 0, "w": 5, "h": 5, "names": ["Man"], "synsets": ["man.n.01"]},
            {"object_id": 2, "x": 0, "y": 0, "w": 5, "h": 5, "names": ["dog ", "puppy"], "synsets": []},
            {"object_id": 3, "x": 0, "y": 0, "w": 5, "h": 5, "names": ["tree trunk"], "synsets": []},
        ],
        "image_url": "https://example.org/1.jpg",
    },
    {"image_id": 3, "objects": [], "image_url": "https://example.org/2.jpg"},
]
LABELS = """ImageID,Source,LabelName,Confidence
000a1249af2bc5f0,verification,/m/0bt9lr,1
000a1249af2bc5f0,verification,/m/04yx4,0
000a1249af2bc5f0,machine,/m/03bt1vf,0.9
000a1249af2bc5f0,verification,/m/050k8,0
0f0f,crowdsource-verification,/m/01g317,0
0f0f,verification,/m/0bt9lr,1
0f0f,crowdsource-verification,/m/0bt9lr,0
"""
BOXES = """ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside
0f0f,xclick,/m/04yx4,1,0.1,0.2,0.1,0.2,0,0,0,0,0
"""
CLASSES = """/m/0bt9lr,Dog
/m/04yx4,Man
/m/03bt1vf,Woman
/m/01g317,Person
/m/050k8,Mobile phone
"""
TABLE = "image_id,label\n9,dog\n9,person\n12,\n"
STATES = "image_id,label,present\n9,dog,1\n9,person,0\n12,dog,-1\n12,person,True\n"


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def reader(data: str | bytes | Any) -> PresenceOracle:
        path = tmp_path / "x"  # recognized by content, never by name
        if not isinstance(data, (str, bytes)):
            data = json.dumps(data)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return PresenceOracle.load(path)

    return reader


def refusal(load: Any, data: Any) -> str:
    with pytest.raises(ScapoError) as raised:
        load(data)
    return str(raised.value)


# ---- LVIS ----


def test_lvis_knows_only_what_was_searched_for(load: Any) -> None:
    oracle = load(LVIS)
    assert oracle.world == "partial"
    assert oracle.present(9) == {"dog"}
    assert [oracle.state(9, label) for label in oracle.labels] == [1, 0, 0]
    assert [oracle.state(12, label) for label in oracle.labels] == [-1, -1, 1]
    assert oracle.state(9, "sky") == -1
    assert oracle.n_unknown == 2
    assert oracle.matrix().tolist() == [[1, 0, 0], [-1, -1, 1]]
    assert oracle.states(["sky", *oracle.labels]).tolist() == [[-1, 1, 0, 0], [-1, -1, -1, 1]]


def test_lvis_categories_go_by_their_synonyms_but_not_by_what_parentheses_exclude(load: Any) -> None:
    truth = Truth.of(load(LVIS), PETS)
    assert truth.states.tolist() == [[1, -1, 0], [-1, -1, -1]]  # dog, person, cell phone
    assert truth.dropped == {"man_(chess_piece)": 1}


def test_lvis_faults(load: Any) -> None:
    images = [{**LVIS["images"][0], "neg_category_ids": [7]}]
    assert "'neg_category_ids' refers to the image or category 7" in refusal(
        load, {**LVIS, "images": images, "annotations": []}
    )
    assert "not a valid COCO instances file" in refusal(load, {**LVIS, "images": [{"id": 9, "neg_category_ids": "x"}]})


# ---- Visual Genome ----


def test_visual_genome_is_open_and_its_names_are_found_by_aliases(load: Any) -> None:
    oracle = load(VISUAL_GENOME)
    assert oracle.world == "open-axis"
    assert oracle.image_ids == ("2315353", "3")
    assert oracle.present(2315353) == {"man", "dog", "puppy", "tree trunk"}
    truth = Truth.of(oracle, PETS)
    assert truth.states.tolist() == [[1, 1, 0], [0, 0, 0]]
    assert truth.dropped == {"tree trunk": 1}  # only whole names: a collar of a dog is no dog
    assert oracle.restricted_to(PETS).present(2315353) == {"dog", "person"}


def test_visual_genome_faults(load: Any) -> None:
    assert "x:2: image 2315353 appears twice" in refusal(load, [VISUAL_GENOME[0], VISUAL_GENOME[0]])
    assert "x:2: not a valid Visual Genome image: Object missing required field `objects`" in refusal(
        load, [VISUAL_GENOME[0], {"image_id": 4}]
    )
    assert "x:1: missing key 'image_id'" in refusal(load, [{"objects": VISUAL_GENOME[0]["objects"]}])


# ---- Open Images ----


def open_images(folder: Path, *files: str, classes: str | None = CLASSES) -> PresenceOracle:
    paths = []
    for k, text in enumerate(files):
        (folder / f"{k}.csv").write_text(text)
        paths.append(folder / f"{k}.csv")
    if classes is not None:
        (folder / "classes.csv").write_text(classes)
    return PresenceOracle.of_columns(read_open_images(paths, folder / "classes.csv" if classes is not None else None))


@pytest.mark.parametrize("header", ["", "LabelName,DisplayName\n"])
def test_open_images_knows_only_what_people_verified(tmp_path: Path, header: str) -> None:
    oracle = open_images(tmp_path, LABELS, BOXES, classes=header + CLASSES)
    assert oracle.world == "partial"
    found = {label: oracle.state("000a1249af2bc5f0", label) for label in oracle.labels}
    assert found == {"Dog": 1, "Man": 0, "Mobile phone": 0, "Person": -1}  # 'Woman' is a machine's only
    assert oracle.state("0f0f", "Dog") == -1  # two people disagree
    assert oracle.state("0f0f", "Man") == 1  # a box
    # dog, person, cell phone: no man is not no person; a man is a person whatever 'Person' was marked as
    assert Truth.of(oracle, PETS).states.tolist() == [[1, -1, 0], [-1, 1, -1]]


def test_no_person_is_absent_though_there_are_other_names(tmp_path: Path) -> None:
    labels = "ImageID,Source,LabelName,Confidence\na,verification,/m/01g317,0\nb,verification,/m/04yx4,0\n"
    both = labels + "b,verification,/m/03bt1vf,0\nb,verification,/m/0bt9lr,1\n"
    assert Truth.of(open_images(tmp_path, both), PETS).states[:, 1].tolist() == [0, -1]
    without_person = both.replace("a,verification,/m/01g317,0\n", "")
    assert Truth.of(open_images(tmp_path, without_person), PETS).states[:, 1].tolist() == [0]


def test_open_images_without_names_says_how_to_give_them(load: Any) -> None:
    oracle = load(LABELS)
    assert oracle.labels[0] == "/m/0bt9lr"
    with pytest.raises(InputError, match="convert them with scapo-eval oracle open-images --classes"):
        Truth.of(oracle, PETS)


def test_classes_of_one_name_stay_apart(tmp_path: Path) -> None:
    oracle = open_images(tmp_path, LABELS, classes=CLASSES.replace("Man", "Dog"))
    assert "Dog (/m/0bt9lr)" in oracle.labels
    assert "Dog (/m/04yx4)" in oracle.labels


@pytest.mark.parametrize(
    ("labels", "classes", "said"),
    [
        (
            LABELS.replace("0.9", "0.5").replace("machine", "verification"),
            CLASSES,
            "0.csv:4: 'Confidence' of a verified",
        ),
        (LABELS.replace("/m/04yx4", ""), CLASSES, "0.csv:3: 'LabelName' is empty"),
        (LABELS.replace("000a1249af2bc5f0", ""), CLASSES, "0.csv:2: image id is an empty string"),
        ("ImageID,Subset\na,train\n", CLASSES, "0.csv: not a file of Open Images: missing column 'LabelName'"),
        (
            LABELS.replace("verification", "machine").replace("crowdsource-", ""),
            CLASSES,
            "no label that people verified",
        ),
        (LABELS, "ImageID,Subset,OriginalURL\na,train,b\n", "classes.csv:1: not a valid file of class names"),
        (LABELS, "id,name\n1,Dog\n", "classes.csv:1: not a valid file of class names: expected a code and its name"),
        (LABELS, "/m/0,Sky\n", "classes.csv: names none of the classes of"),
        (LABELS, CLASSES + "/m/0bt9lr,Wolf\n", "classes.csv:6: '/m/0bt9lr' appears twice"),
    ],
)
def test_open_images_faults(tmp_path: Path, labels: str, classes: str, said: str) -> None:
    with pytest.raises(ScapoError) as raised:
        open_images(tmp_path, labels, classes=classes)
    assert said in str(raised.value)


# ---- tables and frames ----


def test_a_table_of_present_labels_is_open(load: Any) -> None:
    oracle = load(TABLE)
    assert oracle.world == "open-axis"
    assert oracle.objects() == {"9": ["dog", "person"], "12": []}
    assert oracle.fingerprint == PresenceOracle.from_objects({9: ["dog", "person"], 12: []}).fingerprint
    assert load(TABLE.replace(",", "\t")).fingerprint == oracle.fingerprint


@pytest.mark.parametrize("image", ["image", "filename", "file_name", "img", "id", "Image ID", "path", "url", "img_id"])
@pytest.mark.parametrize("label", ["label", "Class"])
def test_a_table_names_images_as_captions_do(load: Any, image: str, label: str) -> None:
    oracle = load(TABLE.replace("image_id", image).replace("label", label))
    assert oracle.objects() == {"9": ["dog", "person"], "12": []}
    frame = {image: [9, 9, 12], label: ["dog", "person", ""]}
    assert PresenceOracle.from_frame(frame).objects() == oracle.objects()


@pytest.mark.parametrize("image", ["image", "File Name", "id"])
def test_a_parquet_matrix_names_images_as_captions_do(load: Any, image: str) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({image: ["9.jpg"], "dog": [1]}), stream := io.BytesIO())
    oracle = load(stream.getvalue())
    assert oracle.image_ids == ("9",)
    assert oracle.labels == ("dog",)


def test_a_wide_table_with_counts_empty_cells_and_row_numbers(load: Any) -> None:
    oracle = load("Unnamed: 0,image_id,file_name,id,dog,cat,key\n0,9,x.jpg,70,2,,0\n1,12,y.jpg,71,0,3.0,-1\n")
    assert oracle.labels == ("dog", "cat", "key")
    assert oracle.matrix().tolist() == [[1, -1, 0], [0, 1, -1]]
    assert load("image_id;label\n9;dog, brown\n").objects() == {"9": ["dog, brown"]}


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("[dog, cat]", ["cat", "dog"]),
        ("{dog; cat}", ["cat", "dog"]),
        ("(dog|cat)", ["cat", "dog"]),
        ("[ dog ]", ["dog"]),
        ("['dog, brown', 'cat']", ["cat", "dog, brown"]),
        ("[]", []),
        ("(big) dog, (small)", ["(big) dog", "(small)"]),
    ],
)
def test_a_cell_of_labels_may_be_a_list_with_or_without_quotes(load: Any, cell: str, labels: list[str]) -> None:
    assert load(f'image_id,objects\n9,"{cell}"\n').objects() == {"9": labels}


def test_a_table_of_states_is_partial(load: Any) -> None:
    oracle = load(STATES)
    assert oracle.world == "partial"
    assert oracle.states(["dog", "person", "sky"]).tolist() == [[1, 0, -1], [-1, 1, -1]]


def test_frames_say_what_tables_say(load: Any) -> None:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    frame = pd.read_csv(io.StringIO(STATES.replace("True", "1")))
    wanted = load(STATES).fingerprint
    assert PresenceOracle.from_frame(frame).fingerprint == wanted
    assert PresenceOracle.from_frame(frame.to_dict("list")).fingerprint == wanted
    table = pa.Table.from_pandas(frame)
    assert PresenceOracle.from_frame(table).fingerprint == wanted
    stream = io.BytesIO()
    pq.write_table(table, stream)
    assert load(stream.getvalue()).fingerprint == wanted
    lists = pd.DataFrame({"image_id": [9, 12], "objects": [["dog", "person"], np.array([], dtype=object)]})
    assert PresenceOracle.from_frame(lists).fingerprint == load(TABLE).fingerprint
    stream = io.BytesIO()
    pq.write_table(pa.table({"image_id": [9, 12], "objects": [["dog", "person"], []]}), stream)
    assert load(stream.getvalue()).fingerprint == load(TABLE).fingerprint


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("image_id,thing\n9,dog\n", "missing column 'label' (found: image_id, thing); expected image_id,label"),
        ("nr,label\n9,dog\n", "missing column 'image_id'"),
        (",dog,cat\n9,1,0\n", "the column of the image ids has no name; name it image_id"),
        ("image,path,label\na.jpg,b.jpg,dog\n", "the keys 'image' and 'path' name different images; keep one of"),
        ("id,label\n1,yes\n2,no\n", "recognized as yes/no questions with labels"),
        ("image_id,dog,cat\n9,0.5,1\n8,1,1\n", "x:2: column 'dog' must be 1, 0, -1 (unknown), a count or empty"),
        ("image_id,label,present\n9,dog,\n", "x:2: 'present' must be 1, 0 or -1 (unknown), not ''"),
        ("image_id,label,present\n9,dog,0.5\n", "x:2: 'present' must be 1, 0 or -1 (unknown), not '0.5'"),
        ("image_id,label\n,dog\n", "x:2: image id is an empty string"),
        ("image_id,label,present\n9,dog,1\n9,dog,0\n", "image 9: 'dog' is given different states"),
        ("image_id,label\n", "the ground truth has no images"),
        ("image_id,label\n1,dog,cat\n", "x:2: 3 cells under 2 columns"),
        (CLASSES, "Open Images' class names are no truth; pass them with --classes"),
        (json.dumps({"images": [{"id": 1}], "annotations": []}), "joined with its instances by scapo-eval oracle"),
        (
            json.dumps({"images": [], "annotations": [{"image_id": 1}]}),
            "joined with its instances by scapo-eval oracle",
        ),
    ],
)
def test_table_faults(load: Any, table: str, said: str) -> None:
    assert said in refusal(load, table)


def test_arrow_s_own_files_are_refused_for_parquet(tmp_path: Path) -> None:
    feather = pytest.importorskip("pyarrow.feather")
    feather.write_feather(__import__("pyarrow").table({"id": ["1"], "label": ["yes"]}), tmp_path / "x.feather")
    for read in (PresenceOracle.load, open_rows):
        with pytest.raises(InputError, match=r"x\.feather: an Arrow \(Feather\) file, .*; convert it to parquet"):
            read(tmp_path / "x.feather")


def test_frame_faults_name_the_row() -> None:
    import pandas as pd

    nan = float("nan")
    with pytest.raises(InputErrors) as raised:
        PresenceOracle.from_frame(pd.DataFrame({"image_id": [9.0, nan], "label": ["dog", "dog"]}))
    assert str(raised.value) == "frame:2: image id must be a number or a string, not nan"
    with pytest.raises(InputErrors, match="frame:2: 'label' must be a string, not NaN"):
        PresenceOracle.from_frame({"image_id": [9, 9], "label": ["dog", nan]})
    with pytest.raises(InputErrors, match="mine:1: 'label' must be a string, not a number"):
        PresenceOracle.from_frame({"image_id": [9], "label": [3]}, source="mine")
    with pytest.raises(InputError, match="missing column 'label'"):
        PresenceOracle.from_frame(pd.DataFrame({"image_id": [9], "caption": ["dog"]}))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"image_id": [9, 10], "label": ["dog"]}, "different lengths"),
        ({"image_id": [9, 10], "objects": [["dog"]]}, "different lengths"),
        ({"image_id": 9, "label": ["dog"]}, "column 'image_id' must be a list of values, not 9"),
        ({"image_id": [9], "label": "dog"}, "column 'label' must be a list of values, not 'dog'"),
        ({}, "missing column 'image_id'"),
        (None, "expected a data frame or a mapping of lists, found NoneType"),
        (["image_id"], "expected a data frame or a mapping of lists, found list"),
    ],
)
def test_what_is_no_frame(table: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        PresenceOracle.from_frame(table)


# ---- what all of them share ----


@pytest.mark.parametrize("ending", ["npz", "parquet"])
@pytest.mark.parametrize("data", [STATES, LABELS], ids=["table", "open images"])
def test_a_partial_truth_keeps_its_cells_and_its_fingerprint(load: Any, tmp_path: Path, ending: str, data: str) -> None:
    oracle = load(data)
    oracle.save(tmp_path / f"t.{ending}")
    again = PresenceOracle.load(tmp_path / f"t.{ending}")
    assert again.world == oracle.world == "partial"
    assert again.fingerprint == oracle.fingerprint
    assert again.states(oracle.labels).tolist() == oracle.states(oracle.labels).tolist()
    assert again.n_unknown == oracle.n_unknown > 0
    with pytest.raises(InputError, match="JSON cannot represent unknown cells"):
        oracle.save(tmp_path / "t.json")


@pytest.mark.parametrize("unknown", [0, 1, 5, 11, 12])
def test_a_matrix_is_kept_by_its_rarer_cells(unknown: int) -> None:
    rng = np.random.default_rng(unknown)
    matrix = rng.integers(0, 2, size=(4, 3)).astype(np.int8)
    matrix.flat[rng.permutation(12)[:unknown]] = -1
    oracle = PresenceOracle.from_matrix(matrix, ["a", "b", "c", "d"], ["x", "y", "z"])
    assert oracle.matrix().tolist() == matrix.tolist()
    assert oracle.n_unknown == unknown
    assert [[oracle.state(image, label) for label in "xyz"] for image in "abcd"] == matrix.tolist()
    shuffled = PresenceOracle.from_matrix(matrix[::-1, ::-1], ["d", "c", "b", "a"], ["z", "y", "x"])
    assert shuffled.fingerprint == oracle.fingerprint
    changed = matrix.copy()
    changed[0, 0] = {-1: 0, 0: 1, 1: -1}[int(matrix[0, 0])]
    assert PresenceOracle.from_matrix(changed, list("abcd"), list("xyz")).fingerprint != oracle.fingerprint


def test_a_matrix_that_fits_no_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scapo_eval.truths.truth_columns.MAX_CELLS", 2_499)
    oracle = PresenceOracle.from_objects({k: [f"label {k}"] for k in range(50)})
    with pytest.raises(InputError, match="50 images and 50 labels is too large"):
        oracle.matrix()


# ---- CHAIR's join ----

SYNONYMS = "dog, puppy\nperson, man, woman\ndining table, table\n"


def coco_files(folder: Path) -> tuple[Path, Path, Path]:
    instances = {
        "images": [{"id": 9}, {"id": 12}, {"id": 40}],
        "annotations": [{"image_id": 9, "category_id": 1}, {"image_id": 40, "category_id": 1}],
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "dining table"}],
    }
    captions = {
        "images": [{"id": 9}, {"id": 12}],
        "annotations": [
            {"id": 1, "image_id": 9, "caption": "Two men at a table."},
            {"id": 2, "image_id": 9, "caption": "A puppy."},
            {"id": 3, "image_id": 12, "caption": "Nothing but sky."},
            {"id": 4, "image_id": 99, "caption": "A woman."},
        ],
    }
    paths = folder / "instances.json", folder / "captions.json", folder / "synonyms.txt"
    for path, content in zip(paths, (json.dumps(instances), json.dumps(captions), SYNONYMS), strict=True):
        path.write_text(content)
    return paths


def test_chair_joins_what_is_marked_and_what_is_mentioned(tmp_path: Path) -> None:
    instances, captions, synonyms = coco_files(tmp_path)
    told: list[str] = []
    joined = joined_truth([instances], [captions], Reference(Synonyms.load(synonyms)), warn=told.append)
    assert joined.objects() == {"9": ["dining table", "dog", "person"], "12": []}
    assert joined.world == "closed"
    assert joined.labels == ("dog", "person", "dining table")
    assert told == ["1 images without captions are omitted", "1 images without instances are omitted"]


def test_chair_join_faults(tmp_path: Path) -> None:
    instances, captions, synonyms = coco_files(tmp_path)
    reader = Reference(Synonyms.load(synonyms))
    with pytest.raises(InputError, match=r"captions\.json: not a valid COCO instances file"):
        joined_truth([captions], [captions], reader)
    with pytest.raises(InputError, match=r"instances\.json: not a valid COCO captions file"):
        joined_truth([instances], [instances], reader)
    captions.write_text(json.dumps({"annotations": [{"image_id": 1, "caption": "A dog."}]}))
    with pytest.raises(InputError, match=r"captions\.json: share no image with .*instances\.json"):
        joined_truth([instances], [captions], reader)
    synonyms.write_text("dog, puppy\n")
    with pytest.raises(InputError, match="category 'dining table' is not in 'synonyms'"):
        joined_truth([instances], [captions], Reference(Synonyms.load(synonyms)))
