"""What the documents show runs as they show it, and what they point at is there."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncmy
import asyncpg
import pytest
from servers import mysql, postgres
from servers.reach import check_reachable
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
        env={
            "PYTHONPATH": f"{pages.ROOT}/tests:{pages.ROOT}",
            "PATH": "",
            "PYTHONDONTWRITEBYTECODE": "1",
            **dict(_databases_of(section)),
        },
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


def _databases_of(section: pages.Section) -> Iterator[tuple[str, str]]:
    """Yield an empty database for each variable that the section takes a URL of one from."""
    code = "".join(block.text for block in section.python)
    if "POSTGRES_URL" in code or "SQLALCHEMY_URL" in code:
        check_reachable("postgres", postgres.unreachable())
        url = asyncio.run(_fresh_postgres())
        yield "POSTGRES_URL", url
        yield "SQLALCHEMY_URL", url.replace("postgresql:", "postgresql+asyncpg:", 1)
    if "MYSQL_URL" in code:
        check_reachable("mysql", mysql.unreachable())
        yield "MYSQL_URL", asyncio.run(_fresh_mysql())


async def _fresh_postgres() -> str:
    name = f"page_{uuid4().hex[:12]}"
    connection = await asyncpg.connect(postgres.url())
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return urlsplit(postgres.url())._replace(path=f"/{name}").geturl()


async def _fresh_mysql() -> str:
    name = f"page_{uuid4().hex[:12]}"
    url = urlsplit(mysql.url())
    connection = await asyncmy.connect(
        host=url.hostname, port=url.port or 3306, user=url.username, password=url.password or ""
    )
    async with connection.cursor() as cursor:
        await cursor.execute(f"CREATE DATABASE {name}")
    await connection.ensure_closed()
    return url._replace(path=f"/{name}").geturl()


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
