"""Terminal output: consoles, warnings, and the progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ..base.text import printable
from .echo import echo


class SafeConsole(Console):
    """Console that escapes control characters in captions, ids and labels, so that they cannot affect the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yields the segments of the output, with control characters escaped."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)

    def on_broken_pipe(self) -> None:
        """Raises the error, for which ``main`` returns 0, as for other output. Rich would exit with 1."""
        raise BrokenPipeError


@dataclass(frozen=True, kw_only=True)
class Screen:
    """Pair of consoles: one for results, and one for all other output."""

    width: int | None = None
    no_color: bool = False
    quiet: bool = False

    def console(self, *, stderr: bool = False) -> Console:
        """Returns the console for results or, with ``stderr``, the console for all other output."""
        return SafeConsole(
            stderr=stderr,
            width=self.width,
            no_color=self.no_color or None,
            highlight=False,
            quiet=stderr and self.quiet,
        )

    def warn(self, text: str) -> None:
        """Prints a warning to standard error, unless the option ``--quiet`` is set."""
        if not self.quiet:
            echo(f"scapo-eval: warning: {text}", err=True)

    def note(self, text: str) -> None:
        """Prints a note to standard error, unless the option ``--quiet`` is set."""
        if not self.quiet:
            echo(f"scapo-eval: note: {text}", err=True)


@contextmanager
def progress(screen: Screen, description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yields a function ``advance(bytes)`` that updates a progress bar on standard error. The bar appears after one
    second.
    """
    console = screen.console(stderr=True)
    if screen.quiet or not console.is_terminal:
        yield lambda _: None
        return
    import time

    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(Text(description).plain.replace("[", "\\["), total=total)
    began = time.monotonic()
    visible = False

    def advance(size: int) -> None:
        nonlocal visible
        bar.advance(task, size)
        if not visible and time.monotonic() - began > 1:
            visible = True
            bar.start()

    try:
        yield advance
    finally:
        if visible:
            bar.stop()


@contextmanager
def stage(screen: Screen, description: str) -> Iterator[None]:
    """Displays a status on standard error while an operation runs, if the output is a terminal."""
    console = screen.console(stderr=True)
    if screen.quiet or not console.is_terminal:
        yield
        return
    with console.status(Text(description)):
        yield
