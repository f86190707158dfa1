"""Times five tasks of new users with the README's commands in a new environment: python benchmarks/first_tasks.py.

Each task uses the command (or the Python block) in the README for its topic, with the user's files in place of the
example files. A task fails if the README contains no such command, the command fails, or the task needs more than five
minutes including the installation. ``--here`` uses the current environment without an installation.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path

from release import commands

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 300
"""Maximum duration of a task in seconds, including the installation."""

BASE = [
    {"image_id": "kitchen.jpg", "caption": "A dog sleeps on a couch beside a cat."},
    {"image_id": "street.jpg", "caption": "Two cars and a bus wait at a traffic light."},
    {"image_id": "park.jpg", "caption": "A person throws a frisbee to a dog near a bench."},
]
OURS = [
    {"image_id": "kitchen.jpg", "caption": "A dog sleeps on a couch."},
    {"image_id": "street.jpg", "caption": "Two cars wait at a traffic light, and a person crosses."},
    {"image_id": "park.jpg", "caption": "A person throws a frisbee to a dog."},
]
TRUTH = """image_id,label
kitchen,dog
kitchen,couch
street,car
street,traffic light
street,person
park,dog
park,person
park,frisbee
"""


def tasks(readme: str) -> dict[str, tuple[list[str], Callable[[str], bool]]]:
    """Returns task -> command, and a function that checks its output.

    Args:
        readme: Text of the README.
    """
    lines = [re.split(r"\s+#", line)[0].split() for line in commands(readme)]
    verbs = ("example", "show", "labels", "report")
    compared = next(line for line in lines if "--format" in line and "latex" in line)
    plain = [word for word in compared if word not in ("--format", "latex")]
    named = next(word for word in plain if word.startswith("ours="))
    assert all(any(line[1] == verb for line in lines) for verb in verbs)
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    reward = next(block for block in blocks if "SubsentenceReward" in block)
    assert "`{image: [labels]}`" in readme
    assert re.search(r"integrations\.md", readme)

    def own(words: list[str], truth: str) -> list[str]:
        names = {"captions_baseline.jsonl": "base.jsonl", "captions_aligned.jsonl": "ours.jsonl", "truth.json": truth}
        for old, new in names.items():
            words = [word.replace(f"examples/{old}", new) for word in words]
        return words

    one = [word for word in plain if word != named]
    in_python = reward.replace("examples/truth.json", "truth.json").replace("[3]", '["park"]')
    return {
        "score own captions": (own(one, "truth.json"), lambda out: "hal_rate" in out or "Hal. Rate" in out),
        "compare two": (own(plain, "truth.json"), lambda out: "base" in out and "ours" in out),
        "LaTeX table": (own(compared, "truth.json"), lambda out: r"\begin{tabular}" in out),
        "reward for RL": (["python", "-c", in_python], lambda out: "A family eats at a table." in out),
        "oracle from CSV": (own(one, "truth.csv"), lambda out: "hal_rate" in out or "Hal. Rate" in out),
    }


def main() -> None:
    """Runs the tasks and prints their durations."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--here", action="store_true", help="use this environment")
    here = parser.parse_args().here
    with tempfile.TemporaryDirectory(prefix="scapo-first-") as scratch:
        user = Path(scratch, "user")
        user.mkdir()
        for name, records in (("base.jsonl", BASE), ("ours.jsonl", OURS)):
            (user / name).write_text("".join(json.dumps(record) + "\n" for record in records))
        objects: dict[str, list[str]] = {}
        for line in TRUTH.splitlines()[1:]:
            image, label = line.split(",")
            objects.setdefault(image, []).append(label)
        (user / "truth.json").write_text(json.dumps(objects))
        (user / "truth.csv").write_text(TRUTH)
        began, programs = time.monotonic(), Path(sys.executable).parent
        environment = dict(os.environ)
        if not here:
            venv.create(Path(scratch, "environment"), with_pip=True)
            programs = Path(scratch, "environment", "bin")
            environment.pop("PYTHONPATH", None)
            subprocess.run([programs / "pip", "install", "-q", "--disable-pip-version-check", ROOT], check=True)
        installed = time.monotonic() - began
        print(f"install: {installed:.1f} s")
        environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
        for task, (command, right) in tasks((ROOT / "README.md").read_text(encoding="utf-8")).items():
            began = time.monotonic()
            done = subprocess.run(command, cwd=user, env=environment, capture_output=True, text=True, timeout=LIMIT)
            took = time.monotonic() - began
            if done.returncode or not right(done.stdout) or took + installed > LIMIT:
                sys.exit(f"{task}: {' '.join(command)}\n{done.stdout}{done.stderr}")
            print(f"{task}: {took:.1f} s")


if __name__ == "__main__":
    main()
