"""Ids are 128 random bits, and nobody gets one twice, whoever asks (PUSH-9)."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from aqueue.ids import new_id


@pytest.mark.rule("PUSH-9")
def test_an_id_is_32_hexadecimal_characters_and_new_each_time() -> None:
    ids = [new_id() for _ in range(1_000)]

    assert all(re.fullmatch("[0-9a-f]{32}", id) for id in ids)
    assert len(set(ids)) == 1_000


@pytest.mark.rule("PUSH-9")
def test_threads_get_ids_of_their_own() -> None:
    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(lambda _: new_id(), range(20_000)))

    assert len(set(ids)) == 20_000


@pytest.mark.rule("PUSH-9")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system doesn't fork")
def test_a_forked_process_gets_other_ids_than_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", _FORKING], stdout=subprocess.PIPE, text=True, check=True)

    ids = done.stdout.split()
    assert len(ids) == 20
    assert len(set(ids)) == 20


_FORKING = """
import os
from aqueue.ids import new_id

new_id()  # some of its block are left over
child = os.fork()
text = "".join(f"{new_id()}\\n" for _ in range(10))
if child:
    os.waitpid(child, 0)
os.write(1, text.encode())
"""
