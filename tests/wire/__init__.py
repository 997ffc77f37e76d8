"""One suite of cases for every model server: what goes over a real socket means the same, whatever stands behind.

    from wire.cases import CASES
    from wire.gate import opened
    from wire.server import Listed, Refused, Server

A case is a question and what has to hold of its answer; it is put whole and streamed, and both have to mean the same.  A Server
is a row: its entries under `backends:` and `models:` but for the address, and what it cannot do, each with what is said instead.
Nothing may be missing in silence: a Refused is an honest error, a Listed an entry in the ledger; only what is Left to a
template is nobody's to tell.

    VLLM = Server(
        "vllm",
        backend={"kind": "vllm"},
        model={"upstream_model": "smollm2", "format": "native"},
        window=4096,                                  # tokens of a conversation
        cannot={"overflow": Refused(), "logprobs": Listed("dropped:logprobs")},
    )

    @pytest.fixture(scope="module")
    def gate():
        with start_it() as url, opened(VLLM, url) as gate:   # a gateway on a socket in front of the server
            yield gate

    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_the_wire(gate, case):
        case.check(gate)

What `cannot` may name is what cases need: `Ability` in server.py.  The model of every server is SmolLM2-135M with the demo's
chat template (worked_examples.py says why it can call tools); the clients' name of it is `m`.
"""
