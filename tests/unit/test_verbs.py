"""Verbs made of records: what reaches an engine, and what the command line and Python share."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

import scapo_eval
from scapo_eval.benchmarks.systems import Systems, function_of, options_of
from scapo_eval.cli.main import cli
from scapo_eval.cli.verbs import command_of
from scapo_eval.results.benchmark import Benchmark, Option, benchmark, benchmarks
from scapo_eval.results.results import Run

ON_ENGINE = [record.name for record in benchmarks() if record.engine is not None]
NEEDED = {"capscore": ["--truth", "t.json"], "chair": ["--truth", "t.json"], "amber": ["--data", "AMBER"]}


class Asked(Exception):
    """Raised by the stand-in of an engine, with what it was asked."""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in the place of ``scapo_eval.distributed.ray``."""

    @contextmanager
    def connected(address: str | None, *, quiet: bool) -> Iterator[None]:
        yield

    def counting(function: str) -> Any:
        def count(path: str, **how: Any) -> Run:
            raise Asked(function, path, how)

        return count

    module = ModuleType("scapo_eval.distributed.ray")
    module.connected = connected  # type: ignore[attr-defined]
    module.resampling = nullcontext  # type: ignore[attr-defined]
    for function in ("score", "chair", "answers", "amber"):
        setattr(module, function, counting(function))
    monkeypatch.setitem(sys.modules, "scapo_eval.distributed.ray", module)
    import scapo_eval.distributed

    monkeypatch.setattr(scapo_eval.distributed, "ray", module, raising=False)


@pytest.mark.parametrize("name", ON_ENGINE)
def test_an_engine_is_asked_for_what_it_takes(engine: None, name: str, tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")
    from scapo_eval.distributed import amber, answers, batch
    from scapo_eval.distributed.engine import CountingEngine

    record = benchmark(name)
    assert record.engine is not None
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question_id": 1, "label": "yes", "text": "Is there a dog?"}\n')
    path = tmp_path / "answers.jsonl"
    path.write_text('{"id": 1, "response": "Yes"}\n')
    given = NEEDED.get(name) or ["--data" if name == "phd" else "--questions", str(questions)]
    arguments = [record.verb, f"ours={path}", *given, "--engine", "ray", "-q"]
    asked = CliRunner().invoke(cli, arguments).exception
    assert isinstance(asked, Asked), asked
    function, source, how = asked.args
    assert (function, source, how["name"]) == (record.engine.function, str(path), "ours")
    taken = set(inspect.signature(getattr(CountingEngine, function)).parameters)
    readings: dict[str, Any] = {
        "answers": answers.AnswerReading,
        "amber": amber.AmberReading,
        "score": batch.ReadingOptions,
    }
    taken |= set(readings.get(function, batch.Skipping).__annotations__)
    assert set(how) <= taken
    if function == "answers":
        assert how["benchmark"] == name
    refused = CliRunner().invoke(cli, [*arguments, f"--{record.engine.refuses[-1].replace('_', '-')}", "x.jsonl"])
    assert refused.exit_code == 2
    assert "--engine" in refused.output


@pytest.mark.parametrize("record", [each for each in benchmarks() if each.metric_set], ids=lambda each: each.name)
def test_every_benchmark_has_a_function_in_python(record: Benchmark) -> None:
    function = getattr(scapo_eval, record.verb)
    assert function is not None
    assert function.__name__ == record.verb
    assert function.__doc__
    parameters = inspect.signature(function).parameters
    assert next(iter(parameters)) == record.files
    assert {"name", "resamples", "seed", "bootstrap"} <= set(parameters)
    for name, option in options_of(record).items():
        if name in parameters and record.function is not None:
            assert parameters[name].default in (option.default, None), name  # None: the protocol's, or the default


def test_what_only_sets_files_side_by_side_has_none() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'augmented'"):
        scapo_eval.augmented  # noqa: B018
    with pytest.raises(scapo_eval.InputError, match="'augmented' has no function in Python"):
        scapo_eval.api.function("augmented")
    assert scapo_eval.api.function("score") is scapo_eval.score
    assert scapo_eval.claimscore.__name__ == "claims"  # its name in 0.2


def test_a_made_function_equals_the_verb(tmp_path: Any) -> None:
    path = tmp_path / "ratings.jsonl"
    path.write_text("".join(f'{{"image_id": {k}, "rating": {k % 7}}}\n' for k in range(40)))
    run = scapo_eval.mmhal(path, resamples=20, seed=3)
    assert run.values["mmhal_score"] == sum(k % 7 for k in range(40)) / 40
    assert "|bs:20|seed:3|" in str(run.signature)
    records = [{"image_id": k, "rating": k % 7} for k in range(40)]
    of_records = scapo_eval.mmhal(records, name="ratings", resamples=20, seed=3)
    assert of_records.account is not None
    assert run.account is not None
    assert of_records.account.records == run.account.records == 40
    assert {**of_records.to_dict(), "account": None} == {**run.to_dict(), "account": None}
    with pytest.raises(TypeError, match="unexpected keyword argument 'resample'"):
        scapo_eval.mmhal(path, resample=20)


def test_an_option_that_is_no_parameter_is_a_mistake_of_the_author() -> None:
    def score(systems: Systems, *, words: str = "") -> list[Run]:
        return []

    record = Benchmark(name="mine", score=score, options={"word": Option(help="A word.")})
    with pytest.raises(TypeError, match="options of 'mine' that its function score does not accept: word"):
        command_of(record)
    assert function_of(Benchmark(name="mine")) is None


def test_options_of_every_kind() -> None:
    seen: list[dict[str, Any]] = []

    def score(
        systems: Systems,
        *,
        path: str,
        words: tuple[str, ...] = (),
        least: int = 3,
        share: float = 0.5,
        strict: bool = False,
        way: str = "all",
    ) -> list[Run]:
        given = [(name, str(source)) for name, source in systems.given]
        seen.append({"given": given, "path": str(path), "words": words, "least": least, "share": share,
                     "strict": strict, "way": way})  # fmt: skip
        return []

    options = {
        "path": Option(file="read", help="A file."),
        "words": Option(repeated=True, flags=("--word", "-w"), help="A word."),
        "least": Option(at_least=1, help="The least."),
        "share": Option(help="A share."),
        "strict": Option(help="Whether."),
        "way": Option(choices=("all", "few"), help="Which."),
    }
    verb = command_of(Benchmark(name="mine", score=score, options=options))
    run = CliRunner().invoke(verb, ["a.x", "n=b.x", "--path", "p"])
    assert run.exit_code == 0, run.output
    assert seen.pop() == {"given": [(None, "a.x"), ("n", "b.x")], "path": "p", "words": (), "least": 3, "share": 0.5,
                          "strict": False, "way": "all"}  # fmt: skip
    given = "a.x --path p --word u -w v --least 1 --share .1 --strict --way few".split()
    assert CliRunner().invoke(verb, given).exit_code == 0
    assert seen.pop() == {"given": [(None, "a.x")], "path": "p", "words": ("u", "v"), "least": 1, "share": 0.1,
                          "strict": True, "way": "few"}  # fmt: skip
    for wrong in (["--least", "0"], ["--way", "none"], ["--share", "x"]):
        assert CliRunner().invoke(verb, ["a.x", "--path", "p", *wrong]).exit_code == 2
    assert CliRunner().invoke(verb, ["a.x"]).exit_code == 2
    shown = CliRunner().invoke(verb, ["--help"]).output
    for text in ("-w, --word TEXT", "[default: 3; x>=1]", "[default: 0.5]", "[default: all]", "FILES..."):
        assert text in shown, shown


@pytest.mark.parametrize("record", [record for record in benchmarks() if record.score], ids=lambda record: record.name)
def test_an_option_without_its_value_is_refused(record: Benchmark) -> None:
    command = command_of(record)
    for option in command.params:
        if option.param_type_name == "option" and not option.is_flag and not option.count:  # type: ignore[attr-defined]
            said = CliRunner().invoke(command, ["x.jsonl", option.opts[-1]])
            assert (said.exit_code, "requires an argument" in said.output) == (2, True), (option.opts, said.output)
