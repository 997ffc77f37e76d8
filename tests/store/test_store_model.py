"""Compare stored responses and conversations with plain lists after random operations."""

import asyncio
import itertools

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import func, select

from gateway.store import Database, conversations, event_logs, item_lists, jobs, responses, tables
from gateway.store.records import LogRow, NewJob, NewResponse, OpenedResponse
from support.sampling import examples

pytestmark = pytest.mark.smoke

FEW = st.integers(0, 3)
NUMBERS = itertools.count()


class Cell:
    """An item: erased with its response, or removed from its conversation."""

    def __init__(self):
        number = next(NUMBERS)
        self.body = {"id": f"item_{number}", "text": f"text {number}"}
        self.erased = self.removed = False


class Talk:
    """A conversation of the model."""

    def __init__(self):
        self.id, self.cells, self.alive = f"conv_{next(NUMBERS)}", [], True


class SavedResponse:
    """A response of the model: all cells up to its end, and the place of its own ones."""

    def __init__(self, chain, first, output, talk=None):
        self.id, self.chain, self.first, self.output, self.talk = f"resp_{next(NUMBERS)}", chain, first, output, talk
        self.alive = self.finished = True


def shown(cells):
    return [cell.body for cell in cells if not (cell.erased or cell.removed)]


class Machine(RuleBasedStateMachine):
    """Each run is a tenant of its own; another tenant sees nothing of it."""

    url = ""
    response_bundle, talks, running = Bundle("responses"), Bundle("talks"), Bundle("running")

    def __init__(self):
        super().__init__()
        self.runner = asyncio.Runner()
        self.tenant, self.now = f"tenant{next(NUMBERS)}", 0
        self.database = Database(self.url)

    def teardown(self):
        self.runner.run(self.database.close())
        self.runner.close()

    def write(self, function, *arguments):
        async def run():
            async with self.database.writing() as db:
                return await function(db, *arguments)

        self.now += 1
        return self.runner.run(run())

    def find(self, kind, id):
        found = self.write(kind.find, self.tenant, id)
        assert self.write(kind.find, "another", id) is None
        return found

    def save(self, behind, before, counts, talk=None):
        """Save a response; before: the cells that it continues."""
        given, output = ([Cell() for _ in range(count)] for count in counts)
        new = SavedResponse([*before, *given, *output], len(before), len(before) + len(given), talk)
        body = {"id": new.id, "output": [cell.body for cell in output], "tools": [1]}
        self.write(responses.save, self.tenant, body, [cell.body for cell in given], behind, self.now)
        if talk:
            talk.cells = [*new.chain]
        return new

    @rule(target=response_bundle, counts=st.tuples(FEW, FEW))
    def begin(self, counts):
        return self.save(None, [], counts)

    @rule(target=response_bundle, old=response_bundle, counts=st.tuples(FEW, FEW))
    def go_on(self, old, counts):
        if not old.alive:
            return multiple()
        return self.save(self.find(responses, old.id).behind, old.chain, counts)

    def open(self, parent, before, count):
        """Open a response that is not finished."""
        given = [Cell() for _ in range(count)]
        new = SavedResponse([*before, *given], len(before), len(before) + count)
        new.finished = False
        body = {"id": new.id, "output": [], "status": "queued", "tools": [1]}
        response = NewResponse(self.tenant, body, [cell.body for cell in given], self.now, parent)
        self.write(jobs.open, [OpenedResponse(response, NewJob(self.tenant, new.id, b"", "a", self.now, 1))])
        self.write(event_logs.append, [(new.id, LogRow(0, 2, b"abc" * 9)), (new.id, LogRow(3, 3, b"d"))])
        return new

    @rule(target=running, count=FEW)
    def open_anew(self, count):
        return self.open(None, [], count), None, None

    @rule(target=running, old=response_bundle, count=FEW)
    def open_behind(self, old, count):
        if not old.alive:
            return multiple()
        return self.open(self.find(responses, old.id).behind, old.chain, count), None, None

    @rule(target=running, talk=talks, count=FEW)
    def open_in(self, talk, count):
        if not talk.alive:
            return multiple()
        found = self.find(conversations, talk.id)
        return self.open(found.behind, talk.cells, count), talk, found

    @rule(target=response_bundle, one=running, part=st.booleans(), count=FEW)
    def finish(self, one, part, count):
        """Finish a response; part: it joins its conversation, a failed one does not."""
        new, talk, found = one
        if new.finished:
            return multiple()
        output = [Cell() for _ in range(count)]
        body = {"id": new.id, "output": [cell.body for cell in output], "tools": [1]}
        mine = found if part else None
        assert self.write(responses.finish, self.tenant, body, mine, self.now) == new.alive
        assert self.write(jobs.end, [new.id], "a") == new.alive
        new.finished = True
        if not new.alive:
            return multiple()
        given = new.chain[new.first :]
        before = talk.cells if mine else new.chain[: new.first]
        new.chain, new.first, new.output = [*before, *given, *output], len(before), len(before) + len(given)
        if mine:
            new.talk, talk.cells = talk, [*new.chain]
        return new

    @rule(one=running)
    def pack(self, one):
        if one[0].finished:
            self.runner.run(event_logs.pack(self.database, one[0].id))

    @rule(one=running)
    def look_at_the_log(self, one):
        data = b"".join(row.data for row in self.write(event_logs.read, one[0].id, -1, 9))
        assert data == (b"abc" * 9 + b"d" if one[0].alive else b"")

    @rule(one=running)
    def look_at_one_that_is_not_finished(self, one):
        if not one[0].finished:
            self.look_at_a_response(one[0])

    @rule(one=running)
    def delete_one_that_is_not_finished(self, one):
        if not one[0].finished:
            self.delete(one[0])

    @invariant()
    def threads_know_what_they_take(self):
        def size(column, *which):
            return select(func.coalesce(func.sum(func.length(column)), 0)).where(*which).scalar_subquery()

        each, body, log = tables.threads.c, tables.responses.c, tables.events.c
        parts = (
            size(tables.items.c.body, tables.items.c.thread == each.id),
            size(body.body, body.thread == each.id),
            size(log.data, log.packed, log.response == body.id, body.thread == each.id),
        )

        async def wrong(db):
            return (await db.execute(select(each.id).where(each.tenant == self.tenant, each.bytes != sum(parts)))).all()

        assert self.write(wrong) == []

    @rule(target=talks, count=FEW)
    def converse(self, count):
        talk = Talk()
        talk.cells = [Cell() for _ in range(count)]
        items = [cell.body for cell in talk.cells]
        self.write(conversations.create, self.tenant, talk.id, {"a": "b"}, items, self.now)
        return talk

    @rule(talk=talks, count=FEW)
    def add(self, talk, count):
        if talk.alive:
            new = [Cell() for _ in range(count)]
            found = self.find(conversations, talk.id)
            self.write(conversations.append, found, [cell.body for cell in new], self.now)
            talk.cells = [*talk.cells, *new]

    @rule(target=response_bundle, talk=talks, counts=st.tuples(FEW, FEW))
    def respond(self, talk, counts):
        if not talk.alive:
            return multiple()
        return self.save(self.find(conversations, talk.id), talk.cells, counts, talk)

    @rule(target=response_bundle, talk=talks, counts=st.tuples(FEW, FEW))
    def branch_off(self, talk, counts):
        """Save a response that continues a conversation without joining it, as a failed one does."""
        if not talk.alive:
            return multiple()
        return self.save(self.find(conversations, talk.id).behind, talk.cells, counts)

    @rule(old=response_bundle)
    def delete(self, old):
        if old.alive:
            self.write(responses.remove, self.find(responses, old.id))
            old.alive = False
            for cell in old.chain[old.first :] if not (old.talk and old.talk.alive) else ():
                cell.erased = True

    @rule(talk=talks, data=st.data())
    def remove(self, talk, data):
        left = [cell for cell in talk.cells if not cell.removed]
        if talk.alive and left:
            cell = data.draw(st.sampled_from(left))
            found = self.find(conversations, talk.id)
            place = self.write(item_lists.find, self.tenant, [found.items], cell.body["id"])
            self.write(item_lists.remove, place)
            cell.removed = True

    @rule(talk=talks)
    def forget(self, talk):
        if talk.alive:
            self.write(conversations.remove, talk.id)
            talk.alive = False

    @rule(old=response_bundle)
    def look_at_a_response(self, old):
        found = self.find(responses, old.id)
        assert (found is not None) == old.alive
        if found:
            output = old.chain[old.output :]
            body = {"id": old.id, "output": shown(output), "tools": [1]} | (
                {} if old.finished else {"status": "queued"}
            )
            self.compare_whole(lambda db: responses.response_object(db, found), body, output)
            self.compare_whole(lambda db: self.context(db, found), shown(old.chain), old.chain)

    @rule(old=response_bundle, newest_first=st.booleans(), data=st.data())
    def look_at_pages_of_a_response(self, old, newest_first, data):
        if old.alive:
            found = self.find(responses, old.id)
            ranges = self.write(responses.effective_input, found)
            self.compare_pages(ranges, old.chain[: old.output], newest_first, data)

    @rule(talk=talks, newest_first=st.booleans(), data=st.data())
    def look_at_a_conversation(self, talk, newest_first, data):
        found = self.find(conversations, talk.id)
        assert (found is not None) == talk.alive
        if found:
            assert (found.end, found.metadata) == (len(talk.cells), {"a": "b"})
            self.compare_whole(lambda db: item_lists.read(db, [found.items]), shown(talk.cells), talk.cells)
            self.compare_pages([found.items], talk.cells, newest_first, data)

    @rule(old=response_bundle)
    def look_up_items(self, old):
        ids = [cell.body["id"] for cell in old.chain]
        expected = {item["id"]: item for item in shown(old.chain)}
        assert self.write(item_lists.by_id, self.tenant, ids) == expected
        assert self.write(item_lists.by_id, "another", ids) == {}

    async def context(self, db, found):
        return await item_lists.read(db, await item_lists.ranges(db, found.behind))

    def compare_whole(self, read, expected, cells):
        if any(cell.erased and not cell.removed for cell in cells):
            with pytest.raises(item_lists.ItemsMissing):
                self.write(read)
        else:
            assert self.write(read) == expected

    def compare_pages(self, ranges, cells, newest_first, data):
        expected = shown(cells)[::-1] if newest_first else shown(cells)
        limit = data.draw(st.integers(1, 4))
        start = data.draw(st.integers(0, len(expected)))
        behind = None
        if start:
            after = expected[start - 1]["id"]
            behind = self.write(item_lists.find, self.tenant, ranges, after)
            assert self.write(item_lists.find, "another", ranges, after) is None

        async def page(db):
            return await item_lists.page(db, ranges, limit, newest_first=newest_first, behind=behind)

        assert self.write(page) == expected[start : start + limit]


def test_store_behaves_like_plain_lists(store_url):
    class Here(Machine):
        url = store_url

    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=examples(20), stateful_step_count=30, deadline=None, suppress_health_check=checks
        ),
    )
