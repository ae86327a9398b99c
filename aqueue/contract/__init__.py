"""The decisions of the contract, sans-IO: no await, clock, randomness, socket, file or environment.

Time and chance come in as arguments, so every rule here has a plain table test.
"""
