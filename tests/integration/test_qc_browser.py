"""Page of quality control in a real browser, served by the real command.

Without chromium, these tests are skipped with a reason, or fail if SCAPO_REQUIRE_SHARED=1.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapo_eval.annotate.qc.rounds import draw_round, read_rounds
from scapo_eval.annotate.store import CellProvenance, Store
from scapo_eval.claiming.claim import ClaimKey, question_of
from scapo_eval.inference.sources import ImageFile
from scapo_eval.matching.vocabulary import LabelInfo, Vocabulary

CHECKS = (Path(__file__).parent / "browser_checks.js").read_text("utf-8")
DEFINITIONS = {
    "bench": "A long or shared seat for more than one person: park bench, pew, bleacher. Not chairs or couches.",
    "chair": "A seat for one person: chair, armchair, stool. Not benches, couches or beds.",
}
IMAGES, PER_LABEL = 30, 6
JUDGE, PROMPT = "judge-7b", "coarse@1a2b3c4d"


def make_run(folder: Path, definitions: dict[str, str], per_label: int = PER_LABEL) -> Path:
    """Makes a run with generated pictures. The judge answers "present" for every third image."""
    from PIL import Image, ImageDraw

    (folder / "images").mkdir()
    pictures = []
    for k in range(IMAGES):
        picture = Image.new("RGB", (640, 480), (40 + 6 * k, 120, 210 - 5 * k))
        ImageDraw.Draw(picture).rectangle((60 + 9 * k, 180, 260 + 9 * k, 330), fill=(250, 210, 5 * k))
        path = folder / "images" / f"{k:012}.jpg"
        picture.save(path)
        pictures.append(ImageFile(str(k), path.name, str(path)))
    vocabulary = Vocabulary.from_mapping(
        {label: [f"word {k}"] for k, label in enumerate(definitions)},
        info={label: LabelInfo(definition=text) for label, text in definitions.items()},
    )
    with Store.create(folder / "run", pictures, vocabulary) as store:
        rows, columns = np.indices(store.matrix.shape)
        verdicts = (rows.ravel() % 3 == 0).astype(int)
        store.write(rows.ravel(), columns.ravel(), verdicts, CellProvenance("coarse", PROMPT, JUDGE))
        draw_round(store, random=per_label, present=1, at_least=0, seed=4)
    return folder / "run"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path, DEFINITIONS)


class Serving:
    """``scapo-eval annotate qc serve`` in a process of its own."""

    def __init__(self, run: Path) -> None:
        command = [sys.executable, "-m", "scapo_eval.cli.main", "annotate", "qc", "serve", str(run), "--by", "ann"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def stop(self) -> tuple[int, str]:
        """Ctrl-C; the exit code and what was printed after the address."""
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=600)
        return self.process.returncode, out

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=600)


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Serving]]:
    running: list[Serving] = []

    def start(run: Path) -> Serving:
        running.append(Serving(run))
        return running[-1]

    yield start
    for each in running:
        if each.process.returncode is None:
            each.kill()


class Person:
    """Browser tab that records every event that must not happen."""

    def __init__(self, browser: Any, url: str, context: Any = None, **options: Any) -> None:
        self.context = context or browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.url = url
        self.troubles: list[str] = []
        self.page.on("console", lambda message: self.troubles.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.troubles.append("a dialog"), dialog.dismiss()))
        self.page.on("request", self._request)
        self.open()

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:" + self.url.split("/", 3)[2])):
            origin = "blob:" + "/".join(self.url.split("/")[:3])
            if not request.url.startswith(origin):
                self.troubles.append(f"request: {request.url}")

    def open(self) -> None:
        self.page.goto(self.url)
        self.page.wait_for_selector("body[data-ready]")

    def wait(self, pair: int) -> None:
        """Waits until this pair's picture (or the note about a missing picture) is visible."""
        self.page.wait_for_selector(f"#stage[data-pair='{pair}']")

    @property
    def pair(self) -> int:
        """Returns the visible pair, after it has appeared."""
        self.page.wait_for_selector("#stage[data-pair]")
        return int(self.page.get_attribute("#stage", "data-pair"))

    def press(self, keys: str) -> None:
        """Answers open pairs one after another."""
        for key in keys:
            before = self.pair
            self.page.keyboard.press(key)
            self.page.wait_for_function(
                "(k) => document.querySelector('#end').checkVisibility()"
                " || document.querySelector('#stage').dataset.pair !== String(k)",
                arg=before,
                polling=30,  # a tab in the background is hardly ever painted
            )

    def said(self) -> str:
        return str(self.page.inner_text("#said"))

    def check(self, name: str) -> Any:
        return self.page.evaluate(f"() => {{ {CHECKS} return checks.{name}(); }}")

    def close(self) -> None:
        self.context.close()
        assert self.troubles == []


def the_round(run: Path) -> Any:
    return read_rounds(Store.open(run))[-1]


def test_a_full_round_by_keyboard(browser: Any, run: Path, serve: Callable[[Path], Serving]) -> None:
    serving = serve(run)
    asked = the_round(run).draw
    total = len(asked.judged)
    person = Person(browser, serving.url)
    page = person.page
    assert page.inner_text("#label") == "bench"
    assert page.inner_text("#definition") == DEFINITIONS["bench"]
    assert page.inner_text("#count") == f"0 of {total}"
    labels = asked.pairs.label_ids.tolist()
    for pair in range(total):
        person.wait(pair)
        assert page.inner_text("#label") == list(DEFINITIONS)[labels[pair]]
        assert page.locator("#fresh").is_visible() == (pair == labels.index(labels[pair]))
        assert page.inner_text("#image-id") == f"Image {asked.pairs.rows[pair]}"
        assert page.locator("#picture").evaluate("(i) => i.naturalWidth") == 640
        agrees = pair % 4 != 1
        page.keyboard.press("u" if pair == 2 else "y" if (asked.judged[pair] == 1) == agrees else "n")
        page.wait_for_function("(n) => document.querySelector('#progress').value === n", arg=pair + 1)
        assert (JUDGE in page.content(), PROMPT in page.content()) == (False, False)
    page.wait_for_selector("#end:visible")
    assert page.evaluate("document.activeElement.id") == "finish"
    page.keyboard.press("ArrowLeft")
    person.wait(total - 1)
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#end:visible")
    page.keyboard.press("Enter")
    page.wait_for_selector("#result:visible")
    wrong = [k for k in range(total) if k % 4 == 1]
    assert f"differs from you in {len(wrong)} of {total} pairs. 1 unsure." in page.inner_text("#verdict")
    assert page.locator("#errors tbody tr").count() == len(wrong)
    first = page.locator("#errors tbody tr").first.locator("td").all_inner_texts()
    row, verdict = int(asked.pairs.rows[1]), int(asked.judged[1])
    names = ("absent", "present")
    assert first[1:] == [str(row), "bench", names[verdict], names[1 - verdict], PROMPT]
    assert page.locator("#bounds tbody tr").count() == 3
    assert page.inner_text("#advice code") == f"scapo-eval annotate refine {run} --labels bench,chair"
    page.locator("#errors td button").first.click()
    assert page.locator("dialog img").evaluate("async (i) => { await i.decode(); return i.naturalWidth; }") == 640
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    person.close()

    code, printed = serving.stop()
    assert code == 0
    assert "still wrong (99 %, round 1)" in printed
    assert f"scapo-eval annotate refine {run} --labels bench,chair" in printed
    store = Store.open(run)
    for pair, (row, label) in enumerate(zip(asked.pairs.rows.tolist(), labels, strict=True)):
        source = store.provenance_of(row, label)
        assert source is not None
        assert (source.kind, source.judge) == (("coarse", JUDGE) if pair == 2 else ("human", "ann"))
        assert store.matrix[row, label] == (1 - asked.judged[pair] if pair in wrong else asked.judged[pair])
    assert json.loads((run / "qc" / "summary.json").read_bytes())["rounds"][0]["unsure"] == 1


def test_a_reload_goes_on_and_undo_reaches_behind_it(browser: Any, run: Path, serve: Callable[[Path], Serving]) -> None:
    person = Person(browser, serve(run).url)
    page = person.page
    person.press("ynu")
    person.wait(3)
    person.open()
    person.wait(3)
    assert page.inner_text("#count").startswith("3 of ")
    page.keyboard.press("z")
    person.wait(2)
    assert person.said() == "Taken back."
    assert page.locator("[aria-pressed=true]").count() == 0
    page.keyboard.press("z")
    person.wait(1)
    page.keyboard.press("y")
    person.wait(2)
    page.keyboard.press("ArrowLeft")
    person.wait(1)
    assert page.get_attribute("[aria-pressed=true]", "data-answer") == "yes"
    page.keyboard.press("n")  # an answer can be changed while the round is open
    person.wait(2)
    assert the_round(run).answers[:3] == ["yes", "no", None]
    person.close()


def test_two_tabs_answer_every_pair_once(browser: Any, run: Path, serve: Callable[[Path], Serving]) -> None:
    serving = serve(run)
    first = Person(browser, serving.url)
    second = Person(browser, serving.url, first.context)
    first.wait(0)
    second.wait(0)
    first.press("y")
    second.press("n")
    assert second.said() == "Answered in another window in the meantime: yes. Your answer was not saved."
    assert (first.pair, second.pair) == (1, 1)
    assert the_round(run).answers[:2] == ["yes", None]
    total = len(the_round(run).answers)
    for k in range(2 * total):
        person = (first, second)[k % 2]
        if person.page.locator("#end").is_visible():
            break
        person.press("n")
    for person in (first, second):
        if not person.page.locator("#end").is_visible():
            person.press("n")
        person.page.wait_for_selector("#end:visible")
    found = the_round(run)
    assert found.answers == ["yes"] + ["no"] * (total - 1)
    assert set(found.versions) == {1}
    first.page.keyboard.press("Enter")
    first.page.wait_for_selector("#result:visible")
    second.page.click("#finish")
    second.page.wait_for_selector("#result:visible")
    assert second.page.inner_text("#verdict") == first.page.inner_text("#verdict")
    assert second.troubles == []
    first.close()


def test_a_missing_picture_is_said_and_skipped(browser: Any, run: Path, serve: Callable[[Path], Serving]) -> None:
    asked = the_round(run).draw.pairs
    rows = asked.rows.tolist()
    store = Store.open(run)
    gone, damaged = rows[0], rows[1]
    Path(store.paths[gone]).unlink()
    Path(store.paths[damaged]).write_bytes(b"no picture")
    person = Person(browser, serve(run).url)
    page = person.page
    person.wait(0)
    assert "This picture cannot be shown." in page.inner_text("#gone")
    assert "file not found" in page.inner_text("#why")
    page.keyboard.press("y")
    assert person.said() == "Nothing can be seen: skip it with S."
    page.keyboard.press("s")
    person.wait(1)
    assert "not a valid image" in page.inner_text("#why")
    page.get_by_role("button", name="Skip it").click()
    for pair in range(2, len(rows)):
        person.wait(pair)
        shown = page.locator("#picture").is_visible()
        assert shown == (rows[pair] not in (gone, damaged))
        if pair == 2 and shown:
            page.keyboard.press("s")
            person.wait(2)  # what can be seen is not skipped
        page.keyboard.press("n" if shown else "s")
    page.wait_for_selector("#end:visible")
    skipped = sum(row in (gone, damaged) for row in rows)
    assert f"skipped\n{skipped}" in page.inner_text("#tally")
    page.keyboard.press("Enter")
    page.wait_for_selector("#result:visible")
    summary = json.loads((run / "qc" / "summary.json").read_bytes())
    assert (summary["rounds"][0]["missing"], summary["rounds"][0]["answered"]) == (skipped, len(rows))
    person.close()


def test_a_server_that_is_killed_is_said_and_loses_nothing(
    browser: Any, run: Path, serve: Callable[[Path], Serving]
) -> None:
    serving = serve(run)
    person = Person(browser, serving.url)
    person.press("yn")
    person.wait(2)
    serving.kill()
    person.page.keyboard.press("y")
    person.page.wait_for_selector("#trouble:visible")
    assert "Every answer before this one is kept" in person.page.inner_text("#trouble")
    # which error depends on whether the browser's open connections were reset or refused
    expected = "console: Failed to load resource: net::ERR_"
    assert [trouble for trouble in person.troubles if not trouble.startswith(expected)] == []
    person.context.close()
    again = Person(browser, serve(run).url)
    again.wait(2)
    again.press("u")
    assert the_round(run).answers[:3] == ["yes", "no", "unsure"]
    again.close()


def test_keys_that_are_held_or_meant_for_others_answer_nothing(
    browser: Any, run: Path, serve: Callable[[Path], Serving]
) -> None:
    person = Person(browser, serve(run).url)
    page = person.page
    person.wait(0)
    page.keyboard.press("Control+y")
    page.keyboard.press("x")
    page.evaluate("dispatchEvent(new KeyboardEvent('keydown', {key: 'y', repeat: true, bubbles: true}))")
    page.keyboard.press("z")
    page.keyboard.press("ArrowLeft")
    assert person.pair == 0
    assert the_round(run).order == []
    page.keyboard.press("Y")
    person.wait(1)
    assert the_round(run).answers[0] == "yes"
    person.close()


def test_nothing_is_answered_before_the_picture_is_seen(
    browser: Any, run: Path, serve: Callable[[Path], Serving]
) -> None:
    person = Person(browser, serve(run).url)
    page = person.page
    held: list[Any] = []
    page.route("**/image/*", lambda route: held.append(route))
    page.reload()
    page.wait_for_function("() => document.querySelector('#label').textContent !== ''")
    page.keyboard.press("y")
    assert person.said() == "The picture is still loading."
    assert the_round(run).order == []
    for route in held:
        route.continue_()
    page.unroute("**/image/*")
    person.wait(0)
    page.keyboard.press("y")
    person.wait(1)
    person.close()


def test_zoom_and_pan_stay_inside_the_stage(browser: Any, run: Path, serve: Callable[[Path], Serving]) -> None:
    person = Person(browser, serve(run).url)
    page = person.page
    person.wait(0)

    def edges() -> tuple[float, ...]:
        return tuple(
            page.evaluate(
                "(() => { const i = document.querySelector('#picture').getBoundingClientRect(),"
                " s = document.querySelector('#stage').getBoundingClientRect();"
                " return [i.left - s.left, i.top - s.top, i.right - s.right, i.bottom - s.bottom, i.width / s.width];"
                "})()"
            )
        )

    assert edges() == pytest.approx((0, 0, 0, 0, 1))
    box = page.locator("#stage").bounding_box()
    page.mouse.move(box["x"] + 10, box["y"] + 10)
    page.mouse.wheel(0, -500)
    page.wait_for_function("() => document.querySelector('#zoom').textContent !== ''")
    left, top, right, bottom, scale = edges()
    assert scale > 2
    assert -10 * scale < left <= 0  # what is under the pointer stays there
    assert -10 * scale < top <= 0
    page.mouse.down()
    page.mouse.move(box["x"] - 2000, box["y"] - 2000)
    page.mouse.up()
    left, top, right, bottom, _ = edges()
    assert (right, bottom) == pytest.approx((0, 0), abs=1)
    page.keyboard.press("Shift+ArrowLeft")
    assert edges()[2] == pytest.approx(80, abs=1)
    page.keyboard.press("+")
    assert edges()[4] > scale
    page.keyboard.press("0")
    assert edges() == pytest.approx((0, 0, 0, 0, 1))
    page.keyboard.press("+")
    page.keyboard.press("n")
    person.wait(1)
    assert edges()[4] == pytest.approx(1)  # every picture begins whole
    person.close()


def test_labels_are_reached_by_the_list_and_by_enter(browser: Any, run: Path, serve: Callable[[Path], Serving]) -> None:
    person = Person(browser, serve(run).url)
    page = person.page
    person.press("n")
    page.locator("#labels-card summary").click()
    assert "1 of " in page.locator("#labels button").first.inner_text()
    page.locator("#labels button", has_text="chair").click()
    chairs = the_round(run).draw.pairs.label_ids.tolist().index(1)
    person.wait(chairs)
    page.focus("#stage")
    page.keyboard.press("n")
    person.wait(chairs + 1)
    page.keyboard.press("Enter")
    person.wait(chairs + 2)
    person.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_contrast_names_and_width_in_every_state(
    browser: Any, run: Path, serve: Callable[[Path], Serving], scheme: str, width: int
) -> None:
    rows = the_round(run).draw.pairs.rows.tolist()
    Path(Store.open(run).paths[rows[1]]).unlink()
    person = Person(browser, serve(run).url, color_scheme=scheme, viewport={"width": width, "height": 800})
    page = person.page

    def look(at_least: int) -> None:
        checked, bad = person.check("contrast")
        assert checked > at_least
        assert bad == {}
        assert person.check("names") == [[], []]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    person.wait(0)
    for summary in page.locator("summary").all():
        summary.click()
    look(30)
    for pair, row in enumerate(rows):
        person.wait(pair)
        if pair == 1:
            look(30)
        page.keyboard.press("s" if row == rows[1] else "ynu"[pair % 3])
    page.wait_for_selector("#end:visible")
    look(8)
    page.keyboard.press("ArrowLeft")
    person.wait(len(rows) - 1)
    look(30)
    page.click("#next")
    page.wait_for_selector("#end:visible")
    page.click("#finish")
    page.wait_for_selector("#result:visible")
    look(15)
    assert page.get_attribute("html", "data-theme") == scheme
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") != scheme
    look(15)
    person.close()


CLAIMS: list[ClaimKey] = [
    ("count", "dog", "2+", ""),
    ("attribute", "dog", "<b>brown</b>", ""),
    ("relation", "dog", "on the far side of", "couch"),
]


@pytest.mark.parametrize("width", [390, 1366])
def test_claims_are_asked_as_questions(
    browser: Any, tmp_path: Path, serve: Callable[[Path], Serving], width: int
) -> None:
    from PIL import Image

    pictures = []
    for k in range(6):
        Image.new("RGB", (640, 480), (40 * k, 120, 90)).save(tmp_path / f"{k}.png")
        pictures.append(ImageFile(str(k), f"{k}.png", str(tmp_path / f"{k}.png")))
    vocabulary = Vocabulary.from_mapping({"dog": ["dog"], "couch": ["couch"]})
    claims = {image.image_id: CLAIMS for image in pictures}
    with Store.create(tmp_path / "run", pictures, vocabulary, claims) as store:
        rows, columns = np.nonzero(store.cells)
        store.write(rows, columns, np.ones(len(rows)), CellProvenance("coarse", "claim@1a2b3c4d", JUDGE))
        asked = draw_round(store, random=4, present=1, at_least=0).draw.pairs.rows.tolist()
    person = Person(browser, serve(tmp_path / "run").url, viewport={"width": width, "height": 800})
    page = person.page

    def look(at_least: int) -> None:
        checked, bad = person.check("contrast")
        assert checked > at_least
        assert bad == {}
        assert person.check("names") == [[], []]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    person.wait(0)
    for summary in page.locator("summary").all():
        summary.click()
    look(25)
    assert "the object is not there" in page.inner_text("main")
    assert "too tiny" not in page.inner_text("main")  # what counts for labels
    page.keyboard.press("g")  # 25 pictures at once would need one question
    assert not page.locator("#grid").is_visible()
    for pair, row in enumerate(asked):
        person.wait(pair)
        assert page.inner_text("#label") == question_of(store.claims[row])
        assert (
            page.get_attribute("#picture", "alt") == f"Image {store.image_ids[row]}: {question_of(store.claims[row])}"
        )
        page.keyboard.press("n" if pair == 1 else "y")
    page.wait_for_selector("#end:visible")
    page.click("#finish")
    page.wait_for_selector("#result:visible")
    look(15)
    (error,) = page.locator("#errors tbody tr").all()
    row = asked[1]
    cells = [store.image_ids[row], question_of(store.claims[row]), "true", "false", "claim@1a2b3c4d"]
    assert error.locator("td").all_inner_texts()[1:] == cells
    assert [each.inner_text() for each in page.locator("#bounds table").last.locator("tbody th").all()] == [
        "count", "attribute", "relation",
    ]  # fmt: skip
    assert not page.locator("#advice").inner_text()
    person.close()


def test_hostile_labels_stay_text(browser: Any, tmp_path: Path, serve: Callable[[Path], Serving]) -> None:
    name = '<img src=x onerror="window.hacked=1">'
    text = "</p><script>window.hacked = 1</script> \u202ereverse\u202c & <b>bold</b>"
    run = make_run(tmp_path, {name: text})
    person = Person(browser, serve(run).url)
    page = person.page
    person.wait(0)
    assert page.text_content("#label") == name
    assert page.text_content("#definition") == text
    page.locator("#labels-card summary").click()
    assert name in page.text_content("#labels")
    page.focus("#stage")
    while not page.locator("#end").is_visible():
        person.press("y")
    page.click("#finish")
    page.wait_for_selector("#result:visible")
    assert name in page.text_content("#errors")
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.scripts.length") == 1
    person.close()


def test_everything_is_reached_by_the_tab_key(browser: Any, run: Path, serve: Callable[[Path], Serving]) -> None:
    person = Person(browser, serve(run).url)
    page = person.page
    person.press("n")
    reached = []
    for _ in range(13):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    wanted = [
        "theme",
        "stage",
        "Yes Y",
        "No N",
        "Unsure U",
        "back",
        "undo",
        "next",
        "at-once",
        "What counts",
        "Keys",
        "Labels",
    ]
    places = [reached.index(name) for name in wanted]
    assert places == sorted(places)
    person.close()


def test_25_pictures_are_answered_at_once_and_the_odd_ones_pressed(
    browser: Any, tmp_path: Path, serve: Callable[[Path], Serving]
) -> None:
    run = make_run(tmp_path, DEFINITIONS, per_label=28)
    labels = the_round(run).draw.pairs.label_ids.tolist()
    rows = the_round(run).draw.pairs.rows.tolist()
    first = labels.count(labels[0])
    assert first > 26
    Path(Store.open(run).paths[rows[7]]).unlink()
    person = Person(browser, serve(run).url)
    page = person.page

    def grid(pairs: range) -> None:
        page.wait_for_selector(f"#grid[data-pairs='{' '.join(map(str, pairs))}']")

    person.press("u")  # one alone, then the grid
    page.keyboard.press("g")
    grid(range(1, 26))
    assert page.locator("#grid .tile").count() == 25
    assert page.inner_text("#taken") == "Answer these 25"
    assert page.inner_text("#step") == f"{first - 1} without an answer"
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    checked, bad = person.check("contrast")
    assert (checked > 10, bad, person.check("names")) == (True, {}, [[], []])

    page.click(".mark[data-pair='3']")  # yes
    for _ in range(2):
        page.click(".mark[data-pair='4']")  # unsure
    for _ in range(3):
        page.click(".mark[data-pair='5']")  # no again
    page.keyboard.press("ArrowDown")
    page.keyboard.press("y")
    assert person.said() == f"Image {rows[10]}: yes."
    assert page.locator(".mark[data-pair='7']").is_disabled()
    page.keyboard.press("+")
    assert page.locator("dialog img").evaluate("async (i) => { await i.decode(); return i.naturalWidth; }") == 640
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    assert the_round(run).answers[1:] == [None] * (len(rows) - 1)
    page.keyboard.press("Enter")
    grid(range(26, first))
    assert person.said() == "bench: 25 answered."
    said = {0: "unsure", 3: "yes", 4: "unsure", 10: "yes", 7: "missing"}
    assert the_round(run).answers[:26] == [said.get(k, "no") for k in range(26)]

    page.keyboard.press("z")  # what was taken at once is taken back at once
    grid(range(1, 26))
    assert the_round(run).answers == ["unsure"] + [None] * (len(rows) - 1)
    page.check("[name=rest][value=yes]")
    page.click(".mark[data-pair='2']")
    page.click("#take")
    grid(range(26, first))
    assert the_round(run).answers[:26] == ["unsure", *({2: "no", 7: "missing"}.get(k, "yes") for k in range(1, 26))]
    page.click("#take")
    grid(range(first, first + 25))
    assert page.inner_text("#label") == "chair"
    page.click("#take")
    grid(range(first + 25, len(rows)))
    page.click("#take")
    page.wait_for_selector("#end:visible")
    assert None not in the_round(run).answers
    person.close()


def test_what_somebody_else_answers_stays_theirs_among_25(
    browser: Any, run: Path, serve: Callable[[Path], Serving]
) -> None:
    serving = serve(run)
    first = Person(browser, serving.url)
    second = Person(browser, serving.url, first.context)
    first.wait(0)
    second.page.keyboard.press("g")
    second.page.wait_for_selector("#grid[data-pairs]")
    first.press("yu")
    second.page.click("#take")
    second.page.locator("#label", has_text="chair").wait_for()
    bench = the_round(run).draw.pairs.label_ids.tolist().count(0)
    assert the_round(run).answers[:bench] == ["yes", "unsure", *["no"] * (bench - 2)]
    first.close()
    assert second.troubles == []
