"""atheris at work on one target; it ends the process, with a status that is not 0 where the target failed.

    python -m fuzz.one TARGET[,TARGET …] [CORPUS | FILE …] [-options of libFuzzer]

With files it only checks these.
"""

import resource
import sys
from random import Random

import atheris

from fuzz.targets import find

_MOST = 2 << 30  # bytes of memory, above which the target gets a MemoryError


def main():
    resource.setrlimit(resource.RLIMIT_AS, (_MOST, _MOST))
    name, *arguments = sys.argv[1:]
    with atheris.instrument_imports(include=["gateway"]):
        target = find(name)

    def mutated(data, most, seed):
        """Half of the time what the bytes mean is changed, else the bytes."""
        random = Random(seed)
        changed = target.mutated(data, random) if random.random() < 0.5 else data
        return changed if changed != data and len(changed) <= most else atheris.Mutate(data, most)

    options = {"custom_mutator": mutated} if target.mutated else {}
    atheris.Setup([sys.argv[0], *arguments], target.check, **options)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
