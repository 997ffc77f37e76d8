"""Run all programs at all heats, in turn.

Every program runs once in each round of each heat, so that all share the busy moments of the machine.
"""

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack

from msgspec.structs import replace

from bench import traffic
from bench.peers.heats import IDLE, START, Heat
from bench.peers.programs import GATEWAY_NAME, Peer, prepare
from bench.processes import NotReady
from bench.rounds import Server, Track, Wrong, direct, say, through
from bench.scenarios import CROWDED, Run
from bench.traffic import Traffic

DIRECT = "direct"
_HELLO = Traffic("mock", "m=plain,n=2", 1, 1, stream=False)

Values = dict[str, list[float]]  # by program


class Race:
    """The results so far, as rows of figures by program, with notes about failures."""

    def __init__(self, track: Track) -> None:
        self.rows: dict[str, Values] = {START: {}, IDLE: {}}
        self.units = {START: "s", IDLE: "MB"}
        self.versions: dict[str, str] = {}
        self.notes: list[str] = []
        self._track = track
        self._busy: list[str] = []

    def run(self, peers: Sequence[Peer], heats: Sequence[Heat], rounds: int) -> None:
        """Install, start and measure all programs."""
        ready = [peer for peer in peers if self._prepared(peer)]
        with ExitStack() as stack:
            mock = stack.enter_context(self._track.mock())
            servers = {peer: server for peer in ready if (server := self._entered(peer, mock, stack))}
            for number in range(1, rounds + 1):
                for heat in (heat for heat in heats if number == 1 or not heat.once):
                    say(f"round {number}/{rounds}: {heat.scenario.name}")
                    self._direct(heat, mock)
                    for peer, server in servers.items():
                        if peer.can & heat.needs:
                            self._measured(heat, peer, server, mock)
        say("")
        if self._busy:
            programs = "; ".join(dict.fromkeys(self._busy))
            share = f"more than {CROWDED:.0%} of the time"
            self.notes.append(f"others had the gateway's core for {share}, read CPU only: {programs}")

    def _prepared(self, peer: Peer) -> bool:
        say(f"installing {peer.name}")
        try:
            self.versions[peer.name] = prepare(peer)
        except (OSError, subprocess.SubprocessError) as problem:
            self.notes.append(f"{peer.name} could not be installed: {problem}")
            return False
        return True

    def _entered(self, peer: Peer, mock: Server, stack: ExitStack) -> Server | None:
        say(f"starting {peer.name}")
        try:
            server = stack.enter_context(self._track.started(peer.program, mock))
            self._began(peer, server, mock)
        except (NotReady, OSError, subprocess.SubprocessError) as problem:
            self.notes.append(f"{peer.name} does not start: {problem}")
            return None
        return server

    def _began(self, peer: Peer, server: Server, mock: Server) -> None:
        """Measure the time until the first response, and the memory then."""
        answer = traffic.run(peer.traffic_for(_HELLO, mock.port), server.port)
        self._add(START, peer.name, server.start + answer.tot50 / 1000)
        self._add(IDLE, peer.name, server.idle / 1e6)

    def _direct(self, heat: Heat, mock: Server) -> None:
        self._take(heat, DIRECT, direct(heat.scenario, mock))

    def _measured(self, heat: Heat, peer: Peer, server: Server, mock: Server) -> None:
        scenario = replace(heat.scenario, traffic=peer.traffic_for(heat.scenario.traffic, mock.port))
        try:
            if scenario.fresh:
                with self._track.started(peer.program, mock) as own:
                    self._began(peer, own, mock)
                    run = through(scenario, own)
            else:
                run = through(scenario, server)
        except (NotReady, Wrong, subprocess.SubprocessError) as problem:
            self.notes.append(f"{peer.name}, {scenario.name}: {problem}")
            return
        self._take(heat, peer.name, run)
        if peer.name == GATEWAY_NAME and run.waiting > CROWDED:
            self._busy.append(scenario.name)
        if run.missing:
            self.notes.append(f"{peer.name}, {scenario.name}: {run.failure}")

    def _take(self, heat: Heat, name: str, run: Run) -> None:
        for row in heat.scenario.rows:
            if row.name not in heat.left_out and (row.direct or name != DIRECT):
                title = f"{heat.scenario.name}: {row.name}"
                self.units[title] = row.unit
                self._add(title, name, row.value(run))

    def _add(self, title: str, name: str, value: float) -> None:
        self.rows.setdefault(title, {}).setdefault(name, []).append(value)
