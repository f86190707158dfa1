"""Wrong first commands, which either do what is meant or fail with a message whose suggested command works."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from scapo_eval.cli.base import Verb
from scapo_eval.cli.main import cli

Run = Callable[..., tuple[int, str, str]]

CAPTIONS = [{"image_id": k, "caption": "A dog and a cat."} for k in (1, 2, 3)]
OBJECTS = {"1": ["dog"], "2": ["cat"], "3": ["dog", "cat"]}
SAID = "A dog and a cat."
NAMES = [{"image_id": f"val/img_{'abc'[k - 1]}.jpg", "caption": "A dog and a cat."} for k in (1, 2, 3)]

FILES: dict[str, Any] = {
    "c.jsonl": CAPTIONS,
    "t.json": OBJECTS,
    "coco_names.jsonl": [{**row, "image_id": f"COCO_val2014_{row['image_id']:012d}.jpg"} for row in CAPTIONS],
    "names.jsonl": NAMES,
    "stems.json": {"img_a": ["dog"], "img_b": ["cat"], "img_c": ["dog", "cat"]},
    "jpgs.json": {"img_a.jpg": ["dog"], "img_b.jpg": ["cat"], "img_c.jpg": ["dog", "cat"]},
    "ambiguous.json": {"x/img_a.jpg": ["dog"], "y/img_a.jpg": ["cat"], "img_b": ["cat"], "img_c": ["dog"]},
    "other_images.json": {"9": ["dog"]},
    "many.jsonl": [{"image_id": k, "caption": "A dog."} for k in range(1, 51)],
    "wide.csv": "image_id,dog,cat\n1,1,0\n2,0,1\n3,1,1\n",
    "wide.tsv": "file_name\tdog\tcat\n1.jpg\tTrue\tFalse\n2.jpg\tFalse\tTrue\n3.jpg\tTrue\tTrue\n",
    "wide_bad.csv": "image_id,dog,cat\n1,1,0\n2,0,maybe\n",
    "lists.csv": "image,objects\n1,dog\n2,cat\n3,dog; cat\n",
    "labels.jsonl": [{"image_id": k, "labels": v} for k, v in OBJECTS.items()],
    "images.json": [{"image": f"{k}.jpg", "objects": v} for k, v in OBJECTS.items()],
    "ids.jsonl": [{"id": k, "objects": v} for k, v in OBJECTS.items()],
    "counts.json": {"1": {"dog": 2}},
    "pope.jsonl": [{"question_id": 1, "image": "1.jpg", "text": "Is there a dog?", "label": "yes"}],
    "coco_captions.json": {
        "images": [{"id": k} for k in (1, 2, 3)],
        "annotations": [{"image_id": k, "id": k, "caption": "A dog."} for k in (1, 2, 3)],
    },
    "amber.jsonl": [{"id": k, "response": "Yes"} for k in (1, 2)],
    "data.yaml": "path: data\nnames:\n  0: dog\n",
    "words.txt": "dog\ncat\nsofa\n",
    "words.json": ["dog", "cat"],
    "words.yaml": "- dog\n- cat\n",
    "words.csv": "label\ndog\ncat\n",
    "aliases.json": {"dog": ["puppy"], "cat": ["cat", "kitten"]},
    "prose.txt": "A dog runs over the wide green lawn.\n",
    "by_image.json": {"1": "A dog and a cat.", "2": "A dog and a cat.", "3": "A dog and a cat."},
    "inside.json": {"captions": CAPTIONS},
    "lists.jsonl": [{"image_id": 1, "caption": ["A dog.", "A cat."]}],
    "several.json": {f"{k}.jpg": ["A dog runs over the lawn.", "A cat sits near a dog."] for k in (1, 2, 3)},
    "records.json": {f"{k}.jpg": {"caption": "A dog and a cat."} for k in (1, 2, 3)},
    "batch.jsonl": [
        {"id": f"r{k}", "custom_id": f"{k}.jpg", "response": {"body": {"choices": [{"message": {"content": SAID}}]}}}
        for k in (1, 2, 3)
    ],
    "responses.jsonl": [
        {"custom_id": k, "response": {"body": {"output": [{"type": "message", "content": [{"text": SAID}]}]}}}
        for k in (1, 2, 3)
    ],
    "messages.jsonl": [
        {"custom_id": k, "result": {"type": "succeeded", "message": {"content": [{"text": SAID}]}}} for k in (1, 2, 3)
    ],
    "outputs.jsonl": [{"custom_id": k, "output": SAID if k < 2 else [SAID]} for k in (1, 2, 3)],
    "failed.jsonl": [{"custom_id": "1", "response": {"body": {"error": {"code": 429}}}, "error": None}],
    "no_message.jsonl": [{"custom_id": "1", "choices": [{"message": None}]}],
    "completions.jsonl": [{"image_id": k, "choices": [{"message": {"content": SAID}}]} for k in (1, 2, 3)],
    "vllm.jsonl": [{"request_id": k, "image": f"{k}.jpg", "outputs": [{"text": SAID}]} for k in (1, 2, 3)],
    "split.json": {"columns": ["image_id", "caption"], "index": [0], "data": [[1, SAID]]},
    "columns.json": {"image_id": {"0": 1}, "caption": {"0": SAID}},
    "arrays.json": {"image_id": [1, 2], "caption": ["A dog.", "A cat."]},
    "no_header.txt": "1.jpg\tA dog.\n2.jpg\tA cat.\n",
    "saved/state.json": {},
    "saved/dataset_info.json": {},
    "voc.xml": "<annotation>\n<filename>1.jpg</filename></annotation>",
    "studio.json": [{"id": 1, "data": {"image": "1.jpg"}, "annotations": []}],
    "tags.jsonl": [{"image_id": 1, "tags": ["dog"]}],
    "by_label.json": {"dog": ["1.jpg"], "cat": ["2.jpg"]},
    "inside_objects.json": {"1": {"objects": ["dog"]}},
    "no_header_truth.csv": "1.jpg,dog\n2.jpg,cat\n",
    "label.jsonl": [{"image_id": k, "label": label} for k, labels in OBJECTS.items() for label in labels],
    "string.jsonl": [{"image_id": k, "labels": ", ".join(labels)} for k, labels in OBJECTS.items()],
    "inner.jsonl": [{"meta": {"image_id": 1}, "caption": "A dog."}],
    "no_header.csv": "1.jpg,A dog runs over the wide green lawn of the house.\n2.jpg,A cat.\n",
    "no_ids.txt": "A dog runs over the wide green lawn of the house, and a cat sleeps.\nA cat.\n",
    "systems.csv": "image_id,base,ours\n1,A dog.,A dog and a cat.\n",
    "one_text.jsonl": [{"image_id": k, "caption": ["A dog and a cat."]} for k in (1, 2, 3)],
    "wrong.parquet": "A dog.\n",
    "instances.json": {
        "images": [{"id": 1}],
        "annotations": [{"image_id": 1, "id": 1, "category_id": 1}],
        "categories": [{"id": 1, "name": "dog"}],
    },
    "keys.jsonl": [{"img": k, "output": "A dog and a cat."} for k in (1, 2, 3)],
    "foreign.jsonl": [{"nr": k, "said": "A dog and a cat."} for k in (1, 2, 3)],
    "empty.jsonl": "",
    "wide_text.csv": "image_id,dog,cat,split\n1,1,0,val\n2,0,1,val\n",
    "objects.json": {k: [{"name": label} for label in labels] for k, labels in OBJECTS.items()},
    "long.csv": "File_Name,Label\n1.jpg,dog\n2.jpg,cat\n3.jpg,dog\n3.jpg,cat\n",
    "long_id.csv": "id,label\n1,dog\n2,cat\n3,dog\n3,cat\n",
    "counts.csv": "path,dog,cat\na/1.jpg,2,0\na/2.jpg,0,3.0\na/3.jpg,1,1\n",
    "index.csv": ",image_id,dog,cat\n0,1,1,0\n1,2,0,1\n2,3,1,1\n",
    "semi.csv": "image_id;dog;cat\n1;1;0\n2;0;1\n3;1;1\n",
    "alias.json": {"dog": "puppy", "cat": "kitten"},
    "commas.txt": "dog, cat, sofa\n",
    "labels.json": {"labels": ["dog", "cat"]},
    "comments.txt": "# pets\ndog # a pet\n# more\ncat\n",
    "synonyms.txt": "dog, puppy\ncat, kitten\n",
    "yes.jsonl": [{"question_id": k, "answer": text} for k, text in ((1, "yes"), (2, "No, it is not."))],
    "yes.csv": "id,answer\n1,yes\n2,no\n",
    "own_yes.jsonl": [{"image_id": k, "caption": text} for k, text in ((1, "Yes, a dog."), (2, "no"))],
    "two_texts.jsonl": [{"image": 1, "text": "Describe this.", "answer": "A dog."}],
    "two_images.jsonl": [{"image": "1.jpg", "file": "2.jpg", "text": "A dog."}],
    "lists_by_image.json": {f"{k}.jpg": ["A dog and a cat."] for k in (1, 2, 3)},
    "chat.jsonl": [
        {
            "id": f"c{k}",
            "images": [f"{k}.jpg"],
            "messages": [
                {"role": "user", "content": "Describe this."},
                {"role": "assistant", "content": "No."},
                {"role": "user", "content": "Again."},
                {"role": "assistant", "content": "A dog and a cat."},
            ],
        }
        for k in (1, 2, 3)
    ],
    "llava.json": [
        {
            "id": f"l{k}",
            "image": f"{k}.jpg",
            "conversations": [
                {"from": "human", "value": "<image>\nDescribe this."},
                {"from": "gpt", "value": "A dog and a cat."},
            ],
        }
        for k in (1, 2, 3)
    ],
    "parts_chat.jsonl": [
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": f"https://example.org/{k}.jpg"}}],
                },
                {"role": "assistant", "content": [{"type": "text", "text": "A dog and a cat."}]},
            ]
        }
        for k in (1, 2, 3)
    ],
    "chat_yes.jsonl": [{"id": k, "messages": [{"role": "assistant", "content": "Yes"}]} for k in (1, 2)],
    "images.jsonl": [{"images": ["1.jpg", "2.jpg"], "messages": [{"role": "assistant", "content": "A dog."}]}],
    "commas.jsonl": '{"image_id": 1, "caption": "A dog."},\n{"image_id": 2, "caption": "A cat."},\n',
    "python.jsonl": "{'image_id': 1, 'caption': 'A dog.'}\n",
    "latin.csv": b"image_id,caption\n1,A dog in a caf\xe9.\n",
    "tab.yaml": "labels:\n\tdog: [dog]\n",
    "cats.yaml": "labels: {cat: [cat, cats]}\n",
    "phrases.jsonl": [{"phrase": "dog", "captions": 3, "forms": {"dog": 3}, "examples": ["A dog."]}],
    "wrapped.json": {"run": 1, "data": {"items": CAPTIONS}},
    "wrapped_yes.json": {"my run": {"results": [{"question_id": 1, "answer": "yes"}]}, "n": 1},
    "phd.json": [{"image_id": "1", "yes_question": "Is it?", "no_question": "Is it not?", "task": "attribute"}],
    "amber.json": [{"id": 1, "response": "A dog and a cat sit on the lawn of the house."}],
    "mixed/a.json": OBJECTS,
    "mixed/b.jsonl": CAPTIONS,
    "floats.csv": "image_id,caption\n1.0,A dog and a cat.\n2.0,A dog and a cat.\n3.0,A dog and a cat.\n",
    "float_ids.csv": "image_id,label\n1.0,dog\n2.0,cat\n3.0,dog\n3.0,cat\n",
    "printed_lists.csv": 'image_id,objects\n1,[\'dog\']\n2,"[""cat""]"\n3,"[\'dog\', \'cat\']"\n',
    "one_string.json": {"1.jpg": "dog", "2.jpg": "cat", "3.jpg": "dog, cat, sofa, potted plant"},
    "key_lists.json": [{"img_id": 1, "captions": ["A dog.", "A cat."]}],
    "boxes/1.txt": "16 0.5 0.5 0.2 0.3\n",
    "parts/a.jsonl": CAPTIONS[:1],
    "parts/b.jsonl": CAPTIONS[1:],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes the files of a new user."""
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if name.endswith(".jsonl") and isinstance(content, list):
            content = "".join(json.dumps(record) + "\n" for record in content)
        content = content if isinstance(content, (str, bytes)) else json.dumps(content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return tmp_path


def values(out: str) -> dict[str, float]:
    """Returns metric -> value of the only system in the JSON output."""
    [system] = json.loads(out)["systems"]
    return {name: metric["value"] for name, metric in system["metrics"].items()}


MEANT = [
    "coco_names.jsonl --truth t.json",
    "names.jsonl --truth stems.json",
    "names.jsonl --truth jpgs.json",
    "c.jsonl --truth wide.csv",
    "c.jsonl --truth wide.tsv",
    "c.jsonl --truth lists.csv",
    "c.jsonl --truth labels.jsonl",
    "c.jsonl --truth images.json",
    "c.jsonl --truth ids.jsonl",
    "by_image.json --truth t.json",
    "keys.jsonl --truth t.json",
    "one_text.jsonl --truth t.json",
    "parts --truth t.json",
    "parts/*.jsonl --truth t.json",
    "c.jsonl --truth t.json --vocabulary words.json",
    "c.jsonl --truth t.json --vocabulary words.txt",
    "c.jsonl --truth t.json --vocabulary words.yaml",
    "c.jsonl --truth t.json --vocabulary words.csv",
    "c.jsonl --truth t.json --vocabulary aliases.json",
    "c.jsonl --truth t.json --vocabulary alias.json",
    "c.jsonl --truth t.json --vocabulary commas.txt",
    "c.jsonl --truth t.json --vocabulary labels.json",
    "c.jsonl --truth t.json --vocabulary comments.txt",
    *(f"{name} --truth t.json" for name in ("chat.jsonl", "llava.json", "parts_chat.jsonl", "lists_by_image.json")),
    *(f"c.jsonl --truth {name}" for name in ("long.csv", "long_id.csv", "counts.csv", "index.csv", "semi.csv")),
    *(f"{name}.jsonl --truth t.json" for name in ("batch", "responses", "outputs", "messages", "completions", "vllm")),
    "c.jsonl --truth label.jsonl",
    *("floats.csv --truth t.json", "c.jsonl --truth float_ids.csv", "c.jsonl --truth printed_lists.csv"),
]
"""Commands with a clear meaning, whose figures are those of ``c.jsonl --truth t.json``."""


@pytest.mark.parametrize("words", MEANT)
def test_what_is_meant_is_done(words: str, run: Run) -> None:
    expected = values(run("c.jsonl", "--truth", "t.json", "--json", "-q")[1])
    code, out, err = run(*words.split(), "--json")
    assert code == 0, err
    assert values(out) == expected
    assert ("scapo-eval vocab expand" in err) == ("--vocabulary" in words)


TOLD = [
    ("c.jsonl", "missing ground truth: use --truth FILE"),
    ("c.jsonl t.json", "t.json: recognized as a truth file, which requires --truth; write: scapo-eval score c.jsonl"),
    ("t.json c.jsonl", "t.json: recognized as a truth file, which requires --truth; write: scapo-eval score c.jsonl"),
    *(
        (f"{verb} t.json --truth{given}c.jsonl", f"look swapped; write: scapo-eval {verb} c.jsonl --truth{given}t.json")
        for verb, given in (("score", " "), ("score", "="), ("chair", " "), ("claims", " "), ("labels", " "))
    ),
    ("a=t.json keys.jsonl --truth c.jsonl", "t.json: recognized as a truth file; the arguments look swapped"),
    ("c.jsonl --truth t.json --references t.json --truth stems.json", "--truth accepts one value, and is given 2"),
    ("pope pope.jsonl --questions yes.jsonl", "write: scapo-eval pope yes.jsonl --questions pope.jsonl"),
    ("compare --benchmark score t.json --truth c.jsonl", "to score it: scapo-eval score c.jsonl --truth t.json"),
    ("compare --benchmark score c.jsonl --benchmark chair", "--benchmark accepts one value, and is given 2"),
    ("oracle convert t.json -o a.npz --output=b.npz -oc.npz", "is given 3: a.npz, b.npz, c.npz"),
    ("compare --benchmark amber", "missing: RESPONSES, --data (Checkout of AMBER's repository"),
    ("amber amber.json", "missing: --data (Checkout of AMBER's repository"),
    ("vocab chek words.yaml", "no such verb 'chek': scapo-eval vocab has the verbs build, check"),
    ("annotate statu run", "did you mean 'status'?"),
    ("oracle t.json", "a verb is missing before the file 't.json'"),
    ("power c.jsonl", "into a results file: scapo-eval score c.jsonl --truth TRUTH -o results.json"),
    ("import wrapped.json", "inside 'data.items'; take them out: jq -c '.data.items[]' wrapped.json > captions.jsonl"),
    ("wrapped.json --truth t.json", "inside 'data.items'; take them out: jq -c '.data.items[]' wrapped.json"),
    ("pope wrapped_yes.json", """take them out: jq -c '.["my run"].results[]' wrapped_yes.json > records.jsonl"""),
    (
        "labels mixed --truth t.json",
        "mixed: the files of one data set are of one kind, but it contains a.json (a truth",
    ),
    (
        "c.jsonl --truth t.json --on-bad-file skip",
        "--on-bad-file requires --engine ray; without it, use",
    ),
    ("c.jsonl --truth t.json --engine spark", "Spark is used from Python, with scapo_eval.distributed.spark"),
    ("reward c.jsonl --truth t.json --engine ray", "No such option '--engine': only score, chair, amber, phd, pope"),
    (
        "describe parts --model m -o d.jsonl --batch-size 2",
        "--batch-size is for --engine transformers, not",
    ),
    ("import t.json", "t.json: recognized as a truth file: it contains no captions and no answers; to score captions"),
    (
        "answer c.jsonl -o a.jsonl --model m",
        "recognized as own captions (image_id, caption); to score them: scapo-eval",
    ),
    ("yesno yes.jsonl --questions t.json", "recognized as a truth file; to score captions with it: scapo-eval score"),
    (
        "validate t.json",
        "recognized as a truth file; to score captions with it: scapo-eval score CAPTIONS --truth t.json",
    ),
    ("c.jsonl --truth t.json -o new/x.json", "cannot be written: folder not found; create it: mkdir -p new"),
    ("none.jsonl --truth t.json -o new/x.json", "new/x.json: cannot be written"),  # before any file is read
    ("describe . -o parts --model m", "parts: cannot be written: parts is a directory"),
    ("- --truth -", "standard input (-) is already another input; write one of them into a file"),
    ("version", "file or verb 'version' not found; scapo-eval --help lists the verbs"),
    ("protocol show chiar", "or a file); did you mean 'chair-opera'?"),
    ("c.jsonl --truth boxes", "but labels in YOLO's format; convert them to COCO's instances (JSON)"),
    ("c.jsonl --truth data.yaml", "data.yaml:1: not valid JSON; only vocabularies can be YAML"),
    ("https://h.co/c.jsonl?download=true --truth t.json", "curl -LO 'https://h.co/c.jsonl?download=true'"),
    ("c.jsonl -t t.json", "No such option '-t'. Did you mean '--truth'?"),
    ("--truth t.json", "Missing argument 'CAPTIONS...'"),
    ("c.jsonl t.json --truth t.json", "which --truth already names; write: scapo-eval score c.jsonl --truth t.json"),
    ("c.jsonl --truth nowhere.json", "nowhere.json: file not found"),
    ("nowhere.jsonl --truth t.json", "nowhere.jsonl: file not found"),
    ("c.jsonl --truth other_images.json", "none of 3 captions have the id of an image in other_images.json"),
    ("names.jsonl --truth ambiguous.json", "unknown image id 'val/img_a.jpg' (not in ambiguous.json)"),
    ("c.jsonl --truth wide_bad.csv", "wide_bad.csv:3: column 'cat' must be 1, 0, -1 (unknown), a count or"),
    ("c.jsonl --truth wide_text.csv", "columns with text: 'split' ('val'); remove them"),
    ("c.jsonl --truth objects.json", 'write a list of names, such as ["dog", "cat"] (3 records)'),
    ("yes.jsonl --truth t.json", "so these are answers, not captions; to score them: scapo-eval yesno yes.jsonl"),
    ("yes.csv --truth t.json", "so these are answers, not captions; to score them: scapo-eval yesno yes.csv"),
    (
        "own_yes.jsonl --truth t.json",
        "every text answers yes or no (2 records), so these are answers, not captions; rename the keys",
    ),
    ("two_texts.jsonl --truth t.json", "the keys 'text' and 'answer' name different captions; choose one"),
    ("two_images.jsonl --truth t.json", "the keys 'image' and 'file' name different images; choose one"),
    (
        "chat_yes.jsonl --truth t.json",
        "to score them: scapo-eval yesno chat_yes.jsonl --questions QUESTIONS; if they are",
    ),
    ("images.jsonl --truth t.json", "2 images in one chat; a caption belongs to one image"),
    ("c.jsonl --truth t.json --vocabulary synonyms.txt", "write one word per line, or all words in one line"),
    ("c.jsonl --truth counts.json", "'1' has an object where a list of labels is expected"),
    ("c.jsonl --truth pope.jsonl", "recognized as yes/no questions with labels"),
    ("c.jsonl --truth coco_captions.json", "scapo-eval score CAPTIONS --references coco_captions.json"),
    ("c.jsonl --truth by_image.json", "recognized as captions by image"),
    ("c.jsonl --truth empty.jsonl", "empty.jsonl: the file is empty"),
    ("c.jsonl --truth t.json --vocabulary coco", "known: coco80, dopa160, open400 (or give a file)"),
    ("c.jsonl --truth t.json --vocabulary prose.txt", "a list of words, or {label: [aliases]}"),
    ("inside.json --truth t.json", "the records are inside 'captions'; take them out: jq -c '.captions[]'"),
    ("lists.jsonl --truth t.json", "several captions for one image: write a record (image_id, caption) for each"),
    (
        "key_lists.json --truth t.json",
        "key_lists.json > captions.jsonl",
    ),
    (
        "several.json --truth t.json",
        "{image_id: .key, caption: .value[]}' several.json > captions.jsonl; as references of the images: "
        "scapo-eval score CAPTIONS --references several.json",
    ),
    ("c.jsonl --truth words.txt", "a list of words is not a truth, which lists the objects of each image"),
    ("c.jsonl --truth words.json", "to match captions with the words: --vocabulary words.json"),
    ("c.jsonl --truth one_string.json", """jq -c 'map_values(split(", *"; null))' one_string.json > truth.json"""),
    ("hf://n/x:test --truth t.json", "is not a data set; write hf://datasets/n/x:test"),
    ("hf://x --truth t.json", "is not a data set; write hf://datasets/NAMESPACE/x"),
    ("https://huggingface.co/datasets/n/x --truth t.json", "a web page; write hf://datasets/n/x"),
    (
        "https://huggingface.co/datasets/n/x/resolve/v1/a/b.jsonl --truth t.json",
        "write hf://datasets/n/x@v1/a/b.jsonl",
    ),
    (
        "records.json --truth t.json",
        "'to_entries[] | {image_id: .key} + .value' records.json > captions.jsonl",
    ),
    ("failed.jsonl --truth t.json", "failed.jsonl:1: the request has no text ({'code': 429})"),
    ("no_message.jsonl --truth t.json", "no_message.jsonl:1: the request has no text"),
    ("split.json --truth t.json", "'.data[] | {image_id: .[0], caption: .[1]}' split.json > captions.jsonl"),
    ("columns.json --truth t.json", "transpose[] | {image_id: .[0], caption: .[1]}' columns.json > captions.jsonl"),
    ("arrays.json --truth t.json", "transpose[] | {image_id: .[0], caption: .[1]}' arrays.json > captions.jsonl"),
    ("no_header.txt --truth t.json", "a table without a header line: add the line image_id,caption"),
    ("saved --truth t.json", "write them as Parquet: python -c"),
    ("c.jsonl --truth voc.xml", "export the annotations as COCO instances"),
    ("c.jsonl --truth studio.json", "it is an export of Label Studio: export the annotations as COCO instances"),
    ("c.jsonl --truth tags.jsonl", """objects: .["tags"]}' tags.jsonl > truth.jsonl"""),
    ("c.jsonl --truth string.jsonl", """objects: (.["labels"] | split(", *"; null))}' string.jsonl > truth.jsonl"""),
    ("c.jsonl --truth by_label.json", "it maps labels to images; convert it: jq -c"),
    ("c.jsonl --truth inside_objects.json", "jq -c 'map_values(.objects)' inside_objects.json > truth.json"),
    ("c.jsonl --truth no_header_truth.csv", "a table without a header line: add the line image_id,label"),
    ("c.jsonl --truth counts.json", "jq -c 'map_values([to_entries[] | select("),
    ("inner.jsonl --truth t.json", "take the keys out of 'meta': jq -c '. + .meta' inner.jsonl > captions.jsonl"),
    ("no_header.csv --truth t.json", "a table without a header line: add the line image_id,caption"),
    ("no_ids.txt --truth t.json", "texts without image ids: write a table with the header image_id,caption"),
    (
        "systems.csv --truth t.json",
        "scapo-eval score systems.csv --image-key image_id --caption-key ours",
    ),
    ("wrong.parquet --truth t.json", "wrong.parquet: not a parquet file"),
    ("c.json --truth t.json", "file not found; did you mean c.jsonl?"),
    ("c.jsonl,keys.jsonl --truth t.json", "it contains several files: separate them with spaces"),
    ("~/c.jsonl --truth t.json", "the shell does not expand ~ in quotation marks"),
    ("c.jsonl --gt t.json", "Did you mean '--truth'?"),
    ("c.jsonl -truth t.json", "No such option '-truth'. Did you mean '--truth'?"),
    ("c.jsonl --truth t.json --vocab coco80", "Did you mean '--vocabulary'?"),
    ("compare c.jsonl keys.jsonl --truth t.json", "scapo-eval compare --benchmark score c.jsonl keys"),
    ("pairs c.jsonl --truth t.json", "missing: --format (Data format to write), --images (Folder of the images"),
    ("c.jsonl --references tags.jsonl", "tags.jsonl:1: missing key 'references' (found: image_id, tags)"),
    ("c.jsonl --references ids.jsonl", "ids.jsonl:1: missing key 'references' (found: id, objects) (3 records, lines"),
    ("c.jsonl --references instances.json", "COCO's instances are a ground truth (--truth FILE), not references"),
    ("foreign.jsonl --truth t.json", "name the keys: scapo-eval score foreign.jsonl --image-key nr --caption-key said"),
    ("empty.jsonl --truth t.json", "the file contains no record"),
    ("commas.jsonl --truth t.json", "commas.jsonl:1: not valid JSON: a comma follows the record; remove the commas"),
    ("python.jsonl --truth t.json", "python.jsonl:1: not valid JSON but a printed Python dict; write each record with"),
    ("latin.csv --truth t.json", "latin.csv:2: neither JSON nor UTF-8 text; convert it, for example with iconv -f WIN"),
    ("x = c.jsonl --truth t.json", "file or verb 'x' not found; write NAME=FILE without spaces"),
    (
        "c.jsonl --truth t.json --vocabulary tab.yaml",
        "tab.yaml:2: not a valid YAML file: the indentation contains a tab",
    ),
    ("vocab check cats.yaml", "or accept a finding in the file: reviewed: {ambiguous: [cat]}"),
    (
        "vocab build phrases.jsonl -o x.yaml",
        "no label is in at least 5 captions; the most frequent one is in 3: --min-ca",
    ),
    ("prose.txt --truth t.json", "neither JSON nor a table with at least two columns"),
    ("parts/*.csv --truth t.json", "parts/*.csv: no file matches"),
    ("scor c.jsonl", "did you mean 'score'?"),
    ("c.jsonl --truth t.json --on_bad_record skip", "Did you mean '--on-bad-record'?"),
    ("c.jsonl --truth t.json --metrics hallucination", "known: hal_rate, cover_rate, cap_score"),
    ("c.jsonl --truth t.json -o c.jsonl", "c.jsonl: is also an input and would be overwritten"),
    ("compare c.jsonl c.jsonl", "not a results file"),
    ("pope c.jsonl", "it contains no answers; to score them: scapo-eval score c.jsonl --truth TRUTH"),
    ("c.jsonl --truth t.json --fail-under hal_rate", "expected METRIC=VALUE, for example cap_score=0.70"),
]

FILLED = {
    "CAPTIONS": "c.jsonl",
    "TRUTH": "t.json",
    "ANSWERS": "answers.jsonl",
    "QUESTIONS": "asked.jsonl",
    "IMAGES": ".",
}


@pytest.mark.parametrize(("words", "said"), TOLD)
def test_a_message_says_what_to_do(words: str, said: str, run: Run, folder: Path) -> None:
    code, _, err = run(*words.split())
    assert code == 2, err
    assert said in err
    assert "Traceback" not in err
    (folder / "answers.jsonl").write_text('{"id": "1", "response": "Yes"}\n')
    asked = [{"question_id": k, "text": f"Is it {k}?", "label": "yes"} for k in (1, 2)]
    (folder / "asked.jsonl").write_text("".join(json.dumps(question) + "\n" for question in asked))
    for command in re.findall(
        r"(?<!Usage): scapo-eval ([a-z][^;\n]* [^;\n]*)$", err.removeprefix("scapo-eval: "), re.MULTILINE
    ):
        code, _, err = run(*(FILLED.get(word, word) for word in shlex.split(command, comments=True)))
        assert code == 0, (command, err)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("augmented pope.jsonl own_yes.jsonl --questions yes.jsonl", "yes.jsonl own_yes.jsonl --questions pope.jsonl"),
        ("phd phd.json --data yes.jsonl", "yes.jsonl --data phd.json"),
        ("amber parts --data amber.json", "amber.json --data parts"),
        ("amber boxes --data amber.jsonl", "amber.jsonl --data boxes"),
    ],
)
def test_swapped_files_are_named_whichever_is_recognized(words: str, meant: str, run: Run) -> None:
    code, _, err = run(*words.split())
    assert code == 2
    assert f"the arguments look swapped; write: scapo-eval {words.split()[0]} {meant}\n" in err


def _leaves(command: click.Command, context: click.Context) -> Iterator[click.Command]:
    names = command.list_commands(context) if isinstance(command, click.Group) else ()
    for name in names:
        assert isinstance(command, click.Group)
        inner = command.get_command(context, name)
        assert inner is not None
        yield from _leaves(inner, context)
    if not names:
        yield command


def test_all_commands_refuse_several_values_of_an_option() -> None:
    commands = list(_leaves(cli, click.Context(cli)))
    assert len(commands) > 40
    assert [command.name for command in commands if not isinstance(command, Verb)] == []


@pytest.mark.parametrize("words", ["score help", "help score", "annotate help", "help annotate qc", "vocab check help"])
def test_help_is_a_word_too(words: str, run: Run) -> None:
    code, out, _ = run(*words.split())
    verbs = " ".join(word for word in words.split() if word != "help")
    assert code == 0
    assert out.startswith(f"Usage: scapo-eval {verbs} ")


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        ("c.jsonl --truth t.json --vocabulary words.txt", "scapo-eval vocab expand words.txt"),
        ("score run --truth t.json", "scapo-eval report run -o report.html"),
        ("score queries.json --truth t.json", "scapo-eval answer queries.json"),
        ("pope c.parquet", "scapo-eval score c.parquet --truth TRUTH"),
    ],
)
def test_a_suggestion_that_needs_a_missing_extra_names_the_command_that_installs_it(
    words: str, suggested: str, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "queries.json").write_text('[{"id": 1, "image": "a.jpg", "query": "Describe it."}]')
    (folder / "run").mkdir()
    (folder / "run" / "metrics.jsonl").write_text('{"step": 1}\n')
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(CAPTIONS), "c.parquet")
    with monkeypatch.context() as base:
        for module in ("inflect", "jinja2", "aiohttp"):
            base.setitem(sys.modules, module, None)
        _, out, err = run(*words.split())
        [line] = [line for line in (out + err).splitlines() if suggested in line]
        command, _, comment = line[line.index(suggested) :].partition("  # first: ")
        _, _, err = run(*(FILLED.get(word, word) for word in shlex.split(command)[1:]))
        needs = "needs the extra" in err
    assert needs == bool(comment), (line, err)


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq")
@pytest.mark.parametrize("words", [words for words, said in TOLD if "jq -c" in said or " > " in said])
def test_the_jq_command_of_a_message_writes_a_file_that_is_read(words: str, run: Run, folder: Path) -> None:
    err = run(*words.split())[2]
    command, output = re.search(r"(jq -c '[^']*' \S+ > (\w+\.jsonl?))", err).groups()  # type: ignore[union-attr]
    subprocess.run(command, shell=True, check=True)
    score = ("score", "-q", "--on-unknown-image", "skip")
    of_output = {"captions.jsonl": (*score, output, "--truth", "t.json"), "records.jsonl": ("import", output)}
    code, _, err = run(*of_output.get(output, (*score, "c.jsonl", "--truth", output)))
    assert code == 0, err


def test_the_keys_that_are_named_are_read(run: Run) -> None:
    code, _, err = run("import", "foreign.jsonl", "--image-key", "nr", "--caption-key", "said", "-o", "made.jsonl")
    assert code == 0, err
    assert run("made.jsonl", "--truth", "t.json", "-q")[0] == 0


@pytest.mark.parametrize("words", ["two_texts.jsonl --caption-key answer", "two_images.jsonl --image-key image"])
def test_a_key_that_is_named_decides(words: str, run: Run) -> None:
    code, _, err = run(*words.split(), "--truth", "t.json", "-q")
    assert code == 0, err


def test_the_words_of_a_list_are_completed_by_the_command_that_is_named(run: Run) -> None:
    code, out, err = run("vocab", "expand", "words.txt")
    assert code == 0, err
    assert "sofas" in out
    assert "vocab expand" not in err


def test_unknown_images_are_told_once_with_their_number(run: Run) -> None:
    Path("most.json").write_text(json.dumps({str(k): ["dog"] for k in range(1, 41)}))
    code, _, err = run("many.jsonl", "--truth", "most.json")
    assert code == 2
    lines = err.splitlines()
    assert len(lines) == 4
    assert "unknown image id '41' (not in most.json)" in lines[0]
    assert lines[3].endswith("or omit them with --on-unknown-image skip (7 records, lines 44-50)")
    assert run("many.jsonl", "--truth", "most.json", "--on-unknown-image", "skip", "-q")[0] == 0


@pytest.mark.parametrize(
    ("words", "last"),
    [
        ("--prompt p", "omit them with --on-unknown-image skip (44 records, lines 7-50)"),
        ("--on-unknown-image skip", "many.jsonl:1: the record contains no prompt; use --prompt (3 records, lines 1-3)"),
    ],
)
def test_faults_of_pairs_are_told_once_with_their_number(words: str, last: str, run: Run) -> None:
    given = "pairs many.jsonl --truth t.json --format trl --images ."
    code, _, err = run(*given.split(), *words.split())
    assert code == 2
    assert len(err.splitlines()) <= 4
    assert err.splitlines()[-1].endswith(last)


def test_help_as_a_word_is_help(run: Run) -> None:
    assert run("help") == run("--help")
    assert run("help", "labels") == run("labels", "--help")


@pytest.mark.parametrize(
    ("words", "begun", "expected"),
    [
        ("c.jsonl --vocabulary", "co", {"coco80"}),
        ("c.jsonl --protocol", "chair-op", {"chair-opera", "chair-opera-instructblip"}),
        ("c.jsonl --metrics", "hal_rate,cover_r", {"hal_rate,cover_rate"}),
        ("c.jsonl --fail-under", "cap_sc", {"cap_score="}),
        ("chair c.jsonl --metrics", "chair_", {"chair_s", "chair_i"}),
        ("c.jsonl --fail-worse", "cap_sc", {"cap_score"}),
        ("c.jsonl --by", "l", {"length"}),
        ("claims c.jsonl --metrics", "hal_rate_c", {"hal_rate_count"}),
        ("claims c.jsonl --kinds", "presence,c", {"presence,count"}),
        ("reward c.jsonl --kinds", "a", {"attribute"}),
        ("report c.jsonl --kinds", "r", {"relation"}),
        ("compare --metrics", "ch", {"chair_s"}),
        ("power --metrics", "hal_", {"hal_rate"}),
        ("report c.jsonl --metrics", "hal_", {"hal_rate"}),
        ("compare --benchmark", "", {"score", "pope"}),
        ("compare --benchmark", "po", {"pope"}),
        ("compare --benchmark chair --metrics", "chair_", {"chair_s"}),
        ("validate c.jsonl --metric", "c", {"cap_score", "cider_d"}),
        ("protocol show", "chair-op", {"chair-opera"}),
        ("protocol check c.jsonl --protocol", "chair-op", {"chair-opera"}),
        ("doctor", "n", {"nltk", "ngrams"}),
        ("pairs c.jsonl --vocabulary", "co", {"coco80"}),
    ],
)
def test_names_are_completed(words: str, begun: str, expected: set[str]) -> None:
    completed = ShellComplete(cli, {}, "scapo-eval", "_SCAPO_EVAL_COMPLETE").get_completions(words.split(), begun)
    assert {item.value for item in completed if item.type == "plain"} >= expected
    assert all(item.value.startswith(begun) for item in completed)


@pytest.mark.parametrize(
    "command",
    [
        "reward mine=c.jsonl --truth t.json -q",
        "oracle check t.json --captions mine=c.jsonl",
        "oracle stats t.json --captions mine=c.jsonl",
        "vocab check coco80 --captions mine=c.jsonl",
        "pairs mine=c.jsonl --truth t.json --format trl --images . --prompt p",
        "import mine=c.jsonl",
        "annotate sample mine=c.jsonl -n 1 -o s.jsonl",
    ],
)
def test_a_name_before_a_file_is_no_part_of_it(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.jsonl").write_text('{"image_id": 1, "caption": "A dog."}\n')
    Path("t.json").write_text('{"1": ["dog"]}')
    code, _, err = run(*command.split())
    assert code == 0, err
