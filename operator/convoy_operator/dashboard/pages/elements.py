"""Plain HTML elements. Their content is always text and is never parsed as HTML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from convoy_operator.dashboard.core.formatting import visible
from convoy_operator.dashboard.core.rows import Tone

E = TypeVar("E", bound=ui.element)


def box(tag: str, classes: str = "", **attributes: Any) -> ui.element:
    """Create an element that contains other elements."""
    return _decorated(ui.element(tag), classes, attributes)


def text(tag: str, content: str = "", classes: str = "", **attributes: Any) -> TextElement:
    """Create an element that contains text."""
    return _decorated(TextElement(tag=tag, text=visible(content)), classes, attributes)


def _decorated(element: E, classes: str, attributes: dict[str, Any]) -> E:
    if classes:
        element.classes(classes)
    for name, value in attributes.items():
        # Names of attributes must be constants: NiceGUI evaluates the value of an attribute whose name begins
        # with ":".
        element.props[name.rstrip("_").replace("_", "-")] = value
    return element


def set_text(element: TextElement, content: str) -> None:
    """Set the element's text. Do nothing if the element already has this text."""
    content = visible(content)
    if element.text != content:
        element.set_text(content)


def set_attribute(element: ui.element, name: str, value: Any) -> None:
    """Set an attribute. Do nothing if it already has this value. The value None removes the attribute."""
    if value is None:
        if name in element.props:
            del element.props[name]
    elif element.props.get(name) != value:
        element.props[name] = value


def set_classes(element: ui.element, classes: str) -> None:
    """Set the element's CSS classes. Do nothing if the element already has exactly these classes."""
    if " ".join(element.classes) != classes:
        element.classes(replace=classes)


def show(element: ui.element, shown: bool) -> None:
    """Show or hide an element, also for screen readers."""
    set_attribute(element, "hidden", None if shown else True)


def tone_class(tone: Tone, badge: bool = False) -> str:
    """Return the CSS classes for a tone."""
    return " ".join(part for part in ("badge" if badge else "", f"tone-{tone}" if tone else "") if part)


def button(content: str, pressed: Callable[[], Any], classes: str = "", **attributes: Any) -> TextElement:
    """Create a button."""
    element = text("button", content, classes, type="button", **attributes)
    element.on("click", lambda _: pressed(), args=[])
    return element
