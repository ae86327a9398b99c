"""What the documents show runs as they show it, and what they point at is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import pages

_SECTIONS = [
    pytest.param(section, id=f"{page.name}-{section.title or 'top'}")
    for page in pages.pages()
    for section in pages.sections(page)
    if section.python
]
_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("section", _SECTIONS)
def test_the_code_of_a_section_runs_as_printed(section: pages.Section, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "support.pages", str(section.page), str(section.line)],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{pages.ROOT}/tests:{pages.ROOT}", "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_code_that_does_not_run_says_why_in_its_first_line() -> None:
    silent = [
        f"{section.page.name}:{block.line}"
        for page in pages.pages()
        for section in pages.sections(page)
        for block in section.blocks
        if block.first_line.startswith(pages.NOT_RUN.strip())
        and len(block.first_line.removeprefix(pages.NOT_RUN).split()) < 3
    ]

    assert not silent


def test_the_program_on_the_first_screen_has_twelve_lines() -> None:
    first = next(block for section in pages.sections(pages.ROOT / "README.md") for block in section.python)

    assert len([line for line in first.text.splitlines() if line.strip()]) == 12


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in pages.pages()])
def test_every_link_inside_the_project_leads_somewhere(page: Path) -> None:
    broken = [
        f"{path}#{anchor}" if anchor else path
        for path, anchor in _LINK.findall(_prose(page))
        if not _leads_somewhere(page, path, anchor)
    ]

    assert not broken


def _leads_somewhere(page: Path, path: str, anchor: str) -> bool:
    target = page.parent / path if path else page
    if not target.exists():
        return False
    return not anchor or anchor in {_anchor(section.title) for section in pages.sections(target)}


def _anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _prose(page: Path) -> str:
    """Return a page's text without its code, where brackets mean other things."""
    text = re.sub(r"^( *)```.*?^\1```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)
