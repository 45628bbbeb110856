"""The bill: what each round cost the clients and the network."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedjax_sel.protocols import ClientSelector, Correction, DataSelector, ExampleSignal

NUMBER = 4
"""Bytes of one number on the wire (float32)."""

COLUMNS = (
    "bytes_down",
    "bytes_up",
    "client_flops",
    "selection_bytes_down",
    "selection_bytes_up",
    "selection_flops",
)


def bill(
    counts: Mapping[str, np.ndarray],
    selector: ClientSelector,
    samples: DataSelector,
    correction: Correction | None = None,
    *,
    parameters: int,
    flops: float,
    backward: float = 2.0,
) -> dict[str, np.ndarray]:
    """Bytes and floating-point operations of every round, exactly, from the whole numbers that were counted.

    Training: every member of the cohort receives and returns a model (4 bytes a parameter), and what the correction
    sends besides; each row of a local step is a forward pass and a backward pass, which costs twice a forward pass
    where the whole model is trained. Selection, apart: a client that must hold the
    model to answer a signal and does not train receives it all the same (one that trains has it only once); the numbers
    of the signals themselves; the passes over the rows asked about, in which row signals share one forward pass. All
    of a probe is selection: the model to those of its cohort who do not hold it, their updates and work, and the
    asking on the model they made, which goes to everyone asked.

    Args:
      counts: `engine.metrics.counts`, each with any leading axes (seeds, rounds).
      selector: with its signals' costs.
      samples: with its signals' costs; it looks at the rows of the cohort.
      correction: with what it sends besides the model; None: nothing.
      parameters: `P`.
      flops: of one row's forward pass.
      backward: a backward pass as a multiple of a forward pass.

    Returns:
      `COLUMNS`, each float64 of the shape of the counts.
    """
    n = {name: np.asarray(value, np.float64) for name, value in counts.items()}
    before = [signal.cost for signal in selector.before]
    after = [signal.cost for signal in selector.after]
    model, training = NUMBER * parameters, (1 + backward) * flops
    sent, back = (0.0, 0.0) if correction is None else (correction.down, correction.up)
    down, up, held = sum(p.down for p in before), sum(p.up for p in before), any(p.model for p in before)

    def asking(prefix=""):
        limits = sharing(selector.before)
        looked = sum((n[prefix + count_name(limit)] * passes(these, backward) for limit, these in limits.items()), 0.0)
        return (looked + n[prefix + "screened_examples"] * passes(samples.needs, backward)) * flops

    selection = {
        "selection_bytes_down": n["asked_outside"] * model * held + n["asked"] * NUMBER * down,
        "selection_bytes_up": n["asked"] * NUMBER * up + n["returned"] * NUMBER * sum(p.up for p in after),
        "selection_flops": asking(),
    }
    if "probed_asked" in n:
        selection["selection_bytes_down"] += (n["probed_sent"] + n["probed_cohort"] * sent) * model
        selection["selection_bytes_down"] += n["probed_asked"] * (model * held + NUMBER * down)
        selection["selection_bytes_up"] += n["probed_returned"] * model * (1 + back)
        selection["selection_bytes_up"] += n["probed_asked"] * NUMBER * up
        selection["selection_flops"] += asking("probed_") + n["probed_trained_rows"] * training
    return {
        "bytes_down": n["cohort"] * model * (1 + sent),
        "bytes_up": n["returned"] * model * (1 + back),
        "client_flops": n["trained_examples"] * training,
        **selection,
    }


def sharing(signals: tuple) -> dict[int | None, tuple]:
    """Signals by the most rows of a client that they pass (`Cost.rows`)."""
    limits = list(dict.fromkeys(s.cost.rows for s in signals))
    return {limit: tuple(s for s in signals if s.cost.rows == limit) for limit in limits}


def count_name(limit: int | None) -> str:
    """The count of rows that signals with this limit pass."""
    return "asked_examples" if limit is None else f"asked_rows_{limit}"


def passes(signals: tuple, backward: float = 2.0) -> float:
    """Forward passes a row that these signals cost together; row signals share theirs.

    Args:
      signals: with their costs.
      backward: a backward pass as a multiple of a forward pass.
    """
    shared = max((s.cost.forward for s in signals if isinstance(s, ExampleSignal)), default=0.0)
    alone = sum(s.cost.forward + backward * s.cost.backward for s in signals if not isinstance(s, ExampleSignal))
    return shared + alone
