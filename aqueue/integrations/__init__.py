"""Applications that aqueue lives in, one module each; every framework here is an extra.

Importing this package imports none of them: take `aqueue.integrations.fastapi`, `.starlette` or `.litestar`.
"""
