"""``python -m scapo_train.doctor CONFIG --nproc-per-node N``: checks in minutes that training works on this machine.

The checks use the same number of ranks as training:

- Collective operations compute correct sums.
- A step of a small sharded model yields the same gradients as a step in a single process.
- Three steps of the actual training run succeed. With vLLM, the pixels, log-probabilities and synchronized weights must
  also match those of the trainer (see :mod:`scapo_train.samplers.vllm`).
- If a run is killed after its first checkpoint, it resumes and ends in the same state.
- On GPUs, the peak memory of a step does not exceed the plan. The measured duration of a step is printed next to the
  planned duration.

The report is printed and written to ``run.output/doctor.json``. If a check failed, training runs in the folder
``run.output`` refuse to start.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scapo_eval.base.errors import InputError, ScapoError
from scapo_eval.base.text import printable
from scapo_eval.files.files import atomic_write
from scapo_eval.files.json_text import dump_json

from . import interrupts_are_errors
from .config import REQUIRED, Config, load, required, to_toml
from .data import Prompts, check_pictures
from .loop import DOCTOR, check_installed
from .monitoring.log import open_folder
from .trainer import read_task

STEPS = 3
GRADIENT_GAP = 1e-4
"""Maximum gradient difference between sharded and single-process training, relative to the largest entry. Rounding
causes differences of 1e-6.
"""

_MEMORY, _SECONDS = 0.1, 0.3
"""Maximum relative excess of peak memory and of seconds over the plan."""

_SMALL = 0.5
"""Excess in GiB that passes for any model. PyTorch's own buffers exceed a tenth of a very small model."""


@dataclass(frozen=True)
class Check:
    """Result of a check.

    Attributes:
        name: Name of the check.
        ok: True if the check passed, False if it failed, None for a note.
        said: Description of the observed result.
    """

    name: str
    ok: bool | None
    said: str

    def __str__(self) -> str:
        return f"{ {True: 'ok', False: 'FAILED', None: 'note'}[self.ok]:<7}{self.name}: {self.said}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the checks and returns the exit code, which is 0 if all checks pass, 1 if a check fails, 2 for invalid
    input, and 130 after an interrupt.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--on-ranks"]:
        try:
            return _on_ranks(Path(given[1]))
        except ScapoError as error:
            print(f"scapo_train: {printable(str(error))}", file=sys.stderr)
            return 2
    parser = argparse.ArgumentParser(prog="scapo_train.doctor", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("config", help="TOML file, or the name of a shipped one (qwen2_5_vl_7b)")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    parser.add_argument("--nproc-per-node", type=int, default=1, metavar="N", help="ranks (default: 1)")
    options = parser.parse_args(given)
    interrupts_are_errors()
    try:
        config = load(options.config, options.set)
        required(config, options.config, REQUIRED)
        if options.nproc_per_node < 1:
            raise ScapoError("--nproc-per-node must be at least 1")
        check_installed(config)
        check_pictures(read_task(config).sources)
        folder = Path(config.run.output)
        with tempfile.TemporaryDirectory(prefix="scapo-doctor-") as scratch:
            findings = examine(
                config, options.nproc_per_node, Path(scratch), lambda finding: print(finding, flush=True)
            )
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / DOCTOR) as stream:
            stream.write(
                dump_json({"ok": healthy(findings), "findings": [asdict(finding) for finding in findings]}) + b"\n"
            )
    except (ScapoError, OSError) as error:
        print(f"scapo_train.doctor: {printable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("scapo_train.doctor: interrupted", file=sys.stderr)
        return 130
    print(f"{'this machine trains correctly' if healthy(findings) else 'do not train here'}: {folder / DOCTOR}")
    return int(not healthy(findings))


def healthy(findings: Sequence[Check]) -> bool:
    """Returns True if no check failed."""
    return all(finding.ok is not False for finding in findings)


def examine(config: Config, ranks: int, scratch: Path, tell: Callable[[Check], None]) -> list[Check]:
    """Runs the checks, stops after the first failed check, and returns the results.

    Args:
        config: Settings of the training run.
        ranks: Number of processes.
        scratch: Folder for temporary files.
        tell: Callback for the result of each check.
    """
    findings: list[Check] = []
    for check in (_sharded, _steps, _killed, _planned):
        for finding in check(config, ranks, scratch):
            tell(finding)
            findings.append(finding)
        if not healthy(findings):
            break
    return findings


def _sharded(config: Config, ranks: int, scratch: Path) -> list[Check]:
    """Checks collective operations, and compares a sharded step of a small model with a single-process step."""
    out = scratch / "ranks.json"
    done = _run(ranks, "scapo_train.doctor", "--on-ranks", str(out))
    if done.returncode or not out.exists():
        return [Check("ranks", False, _last_line(done))]
    seen = json.loads(out.read_bytes())
    gap = seen["gradient_gap"]
    where = f"{ranks} x {seen['device']}"
    return [
        Check("collectives", seen["sum_ok"], f"{where}, {seen['seconds']:.2g} s for 64 MiB summed over all ranks"),
        Check("sharded step", gap < GRADIENT_GAP, f"gradients {gap:.1e} from those of one process ({GRADIENT_GAP:g})"),
    ]


def _steps(config: Config, ranks: int, scratch: Path) -> list[Check]:
    """Checks that three steps of the actual training run succeed."""
    start = time.monotonic()
    done = _run(ranks, "scapo_train", *_arguments(config, scratch, "whole"))
    if done.returncode:
        return [Check("steps", False, _last_line(done))]
    rows = _rows(scratch / "whole")
    finite = all(math.isfinite(row["loss"]) for row in rows if row["loss"] is not None)
    seconds = sum(value or 0 for name, value in rows[-1].items() if name.startswith("seconds_"))
    findings = [
        Check(
            "steps", len(rows) == STEPS and finite,
            f"{STEPS} with a checkpoint after each in {time.monotonic() - start:.0f} s, the last in {seconds:.2g} s",
        )
    ]  # fmt: skip
    if config.rollout.engine == "vllm":
        told = [line.partition("INFO: ")[2] for line in done.stderr.splitlines() if "weights synchronized" in line]
        findings.append(Check("vLLM", True, told[0] if told else "rollout.check_sync is off"))
    return findings


def _killed(config: Config, ranks: int, scratch: Path) -> list[Check]:
    """Kills a run after its first checkpoint, resumes the run, and compares its metrics with those of an uninterrupted
    run.
    """
    arguments = _arguments(config, scratch, "killed")
    first = scratch / "killed" / "checkpoints" / "step-000001" / "state.json"
    with _started(ranks, "scapo_train", *arguments, output=subprocess.DEVNULL) as process:
        while not first.exists() and process.poll() is None:
            time.sleep(0.02)
    if not first.exists():
        return [Check("kill and resume", False, "the run ended before its first checkpoint")]
    _wait_until_unlocked(scratch / "killed")
    done = _run(ranks, "scapo_train", *arguments, "--resume", "auto")
    if done.returncode:
        return [Check("kill and resume", False, _last_line(done))]
    whole, killed = _rows(scratch / "whole"), _rows(scratch / "killed")
    gap = max(
        (abs(row[name] - again[name]) / max(abs(row[name]), 1e-6))
        for row, again in zip(whole, killed, strict=True)
        for name in ("loss", "grad_norm", "length")
        if row[name] is not None and again[name] is not None
    )
    exact = _device() == "cpu"  # GPU kernels do not add in a fixed order
    seen = f"killed with SIGKILL after step 1; the metrics of all steps are {gap:.1e} from those of a run that was not"
    return [Check("kill and resume", gap == 0 if exact else gap < 0.5, seen)]


def _kill(process: subprocess.Popen[Any]) -> None:
    """Kills a process and all processes that it started. Signals to a process group do not suffice, because each rank
    of torchrun is in a session of its own.
    """
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # this process has ended
            parents[int(file.parent.name)] = int(file.read_text().rpartition(")")[2].split()[1])
    doomed = [process.pid]
    for pid in doomed:  # the list grows
        doomed += [child for child, parent in parents.items() if parent == pid]
    for pid in doomed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _wait_until_unlocked(folder: Path) -> None:
    """Waits, for at most a minute, until no process trains in a folder. A killed process on a GPU ends late."""
    for _ in range(600):
        try:
            with open_folder(folder, resume=True):
                return
        except InputError:
            time.sleep(0.1)


def _planned(config: Config, ranks: int, scratch: Path) -> list[Check]:
    """Compares the peak memory and the duration of a step with the plan, if the planner supports the GPU."""
    import torch

    from .model import processor_of, source_folder
    from .plan.budget import job_of_run
    from .plan.hardware import GIB, kind_of
    from .plan.job import NO_PLAN
    from .plan.planner import plan
    from .plan.shapes import model_config

    if not torch.cuda.is_available():
        return [Check("plan", None, "no GPU: memory and seconds are not compared")]
    if config.rollout.server:
        return [Check("plan", None, NO_PLAN)]
    kind = kind_of(torch.cuda.get_device_name())
    if kind is None:
        return [Check("plan", None, f"{torch.cuda.get_device_name()} is not a GPU that the planner supports")]
    prompts = Prompts(read_task(config).sources, processor_of(config.model), 0)
    longest = prompts.largest()
    prompts.close()
    assert longest is not None  # the run has used some prompts
    try:
        image_token = getattr(model_config(str(source_folder(config.model))), "image_token_id", None)
        memory = torch.cuda.mem_get_info()[1]
        expected = plan(job_of_run(config, longest, image_token, kind, ranks, memory))
    except ScapoError as error:
        return [Check("plan", None, f"memory cannot be planned: {error}")]
    row = _rows(scratch / "whole")[-1]
    seconds = sum(value or 0 for column, value in row.items() if column.startswith("seconds_"))
    planned = sum(expected.seconds.values())
    peak, wanted = row["peak_memory"] / GIB, max(map(expected.without_vllm, expected.memory)) / GIB
    return [
        Check(
            "peak memory", peak < wanted + max(_MEMORY * wanted, _SMALL),
            f"{peak:.1f} GiB, planned {wanted:.1f}",
        ),
        Check(
            "seconds", None,
            f"{seconds:.1f} a step, planned {planned:.1f}" + ("" if seconds < (1 + _SECONDS) * planned else ": slow"),
        ),
    ]  # fmt: skip


def _arguments(config: Config, scratch: Path, name: str) -> list[str]:
    """Returns the arguments for a short run with the settings of the training run."""
    file = scratch / f"{name}.toml"
    file.write_text(to_toml(config))
    changes = {
        "run.output": scratch / name, "run.steps": STEPS, "run.save_every": 1, "run.keep": STEPS, "run.samples": 0,
        "run.evaluate_every": 0, "run.snr_every": 0, "run.export": "false", "run.keep_best": '""', "run.patience": 0,
        "run.stop_on": "[]", "run.trackers": "[]", "run.max_hours": 0,
        # which a server must be able to read
        "rollout.weights_folder": config.rollout.weights_folder or (config.run.output if config.rollout.server else ""),
    }  # fmt: skip
    return [str(file), *(part for key, value in changes.items() for part in ("--set", f"{key}={value}"))]


def _command(ranks: int, module: str, *arguments: str) -> list[str]:
    if ranks == 1:
        return [sys.executable, "-m", module, *arguments]
    start = [sys.executable, "-m", "scapo_train.launch", "--standalone", "--nproc-per-node", str(ranks)]
    return [*start, "-m", module, *arguments]


@contextmanager
def _started(ranks: int, module: str, *arguments: str, output: int) -> Iterator[subprocess.Popen[str]]:
    """Starts a run, which is killed at the end of the ``with`` block and also after an interrupt."""
    process = subprocess.Popen(_command(ranks, module, *arguments), stdout=output, stderr=output, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            _kill(process)
        process.wait()


def _run(ranks: int, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    with _started(ranks, module, *arguments, output=subprocess.PIPE) as process:
        said, faults = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, said, faults)


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Returns a text with the exit code and the last message of a finished run."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    messages = [line for line in lines if line.startswith("scapo_train: ") and ": INFO: " not in line]
    return f"exit code {done.returncode}: {(messages or lines or ['no message'])[-1]}"


def _rows(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["step"]]


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _on_ranks(out: Path) -> int:
    """Checks, on every rank, collective operations and the gradients of a small model. The first rank writes the
    results.
    """
    import torch

    from .config import Model
    from .distributed import ProcessGroup, join_process_group, leave
    from .model import load_policy
    from .plan.small import noise_prompts, save_small

    with join_process_group() as group:
        numbers = torch.full((2**24,), float(group.rank), device=group.device)
        start = time.perf_counter()
        if group.size > 1:
            torch.distributed.all_reduce(numbers)
        seen: dict[str, Any] = {"device": group.device.type, "sum_ok": False}
        wanted = group.size * (group.size - 1) / 2
        seen["sum_ok"] = bool((numbers == wanted).all())
        seen["seconds"] = time.perf_counter() - start
        path = out.with_name("small")
        if group.main:
            save_small(path)
        group.gather(None)  # wait until the model is written
        settings = Model(path=str(path), dtype="float32", gradient_checkpointing=False)
        number = 2 * group.size
        gradients = []
        for alone in (ProcessGroup(0, 1, group.device), group):
            policy = load_policy(settings, 1.0, alone)
            prompts = noise_prompts(path, number)[alone.rank :: alone.size]
            encoded = policy.prepare(prompts, group.device)
            responses = [[10 + prompt.prompt.index, 20, 30 + prompt.prompt.index] for prompt in encoded]
            rows = [prompt.row([ids]) for prompt, ids in zip(encoded, responses, strict=True)]
            (policy(policy.batch(rows, group.device)).logprob.sum() * alone.size / number).backward()
            gradients.append(
                {
                    name: _whole(parameter.grad)
                    for name, parameter in policy.named_parameters()
                    if parameter.requires_grad
                }
            )
        single, several = gradients
        gap = max(
            float((several[name] - single[name]).abs().max() / single[name].abs().max().clamp_min(1e-8))
            for name in single
        )
        seen["gradient_gap"] = max(group.gather(gap))
        if group.main:
            out.write_text(json.dumps(seen))
    if group.size > 1:
        leave(0)
    return 0


def _whole(gradient: Any) -> Any:
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


if __name__ == "__main__":
    sys.exit(main())
