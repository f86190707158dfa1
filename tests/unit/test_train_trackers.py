"""What a tracker is told, by stand-ins whose calls take what the real packages' signatures take.

``tracker_signatures.json`` holds the parameters of wandb 0.31.0 and trackio 0.43.0, read by ``inspect``. An installed
package is read again.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from scapo_eval.base.errors import ScapoError
from scapo_train.config import from_table
from scapo_train.monitoring.log import Log

SIGNATURES: dict[str, dict[str, list[str]]] = json.loads(
    (Path(__file__).parent / "tracker_signatures.json").read_text()
)


class StandIn(ModuleType):
    """A package that notes its calls, and takes no argument that the real one does not take."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        for method in ("init", "Table"):
            setattr(self, method, self._noting(method))

    def _noting(self, method: str) -> Any:
        taken = SIGNATURES[self.__name__][method]

        def call(*given: Any, **named: Any) -> Any:
            arguments = dict(zip(taken, given, strict=False)) | named
            assert set(arguments) <= set(taken), f"{self.__name__}.{method} takes no {set(arguments) - set(taken)}"
            self.calls.append((method, arguments))
            if method == "Table":
                return ("table", arguments["columns"], arguments["data"])
            if method != "init":
                return None
            log, finish = self._noting("Run.log"), self._noting("Run.finish")
            return SimpleNamespace(id=arguments.get("id") or "abc123", log=log, finish=finish)

        return call


def log_of(folder: Path, tracker: str, done: int = -1) -> Log:
    config = from_table({"run": {"trackers": [tracker]}, "loss": {"kl": 0.5}})
    return Log(folder, config, {"oracle": "12345678"}, done)


@pytest.fixture(params=["wandb", "trackio"])
def package(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    module = StandIn(request.param)
    monkeypatch.setitem(sys.modules, request.param, module)
    return module


def test_a_tracker_gets_settings_metrics_a_table_of_samples_and_the_end(package: StandIn, tmp_path: Path) -> None:
    log = log_of(tmp_path, package.__name__)
    log.samples(2, [("7", "A dog."), ("9", "A cat.")])
    log.metrics(2, 4, {"kl": 0.25, "hal_rate": None})
    log.close(failed=True)
    (_, started), *told = package.calls
    assert started["project"] == "scapo"
    assert started["name"] == tmp_path.name
    assert started["config"]["loss"]["kl"] == 0.5
    assert started["config"]["card"]["oracle"] == "12345678"
    table = {"columns": ["step", "image_id", "response"], "data": [[2, "7", "A dog."], [2, "9", "A cat."]]}
    first = SIGNATURES[package.__name__]["Run.log"][0]
    assert told == [
        ("Table", table),
        ("Run.log", {first: {"samples": ("table", *table.values())}, "step": 2}),
        ("Run.log", {first: {"kl": 0.25}, "step": 2}),
        ("Run.finish", {"exit_code": 1} if package.__name__ == "wandb" else {}),
    ]


def test_a_resumed_training_run_goes_on_in_the_same_run(package: StandIn, tmp_path: Path) -> None:
    log_of(tmp_path, package.__name__)
    log_of(tmp_path, package.__name__, done=2)
    first, second = (arguments for _, arguments in package.calls)
    if package.__name__ == "wandb":
        assert (first["id"], first["resume"]) == (None, None)
        assert (second["id"], second["resume"]) == ("abc123", "allow")
    else:  # by its name
        assert first["name"] == second["name"]
        assert second["resume"] == "allow"


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_package_that_is_missing_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ScapoError, match=rf"run\.trackers = {name} needs that package: pip install {name}"):
        log_of(tmp_path, name)


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_the_recorded_signatures_are_those_of_an_installed_package(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed; its recorded signatures are used")
    assert SIGNATURES[name] == signatures(name)


def signatures(name: str) -> dict[str, list[str]]:
    """Parameters of what is called, from the installed package."""
    module = importlib.import_module(name)
    run = importlib.import_module({"wandb": "wandb.sdk.wandb_run", "trackio": "trackio.run"}[name]).Run
    called = {"init": module.init, "Table": module.Table, "Run.log": run.log, "Run.finish": run.finish}
    return {
        key: [each for each in inspect.signature(found).parameters if each != "self"] for key, found in called.items()
    }


if __name__ == "__main__":
    json.dump({name: signatures(name) for name in ("wandb", "trackio")}, sys.stdout, indent=1)
