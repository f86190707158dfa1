"""The local web page on which a person answers the questions of a round.

The server listens only on 127.0.0.1. Three checks reject requests from other pages in the person's browser. Every URL
begins with a random token. The Host header must be a loopback name, to prevent DNS rebinding. Requests that change data
must contain JSON and come from the page itself (Origin). Images are served by row number, and only if the round
contains questions about them. The judge's verdicts are not sent to the page before the round is closed, so that they
cannot bias the person.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, cast

from ...base.errors import MissingExtra, ScapoError
from ...claiming.claim import question_of
from ...engines import images
from ...files.json_text import dump_json, parse_json
from ..store import Store
from .rounds import ANSWERS, AnswerConflict, Round, close_round
from .summary import DEFAULT_CONFIDENCE, refine_command, write_summary
from .summary_tables import people_lines

LOOPBACK = "127.0.0.1"
_HOSTS = frozenset({"127.0.0.1", "localhost"})
_MAX_BODY = 4096
_ASSETS = {
    "": ("page.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "grid.js": ("grid.js", "text/javascript"),
    "page.css": ("page.css", "text/css"),
}
_SHOWN_AS_IS = ((b"\xff\xd8\xff", "image/jpeg"), (b"\x89PNG\r\n\x1a\n", "image/png"), (b"GIF8", "image/gif"))
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob: data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Refused(ScapoError):
    """Error for a request that the server rejects.

    Args:
        status: HTTP status of the reply.
        reason: Reason for the rejection, which the page shows.
    """

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def picture(path: str) -> tuple[bytes, str]:
    """Returns an image in a format that browsers can display, and the MIME type of this format.

    The image is returned as stored, or as a PNG if browsers cannot display its format.

    Raises:
        ImageFault: If the file is not found or is not a readable image.
        MissingExtra: If the format requires Pillow, which is not installed.
    """
    data = images.file_bytes(path)
    for magic, mime in _SHOWN_AS_IS:
        if data.startswith(magic):
            return data, mime
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return data, "image/webp"
    import io

    sink = io.BytesIO()
    images.load(path).save(sink, "PNG", compress_level=1)
    return sink.getvalue(), "image/png"


class QcServer(ThreadingHTTPServer):
    """A web server for one round, which runs until it is shut down.

    Args:
        store: Run that is open for reading. The server opens the run for writing only to close the round.
        round_: Round that is open for writing.
        by: Name of the person who answers.
        port: Port to listen on, or 0 to select a free port.
        confidence: Confidence level of the bounds.
        finished: Callback that receives the summary after the round has been closed.

    Attributes:
        token: Random part of every URL.
        url: URL of the page, including the token.

    Raises:
        OSError: If the port is in use.
    """

    daemon_threads = True

    def __init__(
        self,
        store: Store,
        round_: Round,
        *,
        by: str,
        port: int = 0,
        confidence: float = DEFAULT_CONFIDENCE,
        finished: Callable[[dict[str, Any]], None] = lambda summary: None,
    ) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.token = secrets.token_urlsafe(16)
        self.url = f"http://{LOOPBACK}:{self.server_address[1]}/{self.token}/"
        self._store = store
        self._round = round_
        self._by = by
        self._confidence = confidence
        self._finished = finished
        self._summary: dict[str, Any] | None = None
        self._turn = threading.Lock()
        self._asked = frozenset(round_.draw.pairs.rows.tolist())
        folder = files(__package__)
        self._assets = {name: (folder.joinpath(file).read_bytes(), mime) for name, (file, mime) in _ASSETS.items()}

    def get(self, place: str) -> tuple[bytes, str]:
        """Returns the body and the MIME type of the reply to a GET request for a path, given without the token.

        Raises:
            Refused: If the path does not exist.
        """
        if place in self._assets:
            body, mime = self._assets[place]
            return body, f"{mime}; charset=utf-8"
        if place == "state":
            with self._turn:
                return _json(self._state())
        if place == "answers":
            with self._turn:
                return _json(self._answers())
        row = place.removeprefix("image/")
        if place.startswith("image/") and row.isascii() and row.isdigit() and len(row) < 9 and int(row) in self._asked:
            try:
                return picture(self._store.paths[int(row)])
            except (images.ImageFault, MissingExtra) as fault:
                # not 404: the page reports the fault, without an error in the console
                return _json({"fault": str(fault)})
        raise Refused(HTTPStatus.NOT_FOUND, "not found")

    def post(self, place: str, body: Any) -> tuple[bytes, str]:
        """Executes a request that the page sends.

        Raises:
            Refused: If the request is rejected. A rejected request changes nothing.
        """
        with self._turn:
            try:
                if place == "answer" and isinstance(body, dict):
                    return _json(self._answer(body))
                if place == "finish":
                    return _json(self._finish())
            except Refused:
                raise
            except ScapoError as error:
                raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
        raise Refused(HTTPStatus.NOT_FOUND, "not found")

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        pair, answer, version = (body.get(key) for key in ("pair", "answer", "version"))
        if type(pair) is not int or type(version) is not int or not (answer is None or answer in ANSWERS):
            raise Refused(HTTPStatus.BAD_REQUEST, "expected pair, answer and version")
        if answer == "missing" and 0 <= pair < len(self._round.answers):
            path = self._store.paths[int(self._round.draw.pairs.rows[pair])]
            if _shows(path):
                raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "the picture can be shown: answer yes, no or unsure")
        try:
            self._round.answer(pair, answer, by=self._by, version=version)
        except AnswerConflict as reason:  # not an error of the page, which then loads the other tab's answers
            return {"refused": str(reason), **self._answers()}
        return {"version": self._round.versions[pair], "events": sum(self._round.versions)}

    def _finish(self) -> dict[str, Any]:
        if self._round.state == "open":
            with Store.open(self._store.folder, write=True) as store:
                close_round(store, self._round)
                self._summary = write_summary(store, confidence=self._confidence)
            self._finished(self._summary)
        return self._state()

    def _answers(self) -> dict[str, Any]:
        current = self._round
        return {
            "state": current.state,
            "answers": current.answers,
            "versions": current.versions,
            "order": current.order,
            "events": sum(current.versions),
        }

    def _state(self) -> dict[str, Any]:
        """Returns the data that the page shows. The judge's verdicts are included only after the round is closed."""
        store, pairs = self._store, self._round.draw.pairs
        used = list(dict.fromkeys(pairs.label_ids.tolist()))
        place = {label: k for k, label in enumerate(used)}
        info = store.vocabulary.info
        state = {
            **self._answers(),
            "round": self._round.number,
            "run": store.folder.resolve().name,
            "by": self._by,
            "labels": [
                {
                    "name": store.labels[k],
                    "definition": info[store.labels[k]].definition if store.labels[k] in info else "",
                }
                for k in used
            ],
            "pairs": [[row, place[k]] for row, k in zip(pairs.rows.tolist(), pairs.label_ids.tolist(), strict=True)],
            **self._questions(),
            "images": {str(row): store.image_ids[row] for row in sorted(self._asked)},
        }
        if self._summary is not None:
            names = ("overall", "overall_missing", "refine", "confidence")
            if self._round.draw.second:
                told = f"round {self._round.number}, second"
                state["people"] = [line for line in people_lines(self._summary) if line.startswith(told)]
            state |= {"errors": self._round.errors, **{name: self._summary[name] for name in names}}
            if self._store.claims:
                state["kinds"] = self._summary["labels"]
            state["command"] = refine_command(store.folder, self._summary)
        return state

    def _questions(self) -> dict[str, list[str]]:
        """Returns the question of each pair if the cells are claims."""
        claims = self._store.claims
        return {"claims": [question_of(claims[row]) for row in self._round.draw.pairs.rows.tolist()]} if claims else {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "scapo-eval"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        """Answers a GET request."""
        self._respond(lambda place: self._server.get(place))

    def do_POST(self) -> None:
        """Handles a POST request, which stores an answer or ends the round."""
        self._respond(lambda place: self._server.post(place, self._body()))

    def log_message(self, format: str, *args: Any) -> None:
        """Does nothing, so that requests are not logged to the terminal."""

    @property
    def _server(self) -> QcServer:
        return cast(QcServer, self.server)

    def handle(self) -> None:
        """Serves all requests of one connection. A connection that the browser drops is not treated as an error."""
        with suppress(ConnectionError):
            super().handle()

    def finish(self) -> None:
        """Closes the connection."""
        with suppress(ConnectionError):
            super().finish()

    def _respond(self, act: Callable[[str], tuple[bytes, str]]) -> None:
        status = HTTPStatus.OK
        try:
            body, mime = act(self._place())
        except Refused as refusal:
            status = refusal.status
            body, mime = _json({"error": str(refusal)})
            self.close_connection = True  # an unread body may follow
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": mime, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        try:
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):  # the browser has moved to another picture
            self.close_connection = True

    def _place(self) -> str:
        """Returns the part of the path after the token. A request with a wrong Host header or token is rejected."""
        host = self.headers.get("Host", "")
        if host.rsplit(":", 1)[0] not in _HOSTS:
            raise Refused(HTTPStatus.FORBIDDEN, "this server accepts only loopback host names")
        token, _, place = self.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self._server.token.encode()):
            raise Refused(HTTPStatus.NOT_FOUND, "not found")
        return place

    def _body(self) -> Any:
        if self.headers.get("Origin") != f"http://{self.headers.get('Host')}":
            raise Refused(HTTPStatus.FORBIDDEN, "the request comes from another page")
        if self.headers.get("Content-Type") != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected application/json")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 9 and int(length) <= _MAX_BODY):
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request is too long, or has no length")
        try:
            return parse_json(self.rfile.read(int(length)))
        except ValueError:
            raise Refused(HTTPStatus.BAD_REQUEST, "not a valid JSON request") from None


def _shows(path: str) -> bool:
    """Returns True if an image can be read. If Pillow is installed, the image data is read completely."""
    try:
        picture(path)
        images.check(path)
    except images.ImageFault:
        return False
    except MissingExtra:
        return True
    return True


def _json(value: Any) -> tuple[bytes, str]:
    return dump_json(value), "application/json"
