"""Stored payloads, damaged in every way that a disk, a bug or an attacker can think of.

`make fuzz` sends 100,000 of them down each path; `tests/test_fuzz.py` a few thousand in every run. A case is
made from the seed, the path and its number alone, so what fails can be tried again:

    make fuzz ARGS='--path sealed --seed 7 --case 1234'
"""
