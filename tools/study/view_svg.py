# SPDX-License-Identifier: BSL-1.0
"""Draws a ready figure as SVG, without a browser. Panels share their axes, so that they can be compared by eye.

Series differ by colour and by marker, so a print without colours can be read. Ordered quantities, such as the frequency, have a ramp from
pale to dark. Colours are those of the pages (tools/log/page/scales.js).
"""

import base64
import html
import math
import struct
import zlib
from collections.abc import Iterable, Sequence

import numpy as np

from tools.study.view_columns import LINEAR, LOG
from tools.study.view_picture import Cells, Density, Envelope, Level, Line, Made, Panel, Points, Series, Stack, number_text

INK, DIM, RULE, PAPER = "#1c1f22", "#5c636b", "#d4d8dc", "#ffffff"
PALETTE = ("#0072b2", "#e08a00", "#009e73", "#d55e00", "#b0579a", "#3aa5dc", "#8a8400", "#555555")
RAMP = ("#9fdcb8", "#5cc0c0", "#3199c4", "#2b6fb0", "#2b4593", "#16205c")
MARKERS = ("circle", "square", "triangle", "diamond")
WIDTH = 1000
LEFT, RIGHT, GAP_X, TITLE, GAP_Y = 64, 16, 62, 20, 46
PANEL_HEIGHT = 250
TABLE_HEIGHT_MIN = 100  # the title beside it needs this
LETTER = 0.55  # of the font's size: the mean width of a letter
BOLD = 1.12  # bold letters are so much wider


def draw(made: Made) -> str:
    """Returns the figure as an SVG document."""
    canvas = _Canvas()
    top = _head(canvas, made)
    columns = 1 if made.wide or len(made.panels) == 1 else 2 if len(made.panels) in (2, 4) else 3
    is_table = any(isinstance(layer, Cells) for panel in made.panels for layer in panel.layers)
    if is_table:
        columns = min(columns, 2)
    left = LEFT + (40 if is_table else 0)
    wide = (WIDTH - left - RIGHT - (columns - 1) * (GAP_X + (40 if is_table else 0))) / columns
    x, y = _shared(made, True), _shared(made, False)
    bottom = top
    for at, panel in enumerate(made.panels):
        column = at % columns
        if column == 0:
            top = bottom + TITLE
        tall = panel.tall or (_table_height(panel) if is_table else PANEL_HEIGHT if columns > 1 else 1.3 * PANEL_HEIGHT)
        place = (left + column * (wide + GAP_X + (40 if is_table else 0)), top, wide, tall)
        scale = panel.y_scale or made.y_scale
        own_y = y if panel.y_label is None else _span([*_values([panel], False), *panel.includes], scale, made.from_zero)
        # Panels side by side have one axis.
        y_label = panel.y_label or ("" if column else made.y_label)
        _panel(
            canvas,
            panel,
            place,
            (x, made.x_scale, made.x_label if not made.wide or at == len(made.panels) - 1 else ""),
            (own_y, scale, y_label),
        )
        bottom = max(bottom, top + tall + GAP_Y)
    for note in made.notes:
        for line in _wrapped(note, WIDTH - 20, 11.5):
            canvas.text(10, bottom + 6, line, 11.5, DIM)
            bottom += 16
    return canvas.document(WIDTH, bottom + 8)


class _Canvas:
    def __init__(self) -> None:
        self._parts: list[str] = []

    def add(self, name: str, content: str | None = None, **attributes: object) -> None:
        text = " ".join(f'{key.replace("_", "-")}="{_plain(value)}"' for key, value in attributes.items() if value is not None)
        self._parts.append(f"<{name} {text}/>" if content is None else f"<{name} {text}>{content}</{name}>")

    def text(self, x: float, y: float, text: str, size: float, colour: str = INK, anchor: str = "start", **more: object) -> None:
        self.add("text", html.escape(text), x=x, y=y, font_size=size, fill=colour, text_anchor=anchor, **more)

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str = RULE, width: float = 1, dash: str | None = None) -> None:
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour, stroke_width=width, stroke_dasharray=dash)

    def document(self, width: float, height: float) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
            'font-family="system-ui, sans-serif">'
        )
        return "\n".join([head, f'<rect width="100%" height="100%" fill="{PAPER}"/>', *self._parts, "</svg>\n"])


def _plain(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else html.escape(str(value))


def colour_of(series: Series) -> str:
    if series.shade is None:
        return PALETTE[series.colour % len(PALETTE)]
    at = max(0.0, min(1.0, series.shade)) * (len(RAMP) - 1)
    low = min(len(RAMP) - 2, int(at))
    first, second = (bytes.fromhex(RAMP[each][1:]) for each in (low, low + 1))
    return "#" + "".join(f"{round(a + (at - low) * (b - a)):02x}" for a, b in zip(first, second))


def _on(colour: str) -> str:
    """Returns the colour of a text on a cell of this colour."""
    red, green, blue = bytes.fromhex(colour[1:])
    return "#000000" if 0.3 * red + 0.59 * green + 0.11 * blue > 120 else "#ffffff"


def _width(text: str, size: float) -> float:
    return LETTER * size * len(text)


def _wrapped(text: str, wide: float, size: float) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        if line and _width(f"{line} {word}", size) > wide:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line] if line else lines


# ---- head ----


def _series_of(made: Made) -> list[Series]:
    found: dict[str, Series] = {}
    for panel in made.panels:
        for layer in panel.layers:
            for each in layer.series if isinstance(layer, Stack) else [layer.series] if hasattr(layer, "series") else []:
                if each.name:
                    found.setdefault(each.name, each)
    if any(isinstance(layer, Stack) for panel in made.panels for layer in panel.layers):
        return list(found.values())  # from the bottom to the top of a bar
    return sorted(found.values(), key=lambda each: (each.dashed, each.shade is None, each.shade or 0.0, each.colour))


def _head(canvas: _Canvas, made: Made) -> float:
    """Draws title and legend. Returns the y where panels begin."""
    canvas.text(10, 22, made.title, 16, font_weight=600)
    top, x = 42.0, 10.0
    entries = _series_of(made)
    if not entries:
        return 34
    if made.legend_title:
        canvas.text(x, top, f"{made.legend_title}:", 12, DIM)
        x += _width(made.legend_title, 12) + 16
    stacked = any(isinstance(layer, Stack) for panel in made.panels for layer in panel.layers)
    for series in entries:
        wide = 34 + _width(series.name, 12) + 14
        if x + wide > WIDTH - 10:
            x, top = 10.0, top + 18
        if stacked:
            canvas.add("rect", x=x + 4, y=top - 10, width=20, height=12, fill=colour_of(series))
        else:
            canvas.line(x, top - 4, x + 26, top - 4, colour_of(series), 2, "6 3" if series.dashed else None)
            if not series.dashed:
                _marker(canvas, series, x + 13, top - 4)
        canvas.text(x + 32, top, series.name, 12)
        x += wide
    return top + 8


def _marker(canvas: _Canvas, series: Series, x: float, y: float, size: float = 3.6, opacity: float | None = None) -> None:
    kind = MARKERS[series.colour % len(MARKERS)]
    look = {"fill": colour_of(series), "stroke": PAPER, "stroke_width": 0.7, "fill_opacity": opacity}
    if kind == "circle":
        canvas.add("circle", cx=x, cy=y, r=size, **look)
    elif kind == "square":
        canvas.add("rect", x=x - size + 0.3, y=y - size + 0.3, width=2 * size - 0.6, height=2 * size - 0.6, **look)
    else:
        ends = [(0, -1.15), (1.1, 0.9), (-1.1, 0.9)] if kind == "triangle" else [(0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)]
        canvas.add("polygon", points=" ".join(f"{x + size * a:.1f},{y + size * b:.1f}" for a, b in ends), **look)


# ---- axes ----


def _values(panels: Iterable[Panel], across: bool) -> list[float]:
    found: list[float] = []
    for panel in panels:
        for layer in panel.layers:
            if isinstance(layer, Line | Points):
                found += layer.x if across else layer.y
                for ends in () if across or isinstance(layer, Points) else (layer.low, layer.high):
                    found += ends or []
            elif isinstance(layer, Level) and not across:
                found.append(layer.y)
            elif isinstance(layer, Stack) and not across:
                found += [0.0, *(sum(values) for values in layer.values)]
            elif isinstance(layer, Density):
                found += layer.x if across else layer.y
            elif isinstance(layer, Envelope):
                found += layer.x if across else [0.0, *layer.low, *layer.high]
    return [float(value) for value in found if math.isfinite(value)]


def _shared(made: Made, across: bool) -> tuple[float, float]:
    scale = made.x_scale if across else made.y_scale
    exact = across and any(isinstance(layer, Density | Envelope) for panel in made.panels for layer in panel.layers)
    values = _values([panel for panel in made.panels if across or panel.y_label is None], across)
    return (min(values), max(values)) if exact and values else _span(values, scale, made.from_zero and not across, 0.1 if across else 0.35)


def _span(values: Sequence[float], scale: str, from_zero: bool, near_zero: float = 0.35) -> tuple[float, float]:
    """Returns the bounds of an axis in coordinates, with room for markers. An axis begins at 0 if the least value is less than `near_zero`
    times the greatest."""
    if scale == LOG:
        logs = [math.log10(value) for value in values if value > 0]
        low, high = (min(logs), max(logs)) if logs else (0.0, 1.0)
    else:
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        if from_zero or 0 <= low < near_zero * high:
            low = min(0.0, low)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return (low if low == 0 and scale == LINEAR else low - room), high + room


def ticks(span: tuple[float, float], scale: str, wanted: float) -> list[float]:
    """Returns values between the bounds for about `wanted` ticks."""
    low, high = span
    if scale == LOG:
        decades = high - low
        for digits in ((1,), (1, 3), (1, 2, 5)) if decades > 2 else ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
            found = [
                digit * 10.0**decade
                for decade in range(math.floor(low) - 1, math.ceil(high) + 1)
                for digit in digits
                if low - 1e-9 <= math.log10(digit * 10.0**decade) <= high + 1e-9
            ]
            if len(found) >= min(4, max(2, wanted - 1)):
                break
        while len(found) > wanted + 2:
            found = found[::2]
        if len(found) >= 2:
            return found
        low, high = 10**low, 10**high
    rough = (high - low) / max(1.0, wanted)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= 0.7 * rough)
    return [step * at for at in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _axes(canvas: _Canvas, place: tuple, x: tuple, y: tuple, categories: Sequence[str] | None) -> None:
    left, top, wide, tall = place
    (x_span, x_scale, x_label), (y_span, y_scale, y_label) = x, y
    for value in ticks(y_span, y_scale, tall / 42):
        at = top + tall * (1 - _part(value, y_span, y_scale))
        canvas.line(left, at, left + wide, at)
        canvas.text(left - 6, at + 4, number_text(value), 11, DIM, "end")
    if categories is None:
        last = -math.inf
        for value in ticks(x_span, x_scale, wide / 62):
            at, text = left + wide * _part(value, x_span, x_scale), number_text(value)
            canvas.line(at, top, at, top + tall)
            if at - _width(text, 11) / 2 > last + 5:
                canvas.text(at, top + tall + 15, text, 11, DIM, "middle")
                last = at + _width(text, 11) / 2
    canvas.add("rect", x=left, y=top, width=wide, height=tall, fill="none", stroke=DIM, stroke_width=0.8)
    if x_label:
        canvas.text(left + wide / 2, top + tall + 31, x_label, 12, anchor="middle")
    canvas.text(0, 0, y_label, 12, anchor="middle", transform=f"translate({left - 48:.1f} {top + tall / 2:.1f}) rotate(-90)")


def _part(value: float, span: tuple[float, float], scale: str) -> float:
    at = math.log10(value) if scale == LOG and value > 0 else -math.inf if scale == LOG else value
    return (at - span[0]) / (span[1] - span[0] or 1)


# ---- panels ----


def _panel(canvas: _Canvas, panel: Panel, place: tuple, x: tuple, y: tuple) -> None:
    left, top, wide, tall = place
    room = wide
    title = panel.title if _width(panel.title, 12) * 1.08 <= room else panel.title[: int(room / (LETTER * 13))] + "\u2026"
    canvas.text(left, top - 6, title, 12, font_weight=600)
    if tables := [layer for layer in panel.layers if isinstance(layer, Cells)]:
        _cells(canvas, tables[0], place, x[2], y[2])
        return
    stacks = [layer for layer in panel.layers if isinstance(layer, Stack)]
    for layer in panel.layers:
        if isinstance(layer, Density):
            _density(canvas, layer, place, x, y)
    _axes(canvas, place, x, y, stacks[0].bars if stacks else None)

    def at_x(value: float) -> float:
        return left + wide * max(-0.01, min(1.01, _part(value, x[0], x[1])))

    def at_y(value: float) -> float:
        return top + tall * (1 - max(-0.01, min(1.01, _part(value, y[0], y[1]))))

    for layer in panel.layers:
        if isinstance(layer, Stack):
            _stack(canvas, layer, place, at_y)
        elif isinstance(layer, Level):
            canvas.line(left, at_y(layer.y), left + wide, at_y(layer.y), colour_of(layer.series), 1.8, "6 3")
        elif isinstance(layer, Line):
            _line(canvas, layer, at_x, at_y)
        elif isinstance(layer, Envelope):
            _envelope(canvas, layer, place, x[0], at_y)
        elif isinstance(layer, Points):
            for number, (a, b) in enumerate(zip(layer.x, layer.y)):
                _marker(canvas, layer.series, at_x(a), at_y(b), 3.0, 0.55)
                if number < len(layer.texts) and layer.texts[number]:
                    canvas.text(at_x(a) + 6, at_y(b) - 5, layer.texts[number], 10, DIM)


def _line(canvas: _Canvas, layer: Line, at_x, at_y) -> None:
    colour, points = colour_of(layer.series), [(at_x(a), at_y(b)) for a, b in zip(layer.x, layer.y)]
    path = []
    for number, (a, b) in enumerate(points):
        path.append(
            f"{'L' if number else 'M'}{a:.1f} {points[number - 1][1]:.1f}L{a:.1f} {b:.1f}"
            if layer.steps and number
            else f"{'L' if number else 'M'}{a:.1f} {b:.1f}"
        )
    canvas.add(
        "path", d="".join(path), fill="none", stroke=colour, stroke_width=1.8, stroke_dasharray="6 3" if layer.series.dashed else None
    )
    if layer.low and layer.high:
        for (a, _), low, high in zip(points, layer.low, layer.high):
            if at_y(low) - at_y(high) > 1.5:
                canvas.line(a, at_y(low), a, at_y(high), colour, 1)
                for end in (low, high):
                    canvas.line(a - 3, at_y(end), a + 3, at_y(end), colour, 1)
    if layer.markers:
        for a, b in points:
            _marker(canvas, layer.series, a, b)


def _stack(canvas: _Canvas, layer: Stack, place: tuple, at_y) -> None:
    left, top, wide, tall = place
    each = wide / max(1, len(layer.bars))
    for number, (name, values) in enumerate(zip(layer.bars, layer.values)):
        below = 0.0
        for series, value in zip(layer.series, values):
            if value > 0:
                canvas.add(
                    "rect",
                    x=left + each * (number + 0.12),
                    y=at_y(below + value),
                    width=0.76 * each,
                    height=at_y(below) - at_y(below + value),
                    fill=colour_of(series),
                )
            below += value
        canvas.text(left + each * (number + 0.5), top + tall + 15, name, 11, DIM, "middle")


def _table_height(panel: Panel) -> float:
    return max(
        TABLE_HEIGHT_MIN,
        *(
            (30.0 + 14 * (max((len(text) for row in layer.texts for text in row), default=1) - 1)) * len(layer.rows)
            for layer in panel.layers
        ),
    )


def _cells(canvas: _Canvas, layer: Cells, place: tuple, x_label: str, y_label: str) -> None:
    left, top, wide, tall = place
    each, high = wide / max(1, len(layer.columns)), tall / max(1, len(layer.rows))
    known = [value for row in layer.values for value in row if math.isfinite(value)]
    low, most = (min(known), max(known)) if known else (0.0, 1.0)
    longest = max((_width(text, 11.5) for row in layer.texts for lines in row for text in lines), default=0.0)
    size = min(11.5, 11.5 * (each - 8) / max(1.0, BOLD * longest))
    for number, row in enumerate(layer.values):
        for column, value in enumerate(row):
            x, y = left + column * each, top + number * high
            colour = "#f0f1f2"
            if math.isfinite(value):
                colour = colour_of(Series("", shade=(value - low) / (most - low or 1)))
            best = layer.marked == (number, column)
            canvas.add(
                "rect",
                x=x + 1,
                y=y + 1,
                width=each - 2,
                height=high - 2,
                fill=colour,
                stroke="#b3005e" if best else None,
                stroke_width=3 if best else None,
            )
            lines = layer.texts[number][column]
            for at, text in enumerate(lines):
                canvas.text(
                    x + each / 2,
                    y + high / 2 + 4 + 14 * (at - (len(lines) - 1) / 2),
                    text,
                    size,
                    _on(colour),
                    "middle",
                    font_weight=600 if at == 0 else None,
                )
    for column, name in enumerate(layer.columns):
        canvas.text(left + (column + 0.5) * each, top + tall + 15, name, 11, DIM, "middle")
    for number, name in enumerate(layer.rows):
        canvas.text(left - 6, top + (number + 0.5) * high + 4, name, 11, DIM, "end")
    canvas.text(left + wide / 2, top + tall + 31, x_label, 12, anchor="middle")
    canvas.text(0, 0, y_label, 12, anchor="middle", transform=f"translate({left - 66:.1f} {top + tall / 2:.1f}) rotate(-90)")


def _envelope(canvas: _Canvas, layer: Envelope, place: tuple, span: tuple[float, float], at_y) -> None:
    left, _, wide, _ = place
    colour = colour_of(layer.series)
    begin = left + wide * _part(layer.x[0], span, LINEAR)
    each = wide * (layer.x[1] - layer.x[0]) / (span[1] - span[0]) / max(1, len(layer.mean))
    band, marks = [], []
    for at, (low, mean, high) in enumerate(zip(layer.low, layer.mean, layer.high)):
        if not math.isfinite(mean):
            continue
        x, top, bottom = begin + at * each, at_y(float(high)), at_y(float(low))
        band.append(f"M{x:.1f} {top:.1f}h{each:.2f}V{max(bottom, top + 0.8):.1f}h-{each:.2f}z")
        marks.append(f"M{x:.1f} {at_y(float(mean)):.1f}h{each:.2f}")
    canvas.add("path", d="".join(band), fill=colour, fill_opacity=0.3)
    canvas.add("path", d="".join(marks), fill="none", stroke=colour, stroke_width=1.6)


def _density(canvas: _Canvas, layer: Density, place: tuple, x: tuple, y: tuple) -> None:
    left, top, wide, tall = place
    counts = layer.counts
    shade = np.log1p(counts) / np.log1p(max(1, counts.max()))
    stops = np.array([list(bytes.fromhex(each[1:])) for each in RAMP], float)
    at = shade * (len(RAMP) - 1)
    first = np.minimum(at.astype(int), len(RAMP) - 2)
    mixed = stops[first] + (at - first)[..., None] * (stops[first + 1] - stops[first])
    pixels = np.dstack([mixed, np.where(counts > 0, 255, 0)]).round().astype(np.uint8)[::-1]
    data = base64.b64encode(png(pixels)).decode()
    ends = [left + wide * _part(each, x[0], x[1]) for each in layer.x]
    sides = [top + tall * (1 - _part(each, y[0], y[1])) for each in layer.y]
    canvas.add(
        "image",
        x=ends[0],
        y=sides[1],
        width=ends[1] - ends[0],
        height=sides[0] - sides[1],
        preserveAspectRatio="none",
        style="image-rendering:pixelated",
        href=f"data:image/png;base64,{data}",
    )


def png(pixels: np.ndarray) -> bytes:
    """Returns an image of rows of red, green, blue and opacity as PNG."""
    high, wide, _ = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = np.concatenate([np.zeros((high, 1), np.uint8), pixels.reshape(high, 4 * wide)], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", wide, high, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 6)) + chunk(b"IEND", b"")
