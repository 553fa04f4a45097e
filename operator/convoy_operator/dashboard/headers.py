"""Security headers, and nonces for the scripts and styles that NiceGUI writes into its pages."""

from __future__ import annotations

import re
import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_TAGS = re.compile(rb"<(script|style)(?=[\s>])")
_HIDDEN = "sha256-ZdHxw9eWtnxUb3mk6tBS+gIiVUPE3pGM470keHPDFlE="
"""Hash of `display: none`, the only style attribute in NiceGUI's page template."""
_FIXED = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Browsers must send the Origin header with forms, because `same_site` needs it. With `no-referrer` they
    # would not.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


def policy(nonce: str) -> str:
    """Return a Content-Security-Policy. It forbids other hosts and eval, and allows inline scripts and
    styles only with the nonce.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' 'nonce-{nonce}'",
            f"style-src 'self' 'nonce-{nonce}'",
            f"style-src-attr 'unsafe-hashes' '{_HIDDEN}'",
            "img-src 'self' data:",
            "font-src 'self'",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        )
    )


class SecurityHeaders:
    """An ASGI middleware that sets security headers and adds the nonces to pages. The inner application
    must not compress its responses, because the nonces are inserted into the HTML.

    Texts from the cluster cannot contain a script tag that would get a nonce: NiceGUI writes `<` as `&lt;`,
    and titles are escaped.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        head: Message | None = None
        body = bytearray()

        async def send_secured(message: Message) -> None:
            nonlocal head
            if message["type"] == "http.response.start":
                _secure(message, nonce)
                if _is_page(message):
                    head = message
                    return
            elif message["type"] == "http.response.body" and head is not None:
                body.extend(message.get("body", b""))
                if message.get("more_body"):
                    return
                page = _TAGS.sub(rb"<\1 nonce=" + f'"{nonce}"'.encode(), bytes(body))
                kept = [(key, value) for key, value in head["headers"] if key != b"content-length"]
                head["headers"] = [*kept, (b"content-length", str(len(page)).encode())]
                await send(head)
                head = None
                message = {"type": "http.response.body", "body": page}
            await send(message)

        await self._app(scope, receive, send_secured)


def _is_page(message: Message) -> bool:
    return any(key == b"content-type" and value.startswith(b"text/html") for key, value in message["headers"])


def _secure(message: Message, nonce: str) -> None:
    headers = {"content-security-policy": policy(nonce), **_FIXED}
    ours = {key.encode() for key in headers}
    kept = [(key, value) for key, value in message.get("headers", []) if key.lower() not in ours]
    message["headers"] = [*kept, *((key.encode(), value.encode()) for key, value in headers.items())]
