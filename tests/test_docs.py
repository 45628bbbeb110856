"""The code in the documentation runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = {str(path.relative_to(ROOT)): BLOCK.findall(path.read_text()) for path in sorted(ROOT.rglob("*.md"))}


@pytest.mark.parametrize("page", [page for page, blocks in PAGES.items() if blocks])
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for number, block in enumerate(PAGES[page], 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)


def test_pages_are_one_screen():
    long = {path.name: lines for path in (ROOT / "learn").glob("*.md") if (lines := path.read_text().count("\n")) > 80}
    assert not long
