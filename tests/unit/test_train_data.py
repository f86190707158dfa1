"""The order of prompts, and faulty prompt files."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("torch")

import torch
from jinja2 import TemplateError

from scapo_eval import PresenceOracle
from scapo_eval.base.errors import InputError, InputErrors
from scapo_eval.engines.images import ImageFault
from scapo_train.data import PromptRecord, Prompts, indices_of_step, read_prompts, seed_of


def test_an_epoch_is_a_permutation_without_the_rest_that_fills_no_step() -> None:
    epochs = [[k for step in range(13 * e, 13 * (e + 1)) for k in indices_of_step(step, 40, 3, 7)] for e in range(3)]
    for epoch in epochs:
        assert len(epoch) == len(set(epoch)) == 39
        assert set(epoch) < set(range(40))
    assert epochs[0] != epochs[1] != epochs[2]
    assert indices_of_step(5, 40, 3, 7) == indices_of_step(5, 40, 3, 7) != indices_of_step(5, 40, 3, 8)


def test_the_papers_numbers_of_steps() -> None:
    assert 5000 // 128 * 8 == 312
    assert len(indices_of_step(311, 5000, 128, 0)) == 128


def test_fewer_prompts_than_a_step_takes_is_an_error() -> None:
    with pytest.raises(InputError, match=r"2 prompts, but data\.prompts_per_step is 3"):
        indices_of_step(0, 2, 3, 0)


def test_seeds_depend_on_every_part() -> None:
    assert len({seed_of(*parts) for parts in ((0, 1), (1, 0), (0, 1, 0), (0, 2), (3,))}) == 5


def test_faulty_lines_are_named_together(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(
        '{"image": "1.png", "image_id": 1, "prompt": "Describe."}\n'
        '{"image": "2.png", "image_id": 2}\n'
        '{"image": "COCO_train2014_000000000009.jpg", "prompt": "Describe."}\n'
        '{"image": "3.png", "image_id": 3, "prompt": ""}\n'
        '{"image": "4.png", "image_id": 4, "prompt": "Describe."}\n'
    )
    oracle = PresenceOracle.from_objects({"1": ["dog"], "9": []}, labels=["dog"])
    with pytest.raises(InputErrors) as caught:
        read_prompts(file, oracle=oracle)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in lines] == ["2", "4", "5"]
    assert "'prompt' must be a non-empty string" in lines[0]
    assert "'4'" in lines[2]


def test_chats_with_any_number_of_pictures(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    user = {"role": "user", "content": "Compare them."}
    parts = [{"type": "image"}, {"type": "text", "text": "and"}, {"type": "image"}]
    lines: list[dict[str, Any]] = [
        {"images": ["a.png", "b.png"], "image_id": 1, "prompt": "Compare them."},
        {"images": ["a.png", "b.png"], "image_id": 1, "messages": [{"role": "system", "content": "Be brief."}, user]},
        {"images": ["a.png", "b.png"], "image_id": 1, "messages": [{"role": "user", "content": parts}]},
        {"images": [], "image_id": 1, "messages": [user]},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read_prompts(file)
    assert [[part["type"] for part in each.messages[-1]["content"]] for each in found] == [
        ["image", "image", "text"], ["image", "image", "text"], ["image", "text", "image"], ["text"],
    ]  # fmt: skip
    assert [len(each.pictures) for each in found] == [2, 2, 2, 0]
    assert found[1].messages[0] == {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prompt": "<image>\nDescribe."}, "'prompt' contains a literal <image>, .* omit it"),
        (
            {"prompt": None, "messages": [{"role": "user", "content": "<image> A dog?"}]},
            "'messages' 1 contains a literal",
        ),
        ({"messages": [{"role": "user", "content": "A dog?"}]}, "'messages' must be .* in place of 'prompt'"),
        (
            {"prompt": None, "messages": [{"role": "assistant", "content": "A dog."}]},
            "must end with a turn of",
        ),
        ({"prompt": None, "messages": [{"role": "tool", "content": "A dog."}]}, "'role' must be system, user or"),
        ({"prompt": None, "messages": [{"role": "user", "content": [{"type": "image"}] * 2}]}, "places for 2 .* are 1"),
        ({"prompt": None, "messages": [{"role": "user", "content": [{"type": "audio"}]}]}, "a part must be"),
        ({"images": ["a.png"]}, "'images' must be a list of strings, in place of 'image'"),
        (
            {"image": None, "images": ["a.png", "b.png"], "image_id": None},
            "'image_id' must name the image for the reward",
        ),
    ],
)
def test_faulty_chats_say_why(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    line = {"image": "1.png", "image_id": 1, "prompt": "Describe.", **change}
    (tmp_path / "train.jsonl").write_text(json.dumps({name: each for name, each in line.items() if each is not None}))
    with pytest.raises((InputError, InputErrors), match=reason):
        read_prompts(tmp_path / "train.jsonl")


def test_images_lie_beside_the_file_or_in_the_folder_given(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text('{"image": "a/COCO_train2014_000000000009.jpg", "prompt": "Describe."}\n')
    (beside,) = read_prompts(file)
    (given,) = read_prompts(file, "/pictures")
    assert beside.path == str(tmp_path / "a" / "COCO_train2014_000000000009.jpg")
    assert given.path == "/pictures/a/COCO_train2014_000000000009.jpg"
    assert beside.image_id == given.image_id == "9"


class Words:
    """Processor with one token per word, which adds the beginning-of-sequence token 1 unless told otherwise."""

    special_tokens_map: ClassVar[dict[str, str]] = {"bos_token": "<s>"}

    def __init__(self, begins: str = "") -> None:
        self.begins = begins

    def apply_chat_template(self, turns: Any, **_: Any) -> str:
        if len(turns) > 1:
            raise TemplateError("roles must alternate")
        return self.begins + turns[0]["content"][-1]["text"]

    def __call__(self, text: list[str], images: Any, *, add_special_tokens: bool = True, **_: Any) -> dict[str, Any]:
        words = text[0].replace("<s>", "<s> ").split()
        return {"input_ids": torch.tensor([[1] * add_special_tokens + [1 if word == "<s>" else 2 for word in words]])}


@pytest.mark.parametrize("begins", ["", "<s>"])
def test_the_beginning_of_sequence_occurs_once(begins: str) -> None:
    prompts = Prompts([PromptRecord.of([], "1", "Describe it")], Words(begins), 0)
    assert prompts.take([0])[0].ids.tolist() == [1, 2, 2]
    prompts.close()


def test_a_prompt_that_cannot_be_used_is_refused_by_check_bad() -> None:
    user = {"role": "user", "content": [{"type": "text", "text": "Describe it"}]}
    sources = [PromptRecord((), str(k), (user,) * turns) for k, turns in enumerate((1, 2))]
    sources.append(PromptRecord.of([], "2", "Describe it in " + "many " * 40 + "words"))
    prompts = Prompts(sources, Words(), 0, longest=8)
    assert [prompt.index for prompt in prompts.take([0, 1, 2], check=False)] == [0]
    with pytest.raises(InputError, match="image 1: the model's chat template fails: roles must alternate"):
        prompts.check_bad()
    del prompts.refused[1]
    with pytest.raises(InputError, match="image 2: its prompt has 45 tokens"):
        prompts.check_refused()
    with pytest.raises(InputError, match="image 2: its prompt has 45 tokens"):
        prompts.largest()
    prompts.close()


def test_several_workers_prepare_prompts_at_the_same_time_in_order() -> None:
    sources = [PromptRecord.of([f"{k}.png"], str(k), f"look {k}") for k in range(6)]

    class Processor:
        def apply_chat_template(self, turns: Any, **_: Any) -> str:
            return turns[0]["content"][-1]["text"]

        def __call__(self, text: list[str], images: list[str], **_: Any) -> dict[str, Any]:
            return {"input_ids": torch.tensor([[ord(letter) for letter in text[0] + images[0]]])}

    def of(workers: int, look: Callable[[str], str]) -> tuple[list[list[int]], set[int]]:
        prompts = Prompts(sources, Processor(), 9, look=look, workers=workers)
        taken = [prompts.take([4, 0, 2], [5, 1, 3]), prompts.take([5, 1, 3])]
        prompts.close()
        assert [[prompt.index for prompt in each] for each in taken] == [[4, 0, 2], [5, 3]]
        return [prompt.ids.tolist() for each in taken for prompt in each], prompts.bad

    def look(path: str) -> str:
        if path == "1.png":
            raise ImageFault("1.png is no picture")
        return path

    meeting = threading.Barrier(3)

    def together(path: str) -> str:
        meeting.wait(600)  # raises if a worker is alone
        return look(path)

    assert of(3, together) == of(1, look)
    assert of(1, look)[1] == {1}
