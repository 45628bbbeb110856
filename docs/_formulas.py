"""Formulas of docstrings, written in Unicode, as LaTeX; and LaTeX as MathML, which browsers draw without a script."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from latex2mathml.converter import convert

ACCENTS = {"\u0302": "hat", "\u0303": "tilde", "\u0304": "bar"}
SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹ᵀ", "0123456789T", strict=True))
SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
SIGNS = {
    "·": r"\cdot ",
    "∈": r"\in ",
    "∉": r"\notin ",
    "∪": r"\cup ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "<=": r"\le ",
    ">=": r"\ge ",
    "∝": r"\propto ",
    "←": r"\leftarrow ",
    "⊗": r"\otimes ",
    "±": r"\pm ",
    "∇": r"\nabla ",
    "‖": r"\|",
    "⌈": r"\lceil ",
    "⌉": r"\rceil ",
    "⌊": r"\lfloor ",
    "⌋": r"\rfloor ",
    "..": r"\ldots ",
    "*": "^{*}",
    "{": r"\{",
    "}": r"\}",
    "%": r"\%",
}
KNOWN = {"exp", "ln", "log", "max", "min", "arccos", "cos"}
GREEK = {
    letter: "\\" + unicodedata.name(letter).rsplit(" ", 1)[-1].lower().replace("lamda", "lambda") + " "
    for letter in "αβγδεζηθκλμνξπρστφψω"
}
GREEK |= {letter: "\\" + unicodedata.name(letter).rsplit(" ", 1)[-1].capitalize() + " " for letter in "ΔΘΦ"}

TOKEN = re.compile(r"\d+(?:\.\d+)?|[A-Za-z]+\d*[\u0302-\u0304]?|[^\W\d_][\u0302-\u0304]?|<=|>=|\.\.|\S|\s+")
CODE = re.compile(r"[\"'@:\\]|--|\w\.[A-Za-z]|[a-z]{2,}_[a-z]{2,}|\w=\S|\(\)")
"""What stands in code and in no formula."""
MATHS = re.compile(
    r"[^\x00-\x7f]|\^|(?<![A-Za-z])[A-Za-z]_[\w({]|\S (?:=|/|-|\+|<=|>=|mod) \S|^\w/(?:\w|\d+)$|^[A-Za-z]\*$"
    r"|^\|\w\|$|^[A-Za-z] [A-Z]$|^ln "
)


def is_formula(text: str) -> bool:
    """Whether a part of a docstring between backticks is a formula, and not code.

    >>> [is_formula(text) for text in ("p_i = n_i / n", "m", "warm_up", "weighting: cohort", "2^m")]
    [True, True, False, False, True]
    """
    if re.fullmatch(r"[A-Za-z]", text):
        return True
    return not CODE.search(text) and text.count("(") == text.count(")") and bool(MATHS.search(text))


def write_latex(text: str) -> str:
    r"""Returns a formula as LaTeX.

    >>> print(write_latex("Σ_c sqrt(q_c - 1/C)²"))
    \sum_{c}\,\sqrt{q_{c}-1/C}^{2}
    """
    plain = unicodedata.normalize("NFD", " ".join(text.split())).replace("∈\u0338", "∉")
    return read_until(TOKEN.findall(plain), None)[0].strip()


def read_until(tokens: list[str], end: str | None) -> tuple[str, list[str]]:
    """Returns the LaTeX of all tokens before `end`, and what stands after it."""
    out: list[str] = []
    while tokens and tokens[0] != end:
        piece, tokens = read_one(tokens)
        if out and piece == r"\," and (not is_operand(out[-1]) or not tokens or not is_operand_token(tokens[0])):
            continue
        out.append(piece)
    return "".join(out), tokens[1:] if end else tokens


def is_operand(latex: str) -> bool:
    """Whether a piece of LaTeX can be a factor, after which a space is kept."""
    return latex[-1].isalnum() or latex[-1] in "})" or latex in GREEK.values() or latex.strip(" \\") in KNOWN


def is_operand_token(token: str) -> bool:
    """Whether a token can begin a factor."""
    return token[0].isalnum() or token in "Σ√∇"


def read_one(tokens: list[str]) -> tuple[str, list[str]]:
    """Returns the LaTeX of the first piece with its scripts, and the tokens after it."""
    head, rest = tokens[0], tokens[1:]
    if head.isspace():
        return r"\,", rest
    if head in "_^" and rest:
        inner, rest = read_script(rest)
        return f"{head}{{{inner}}}", rest
    if re.fullmatch(r"[A-Za-z]\d", head):
        return f"{head[0]}_{{{head[1]}}}", rest
    if head in GREEK and rest and rest[0].isascii() and rest[0].isdigit():
        return f"{GREEK[head]}_{{{rest[0]}}}", rest[1:]
    if head in SUPERSCRIPTS:
        return f"^{{{SUPERSCRIPTS[head]}}}", rest
    if head in SUBSCRIPTS:
        return f"_{{{SUBSCRIPTS[head]}}}", rest
    if head == "(":
        inner, rest = read_until(rest, ")")
        return f"({inner})", rest
    if head in ("sqrt", "√") and rest:
        inner, rest = read_until(rest[1:], ")") if rest[0] == "(" else read_one(rest)
        return rf"\sqrt{{{inner}}}", rest
    if head == "Σ":  # with two letters below it, a matrix; else a sum
        return (
            r"\Sigma " if rest[:1] == ["_"] and len(rest) > 1 and re.fullmatch("[a-z]{2}", rest[1]) else r"\sum"
        ), rest
    return write_token(head), rest


def read_script(tokens: list[str]) -> tuple[str, list[str]]:
    """Returns what stands above or below a piece: a group, or one token with scripts of its own."""
    if tokens[0] == "{":
        return read_until(tokens[1:], "}")
    inner, rest = (tokens[0], tokens[1:]) if re.fullmatch("[a-z]{2}", tokens[0]) else read_one(tokens)
    while rest and (rest[0] == "_" or rest[0] in SUBSCRIPTS):
        script, rest = read_one(rest)
        inner += script
    return inner, rest


def write_token(token: str) -> str:
    """Returns the LaTeX of a letter, word, number or sign."""
    if token[-1] in ACCENTS:
        return rf"\{ACCENTS[token[-1]]}{{{write_token(token[:-1])}}}"
    if token in SIGNS:
        return SIGNS[token]
    if token in GREEK:
        return GREEK[token]
    if token in KNOWN:
        return rf"\{token} "
    return rf"\mathrm{{{token}}}" if len(token) > 1 and token[0].isalpha() else token


def typeset(text: str) -> str:
    """Returns reStructuredText in which the formulas between backticks are of the role `math`.

    >>> typeset("The `m` clients of `weighting: client`.")
    'The :math:`m` clients of `weighting: client`.'
    """

    def replace(found: re.Match) -> str:
        inner = " ".join(found[1].split())
        return f":math:`{write_latex(inner)}`" if is_formula(inner) else found[0]

    return re.sub(r"(?<![`:\w\\])`([^`<>]+)`(?![`_])", replace, text)


def draw_inline(self: Any, node: Any) -> None:
    """Writes a formula in a line as MathML."""
    from docutils.nodes import SkipNode

    self.body.append(convert(node.astext(), display="inline"))
    raise SkipNode


def draw_block(self: Any, node: Any) -> None:
    """Writes a formula of its own as MathML."""
    from docutils.nodes import SkipNode

    self.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise SkipNode
