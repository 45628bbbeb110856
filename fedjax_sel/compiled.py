"""Compiled functions that never run the program of another class, or of code that has changed.

Since JAX 0.10 a node registered by `jax.tree_util.register_dataclass` (which `flax.struct` uses) is compared by its
fields alone: two classes with equal fields have equal tree definitions, and `jax.jit` may run the program that was
compiled for one of them on the other. `jit` adds the class of every node, by identity, to what a program is compiled
for, which also covers a user's `flax.struct` classes, and a description of the user's own code. The description is a
context of JAX's, too, so that what it has traced of the user's jitted functions, or of bodies of loops, counts only for
the code that they read then.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax

from fedjax_sel.code import describe_own

OF_CODE = jax.make_user_context(default_value="")


def list_classes(tree: Any) -> tuple[type, ...]:
    """Returns the class of every node of a pytree, from the root to the leaves; tree definitions may omit it.

    >>> list_classes([(1.0, 2.0)])
    (<class 'list'>, <class 'tuple'>)
    """

    def walk(definition: Any) -> Iterator[type]:
        node = definition.node_data()
        if node is not None:
            yield node[0]
        for child in definition.children():
            yield from walk(child)

    return tuple(walk(jax.tree.structure(tree)))


class Compiled:
    """A jitted function that is compiled for the classes of its arguments' nodes, too, and for the user's code."""

    def __init__(
        self,
        function: Callable,
        static_argnames: Sequence[str],
        donate_argnames: Sequence[str],
        cpu_options: dict[str, Any] | None,
    ):
        functools.update_wrapper(self, function)
        self._traces = 0
        self._described: ContextVar[dict[Any, str] | None] = ContextVar("described", default=None)  # of each thread
        self._static = frozenset(static_argnames)

        def by_class(*args: Any, _classes: tuple[Any, ...], **kwargs: Any) -> Any:
            self._traces += 1
            return function(*args, **kwargs)

        self._signature = inspect.signature(function)
        extra = inspect.Parameter("_classes", inspect.Parameter.KEYWORD_ONLY)
        by_class.__name__ = getattr(function, "__name__", "compiled")
        by_class.__signature__ = self._signature.replace(parameters=[*self._signature.parameters.values(), extra])
        self._jit = functools.partial(
            jax.jit,
            by_class,
            static_argnames=[*static_argnames, "_classes"],
            donate_argnames=list(donate_argnames),
        )
        self._cpu_options = cpu_options

    @functools.cached_property
    def _jitted(self) -> Any:
        return self._jit(compiler_options=self._cpu_options if jax.default_backend() == "cpu" else None)

    def _distinguish(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple[type, ...], str]:
        """Returns the classes of the arguments' nodes, and the description of the user's code in them."""
        given = self._signature.bind(*args, **kwargs).arguments
        trees = [value for name, value in given.items() if name not in self._static]
        classes, known = list_classes(trees), self._described.get()
        if known is None:
            return classes, describe_own(trees)
        key = classes, jax.tree.structure(trees)
        if key not in known:
            known[key] = describe_own(trees)
        return classes, known[key]

    def _apply(self, use: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Returns what `use`, such as the jitted function, makes of the arguments."""
        classes, code = self._distinguish(args, kwargs)
        with OF_CODE(code):
            return use(*args, **kwargs, _classes=(*classes, code))

    @contextmanager
    def as_of_now(self) -> Iterator[None]:
        """Within it, the user's code counts as it is at the first call, whatever it notes in the meantime."""
        token = self._described.set({})
        try:
            yield
        finally:
            self._described.reset(token)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        return self._apply(self._jitted, args, kwargs)

    @property
    def programs(self) -> int:
        """The number of compiled programs, or of traced ones if JAX does not say."""
        size = getattr(self._jitted, "_cache_size", None)
        return self._traces if size is None else size()

    def clear_cache(self) -> None:
        """Forgets the compiled programs."""
        self._jitted.clear_cache()
        self._traces = 0

    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """As `jax.jit(...).lower`."""
        return self._apply(self._jitted.lower, args, kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> jax.stages.Traced:
        """As `jax.jit(...).trace`."""
        return self._apply(self._jitted.trace, args, kwargs)


def jit(
    *,
    static_argnames: Sequence[str] = (),
    donate_argnames: Sequence[str] = (),
    cpu_options: dict[str, Any] | None = None,
) -> Callable[[Callable], Compiled]:
    """Decorates a function as `jax.jit` does, but also selects its program by the classes of its arguments' nodes.

    Args:
      static_argnames, donate_argnames: as `jax.jit` takes them.
      cpu_options: its `compiler_options` if the program runs on a CPU.
    """
    return lambda function: Compiled(function, static_argnames, donate_argnames, cpu_options)
