"""The documents as programs: what is fenced as Python in them runs, and prints what they say it prints.

The Python blocks under one heading are one program, run in order in one namespace and one directory. A block
whose first line is `# name.py` is a file: it is written under that name and imported. A `text` block right
after a Python block is what that block prints. A block that can't run says why in its first line, in the
reader's sight: `# Not run here: …`.
"""

import ast
import asyncio
import contextlib
import importlib
import io
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_RUN = "# Not run here: "

_FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w-]*)\s*")
_HEADING = re.compile(r"#{1,6} (?P<title>.+)")
_FILE_NAME = re.compile(r"# (\w+)\.py")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, the number of its first line, and its text."""

    language: str
    line: int
    text: str
    follows: bool

    @property
    def first_line(self) -> str:
        """The block's first line."""
        return self.text.partition("\n")[0]

    @property
    def module(self) -> str | None:
        """The module's name, if the block is a file."""
        found = _FILE_NAME.fullmatch(self.first_line)
        return found[1] if found else None


@dataclass(frozen=True, slots=True)
class Section:
    """What stands under one heading."""

    page: Path
    title: str
    line: int
    blocks: tuple[Block, ...]

    @property
    def python(self) -> list[Block]:
        """The Python blocks that run."""
        return [
            block
            for block in self.blocks
            if block.language == "python" and not block.first_line.startswith(NOT_RUN)
        ]


def pages() -> list[Path]:
    """Return every document that this project publishes."""
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def sections(page: Path) -> Iterator[Section]:
    """Yield a page's sections, in order."""
    title, start, blocks = "", 0, list[Block]()
    lines = page.read_text(encoding="utf-8").splitlines()
    number, last_end = 0, -1
    while number < len(lines):
        fence, heading = _FENCE.fullmatch(lines[number]), _HEADING.fullmatch(lines[number])
        if fence is not None:
            follows = not any(line.strip() for line in lines[last_end + 1 : number]) and bool(blocks)
            block = _block(lines, number, fence, follows=follows)
            number = last_end = number + block.text.count("\n") + 1
            blocks.append(block)
        elif heading is not None:
            yield Section(page, title, start, tuple(blocks))
            title, start, blocks = heading["title"], number + 1, []
        number += 1
    yield Section(page, title, start, tuple(blocks))


def run(section: Section) -> None:
    """Run a section's Python in the current directory; it may take over `__main__` and `sys.path`."""
    assert section.python, f"nothing to run under {section.title!r}"
    program = types.ModuleType("__main__")
    program.__file__ = "program.py"
    sys.modules["__main__"] = program
    sys.path.insert(0, "")
    with asyncio.Runner() as loop:
        for index, block in enumerate(section.blocks):
            if block in section.python:
                printed = _printed(section, block, program, loop)
                after = section.blocks[index + 1] if index + 1 < len(section.blocks) else None
                if after is not None and after.follows and after.language == "text":
                    assert printed == after.text, f"line {block.line} prints {printed!r}, not {after.text!r}"


def _block(lines: list[str], opening: int, fence: re.Match[str], *, follows: bool) -> Block:
    indent, ticks = len(fence["indent"]), fence["ticks"]
    text = list[str]()
    for line in lines[opening + 1 :]:
        if line.strip() == ticks:
            return Block(fence["language"], opening + 2, "".join(f"{line}\n" for line in text), follows)
        text.append(line[indent:])
    raise ValueError(f"the block that starts in line {opening + 1} never ends")


def _printed(section: Section, block: Block, program: types.ModuleType, loop: asyncio.Runner) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if block.module is not None:
            Path(f"{block.module}.py").write_text(block.text, encoding="utf-8")
            importlib.invalidate_caches()
            importlib.import_module(block.module)
            return printed.getvalue()
        code = compile(
            "\n" * (block.line - 1) + block.text,
            str(section.page),
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,
        )
        coroutine = eval(code, vars(program))
        if asyncio.iscoroutine(coroutine):
            loop.run(coroutine)
    return printed.getvalue()


if __name__ == "__main__":
    wanted_page, wanted_line = Path(sys.argv[1]), int(sys.argv[2])
    run(next(section for section in sections(wanted_page) if section.line == wanted_line))
