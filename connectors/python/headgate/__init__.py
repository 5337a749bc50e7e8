"""headgate's waiting room in an ASGI or WSGI application: it asks headgate who may come in."""

from ._asgi import ASGIMiddleware
from ._connector import Visit
from ._wsgi import WSGIMiddleware

__all__ = ["ASGIMiddleware", "Visit", "WSGIMiddleware"]
