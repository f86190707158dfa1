"""Times five tasks of new users with the README's commands in a new environment: python benchmarks/first_tasks.py.

Each task uses the command in the README for its topic, with the user's files in place of the example files. A task
fails if the README contains no such command, the command fails, or the task needs more than five minutes including the
installation. For the task with TRL, the installation includes torch and the extra ``[trl]``, the model has two random
layers, and the training lasts one step on the CPU. If TRL cannot be installed, the output says so, and the exit code is
1. ``--here`` uses the current environment without an installation, and omits the task with TRL if TRL is missing.
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

from release import commands, lines_of

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 300
"""Maximum duration of a task in seconds, including the installation."""

TRL = "reward in TRL"
TRL_NEEDS = ["torch==2.13.0", f"{ROOT}[trl]"]
MODEL = "model"
WRITE_MODEL = f"""
from pathlib import Path
from scapo_eval.conformance import tiny_tokenizer, write_model

tokenizer = tiny_tokenizer()
tokenizer.chat_template = "{{% for message in messages %}}{{{{ message['content'] }}}}{{% endfor %}}"
tokenizer.save_pretrained("{MODEL}")
write_model(Path("{MODEL}"), tokenizer)
"""
ONE_STEP = (
    "max_steps=1 use_cpu=true bf16=false per_device_train_batch_size=8 num_generations=4 max_completion_length=16 "
    "logging_steps=1 report_to=none save_strategy=no"
).split()
"""Settings of GRPOConfig for one step on a CPU."""

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
    in_trl = next(line.split() for line in lines_of(readme) if "trl_scapo.py" in line)
    assert "`{image: [labels]}`" in readme
    assert re.search(r"integrations\.md", readme)

    def own(words: list[str], truth: str) -> list[str]:
        names = {"captions_baseline.jsonl": "base.jsonl", "captions_aligned.jsonl": "ours.jsonl", "truth.json": truth}
        for old, new in names.items():
            words = [word.replace(f"examples/{old}", new) for word in words]
        return words

    one = [word for word in plain if word != named]
    in_trl = [MODEL if "Qwen" in word else word.replace("examples/trl", f"{ROOT}/examples/trl") for word in in_trl]
    return {
        "score own captions": (own(one, "truth.json"), lambda out: "hal_rate" in out or "Hal. Rate" in out),
        "compare two": (own(plain, "truth.json"), lambda out: "base" in out and "ours" in out),
        "LaTeX table": (own(compared, "truth.json"), lambda out: r"\begin{tabular}" in out),
        TRL: ([*own(in_trl, "truth.json"), *ONE_STEP], lambda out: "scapo/subsentences" in out and "train_loss" in out),
        "oracle from CSV": (own(one, "truth.csv"), lambda out: "hal_rate" in out or "Hal. Rate" in out),
    }


def add_trl(pip: list[str | Path] | None, python: Path, user: Path, environment: dict[str, str]) -> float | None:
    """Installs TRL and writes a random model for it.

    Args:
        pip: Command that installs packages, or None if TRL must be there already.
        python: Interpreter of the environment.
        user: Folder for the model.
        environment: Environment variables.

    Returns:
        Duration of the installation in seconds, or None if TRL is not installed.
    """
    began = time.monotonic()
    if pip is not None:
        subprocess.run([*pip, *TRL_NEEDS], check=False)
    installed = time.monotonic() - began
    if subprocess.run([python, "-c", "import trl"], env=environment, capture_output=True, check=False).returncode:
        return None
    subprocess.run([python, "-c", WRITE_MODEL], cwd=user, env=environment, capture_output=True, check=True)
    return installed


def main() -> int:
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
        prompts = [{"image_id": record["image_id"], "prompt": "Describe this image."} for record in BASE]
        (user / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
        began, programs, exit_code = time.monotonic(), Path(sys.executable).parent, 0
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        if not here:
            venv.create(Path(scratch, "environment"), with_pip=True)
            programs = Path(scratch, "environment", "bin")
            pip = [programs / "pip", "install", "-q", "--disable-pip-version-check"]
            environment.pop("PYTHONPATH", None)
            subprocess.run([*pip, ROOT], check=True)
        installed = time.monotonic() - began
        print(f"install: {installed:.1f} s")
        environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
        for task, (command, right) in tasks((ROOT / "README.md").read_text(encoding="utf-8")).items():
            before = installed
            if task == TRL:
                added = add_trl(None if here else pip, programs / "python", user, environment)
                if added is None:
                    print(f"{task}: not run, because TRL is not installed")
                    exit_code = int(not here)
                    continue
                before += added
                print(f"install TRL: {added:.1f} s")
            began = time.monotonic()
            done = subprocess.run(command, cwd=user, env=environment, capture_output=True, text=True, timeout=LIMIT)
            took = time.monotonic() - began
            if done.returncode or not right(done.stdout) or took + before > LIMIT:
                sys.exit(f"{task}: {' '.join(command)}\n{done.stdout}{done.stderr}")
            print(f"{task}: {took:.1f} s")
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
