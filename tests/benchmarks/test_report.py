"""Figures, tables and pictures are made of results; the documentation shows the stored ones."""

import copy
import json
import re
from xml.etree import ElementTree

import peers
import pictures
import pytest
import report
from hypothesis import given
from hypothesis import strategies as st

CALLS = st.lists(st.floats(1e-6, 1e3), min_size=3, max_size=3)

RESULTS = {
    "date": "2026-11-22",
    "machine": {"processor": "Abacus", "cores": 2, "memory": 2**33, "system": "Linux 6"},
    "versions": {"blztable": "1.0", "rival": "2.0"},
    "settings": {"rounds": 3, "calls": 3, "scale": 1},
    "load": [0.5, 1.5, 0.75],
    "data": {
        "trees": {
            "rows": 1000,
            "columns": 3,
            "memory": 24_000_000,
            "bytes": {
                "blztable": 8_000_000,
                "blztable, size": 5_000_000,
                "rival": 6_000_000,
                "slow": 20_000_000,
                "feather, uncompressed": 24_000_000,
            },
        }
    },
    "runs": {
        "trees": {
            "read all into Arrow": {
                "blztable": {
                    "seconds": [[0.5, 0.1], [0.4, 0.2], [0.6, 0.4]],
                    "processor_seconds": [[0.9, 0.2], [0.8, 0.2], [0.9, 0.2]],
                    "user_seconds": [[0.6, 0.15], [0.6, 0.15], [0.6, 0.15]],
                    "system_seconds": [[0.3, 0.05], [0.2, 0.05], [0.3, 0.05]],
                },
                "blztable, size": {"seconds": [[0.9, 0.01], [0.9, 0.01], [0.9, 0.01]]},
                "rival": {
                    "seconds": [[0.5, 0.3], [0.8, 0.2], [0.6, 0.6]],
                    "processor_seconds": [[0.5, 0.3], [0.8, 0.5], [0.6, 0.5]],
                },
                "slow": {"seconds": [[9.0, 9.0], [9.0, 9.0], [9.0, 9.0]]},
                "feather, uncompressed": {"seconds": [[0.1, 0.05], [0.1, 0.05], [0.1, 0.05]]},
            },
            "append 1,000 rows": {
                "blztable": {
                    "seconds": [[0.02], [0.02], [0.02]],
                    "processor_seconds": [[0.04], [0.04], [0.04]],
                    "first": {"seconds": [[0.3]], "processor_seconds": [[0.4]]},
                },
                "rival": {
                    "seconds": [[0.01], [0.01], [0.01]],
                    "processor_seconds": [[0.01], [0.01], [0.01]],
                    "first": {"seconds": [[0.6]], "processor_seconds": [[0.6]]},
                },
                "slow": {"cannot": "has no append"},
            },
        }
    },
}


def test_a_figure_is_the_median_with_the_least_and_the_largest_round():
    assert report.figure([[9, 3.0], [9, 1.0], [9, 7.0], [9, 2.0]]) == (2.5, 1.0, 7.0)
    assert report.figure([[9, 3.0], [8, 1.0]], call=0) == (8.5, 8, 9)


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds():
    # The ratio of the medians would be 0.3 / 0.2.
    assert report.ratio([[0.3], [0.2], [0.6]], [[0.1], [0.2], [0.4]]) == pytest.approx(
        (1.5, 1.0, 3.0)
    )


@given(st.lists(st.tuples(CALLS, CALLS, st.floats(0.1, 10)), min_size=1, max_size=7))
def test_a_machine_that_is_slower_in_some_rounds_changes_no_ratio(rounds):
    theirs, ours, slowness = zip(*rounds, strict=True)
    slower = [
        [[call * factor for call in calls] for calls, factor in zip(side, slowness, strict=True)]
        for side in (theirs, ours)
    ]
    assert report.ratio(*slower) == pytest.approx(report.ratio(theirs, ours))


def test_the_best_peer_is_neither_ours_nor_without_compression():
    read, append = report.lines(RESULTS, "trees")
    assert (read.peer, read.ours.median, read.theirs.median) == ("rival", 0.2, 0.5)
    assert read.ratio == pytest.approx((2.5, 1.5, 2.5))
    assert (append.task, append.peer, append.ratio.median) == ("append 1,000 rows", "rival", 0.25)
    read, append = report.lines(RESULTS, "trees", clock="seconds")
    assert read.ratio == pytest.approx((1.5, 1.0, 3.0))
    assert append.ratio.median == 0.5


def test_a_first_call_may_be_measured_by_itself():
    read, append = report.lines(RESULTS, "trees", call=0)
    assert read.ours.median == 0.9
    assert append.ratio == pytest.approx((1.5, 1.5, 1.5))


def test_the_summary_of_a_data_set_shows_ours_beside_the_best_peer():
    assert report.table_of(RESULTS, "trees").splitlines() == [
        "| CPU milliseconds | blztable | wall | blztable, size | feather, uncompressed | best peer "
        "| its CPU | its wall | peer / ours | by wall | call 1 |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| read all into Arrow | 200 | 200 |  |  | rival | 500 | 300 "
        "| 2.50 (1.50 to 2.50) | 1.50 | 0.67 |",
        "| append 1,000 rows | 40.0 | 20.0 |  |  | rival | 10.0 | 10.0 "
        "| 0.25 (0.25 to 0.25) | 0.50 | 1.50 |",
    ]


def test_the_table_of_sizes_shows_ours_beside_the_smallest_peer():
    assert report.sizes(RESULTS).splitlines() == [
        "| MB | rows | columns | memory | blztable | blztable, size | best peer | its MB "
        "| peer / ours |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| trees | 1,000 | 3 | 24.0 | 8.00 | 5.00 | rival | 6.00 | 0.75 |",
    ]


def test_the_report_says_where_a_peer_wins():
    assert "- trees: bytes (rival, 0.75); append 1,000 rows (rival, 0.25)." in report.lost(RESULTS)
    won = copy.deepcopy(RESULTS)
    del won["runs"]["trees"]["append 1,000 rows"]
    won["data"]["trees"]["bytes"]["rival"] = 9_000_000
    assert report.lost(won) == "No peer wins a task."


def test_figures_of_a_busy_machine_are_called_preliminary():
    assert "Preliminary" not in report.surroundings(RESULTS)
    busy = RESULTS | {"load": [0.5, 7.0, 6.0]}
    assert "**Preliminary:**" in report.surroundings(busy)
    assert "load average 0.5 to 7.0" in report.surroundings(busy)


def test_the_full_report_has_every_figure_and_every_reason():
    text = report.full(RESULTS)
    assert "| slow | 20.0 | 9,000 (9,000 to 9,000) | has no append |" in text
    assert "| blztable | 8.00 | 200 (100 to 400); 150 + 50.0 | 20.0 (20.0 to 20.0) |" in text
    assert "| blztable | 8.00 | 500 (400 to 600); 600 + 300 |" in report.full(RESULTS, call=0)


def test_results_come_back_from_their_file():
    text = peers.as_json(RESULTS)
    assert json.loads(text) == RESULTS
    assert '    "slow": {"cannot": "has no append"}' in text.splitlines()


def test_a_bar_is_as_long_as_its_time_and_cut_at_six_times_ours():
    task = "read all into Arrow"
    times = {
        name: report.figure(run["seconds"]).median * 1e3
        for name, run in RESULTS["runs"]["trees"][task].items()
    }
    drawn = "".join(pictures.bar_chart(task, times))
    names = re.findall(r">([^<>]+)</text><rect", drawn)
    lengths = dict(zip(names, map(float, re.findall(r'width="([\d.]+)"', drawn)), strict=True))
    assert names == sorted(times, key=times.__getitem__)
    assert lengths["rival"] / lengths["blztable"] == pytest.approx(1.5, rel=0.01)
    assert lengths["slow"] / lengths["blztable"] == pytest.approx(6, rel=0.01)
    assert " …9,000" in drawn


@pytest.mark.parametrize(
    "drawn", [pictures.sizes_and_reads(RESULTS), pictures.bars(RESULTS, "trees")]
)
def test_a_picture_is_xml_that_names_each_system(drawn):
    words = {element.text for element in ElementTree.fromstring(drawn).iter() if element.text}
    assert {"blztable", "blztable, size", "rival", "slow", "feather, uncompressed"} <= words


def test_the_point_of_a_smaller_file_lies_to_the_left_and_of_a_faster_read_below():
    drawn = pictures.scatter("", {"small": (1.0, 300.0), "fast": (50.0, 2.0)})
    (below, left), (above, right) = (
        (float(y), float(x))
        for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', "".join(drawn))
    )
    # The faster is drawn first.
    assert right < left
    assert above < below


def test_publishing_replaces_what_is_between_the_marks(tmp_path):
    page, folder = tmp_path / "page.md", tmp_path / "pictures"
    before, after = peers.MARKS
    page.write_text(f"Head\n{before}old\n{after}Tail\n", encoding="utf-8")
    folder.mkdir()
    (folder / "peers-old.svg").touch()
    peers.publish([RESULTS], page, folder)
    text = page.read_text(encoding="utf-8")
    assert text == f"Head\n{before}{peers.section([RESULTS])}{after}Tail\n"
    assert [path.name for path in folder.iterdir()] == ["peers-size-and-read.svg"]
    assert "(_static/peers-size-and-read.svg)" in text
    page.write_text("Head\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="no place for the tables"):
        peers.publish([RESULTS], page, folder)


def test_what_was_only_checked_has_sizes_and_no_pictures():
    checked = copy.deepcopy(RESULTS)
    for systems in checked["runs"]["trees"].values():
        for name in systems:
            systems[name] = {}
    assert peers.drawings([checked]) == {}
    assert "read all" not in report.summary(checked)
    assert report.sizes(checked) in report.summary(checked)
    assert "| slow | 20.0 | right | right |" in report.full(checked)


def test_the_documentation_shows_the_stored_results():
    results = peers.stored()
    before, after = peers.MARKS
    page = peers.PAGE.read_text(encoding="utf-8")
    assert page.partition(before)[2].partition(after)[0] == peers.section(results)
    drawn = peers.drawings(results)
    stored = {path.name for path in peers.PICTURES.glob("peers-*")}
    assert stored == drawn.keys()
    assert stored == set(re.findall(r"\(_static/(peers-[^)]+)\)", page))
    for name, (_, picture) in drawn.items():
        assert (peers.PICTURES / name).read_text(encoding="utf-8") == picture
