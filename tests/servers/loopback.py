"""Chat-completions server on 127.0.0.1 that immediately gives equal answers to equal requests, or fails on purpose.

    python loopback.py [--faults SHARE] [--delay SECONDS] [--retry-after SECONDS] [--slow SECONDS] [--hold]

Prints its port. A hash of request and try selects the share of requests that fail, so that two runs have the same
faults. The model's name determines all other behavior; see ``_answer``. ``GET /stats`` returns the number of requests.
With ``--hold``, no request is answered until ``GET /release``.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import re
import signal
import sys
import time
from collections import Counter

FAULTS = ("429", "500", "drop", "slow", "half")


class Server:
    """State of one server."""

    def __init__(self, faults: float, delay: float, retry_after: float, slow: float, hold: bool) -> None:
        self.faults = faults
        self.delay = delay
        self.retry_after = retry_after
        self.slow = slow
        self.tries: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.in_flight = 0
        self.times: list[float] = []
        self.released = asyncio.Event()
        if not hold:
            self.released.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handles one connection, which is kept alive."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = 0
                for line in head.split(b"\r\n")[1:]:
                    if line[:15].lower() == b"content-length:":
                        length = int(line[15:])
                body = await reader.readexactly(length) if length else b""
                if not await self.reply(head.split(b" ", 2)[1].decode(), body, writer):
                    break
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def reply(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answers one request. Returns False to end the connection."""
        if path == "/v1/models":
            served = {"id": "served", "root": "/run/step-50", "owned_by": "vllm"}
            return _send(writer, 200, {"object": "list", "data": [{"id": "plain", "max_model_len": 4096}, served]})
        if path == "/version":
            return _send(writer, 200, {"version": "0.32.0"})
        if path == "/stats":
            repeated = sum(number - 1 for number in self.tries.values())
            stats = {**self.counts, "distinct": len(self.tries), "repeated": repeated, "times": self.times[-100:]}
            return _send(writer, 200, stats)
        if path == "/release":
            self.released.set()
            return _send(writer, 200, {})
        self.in_flight += 1
        self.counts["most_in_flight"] = max(self.counts["most_in_flight"], self.in_flight)
        try:
            return await self.complete(body, writer)
        finally:
            self.in_flight -= 1

    async def complete(self, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Sends a chat completion or a fault."""
        self.counts["requests"] += 1
        self.times.append(time.monotonic())
        key = hashlib.sha256(body).hexdigest()
        self.tries[key] += 1
        await self.released.wait()
        if self.delay:
            await asyncio.sleep(self.delay)
        request = json.loads(body)
        fault = self.fault(key, request["model"])
        self.counts[fault or "answered"] += 1
        if fault == "429":
            return _send(writer, 429, {"error": {"message": "slow down"}}, f"Retry-After: {self.retry_after}\r\n")
        if fault == "500":
            return _send(writer, 500, {"error": {"message": "out of luck"}})
        if fault == "drop":
            return False
        if fault == "slow":
            await asyncio.sleep(self.slow)
        status, answer = _answer(request, key)
        if fault == "half":
            data = json.dumps(answer).encode()
            writer.write(_head(200, len(data)) + data[: len(data) // 2])
            await writer.drain()
            return False
        return _send(writer, status, answer)

    def fault(self, key: str, model: str) -> str | None:
        """Returns the fault of this try, if any."""
        if model.startswith("always-"):
            return model.removeprefix("always-")
        if model.startswith("once-"):
            return model.removeprefix("once-") if self.tries[key] == 1 else None
        draw = hashlib.sha256(f"{key} {self.tries[key]}".encode()).digest()
        chance = int.from_bytes(draw[:4], "big") / 2**32
        return FAULTS[draw[4] % len(FAULTS)] if chance < self.faults else None


def _answer(request: dict, key: str) -> tuple[int, dict]:
    """Returns status and body, which depend on the model's name."""
    model, messages = request["model"], request["messages"]
    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    asked = messages[-1]["content"]
    asked = asked if isinstance(asked, str) else "".join(part.get("text", "") for part in asked)
    if model == "denied":
        return 401, {"error": {"message": "no such key"}}
    if model == "text-only" and any(part["type"] == "image_url" for part in parts):
        return 400, {"object": "error", "message": "text-only is not a multimodal model", "code": 400}
    if model == "overflow" and len(asked) > 40:
        return 400, {"error": {"message": "This model's maximum context length is 4 tokens", "code": 400}}
    if model == "no-schema" and "response_format" in request:
        return 400, {"error": {"message": "response_format is not supported"}}
    unknown = next((name for name in model.split("-")[1:] if model.startswith("picky") and name in request), None)
    if unknown is not None:
        return 400, {"error": {"message": f"Unrecognized request argument supplied: {unknown}"}}
    text = f"A dog and a chair, {key[:12]}."
    if model.startswith(("picky", "settings")):
        text = json.dumps({name: value for name, value in request.items() if name != "messages"})
    if model == "echo":
        text = asked
    elif model == "stuck":
        text = "A dog."
    elif model == "empty":
        text = "" if int(key, 16) % 3 == 0 else text
    elif model in ("judge", "no-schema"):
        text = _judge(asked, messages, request.get("seed") or 0)
    elif model == "yes" and not asked.startswith("Describe"):
        text = "Yes" if "as follows" in asked or int(key, 16) % 2 else "No"
    elif model in ("verdicts", "mumbling-verdicts"):
        text = _verdicts(request, parts, asked, mumbles=model.startswith("mumbling"))
    choice: dict = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    if model == "probabilities":
        choice = {**choice, **_probabilities(request, parts, asked), "finish_reason": "length"}
    if model == "no-logprobs" and "logprobs" in request:
        return 400, {"error": {"message": "logprobs are not supported by this model"}}
    choices = [] if model == "no-choice" else [choice, {**choice, "index": 1}]  # "n" is ignored, this way or that
    return 200, {"choices": choices, "usage": {"prompt_tokens": len(asked.split()), "completion_tokens": 5}}


def _verdicts(request: dict, parts: list, asked: str, *, mumbles: bool) -> str:
    """Returns "present" for about one cell in eight, by picture and question. A mumbling judge spoils half of its
    answers.
    """
    picture = next(part["image_url"]["url"] for part in parts if part["type"] == "image_url")
    schema = request["response_format"]["json_schema"]["schema"]
    draw = hashlib.sha256(f"{picture} {asked} {request['seed']}".encode()).digest()
    if mumbles and draw[0] % 2:
        return (
            "",
            "Sorry, I cannot help with that.",
            "yes",
            '{"present": true, "present": false}',
            '{"unicorn": true}',
            'I think {"present": true}',
        )[draw[1] % 6]
    lines = {line for line in asked.splitlines() if "abel" in line or line[:1].isdigit()}
    said = {
        key: hashlib.sha256(f"{picture} {key} {sorted(lines)}".encode()).digest()[0] < 32 for key in schema["required"]
    }
    return json.dumps(said)


def _probabilities(request: dict, parts: list, asked: str) -> dict:
    """The first tokens of a judge who is sure of some cells, unsure of others, and of some speaks of something else."""
    assert (request["max_tokens"], request["logprobs"], request["top_logprobs"]) == (1, True, 20)
    assert "response_format" not in request
    picture = next(part["image_url"]["url"] for part in parts if part["type"] == "image_url")
    draw = hashlib.sha256(f"{picture} {asked}".encode()).digest()
    yes, rest = draw[0] / 256, 0.9 if draw[1] % 16 == 0 else 0.125
    masses = {"Yes": yes / 2, " yes": yes / 2, "NO": 1 - yes}
    listed = [("Well", rest), *((token, mass * (1 - rest)) for token, mass in masses.items())]
    tokens = [{"token": token, "logprob": math.log(max(mass, 1e-9))} for token, mass in listed]
    said = max(tokens, key=lambda token: token["logprob"])
    return {
        "message": {"role": "assistant", "content": said["token"]},
        "logprobs": {"content": [{**said, "top_logprobs": tokens}]},
    }


def _judge(asked: str, messages: list, seed: int) -> str:
    """Returns the answer of the tests' judge."""
    if asked.startswith("Request:"):
        return _objects(asked.partition("Description:")[2], seed)
    if asked.startswith("Text:"):
        return _uses(asked, seed)
    if asked.startswith("Look at the image and answer"):
        question = asked.rpartition("Question: ")[2]
        if "zebra" in question and "red" in question and seed < 4:  # readable from the fifth try on
            return "There is no telling."
        return "**No**, it is not." if "blue" in question else "absent" if "horse" in question else "Yes"
    if asked.startswith(("You take a description", "Here are")):
        return _claims(asked, seed)
    if asked.startswith("Image contents"):
        return "Sounds good." if "mumble" in asked else "It is right.\n**Rating: 5**, very informative"
    if asked.startswith("1. "):
        lines = asked.splitlines()
        return "\n".join(f"{k}: {'A' if 'perhaps' in line else 'D'}" for k, line in enumerate(lines, 1))
    if asked.startswith("Statement:"):
        return "No." if "dragon" in asked else "I cannot see it" if "mist" in asked else "Yes."
    facts = [
        f"There is a {word.strip('.,')}." for word in asked.split() if word.strip(".,") in ("dog", "dragon", "mist")
    ]
    return "Here are the facts:\n```json\n" + json.dumps({"entities": facts, "colors": []}) + "\n```"


def _uses(asked: str, seed: int) -> str:
    """Returns the uses of the marked words, based on the word before each of them. The first word of the text selects a
    defect of the answer, if any.
    """
    text = asked.removeprefix("Text:").strip()
    told = {number: _USE_AFTER.get(before, "claim") for before, number in re.findall(r"(\w+) \[\[(\d+):", text)}
    if text.startswith("Mumbling") and seed < 4:  # readable from the fifth try on
        return "The first is a claim."
    if text.startswith("Refused"):
        return "I'm sorry, but I can't help with that."
    said = json.dumps(told)
    return f"Here they are:\n```json\n{said}\n```" if text.startswith("Fenced") else said


_USE_AFTER = {"no": "negated", "maybe": "hedged", "painted": "quoted", "fake": "none"}


def _objects(description: str, seed: int) -> str:
    """Returns the objects in a description as a JSON list. The description's first word selects a defect of the answer,
    if any.
    """
    words = [word.strip(".,:") for word in description.split()]
    listed = json.dumps([f"The {word}" if word == "cat" else word for word in words if word in ("dog", "cat", "car")])
    if words[0] == "Mumbling" and seed < 4:  # readable from the fifth try on
        return "A dog, I think."
    if words[0] == "Refused":
        return "I'm sorry, but I can't help with that."
    if words[0] == "Cut":
        return listed[:-1] + ', "do'
    if words[0] == "Repeated":
        return json.dumps(json.loads(listed) * 20)
    return f"Here they are:\n```json\n{listed}\n```" if words[0] == "Fenced" else listed


def _claims(asked: str, seed: int) -> str:
    """Answers the four steps on claims: a sentence is a claim, claims about dragons are false, and equal statements
    match.
    """
    described = asked.rpartition("Description: ")[2].partition("\n\nStatements:")[0]
    listed = [line.partition(". ")[2] for line in asked.splitlines() if line[:1].isdigit()]
    if asked.startswith("You take"):
        if described.startswith("Mumbling") and seed < 4:
            return "It says a lot."
        if described.startswith("Refused"):
            return "I'm sorry, but I can't help with that."
        claims = [{"claim": f"{text.strip()}.", "descriptive": "sad" not in text} for text in described.split(".")[:-1]]
        return json.dumps(claims * (3 if described.startswith("Repeated") else 1))
    if asked.startswith("Here are numbered"):
        listed = [
            line.partition(". ")[2] for line in asked.rpartition("Statements:")[2].splitlines() if line[:1].isdigit()
        ]
        return "\n".join(f"{k}: {'no' if 'dragon' in text else 'yes'}" for k, text in enumerate(listed, 1))
    if asked.startswith("Here are two"):
        known, _, ours = asked.partition("List A:")
        names = [line.partition(". ")[2] for line in known.splitlines() if line[:1].isdigit()]
        claims = [line.partition(". ")[2] for line in ours.splitlines() if line[:1].isdigit()]
        return "\n".join(f"{k}: {names.index(t) + 1 if t in names else 0}" for k, t in enumerate(claims, 1))
    return "\n".join(f"{k}: {'yes' if text in described else 'unsaid'}" for k, text in enumerate(listed, 1))


def _head(status: int, length: int, extra: str = "") -> bytes:
    return (
        f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nServer: loopback\r\n{extra}"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def _send(writer: asyncio.StreamWriter, status: int, value: object, extra: str = "") -> bool:
    data = json.dumps(value).encode()
    writer.write(_head(status, len(data), extra) + data)
    return True


async def main() -> None:
    """Serves requests until the process is stopped."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--faults", type=float, default=0.0)
    options.add_argument("--delay", type=float, default=0.0)
    options.add_argument("--retry-after", type=float, default=0.1)
    options.add_argument("--slow", type=float, default=3.0)
    options.add_argument("--hold", action="store_true")
    given = options.parse_args()
    state = Server(given.faults, given.delay, given.retry_after, given.slow, given.hold)
    server = await asyncio.start_server(state.serve, "127.0.0.1", 0, limit=1 << 26, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
    sys.exit(0)
