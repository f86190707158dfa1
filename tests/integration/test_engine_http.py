"""The HTTP engine and ``describe`` with a real server on the loopback address, with faults, kills and bad input."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

pytest.importorskip("aiohttp")
Image = pytest.importorskip("PIL.Image")

from scapo_eval.base.errors import ScapoError  # noqa: E402
from scapo_eval.engines import Completion, Request, Sampling, openai_http  # noqa: E402
from scapo_eval.engines.openai_http import OpenAIEngine, _completion, seconds_to_wait  # noqa: E402

Start = Callable[..., str]


class Said(NamedTuple):
    """Exit code and output of a command."""

    returncode: int
    stdout: str
    stderr: str


Cli = Callable[..., Said]


def stats(url: str) -> dict:
    """Returns the counts of the server."""
    with urllib.request.urlopen(url.replace("/v1", "/stats")) as reply:
        return json.loads(reply.read())


def asked(engine: OpenAIEngine, requests: list[Request]) -> list[tuple[Request, Completion]]:
    """Runs an engine, and collects its completions."""
    found: list[tuple[Request, Completion]] = []
    engine.run(requests, lambda request, response: found.append((request, response)))
    return found


def test_requests_run_inside_an_event_loop(start: Start) -> None:
    requests = [Request.of(f"Question {k}?") for k in range(4)]
    engine = OpenAIEngine("loopback", start())

    async def train() -> list[tuple[Request, Completion]]:
        return asked(engine, requests)

    inside = {request.turns[0].text: completion.text for request, completion in asyncio.run(train())}
    assert len(inside) == 4
    assert inside == {request.turns[0].text: completion.text for request, completion in asked(engine, requests)}


@pytest.fixture
def cli(run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs ``scapo-eval`` in this process (a separate process costs a second), with additional environment
    variables.
    """

    def call(*arguments: object, **environment: str) -> Said:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return Said(*run(*arguments))

    return call


def pictures(folder: Path, number: int) -> Path:
    """Draws small pictures 1.png, 2.png..."""
    folder.mkdir()
    for k in range(1, number + 1):
        Image.new("RGB", (8, 8), (k % 256, 7 * k % 256, 0)).save(folder / f"{k}.png")
    return folder


def rows(path: Path | str) -> list[dict]:
    """Returns the records in a JSON Lines file."""
    return [orjson.loads(line) for line in Path(path).read_bytes().splitlines()]


def test_two_thousand_requests_with_faults_and_a_kill_end_with_the_file_of_an_undisturbed_run(
    cli: Cli, start: Start, tmp_path: Path
) -> None:
    folder = pictures(tmp_path / "images", 50)

    def command(url: str, output: Path) -> list[object]:
        return [
            "describe", folder, "-o", output, "--model", "plain", "--base-url", url, "--samples", 40,
            "--temperature", 1, "--timeout", 6, "--concurrency", 32, "-q",
        ]  # fmt: skip

    clean, faulty, killed = (tmp_path / f"{name}.jsonl" for name in ("clean", "faulty", "killed"))
    assert cli(*command(start(), clean)).returncode == 0
    expected = clean.read_bytes()
    found = rows(clean)
    assert [(row["image_id"], row["sample"]) for row in found] == [
        (row["image_id"], k) for row in found[::40] for k in range(40)
    ]
    assert len({row["caption"] for row in found}) == 2000

    url = start("--faults", "0.05", "--slow", "12")
    assert cli(*command(url, faulty)).returncode == 0
    assert faulty.read_bytes() == expected
    counted = stats(url)
    assert counted["distinct"] == counted["answered"] == 2000
    assert counted["repeated"] == sum(counted.get(kind, 0) for kind in ("429", "500", "drop", "slow", "half")) > 60
    assert all(counted.get(kind) for kind in ("429", "500", "drop", "slow", "half"))
    assert counted["most_in_flight"] <= 32

    url = start("--faults", "0.05", "--slow", "12", "--delay", "0.05")
    arguments = [sys.executable, "-m", "scapo_eval.cli.main", *map(str, command(url, killed))]
    process = subprocess.Popen(arguments)
    journal = Path(f"{killed}.journal")
    while not journal.exists() or journal.read_bytes().count(b"\n") < 700:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not killed.exists()
    kept = journal.read_bytes().count(b"\n")
    assert 700 <= kept < 2000
    with open(journal, "ab") as stream:
        stream.write(b'{"key":"half a li')  # what a kill in the middle of a write leaves
    before = stats(url)["requests"]
    assert cli(*command(url, killed)).returncode == 0
    assert killed.read_bytes() == expected
    lines = rows(journal)
    assert len(lines) == len({line["key"] for line in lines}) == 2000
    assert stats(url)["distinct"] == 2000
    assert before <= kept * 1.2 + 64  # only what was in flight is asked again

    card = orjson.loads(Path(f"{killed}.run.json").read_bytes())
    assert card["counts"]["requests"] == 2000
    assert card["counts"]["reused"] == kept
    faulty.unlink()
    assert cli(*command("http://127.0.0.1:9/v1", faulty)).returncode == 0  # nothing is left to ask: no server is needed
    assert faulty.read_bytes() == expected


@pytest.mark.parametrize("fault", ["429", "500", "drop", "slow", "half"])
def test_every_fault_is_tried_again(start: Start, fault: str) -> None:
    url = start("--slow", "10", "--retry-after", "0.3")
    engine = OpenAIEngine(f"once-{fault}", url, timeout=5, backoff=0.01)
    found = asked(engine, [Request.of(f"question {k}") for k in range(5)])
    assert sorted(request.turns[0].text for request, _ in found) == [f"question {k}" for k in range(5)]
    assert all(response.error is None and response.text.startswith("A dog") for _, response in found)
    counted = stats(url)
    assert counted["requests"] == 10
    if fault == "429":
        assert counted["times"][5] - counted["times"][4] >= 0.29  # Retry-After holds for all requests


@pytest.mark.parametrize("fault", ["429", "500", "half"])
def test_gives_up_with_the_reason_and_goes_on(cli: Cli, start: Start, tmp_path: Path, fault: str) -> None:
    output = tmp_path / "captions.jsonl"
    url = start("--retry-after", "0.01")
    run = cli(
        "describe", pictures(tmp_path / "images", 3), "-o", output, "--model", f"always-{fault}", "--base-url", url,
        "--tries", 2,
    )  # fmt: skip
    assert run.returncode == 4, run.stderr
    assert output.read_bytes() == b""
    failed = rows(f"{output}.failed.jsonl")
    assert [row["image_id"] for row in failed] == ["1", "2", "3"]
    assert all("gave up after 2 tries" in row["error"] and "caption" not in row for row in failed)
    assert "3 failed" in run.stderr
    again = cli("describe", tmp_path / "images", "-o", output, "--model", "plain", "--base-url", url)
    assert again.returncode == 0
    assert [row["image_id"] for row in rows(output)] == ["1", "2", "3"]
    assert not Path(f"{output}.failed.jsonl").exists()


def test_a_dead_server_ends_the_run_instead_of_failing_every_item(start: Start) -> None:
    engine = OpenAIEngine("always-drop", start(), concurrency=4, attempts=2, backoff=0.001)
    with pytest.raises(ScapoError, match="run the same command again"):
        asked(engine, [Request.of(str(k)) for k in range(1000)])


def test_a_server_that_fails_on_some_requests_fails_only_those(start: Start) -> None:
    engine = OpenAIEngine("always-500", start(), concurrency=4, attempts=2, backoff=0.001)
    found = asked(engine, [Request.of(str(k)) for k in range(60)])
    assert len(found) == 60
    assert all("gave up after 2 tries: HTTP 500: out of luck" in str(response.error) for _, response in found)


def test_a_refused_key_is_one_message(cli: Cli, start: Start, tmp_path: Path) -> None:
    folder = pictures(tmp_path / "images", 2)
    run = cli("describe", folder, "-o", tmp_path / "c.jsonl", "--model", "denied", "--base-url", start())
    assert run.returncode == 2
    assert "refuses: HTTP 401: no such key" in run.stderr
    assert "Traceback" not in run.stderr
    absent = cli("describe", folder, "-o", tmp_path / "c.jsonl", "--model", "m", "--base-url", "http://127.0.0.1:9/v1")
    assert absent.returncode == 2
    assert "server not found at http://127.0.0.1:9/v1" in absent.stderr


def test_a_server_that_does_not_answer_connection_attempts_is_not_found(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall that drops packets answers neither yes nor no."""
    monkeypatch.setattr(openai_http, "CONNECT_WITHIN", 0.05)
    monkeypatch.setattr(openai_http, "CHECK_WITHIN", 0.1)
    monkeypatch.setattr(openai_http, "PATIENCE", 0.2)
    url, connect = start(), asyncio.selector_events.BaseSelectorEventLoop.sock_connect
    attempts = 0

    passed = 0

    async def dropped(loop: Any, sock: Any, address: Any) -> None:
        nonlocal attempts
        attempts += 1
        await (connect(loop, sock, address) if attempts <= passed else asyncio.sleep(60))

    monkeypatch.setattr(asyncio.selector_events.BaseSelectorEventLoop, "sock_connect", dropped)
    with pytest.raises(ScapoError, match=r"server not found at http://127\.0\.0\.1:\d+/v1 \(.*timeout.*--wait-server"):
        asked(OpenAIEngine("plain", url, backoff=0.001), [Request.of("x")])
    assert attempts == 3
    attempts, passed = 0, 1  # the list of models is answered, and a dropped connection needs a new one
    told: list[str] = []
    engine = OpenAIEngine("always-drop", url, concurrency=2, backoff=0.001, warn=told.append)
    with pytest.raises(ScapoError, match=r"server not found at .* for 0 s"):
        asked(engine, [Request.of(str(k)) for k in range(4)])
    assert len(told) == 1
    assert "the server does not respond (" in told[0]


def test_token_bucket_and_concurrency_bound_what_is_in_flight(start: Start) -> None:
    url = start("--delay", "0.05")
    began = time.monotonic()
    asked(OpenAIEngine("plain", url, concurrency=4, rate=40), [Request.of(str(k)) for k in range(60)])
    assert time.monotonic() - began >= 20 / 40  # 40 at once, the rest at 40 a second
    assert stats(url)["most_in_flight"] <= 4


def test_requests_are_pulled_as_they_are_needed(start: Start) -> None:
    url = start("--delay", "0.005")
    pulled = 0
    ahead = 0
    answered = 0
    lock = threading.Lock()

    def requests() -> Iterator[Request]:
        nonlocal pulled, ahead
        for k in range(1000):
            with lock:
                pulled += 1
                ahead = max(ahead, pulled - answered)
            yield Request.of(str(k))

    def done(request: Request, response: Completion) -> None:
        nonlocal answered
        with lock:
            answered += 1

    OpenAIEngine("plain", url, concurrency=8).run(requests(), done)
    assert answered == 1000
    assert ahead <= 8 + 8 + 2 * 32  # in flight, queued, and the chunk at hand


def test_what_is_sent_and_what_is_read(start: Start) -> None:
    url = start()
    sampling = Sampling(temperature=0.5, top_p=0.9, top_k=7, max_tokens=3, seed=4, stop=("x",))
    engine = OpenAIEngine("echo", url, extra={"user": "me"})
    ((_, response),) = asked(engine, [Request.of("two words", sampling=sampling)])
    assert response == Completion("two words", "stop", 2, 5)
    assert engine.card["server"] == "loopback"
    long = "word " * 300_000  # as much as a large picture; aiohttp warns of so many bytes at once
    ((_, response),) = asked(OpenAIEngine("once-500", url, backoff=0.01), [Request.of(long)])
    assert (response.error, response.prompt_tokens) == (None, 300_000)
    ((_, none),) = asked(OpenAIEngine("no-choice", url), [Request.of("x")])
    assert none.error == "the server's reply contains no message"


def test_a_served_name_is_recorded_with_its_folder(start: Start) -> None:
    engine = OpenAIEngine("served", start())
    asked(engine, [Request.of("x")])
    assert engine.card["server_version"] == "vLLM 0.32.0 with /run/step-50"


def test_content_that_is_no_text_is_an_error() -> None:
    with pytest.raises(ValueError, match="the server reports Provider returned error"):
        _completion({"error": {"code": 429, "message": "Provider returned error"}})
    for name in ("reasoning_content", "reasoning"):
        thought = {"role": "assistant", "content": None, name: "The user wants"}
        assert "only reasoning" in str(
            _completion({"choices": [{"message": thought, "finish_reason": "length"}]}).error
        )
        assert _completion({"choices": [{"message": {**thought, "content": "A dog."}}]}).text == "A dog."
    number = _completion({"choices": [{"message": {"content": 42}}]})
    assert (number.text, number.error) == ("", "the content of the server's reply is 42, not text")
    assert _completion({"choices": [{"message": {"content": None}}]}).error is None


NEUTRAL = {
    "temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0, "seed": 0, "max_tokens": 1024,
}  # fmt: skip


def test_every_sampling_setting_is_sent(cli: Cli, start: Start, tmp_path: Path) -> None:
    folder, url = pictures(tmp_path / "images", 1), start()

    def sent(name: str, *options: object) -> tuple[dict, dict]:
        output = tmp_path / f"{name}.jsonl"
        done = cli("describe", folder, "-o", output, "--model", "settings", "--base-url", url, *options)
        assert done.returncode == 0, done.stderr
        body = json.loads(rows(output)[0]["caption"])
        return body, orjson.loads(Path(f"{output}.run.json").read_bytes())

    body, card = sent("neutral")
    assert body == {"model": "settings", "stream": False, **NEUTRAL}
    assert card["sampling_in_force"] == {name: value for name, value in NEUTRAL.items() if name != "seed"}
    body, _ = sent("asked", "--top-k", 7, "--min-p", 0.1, "--repetition-penalty", 1.2, "--presence-penalty", -0.5)
    asked = {"top_k": 7, "min_p": 0.1, "repetition_penalty": 1.2, "presence_penalty": -0.5}
    assert {name: body[name] for name in NEUTRAL} == NEUTRAL | asked
    body, card = sent("own", "--generation-config", "model", "--temperature", 0.5)
    assert body == {"model": "settings", "stream": False, "temperature": 0.5, "seed": 0, "max_tokens": 1024}
    assert card["sampling"]["top_k"] is None
    assert card["sampling_in_force"] == {"temperature": 0.5, "max_tokens": 1024}


def test_a_setting_that_a_server_refuses_is_left_out_with_a_warning(start: Start) -> None:
    told: list[str] = []
    engine = OpenAIEngine("picky-top_k-min_p", start(), concurrency=4, warn=told.append)
    requests = [Request.of(str(k), sampling=Sampling(min_p=0.2, seed=k)) for k in range(12)]
    bodies = [json.loads(response.text) for _, response in asked(engine, requests)]
    assert len(bodies) == 12
    for body in bodies:
        settings = {name: value for name, value in NEUTRAL.items() if name not in ("top_k", "min_p", "seed")}
        assert {name: body[name] for name in body if name not in ("model", "stream", "seed")} == settings
    assert sorted(body["seed"] for body in bodies) == list(range(12))
    assert len(told) == 2
    assert told[0].startswith("the server does not accept top_k (0 was requested), so it is omitted")
    assert "min_p (0.2 was requested)" in told[1]
    assert set(engine.card["sampling"]) == set(NEUTRAL) - {"top_k", "min_p", "seed"}


def test_identical_samples_are_told(cli: Cli, start: Start, tmp_path: Path) -> None:
    folder, output, url = pictures(tmp_path / "images", 3), tmp_path / "c.jsonl", start()
    command = ["describe", folder, "-o", output, "--base-url", url, "--samples", 4, "--temperature", 1, "--model"]
    done = cli(*command, "stuck")
    assert done.returncode == 0
    assert "warning: all 4 samples are identical for 3 of 3 images, although the temperature is not 0" in done.stderr
    assert orjson.loads(Path(f"{output}.run.json").read_bytes())["images_with_identical_samples"] == 3
    done = cli(*command, "plain")
    assert "samples are identical" not in done.stderr


def test_answers_that_are_no_success_are_recorded(cli: Cli, start: Start, tmp_path: Path) -> None:
    folder, url = pictures(tmp_path / "images", 12), start()
    output = tmp_path / "c.jsonl"
    run = cli("describe", folder, "-o", output, "--model", "text-only", "--base-url", url)
    assert run.returncode == 4
    assert all("not a multimodal model" in row["error"] for row in rows(f"{output}.failed.jsonl"))
    empty = cli("describe", folder, "-o", tmp_path / "e.jsonl", "--model", "empty", "--base-url", url)
    captions = [row["caption"] for row in rows(tmp_path / "e.jsonl")]
    assert len(captions) == 12  # an empty answer is an answer: it is kept, counted and told
    assert empty.returncode == 4
    assert f"{captions.count('')} of them empty" in empty.stderr
    long = cli(
        "describe",
        folder,
        "-o",
        tmp_path / "l.jsonl",
        "--model",
        "overflow",
        "--base-url",
        url,
        "--prompt",
        "long " * 20,
    )
    assert long.returncode == 4
    assert "maximum context length" in rows(tmp_path / "l.jsonl.failed.jsonl")[0]["error"]


def test_bad_pictures_fail_alone(cli: Cli, start: Start, tmp_path: Path) -> None:
    folder = pictures(tmp_path / "images", 2)
    whole = (folder / "1.png").read_bytes()
    Image.effect_noise((64, 64), 50).convert("RGB").save(folder / "3.jpg")
    (folder / "3.jpg").write_bytes((folder / "3.jpg").read_bytes()[:900])
    (folder / "4.png").write_bytes(b"")
    (folder / "5.png").write_bytes(b"no image")
    listed = tmp_path / "list.jsonl"
    names = ["1.png", "3.jpg", "missing.png", "4.png", "5.png", "2.png"]
    listed.write_bytes(b"\n".join(orjson.dumps({"image_id": 10 + k, "image": name}) for k, name in enumerate(names)))
    output = tmp_path / "c.jsonl"
    run = cli("describe", listed, "--images-root", folder, "-o", output, "--model", "plain", "--base-url", start())
    assert run.returncode == 4, run.stderr
    assert [row["image_id"] for row in rows(output)] == ["10", "15"]
    errors = {row["image"]: row["error"] for row in rows(f"{output}.failed.jsonl")}
    assert "damaged image" in errors["3.jpg"]
    assert "file not found" in errors["missing.png"]
    assert "empty (0 bytes)" in errors["4.png"]
    assert "not a valid image" in errors["5.png"]
    assert whole == (folder / "1.png").read_bytes()
    assert "2 descriptions; 4 failed" in run.stderr


def test_one_run_one_process(cli: Cli, start: Start, tmp_path: Path) -> None:
    folder, output = pictures(tmp_path / "images", 40), tmp_path / "c.jsonl"
    url = start("--hold")
    arguments = ["describe", folder, "-o", output, "--model", "plain", "--base-url", url, "--concurrency", "10", "-q"]
    first = subprocess.Popen([sys.executable, "-m", "scapo_eval.cli.main", *map(str, arguments)])
    while not Path(f"{output}.journal").exists() or not stats(url).get("requests"):
        time.sleep(0.02)
    second = cli(*arguments)
    assert second.returncode == 2
    assert "another process is writing this run" in second.stderr
    urllib.request.urlopen(url.replace("/v1", "/release")).close()
    assert first.wait(600) == 0
    assert len(rows(output)) == 40


def test_captions_go_straight_into_the_score(cli: Cli, start: Start, tmp_path: Path) -> None:
    folder, output = pictures(tmp_path / "images", 4), tmp_path / "c.jsonl"
    assert cli("describe", folder, "-o", output, "--model", "plain", "--base-url", start(), "-q").returncode == 0
    truth = tmp_path / "truth.json"
    truth.write_bytes(orjson.dumps({str(k): ["dog"] for k in range(1, 5)}))
    scored = cli(output, "--truth", truth, "--json", "--resamples", 0)
    metrics = orjson.loads(scored.stdout)["systems"][0]["metrics"]
    assert metrics["hal_rate"]["value"] == 0.5  # dog and chair, of which the dog is there
    assert metrics["cover_rate"]["value"] == 1.0


def test_retry_after_in_both_spellings() -> None:
    def now() -> datetime:
        return datetime(2026, 1, 1, 12, 0, 0, tzinfo=timezone.utc)

    assert seconds_to_wait("7", now) == 7
    assert seconds_to_wait("0.5", now) == 0.5
    assert seconds_to_wait("Thu, 01 Jan 2026 12:00:30 GMT", now) == 30
    assert seconds_to_wait("Thu, 01 Jan 2026 11:00:00 GMT", now) == 0
    assert seconds_to_wait("99999999", now) == 99999999
    assert seconds_to_wait("soon", now) == seconds_to_wait("nan", now) == 0
