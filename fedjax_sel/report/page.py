"""An overview of a run as one self-contained HTML page: numbers, curves, selected clients, and how it was run.

All user text is escaped, and figures are embedded as images, so that no scripts in them run.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from fedjax_sel.data.picture import count_together, plot_labels
from fedjax_sel.engine.faults import say_problems
from fedjax_sel.engine.history import History
from fedjax_sel.metrics.participation import coverage, heat
from fedjax_sel.report.curves import CLIENTS, Curve, list_curves
from fedjax_sel.report.figures import COLOURS, plot_clients
from fedjax_sel.report.quantities import format_about, format_count
from fedjax_sel.report.summary import count_seeds, format_rows, summarize

STYLE = """
.fedjax { font: 15px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff; max-width: 1180px; margin: 0 auto;
  padding: 16px; box-sizing: border-box; }
.fedjax h1 { font-size: 1.5em; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
.fedjax h2 { font-size: 1.1em; margin: 28px 0 8px; }
.fedjax p.said { color: #57606a; margin: 0 0 16px; overflow-wrap: anywhere; }
.fedjax p.wrong { background: #fff4e5; border-left: 4px solid #d55e00; padding: 8px 12px; }
.fedjax .cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 16px; }
.fedjax figure { margin: 0; border: 1px solid #d8dee4; border-radius: 8px; padding: 10px; }
.fedjax figure.wide { grid-column: 1 / -1; overflow-x: auto; }
.fedjax figure.wide img { min-width: 620px; }
.fedjax figure img { width: 100%; height: auto; display: block; }
.fedjax figcaption { color: #57606a; font-size: 13px; margin-top: 6px; }
.fedjax table { border-collapse: collapse; width: 100%; }
.fedjax th, .fedjax td { text-align: left; padding: 4px 12px 4px 0; border-bottom: 1px solid #d8dee4;
  vertical-align: top; overflow-wrap: anywhere; }
.fedjax td:first-child { overflow-wrap: break-word; }
.fedjax td.number, .fedjax th.number { text-align: right; white-space: nowrap; padding-right: 0; padding-left: 12px; }
.fedjax pre { background: #f6f8fa; border-radius: 8px; padding: 12px; overflow-x: auto; font-size: 13px; }
"""

SMALL, WIDE = (5.0, 3.4), (11.0, 4.6)
"""Sizes of figures, in inches."""


@dataclass(frozen=True)
class Page:
    """The overview of a run, which a notebook shows, or which is written to a file.

    Attributes:
      history: the history of the run.
      title: a one-line title.
      config: the configuration as YAML; empty: left out.
      said: lines below the title, such as the run's folder.

    >>> history = History((0,), {"accuracy": np.ones((1, 2)), "loss": np.ones((1, 2))}, np.zeros((1, 2, 1), int), 3)
    >>> Page(history, title="<b>").to_html().count("<b>")
    0
    """

    history: History
    title: str = "A run of fedjax_sel"
    config: str = ""
    said: Sequence[str] = field(default_factory=tuple)

    def to_html(self) -> str:
        """Returns the page as a complete document."""
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{html.escape(self.title)}</title></head><body>{self._repr_html_()}</body></html>\n"
        )

    def _repr_html_(self) -> str:
        """Returns the HTML that a notebook shows."""
        history = self.history
        counts = {"seed": len(history.seeds), "round": history.rounds, "client": history.num_clients}
        about = ", ".join(format_count(number, noun) for noun, number in counts.items())
        parts = [
            f"<h1>{html.escape(self.title)}</h1>",
            *(f'<p class="said">{html.escape(line)}</p>' for line in (about, *self.said)),
            *render_numbers(history),
            '<h2>How it went</h2><div class="cards">',
            *(render_figure(name, caption, figure, wide) for name, caption, figure, wide in draw_all(history)),
            "</div>",
            "<h2>How it was run</h2>",
            render_table(("what", "value"), format_about(history.about)),
        ]
        if self.config:
            parts.append(f"<h2>Configuration</h2><pre>{html.escape(self.config.strip())}</pre>")
        return f'<div class="fedjax"><style>{STYLE}</style>{"".join(parts)}</div>'


def report(history: History) -> Page:
    """Returns the overview of a history, for a notebook; `.to_html()` is the page."""
    return Page(history)


def render_numbers(history: History) -> Iterator[str]:
    """Yields what went wrong and the table of the numbers; nothing if the history lacks them."""
    if not {history.headline, "loss"} <= history.metrics.keys() or not history.rounds:
        return
    try:
        found = summarize(history)
    except KeyError:  # the history recorded no costs
        return
    yield from (f'<p class="wrong">{html.escape(line)}</p>' for line in say_problems(found))
    heads = ("", f"mean of {format_count(count_seeds(found), 'seed')}", "std")
    yield render_table(heads, format_rows(found), numbers=2)


def render_table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> str:
    """Returns a table whose last `numbers` columns are numbers."""

    def line(tag: str, cells: Sequence[str]) -> str:
        kinds = [' class="number"' if i >= len(cells) - numbers else "" for i in range(len(cells))]
        return "".join(f"<{tag}{k}>{html.escape(str(c))}</{tag}>" for k, c in zip(kinds, cells, strict=True))

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{line('th', heads)}</tr></thead><tbody>{body}</tbody></table>"


def render_figure(name: str, caption: str, figure: Figure, wide: bool) -> str:
    """Returns a figure as an image in the page, and closes it."""
    stream = io.BytesIO()
    figure.savefig(stream, format="svg")
    plt.close(figure)
    source = base64.b64encode(stream.getvalue()).decode()
    return (
        f'<figure{" class=wide" if wide else ""}><img alt="{html.escape(name, quote=True)}" '
        f'src="data:image/svg+xml;base64,{source}"><figcaption>{html.escape(caption)}</figcaption></figure>'
    )


def draw_all(history: History) -> Iterator[tuple[str, str, Figure, bool]]:
    """Yields the page's figures: name, caption, figure, and whether it needs the whole width."""
    of = history.headline
    if not history.rounds or of not in history.metrics:
        return
    for curve in list_curves(history):
        yield f"{of} against {curve.x}", curve.caption.format(Of=of.capitalize()), draw_headline(history, curve), False
    if of in history.client_metrics:
        yield f"{of} of clients", CLIENTS.format(Of=of.capitalize()), plot_clients(history), True
    without = " without those that diverged" if 0 < (history.diverged > 0).sum() < len(history.seeds) else ""
    yield (
        "coverage",
        f"Share of the clients that were selected at least once, mean over seeds{without}.",
        draw_coverage(history),
        False,
    )
    beside = (
        "" if history.labels is None else ". Right: the training examples of each client by class, for the first seed"
    )
    yield (
        "selections",
        f"Share of the seeds that selected each client in each round{without}{beside}.",
        draw_selections(history),
        True,
    )


def draw_headline(history: History, curve: Curve) -> Figure:
    """Returns a figure of accuracy (or loss) against rounds or a running cost."""
    figure, ax = plt.subplots(figsize=SMALL, layout="constrained")
    ax.set_prop_cycle(color=[COLOURS[0]])
    history.plot(x=curve.x, ax=ax)
    ax.grid(alpha=0.25)
    return figure


def draw_coverage(history: History) -> Figure:
    """Returns a figure of the share of clients selected so far against rounds."""
    figure, ax = plt.subplots(figsize=SMALL, layout="constrained")
    share = coverage(history.selections[history.shown], history.num_clients).mean(0)
    ax.step(np.arange(1, history.rounds + 1), share, where="mid", color=COLOURS[5])
    ax.set(xlabel="round", ylabel="clients selected so far", ylim=(0, 1.02))
    ax.grid(alpha=0.25)
    return figure


def draw_selections(history: History) -> Figure:
    """Returns a raster, clients by rounds, of the share of seeds that selected each, beside the label distribution."""
    labels = history.labels
    figure, axes = plt.subplots(
        1,
        1 if labels is None else 2,
        figsize=WIDE,
        sharey=True,
        squeeze=False,
        layout="constrained",
        width_ratios=[1] if labels is None else [3, 1],
    )
    ax: Any = axes[0][0]
    together = count_together(history.num_clients)
    share = heat(history.selections[history.shown], history.num_clients, together)
    high = 1 if together == 1 else max(float(share.max()), 1e-9)
    extent = (0.5, history.rounds + 0.5, history.num_clients - 0.5, -0.5)
    image = ax.imshow(share, aspect="auto", cmap="magma_r", vmin=0, vmax=high, extent=extent, interpolation="nearest")
    ax.set(xlabel="round", ylabel="client")
    figure.colorbar(
        image,
        ax=ax,
        label="share of seeds" if together == 1 else f"share of seeds, mean of {together} clients",
        pad=0.01,
    )
    if labels is not None:
        plot_labels(labels, axes[0][1])
        axes[0][1].set_ylabel("")
        figure.set_layout_engine("constrained", wspace=0.08)
    return figure
