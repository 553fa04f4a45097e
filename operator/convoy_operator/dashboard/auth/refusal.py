"""Error responses as pages or as plain text."""

from __future__ import annotations

from html import escape

from starlette.responses import HTMLResponse, PlainTextResponse, Response

STYLE = "/static/convoy.css"
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{status} · Convoy</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="stylesheet" href="{style}"></head>
<body class="login body--auto"><main><h1>Convoy</h1><p>{why}</p>
<p><a href="/">Overview</a></p></main></body></html>
"""


def refusal(status: int, why: str, accepted: str) -> Response:
    """Return an error response: HTML if the `Accept` header allows it, else plain text."""
    if "text/html" not in accepted:
        return PlainTextResponse(f"{why}\n", status)
    sentence = escape(why[:1].upper() + why[1:])
    return HTMLResponse(_PAGE.format(status=status, style=STYLE, why=f"{sentence}."), status)
