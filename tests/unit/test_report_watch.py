"""The page that follows its inputs: new steps appear, half-written files change nothing, nobody else is let in."""

from __future__ import annotations

import base64
import gzip
import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from scapo_eval.base.errors import InputError
from scapo_eval.cli.main import cli
from scapo_eval.report import Report, html, read_training_log
from scapo_eval.report.watch import ReportServer, state_of


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "kl": 0.5}\n')
    return tmp_path


@pytest.fixture
def server(run: Path) -> Iterator[ReportServer]:
    def make(state: str) -> bytes:
        return html.page(Report(training_logs=(read_training_log(run),)), title="T", state=state)

    reasons: list[str] = []
    made = ReportServer(make, lambda: state_of([run]), failed=reasons.append)
    made.reasons = reasons  # type: ignore[attr-defined]
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def read(url: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        text: str = answer.read().decode()
        return text


def steps(page: str) -> list[int]:
    found = re.search(r'id="data-training">([^<]+)<', page)
    assert found is not None
    (run,) = json.loads(gzip.decompress(base64.b85decode(found[1].replace(",", "<"))))["runs"]
    return list(run["steps"])


def test_new_steps_change_the_state_and_the_page(server: ReportServer, run: Path) -> None:
    page, state = read(server.url), read(server.url + "state")
    assert steps(page) == [1]
    assert f'data-state="{state}"' in page
    assert "connect-src &#39;self&#39;" in page
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 2, "kl": 0.4}\n')
    changed = read(server.url + "state")
    assert changed != state
    page = read(server.url)
    assert steps(page) == [1, 2]
    assert f'data-state="{changed}"' in page


def test_a_half_written_line_keeps_the_page_before(server: ReportServer, run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 2, "kl')
    page = read(server.url)
    assert steps(page) == [1]
    assert f'data-state="{read(server.url + "state")}"' in page  # so the browser does not reload it
    assert len(server.reasons) == 1  # type: ignore[attr-defined]
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('": 0.4}\n')
    state = read(server.url + "state")
    assert f'data-state="{state}"' not in page
    page = read(server.url)
    assert steps(page) == [1, 2]
    assert f'data-state="{state}"' in page


def test_files_behind_a_pattern_change_the_state(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    states = []
    for name, text in (("a.jsonl", "1\n"), ("a.jsonl", "12\n"), ("b.jsonl", "1\n"), ("b.txt", "1\n")):
        (tmp_path / "parts" / name).write_text(text)
        states.append(state_of([str(tmp_path / "parts" / "*.jsonl")]))
    assert len(set(states)) == 3
    assert states[2] == states[3]


@pytest.mark.parametrize(("path", "host", "status"), [("", "evil.example", 403), ("other", "127.0.0.1", 404)])
def test_nobody_else_is_let_in(server: ReportServer, path: str, host: str, status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        read(server.url + path, Host=host)
    assert refused.value.code == status
    refused.value.close()
    with pytest.raises(urllib.error.HTTPError) as unknown:
        read(server.url.replace(server.token, "guess"))
    assert unknown.value.code == 404
    unknown.value.close()


def test_a_first_page_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    def make(state: str) -> bytes:
        raise InputError("nothing there")

    with pytest.raises(InputError, match="nothing there"):
        ReportServer(make, lambda: state_of([tmp_path / "none"]))


def test_a_file_of_a_page_asks_nobody(run: Path) -> None:
    text = html.page(Report(training_logs=(read_training_log(run),)), title="T").decode()
    assert "connect-src" not in text
    assert "data-state" not in text


def test_files_of_options_change_the_state(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["truth", "scenes", "vocabulary", "dopa", "dopa-vocabulary"]
    files = [run.parent / f"{run.name}-{name}.json" for name in options]
    states: list[str] = []

    class Server:
        url = ""

        def __init__(self, make: object, state: Callable[[], str], **settings: object) -> None:
            self.state = state

        def serve_forever(self) -> None:
            states.append(self.state())
            for file in files:
                file.write_text("{}")
                states.append(self.state())

        def server_close(self) -> None:
            pass

    monkeypatch.setattr("scapo_eval.report.watch.ReportServer", Server)
    given = [word for name, file in zip(options, files, strict=True) for word in (f"--{name}", str(file))]
    said = CliRunner().invoke(cli, ["report", str(run), "--watch", *given])
    assert said.exit_code == 0, said.output
    assert len(set(states)) == 1 + len(files)
