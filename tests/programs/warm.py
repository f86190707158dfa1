"""Runs commands as forks of one process that has imported torch and transformers, which saves up to seven seconds each.

    python warm.py SOCKET                  # serves until it is killed; prints "ready"
    python warm.py SOCKET NAME [ARG ...]   # runs NAME (scapo-eval, python or transformers) in a fork of the server

A command runs in its own process, with the standard streams, folder, environment, signals and exit code of the client.
"""

import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
from contextlib import suppress

SIZE = struct.Struct("!I")
IMPORTED = (
    "aiohttp", "fastapi", "uvicorn", "PIL.Image", "transformers.cli.transformers", "scapo_eval.cli.main",
    "scapo_eval.engines.hf", "scapo_train.plan.planner", "scapo_train.trainer", "torch.distributed.run", "inflect",
    "nltk", "matplotlib.backends.backend_agg",
)  # fmt: skip


def serve(path: str) -> None:
    """Imports the libraries, then forks for each connection."""
    from scapo_eval.base.errors import MissingExtra

    for name in IMPORTED:
        with suppress(ImportError, MissingExtra):
            importlib.import_module(name)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    if transformers := sys.modules.get("transformers"):
        for name in ("LlavaForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration", "AutoProcessor"):
            getattr(transformers, name, None)  # imported when they are first asked for
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who answers a connection is waited for by nobody
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(8)
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            if not os.fork():
                listening.close()
                answer(connection)
            connection.close()


def answer(connection: socket.socket) -> None:
    """Forks the command, and sends its process id and then its exit code. A killed client kills its command."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, streams, *_ = socket.recv_fds(connection, SIZE.size, 3)
    (length,) = SIZE.unpack(head)
    data = b""
    while len(data) < length:
        data += connection.recv(1 << 16)
    command = json.loads(data)
    if not (child := os.fork()):
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        os.chdir(command["folder"])
        os.environ.clear()
        os.environ.update(command["environment"])
        execute(command["arguments"])
    connection.sendall(SIZE.pack(child))
    ended = os.pidfd_open(child)
    if ended not in select.select([ended, connection], [], [])[0]:  # the client sends nothing more, so it has ended
        os.kill(child, signal.SIGKILL)
        os._exit(0)
    connection.sendall(SIZE.pack(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF))
    os._exit(0)


def execute(arguments: list[str]) -> None:
    """Runs a command in this process, and ends the process."""
    name, *rest = arguments
    code: object = 0
    if torch := sys.modules.get("torch"):
        # A fork replaces its pool of threads at the first call. Two first calls at once (transformers loads weights in
        # threads) can fail with "Invalid thread pool!", so the first call comes before there are threads.
        torch.set_num_threads(1)
    try:
        if name == "scapo-eval":
            from scapo_eval.cli.main import main

            sys.argv = arguments
            main()
        elif name == "transformers":
            from transformers.cli.transformers import main as transformers_main

            sys.argv = arguments
            transformers_main()
        elif rest[0] == "-m":
            sys.argv = rest[1:]
            runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
        elif rest[0] == "-c":
            exec(rest[1], {"__name__": "__main__"})
        else:
            sys.argv = rest
            sys.path.insert(0, os.path.dirname(os.path.abspath(rest[0])))
            runpy.run_path(rest[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code or 0))  # type: ignore[call-overload]


def run(path: str, arguments: list[str]) -> int:
    """Runs the client."""
    command = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    data = json.dumps(command).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [SIZE.pack(len(data))], [0, 1, 2])
        connection.sendall(data)
        (child,) = SIZE.unpack(connection.recv(SIZE.size, socket.MSG_WAITALL))

        def forward(number: int, _: object) -> None:
            with suppress(ProcessLookupError):  # the command has just ended, and its code is on the way
                os.kill(child, number)

        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, forward)
        (code,) = SIZE.unpack(connection.recv(SIZE.size, socket.MSG_WAITALL))
    return int(code)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        sys.exit(run(sys.argv[1], sys.argv[2:]))
