"""Keep cores busy beside a run of tests.

python -m support.load COUNT        until standard input closes
"""

import multiprocessing
import sys


def burn() -> None:
    """Use one core forever."""
    while True:
        pass


def main() -> None:
    """Keep the cores busy until standard input closes."""
    processes = [multiprocessing.Process(target=burn, daemon=True) for _ in range(int(sys.argv[1]))]
    for process in processes:
        process.start()
    sys.stdin.read()
    for process in processes:
        process.kill()


if __name__ == "__main__":
    main()
