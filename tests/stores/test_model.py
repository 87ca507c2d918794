"""What is promised without locks holds in every order of the requests of all who are at work.

`support/interleaved/agents.py` is the protocol. Each test walks the orders with its rule, in which
nothing breaks, and without it, in which some order breaks what it names. Nobody needs a rule that
can be left out.
"""

import pytest

from support.interleaved.agents import (
    Agent,
    append,
    append_late,
    append_losing_replies,
    append_next_free,
    append_or_discard,
    begin,
    change_object,
    clock,
    compact,
    create_table,
    delete,
    drop,
    job,
    open_newest,
    put_hint,
    read,
    read_object,
    restore,
    sweep,
    sweep_jobs,
    tag,
    tag_newest,
    vacuum,
)
from support.interleaved.explore import explore
from support.interleaved.medium import (
    FIRST,
    FRESH,
    JOINED,
    LEFT,
    NONE,
    OBJECT,
    OLD,
    ONE,
    SECOND,
    TWO,
    Store,
    judge,
)


def problems(store: Store, *agents: Agent) -> set[str]:
    """Return the kinds of problems that any order leads to."""
    explored = explore(store, agents, judge)
    print(f"{explored.states:,} states", *explored.problems.items(), sep="\n")
    return set(explored.problems)


class TestNumbers:
    def test_a_number_of_a_file_is_never_given_out_twice(self):
        """Else a vacuum that took its time deletes, by its name, a file that was written anew."""
        assert not problems(LEFT, append("x", 10), append("y", 20), sweep(3), sweep(3))
        assert problems(LEFT, append_next_free("x", 3), sweep(3), sweep(3)) == {"gone"}

    def test_a_commit_that_fails_deletes_only_files_whose_creation_it_was_told(self):
        assert not problems(ONE, append_or_discard("x", 10), append_or_discard("y", 10))
        others = append_or_discard("y", 10, only_own=False)
        assert problems(ONE, append_or_discard("x", 10), others) == {"gone"}

    @pytest.mark.parametrize("knows", [None, (1, FIRST)])
    def test_a_version_that_is_removed_keeps_its_number(self, knows):
        """Else a writer that took its time publishes under it once more, and that is not newest."""
        first = append("x", 10, knows=knows)
        others = append("y", 20), append("z", 30)
        assert not problems(ONE, first, *others, vacuum("v"))
        assert problems(ONE, first, *others, vacuum("v", tombstones=False)) == {"lost"}


class TestCommits:
    def test_the_create_of_the_next_version_proves_that_the_known_one_is_newest(self):
        known = [append(row, 10 * n, knows=(1, FIRST)) for n, row in enumerate("xyz", 1)]
        assert not problems(ONE, *known, vacuum("v"))

    def test_a_delete_is_kept_by_a_compaction_that_read_before_it(self):
        assert not problems(JOINED, delete("a"), delete("b"), append("x", 10), compact(30))
        assert not problems(JOINED, delete("a"), append("x", 10), compact(30), vacuum("v"))
        assert problems(JOINED, delete("a"), compact(30, checks=False)) == {"back"}

    def test_who_is_told_taken_after_a_reply_was_lost_compares_what_is_there_with_its_own(self):
        known, other = (1, FIRST), append("y", 20)
        assert not problems(ONE, append_losing_replies("x", 10, known), other)
        forgets = append_losing_replies("x", 10, known, compares=False)
        assert problems(ONE, forgets, other) == {"doubled"}

    def test_a_manifest_that_was_removed_before_it_was_compared_leaves_the_outcome_open(self):
        known, others = (1, FIRST), (append("y", 20), append("z", 30), vacuum("v"))
        assert not problems(ONE, append_losing_replies("x", 10, known), *others)
        sure = append_losing_replies("x", 10, known, tells_doubts=False)
        assert problems(ONE, sure, *others) == {"doubled"}

    def test_many_may_lose_replies_at_once(self):
        both = [append_losing_replies(row, n, (1, FIRST)) for row, n in (("x", 10), ("y", 20))]
        assert not problems(ONE, *both, vacuum("v"))


class TestDrops:
    def test_numbers_go_on_after_a_table_was_dropped(self):
        """Else a writer of the old table publishes on top of the new one."""
        others = append("x", 10, hints=True), create_table("n", 40)
        assert not problems(ONE, *others, drop(), open_newest())
        assert not problems(ONE, *others, drop(), vacuum("v"), open_newest())
        assert not problems(
            ONE, append("x", 10, knows=(1, FIRST)), *others[1:], drop(), vacuum("v")
        )
        assert problems(ONE, *others, drop(keeps_numbers=False)) == {"other table"}

    def test_what_an_unfinished_creation_left_is_not_cleared(self):
        """It may be that of another writer, which is about to publish."""
        assert not problems(NONE, begin("x", 10), begin("y", 20))
        assert problems(NONE, begin("x", 10, clears=True), begin("y", 20)) == {"gone"}


class TestOpening:
    @pytest.mark.parametrize("hint_first", [True, False])
    def test_the_hint_is_believed_only_if_the_list_has_its_number(self, hint_first):
        others = append("x", 10, hints=True), append("y", 20, hints=True), vacuum("v")
        assert not problems(ONE, *others, open_newest(hint_first=hint_first))
        believes = open_newest(hint_first=hint_first, lists=False)
        assert problems(ONE, *others, believes) == {"stale"}

    def test_the_hint_is_believed_only_if_the_list_has_its_etag(self):
        """A hint comes late, perhaps after its table was removed by hand and another one made."""
        others = put_hint(1, FIRST), create_table("n", 40)
        removed = ONE._replace(manifests=(), files=frozenset(), table=0, rows=frozenset())
        assert not problems(removed, *others, open_newest())
        assert problems(removed, *others, open_newest(compares_etags=False)) == {"other table"}


class TestLeases:
    def test_a_reader_takes_a_lease_and_then_looks_for_marks(self):
        assert not problems(TWO, read(1), append("x", 10), vacuum("v"), vacuum("w"))
        assert problems(TWO, read(1, leases=False), vacuum("v")) == {"gone"}
        assert problems(TWO, read(1, looks_for_marks=False), vacuum("v")) == {"gone"}
        assert problems(TWO, read(1), vacuum("v", looks_at_leases=False)) == {"gone"}

    def test_a_vacuum_marks_with_a_mark_of_its_own(self):
        """Else another vacuum takes it back."""
        assert not problems(TWO, read(1), vacuum("v"), vacuum("w"))
        one_mark = vacuum("v", own_marks=False), vacuum("w", own_marks=False)
        assert problems(TWO, read(1), *one_mark) == {"gone"}

    def test_a_restore_takes_a_lease(self):
        assert not problems(TWO, restore(1), append("x", 10), vacuum("v"))
        assert problems(TWO, restore(1, leases=False), append("x", 10), vacuum("v")) == {"gone"}

    @pytest.mark.parametrize(("leases", "again"), [(False, False), (False, True), (True, False)])
    def test_a_tag_takes_a_lease_and_a_vacuum_looks_at_tags_again(self, leases, again):
        assert not problems(TWO, tag(1), append("x", 10), vacuum("v"))
        careless = vacuum("v", looks_at_tags=again)
        found = problems(TWO, tag(1, leases=leases), append("x", 10), careless)
        assert found == {"untrue tag"}

    def test_a_tag_of_the_newest_version_needs_a_lease_only_if_another_version_came(self):
        assert not problems(TWO, tag_newest(), append("x", 10), append("y", 20), vacuum("v"))
        careless = tag_newest(leases=False)
        assert problems(TWO, careless, append("x", 10), vacuum("v")) == {"untrue tag"}


class TestVacuums:
    def test_a_vacuum_that_misses_a_version_while_it_reads_lists_again(self):
        """Another vacuum removed it; newer versions, which are not in the list, name its files."""
        others = append("x", 10, knows=(2, SECOND)), restore(1)
        assert not problems(TWO, *others, vacuum("v"), vacuum("w"))
        careless = vacuum("v", reads_again=False), vacuum("w", reads_again=False)
        assert problems(TWO, *others, *careless) == {"gone"}

    def test_data_files_are_listed_before_manifests_are_read(self):
        others = append_late("x", 10), clock()
        assert not problems(ONE, *others, vacuum("v", orphans_at=OLD))
        assert problems(ONE, *others, vacuum("v", orphans_at=OLD, files_first=False)) == {"gone"}


class TestAges:
    def test_a_commit_refuses_files_that_are_nearly_as_old_as_orphans(self):
        others = clock(), vacuum("v", orphans_at=OLD)
        assert not problems(ONE, append_late("x", 10), *others)
        never = append_late("x", 10, looks_at_age="never")
        assert problems(ONE, never, *others) == {"gone"}

    def test_a_publication_may_not_take_longer_than_the_day_between_the_two_ages(self):
        before = append_late("x", 10, looks_at_age="before")
        assert problems(ONE, before, clock(), vacuum("v", orphans_at=OLD)) == {"gone"}

    def test_a_vacuum_leaves_the_files_of_a_moment_ago(self):
        assert problems(ONE, append("x", 10), vacuum("v", orphans_at=FRESH)) == {"gone"}

    def test_a_job_that_holds_a_lease_needs_no_clock(self):
        assert not problems(ONE, job("x", 10), sweep_jobs("v", 10), append("y", 20))
        both = sweep_jobs("v", 10, 20), sweep_jobs("w", 10, 20)
        assert not problems(ONE, job("x", 10), job("y", 20), *both)
        assert problems(ONE, job("x", 10), sweep_jobs("v", 10, marks=False)) == {"gone"}


class TestOneObject:
    def test_a_change_replaces_the_object_that_was_read(self):
        assert not problems(OBJECT, change_object("x"), change_object("y"))
        blind = change_object("x", conditionally=False)
        assert problems(OBJECT, blind, change_object("y")) == {"lost"}

    def test_all_ranges_are_of_the_object_that_was_read_first(self):
        assert not problems(OBJECT, change_object("x"), read_object())
        assert problems(OBJECT, change_object("x"), read_object(conditionally=False)) == {"mixed"}


class TestAllAtOnce:
    """All rules: appends, a delete, a tag, a vacuum and a reader with a lease."""

    APPENDS = append("x", 10, knows=(2, SECOND)), append("y", 20, knows=(2, SECOND))
    OTHERS = delete("b"), tag(1), vacuum("v"), read(1)

    def test_with_one_append(self):
        assert not problems(TWO, self.APPENDS[0], *self.OTHERS)

    @pytest.mark.storm
    def test_with_two_appends(self):
        assert not problems(TWO, *self.APPENDS, *self.OTHERS)

    @pytest.mark.storm
    def test_with_two_vacuums(self):
        others = append("x", 10), vacuum("v"), vacuum("w"), read(1)
        assert not problems(TWO, tag(1), *others)
        assert not problems(TWO, restore(1), *others)
