"""The calls of real code on a store in memory, in every order.

Theory of operation
-------------------
Each actor runs in a thread of its own and stops before each call of the store. The walk lets one of
them make its call and go on to its next one, so one thread runs at a time, and a run is decided by
the order of the calls. The code cannot be set back: a run begins anew, repeats an order that an
earlier one has made, takes another turn at its end, and goes on. A state is what the store has and
what each actor was told. Nobody goes on from a state that was met before. Two calls of which none
changes what the other one touches lead to the same state in either order, so one order is enough:
an actor whose call has been made first elsewhere *sleeps* until a call is made that it depends on
(sleep sets, Godefroid 1996). All states are met, by as few runs as there are orders that differ.

That holds for code that does the same whenever it is told the same: a clock, or a random number, is
to be replaced by `Walk.number`. A run that repeats an order and finds other calls says so.
"""

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Seconds in which an actor comes to its next call.
_PATIENCE = 60


class Called(NamedTuple):
    """A call that an actor is about to make."""

    name: str
    arguments: tuple

    def __str__(self) -> str:
        keys = [str(one) for one in self.arguments if isinstance(one, str | tuple)]
        return " ".join([self.name, *keys])[:100]


@dataclass(frozen=True, slots=True)
class Ended:
    """How an actor ended: with what its work returned, or with an exception."""

    returned: Any = None
    raised: BaseException | None = None


@dataclass(slots=True)
class Walked:
    """How many runs and states there were, and the first way to each problem, a call a line."""

    runs: int = 0
    states: int = 0
    problems: dict[str, list[str]] = field(default_factory=dict)


class _Abandoned(BaseException):
    """The run is over: no more calls are made."""


Work = Callable[[Any], Callable[[], Any]]
Judge = Callable[[Any, Sequence[Ended | None]], str | None]


class Touched(NamedTuple):
    """What a call depends on or changes.

    A key that ends in "/", or is "", stands for all keys below it.
    """

    keys: tuple[str, ...]
    is_changed: bool

    def commutes(self, other: "Touched") -> bool:
        """Return True if the order of the two calls makes no difference."""
        if not (self.is_changed or other.is_changed):
            return True
        return not any(_overlap(one, two) for one in self.keys for two in other.keys)


def _overlap(one: str, other: str) -> bool:
    return one == other or _is_below(one, other) or _is_below(other, one)


def _is_below(key: str, prefix: str) -> bool:
    return (prefix.endswith("/") or not prefix) and key.startswith(prefix)


@dataclass(frozen=True, slots=True)
class Medium:
    """What a walk has to know of a kind of store.

    Attributes
    ----------
    touches : dict of callables
        For each method before which an actor stops: what a call with these arguments touches.
    content : callable
        Returns what a store has; two stores with the same content are one state.
    """

    touches: dict[str, Callable[..., Touched]]
    content: Callable[[Any], Hashable]

    def commute(self, one: Called, other: Called) -> bool:
        """Return True if the order of two calls makes no difference."""
        first, second = (self.touches[call.name](*call.arguments) for call in (one, other))
        return first.commutes(second)


def walk(
    medium: Medium,
    begin: Callable[[], Any],
    works: Sequence[Work],
    judge: Judge,
    *,
    most: int = 100_000,
) -> Walked:
    """Run `works` on a store in all orders of their calls.

    Parameters
    ----------
    medium : Medium
        What calls there are.
    begin : callable
        Returns a new store, the same each time.
    works : sequence of callables
        What each actor does: given the store, it prepares, and returns what it does in turns with
        the others. The actors prepare one after another.
    judge : callable
        Names the problem of a store and of what the actors returned or raised, if there is one;
        None stands for an actor that is at work. It is asked in each new state.
    most : int
        More runs than that are an error.
    """
    walked = Walked()
    asleep: dict[Hashable, frozenset[int]] = {}
    judged = set()
    orders: list[tuple[_Order, frozenset[int]]] = [((), frozenset())]
    while orders:
        assert walked.runs < most, f"more than {most} runs, and {len(asleep)} states"
        walked.runs += 1
        order, sleeping = orders.pop()
        run = _Run(medium, begin(), works)
        try:
            run.repeat(order)
            while True:
                has = (medium.content(run.store), run.ends())
                if has not in judged:
                    judged.add(has)
                    problem = judge(run.store, [actor.ended for actor in run.actors])
                    if problem is not None:
                        walked.problems.setdefault(problem, run.made)
                        break
                state, waiting = (has, run.told()), run.waiting()
                # Met before with fewer asleep: only those that were asleep then are of interest.
                before = asleep.get(state, frozenset(waiting))
                asleep[state] = before & sleeping
                turns = _turns(medium, waiting, before, sleeping)
                if not turns:
                    break
                (first, sleeping), *others = turns
                orders.extend(((*run.order, turn), slept) for turn, slept in others)
                run.step(first[0])
        finally:
            run.end()
    walked.states = len(asleep)
    return walked


_Turn = tuple[int, Called]
_Order = tuple[_Turn, ...]


def _turns(
    medium: Medium, waiting: dict[int, Called], before: frozenset[int], sleeping: frozenset[int]
) -> list[tuple[_Turn, frozenset[int]]]:
    """Return the turns to be taken in a state, each with the actors that are asleep after it."""
    turns, slept = [], set(sleeping) | (waiting.keys() - before)
    for number in sorted(before - sleeping):
        called = waiting[number]
        after = frozenset(one for one in slept if medium.commute(waiting[one], called))
        turns.append(((number, called), after))
        slept.add(number)
    return turns


class Actor:
    """One who works on a store in a thread that stops before each call."""

    def __init__(self, medium: Medium, store: Any, work: Work, number: int) -> None:
        self.number = number
        self.pending: Called | None = None
        self.ended: Ended | None = None
        self.told: list[Hashable] = []
        self.drawn = 0
        self._turn = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._is_abandoned = False
        self._work = work
        self._store = _Stopping(store, self, medium)
        self._is_prepared = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        _OF_THREADS[self._thread] = self
        self._thread.start()
        self._wait()

    def step(self) -> None:
        """Let the pending call be made, and wait for the next one."""
        self._turn.release()
        self._wait()

    def abandon(self) -> None:
        """Let the thread end."""
        self._is_abandoned = True
        self._turn.release()
        self._thread.join(_PATIENCE)
        assert not self._thread.is_alive(), f"actor {self.number} does not end"
        del _OF_THREADS[self._thread]

    def stop(self, called: Called) -> None:
        """Wait, as the actor, until the call may be made."""
        assert threading.current_thread() is self._thread, f"{called}: made by another thread"
        if not self._is_prepared:
            return
        if self._is_abandoned:
            raise _Abandoned
        self.pending = called
        self._stopped.release()
        self._turn.acquire()
        if self._is_abandoned:
            raise _Abandoned
        self.pending = None

    def _run(self) -> None:
        try:
            act = self._work(self._store)
            self._is_prepared = True
            self.ended = Ended(returned=act())
        except _Abandoned:
            pass
        except Exception as error:
            self.ended = Ended(raised=error)
        self._stopped.release()

    def _wait(self) -> None:
        assert self._stopped.acquire(timeout=_PATIENCE), f"actor {self.number} hangs"


class _Run:
    """One run: the store, the actors, and the calls that were made."""

    def __init__(self, medium: Medium, store: Any, works: Sequence[Work]) -> None:
        self.store = store
        self.order: list[_Turn] = []
        self.actors = [Actor(medium, store, work, number) for number, work in enumerate(works)]

    def repeat(self, order: _Order) -> None:
        """Make the calls of an order; AssertionError if an actor makes others."""
        for number, called in order:
            found = self.actors[number].pending
            assert found == called, f"actor {number}: found {found}, expected {called}"
            self.step(number)

    @property
    def made(self) -> list[str]:
        """Return the calls in words, each with the number of its actor."""
        return [f"{number}: {called}" for number, called in self.order]

    def waiting(self) -> dict[int, Called]:
        """Return the actors that wait, with their next calls."""
        return {one.number: one.pending for one in self.actors if one.pending is not None}

    def step(self, number: int) -> None:
        """Let an actor make its call."""
        called = self.actors[number].pending
        assert called is not None
        self.order.append((number, called))
        self.actors[number].step()

    def told(self) -> Hashable:
        """Return what each actor was told."""
        return tuple(tuple(actor.told) for actor in self.actors)

    def ends(self) -> Hashable:
        """Return how the actors ended, as far as they have."""
        return tuple(repr(actor.ended) for actor in self.actors)

    def end(self) -> None:
        """End all threads."""
        for actor in self.actors:
            actor.abandon()


class _Stopping:
    """A store as an actor has it: some calls wait for their turn, and answers are noted."""

    def __init__(self, store: Any, actor: Actor, medium: Medium) -> None:
        self._store = store
        self._actor = actor
        self._medium = medium

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if name not in self._medium.touches:
            return value

        def call(*arguments: Any, **options: Any) -> Any:
            arguments = tuple(list(one) if isinstance(one, Iterator) else one for one in arguments)
            called = Called(name, tuple(map(_noted, (*arguments, *options.values()))))
            self._actor.stop(called)
            try:
                answer = value(*arguments, **options)
            except Exception as error:
                self._actor.told.append((called, repr(error)))
                raise
            if isinstance(answer, Iterator):  # A list is made at one moment.
                values = list(answer)
                answer = iter(values)
            else:
                values = answer
            self._actor.told.append((called, _noted(values)))
            return answer

        return call


def _noted(answer: Any) -> Hashable:
    """Return an answer, or an argument, as a value that does not change."""
    if isinstance(answer, bytearray | memoryview):
        return bytes(answer)
    if isinstance(answer, list | tuple):
        return tuple(map(_noted, answer))
    try:
        hash(answer)
    except TypeError:
        return repr(answer)
    return answer


_OF_THREADS: dict[threading.Thread, Actor] = {}


def drawn() -> int | None:
    """Return a number that this actor has not drawn, the same in each run; None outside a walk."""
    actor = _OF_THREADS.get(threading.current_thread())
    if actor is None:
        return None
    actor.drawn += 1
    return actor.number * 1_000_000 + actor.drawn
