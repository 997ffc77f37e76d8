"""Test `gateway usage`, which reads the store directly."""

import asyncio
import json

import pytest

from gateway.cli.usage import usage_table
from gateway.store import Database, usage_sums
from gateway.store.records import UsageSums
from support.cli import config_writer, run

DAY = 20_000  # 2024-10-04
USAGE = {
    (DAY, "ann", "m"): UsageSums(12, 123_456, 0, 789, 12_345),
    (DAY + 1, "ann", "n"): UsageSums(1, 10, 5, 20, 500),
    (DAY + 1, "", "m"): UsageSums(1000, 1, 2, 3, 0),
}
DAYS = "--since", "2024-10-04", "--until", "2024-10-31"


@pytest.fixture
def usage(tmp_path):
    """Return a function that runs `gateway usage` for a store of its own."""
    file = config_writer(tmp_path)(f'store: {{url: "sqlite:///{tmp_path}/gateway.db"}}')
    return lambda *words: run("usage", *words, "--config", file)


async def fill(url):
    store = Database(url)
    async with store.writing() as db:
        await usage_sums.add(db, USAGE)
    await store.close()


@pytest.mark.edge
def test_usage_command_prints_what_the_store_has(usage, tmp_path):
    asyncio.run(fill(f"sqlite:///{tmp_path}/gateway.db"))
    code, out, err = usage(*DAYS)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "KEY    REQUESTS    INPUT  CACHED  OUTPUT  SECONDS",
        "-         1,000        1       2       3      0.0",
        "ann          13  123,466       5     809     12.8",
        "total     1,013  123,467       7     812     12.8",
    ]
    code, out, _ = usage(*DAYS, "--by", "day", "--by", "model", "--json")
    report = json.loads(out)
    assert [(row["day"], row["model"], row["requests"]) for row in report["data"]] == [
        ("2024-10-04", "m", 12),
        ("2024-10-05", "m", 1000),
        ("2024-10-05", "n", 1),
    ]
    assert (report["object"], report["since"], report["until"]) == ("usage", "2024-10-04", "2024-10-31")


@pytest.mark.edge
def test_usage_command_creates_no_store(usage, tmp_path):
    assert usage("--by", "day", "--by", "key") == (
        0,
        "DAY    KEY  REQUESTS  INPUT  CACHED  OUTPUT  SECONDS\ntotal              0      0       0       0      0.0\n",
        "",
    )
    assert not (tmp_path / "gateway.db").exists()


def test_usage_command_refuses_wrong_dates_and_columns(usage):
    assert usage("--since", "October") == (2, "", "'since' should be a date like 2026-01-31, not 'October'.\n")
    assert usage(*DAYS[2:], "--since", "2024-11-01")[2] == "'since' (2024-11-01) is after 'until' (2024-10-31).\n"
    code, _, err = usage("--by", "hour")
    assert code == 2 and "'hour' is not one of 'key', 'model', 'day'" in err


@pytest.mark.parametrize("store", ["{}", "{url: 'sqlite:///a.db', usage: false}"])
def test_usage_command_says_that_none_is_kept(tmp_path, store):
    code, out, err = run("usage", "--config", config_writer(tmp_path)(f"store: {store}"))
    assert (code, out) == (2, "")
    assert err == "The store keeps no usage. Set store.url in the configuration, and leave store.usage at true.\n"


def test_usage_command_needs_a_configuration(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, _, err = run("usage")
    assert code == 2 and "use --config FILE" in err


def test_usage_table_aligns_numbers_to_the_right():
    row = {"requests": 1, "input_tokens": 2, "cached_tokens": 3, "output_tokens": 4, "seconds": 5.06}
    table = usage_table({"by": ["model"], "data": [{"model": "qwen-long", **row}], "total": row})
    assert table.splitlines() == [
        "MODEL      REQUESTS  INPUT  CACHED  OUTPUT  SECONDS",
        "qwen-long         1      2       3       4      5.1",
        "total             1      2       3       4      5.1",
    ]
