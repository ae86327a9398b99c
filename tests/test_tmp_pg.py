import sys, pytest, os, uuid
from servers import postgres, pgbouncer
from aqueue.testing.contract import Check, Harness, all_checks
@pytest.mark.parametrize("check", all_checks(), ids=lambda c:c.id)
async def test_x(check):
    h=Harness(postgres.fresh_url() if not os.environ.get('B') else postgres.fresh_url(pgbouncer.url())+'&pgbouncer=true')
    try:
        await check(h)
    finally:
        await h.aclose()
