"""The walk over all orders of calls finds what can happen, and says how."""

import pytest

from support.interleaved.agents import append, append_losing_replies, restore, tag, vacuum
from support.interleaved.explore import Broken, call, explore
from support.interleaved.medium import SECOND, TWO, judge


@call
def get(number):
    return number, number


@call
def put(_, number):
    return number, None


@call
def add(number, step):
    return number + step, None


@call
def toss(number):
    return [(number, "heads"), (number, "tails")]


def adding(steps):
    def agent():
        for step in steps:
            yield add(step)

    return agent


def increment():
    """Add one in two calls, as no two agents may at the same time."""
    number = yield get()
    yield put(number + 1)


def fine(_):
    return None


@pytest.mark.parametrize("remembering", [False, True])
def test_each_state_is_met_once(remembering):
    agents = [adding((1, 2, 3)), adding((10, 20)), adding((100,))]
    explored = explore(0, agents, fine, remembering=remembering)
    assert explored.states == 4 * 3 * 2
    assert not explored.problems


def test_a_lost_update_is_found_with_the_shortest_way_to_it():
    met = set()
    explored = explore(0, [increment, increment, increment], lambda number: met.add(number))
    assert met == {0, 1, 2, 3}
    assert not explored.problems
    explored = explore(2, [increment, increment], lambda number: "three" if number == 3 else None)
    assert explored.problems["three"] == "1.get 1.put"


def test_nothing_is_walked_behind_a_problem():
    met = set()

    def judged(number):
        met.add(number)
        return "two" if number == 2 else None

    explore(0, [adding((2, 3))], judged)
    assert met == {0, 2}


def test_all_outcomes_of_a_call_are_walked():
    def agent():
        side = yield toss()
        if side == "tails":
            raise Broken("tails")
        yield add(1)

    explored = explore(0, [agent], fine)
    assert explored.problems == {"tails": "1.toss"}
    assert explored.states == 3


def test_an_agent_that_goes_round_in_a_circle_is_walked_once():
    def agent():
        while True:
            number = yield get()
            yield put(1 - number)

    assert explore(0, [agent], fine).states == 5  # It begins without a number.


CASES = {
    "no lease": [tag(1, leases=False), vacuum("v")],
    "lease": [tag(1), vacuum("v")],
    "two vacuums": [vacuum("v"), vacuum("w"), restore(1)],
    "appends": [append("x", 10), append("y", 20, hints=True)],
    "lost": [append_losing_replies("x", 10, (2, SECOND)), append("y", 20)],
}


@pytest.mark.parametrize("case", CASES)
def test_frames_and_all_that_was_told_find_the_same(case):
    by_frames = explore(TWO, CASES[case], judge)
    if case == "lost":  # Whoever remembers each lost reply never comes to an end.
        assert not by_frames.problems
        return
    by_answers = explore(TWO, CASES[case], judge, remembering=True)
    assert by_frames.problems.keys() == by_answers.problems.keys()
    assert by_frames.states <= by_answers.states
