"""Report in a real browser (Debian's chromium, controlled by playwright), opened as a file from disk.

Real captions are in ../shared, and hostile captions are generated. Without chromium, these tests are skipped with a
reason, or fail if SCAPO_REQUIRE_SHARED=1.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scapo_eval import PresenceOracle
from scapo_eval.cli import vocab
from scapo_eval.validation.judgements import Judgements

REAL = ("r1_llava15_7b", "r2_vcd", "r6_lim")
PAGES = (
    "overview",
    "scores",
    "frontier",
    "labels",
    "labels&view=alias",
    "labels&view=together",
    "captions",
    "guards",
    "training",
)

HOSTILE = [
    "<script>window.hacked = 1</script> A dog.",
    "</script><img src=x onerror='window.hacked = 1'> A cat and a dog.",
    "[/] [bold]A dog[/bold] &amp; &lt;b&gt; \"quotes\" 'single' `back` ${window.hacked = 1}",
    "\u202eA dog in reverse\u202c and \u0645\u0631\u062d\u0628\u0627 \u2067 a cat.",
    "Lone \ud800 surrogate, a dog \udfff and a \U0001f436 dog.",
    "NUL \u0000 and \u2028 line separators, javascript:alert(1) a cat.",
    "-->]]></style></textarea><!-- a dog",
    "",
]

MIXED_PAGES = (
    "overview", "scores", "scores&benchmark=mmhal", "frontier", "labels", "labels&view=alias", "labels&view=together",
    "guards", "answers",
)  # fmt: skip

CHECKS = (Path(__file__).parent / "browser_checks.js").read_text("utf-8")


def follow(page: Any, name: str) -> None:
    """Opens another page by its link, and waits until it is drawn, because the browser reports the new address
    later.
    """
    page.get_by_role("link", name=name).click()
    page.locator("nav a[aria-current]", has_text=name).wait_for()


class Reader:
    """Page of a report, which records every event that must not happen."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page = self.context.new_page()
        self.page.set_default_timeout(120_000)
        self.address = path.as_uri()
        self.troubles: list[str] = []
        self.page.on("console", lambda message: self.troubles.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.troubles.append("a dialog"), dialog.dismiss()))
        self.page.on("request", self._request)

    def _request(self, request: Any) -> None:
        if request.url.split("#")[0] != self.address and not request.url.startswith(("data:", "blob:")):
            self.troubles.append(f"request: {request.url}")

    def open(self, fragment: str = "") -> Any:
        """Opens the report again at an address."""
        self.page.goto("about:blank")
        self.page.goto(self.address + ("#" + fragment if fragment else ""))
        self.page.wait_for_selector("html[data-ready]")
        return self.page

    def check(self, name: str) -> Any:
        """Returns the result of a function in browser_checks.js."""
        return self.page.evaluate(f"() => {{ {CHECKS} return checks.{name}(); }}")

    def rows(self) -> list[str]:
        """Returns the visible image ids in the list."""
        found: list[str] = self.page.locator("#list .row b").all_inner_texts()
        return found

    def count(self) -> int:
        """Returns the number of images that pass the filter."""
        return int(self.page.inner_text("#captions-count").split()[0].replace(",", ""))

    def close(self) -> None:
        self.context.close()
        assert self.troubles == []


def make(folder: Path, *arguments: object) -> Path:
    command = [sys.executable, "-m", "scapo_eval.cli.main", "report", *map(str, arguments), "-o", "report.html", "-q"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, b"")
    return folder / "report.html"


@pytest.fixture(scope="module")
def real(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[dict[str, Any]]]]:
    """Returns the report on LLaVA-1.5, with VCD and with Less is More, the captions, and a generated training run."""
    data = shared / "data" / "captions_real"
    folder = tmp_path_factory.mktemp("real")
    captions = {}
    for name in REAL:
        text = (data / f"coco_val2014_lessismore_{name}.jsonl").read_bytes()
        (folder / f"{name}.jsonl").write_bytes(text)
        captions[name] = [json.loads(line) for line in text.splitlines()]
    (folder / "run").mkdir()
    steps = [{"step": s, "hal_rate": 0.2 - s / 1000, "cover_rate": 0.6 + s / 500, "kl": s / 1e4} for s in range(20)]
    (folder / "run" / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    first = captions[REAL[0]][0]
    samples = [{"step": s, "image_id": first["image_id"], "response": f"Step {s}. A person."} for s in (0, 10, 19)]
    (folder / "run" / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    alarm = {
        "step": 15,
        "name": "kl",
        "metric": "kl",
        "value": 15e-4,
        "threshold": 14e-4,
        "setting": "loss.kl_alarm = 0.0014",
    }
    (folder / "run" / "alarms.jsonl").write_text(json.dumps(alarm) + "\n")
    names = [f"{name}.jsonl" for name in REAL]
    truth = data / "gt" / "coco_chair_gt.jsonl"
    return make(folder, *names, "run", "--truth", truth, "--by", "length"), captions


def charts(path: Path) -> dict[str, Any]:
    """Returns the data of a page, without captions and pictures."""
    packed = re.search(rb'id="data-charts">([^<]+)<', path.read_bytes())
    assert packed is not None
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b85decode(packed[1].replace(b",", b"<"))))
    return found


def sentences(path: Path, baseline: str | None = None) -> dict[str, tuple[str, str]]:
    """Returns the verdict and the sentence of every system in a page's first benchmark, as computed by the code."""
    argument = charts(path)["arguments"][0]
    names = [system["name"] for system in argument["systems"]]
    entries = argument["against"][names.index(baseline) if baseline else 0]
    return {
        name: (entry["verdict"], "".join(piece["text"] for piece in entry["said"]))
        for name, entry in zip(names, entries, strict=True)
        if entry
    }


@pytest.fixture
def reader(browser: Any, real: tuple[Path, Any]) -> Iterator[Reader]:
    opened = Reader(browser, real[0])
    yield opened
    opened.close()


def test_every_page_is_drawn_without_a_complaint(reader: Reader) -> None:
    for page in PAGES:
        shown = reader.open(f"page={page}")
        section = shown.locator(f"section[data-page={page.split('&')[0]}]")
        assert section.is_visible()
        assert shown.locator("section[data-page]:visible").count() == 1
        assert len(section.inner_text()) > 100
    assert shown.locator("#curves figure").count() == 3
    assert shown.locator("#trouble").is_hidden()


def test_the_head_stands_before_any_script(browser: Any, real: tuple[Path, Any]) -> None:
    still = Reader(browser, real[0], java_script_enabled=False)
    still.page.goto(still.address)
    text = still.page.inner_text("#scores")
    assert all(name in text for name in (*REAL, "Hal. Rate", "capscore|vocab:coco80@"))
    said = still.page.locator("#overview li").all_inner_texts()
    assert [" ".join(each.split()) for each in said] == [
        f"{name} {verdict} {text}." for name, (verdict, text) in sentences(real[0]).items()
    ]
    still.close()


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1366, 768), (1920, 1080)])
def test_the_overview_argues_in_its_first_screen_and_nothing_overlaps(
    browser: Any, real: tuple[Path, Any], width: int, height: int
) -> None:
    opened = Reader(browser, real[0], viewport={"width": width, "height": height})
    page = opened.open()
    assert page.get_attribute("nav a[aria-current]", "href") == "#page=overview"
    texts = page.locator("#overview .claims li").all_inner_texts()
    assert [re.split(r"\s", text, maxsplit=1)[0] for text in texts] == list(REAL)
    for text, (verdict, said) in zip(texts[1:], sentences(real[0]).values(), strict=True):
        assert f"{verdict}: {said}." in " ".join(text.split())
    assert page.inner_text("#overview .data").endswith("shared · judged by coco_chair_gt.jsonl, vocabulary coco80")
    assert opened.check("overlaps") == []
    assert opened.check("outside") == []
    assert page.locator("#overview .changes .label-name").count() == 5
    assert page.locator("#overview .pair .text").count() == 2
    if width > 1000:  # the sentences, the frontier with both axes, the labels that changed
        shown = page.locator("#overview .claims li, #overview .axis-name, #overview .changes .label-name")
        bottoms = [box["y"] + box["height"] for each in shown.all() if (box := each.bounding_box())]
        assert len(bottoms) == 3 + 2 + 5
        assert max(bottoms) <= height
    opened.close()


def test_any_system_is_the_baseline_and_links_keep_it(reader: Reader, real: tuple[Path, Any]) -> None:
    page = reader.open()
    page.get_by_label("Baseline").first.select_option(REAL[2])
    page.locator(".claims .base", has_text=REAL[2]).wait_for()
    told = " ".join(page.locator(".claims li", has_text=REAL[0]).inner_text().split())
    assert "{}: {}.".format(*sentences(real[0], REAL[2])[REAL[0]]) in told
    page.get_by_role("button", name=f"captions of {REAL[1]}").click()
    page.locator(".changes .hint", has_text=f"{REAL[1]} compared with {REAL[2]}").wait_for()
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").endswith(REAL[1])
    follow(page, "Scores")
    assert page.locator(".score-table tr", has_text="baseline").inner_text().startswith(REAL[2])
    page.get_by_role("button", name="Hal. Rate ↓").click()
    rows = page.locator(".score-table tbody th bdi")
    assert rows.all_inner_texts() == [REAL[2], REAL[1], REAL[0]]
    assert page.get_attribute(".score-table th[aria-sort]", "aria-sort") == "ascending"
    page.locator(".toggles").get_by_label(REAL[1], exact=True).uncheck()
    assert rows.all_inner_texts() == [REAL[2], REAL[0]]
    again = reader.open(page.url.split("#")[1])
    assert again.locator(".score-table tbody th bdi").all_inner_texts() == [REAL[2], REAL[0]]
    follow(again, "Frontier")
    label = again.locator("#frontier svg.chart").get_attribute("aria-label")
    assert REAL[1] not in label
    kept = f"#page=frontier&baseline={REAL[2]}&without={REAL[1]}"
    assert again.get_attribute("nav a[aria-current]", "href") == kept


def test_any_two_systems_are_set_side_by_side(reader: Reader, real: tuple[Path, Any]) -> None:
    page = reader.open(f"page=scores&a={REAL[1]}&b={REAL[2]}")
    card = page.locator(".score-pair")
    assert card.locator("p").inner_text().endswith("{}: {}.".format(*sentences(real[0], REAL[2])[REAL[1]]))
    assert card.locator("thead th").all_inner_texts() == ["metric", REAL[1], REAL[2], "difference", "95 % interval"]
    row = card.locator("tbody tr").first.locator("td").all_inner_texts()
    assert float(row[0]) - float(row[1]) == pytest.approx(float(row[2].strip("*").replace("−", "-")), abs=0.11)


def test_a_chart_is_saved_as_svg_of_its_own(reader: Reader) -> None:
    page = reader.open()
    with page.expect_download() as download:
        page.locator("#overview .save").first.click()
    assert download.value.suggested_filename == "hal-rate-and-cover-rate.svg"
    text = Path(download.value.path()).read_text("utf-8")
    assert text.startswith("<svg")
    assert all(name in text for name in REAL)
    assert "var(--" not in text
    assert 'fill="rgb(' in text


def test_a_term_says_what_it_means_on_hover_and_on_focus(reader: Reader) -> None:
    page = reader.open("page=scores")
    term = page.get_by_role("button", name="Cap. Score ↑")
    term.hover()
    assert page.inner_text("#tip") == "harmonic mean of 1 - Hal. Rate and Cover Rate"
    page.mouse.move(0, 0)
    assert page.locator("#tip").is_hidden()
    term.focus()
    assert page.locator("#tip").is_visible()
    assert term.get_attribute("aria-describedby") == "tip"
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


def test_the_frontier_draws_every_system_and_names_the_corner(reader: Reader) -> None:
    page = reader.open("page=frontier")
    svg = page.locator("#frontier svg.chart").first
    assert svg.locator(".corner.less").text_content() == "more faithful, covers less"
    label = svg.get_attribute("aria-label")
    assert all(name in label for name in REAL)
    assert svg.locator(".iso").count() >= 1
    assert svg.locator("path[fill-opacity]").count() == len(REAL)
    assert reader.check("outside") == []


def test_the_frontier_measures_from_no_system_if_the_baseline_is_put_aside(reader: Reader) -> None:
    for fragment, arrows in (("", len(REAL) - 1), (f"&without={REAL[2]}", 1), (f"&without={REAL[0]}", 0)):
        svg = reader.open(f"page=frontier{fragment}").locator("#frontier svg.chart").first
        assert svg.locator("line.arrow").count() == arrows
        assert svg.locator("rect.shade").count() == min(1, arrows)
        assert (svg.locator(".corner").count() > 0) == (arrows > 0)
    assert reader.open(f"page=overview&without={REAL[0]}").locator("#overview line.arrow").count() == 0


def test_labels_sort_search_and_lead_to_their_captions(reader: Reader, real: tuple[Path, Any]) -> None:
    page = reader.open("page=labels")

    def column(k: int) -> list[str]:
        found: list[str] = page.locator(f"#labels-view tbody tr > *:nth-child({k})").all_inner_texts()
        return found

    wrong = [int(n) for n in column(4)]
    assert wrong == sorted(wrong, reverse=True)
    page.get_by_role("button", name="label", exact=True).click()
    assert column(1) == sorted(column(1))
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("label")
    page.get_by_role("button", name="label", exact=True).press("Enter")
    assert column(1) == sorted(column(1), reverse=True)
    page.fill("#labels-search", "handbag")
    assert column(1) == ["handbag"]
    claimed, hallucinated = int(column(3)[0]), int(column(4)[0])
    assert claimed >= hallucinated > 0
    page.select_option("#labels-system", label=REAL[1])
    assert page.locator("#labels-view thead th").last.inner_text() == "change in missed, %"
    expected = int(column(4)[0])
    assert page.locator("#labels-view tbody tr > *:nth-child(10)").inner_text() == str(hallucinated)  # the baseline's
    page.select_option("#labels-base", label=REAL[1])
    assert page.locator("#labels-view thead th").count() == 9  # the system itself: nothing to compare
    page.select_option("#labels-base", label=REAL[2])
    page.locator("#labels-view tbody tr > *:nth-child(4) a").click()
    page.wait_for_selector("#detail .caption")
    assert reader.count() == expected
    assert page.locator("#detail mark.v-hallucinated[title^='handbag: hallucinated']").count() >= 1
    assert {s.strip() for s in page.locator("#detail .caption h4 bdi").all_inner_texts()} == {REAL[1]}


def test_labels_show_the_overviews_test(reader: Reader) -> None:
    """Checks that a label's star on the Labels page and its bar on the Overview page are based on the same test."""
    page = reader.open("page=labels")
    page.select_option("#labels-system", label=REAL[2])
    page.select_option("#labels-base", label=REAL[0])
    rows = page.locator("#labels-view tbody tr").all_inner_texts()
    starred = {cells[0]: cells[10] for cells in (row.split("\t") for row in rows) if cells[10].endswith("*")}
    assert 0 < len(starred) < len(rows)
    page = reader.open()
    page.get_by_role("button", name=f"Why: the labels and captions of {REAL[2]}").click()
    bars = page.locator("figure svg a[aria-label$='the captions that differ']")
    assert bars.count()
    for bar in bars.all():
        label = bar.locator("text.label-name").text_content()
        shown = bar.locator("rect").get_attribute("class") in ("bar-better", "bar-worse")
        assert (label in starred) == shown


def test_filters_and_orders_of_the_captions(reader: Reader, real: tuple[Path, Any]) -> None:
    page, captions = reader.open("page=captions"), real[1]
    assert reader.count() == 500
    said = page.locator("#list .row").evaluate_all("(rows) => rows.map((row) => row.getAttribute('aria-label'))")
    sums = [sum(map(int, re.findall(r"(\d+) hallucinated", each))) for each in said]
    assert sums == sorted(sums, reverse=True)
    assert page.locator("#detail .caption").count() == 3
    page.select_option("[name=order]", "file")
    assert reader.rows()[:3] == [str(c["image_id"]) for c in captions[REAL[0]][:3]]
    page.fill("[name=text]", "tennis")
    assert reader.count() == len(
        {c["image_id"] for rows in captions.values() for c in rows if "tennis" in c["caption"].lower()}
    )
    page.select_option("[name=system]", REAL[2])
    assert reader.count() == sum("tennis" in c["caption"].lower() for c in captions[REAL[2]])
    page.get_by_role("button", name="Reset").click()
    page.get_by_text("500 of 500 images").wait_for()
    page.select_option("[name=order]", "disagreement")
    marks = reader.check("marks")
    assert len(set(marks)) > 1
    page.fill("[name=label]", "dog")
    page.select_option("[name=verdict]", "missed")
    assert re.search(r"missed:.*\bdog\b", page.inner_text("#detail"))
    page.fill("[name=label]", "no such thing")
    assert page.inner_text("#captions-count") == "0 of 500 images; label not found"
    assert page.locator("#detail .caption").count() == 0


def test_suspected_words_are_marked_and_saved_for_vocab(reader: Reader, tmp_path: Path) -> None:
    page = reader.open("page=labels&view=alias")
    rows = page.locator("#labels-view tbody tr")
    boxes = page.locator("#labels-view tbody input")
    marked = page.locator("#labels-view tbody input:checked").count()
    assert 0 < marked < boxes.count()
    wrong = page.locator("#labels-view tbody tr:has(input:checked) > *:nth-child(4)").all_inner_texts()
    assert int(wrong[0]) == max(map(int, wrong))  # the most hallucinated of all systems come first
    assert int(wrong[-1]) == min(map(int, wrong))
    word, label = rows.last.locator("a").all_inner_texts()[:2]
    boxes.last.check()
    assert "marks=" in page.url
    save = page.get_by_role("button", name=re.compile("Save captions"))
    reader.open(page.url.split("#")[1])
    assert page.locator(f"#labels-view input[aria-label$=': {word} as {label}']").is_checked()
    assert page.locator("#labels-view tbody input:checked").count() == marked + 1
    with page.expect_download() as download:
        save.click()
    download.value.save_as(tmp_path / "faults.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "faults.jsonl").read_text().splitlines()]
    assert all(line["surface"] in line["caption"].lower() for line in lines)
    assert all(line["hallucinated"] <= line["mentions"] for line in lines)
    of_word = [line for line in lines if (line["surface"], line["label"]) == (word, label)]
    assert len(of_word) <= sum(line["hallucinated"] for line in of_word[:1])
    assert {line["surface"] for line in lines} >= {rows.first.locator("a").first.inner_text()}
    assert list(vocab._texts(str(tmp_path / "faults.jsonl"))) == [line["caption"] for line in lines]


def test_captions_are_found_by_alias_word_and_use(reader: Reader, real: tuple[Path, Any]) -> None:
    page = reader.open("page=captions")
    page.fill("[name=label]", "women")
    assert page.inner_text("#captions-count").endswith("“women” is an alias of person")
    by_alias = reader.count()
    assert (
        0
        < by_alias
        <= len({c["image_id"] for rows in real[1].values() for c in rows if "women" in c["caption"].lower()})
    )
    page.fill("[name=label]", "person")
    assert reader.count() > by_alias
    page.locator(".more summary").click()
    page.fill("[name=word]", "women")
    assert reader.count() == by_alias
    page.fill("[name=word]", "")
    page.select_option("[name=use]", "negated")
    assert 0 < reader.count() < by_alias
    assert page.locator("#detail mark[title$='negated']").count() >= 1
    page.check("[name=names]")
    assert "person · negated" in page.locator("#detail rt").all_inner_texts()
    assert page.locator("#detail ruby > mark").count() == page.locator("#detail mark:not(.v-not-counted)").count()


def test_systems_are_toggled_and_the_address_keeps_it_on_every_page(reader: Reader) -> None:
    page = reader.open("page=captions&order=file")
    page.locator(".more summary").click()
    page.locator("#captions-systems input").nth(1).uncheck()
    assert page.locator("#detail .caption h4 bdi").all_inner_texts() == [REAL[0], REAL[2]]
    reader.open(page.url.split("#")[1])
    assert page.locator("#detail .caption").count() == 2
    follow(page, "Guards")
    assert page.locator("#guards tbody tr:visible").count() == 2
    page.get_by_role("button", name="words per caption").click()
    assert "sort=-4" in page.url
    follow(page, "Captions")
    assert "order=file" in page.url
    assert page.locator("#detail .caption").count() == 2


def test_a_seed_gives_the_same_random_order_again(reader: Reader) -> None:
    page = reader.open("page=captions&order=random&seed=7")
    first = reader.rows()
    address = page.url
    page.fill("[name=seed]", "8")
    assert reader.rows() != first
    reader.open(address.split("#")[1])
    assert reader.rows() == first


def test_a_difference_leads_to_exactly_the_images_that_make_it(reader: Reader, real: tuple[Path, Any]) -> None:
    page = reader.open()
    page.get_by_role("button", name=f"captions of {REAL[2]}").click()
    argument = charts(real[0])["arguments"][0]
    change = argument["against"][0][2]["labels"][0]
    label, difference = change["label"], change["difference"]
    page.locator("#overview .label-name", has_text=label).click()
    page.get_by_text(re.compile("without the images shown")).wait_for()
    said = page.inner_text("#captions-count")
    assert f"{label}, hallucinated, % of all captions" in said
    assert f"{100 * difference:+.1f}".replace("-", "−") + " points; ±0.0 without the images shown." in said
    found = re.search(r"(\d+) improved, (\d+) regressed", said)
    assert found is not None
    mended, spoiled = map(int, found.groups())
    assert reader.count() == mended + spoiled
    assert 100 * (spoiled - mended) / 500 == pytest.approx(100 * difference, abs=0.05)
    names = page.locator("#detail .caption h4 bdi").all_inner_texts()
    assert names == [REAL[0], REAL[2]]
    wrong = [label in title for title in reader.check("marks")]
    assert wrong.count(True) >= 1
    assert page.input_value("[name=outcome]") == "differs"
    page.select_option("[name=outcome]", "mended")
    assert reader.count() == mended


@pytest.mark.parametrize("metric", ["hal_rate", "cover_rate", "cap_score"])
def test_the_page_counts_a_difference_as_the_results_do(reader: Reader, real: tuple[Path, Any], metric: str) -> None:
    argument = charts(real[0])["arguments"][0]
    place = [metric["key"] for metric in argument["metrics"]].index(metric)
    row = argument["against"][0][2]["rows"][place]
    difference, before, after = row["difference"], row["before"], row["after"]
    page = reader.open(f"page=captions&system={REAL[2]}&against={REAL[0]}&by={metric}&outcome=differs")
    shown = f"{100 * before:.1f} → {100 * after:.1f}, {100 * difference:+.1f} points".replace("-", "−")
    assert shown in page.inner_text("#captions-count")
    reader.open("page=scores")
    cell = page.locator(".score-table tbody tr", has_text=REAL[2]).locator("a.door").nth(place)
    cell.click()
    page.get_by_text(re.compile("points; .* without")).wait_for()
    assert page.input_value("[name=by]") == metric
    assert shown in page.inner_text("#captions-count")


def test_hallucinated_mentions_are_marked_by_keyboard_and_saved(reader: Reader, tmp_path: Path) -> None:
    page = reader.open("page=captions")
    page.locator("#marks summary").click()
    page.locator("#detail h3").click()
    page.keyboard.press("n")
    first = page.locator("mark.selected")
    word = page.evaluate("document.activeElement.firstChild.data")
    page.keyboard.press("t")
    assert first.get_attribute("data-given") == "truth"
    page.keyboard.press("n")
    page.keyboard.press("i")
    page.keyboard.press("i")  # the same key takes it back
    assert page.locator("mark[data-given]").count() == 1
    page.keyboard.press("i")
    row = page.get_by_role("region", name="Scores after review").locator("tbody tr").first
    read, matcher, truth, invented, unread, hal, _ = row.locator("td").all_inner_texts()
    assert int(read) == int(matcher) + int(truth) + int(invented) >= 1
    low, high = map(float, hal.split(" – "))
    assert low < high
    assert int(unread) > 0
    with page.expect_download() as download:
        page.locator("#marks-save").click()
    path = tmp_path / "marks.jsonl"
    download.value.save_as(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    marks = [mark for line in lines for mark in line["marks"]]
    assert [mark["mark"] for mark in marks] == ["truth", "invented"]
    assert marks[0]["surface"] == word
    for line in lines:
        for mark in line["marks"]:
            assert line["caption"][mark["start"] : mark["end"]] == mark["surface"]
            assert (mark["label"] in line["objects"]) == (mark["mark"] == "truth")
        assert "spans" not in line  # neither caption is read to its end
    assert list(vocab._texts(str(path))) == [line["caption"] for line in lines]
    assert PresenceOracle.load(path).state(lines[0]["image_id"], marks[0]["label"]) == 1
    for _ in range(page.locator("#detail mark[data-mention]:not([data-given])").count()):
        page.keyboard.press("n")
        page.keyboard.press("m")
    with page.expect_download() as download:
        page.locator("#marks-save").click()
    download.value.save_as(tmp_path / "whole.jsonl")
    judged = Judgements.load(tmp_path / "whole.jsonl")
    assert [len(item.spans or ()) for item in judged.items].count(1) == 1  # the confirmed hallucination
    page.evaluate("localStorage.clear()")
    reader.open("page=captions")
    assert page.locator("mark[data-given]").count() == 0
    page.locator("#marks summary").click()
    page.set_input_files("#marks-open", path)
    page.locator("mark[data-given]").first.wait_for()
    assert page.locator("mark[data-given]").count() == 2
    page.evaluate("localStorage.clear()")


def test_marks_outlast_another_report_and_changed_captions(browser: Any, tmp_path: Path) -> None:
    truth = tmp_path / "truth.json"
    truth.write_text('[{"image_id": 1, "objects": ["dog"]}, {"image_id": 2, "objects": ["dog"]}]')

    def report(name: str, *captions: str) -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        rows = [{"image_id": k, "caption": caption} for k, caption in enumerate(captions, 1)]
        (tmp_path / name / "base.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return make(tmp_path / name, "base.jsonl", "--truth", truth)

    opened = Reader(browser, report("one", "A dog and a cat.", "A dog and a car."))

    def shown(path: Path) -> list[str]:
        opened.address = path.as_uri()
        page = opened.open("page=captions")
        page.locator("#marks summary").click()
        row = page.get_by_role("region", name="Scores after review").locator("tbody tr").first
        row.wait_for()
        found: list[str] = row.locator("td").all_inner_texts()
        return found[:5]

    assert shown(tmp_path / "one" / "report.html") == ["0", "0", "0", "0", "2"]
    page = opened.page
    page.locator("#detail h3").click()
    for key in "ntni":
        page.keyboard.press(key)
    assert shown(report("two", "A dog and a bus.")) == ["0", "0", "0", "0", "1"]
    page.locator("#detail h3").click()
    for key in "nm":
        page.keyboard.press(key)
    assert shown(tmp_path / "one" / "report.html") == ["2", "0", "1", "1", "0"]
    assert shown(report("one", "A dog and a cat.", "A dog and a boat.")) == ["1", "0", "1", "0", "1"]
    assert shown(tmp_path / "two" / "report.html") == ["1", "1", "0", "0", "0"]
    assert shown(report("one", "A dog and a cat.", "A dog and a car.")) == ["2", "0", "1", "1", "0"]
    page.evaluate("localStorage.clear()")
    opened.close()


def test_two_tabs_of_one_report_share_the_marks(browser: Any, tmp_path: Path) -> None:
    row = {"image_id": 7, "caption": "A dog, a cat and a car.", "objects": ["dog"]}
    (tmp_path / "c.jsonl").write_text(json.dumps(row) + "\n")
    first = Reader(browser, make(tmp_path, "c.jsonl"))
    one = first.open("page=captions")
    two = one.context.new_page()
    two.goto(one.url)
    for page, keys in ((one, "nt"), (two, "nni")):  # the first mention in one tab, the second one in the other tab
        page.locator("#detail h3").click()
        for key in keys:
            page.keyboard.press(key)
    for page in (one, two):
        page.locator("mark[data-given]").nth(1).wait_for()
        assert page.locator("mark[data-given]").evaluate_all("all => all.map(mark => mark.dataset.given)") == [
            "truth",
            "invented",
        ]
    one.reload()
    one.locator("mark[data-given]").nth(1).wait_for()
    two.keyboard.press("i")  # the mark is removed
    one.locator("mark[data-given=invented]").wait_for(state="detached")
    assert one.locator("mark[data-given]").count() == 1
    one.evaluate("localStorage.clear()")  # neither tab loses its marks
    two.keyboard.press("i")
    one.locator("mark[data-given=invented]").wait_for()
    for page in (one, two):
        assert page.locator("mark[data-given]").count() == 2
    first.close()


def test_what_became_of_loaded_marks_is_said(reader: Reader, tmp_path: Path) -> None:
    page = reader.open("page=captions")
    page.locator("#marks summary").click()
    page.locator("#detail h3").click()
    for key in "nt":
        page.keyboard.press(key)
    with page.expect_download() as download:
        page.locator("#marks-save").click()
    saved = tmp_path / "marks.jsonl"
    download.value.save_as(saved)
    page.evaluate("localStorage.clear()")
    reader.open("page=captions")
    page.locator("#marks summary").click()

    def said(text: str) -> str:
        saved.write_text(text)
        page.evaluate("document.getElementById('marks-said').textContent = ''")
        page.set_input_files("#marks-open", saved)
        page.locator("#marks-said:not(:empty)").wait_for()
        assert page.input_value("#marks-open") == ""
        return page.inner_text("#marks-said")

    line = saved.read_text()
    assert said(line + "{broken\n") == "marks.jsonl:2: not valid JSON"
    assert page.locator("mark[data-given]").count() == 0
    assert said('{"caption": "A dog."}\n') == "marks.jsonl:1: not a caption with marks"
    other = json.dumps(json.loads(line) | {"caption": "another"}) + "\n"
    assert said(other + line) == "1 mark loaded. 1 line belongs to other captions or mentions."
    assert page.locator("mark[data-given]").count() == 1
    assert said(line) == "1 mark loaded."
    page.evaluate("localStorage.clear()")


@pytest.mark.parametrize(("width", "height"), [(1366, 768), (1920, 1080)])
def test_picture_and_text_share_the_first_screen(browser: Any, tmp_path: Path, width: int, height: int) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "pictures").mkdir()
    image.new("RGB", (480, 640), "teal").save(tmp_path / "pictures" / "000000000007.jpg")
    row = {"image_id": 7, "caption": "A dog beside a cat. " * 20, "objects": ["dog"]}
    (tmp_path / "c.jsonl").write_text(json.dumps(row) + "\n")
    opened = Reader(
        browser,
        make(tmp_path, "c.jsonl", "--images", "pictures", "--thumbnails"),
        viewport={"width": width, "height": height},
    )
    page = opened.open("page=captions")
    picture, text = page.locator("#picture img").bounding_box(), page.locator("#detail .text").bounding_box()
    assert picture is not None
    assert text is not None
    assert picture["y"] + picture["height"] < height
    assert text["y"] < height / 3
    assert text["x"] > picture["x"] + picture["width"]
    opened.close()


def test_pointing_at_a_mention_shows_its_boxes(browser: Any, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "pictures").mkdir()
    image.new("RGB", (400, 200), "teal").save(tmp_path / "pictures" / "000000000007.jpg")
    coco = {
        "images": [{"id": 7, "width": 400, "height": 200, "file_name": "000000000007.jpg"}],
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "cat"}, {"id": 3, "name": "car"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 1, "bbox": [100, 50, 200, 100]},
            {"id": 2, "image_id": 7, "category_id": 2, "bbox": [0, 0, 40, 20]},
        ],
    }
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    (tmp_path / "c.jsonl").write_text('{"image_id": 7, "caption": "A dog, a cat and a car."}\n')
    opened = Reader(browser, make(tmp_path, "c.jsonl", "--truth", "coco.json", "--images", "pictures", "--thumbnails"))
    page = opened.open("page=captions")
    boxes = page.locator("#picture .boxes span")
    page.locator("#detail mark", has_text="dog").hover()
    assert boxes.all_inner_texts() == ["dog"]
    picture, box = page.locator("#picture img").bounding_box(), boxes.bounding_box()
    assert picture is not None
    assert box is not None
    assert (box["x"] - picture["x"]) / picture["width"] == pytest.approx(0.25, abs=0.01)
    assert box["height"] / picture["height"] == pytest.approx(0.5, abs=0.02)
    page.locator("#detail mark", has_text="car").hover()
    assert boxes.all_inner_texts() == ["dog", "cat"]  # what stands there by the truth
    page.mouse.move(0, 0)
    assert boxes.count() == 0
    opened.close()


def test_guards_follow_the_chosen_baseline(reader: Reader, real: tuple[Path, Any]) -> None:
    page = reader.open(f"page=guards&baseline={REAL[2]}")
    entries = charts(real[0])["arguments"][0]["against"][2]
    for name, entry in zip(REAL, entries, strict=True):
        row = page.locator("#guards tbody tr", has_text=name)
        words = row.locator("[data-change=words]").inner_text()
        assert words == ("" if entry is None else f"{100 * entry['guards']['words']:+.0f} %")
    page.get_by_label("Baseline").last.select_option(REAL[0])
    page.get_by_text("fewer words or objects", exact=True).wait_for()
    assert f"baseline={REAL[0]}" in page.url


def test_permalinks_lead_to_one_caption(reader: Reader, real: tuple[Path, Any]) -> None:
    record = real[1][REAL[2]][321]
    page = reader.open(f"page=captions&image={record['image_id']}&of={REAL[2]}&rewards=1")
    target = page.locator(".caption.target")
    assert target.count() == 1
    assert reader.check("texts")[2] == record["caption"]
    assert target.locator(".reward").count() == target.locator(".piece").count() > 1
    assert "line 322 #" in target.inner_text()
    selected = page.locator(".row[aria-selected=true]")
    assert selected.locator("b").inner_text() == str(record["image_id"])
    other = page.locator(".caption h4 a").first
    other.click()
    page.locator(".caption.target h4", has_text=REAL[0]).wait_for()
    assert f"of={REAL[0]}" in page.url


def test_the_list_is_virtual_and_works_by_keyboard(reader: Reader) -> None:
    page = reader.open("page=captions")
    assert page.locator("#list .row").count() < 60
    page.focus("#list")
    page.keyboard.press("End")
    last = page.locator(".row[aria-selected=true]")
    assert last.get_attribute("aria-posinset") == "500"
    assert page.get_attribute("#list", "aria-activedescendant") == last.get_attribute("id")
    page.keyboard.press("ArrowUp")
    assert page.locator(".row[aria-selected=true]").get_attribute("aria-posinset") == "499"
    assert page.locator("#detail h3").inner_text() == "Image " + page.locator(".row[aria-selected=true] b").inner_text()
    page.keyboard.press("Home")
    page.get_by_role("button", name="Next").click()
    assert page.locator(".row[aria-selected=true]").get_attribute("aria-posinset") == "2"
    page.keyboard.press("ArrowRight")  # outside the list
    assert page.locator(".row[aria-selected=true]").get_attribute("aria-posinset") == "3"
    page.focus("[name=text]")
    page.keyboard.press("ArrowRight")  # there it moves the caret
    assert page.locator(".row[aria-selected=true]").get_attribute("aria-posinset") == "3"
    live = page.locator("#captions [aria-live], #captions [role=status]")
    assert live.locator("mark, .caption").count() == 0  # no caption is read aloud at a key
    page.get_by_text(re.compile("Image .*, 3 of 500")).wait_for(state="attached")


def test_everything_is_reached_by_the_tab_key(reader: Reader) -> None:
    page = reader.open("page=captions")
    page.evaluate("document.body.focus()")
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("(() => { const a = document.activeElement; return a.name || a.id || a.textContent; })()")
        )
    wanted = [
        "Skip to content",
        "Overview",
        "Scores",
        "Frontier",
        "Captions",
        "theme",
        "order",
        "system",
        "against",
        "label",
        "text",
        "More",
        "list",
    ]
    places = [reached.index(name) for name in wanted]
    assert places == sorted(places)
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_training_curves_and_samples_follow_the_slider(reader: Reader) -> None:
    page = reader.open("page=training")
    assert "Step 19." in page.inner_text("#samples")
    assert page.locator("#samples mark").count() == 1
    page.focus("#step")
    page.keyboard.press("ArrowLeft")
    assert "Step 10." in page.inner_text("#samples")  # the newest up to step 18
    assert page.inner_text("#step-shown") == "18"
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.inner_text("#step-shown") == "18"  # the address keeps it


def test_alarms_are_listed_and_marked_in_the_chart_of_their_quantity(reader: Reader) -> None:
    page = reader.open("page=training")
    assert page.locator("#alarms thead th").all_inner_texts() == [
        "Step", "Alarm", "Quantity", "Value", "Threshold", "Setting",
    ]  # fmt: skip
    assert page.locator("#alarms tbody td").all_inner_texts() == [
        "15", "kl", "kl", "0.0015", "0.0014", "loss.kl_alarm = 0.0014",
    ]  # fmt: skip
    assert page.locator("#curves .alarm").count() == 1
    assert "step 15: kl" in page.inner_text("#alarms-said")
    chart = page.locator("#curves figure", has_text="KL, nats per token")
    assert chart.locator(".alarm").get_attribute("title") == "step 15: kl: 0.0015, threshold 0.0014"


def test_training_runs_are_drawn_over_one_another(browser: Any, tmp_path: Path) -> None:
    for name, level in (("one", 0.2), ("two", 0.4)):
        (tmp_path / name).mkdir()
        steps = [
            {
                "step": s, "hal_rate": level + 0.1 * (s % 2), "evaluation_hal_rate": None if s % 5 else 0.1 + s / 100,
                "lr": 1e-6, "grad_norm": 10.0 ** (s % 3), "repeated_sentence_share": s / 60, "mine": s,
            }
            for s in range(60)
        ]  # fmt: skip
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    opened = Reader(browser, make(tmp_path, "one", "two"))
    page = opened.open("page=training")
    assert page.locator("#trouble").is_hidden()
    assert page.locator("#alarms").inner_html() == ""
    headline = page.locator("#curves figure")
    assert headline.locator(".term").all_inner_texts() == ["Hal. Rate, %"]
    values = headline.locator(".key b")
    named = ["one", "two", "one, held out", "two, held out"]
    assert headline.locator(".key bdi").all_inner_texts() == named
    # the mean over the last two steps; what the held-out images gave in step 55, as it was logged
    assert values.all_inner_texts() == ["25", "45", "65", "65"]
    groups = {each.get_attribute("data-group"): each for each in page.locator("#more details").all()}
    assert list(groups) == ["guards", "Held-out images", "Update", "Others"]
    assert [name for name, each in groups.items() if each.get_attribute("open") is not None] == ["guards"]
    for name in ("Held-out images", "Update"):
        groups[name].locator("summary").click()
        groups[name].locator("figure").first.wait_for()
    assert "one from 10 to 65; two from 10 to 65" in groups["Held-out images"].locator(".plot").get_attribute(
        "aria-label"
    )
    constant = groups["Update"].locator("figure.constant").locator("figcaption, p")
    assert constant.all_text_contents() == ["Learning rate", "1e-6 in every step"]

    plot = headline.locator(".u-over")
    plot.hover(position={"x": 60, "y": 60})
    pointed = values.all_inner_texts()
    lines = page.locator(".u-cursor-x").evaluate_all(
        "all => all.map((n) => new DOMMatrix(getComputedStyle(n).transform).e)"
    )
    assert len(lines) > 3
    assert max(lines) - min(lines) <= 1  # one cursor in all charts
    plot.click(position={"x": 60, "y": 60})
    step = int(page.inner_text("#step-shown"))
    assert 0 < step < 59
    page.mouse.move(0, 0)
    assert values.all_inner_texts() == pointed

    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 10, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + 40, steps=4)
    page.mouse.up()
    page.get_by_role("button", name="Whole run").wait_for()
    assert "zoom=" in page.url
    assert int(page.inner_text("#step-shown")) == step  # to drag is not to click
    opened.open(page.url.split("#")[1])
    page.get_by_role("button", name="Whole run").click()
    assert "zoom=" not in page.url

    page.locator("#runs label", has_text="two").click()
    assert headline.locator(".key bdi").all_inner_texts() == ["one", "one, held out"]
    page.select_option("#smoothing", "none")
    page.check("#log-values")
    page.check("#log-steps")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.inner_text("#step-shown") == str(step)
    assert headline.locator(".key bdi").all_inner_texts() == ["one", "one, held out"]
    last = step - step % 5
    assert values.all_inner_texts() == ["20" if step % 2 == 0 else "30", str(10 + last)]
    assert page.is_checked("#log-values")
    assert page.is_checked("#log-steps")
    opened.close()


def test_seeds_settings_and_axes_of_training_runs(browser: Any, tmp_path: Path) -> None:
    for name, kl, seed in (("kl_1", 0.01, 1), ("kl_2", 0.01, 2), ("free", 0.0, 1)):
        (tmp_path / name).mkdir()
        rows = [
            {"step": s, "hal_rate": seed / 10 + s / 1000, "seconds_update": 36.0 * seed, "tokens_per_second": 1000}
            for s in range(40)
        ]
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / name / "config.toml").write_text(f"[run]\nseed = {seed}\n[loss]\nkl = {kl}\neps = 0.2\n")
    opened = Reader(browser, make(tmp_path, "kl_1", "kl_2", "free"))
    page = opened.open("page=training&smoothing=none")
    chart = page.locator("#curves figure").first
    assert chart.locator(".key span").all_inner_texts() == ["kl, 2 seeds18.9", "free13.9"]
    page.locator("#seeds").uncheck()
    assert chart.locator(".key span").all_inner_texts() == ["kl_113.9", "kl_223.9", "free13.9"]
    page.select_option("#along", "hours")
    page.locator("#step").focus()
    page.keyboard.press("Home")
    assert chart.locator(".key b").all_inner_texts() == ["10", "", "10"]  # the slow run has not logged after 36 seconds
    assert "along=hours" in page.url
    page.locator("#settings summary").first.click()
    assert page.inner_text("#settings summary") == "Settings: 2 differ of 3"
    differ = page.get_by_role("region", name="Settings that differ").locator("tbody tr")
    assert [row.locator("td").all_inner_texts() for row in differ.all()] == [
        ["loss.kl", "0.01", "0.01", "0.0"],
        ["run.seed", "1", "2", "1"],
    ]
    opened.close()


def test_an_alarm_beyond_its_quantitys_values_lies_within_the_chart(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    rows = [{"step": s, "cover_rate": 0.7 + s / 1000} for s in range(30)]
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    alarm = {"step": 29, "name": "cover", "metric": "cover_rate", "value": 0.24, "threshold": 0.25, "setting": "x = 1"}
    (tmp_path / "run" / "alarms.jsonl").write_text(json.dumps(alarm) + "\n")
    opened = Reader(browser, make(tmp_path, "run"))
    page = opened.open("page=training")
    mark, plot = (page.locator(f"#curves {name}").bounding_box() for name in (".alarm", ".u-wrap"))
    assert mark is not None
    assert plot is not None
    assert plot["y"] <= mark["y"]
    assert mark["y"] + mark["height"] <= plot["y"] + plot["height"]
    assert plot["x"] <= mark["x"]
    assert mark["x"] + mark["width"] <= plot["x"] + plot["width"] + 1
    opened.close()


def test_signatures_are_copied(browser: Any, real: tuple[Path, Any]) -> None:
    opened = Reader(browser, real[0], permissions=["clipboard-read", "clipboard-write"])
    page = opened.open("page=scores")
    page.locator(".copy").nth(1).click()
    page.wait_for_selector("text=Copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.locator(".signature code").nth(1).inner_text()
    opened.close()


def walk(opened: Reader, places: Iterable[str], *, axe: bool = False) -> None:
    """Opens pages, and checks contrast, names, overlapping boxes, broken words, and widths above that of the window."""
    page = opened.page
    for place in places:
        page.evaluate("(place) => { location.hash = 'page=' + place; scrollTo(0, 0); }", place + "&rewards=1")
        page.locator(f"section[data-page={place.split('&')[0]}]:visible").wait_for()
        checked, bad = opened.check("contrast")
        assert checked > 20
        assert bad == {}, place
        assert opened.check("names") == [[], []]
        assert opened.check("boxes") == [[], []], place
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{place} is wider than the window"
        if axe:
            # contrast is the dearest of axe's rules, and checked above
            assert page.evaluate(
                """async () => (await axe.run(document, { resultTypes: ["violations"], preload: false,
                    rules: { "color-contrast": { enabled: false } } })).violations
                    .map((found) => [found.id, found.nodes.length, found.nodes[0].html])"""
            ) == [], place  # fmt: skip


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1366, "light"), (1366, "dark"), (1920, "light")])
def test_every_page_is_legible_at_every_width(browser: Any, real: tuple[Path, Any], scheme: str, width: int) -> None:
    opened = Reader(browser, real[0], color_scheme=scheme, viewport={"width": width, "height": 800})
    page = opened.open()
    walk(opened, [place + "&names=1" for place in PAGES])
    columns = {390: 1, 1366: 2, 1920: 3}[width]
    page.evaluate("location.hash = 'page=captions'")
    tops = page.locator("#detail .caption").evaluate_all("(all) => all.map((n) => n.getBoundingClientRect().top)")
    assert tops.count(tops[0]) == columns
    assert page.get_attribute("html", "data-theme") == scheme
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") != scheme
    opened.close()


def axe_script() -> str:
    axe = pytest.importorskip("axe_playwright_python", reason="axe-core comes with axe-playwright-python")
    return (Path(axe.__file__).parent / "axe.min.js").read_text("utf-8")


def test_axe_finds_no_violation(browser: Any, real: tuple[Path, Any], mixed: Path) -> None:
    script = axe_script()
    for path, places in ((real[0], ("captions&names=1", "training")), (mixed, MIXED_PAGES)):
        opened = Reader(browser, path, viewport={"width": 1366, "height": 800})
        opened.open()
        opened.page.evaluate(script)
        walk(opened, places, axe=True)
        opened.close()


def test_the_checks_themselves_find_what_is_wrong(browser: Any, mixed: Path) -> None:
    opened = Reader(browser, mixed, viewport={"width": 390, "height": 800})
    page = opened.open("page=answers")
    page.evaluate(
        """() => {
        document.querySelector("#answers h2").style.marginBottom = "-3rem";
        Object.assign(document.querySelector("#answers label").style, { flex: "0 0 2rem", wordBreak: "break-all" });
        }"""
    )
    covered, broken = opened.check("boxes")
    assert any("Answers" in pair for pair in covered)
    assert "Benchmark" in broken
    opened.close()


def test_print_shows_every_page_in_light(browser: Any, real: tuple[Path, Any]) -> None:
    opened = Reader(browser, real[0], color_scheme="dark")
    page = opened.open()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    for name in ("overview", "scores", "frontier", "labels", "guards", "training"):
        assert page.locator(f"#{name}").is_visible()
    assert page.locator("nav").is_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(".signature").first.is_visible()
    assert page.pdf().startswith(b"%PDF")
    page.set_viewport_size({"width": 718, "height": 1047})  # A4 less the browser's margins
    assert page.evaluate("document.getElementById('overview').getBoundingClientRect().bottom") <= 1047
    opened.close()


def test_hostile_captions_stay_text(browser: Any, tmp_path: Path) -> None:
    def name(k: int) -> str:
        return f'"><img src=x onerror="window.hacked=1">{k}'

    records = [{"image_id": name(k), "caption": text, "objects": ["dog"]} for k, text in enumerate(HOSTILE)]
    for file in ("a'b&c.jsonl", "<i>\u202ed.jsonl"):
        (tmp_path / file).write_text("".join(json.dumps(record) + "\n" for record in records))
    path = make(tmp_path, "a'b&c.jsonl", "<i>\u202ed.jsonl", "--title", "</title><script>window.hacked=1</script>")
    opened = Reader(browser, path)
    page = opened.open("page=captions&order=file&rewards=1")
    page.focus("#list")
    wellformed = [re.sub("[\ud800-\udfff]", "\ufffd", text) for text in HOSTILE]
    for k, text in enumerate(HOSTILE):
        shown = opened.check("texts")
        assert [re.sub("[\ud800-\udfff]", "\ufffd", found) for found in shown] == [wellformed[k]] * 2
        assert set(page.locator("#detail .text *").evaluate_all("(all) => all.map((n) => n.tagName)")) <= {
            "SPAN",
            "MARK",
        }
        for mark in page.locator("#detail mark").all():
            assert mark.inner_text() in ("dog", "cat"), text
        page.keyboard.press("ArrowDown")
    assert page.locator(".caption h4 bdi").last.inner_text() == "<i>\u202ed"
    assert page.locator("img, iframe, object, embed, form[action]").count() == 0
    for place in PAGES[:-1]:
        page.evaluate("(place) => { location.hash = 'page=' + place; }", place)
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.scripts.length") == 2  # the script and what was not unpacked: no answers
    assert page.title() == "</title><script>window.hacked=1</script>"
    reopened = opened.open("page=captions&image=" + "%22%3E%3Cimg+src%3Dx+onerror%3D%22window.hacked%3D1%22%3E4")
    assert reopened.locator("#detail h3").inner_text() == "Image " + name(4)
    opened.close()


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns captions, ratings, and original and description-augmented answers of two systems."""
    folder = tmp_path_factory.mktemp("mixed")

    def write(name: str, rows: Iterable[dict[str, Any]]) -> None:
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    for system, text in (("base", "A dog and a cat."), ("ours", "A dog.")):
        write(f"{system}.jsonl", ({"image_id": k, "caption": text, "objects": ["dog"]} for k in range(40)))
        write(
            f"judged_{system}.jsonl",
            (
                {
                    "id": f"mmhal/{k}", "image_id": k, "question_type": "counting", "question": f"How many? {k}",
                    "gt_answer": "Two.", "response": "<b>Three</b>." if system == "base" or k % 2 else "Two.",
                    "rating": 1 if system == "base" or k % 2 else 5, "judge_text": "The judge says so.",
                }
                for k in range(40)
            ),
        )  # fmt: skip
        write(
            f"{system}_asked.jsonl",
            (
                {
                    "id": k, "image": f"{k}.jpg", "question": "Is there a dog?", "label": "yes",
                    "response": "No." if system == "base" or k < 10 else "Yes.",
                    **({"description": "A dog sleeps."} if system == "ours" else {}),
                }
                for k in range(40)
            ),
        )  # fmt: skip
    files = [f"{part}{system}{end}.jsonl" for part, end in (("", ""), ("judged_", ""), ("", "_asked"))
             for system in ("base", "ours")]  # fmt: skip
    joins = [f"{old}={new}" for old, new in (("judged_base", "base"), ("judged_ours", "ours"), ("base_asked", "base"))]
    return make(folder, *files, *(argument for join in joins for argument in ("--name", join)))


def test_several_benchmarks_are_joined_by_system_and_folded(browser: Any, mixed: Path) -> None:
    opened = Reader(browser, mixed)
    page = opened.open("page=scores")
    table = page.locator("table.joined")
    assert table.locator("thead tr:first-child a").all_inner_texts() == ["Captions", "MMHal-Bench", "Yes/no"]
    assert table.locator("tbody tr").count() == 3  # base, ours, and ours_asked, which was not renamed
    base = table.locator("tbody tr").first.locator("td").all_inner_texts()
    assert "–" not in base
    assert table.locator("tbody tr").last.locator("td").first.inner_text() == "–"
    assert table.locator(".better").count() >= 2
    assert page.locator("details.benchmark[open]").count() == 0
    table.get_by_role("link", name="MMHal-Bench").click()
    assert page.locator("details.benchmark[open]").get_attribute("id") == "scores-of-mmhal"
    table.get_by_role("button", name="Score ↑", exact=True).click()
    names = table.locator("tbody th bdi")
    assert names.all_inner_texts() == ["ours", "base", "ours_asked"]
    opened.open(page.url.split("#")[1])
    assert names.all_inner_texts() == ["ours", "base", "ours_asked"]
    assert page.locator("details.benchmark[open]").count() == 1
    opened.close()


def test_ratings_and_described_answers_stand_beside_what_is_true(browser: Any, mixed: Path) -> None:
    opened = Reader(browser, mixed)
    page = opened.open("page=answers&set=mmhal")
    count = page.locator("#answers-count")
    assert (
        count.inner_text()
        == "40 of 40 questions; ours compared with base: 20 improved, 0 regressed, 20 wrong in both. "
        "Correct: 0.0 → 50.0, +50.0 points."
    )
    page.select_option("#answers [name=outcome]", "mended")
    assert page.locator(".case").count() == 20
    first = page.locator(".case").first
    assert first.locator("mark").all_inner_texts() == ["rated 1 of 6", "rated 5 of 6"]
    assert first.locator("blockquote").first.inner_text() == "<b>Three</b>."
    first.locator("summary").first.click()
    assert "The judge says so." in first.inner_text()
    page.select_option("[name=set]", "yesno")
    assert count.inner_text() == (
        "30 of 40 questions; ours_asked compared with base: 30 improved, 0 regressed, 10 wrong in both. "
        "Correct: 0.0 → 75.0, +75.0 points; ±0.0 without the questions shown."
    )
    assert "with a description in the prompt" in first.inner_text()
    opened.open(page.url.split("#")[1])
    assert page.locator(".case").count() == 30
    checked, bad = opened.check("contrast")
    assert (checked > 20, bad) == (True, {})
    opened.close()


def test_claims_are_filtered_like_captions(browser: Any, tmp_path: Path) -> None:
    for system, wrong in (("base", 2), ("ours", 1)):
        rows = [
            {
                "id": k, "image_id": k, "claims": ["A <b>dog</b>.", "A cat.", f"Number {k}."],
                "descriptive": [1, 1, 1], "verified": [1, int(k % 4 >= wrong), 1],
            }
            for k in range(40)
        ]  # fmt: skip
        (tmp_path / f"{system}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    opened = Reader(browser, make(tmp_path, "base.jsonl", "ours.jsonl"))
    page = opened.open("page=claims&system=ours&first=base&outcome=differs")
    said = "10 of 40 descriptions: 10 improved, 0 regressed. True claims: 83.3 → 91.7, +8.3 points; "
    assert page.inner_text("#claims-count") == said + "±0.0 without the descriptions shown."
    first = page.locator("#claims .case").first
    assert first.locator("mark").all_inner_texts()[0] == "A <b>dog</b>."
    assert first.locator("mark.v-hallucinated").all_inner_texts() == ["A cat."]  # the baseline's
    page.fill("#claims [name=text]", "number 5")
    assert page.locator("#claims .case").count() == 1
    page.fill("#claims [name=text]", "")
    page.select_option("#claims [name=outcome]", "")
    assert page.locator("#claims .case").count() == 20
    page.click("#claims-more")
    assert page.locator("#claims .case").count() == 40
    opened.close()


def test_every_description_of_an_image_is_shown_and_shares_need_all_descriptions(browser: Any, tmp_path: Path) -> None:
    for system in ("base", "ours"):
        rows = [
            {"id": k, "image_id": k // 2, "claims": [f"{system} {k}."], "descriptive": [1], "verified": [k % 2]}
            for k in range(2002)
        ]
        for name, some in ((system, rows[:4]), (f"many_{system}", rows)):
            (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    few = Reader(browser, make(tmp_path, "base.jsonl", "ours.jsonl"))
    page = few.open("page=claims&system=ours&first=base")
    assert "4 of 4 descriptions: 0 improved, 0 regressed. True claims: 50.0 → 50.0" in page.inner_text("#claims-count")
    shown = [sorted(case.locator("mark").all_inner_texts()) for case in page.locator("#claims .case").all()]
    assert sorted(shown) == [[f"base {k}.", f"ours {k}."] for k in range(4)]
    few.close()
    many = Reader(browser, make(tmp_path, "many_base.jsonl", "many_ours.jsonl"))
    page = many.open("page=claims&system=many_ours&first=many_base")
    assert page.inner_text("#claims-count") == "2,000 of 2,000 descriptions"
    many.close()


def test_claims_by_kind_are_marked_in_their_captions(browser: Any, tmp_path: Path) -> None:
    objects = [{"name": "dog", "attributes": ["brown"]}, {"name": "dog", "attributes": ["black"]}, {"name": "couch"}]
    on = [{"subject": 0, "predicate": "on", "object": 2}]
    scenes = [
        {"image_id": k, "complete": ["dog", "couch", "cat"], "objects": objects, "relations": on} for k in range(40)
    ]
    (tmp_path / "scenes.jsonl").write_text("".join(json.dumps(scene) + "\n" for scene in scenes))
    wild = "\U0001f436 <b>x</b> Two red dogs on a couch. Two dogs and a cat."
    for system, wrong in (("base", 20), ("ours", 10)):
        rows = [{"image_id": k, "caption": wild if k < wrong else "Two brown dogs on a couch."} for k in range(40)]
        (tmp_path / f"{system}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ("base.jsonl", "ours.jsonl", "--scenes", "scenes.jsonl")
    made = make(tmp_path, *given)
    command = [sys.executable, "-m", "scapo_eval.cli.main", "claims", *given, "-o", "results.json", "-q"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=600)
    rates = {run["name"]: run["metrics"] for run in json.loads((tmp_path / "results.json").read_bytes())["systems"]}
    opened = Reader(browser, made)
    page = opened.open("page=kinds&system=ours&first=base&outcome=differs")
    base, ours = (100 * rates[name]["hal_rate"]["value"] for name in ("base", "ours"))
    said = (
        f"10 of 40 images: 10 improved, 0 regressed. False claims: {base:.1f} → {ours:.1f}, −{base - ours:.1f} points; "
    )
    assert page.inner_text("#kinds-count") == said + "±0.0 without the images shown."
    cells = page.locator("#kinds tbody tr", has_text="attribute").locator("td b").all_inner_texts()
    shown = [
        rates[name][f"{rate}_attribute"]["value"] for name in ("base", "ours") for rate in ("hal_rate", "cover_rate")
    ]
    assert cells == [f"{100 * value:.1f}" for value in shown]
    marks = page.locator("#kinds .case").first.locator(".text").first
    assert marks.locator("mark.v-hallucinated").all_inner_texts() == ["red", "cat"]
    assert marks.locator("rt").all_inner_texts() == ["count", "attribute", "relation", "count"]
    assert marks.inner_text().startswith("\U0001f436 <b>")
    page.select_option("#kinds [name=kind]", "attribute")
    page.select_option("#kinds [name=verdict]", "hallucinated")
    listed = page.locator("#kinds .case").first.locator("li").all_inner_texts()
    assert listed == ["attribute dog: red dog: 2, all annotated; dog: brown; dog: black"]
    page.select_option("#kinds [name=outcome]", "")
    assert page.locator("#kinds .case").count() == 20
    page.select_option("#kinds [name=verdict]", "unknown")
    assert page.locator("#kinds .case").count() == 0
    page.click("#kinds button[type=reset]")
    page.locator("#kinds .case").nth(19).wait_for()
    page.click("#kinds-more")
    assert page.locator("#kinds .case").count() == 40
    opened.close()
    for width, scheme in ((390, "light"), (1366, "dark")):
        opened = Reader(browser, made, color_scheme=scheme, viewport={"width": width, "height": 800})
        opened.open()
        opened.page.evaluate(axe_script())
        walk(opened, ["kinds&first=base", "kinds&kind=count"], axe=width == 1366)
        opened.close()
    plain = Reader(browser, make(tmp_path, "results.json"))
    page = plain.open("page=kinds")
    assert page.locator("#kinds tbody tr", has_text="attribute").locator("td b").all_inner_texts() == cells
    assert "Results files contain no captions" in page.inner_text("#kinds")
    plain.close()


def test_one_system_shows_what_it_invents_and_misses_first(browser: Any, real: tuple[Path, Any], shared: Path) -> None:
    data = shared / "data" / "captions_real"
    folder = real[0].parent / "one"
    folder.mkdir()
    path = make(
        folder, f"One={data}/coco_val2014_lessismore_{REAL[0]}.jsonl", "--truth", data / "gt" / "coco_chair_gt.jsonl"
    )
    opened = Reader(browser, path, viewport={"width": 1366, "height": 768})
    page = opened.open()
    assert "1 system · 500 images · " in page.inner_text("#overview")
    table = charts(path)["labels"][0]
    most = max(zip(table["hallucinated"], table["label"], strict=True))
    first = page.locator("#overview .faults").first.locator("li").first
    assert first.locator("a").inner_text() == most[1]
    assert first.locator(".value").inner_text() == str(most[0])
    box = page.locator("#overview .own").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 768
    assert page.locator("#overview .example .text").count() == 3
    assert opened.check("overlaps") == []
    first.locator("a").click()
    page.wait_for_selector("#detail .caption")
    assert opened.count() == most[0]
    opened.close()


def test_many_systems_are_ranked_and_named_apart(browser: Any, tmp_path: Path) -> None:
    names = [f"a-model-with-a-very-long-name-step-{k:04d}-temperature-{k % 3}.jsonl" for k in range(20)]
    for k, name in enumerate(names):
        rows = [
            {
                "image_id": i,
                "caption": "A dog and a cat." + " A car." * ((i * 7 + k) % 20 < k),
                "objects": ["dog", "cat"],
            }
            for i in range(60)
        ]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = make(tmp_path, *names, "--resamples", "200")
    opened = Reader(browser, path, viewport={"width": 1366, "height": 768})
    page = opened.open()
    values = [float(text) for text in page.locator("#overview .claims li:not(.base) .value").all_inner_texts()]
    assert values == sorted(values, reverse=True)
    labels = page.locator("#overview .first figure svg.chart > text:has(title)")
    shown = labels.evaluate_all("all => all.map((n) => n.lastChild.data)")
    assert len(set(shown)) == len(names) - 1
    assert page.locator("#overview .region").first.evaluate("n => getComputedStyle(n).visibility") == "hidden"
    assert opened.check("overlaps") == []
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 718, "height": 1047})
    tops = page.locator("#overview .claims li").evaluate_all("all => all.map((n) => n.getBoundingClientRect().top)")
    assert min(tops) < 300  # the first printed page begins with the systems
    opened.close()


def test_systems_within_one_point_have_axes_whose_ticks_differ(browser: Any, tmp_path: Path) -> None:
    for name, every in (("a.jsonl", 100), ("b.jsonl", 90)):
        rows = [
            {"image_id": i, "caption": "A dog." + " A car." * (i % every == 0), "objects": ["dog", "cat"]}
            for i in range(900)
        ]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    opened = Reader(browser, make(tmp_path, "a.jsonl", "b.jsonl", "--resamples", "200"))
    svg = opened.open("page=frontier").locator("#frontier svg.chart").first
    for anchor in ("middle", "end"):
        ticks = svg.locator(f"line.grid + text.faint[text-anchor={anchor}]").all_text_contents()
        assert len(ticks) >= 3
        assert len(set(ticks)) == len(ticks)
    opened.close()


@pytest.mark.parametrize("option", [(), ("--thumbnails",)])
def test_pictures_are_shown_from_disk_or_from_the_page(browser: Any, tmp_path: Path, option: tuple[str, ...]) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "my pictures").mkdir()
    image.new("RGB", (640, 480), "teal").save(tmp_path / "my pictures" / "000000000007.jpg")
    (tmp_path / "c.jsonl").write_text('{"image_id": 7, "caption": "A dog.", "objects": ["dog"]}\n')
    path = make(tmp_path, "c.jsonl", "--images", "my pictures", *option)
    opened = Reader(browser, path)
    assert opened.open("page=captions").locator("#no-pictures").is_hidden()
    opened.page.get_by_role("button", name="Pictures").click()
    assert "look=grid" in opened.page.url
    opened.page.locator("#grid a").click()
    picture = opened.page.locator("#picture img")
    assert picture.evaluate("async (i) => { await i.decode(); return i.naturalWidth; }") == (220 if option else 640)
    assert picture.get_attribute("alt") == "Image 7"
    if not option:
        assert set(opened.troubles) == {f"request: {tmp_path.as_uri()}/my%20pictures/000000000007.jpg"}
        opened.troubles.clear()
    opened.close()


def test_an_injected_script_would_not_run(browser: Any, real: tuple[Path, Any]) -> None:
    opened = Reader(browser, real[0])
    page = opened.open()
    blocked: list[str] = []
    page.on("requestfailed", lambda request: blocked.append(f"{request.url} {request.failure}"))
    page.evaluate(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s)"
    )
    with page.expect_console_message(), page.expect_event("requestfailed"):
        page.evaluate("const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i)")
    assert page.evaluate("window.hacked") is None
    refused = [trouble for trouble in opened.troubles if "Content Security Policy" in trouble]
    assert len(refused) == 2
    assert blocked == ["http://127.0.0.1:9/x.png csp"]
    opened.troubles.clear()
    opened.close()
