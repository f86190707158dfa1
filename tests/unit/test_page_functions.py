"""The page's pure functions, in the node that playwright brings: no browser is needed for arithmetic."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scapo_eval import cap_score
from scapo_eval.annotate import qc
from scapo_eval.report import bundle, html
from scapo_eval.results.render import number

Javascript = Callable[..., Any]


@pytest.fixture(scope="module")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Javascript:
    """Runs the body of a function with a module's exports as ``m`` and returns what it returns."""
    driver = pytest.importorskip("playwright._impl._driver", reason="node comes with playwright")
    node = driver.compute_driver_executable()
    node = node[0] if isinstance(node, tuple) else node
    folder = tmp_path_factory.mktemp("page")
    for name, text in bundle.texts(".js").items():
        (folder / f"{name}.js").write_text(text, encoding="utf-8")
    (folder / "grid.js").write_bytes(Path(qc.__file__).with_name("grid.js").read_bytes())
    (folder / "package.json").write_text('{"type": "module"}')

    def run(module: str, body: str, **values: Any) -> Any:
        script = (
            f"import * as m from '{(folder / (module + '.js')).as_uri()}';"
            f"const v = {json.dumps(values)};"
            f"console.log(JSON.stringify((() => {{ {body} }})()));"
        )
        done = subprocess.run([str(node), "--input-type=module", "-"], input=script, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert shutil.which(str(node))
    return run


def test_a_quantity_of_every_tenth_step_keeps_its_own_points(javascript: Javascript) -> None:
    steps = list(range(100))
    values = [0.5 - s / 1000 if s % 10 == 0 else None for s in steps]
    line = javascript("series", "return m.lineOf(v.x, v.y)", x=steps, y=values)
    assert line["sparse"]
    assert line["x"] == steps[::10]
    assert line["y"] == values[::10]
    dense = javascript("series", "return m.lineOf([1, 2, 3], new Float32Array([1, NaN, 3]))")
    assert dense == {"x": [1, 2, 3], "y": [1, None, 3], "sparse": False}


def test_smoothing_goes_by_the_distance_of_steps_and_not_by_rows(javascript: Javascript) -> None:
    x = [0, 1, 2, 3, 100, 101, 200]
    y = [0.0, 4.0, None, 8.0, 50.0, 70.0, 7.0]
    found = javascript("series", "return m.smoothed(v.x, v.y, 4)", x=x, y=y)
    expected = [
        None
        if own is None
        else (near := [b for a, b in zip(x, y, strict=True) if abs(a - at) <= 2 and b is not None])
        and sum(near) / len(near)
        for at, own in zip(x, y, strict=True)
    ]
    assert found == pytest.approx(expected)
    every_tenth = javascript("series", "return m.smoothed([0, 10, 20], [1, 5, 9], 6)")
    assert every_tenth == [1, 5, 9]  # no other value lies within three steps


@pytest.mark.parametrize(("at", "place"), [(-1, -1), (0, 0), (4, 0), (5, 1), (9, 1), (12, 1), (15, 3), (99, 3)])
def test_the_value_at_a_step_is_the_last_one_logged(javascript: Javascript, at: float, place: int) -> None:
    assert javascript("series", "return m.placeAt([0, 5, 10, 15], [7, 8, null, 9], v.at)", at=at) == place


def test_the_band_of_seeds_stands_where_all_of_them_do(javascript: Javascript) -> None:
    lines = [
        {"x": [0, 1, 2, 4], "y": [1.0, 2.0, 3.0, 9.0]},
        {"x": [0, 2, 3, 4], "y": [3.0, 7.0, 1.0, None]},
    ]
    band = javascript("series", "return m.bandOf(v.lines)", lines=lines)
    assert band == {"x": [0, 2, 4], "y": [2, 5, None], "low": [1, 3, None], "high": [3, 7, None]}
    same = javascript("series", "return m.bandOf([v.a, v.a])", a=lines[0])
    assert same["low"] == same["high"] == same["y"] == lines[0]["y"]


def test_hours_and_tokens_add_up(javascript: Javascript) -> None:
    columns = {"seconds_rollout": [1800, 3600, None], "seconds_update": [1800, 0, 3600], "tokens_per_second": [2, 1, 3]}
    body = "const c = (name) => v.columns[name]; const n = Object.keys(v.columns);"
    assert javascript("series", body + "return m.hoursOf([1, 2, 3], c, n)", columns=columns) == [1, 2, 3]
    assert javascript("series", body + "return m.tokensOf([1, 2, 3], c, n)", columns=columns) == [7200, 10800, 21600]
    assert javascript("series", "return m.hoursOf([1], () => [1], ['loss'])") is None


def test_an_alarm_lies_within_the_range(javascript: Javascript) -> None:
    low, high = javascript("series", "return m.rangeOf(0.6, 0.7, [0.24], false)")
    assert low < 0.24 < 0.7 < high
    low, high = javascript("series", "return m.rangeOf(1, 10, [0, 100], true)")
    assert 0 < low <= 1
    assert high > 100


def test_values_are_shown_to_the_digits_that_were_kept(javascript: Javascript) -> None:
    shown = javascript(
        "series",
        "return [m.shownNumber(Math.fround(0.175), true), m.shownNumber(Math.fround(17.5), false),"
        " m.shownNumber(1e-6, false), m.shownNumber(0, false), m.shownNumber(1234567, false)]",
    )
    assert shown == ["17.5", "17.5", "1e-6", "0", "1.235e+6"]


def test_numbers_are_rounded_as_python_rounds_them(javascript: Javascript) -> None:
    shares = sorted({k / n for n in range(1, 501) for k in range(n + 1)})
    signs = [*shares, *(-share for share in shares)]
    body = """return {
        percent: v.shares.map((x) => [0, 1, 2].map((digits) => m.percent(x, digits))),
        signed: v.signs.map((x) => m.percent(x, 0, true)),
        values: [false, true].map((plain) => v.shares.map((x) => m.shownValue(x, plain))),
        changes: [false, true].map((plain) => v.signs.map((x) => m.shownChange(x, plain).replace("−", "-"))),
    }"""
    found = javascript("format", body, shares=shares, signs=signs)
    assert found["percent"] == [[html.percent(x, digits) for digits in range(3)] for x in shares]
    assert found["signed"] == [html.percent(x, 0, sign=True) for x in signs]
    assert found["values"] == [[number(x, plain) for x in shares] for plain in (False, True)]
    assert found["changes"] == [[number(x, plain, sign=True) for x in signs] for plain in (False, True)]
    examples = "return [m.percent(1 / 16), m.percent(-0.004, 0, true), m.signed(-1 / 16), m.shownValue(3.125, true)]"
    assert javascript("format", examples) == ["6.2", "0", "−6.2", "3.12"]


def test_settings_that_differ(javascript: Javascript) -> None:
    a, b = {"loss.kl": "0.01", "run.seed": "1"}, {"loss.kl": "0.0", "run.seed": "1", "new": "true"}
    assert javascript("series", "return m.differing([v.a, v.b])", a=a, b=b) == [
        ["loss.kl", ["0.01", "0.0"]],
        ["new", ["", "true"]],
    ]


A_PAIR = [  # faults, part, whole of five images; None: no caption
    ([0, 0, 4], [2, 2, 4]),
    ([1, 1, 3], [0, 0, 2]),
    ([1, 1, 2], [1, 1, 5]),
    ([0, 0, 2], [0, 0, 1]),
    ([3, 3, 3], None),
    (None, [1, 1, 1]),
]
RATE = "(t) => m.ratioOf(t[0], t[1])"


def test_what_became_of_every_item(javascript: Javascript) -> None:
    ours, theirs = (list(rows) for rows in zip(*A_PAIR, strict=True))
    body = f"const p = m.paired(v.ours, v.theirs, {RATE}); return {{...p, influence: [...p.influence]}}"
    found = javascript("paired", body, ours=ours, theirs=theirs)
    assert found["outcomes"] == ["mended", "spoiled", "both", "neither", "only", None]
    assert found["shared"] == [0, 1, 2, 3]
    assert (found["ours"], found["theirs"]) == (2 / 11, 3 / 12)
    assert found["difference"] == 2 / 11 - 3 / 12
    leave_one_out = {0: 2 / 7 - 1 / 8, 1: 1 / 8 - 3 / 10, 2: 1 / 9 - 2 / 7, 3: 2 / 9 - 3 / 11}
    expected = {k: found["difference"] - rest for k, rest in leave_one_out.items()}
    assert dict(found["influence"]) == pytest.approx(expected)


def test_the_figure_without_the_images_that_make_it(javascript: Javascript) -> None:
    ours, theirs = (list(rows) for rows in zip(*A_PAIR, strict=True))
    body = f"""const p = m.paired(v.ours, v.theirs, {RATE});
        const made = p.shared.filter((k) => m.matches(p.outcomes[k], "differs"));
        return [made, m.byInfluence(p.shared, p), p.without(made), p.without(p.shared)]"""
    made, order, without, nothing = javascript("paired", body, ours=ours, theirs=theirs)
    assert made == [0, 1]
    assert without == pytest.approx(1 / 4 - 1 / 6)
    assert nothing is None
    assert order[0] == 0  # the difference is negative, and image 0 lowers it most
    assert set(order) == {0, 1, 2, 3}


def test_the_counts_of_a_caption_for_every_measure(javascript: Javascript) -> None:
    body = """
        const c = {
          supported: new Set(["dog", "cat"]), hallucinated: new Set(["car"]), present: new Set(["dog", "cat", "tree"]),
        };
        const rates = ["hal_rate", "cover_rate", "cap_score"].map((name) => m.measureOf(name));
        const labels = [["share", "car"], ["rate", "dog"], ["missed", "tree"]];
        return [
          ...rates.map((each) => [each.count(c), each.figure(each.count(c).slice(1))]),
          ...labels.map(([name, label]) => m.measureOf(name, label).count(c)),
        ];"""
    hal, cover, cap, share, rate, missed = javascript("paired", body)
    rates = [1, 3, 2, 3]
    assert hal == [[1, *rates], pytest.approx(1 / 3)]
    assert cover == [[1, *rates], pytest.approx(2 / 3)]
    assert cap == [[2, *rates], pytest.approx(cap_score(1 / 3, 2 / 3))]
    assert (share, rate, missed) == ([1, 1, 1], [0, 0, 1], [1, 1, 1])


@pytest.mark.parametrize(
    ("marks", "status"),
    [
        ([], "open"),
        (["unsure"], "open"),
        (["matcher", "open"], "open"),
        (["matcher", "matcher"], "matcher"),
        (["matcher", "truth"], "truth"),
        (["truth", "invented"], "invented"),
    ],
)
def test_what_marks_make_of_a_claim(javascript: Javascript, marks: list[str], status: str) -> None:
    assert javascript("recount", "return m.statusOf(v.marks)", marks=marks) == status


def test_the_score_is_recounted_under_marks_with_bounds(javascript: Javascript) -> None:
    body = """const caption = (image, s, h, p, status) => ({image, supported: new Set(s), hallucinated: new Set(h),
            present: new Set(p), status: (label) => status[label] || "open"});
        const captions = [caption(1, ["dog"], ["car", "cup", "hat"], ["dog", "cat"], {car: "invented", cup: "matcher"}),
            caption(2, ["cat"], ["tree"], ["cat"], {tree: "truth"}), caption(2, [], ["tree"], ["cat"], {})];
        return m.recount(captions, new Map([[2, new Set(["tree"])]]))"""
    found = javascript("recount", body)
    assert {name: found[name] for name in ("matcher", "truth", "invented", "open", "read")} == {
        "matcher": 1, "truth": 2, "invented": 1, "open": 1, "read": 4,
    }  # fmt: skip
    # supported 2, given back 2, invented 1, open 1; the cup was never claimed
    assert found["hal"] == [1 / 6, 2 / 6]
    assert found["cover"] == 4 / 6  # the tree is in image 2 for both of its captions
    assert javascript("recount", "return m.pointsBefore('a\\ud83d\\udc36b', 3)") == 2


def test_an_axis_of_differences_is_even_around_zero_and_one_of_values_is_not(javascript: Javascript) -> None:
    rows = [{"value": 0.3, "low": 0.2, "high": 0.4}, {"value": 0.1, "low": None, "high": None}]
    assert javascript("axes", "return m.axisOf(v.rows, 0.005)", rows=rows) == [-0.4, 0.4]
    assert javascript("axes", "return m.axisOf(v.rows, null)", rows=rows) == pytest.approx([0.085, 0.415])


def test_a_press_among_many_pictures_goes_to_the_odd_answer_to_unsure_and_back(javascript: Javascript) -> None:
    body = "const out = [v.rest]; while (out.length < 4) out.push(m.pressed(out.at(-1), v.rest)); return out;"
    assert javascript("grid", body, rest="no") == ["no", "yes", "unsure", "no"]
    assert javascript("grid", body, rest="yes") == ["yes", "no", "unsure", "yes"]


def test_the_grid_holds_a_labels_open_pairs_and_answers_all_of_them(javascript: Javascript) -> None:
    pairs = [[k, k % 2] for k in range(70)]
    answers = ["no" if k in (1, 5) else None for k in range(70)]
    shown = javascript("grid", "return m.openPairs(v.pairs, v.answers, 1);", pairs=pairs, answers=answers)
    assert shown == [k for k in range(70) if k % 2 and k not in (1, 5)][:25]
    body = "return m.answersOf([3, 7, 9], new Map([[7, 'yes'], [9, 'yes']]), 'no', new Set([9]));"
    assert javascript("grid", body) == [[3, "no"], [7, "yes"], [9, "missing"]]
    body = "return v.keys.map((key) => m.step(key, 6, 8, 5));"
    assert javascript("grid", body, keys=["arrowleft", "arrowright", "arrowup", "arrowdown", "x"]) == [5, 7, 1, 6, 6]
