"""Every regular expression of the package takes time in proportion to its text, whatever the text is.

They run in a process that the system ends after 60 seconds of computing: all of them together take 5, one that looks
back over a text of 200,000 characters takes minutes.
"""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

PROGRAM = r"""
import importlib, inspect, pkgutil, re
import scapo_eval

LENGTH, ENDS = 200_000, ("", "\0")
METHODS = ("search", "match", "fullmatch", "sub", "split", "findall", "finditer")
expressions = {}
for found in pkgutil.walk_packages(scapo_eval.__path__, "scapo_eval."):
    if ".integrations" in found.name or ".distributed" in found.name or found.name.endswith((".start", "__main__")):
        continue
    try:
        module = importlib.import_module(found.name)
    except ImportError:
        continue
    source = inspect.getsource(module)
    for name, value in vars(module).items():
        several = isinstance(value, (tuple, list, dict))
        for each in (value.values() if isinstance(value, dict) else value) if several else [value]:
            if isinstance(each, re.Pattern):
                used = {m for m in METHODS if re.search(rf"\b{name}\b\.{m}\(", source)}
                expressions.setdefault((each, name), (found.name, set()))[1].update(used)
print(len(expressions), flush=True)
for (expression, name), (module, used) in expressions.items():
    text = expression.pattern if isinstance(expression.pattern, str) else expression.pattern.decode("latin-1")
    plain = re.sub(r"\\.", "", text)
    pumps = dict.fromkeys([" ", "0", "a", ".", ":1", *re.findall(r"[A-Za-z]{3,}", plain)[:3], *plain[:0]])
    for pump in pumps:
        for end in ENDS:
            pumped = pump * (LENGTH // len(pump)) + end
            subject = pumped if isinstance(expression.pattern, str) else pumped.encode()
            for method in ({"fullmatch", "match", "search"} & used) or {"search"}:
                if used & {"sub", "split", "findall", "finditer"}:
                    method = "search"
                print(f"{module}.{name}.{method} on {pump!r} * {LENGTH}{end!r}", flush=True)
                getattr(expression, method)(subject)
print("done", flush=True)
"""


@pytest.mark.slow
def test_no_expression_looks_back_over_its_text() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (60, 60)),
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[-1:] == ["done"], (done.stderr[-2000:], lines[-1:])
    assert int(lines[0]) > 50


@pytest.mark.parametrize(
    ("read", "text"),
    [
        ("scapo_eval.base.ids:canonical_image_id", "0" * 300_000 + "x"),
        ("scapo_eval.base.ids:plain_id", "0" * 300_000 + "x"),
        ("scapo_eval.benchmarks.pope:_number", "pope" * 75_000),
        ("scapo_eval.benchmarks.chair.tokens:_ends_numbered", ":1" * 150_000 + "."),
        ("scapo_eval.inference.judge:_LABEL.findall", "0" * 300_000),
        ("scapo_eval.inference.judge:_LABEL.findall", "1" + " " * 300_000),
    ],
)
def test_ids_and_numbers_are_read_in_one_pass(read: str, text: str) -> None:
    """The former expressions took from half a minute to hours on these."""
    module, function = read.split(":")
    program = f"import {module} as m, sys; m.{function}(sys.stdin.read())"
    subprocess.run(
        [sys.executable, "-c", program],
        input=text,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (15, 15)),
    )
