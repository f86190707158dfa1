"""Runs the Python blocks and the commands of the reward pages and docs/integrations.md in order, in a user's folder.

The program adds the parts that the pages leave to the reader, and compares what a block prints with the output below
it. Blocks that start a training run of another library are run with this library in tests/integration/adapters. Prints
the folder of scapo_eval.
"""

from __future__ import annotations

import io
import json
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ELSEWHERE = ("scapo_eval.integrations.trl", "scapo_eval.integrations.skyrl")
RESPONSE = "A dog sits. A cat sleeps."


def run_blocks() -> None:
    """Runs the blocks, and checks their results."""
    import pandas
    from tokenizers import Tokenizer, models, pre_tokenizers

    import scapo_eval

    words = dict.fromkeys(re.findall(r"\w+|\.", RESPONSE))
    tokenizer = Tokenizer(models.WordLevel({word: k for k, word in enumerate([*words, "?"])}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    vocabulary = scapo_eval.Vocabulary.load("dopa160")
    truth = scapo_eval.PresenceOracle.from_objects({"1": ["dog"]}, labels=vocabulary.labels).restricted_to(vocabulary)
    for name in ("dopa.npz", "dopa_train.npz"):
        truth.save(name)
    ids = tokenizer.encode(RESPONSE).ids
    names: dict[str, Any] = {
        "vocabulary": vocabulary, "image_id": "1", "tokenizer": tokenizer, "generated_ids": ids,
        "data_frame": pandas.DataFrame({"dog": [1]}, index=["1"]),
        "score": lambda image, label: 0.5, "ask_the_judge": lambda image, labels: [1] * len(labels),
    }  # fmt: skip
    rollouts = [{"image_id": "1", "caption": RESPONSE}] * 2
    Path("rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rollouts))
    categories = [{"id": k, "name": name} for k, name in enumerate(scapo_eval.Vocabulary.load("coco80").labels)]
    dog = {"image_id": 1, "category_id": next(each["id"] for each in categories if each["name"] == "dog")}
    instances = {"images": [{"id": 1}], "annotations": [dog], "categories": categories}
    Path("instances.json").write_text(json.dumps(instances))
    ran, printed = {"python": 0, "bash": 0, "": 0}, ""
    of_two_responses = {"image_ids": ["1", "1"], "token_ids": [ids, ids]}
    for page, given in (("reward.md", {}), ("reward_custom.md", {}), ("integrations.md", of_two_responses)):
        names |= given
        for number, (language, source) in enumerate(FENCE.findall((DOCS / page).read_text(encoding="utf-8"))):
            if language == "python" and not any(module in source for module in ELSEWHERE):
                with redirect_stdout(io.StringIO()) as stream:
                    exec(compile(source, f"{page}, block {number}", "exec"), names)
                printed = stream.getvalue()
            elif language == "bash":
                for line in re.findall(r"^scapo-eval .+$", source.replace("\\\n", " "), re.MULTILINE):
                    run(line)
            elif language == "":
                assert source == printed, (page, number, printed)
            else:
                continue
            ran[language] += 1
    assert ran["python"] >= 8, ran
    assert ran["bash"] >= 1, ran
    assert ran[""] >= 2, ran
    assert len(Path("rewards.jsonl").read_text().splitlines()) == len(rollouts)
    assert names["advantages"].shape == (2, len(ids))
    assert names["results"][0].parts[0].reward == 1.0


def run(line: str) -> None:
    """Runs a command."""
    from click.testing import CliRunner

    from scapo_eval.cli.main import cli

    done = CliRunner().invoke(cli, shlex.split(line)[1:], catch_exceptions=False)
    assert done.exit_code == 0, (line, done.output)


if __name__ == "__main__":
    run_blocks()
    import scapo_eval

    print(Path(scapo_eval.__file__).parent)
