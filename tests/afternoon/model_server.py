"""A model server that counts what it does: each answer has other numbers of tokens."""

from collections import Counter
from itertools import count

from support.upstream import Upstream, chunk, completion_body, frame, stream, whole

COUNTED = ("requests", "input_tokens", "cached_tokens", "output_tokens")
_FAULT = whole({"error": {"message": "out of memory"}}, status=500)


class ModelServer(Upstream):
    """counts: what it has answered, by model and by the names of a usage report.

    fails_each: each so many requests fails; 0: none.
    """

    def __init__(self, *models, fails_each=0):
        super().__init__((), models)
        self.counts, self.fails_each, self._numbers = Counter(), fails_each, count(1)

    def script_for(self, request):
        """Return the answer to a request, and count it."""
        number, body = next(self._numbers), request.json
        if self.fails_each and number % self.fails_each == 0:
            return _FAULT
        tokens = 1, 10 + number % 7, number % 5, 2 + number % 6
        self.counts.update({(body["model"], name): more for name, more in zip(COUNTED, tokens, strict=True)})
        return _answer(*tokens[1:], streamed=body.get("stream"))


def _answer(prompt, cached, words, *, streamed):
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": words,
        "total_tokens": prompt + words,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    if streamed:
        return stream(*[chunk("word ")] * words, chunk(finish="stop"), frame(choices=[], usage=usage))
    return whole({**completion_body("word " * words), "usage": usage})
