"""The results as a page to read: docs/reference/conformance.md."""

import json
from collections import Counter, defaultdict
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path

from conformance.words import CLIENTS, ENGINES, HEAD, RECORDED, SERVERS
from support.paths import ROOT

FILE = ROOT / "docs/reference/conformance.md"
RESULTS = Path(__file__).parent / "results"
LIVE = ("wire", "engines")
MODELS = ("native", "hermes")  # of the clients; what others talk to is a script
MANY = 4  # cases are too many to be named
KINDS = ("answers", "thoughts", "calls", "usage", "failures")


def write(part, result):
    text = json.dumps(result, indent=1, ensure_ascii=False)
    (RESULTS / f"{part}.json").write_text(f"{text}\n", "utf-8")


def read():
    """The last results of each part."""
    return {file.stem: json.loads(file.read_text("utf-8")) for file in RESULTS.glob("*.json")}


def page(results):
    """All of it, in Markdown."""
    parts = (engines(results), clients(results["clients"]), recordings(results["recordings"]))
    return "\n".join((HEAD, *chain.from_iterable((*part, "") for part in parts)))


def failures(results):
    """What is not as it has to be, each as a line."""
    for part in LIVE:
        for name, server in results[part]["servers"].items():
            yield from (f"{part} · {name} · {case}" for case, outcome in cases(server) if outcome == "fails")
    yield from (f"clients · {check}" for check in failed(results["clients"]))
    for name, server in results["recordings"]["servers"].items():
        yield from (f"recordings · {name} · {kind}" for kind, (right, all) in server["told"].items() if right < all)


# Engines


def engines(results):
    live = {name: server for part in LIVE for name, server in results[part]["servers"].items()}
    features = dict.fromkeys(feature for server in live.values() for feature in server["features"])
    yield ENGINES
    yield from table(("", "what it is", "version", "settings", "run"), servers(results))
    yield ""
    yield from table(
        ("", *(SERVERS[name][0] for name in live)),
        ((feature, *(cell(server["features"].get(feature, {})) for server in live.values())) for feature in features),
    )
    for name, server in live.items():
        yield f"\n### {SERVERS[name][0]}\n"
        yield from details(server)


def servers(results):
    for result in (results[part] for part in LIVE):
        for name, server in result["servers"].items():
            title, what = SERVERS[name]
            versions = {engine: version for engine, version in result["versions"].items() if engine in what}
            settings = (f"`{key}: {flat(value)}`" for key, value in server["settings"].items())
            yield title, what, named(versions), ", ".join(settings), result["date"]


def named(versions):
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def flat(value):
    return value if isinstance(value, str) else f"[{', '.join(value)}]"


def cell(outcomes):
    """How many of all hold, and what becomes of the others."""
    if not outcomes:
        return "–"
    hows = Counter(how(outcome) for outcome in outcomes.values())
    done = hows["holds"] + hows["emulated"]
    others = [f"{count} {word}" for word, count in sorted(hows.items()) if word != "holds"]
    return ", ".join((f"{done}/{len(outcomes)}", *others))


def how(outcome):
    word, _, warnings = outcome.partition(": ")
    return "emulated" if word == "holds" and "emulated:" in warnings else word


def details(server):
    """A line for each code of the ledger, with what it was about, and for all else that is said where a case does not hold."""
    entries, others = defaultdict(dict), defaultdict(list)
    for feature, outcomes in server["features"].items():
        for case, outcome in outcomes.items():
            word, _, warnings = outcome.partition(": ")
            if word in ("holds", "listed"):
                for code, _, subject in (entry.partition(":") for entry in warnings.split(", ") if entry):
                    entries[code].setdefault(subject, {})[feature] = None
            else:
                others[word, warnings].append((feature, case))
    for code, subjects in sorted(entries.items()):
        found = (f"`{subject}` ({', '.join(features)})" for subject, features in sorted(subjects.items()))
        yield f"- {code}: {'; '.join(found)}"
    for (word, warnings), found in sorted(others.items()):
        yield f"- {word}: {'; '.join(summed(found, server))}" + (f": “{warnings}”" if warnings else "")


def summed(found, server):
    """Features; of one that only a few cases of are meant, those as well."""
    for feature, those in groupby(found, itemgetter(0)):
        names = [case.replace("_", " ") for _, case in those]
        few = len(names) < min(len(server["features"][feature]), MANY)
        yield f"{feature} ({', '.join(names)})" if few else feature


def cases(server):
    return ((case, outcome) for feature in server["features"].values() for case, outcome in feature.items())


# Clients


def clients(result):
    yield CLIENTS.format(date=result["date"], versions=named(result["versions"]))
    yield from table(
        ("client", "llama.cpp parses", "the gateway parses", "a script"), map(asking, result["clients"].items())
    )
    if bad := [f"- fails: {check}" for check in failed(result)]:
        yield from ("", *bad)


def failed(result):
    for client, models in result["clients"].items():
        for model, checks in models.items():
            yield from (f"{client} · {model} · {check}" for check, word in checks.items() if word != "ok")


def asking(row):
    client, models = row
    scripted = {
        check: word for model, checks in models.items() if model not in MODELS for check, word in checks.items()
    }
    return client, *(passed(models.get(model, {})) for model in MODELS), passed(scripted)


def passed(checks):
    good = [check for check, outcome in checks.items() if outcome == "ok"]
    return f"{len(good)}/{len(checks)}" if checks else "–"


# Recordings


def recordings(result):
    yield RECORDED.format(date=result["date"])
    yield from table(("server", "exchanges", *KINDS, "listed"), map(recorded, result["servers"].values()))


def recorded(server):
    counts = (f"{right}/{all}" for right, all in (server["told"].get(kind, (0, 0)) for kind in KINDS))
    listed = (f"`{entry}` {count}" for entry, count in server["listed"].items())
    return (
        server["server"],
        str(server["exchanges"]),
        *(count if count != "0/0" else "–" for count in counts),
        ", ".join(listed),
    )


def table(head, rows):
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    yield from (f"| {' | '.join(cells)} |" for cells in rows)
