"""An environment for each contender, made with pip from PyPI on first use: nobody's pins decide another's."""

import hashlib
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".bench"

_COMMON = ("hiredis==3.5.0", "uvloop==0.23.0")
_OURS = ("--editable", f"{ROOT}[redis]", "redis==8.1.0", *_COMMON)

REQUIREMENTS: Mapping[str, Sequence[str]] = {
    "aqueue": _OURS,
    "aqueue-rabbitmq": ("--editable", f"{ROOT}[rabbitmq]", "aio-pika==10.2.1", "uvloop==0.23.0"),
    "arq": ("arq==0.28.0", "redis==5.3.1", *_COMMON),
    # typing-extensions: saq 0.26.4 imports it and does not ask for it
    "saq": ("saq==0.26.4", "redis==7.4.1", "orjson==3.13.0", "typing-extensions==4.16.0", *_COMMON),
    "taskiq": ("taskiq==0.13.0", "taskiq-redis==1.2.4", "redis==8.1.0", "orjson==3.13.0", *_COMMON),
    "taskiq-rabbitmq": (
        "taskiq==0.13.0",
        "taskiq-aio-pika==0.6.1",
        "aio-pika==10.2.1",
        "orjson==3.13.0",
        "uvloop==0.23.0",
    ),
    "faststream": ("faststream[rabbit]==0.7.8", "aio-pika==10.2.1", "orjson==3.13.0", "uvloop==0.23.0"),
}


def interpreter(name: str) -> Path:
    """Return the Python of an environment that holds what `REQUIREMENTS` asks for, made if need be."""
    wanted = [sys.version, *REQUIREMENTS[name]]
    if name.startswith("aqueue"):
        wanted.append((ROOT / "pyproject.toml").read_text())
    digest = hashlib.sha256("\n".join(wanted).encode()).hexdigest()
    place = CACHE / name
    python, stamp = place / "bin" / "python", place / "made-of"
    if not stamp.exists() or stamp.read_text() != digest:
        print(f"making an environment for {name} in {place.relative_to(ROOT)}", file=sys.stderr)
        venv.create(place, with_pip=True, clear=True)
        _pip(python, "install", "-qq", *REQUIREMENTS[name])
        stamp.write_text(digest)
    return python


def versions(python: Path) -> dict[str, str]:
    """Return what an environment holds, by package."""
    listed = _pip(python, "list", "--format=freeze")
    return dict(line.split("==", 1) for line in listed.split() if "==" in line)


def _pip(python: Path, *arguments: str) -> str:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
