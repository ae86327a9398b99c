"""What the worker's tests share: places to work on, stores that misbehave on command, jobs, ledgers."""
