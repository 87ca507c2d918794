"""Every order in which agents of a model can make their calls, and the states that this leads to.

An agent is a generator function: it yields calls, and each is answered before it goes on. A call is
one step on the state that all agents share. Between two calls of an agent, all others may make any
number of theirs. States are met once: two ways into the same state go on in the same ways.

The state of an agent is where its frames stand and what their variables hold. So an agent yields
once in a statement, its variables are hashable, and it loops over different values only: what a
frame keeps besides its variables is then no news. `test_explore.py` compares with agents whose
state is all that they were told, which needs none of this.
"""

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple

State = Hashable
Agent = Callable[[], Generator["Call", Any, None]]


class Call(NamedTuple):
    """A function of the state and further arguments; it returns the new state and the answer."""

    function: Callable[..., tuple[State, Hashable] | list[tuple[State, Hashable]]]
    arguments: tuple

    def outcomes(self, state: State) -> list[tuple[State, Hashable]]:
        """Return what may come of the call: the state after it, and the answer."""
        found = self.function(state, *self.arguments)
        return found if isinstance(found, list) else [found]


def call(function: Callable) -> Callable[..., Call]:
    """Make a call of a function of the state: what it is called with is told to it later."""

    @wraps(function)
    def with_arguments(*arguments: Hashable) -> Call:
        return Call(function, arguments)

    return with_arguments


class Broken(Exception):
    """An agent found what must not be; the message is the kind of the problem."""


@dataclass(frozen=True, slots=True)
class Explored:
    """The number of states, and of each kind of problem a shortest way to it.

    A way is the calls in their order, each as the agent's place and the name of its call.
    """

    states: int
    problems: dict[str, str]


def explore(
    state: State,
    agents: Sequence[Agent],
    judge: Callable[[Any], str | None],
    *,
    remembering: bool = False,
) -> Explored:
    """Walk all orders of the calls of all agents; `judge` names the problem of a state, if any.

    Nothing is walked behind a problem. With `remembering`, the state of an agent is all that it
    was told, which is slower.
    """
    search = _Search(agents, judge, remembering)
    first = (search.number_of(state), *search.begun)
    came: dict[tuple[int, ...], tuple[int, ...] | None] = {first: None}
    problems: dict[str, str] = {}
    queue = deque([first])
    while queue:
        node = queue.popleft()
        problem = search.problem(node[0])
        if problem is not None:
            problems.setdefault(problem, " ".join(search.way(came, node)))
            continue
        for place in range(1, len(node)):
            for state_after, agent_after, problem in search.steps(node[0], node[place]):
                after = (state_after, *node[1:place], agent_after, *node[place + 1 :])
                if problem is not None and problem not in problems:
                    steps = [*search.way(came, node), search.name(node, place)]
                    problems[problem] = " ".join(steps)
                elif problem is None and after not in came:
                    came[after] = node
                    queue.append(after)
    return Explored(len(came), problems)


class _Search:
    """Numbers of states and of states of agents, and what each step leads to."""

    def __init__(
        self, agents: Sequence[Agent], judge: Callable[[Any], str | None], remembering: bool
    ) -> None:
        self._agents = agents
        self._judge = judge
        self._remembering = remembering
        self._states: list[State] = []
        self._numbers: dict[State, int] = {}
        self._problems: dict[int, str | None] = {}
        # Of each state of an agent: the agent, what it was told, its next call (None at its end).
        self._told: list[tuple[int, tuple, Call | None]] = []
        self._places: dict[Hashable, int] = {}
        self._steps: dict[tuple[int, int], list[tuple[int, int, str | None]]] = {}
        self.begun = [self._told_so_far(agent, ()) for agent in range(len(agents))]

    def number_of(self, state: State) -> int:
        """Return the number of a state."""
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def problem(self, state: int) -> str | None:
        """Return the problem of a state."""
        if state not in self._problems:
            self._problems[state] = self._judge(self._states[state])
        return self._problems[state]

    def steps(self, state: int, agent: int) -> list[tuple[int, int, str | None]]:
        """Return what the next call of an agent leads to: state, agent, and a problem it found."""
        known = self._steps.get((state, agent))
        if known is None:
            known = self._steps[state, agent] = list(self._new_steps(state, agent))
        return known

    def _new_steps(self, state: int, agent: int) -> Iterator[tuple[int, int, str | None]]:
        index, told, call = self._told[agent]
        if call is None:
            return
        for after, answer in call.outcomes(self._states[state]):
            try:
                agent_after = self._told_so_far(index, (*told, answer))
            except Broken as problem:
                yield self.number_of(after), agent, str(problem)
            else:
                yield self.number_of(after), agent_after, None

    def _told_so_far(self, index: int, told: tuple) -> int:
        """Return the number of the state of an agent that was given these answers."""
        running = self._agents[index]()
        try:
            call = next(running)
            for answer in told:
                call = running.send(answer)
        except StopIteration:
            place, call = ("end", index), None
        else:
            place = (index, told if self._remembering else tuple(_frames(running)))
        number = self._places.setdefault(place, len(self._told))
        if number == len(self._told):
            self._told.append((index, told, call))
        running.close()
        return number

    def way(self, came: dict, node: tuple[int, ...]) -> list[str]:
        """Return the calls that led to a node."""
        steps = []
        while (before := came[node]) is not None:
            steps.append(next(name for name, after in self._nodes_after(before) if after == node))
            node = before
        return steps[::-1]

    def name(self, node: tuple[int, ...], place: int) -> str:
        """Return the next call of an agent in words."""
        call = self._told[node[place]][2]
        assert call is not None
        return f"{place}.{call.function.__name__}"

    def _nodes_after(self, node: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
        for place in range(1, len(node)):
            for state_after, agent_after, _ in self.steps(node[0], node[place]):
                after = (state_after, *node[1:place], agent_after, *node[place + 1 :])
                yield self.name(node, place), after


def _frames(running: Generator) -> Iterator[Hashable]:
    """Yield where a generator and those it waits for stand, and what their variables hold."""
    while running is not None:
        frame = running.gi_frame
        yield frame.f_code, frame.f_lasti, tuple(sorted(frame.f_locals.items(), key=_name))
        running = running.gi_yieldfrom


def _name(item: tuple[str, object]) -> str:
    return item[0]
