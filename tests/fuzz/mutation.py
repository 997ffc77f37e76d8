"""A text with one value of its JSON changed: so that what is fuzzed is what is in it, and not only its syntax."""

import json
import re
from copy import deepcopy

_LINE = re.compile(rb"(?m)[\[{].*[\]}]\r?$")  # one JSON text, perhaps behind `data: `
_ODD = (
    None, True, False, 0, 1, -1, 2**63, 10**40, 1e308, 0.5, "", "a", "\0", "\U0001f600", "\\", '"', "null", [], {}, [[]],
    {"": None}, [None], {"type": "function"}, {"type": "text", "text": ""}, [{"type": None}], ["a", "a"],
)  # fmt: skip


def mutated(data: bytes, random) -> bytes:
    """The same with one or a few values of one of its JSON texts replaced, removed, doubled or moved."""
    found = [match.span() for match in _LINE.finditer(data)]
    if not found:
        return data
    begin, end = random.choice(found)
    try:
        value = json.loads(data[begin:end])
        for _ in range(random.randint(1, 3)):
            _change(value, random)
        text = json.dumps(value, ensure_ascii=random.random() < 0.5)
    except (ValueError, RecursionError):  # it is none, or too large
        return data
    return data[:begin] + text.encode("utf-8", "replace") + data[end:]


def _change(root, random):
    places = [*_places(root)]
    if not places:
        return
    holder, key = random.choice(places)
    how = random.randrange(5)
    if how == 0:
        del holder[key]
    elif how == 1:
        holder[key] = deepcopy(random.choice(_ODD))
    elif how == 2:  # a value of elsewhere
        other, place = random.choice(places)
        holder[key] = deepcopy(other[place])
    elif how == 3 and isinstance(holder, list):
        holder.insert(key, deepcopy(holder[key]))
    elif isinstance(holder, dict):  # a name of elsewhere
        names = [place for _, place in places if isinstance(place, str)]
        holder[random.choice(names)] = holder.pop(key)
    else:
        random.shuffle(holder)


def _places(root):
    """Where each value in it stands, one inside the other."""
    left = [root]
    while left:
        holder = left.pop()
        keys = holder if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            yield holder, key
            left.append(holder[key])
