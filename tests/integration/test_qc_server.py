"""Direct requests to the server of quality control: access control, responses and rejections."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scapo_eval.annotate.qc.rounds import Round, draw_round, open_round, read_rounds
from scapo_eval.annotate.qc.server import QcServer
from scapo_eval.annotate.store import CellProvenance, Store
from scapo_eval.inference.sources import ImageFile
from scapo_eval.matching.vocabulary import Vocabulary

image = pytest.importorskip("PIL.Image")
SECRET = b"nobody's business"


class Client:
    """Client that sends requests with any headers."""

    def __init__(self, server: QcServer) -> None:
        self.server = server
        self.port = server.server_address[1]
        self.base = f"/{server.token}/"

    def __call__(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        own = {"Host": f"127.0.0.1:{self.port}"}
        if method == "POST":
            own |= {"Origin": f"http://127.0.0.1:{self.port}", "Content-Type": "application/json"}
        own |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        if data:
            own.setdefault("Content-Length", str(len(data)))
        for name, value in own.items():
            if value:
                connection.putheader(name, value)
        connection.endheaders(data)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, content

    def get(self, place: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return self("GET", self.base + place, **headers)

    def post(self, place: str, body: object, **headers: str) -> tuple[int, Any]:
        status, _, content = self("POST", self.base + place, body, **headers)
        return status, json.loads(content)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Returns a run with twelve images, of which 3 is missing, 4 is a text, 5 a bitmap, 6 truncated and 7 rotated by
    EXIF.
    """
    folder = tmp_path / "images"
    folder.mkdir()
    pictures = []
    for k in range(12):
        path = folder / f"{k}.jpg"
        picture = image.new("RGB", (80, 60), (20 * k, 100, 200))
        if k == 5:
            path = folder / "5.bmp"
        picture.save(path)
        if k == 6:
            path.write_bytes(path.read_bytes()[:300])
        pictures.append(ImageFile(str(k), path.name, str(path)))
    (folder / "3.jpg").unlink()
    (folder / "4.jpg").write_bytes(SECRET)
    vocabulary = Vocabulary.from_mapping({"cat": ["cat"], "dog": ["dog"]})
    run = Store.create(tmp_path / "run", pictures, vocabulary)
    rows, columns = np.indices((12, 2))
    run.write(
        rows.ravel(), columns.ravel(), (rows.ravel() % 3 == 0).astype(int), CellProvenance("coarse", "c@1", "judge-7b")
    )
    run.close()
    draw_round(run, random=8, present=1, at_least=0, labels=["dog"])
    return Store.open(tmp_path / "run")


@pytest.fixture
def serve(store: Store) -> Iterator[Callable[..., Client]]:
    running: list[tuple[QcServer, Round]] = []

    def start(**options: Any) -> Client:
        round_ = open_round(store, write=True)
        server = QcServer(store, round_, by="ann", **options)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        running.append((server, round_))
        return Client(server)

    yield start
    for server, round_ in running:
        server.shutdown()
        server.server_close()
        round_.close_file()


def pair_of(client: Client, row: int) -> int:
    state = json.loads(client.get("state")[2])
    found = [k for k, (of, _) in enumerate(state["pairs"]) if of == row]
    return found[0] if found else -1


def test_it_listens_on_loopback_only_and_says_nothing_to_strangers(serve: Callable[..., Client]) -> None:
    client = serve()
    assert client.server.server_address[0] == "127.0.0.1"
    assert client.get("")[0] == 200
    assert client.get("", Host=f"localhost:{client.port}")[0] == 200
    assert client.get("", Host="localhost:8000")[0] == 200  # a forwarded port
    for host in ("evil.example", f"evil.example:{client.port}", "127.0.0.1.evil.example", ""):
        status, _, body = client.get("state", Host=host)
        assert (status, b"cat" in body) == (403, False)
    for path in ("/", "/state", "/wrong/state", "//state", "/" + client.server.token[:-1] + "x/state", ""):
        assert client("GET", path or "/x")[0] == 404
    assert client.get("?x")[0] == 404


def test_answers_are_taken_from_its_own_page_only(serve: Callable[..., Client], store: Store) -> None:
    client = serve()
    answer = {"pair": 0, "answer": "no", "version": 0}
    for origin in ("http://evil.example", "null", "", f"https://127.0.0.1:{client.port}", "http://127.0.0.1:1"):
        assert client.post("answer", answer, Origin=origin)[0] == 403
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert client.post("answer", answer, Content_Type=kind)[0] == 415
    assert client.post("answer", answer, Host="evil.example")[0] == 403
    assert client.post("answer", b"[" * 5000)[0] == 413
    assert client.post("answer", answer, Content_Length="-1")[0] == 413
    assert client.post("answer", b"{")[0] == 400
    wrong = [{}, [], {**answer, "answer": "perhaps"}, {**answer, "pair": "0"}, {**answer, "pair": True}, "answer"]
    assert {client.post("answer", body)[0] for body in wrong} <= {400, 404}
    assert client.post("answer", {**answer, "pair": 99})[0] == 422
    assert client.post("answer", {**answer, "pair": -1})[0] == 422
    assert client.post("nothing", {})[0] == 404
    assert client("GET", client.base + "answer")[0] == 404
    assert client("PUT", client.base + "answer")[0] == 501
    assert read_rounds(store)[0].order == []
    assert client.post("answer", answer) == (200, {"version": 1, "events": 1})
    assert read_rounds(store)[0].answers[0] == "no"


def said_to(client: Client, request: bytes, *, reset: bool = False) -> bytes:
    """Returns the server's response to these bytes. With ``reset``, the connection ends immediately with an error."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=600) as connection:
        connection.sendall(request)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return b""
        connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):  # it closes while there is more to read
            return connection.makefile("rb").read()
        return b""


def head_of(client: Client, *further: str) -> bytes:
    """Returns the head of a request with an answer."""
    own = (
        f"Host: 127.0.0.1:{client.port}",
        f"Origin: http://127.0.0.1:{client.port}",
        "Content-Type: application/json",
    )
    return "\r\n".join([f"POST {client.base}answer HTTP/1.1", *own, *further, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    ("length", "status"),
    [
        ("9" * 5000, 413), ("0" * 5000 + "9", 413), ("-" + "9" * 5000, 413), ("1_0", 413), ("\xb2", 413), ("1e3", 413),
        ("0x10", 413), ("", 413), ("+5", 413), ("4096", 400), ("9" * 70_000, 431),
    ],
)  # fmt: skip
def test_odd_lengths_are_refused(
    serve: Callable[..., Client], store: Store, capfd: pytest.CaptureFixture[str], length: str, status: int
) -> None:
    client = serve()
    answered = said_to(client, head_of(client, f"Content-Length: {length}") + b'{"pair": 0')
    assert answered.split(b" ", 2)[1] == str(status).encode()
    assert client.get("state")[0] == 200
    assert read_rounds(store)[0].order == []
    assert capfd.readouterr().err == ""


def test_clients_that_go_away(serve: Callable[..., Client], store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    client = serve()
    body = json.dumps({"pair": 0, "answer": "no", "version": 0}).encode()
    whole = head_of(client, f"Content-Length: {len(body)}") + body
    for end in (0, 1, 20, whole.index(b"\r\n\r\n"), len(whole) - len(body), len(whole) - 1):
        said_to(client, whole[:end], reset=True)
        said_to(client, whole[:end])
    for request in (b"GET /", b"\0" * 70_000, b"\x16\x03\x01" * 100, b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 100):
        said_to(client, request, reset=True)
        said_to(client, request)
    for _ in range(20):
        said_to(client, f"GET {client.base}page.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode(), reset=True)
    assert client.get("state")[0] == 200
    assert read_rounds(store)[0].order == []
    assert client.post("answer", json.loads(body)) == (200, {"version": 1, "events": 1})
    assert capfd.readouterr().err == ""


def test_every_answer_carries_strict_headers(serve: Callable[..., Client]) -> None:
    client = serve()
    for place in ("", "page.js", "page.css", "state", "answers", "image/0", "nothing"):
        headers = client.get(place)[1]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert (headers["referrer-policy"], headers["x-content-type-options"]) == ("no-referrer", "nosniff")
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


def test_the_page_holds_no_inline_code_that_the_policy_would_stop(serve: Callable[..., Client]) -> None:
    page = serve().get("")[2].decode()
    assert "<style" not in page
    assert " style=" not in page
    assert "onclick" not in page
    assert page.count("<script") == 1


def test_pictures_come_by_row_and_nothing_else_does(serve: Callable[..., Client], store: Store) -> None:
    client = serve()
    asked = {row for row, _ in json.loads(client.get("state")[2])["pairs"]}
    for row in range(12):
        status, headers, body = client.get(f"image/{row}")
        if row not in asked:
            assert status == 404
        elif row in (3, 4):
            assert headers["content-type"] == "application/json"
            assert "fault" in json.loads(body)
            assert SECRET not in body
        else:
            assert headers["content-type"] == ("image/png" if row == 5 else "image/jpeg")
            if row not in (5, 6):
                assert body == Path(store.paths[row]).read_bytes()
    for place in (
        "image/999", "image/-1", "image/", "image/0/../1", "image/..%2f..%2frun.json", "../run.json",
        "image//etc/passwd", "%2e%2e/run.json", "page.html", "server.py", "image/0x1", "image/1e0",
    ):  # fmt: skip
        assert client.get(place)[0] == 404, place


def test_the_judge_stays_hidden_until_the_round_is_closed(serve: Callable[..., Client], store: Store) -> None:
    client = serve()
    state = json.loads(client.get("state")[2])
    assert set(state) == {
        "state", "answers", "versions", "order", "events", "round", "run", "by", "labels", "pairs", "images",
    }  # fmt: skip
    assert b"judge" not in client.get("state")[2]
    assert client.post("finish", {})[0] == 422
    for pair in range(len(state["pairs"])):
        assert client.post("answer", {"pair": pair, "answer": "no", "version": 0})[0] == 200
    status, result = client.post("finish", {})
    assert (status, result["state"]) == (200, "closed")
    assert len(result["errors"]) == sum(row % 3 == 0 for row, _ in state["pairs"])
    assert result["command"].endswith("run --labels dog")
    assert client.post("answer", {"pair": 0, "answer": "yes", "version": 1})[0] == 422
    assert client.post("finish", {})[1] == result
    reopened = Store.open(store.folder)
    assert all(reopened.matrix[row, 1] == 0 for row, _ in state["pairs"])
    assert json.loads((store.folder / "qc" / "summary.json").read_bytes())["refine"] == ["dog"]


def test_only_what_cannot_be_shown_is_skipped(serve: Callable[..., Client]) -> None:
    client = serve()
    for row in range(12):
        pair = pair_of(client, row)
        if pair < 0:
            continue
        status, body = client.post("answer", {"pair": pair, "answer": "missing", "version": 0})
        assert status == (200 if row in (3, 4, 6) else 422), (row, body)
    assert pair_of(client, 3) >= 0 or pair_of(client, 4) >= 0 or pair_of(client, 6) >= 0


def test_two_people_at_one_pair(serve: Callable[..., Client], store: Store) -> None:
    client = serve()
    refused: list[bool] = []
    together = threading.Barrier(8)

    def person(answer: str) -> None:
        together.wait()
        status, body = client.post("answer", {"pair": 0, "answer": answer, "version": 0})
        assert status == 200
        refused.append("refused" in body)

    threads = [threading.Thread(target=person, args=(("yes", "no")[k % 2],)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(refused) == [False] + [True] * 7
    assert read_rounds(store)[0].versions[0] == 1


def test_a_run_that_is_being_written_is_closed_later(serve: Callable[..., Client], store: Store) -> None:
    client = serve()
    for pair in range(len(json.loads(client.get("state")[2])["pairs"])):
        client.post("answer", {"pair": pair, "answer": "no", "version": 0})
    with Store.open(store.folder, write=True):
        status, body = client.post("finish", {})
        assert status == 422
        assert "is writing this run" in body["error"]
    assert client.post("finish", {})[0] == 200


def test_a_port_that_is_taken(serve: Callable[..., Client], store: Store) -> None:
    client = serve()
    with pytest.raises(OSError, match="in use"):
        QcServer(store, read_rounds(store)[0], by="bob", port=client.port)
