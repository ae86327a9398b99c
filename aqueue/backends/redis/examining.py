"""What a server's settings and state mean for jobs: read from every node, judged as facts (DOCTOR-1)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from redis import exceptions as driver

from aqueue.backends.redis.checks import facts_from
from aqueue.backends.redis.client import Client
from aqueue.backends.redis.link import Link, Unsent, packed
from aqueue.port import Examination, Finding, NotDispatched, clock_ahead
from aqueue.port.examining import ok, problem, warning

_SETTINGS = ("maxmemory-policy", "appendonly", "appendfsync", "save", "min-replicas-to-write")
_NEARLY_FULL = 0.9
_LANE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What one server says: its INFO, its settings as far as they may be read, and its CLUSTER INFO."""

    info: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)
    cluster: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str) -> float:
        """Return a number out of INFO; 0 where it says none."""
        try:
            return float(self.info.get(name, "0"))
        except ValueError:
            return 0.0


async def examine(client: Client) -> Examination:
    """Ask every primary; what several say alike is told once, the rest with the server's name."""
    by_server: list[tuple[str, list[Finding]]] = []
    away: list[float] = []
    nodes = await client.primaries()
    for node in nodes:
        try:
            link = await node.link(_LANE)
        except NotDispatched as error:
            if len(nodes) == 1:
                raise
            by_server.append((str(node.address), [_unreachable(str(error))]))
            continue
        by_server.append((str(node.address), judged(await _facts(link))))
        away += await _ahead(link)
    return Examination(merged(by_server), max(away, key=abs, default=None))


def merged(by_server: Sequence[tuple[str, Sequence[Finding]]]) -> list[Finding]:
    """Return each finding once, with the name of its server where not all of them have it."""
    found: dict[Finding, list[str]] = {}
    for server, findings in by_server:
        for finding in findings:
            found.setdefault(finding, []).append(server)
    return [
        each if len(of) == len(by_server) else each._replace(found=f"{each.found} ({', '.join(of)})")
        for each, of in found.items()
    ]


def judged(facts: ServerFacts) -> list[Finding]:
    """Return what one server's facts mean."""
    return [
        _version(facts),
        _role(facts),
        _eviction(facts),
        _memory(facts),
        _persistence(facts),
        *_failing_writes(facts),
        _replicas(facts),
        *_connections(facts),
        *_cluster(facts),
    ]


def _version(facts: ServerFacts) -> Finding:
    if "valkey_version" in facts.info:
        return ok("version", f"Valkey {facts.info['valkey_version']}")
    return ok("version", f"Redis {facts.info.get('redis_version', 'unknown')}")


def _role(facts: ServerFacts) -> Finding:
    role = facts.info.get("role", "unknown")
    if role in {"master", "unknown"}:
        return ok("role", role)
    return problem(
        "role",
        role,
        "a replica takes no jobs",
        "use the primary's address, redis+sentinel:// or redis+cluster://",
    )


def _eviction(facts: ServerFacts) -> Finding:
    policy = facts.settings.get("maxmemory-policy") or facts.info.get("maxmemory_policy", "unknown")
    advice = "set maxmemory-policy noeviction: a full server then refuses pushes, and keeps what it has"
    gone = facts.number("evicted_keys")
    found = f"{policy}, {gone:.0f} keys evicted so far" if gone else policy
    if policy == "noeviction":
        return ok("maxmemory-policy", policy)
    if policy == "unknown":
        return warning("maxmemory-policy", policy, "any other than noeviction deletes jobs", advice)
    if policy.startswith("volatile"):
        meaning = "a full server deletes keys that expire: limits, unique keys and schedules, though no jobs"
        return warning("maxmemory-policy", found, meaning, advice)
    if facts.number("maxmemory") or gone:
        return problem("maxmemory-policy", found, "a full server deletes whole queues, silently", advice)
    meaning = "there is no maxmemory now, but once there is, a full server deletes whole queues, silently"
    return warning("maxmemory-policy", found, meaning, advice)


def _memory(facts: ServerFacts) -> Finding:
    limit, used = facts.number("maxmemory"), facts.number("used_memory")
    what = "maxmemory"
    if not limit:
        limit, used = facts.number("total_system_memory"), facts.number("used_memory_rss")
        what = "the machine's"
    share = used / limit if limit else 0.0
    found = f"{used / 2**20:.0f} MiB, {share:.0%} of {what}"
    if share < _NEARLY_FULL:
        return ok("memory", found)
    meaning = "a full server refuses pushes" if what == "maxmemory" else "the system may soon end the server"
    return warning("memory", found, meaning, "more memory, or more workers; failed jobs take memory as well")


def _persistence(facts: ServerFacts) -> Finding:
    snapshots = facts.settings.get("save")
    if facts.info.get("aof_enabled") == "1":
        fsync = facts.settings.get("appendfsync", "unknown")
        if fsync in {"always", "unknown"}:
            return ok("persistence", f"appendonly, appendfsync {fsync}")
        meaning = {
            "everysec": "a crash of the machine loses up to 1 or 2 s of what was pushed, acked and failed"
        }.get(fsync, "a crash of the machine loses what the system has not written yet, some 30 s")
        advice = "appendfsync always loses nothing, and costs an fsync for each group of pushes"
        return warning("persistence", f"appendonly, appendfsync {fsync}", meaning, advice)
    advice = "set appendonly yes"
    if snapshots is None:
        meaning = "without appendonly the server loses what came after its last snapshot, if it makes any"
        return warning("persistence", "no appendonly; snapshots can't be seen", meaning, advice)
    if snapshots:
        meaning = "a crash or restart loses every job since the last snapshot, and brings acked ones back"
        return warning("persistence", f"snapshots only (save {snapshots})", meaning, advice)
    return problem("persistence", "none", "every job is lost when the server restarts", advice)


def _failing_writes(facts: ServerFacts) -> list[Finding]:
    names = {"rdb_last_bgsave_status": "snapshot", "aof_last_write_status": "append-only file"}
    return [
        problem(
            "persistence",
            f"the last write of the {what} failed",
            "the server loses jobs when it restarts, and may refuse pushes until then",
            "look for a full disk or missing rights in the server's log",
        )
        for name, what in names.items()
        if facts.info.get(name, "ok") != "ok"
    ]


def _replicas(facts: ServerFacts) -> Finding:
    count = int(facts.number("connected_slaves"))
    if not count:
        return ok("replicas", "none", "no failover, so none can lose what a replica had not received")
    needed = facts.settings.get("min-replicas-to-write", "0")
    found = f"{count}, min-replicas-to-write {needed}"
    if needed != "0":
        return ok("replicas", found, "a primary without them takes no jobs; a failover loses little")
    return warning(
        "replicas",
        found,
        "replication is asynchronous: a failover loses what the new primary had not received, all that a "
        "primary which is cut off has taken meanwhile included",
        "set min-replicas-to-write 1 and min-replicas-max-lag 10",
    )


def _connections(facts: ServerFacts) -> list[Finding]:
    limit, used = facts.number("maxclients"), facts.number("connected_clients")
    if not limit:
        return []
    found = f"{used:.0f} of {limit:.0f}"
    if used < _NEARLY_FULL * limit:
        return [ok("connections", found)]
    advice = "raise maxclients, or look for clients that leave connections behind"
    return [warning("connections", found, "new workers will be refused", advice)]


def _cluster(facts: ServerFacts) -> list[Finding]:
    state = facts.cluster.get("cluster_state")
    if state is None:
        return []
    served = facts.cluster.get("cluster_slots_ok", "0")
    found = f"{state}, {served} of 16384 slots served"
    if state == "ok" and served == "16384":
        return [ok("cluster", found)]
    meaning = "queues whose slot nobody serves can't be used"
    return [problem("cluster", found, meaning, "see `redis-cli --cluster check`")]


async def _facts(link: Link) -> ServerFacts:
    info = facts_from(await _bytes(link, "INFO"))
    settings: dict[str, str] = {}
    for name in _SETTINGS:
        reply = await _allowed(link, "CONFIG", "GET", name)
        if isinstance(reply, list) and len(reply) == 2:
            settings[name] = reply[1].decode()
    cluster: dict[str, str] = {}
    if info.get("cluster_enabled") == "1":
        told = await _allowed(link, "CLUSTER", "INFO")
        cluster = facts_from(told) if isinstance(told, bytes) else {}
    return ServerFacts(info=info, settings=settings, cluster=cluster)


async def _bytes(link: Link, *command: str) -> bytes:
    reply = await _allowed(link, *command)
    return reply if isinstance(reply, bytes) else b""


async def _allowed(link: Link, *command: str) -> object:
    """Return a reply; None where the server won't give one, as managed ones do."""
    try:
        return await link.call(packed(command))
    except driver.ResponseError:
        return None
    except Unsent as error:
        raise NotDispatched("the connection was closed before anything was sent") from error
    except asyncio.CancelledError:
        link.abort()
        raise


async def _ahead(link: Link) -> list[float]:
    """Return by how much the server's clock is ahead; nothing where it won't say."""
    if await _allowed(link, "TIME") is None:
        return []

    async def now() -> float:
        reply = await _allowed(link, "TIME")
        assert isinstance(reply, list)
        return int(reply[0]) + int(reply[1]) / 1e6

    return [await clock_ahead(now)]


def _unreachable(why: str) -> Finding:
    meaning = "queues whose slots it serves can't be used until it is back or replaced"
    return problem("reachable", why, meaning, "start it, or fail over to a replica of its")
