"""The figures of a comparison, from its results: medians, spread, ratios, and Markdown.

Needs nothing but Python, and reads no clock: the same results always give the same text.

Results are a dict, stored as JSON: "date", "machine", "versions", "settings", "load", "data" (of
each data set: rows, columns, bytes in memory, and bytes on disk by system) and "runs": data set ->
task -> system -> a list of calls for each round by clock (`clocks.py`; some results have "seconds"
and "processor_seconds" alone), and under "first" the same of first calls; or "cannot". Results
without "first" have it as the first of several calls of a round.
"""

import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

Results = dict[str, Any]
# Settings of blztable begin with its name; the first is the default.
OURS = "blztable"
# Clocks: the time of all threads, and its parts.
WALL, PROCESSOR, PARTS = "seconds", "processor_seconds", ("user_seconds", "system_seconds")
# It shows what reading costs without compression, in a file as large as the memory: a limit, not a
# format to choose instead.
LIMIT = "feather, uncompressed"


class Figure(NamedTuple):
    """A median over the rounds, and the least and the largest round."""

    median: float
    least: float
    most: float


class Line(NamedTuple):
    """A task: our figure, the fastest peer with its figure, and how many times faster we are.

    The ratio is the median of the ratios of the rounds, in which both ran shortly after each other.
    """

    task: str
    ours: Figure
    peer: str
    theirs: Figure
    ratio: Figure


def figure(rounds: list[list[float]], call: int = -1) -> Figure:
    """Return the figure of one call of each round; the last call is the steady state."""
    values = [calls[call] for calls in rounds]
    return Figure(statistics.median(values), min(values), max(values))


def ratio(theirs: list[list[float]], ours: list[list[float]], call: int = -1) -> Figure:
    """Return the peer's time / ours, round by round."""
    values = [peer[call] / own[call] for peer, own in zip(theirs, ours, strict=False)]
    return Figure(statistics.median(values), min(values), max(values))


def lines(results: Results, data: str, clock: str = PROCESSOR, call: int = -1) -> Iterator[Line]:
    """Yield a line for each task that we and a peer can do."""
    for task, systems in results["runs"][data].items():
        runs = {name: called(run, call) for name, run in systems.items()}
        measured = {name: run[clock] for name, run in runs.items() if clock in run}
        peers = {name: rounds for name, rounds in measured.items() if is_peer(name)}
        if OURS not in measured or not peers:
            continue
        figures = {name: figure(rounds, call) for name, rounds in peers.items()}
        best = min(figures, key=lambda name: figures[name].median)
        times = ratio(peers[best], measured[OURS], call)
        yield Line(task, figure(measured[OURS], call), best, figures[best], times)


def called(run: dict[str, Any], call: int) -> dict[str, Any]:
    """Return the rounds that have this call: the first one may be measured by itself."""
    return run["first"] if call == 0 and "first" in run else run


def is_peer(name: str) -> bool:
    return name != LIMIT and not is_ours(name)


def is_ours(name: str) -> bool:
    return name.split(",")[0] == OURS


def summary(results: Results) -> str:
    """Return what the page shows: sizes, and for each data set ours beside the fastest peer."""
    parts = [surroundings(results), lost(results), sizes(results)]
    for data in results["data"]:
        if any(lines(results, data)):
            parts += [f"### {data}", table_of(results, data)]
    return "\n\n".join(parts) + "\n"


def sizes(results: Results) -> str:
    """Return the table of sizes: a line for each data set."""
    facts = results["data"]
    names = dict.fromkeys(name for one in facts.values() for name in one["bytes"])
    shown = [name for name in names if is_ours(name) and name != OURS]
    rows = [["MB", "rows", "columns", "memory", OURS, *shown, "best peer", "its MB", "peer / ours"]]
    for data, one in facts.items():
        disk, best = one["bytes"], smallest(one["bytes"])
        row = [data, f"{one['rows']:,}", f"{one['columns']:,}", megabytes(one["memory"])]
        row += [megabytes(disk[name]) if name in disk else "" for name in (OURS, *shown)]
        if best and OURS in disk:
            row += [best, megabytes(disk[best]), f"{disk[best] / disk[OURS]:.2f}"]
        rows.append(row + [""] * (len(rows[0]) - len(row)))
    return markdown(rows)


def smallest(disk: dict[str, int]) -> str | None:
    """Return the peer with the fewest bytes."""
    peers = [name for name in disk if is_peer(name)]
    return min(peers, key=disk.__getitem__) if peers else None


def table_of(results: Results, data: str) -> str:
    """Return the table of one data set: a line for each task, in milliseconds of all threads."""
    runs = results["runs"][data]
    names = dict.fromkeys(name for systems in runs.values() for name in systems)
    shown = [name for name in names if name != OURS and not is_peer(name)]
    head = ["CPU milliseconds", OURS, "wall", *shown, "best peer", "its CPU", "its wall"]
    rows = [[*head, "peer / ours", "by wall", "call 1"]]
    first = {line.task: line for line in lines(results, data, call=0)}
    for line in lines(results, data):
        systems = runs[line.task]
        cells = [cell_of(systems.get(name, {}), PROCESSOR) for name in shown]
        own, theirs = systems[OURS], systems[line.peer]
        row = [line.task, milliseconds(line.ours), cell_of(own, WALL), *cells]
        row += [line.peer, milliseconds(line.theirs), cell_of(theirs, WALL)]
        row.append(f"{line.ratio.median:.2f} ({line.ratio.least:.2f} to {line.ratio.most:.2f})")
        row.append(f"{ratio(theirs[WALL], own[WALL]).median:.2f}")
        known = first.get(line.task)
        rows.append([*row, f"{known.ratio.median:.2f}" if known else ""])
    return markdown(rows)


def cell_of(run: dict[str, Any], clock: str) -> str:
    """Return the milliseconds of the last call; nothing if they were not measured."""
    return milliseconds(figure(run[clock])) if clock in run else ""


def lost(results: Results) -> str:
    """Say where a peer wins, by data set."""
    found = []
    for data, facts in results["data"].items():
        disk, best = facts["bytes"], smallest(facts["bytes"])
        wins = []
        if OURS in disk and best and disk[best] < disk[OURS]:
            wins.append(f"bytes ({best}, {disk[best] / disk[OURS]:.2f})")
        wins += [
            f"{line.task} ({line.peer}, {line.ratio.median:.2f})"
            for line in lines(results, data)
            if line.ratio.median < 1
        ]
        if wins:
            found.append(f"- {data}: {'; '.join(wins)}.")
    if not found:
        return "No peer wins a task."
    return "A peer wins, with its figure / ours:\n\n" + "\n".join(found)


def surroundings(results: Results) -> str:
    """Say where and when the figures were measured, and how busy the machine was."""
    machine, settings = results["machine"], results["settings"]
    low, high = min(results["load"]), max(results["load"])
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    text = (
        f"Measured on {results['date']}: {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory'] / 2**30:.0f} GiB, {machine['system']}; {versions}. "
        f"{settings['rounds']} rounds, load average {low:.1f} to {high:.1f}."
    )
    if not settings["rounds"]:
        text += " Nothing was timed; the load does not change sizes."
    elif is_busy(results):
        text += (
            "\n\n**Preliminary:** other programs used the processors meanwhile, so these figures "
            "are too high, and single ratios may be wrong."
        )
    return text


def is_busy(results: Results) -> bool:
    """Whether the machine did other work: half of the rounds saw more load than we make."""
    return statistics.median(results["load"]) > results["machine"]["cores"] + 0.5


def full(results: Results, call: int = -1) -> str:
    """Return every figure of a call: for each data set a line a system, a column a task."""
    which = "first call, with the import of the system" if call == 0 else "last call"
    text = f"Milliseconds of the {which}: wall (least to most); user + system of all threads."
    parts = [surroundings(results), text]
    for data, facts in results["data"].items():
        runs = results["runs"][data]
        rows = [[data, "MB", *runs]]
        for name in dict.fromkeys(name for systems in runs.values() for name in systems):
            size = megabytes(facts["bytes"][name]) if name in facts["bytes"] else ""
            rows.append([name, size, *(cell(runs[task].get(name), call) for task in runs)])
        parts.append(markdown(rows))
    return "\n\n".join(parts) + "\n"


def cell(run: dict[str, Any] | None, call: int) -> str:
    if run is None:
        return ""
    run = called(run, call)
    if WALL not in run:
        # Without a reason, it was checked and not timed.
        return run.get("cannot", "right").replace("|", "/")
    found = figure(run[WALL], call)
    text = f"{milliseconds(found)} ({digits(found.least * 1e3)} to {digits(found.most * 1e3)})"
    used = [milliseconds(figure(run[clock], call)) for clock in PARTS if clock in run]
    return f"{text}; {' + '.join(used)}" if used else text


def markdown(rows: list[list[str]]) -> str:
    """Return a table; all but the first column are aligned to the right."""
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "| --- |" + " ---: |" * (len(rows[0]) - 1), *body])


def milliseconds(found: Figure) -> str:
    return digits(found.median * 1e3)


def megabytes(size: int) -> str:
    return digits(size / 1e6)


def digits(value: float) -> str:
    """Return three digits, more before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
