"""Orbax, imported when it is first needed, without its log, and without waiting for other processes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax


@contextmanager
def handler() -> Iterator[Any]:
    """Context manager that gives Orbax's checkpointer, which reads and writes without waiting for other processes."""
    ocp, index = orbax(), jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=index, active_processes={index}, barrier_sync_key_prefix=f"process{index}"
    )
    with quiet(), ocp.Checkpointer(ocp.StandardCheckpointHandler(), multiprocessing_options=alone) as checkpointer:
        yield checkpointer


def orbax() -> Any:
    """Returns Orbax, which takes a second to import."""
    import orbax.checkpoint

    return orbax.checkpoint


@contextmanager
def quiet() -> Iterator[None]:
    """Context manager that silences Orbax's log; its callers report what matters."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
