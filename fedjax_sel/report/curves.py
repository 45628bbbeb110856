"""The curves of a run: what its accuracy (or loss, if targets are not classes) is drawn against."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Curve:
    """One of a run's curves.

    Attributes:
      x: what is on the axis, as `History.plot` takes it.
      label: of the axis.
      caption: a line below the figure; `{Of}` stands for the metric.
    """

    x: str
    label: str
    caption: str

    def name(self, of: str) -> str:
        """Returns the name of the figure's file, for a metric.

        >>> [curve.name("loss") for curve in CURVES[:2]]
        ['loss', 'loss_by_bytes']
        """
        return of if self.x == "round" else f"{of}_by_{self.x}"


CURVES = (
    Curve(
        "round",
        "round",
        "{Of} on the test examples: median over seeds, with a band from the first to the ninth decile.",
    ),
    Curve("bytes", "bytes, both ways", "{Of} against bytes in both directions, including selection."),
    Curve("flops", "FLOPs of clients", "{Of} against the clients' floating-point operations, including selection."),
    Curve(
        "seconds",
        "simulated seconds",
        "{Of} against simulated seconds: a round lasts as long as its slowest member, or until the deadline.",
    ),
    Curve("joules", "joules", "{Of} against the joules that all clients spent."),
)

CLIENTS = (
    "{Of} of each client's model (the global one, or one of its own) on its own examples. Left: the mean over "
    "clients and the mean of their worst tenth, as medians over seeds. Right: all clients at the last evaluation. No "
    "client is billed for this evaluation."
)
"""The caption of the clients' figure."""


def list_curves(recorded: Container[str]) -> Iterator[Curve]:
    """Yields the curves of a run that recorded these metrics and totals."""
    return (curve for curve in CURVES if curve.x == "round" or curve.x in recorded)
