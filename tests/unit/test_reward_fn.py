"""The reward as one function of several libraries, its explanation, and the conformance command."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from scapo_eval import InputError, RewardConfig, SubsentenceReward, integrations, reward_fn
from scapo_eval.conformance import CHECKS, CheckResult, main
from scapo_eval.rewarding import batch

TRUTH = {"0": ["cow"], "1": ["dog", "bench"], "2": ["cat"]}


def test_each_library_s_arguments() -> None:
    logged: dict[str, float] = {}
    score = reward_fn("coco80", TRUTH)
    messages = [[{"role": "assistant", "content": [{"type": "text", "text": "A cat."}]}], "A dog."]
    trl = score(prompts=["", ""], completions=messages, image_id=[1, "2"], log_metric=logged.__setitem__)
    assert trl == [-1.0, -1.0]
    assert logged["scapo/reward"] == -1.0
    assert score(["A dog.", None], image_id=["1", "2"]) == [1.0, None]  # ms-swift, by position
    assert score(completion="A dog.", info={"image_id": "1"}, state={}) == 1.0  # verifiers
    assert score(completion="A cat.", answer="2", info='{"image_id": ""}') == 1.0
    assert score(completion="A cow.", image_id=0, answer="2") == score(completion="A cow.", info={"image_id": 0}) == 1.0
    response = SimpleNamespace(final_text=["A dog on a bench."])
    assert score.compute(doc=SimpleNamespace(specific={"image_id": "1"}), model_response=response) == 1.0  # lighteval
    assert score.__name__ == "scapo"


def called_by_rubric(score: Any, states: list[dict[str, Any]]) -> Any:
    """Calls a function as the rubrics of verifiers do: with groups if it has a parameter in the plural, and with all
    arguments if it has keyword arguments.
    """
    parameters = inspect.signature(score).parameters
    assert {"states", "prompts", "completions", "answers", "tasks", "infos"} & set(parameters)
    assert any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values())
    return score(
        prompts=[state["prompt"] for state in states],
        completions=[state["completion"] for state in states],
        answers=[state.get("answer", "") for state in states],
        states=states,
        tasks=[state.get("task") for state in states],
        infos=[state.get("info", {}) for state in states],
        parser=object(),
    )


def test_a_group_of_verifiers() -> None:
    score = reward_fn("coco80", TRUTH)

    def state(text: str | None, **fields: Any) -> dict[str, Any]:
        said = [{"role": "assistant", "content": text}] if text is not None else None
        return {"prompt": "Describe the image.", "completion": said, "task": "default", **fields}

    group = [
        state("A dog.", info={"image_id": 1}),
        state("A cat.", info='{"image_id": 1}'),  # as data sets may contain it
        state("A cat.", info={}, answer="2"),
        state(None, info={"image_id": 1}),  # verifiers multiplies each reward by a weight
        state("A dog."),
    ]
    assert called_by_rubric(score, group) == [1.0, -1.0, 1.0, 0.0, 0.0]
    assert called_by_rubric(score, []) == []
    with pytest.raises(InputError, match="missing key 'image_id' in infos and answers"):
        called_by_rubric(score, [state("A dog."), state("A cat.", info="2")])


def test_only_messages_of_the_model_are_scored() -> None:
    def said(*turns: tuple[str | None, Any]) -> list[dict[str, Any]]:
        return [{"content": content} | ({"role": role} if role else {}) for role, content in turns]

    score = reward_fn("coco80", TRUTH)
    conversations = [
        said(("assistant", "Let me look."), ("tool", "found: cat, cat"), ("assistant", "A bench.")),
        said(("assistant", "Hello."), ("user", "Is there a dog?"), ("assistant", "Yes.")),
        said(("assistant", "I see a dog"), ("assistant", "bench too")),
        said((None, "A dog."), ("assistant", None), ("assistant", [{"type": "text", "text": None}])),
        said(("assistant", ["A dog on ", {"type": "text", "text": "a bench."}])),
    ]
    alone = ["Let me look.\nA bench.", "Hello.\nYes.", "I see a dog\nbench too", "A dog.", "A dog on a bench."]
    ids = ["1"] * 5
    assert score(completions=conversations, image_id=ids) == score(completions=alone, image_id=ids)
    assert score(completions=alone, image_id=ids)[2] == 2.0


@pytest.mark.parametrize(
    "completion",
    [["A dog."], [None], [{"content": 5}], [{"content": [None]}], [{"content": [{"text": 5}]}]],
    ids=repr,
)
def test_lists_other_than_messages_are_faulty_rows(completion: Any, caplog: pytest.LogCaptureFixture) -> None:
    score = reward_fn("coco80", TRUTH)
    assert score(completions=["A dog.", completion], image_id=["1", "1"]) == [1.0, None]
    assert "responses[1]: must be a string, got [" in caplog.text


def test_what_is_missing_is_named(tmp_path: Any) -> None:
    score = reward_fn("coco80", TRUTH)
    for given, message in (
        ({"completions": ["A dog."]}, "missing column 'image_id'"),
        ({"completion": "A dog."}, "missing key 'image_id'"),
        ({"completion": "A dog.", "info": {}, "answer": ""}, "missing key 'image_id'"),  # "" is verifiers' default
        ({}, "expected completions and image_id"),
        ({"completions": ["A dog."], "image_id": 7}, "image_id: expected a list with one value per response, not int"),
        ({"completions": "A dog.", "image_id": [7]}, "completions: expected a list with one value per response, not"),
        ({"completions": ["A dog."], "infos": [{}], "answers": ["1", "2"]}, "1 infos for 2 answers"),
        ({"doc": SimpleNamespace(specific="1"), "model_response": "A dog."}, "missing key 'image_id'"),
    ):
        with pytest.raises(InputError, match=message):
            score(**given)
    with pytest.raises(InputError, match="unknown setting of the reward 'claim'; did you mean 'claims'"):
        reward_fn("coco80", TRUTH, claim="visual")
    with pytest.raises(InputError, match="either config or its settings"):
        reward_fn("coco80", TRUTH, RewardConfig(), r_g=2)
    for config in ({}, 0):
        with pytest.raises(InputError, match="config must be a RewardConfig, got"):
            reward_fn("coco80", TRUTH, config)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="config must be a RewardConfig, got"):
        SubsentenceReward("coco80", TRUTH, {"claims": "visual"})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="coco81"):
        SubsentenceReward("coco81", TRUTH)
    with pytest.raises(InputError, match=r"nothing\.json"):
        SubsentenceReward("coco80", tmp_path / "nothing.json")


def test_a_truth_of_another_data_set_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_faulty_in_a_row", 0)
    score = reward_fn("coco80", TRUTH)
    group = {"completions": ["A dog."] * 16, "infos": [{"image_id": "unknown"}] * 16}
    row = {"completion": "A dog.", "info": {"image_id": "unknown"}}
    for given, calls in ((row, batch.MOST_FAULTY), (group, batch.MOST_FAULTY // 16)):
        assert score(completion="A dog.", info={"image_id": "1"}) == 1.0
        for _ in range(calls - 1):
            score(**given)
        with pytest.raises(InputError, match=r"64 consecutive rows have no reward; the last: .*'unknown'"):
            score(**given)
        score(completions=["A dog."] * 2, infos=[{"image_id": "unknown"}, {"image_id": "1"}])
        score(completions=["A dog."] * 100, infos=[{"image_id": "unknown"}] * 100)  # a single image
        score(completions=[], infos=[])


def test_an_explanation_says_why() -> None:
    (result,) = SubsentenceReward("coco80", TRUTH)(
        ["1"], ["A dog <b>sleeps</b> here today. A cat sits on a bench now."]
    )
    shown = result.explain()
    assert str(shown).splitlines()[1:] == [
        " +1.00  A dog <b>sleeps</b> here today.",
        "        supported: dog",
        " -1.00  A cat sits on a bench now.",
        "        supported: bench; hallucinated: cat",
    ]
    assert "A dog &lt;b&gt;sleeps&lt;/b&gt; here today." in shown.html() == shown._repr_html_()
    assert "cat: hallucinated" in shown.html()


def test_the_conformance_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["--help"]) == 0
    for outcome, code in (
        (CheckResult(3, 0, (0.5, 0.5), "x"), 0),
        (CheckResult(3, 1, None, "x"), 1),
        (CheckResult(0, 0, None, "x"), 1),
        (CheckResult(3, 0, (0.5, 0.6), "x"), 1),
    ):
        monkeypatch.setitem(CHECKS, "trl", lambda _, outcome=outcome: outcome)  # type: ignore[arg-type]
        assert main(["trl"]) == code
    assert "3 tokens, 0 wrong, loss equal" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("library", "module"),
    [("trl", "trl"), ("verl", "verl"), ("ms-swift", "swift"), ("skyrl", "skyrl"), ("slime", "slime")],
)
def test_a_missing_library_is_one_line(
    library: str, module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, module, None)
    adapter = library.replace("-", "_")
    monkeypatch.delitem(sys.modules, f"scapo_eval.integrations.{adapter}", raising=False)
    monkeypatch.delattr(integrations, adapter, raising=False)
    assert main([library]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{library}: ")
    assert said.count("\n") == 1
