"""Plain HTML elements. What they show is text: it is never parsed as HTML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from convoy_operator.dashboard.core.rows import Tone
from convoy_operator.dashboard.core.words import visible

E = TypeVar("E", bound=ui.element)


def box(tag: str, classes: str = "", **attributes: Any) -> ui.element:
    """An element that holds others."""
    return _dress(ui.element(tag), classes, attributes)


def text(tag: str, said: str = "", classes: str = "", **attributes: Any) -> TextElement:
    """An element that holds text."""
    return _dress(TextElement(tag=tag, text=visible(said)), classes, attributes)


def _dress(element: E, classes: str, attributes: dict[str, Any]) -> E:
    if classes:
        element.classes(classes)
    for name, value in attributes.items():
        # Names are ours alone: NiceGUI evaluates the values of those that begin with a colon.
        element.props[name.rstrip("_").replace("_", "-")] = value
    return element


def say(element: TextElement, said: str) -> None:
    """Changes the text, where it differs."""
    said = visible(said)
    if element.text != said:
        element.set_text(said)


def put(element: ui.element, name: str, value: Any) -> None:
    """Changes an attribute, where it differs; None removes it."""
    if value is None:
        if name in element.props:
            del element.props[name]
    elif element.props.get(name) != value:
        element.props[name] = value


def dress(element: ui.element, classes: str) -> None:
    """Changes the classes, where they differ."""
    if " ".join(element.classes) != classes:
        element.classes(replace=classes)


def show(element: ui.element, shown: bool) -> None:
    """Shows or hides an element, for readers of screens too."""
    put(element, "hidden", None if shown else True)


def tone_class(tone: Tone, badge: bool = False) -> str:
    """The class of a tone."""
    return " ".join(part for part in ("badge" if badge else "", f"tone-{tone}" if tone else "") if part)


def button(said: str, pressed: Callable[[], Any], classes: str = "", **attributes: Any) -> TextElement:
    """A button."""
    element = text("button", said, classes, type="button", **attributes)
    element.on("click", lambda _: pressed(), args=[])
    return element
