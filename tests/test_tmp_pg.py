import sys, pytest, os, uuid
sys.path.insert(0,'/work/main/tests')
pytest.register_assert_rewrite("aqueue.testing.contract")
from aqueue.testing.contract import Check, Harness, all_checks
URL=os.environ.get('U','postgresql://root@127.0.0.1:5432/test')
X=os.environ.get('X','')
@pytest.mark.parametrize("check", all_checks(), ids=lambda c:c.id)
async def test_x(check):
    h=Harness(f"{URL}?table=t{uuid.uuid4().hex[:12]}{X}")
    try:
        await check(h)
    finally:
        await h.aclose()
