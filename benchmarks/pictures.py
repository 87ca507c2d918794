"""Pictures of a comparison as SVG: size against read time, and bars for each task.

Needs nothing but Python. The same results always give the same bytes, so a picture in the
repository can be compared with its results.
"""

import math
from html import escape

from report import LIMIT, OURS, Results, digits, figure, is_ours

READ_TASK = "read all into Arrow"
PANEL, GAP, MARGIN, TITLE = 380, 30, 46, 26
BAR, BAR_GAP, NAMES, BARS = 15, 4, 150, 200
# A bar is cut where a system takes so many times our time; its figure stands beside it.
LONGEST = 6
OUR_COLOUR, SETTING_COLOUR, TEXT_COLOUR = "#c2410c", "#fdba74", "#1e293b"
PEER_COLOUR, LIMIT_COLOUR = "#64748b", "#cbd5e1"
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" '
    'font-family="sans-serif" font-size="11" fill="' + TEXT_COLOUR + '">'
)


def sizes_and_reads(results: Results) -> str:
    """Draw a panel for each data set: bytes on disk to the right, time to read all upward."""
    panels = []
    for data, facts in results["data"].items():
        points = {
            name: (facts["bytes"][name] / 1e6, figure(run["seconds"]).median * 1e3)
            for name, run in results["runs"][data].get(READ_TASK, {}).items()
            if "seconds" in run and name in facts["bytes"]
        }
        if points:
            panels.append(scatter(f"{data}: MB, and ms to read all into Arrow", points))
    return grid(panels, PANEL, PANEL)


def scatter(title: str, points: dict[str, tuple[float, float]]) -> list[str]:
    """Draw points by name; both axes are logarithmic."""
    spans = [span([point[axis] for point in points.values()]) for axis in (0, 1)]
    room = PANEL - 2 * MARGIN

    def place(value: float, axis: int) -> float:
        low, high = spans[axis]
        part = (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
        return MARGIN + part * room if axis == 0 else PANEL - MARGIN - part * room

    drawn = [text(MARGIN, TITLE - 8, title, size=12)]
    for axis in (0, 1):
        for tick in ticks(*spans[axis]):
            at = place(tick, axis)
            line = (
                (at, MARGIN, at, PANEL - MARGIN) if axis == 0 else (MARGIN, at, PANEL - MARGIN, at)
            )
            drawn.append('<path d="M{:.1f} {:.1f}L{:.1f} {:.1f}" stroke="#e2e8f0"/>'.format(*line))
            x, y = (at, PANEL - MARGIN + 14) if axis == 0 else (MARGIN - 4, at + 4)
            drawn.append(text(x, y, f"{tick:g}", anchor="middle" if axis == 0 else "end"))
    taken: list[tuple[float, float]] = []
    for name, point in sorted(points.items(), key=lambda item: (item[1][1], item[0])):
        x, y = place(point[0], 0), place(point[1], 1)
        drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour(name)}"/>')
        # A name moves up until it has a line of its own.
        level = y + 4
        while any(abs(level - other) < 11 and abs(x - left) < 110 for left, other in taken):
            level -= 11
        taken.append((x, level))
        right = x > PANEL - MARGIN - 80
        drawn.append(
            text(x - 7 if right else x + 7, level, name, anchor="end" if right else "start")
        )
    return drawn


def bars(results: Results, data: str) -> str:
    """Draw a panel for each task: a bar for each system, the fastest first."""
    panels, tallest = [], 0
    for task, systems in results["runs"].get(data, {}).items():
        times = {
            name: figure(run["seconds"]).median * 1e3
            for name, run in systems.items()
            if "seconds" in run
        }
        if OURS in times:
            panels.append(bar_chart(f"{data}: {task}, ms", times))
            tallest = max(tallest, len(times))
    return grid(panels, NAMES + BARS + GAP, TITLE + tallest * (BAR + BAR_GAP))


def bar_chart(title: str, times: dict[str, float]) -> list[str]:
    """Draw horizontal bars from 0, cut at LONGEST times ours."""
    longest = min(max(times.values()), LONGEST * times[OURS])
    drawn = [text(0, TITLE - 8, title, size=12)]
    for row, (name, time) in enumerate(sorted(times.items(), key=lambda item: item[::-1])):
        top = TITLE + row * (BAR + BAR_GAP)
        width = min(time / longest, 1) * (BARS - 60)
        drawn.append(text(NAMES - 6, top + BAR - 4, name, anchor="end"))
        drawn.append(
            f'<rect x="{NAMES}" y="{top}" width="{width:.1f}" height="{BAR}" '
            f'fill="{colour(name)}"/>'
        )
        more = " …" if time > longest else ""
        drawn.append(text(NAMES + width + 4, top + BAR - 4, more + digits(time)))
    return drawn


def grid(panels: list[list[str]], width: int, height: int, columns: int = 2) -> str:
    """Put panels beside and below each other; nothing makes no picture."""
    if not panels:
        return ""
    rows = -(-len(panels) // columns)
    drawn = [HEAD.format(columns * (width + GAP), rows * (height + GAP))]
    drawn.append('<rect width="100%" height="100%" fill="#fff"/>')
    for number, panel in enumerate(panels):
        x = GAP // 2 + number % columns * (width + GAP)
        y = number // columns * (height + GAP)
        drawn += [f'<g transform="translate({x} {y})">', *panel, "</g>"]
    return "\n".join([*drawn, "</svg>", ""])


def span(values: list[float]) -> tuple[float, float]:
    return min(values) / 1.3, max(values) * 1.3


def ticks(low: float, high: float) -> list[float]:
    """Return the numbers 1, 2 and 5 times a power of ten between two numbers."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    return [tick for tick in found if low <= tick <= high]


def colour(name: str) -> str:
    """Return the colour of our default, our other settings, the limit, or a peer."""
    if is_ours(name):
        return OUR_COLOUR if name == OURS else SETTING_COLOUR
    return LIMIT_COLOUR if name == LIMIT else PEER_COLOUR


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(words)}</text>"
    )
