"""Notes over a network that loses replies: what was written is found, and nothing is written twice."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from backends import STORES, StoreUnderTest
from servers.proxy import Proxy
from servers.reach import check_reachable
from support.note_process import one_more

from aqueue import connect
from aqueue.notes import Decision, Note

_SERVERS = [store for store in STORES if store.name in {"redis", "valkey", "postgres", "pgbouncer", "mysql"}]

pytestmark = pytest.mark.parametrize("store", [pytest.param(store, id=store.name) for store in _SERVERS])


@pytest.fixture
def url(store: StoreUnderTest, tmp_path: Path) -> str:
    check_reachable(store.name, store.unreachable())
    return store.fresh_url(tmp_path)


@pytest.fixture
async def proxy(url: str) -> AsyncIterator[Proxy]:
    port = urlsplit(url).port
    assert port is not None
    async with Proxy(port) as proxy:
        yield proxy


@pytest.mark.rule("NOTE-2", "PUSH-4")
@pytest.mark.parametrize("moment", [0.0, 0.02, 0.3])
async def test_a_change_whose_reply_was_lost_is_made_once(url: str, proxy: Proxy, moment: float) -> None:
    asked: list[Note] = []

    def one_more_unheard(note: Note) -> Decision[int]:
        proxy.drop_replies()  # what was read has come; what is written will be answered in vain
        asked.append(note)
        return one_more(note)

    async with connect(through(proxy, url)) as queue, connect(url) as direct:
        await direct.migrate()
        assert await queue.notes.change("default", "test:note", one_more) == 1
        changing = asyncio.ensure_future(queue.notes.change("default", "test:note", one_more_unheard))
        while not asked:
            await asyncio.sleep(0)
        await asyncio.sleep(moment)
        proxy.cut()

        assert await changing == 2

        assert len(asked) == 1
        assert (await direct.notes.read("default", "test:note")).value == b"2"
        assert await direct.size() == 2


def through(proxy: Proxy, url: str) -> str:
    return re.sub(r"(//(?:[^@/]*@)?)[^/?]*", rf"\g<1>127.0.0.1:{proxy.port}", url, count=1)
