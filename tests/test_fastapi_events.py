"""The example's events under a real server: an inline listener may refuse, queued ones run on the worker."""

import signal
from pathlib import Path

import httpx2
import pytest
from support.servers import serving

from aqueue.testing import eventually


@pytest.mark.rule("EVENT-1")
async def test_an_invitation_reaches_its_listeners_or_nobody(tmp_path: Path) -> None:
    env = {"AQUEUE_URL": f"sqlite:///{tmp_path}/jobs.db", "MAILS": str(tmp_path / "mails.txt")}
    with serving("examples.fastapi_app:app", env=env, log=tmp_path / "web.log") as server:
        async with httpx2.AsyncClient(base_url=await server.address(), timeout=20) as client:
            invitation = {"email": "bob@blocked.example", "by": "ann@example.com"}
            refused = await client.post("/invitations", json=invitation)
            accepted = await client.post("/invitations", json={**invitation, "email": "bob@example.com"})

            async def both_were_told() -> bool:
                mails = (await client.get("/mails")).json()
                return sorted(mails) == ["ann@example.com", "bob@example.com"]

            await eventually(both_were_told, 20)
        server.signal(signal.SIGTERM)
        await server.ended()

    assert (refused.status_code, accepted.status_code) == (403, 202)
