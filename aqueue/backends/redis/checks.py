"""What a server is asked when a queue opens: do the scripts run on it, and does the URL fit it."""

from redis import exceptions as driver

from aqueue.backends.redis.link import Link, Unsent, packed
from aqueue.backends.redis.settings import Settings
from aqueue.errors import Unsupported
from aqueue.port import NotDispatched

_OLDEST = (6, 2)


async def check_server(link: Link, settings: Settings) -> None:
    """Raise `Unsupported` for a server that is too old, or of another kind than the URL says."""
    try:
        reply = await link.call(packed(("INFO", "server")))
    except driver.NoPermissionError:
        return  # then the first job will tell
    except (Unsent, driver.RedisError) as error:
        raise NotDispatched(f"the server did not say what it is: {error}") from error
    assert isinstance(reply, bytes)
    facts = facts_from(reply)
    version = facts.get("redis_version", "0")
    if version_from(version) < _OLDEST:
        raise Unsupported(
            f"the server at {settings.url} is Redis {version}: aqueue needs 6.2 or newer, or Valkey"
        )
    is_cluster = facts.get("redis_mode") == "cluster"
    if is_cluster is not (settings.shape == "cluster"):
        kind, scheme = ("a cluster", "redis+cluster") if is_cluster else ("no cluster", "redis")
        raise Unsupported(f"the server at {settings.url} is {kind}: use a {scheme}:// URL")


def facts_from(info: bytes) -> dict[str, str]:
    """Return the fields of an INFO reply."""
    lines = info.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def version_from(text: str) -> tuple[int, ...]:
    """Return a version as numbers: as many leading parts as are numbers."""
    numbers: list[int] = []
    for part in text.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
