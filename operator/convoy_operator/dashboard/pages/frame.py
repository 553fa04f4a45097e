"""The frame of every page: a skip link, the header, and a banner with warnings."""

from __future__ import annotations

from datetime import UTC, datetime

from nicegui import ui

from convoy_crds.summaries import age
from convoy_operator.dashboard.auth.sessions import Session
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.core.formatting import account, clock
from convoy_operator.dashboard.pages.elements import box, set_attribute, set_text, show, text
from convoy_operator.dashboard.settings import AuthMode

THEME_COOKIE = "convoy-theme"
THEMES = {"auto": "Auto", "light": "Light", "dark": "Dark"}
_DARK = {"light": False, "dark": True}


class Frame:
    """The frame of one page. The page creates its content within `with frame.content:`."""

    def __init__(self, context: Context, session: Session, title: str, location: str) -> None:
        """Create the frame. `location` is the path and query of the page."""
        self._context = context
        self.location = location
        """Path and query of the page, with the user's current filters."""
        client = ui.context.client
        ui.page_title(f"{title} · Convoy" if title else "Convoy")
        chosen = client.request.cookies.get(THEME_COOKIE, "auto")
        theme = chosen if chosen in THEMES else "auto"
        ui.dark_mode(_DARK.get(theme))
        with client.layout:
            top = box("div", "top")
        top.move(target_index=0)
        with top:
            text("a", "Skip to content", "skip", href="#content")
            self._header(session, theme)
        self._banner = box("div", "banner")
        with self._banner:
            self._alert = text("span", "", role="alert")
            # Hide the growing age from screen readers, which would announce every change.
            self._age = text("span", "", aria_hidden="true")
        self._access = session.access
        self._failed: datetime | None = None
        self.content = box("div", "page", id="content", tabindex="-1")
        # Hide the content until the first data: without data it would look as if the cluster were empty.
        self._built = False
        show(self.content, False)
        self.refresh()

    def _header(self, session: Session, theme: str) -> None:
        with box("header", "bar"):
            text("a", "Convoy", "brand", href="/")
            with box("nav", aria_label="Main"):
                for label, path in (("Overview", "/"), ("Cluster", "/cluster")):
                    here = {"aria_current": "page"} if self.location.partition("?")[0] == path else {}
                    text("a", label, href=path, **here)
            box("span", "gap")
            following = list(THEMES)[(list(THEMES).index(theme) + 1) % len(THEMES)]
            with box("form", method="post", action="/theme"):
                box("input", type="hidden", name="theme", value=following)
                self._back_field = box("input", type="hidden", name="back", value=self.location)
                text(
                    "button",
                    f"Theme: {THEMES[theme]}",
                    type="submit",
                    aria_label=f"Theme: {THEMES[theme]}. Change to {THEMES[following]}",
                )
            text("span", account(session.identity.user), "user", title=session.identity.user)
            if self._context.session_resolver.mode is AuthMode.TOKEN_REVIEW:
                with box("form", method="post", action="/logout"):
                    text("button", "Log out", type="submit")

    def set_location(self, location: str) -> None:
        """Set the path and query of the page."""
        self.location = location
        set_attribute(self._back_field, "value", location)

    def set_failed(self, at: datetime | None) -> None:
        """Show that updates of the page have failed since `at`. None means that the last update succeeded."""
        if at is None and not self._built:
            self._built = True
            show(self.content, True)
        if (at is None) != (self._failed is None):
            self._failed = at
            self.refresh()

    def refresh(self) -> None:
        """Update the banner, which shows outages, missing data and failed updates."""
        api_monitor, now = self._context.api_monitor, datetime.now(UTC)
        warnings = []
        if self._failed is not None:
            warnings.append(
                f"This page has not been updated since {clock(self._failed)} because the dashboard failed. "
                "Its log contains the error. The dashboard retries."
            )
        away = api_monitor.unavailable_since
        if away is not None:
            warnings.append(f"The API server has not answered since {clock(away)}. The data shown is older.")
        elif api_monitor.recovering:
            warnings.append(
                f"The API server answers again. Still updating: {', '.join(api_monitor.recovering)}."
            )
        loading = [plural for plural in self._context.loading() if plural not in api_monitor.unwatched]
        if loading:
            warnings.append(f"Not loaded yet: {', '.join(loading)}. Some data may be missing.")
        if self._access.undecided:
            warnings.append("Some of your permissions are not known yet. Some data may be missing.")
        warnings += [
            f"Cannot watch {plural}: {why}." for plural, why in sorted(api_monitor.unwatched.items())
        ]
        set_text(self._alert, " ".join(warnings))
        set_text(self._age, f" ({age(away, now)})" if away else "")
        show(self._banner, bool(warnings))
        set_attribute(
            self.content, "data-stale", "true" if away or api_monitor.recovering or self._failed else None
        )
