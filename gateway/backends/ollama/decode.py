"""Convert lines of Ollama's /api/chat to chunks of a chat completion, which another module decodes."""

from msgspec import Raw, field, json

from gateway.backends.ollama.wire import OllamaChunk
from gateway.backends.openai import members, wire
from gateway.backends.openai.decode import ChatDecoder as Chunks
from gateway.backends.openai.decode import unread
from gateway.backends.openai.failures import problem_from_error_object
from gateway.backends.openai.template import RepeatedChunkDecoder
from gateway.backends.openai.usage import count_value
from gateway.events import Event, Failure

_decode = json.Decoder(OllamaChunk).decode
_object = json.Decoder(dict[str, Raw]).decode
_READ = frozenset((*OllamaChunk.__struct_fields__, "model", "created_at"))  # the gateway writes its own


class OllamaDecoder(Chunks):
    """Each call is whole and is numbered here: what Ollama gives as its index differs from parser to parser."""

    _template: RepeatedChunkDecoder = field(
        default_factory=lambda: RepeatedChunkDecoder(0)
    )  # each line has a time of its own
    _calls: int = 0

    def _decoded(self, payload: bytes) -> list[Event]:
        line = self._read(payload, _decode)
        if isinstance(line, Failure):
            return [line]
        if line.error:
            return [Failure(problem_from_error_object(line.error))]
        return self.read(self._chunk(line), unread(payload, _unread))

    def _chunk(self, line: OllamaChunk) -> wire.WireChunk:
        for call in (line.message and line.message.tool_calls) or ():
            call.index, self._calls = self._calls, self._calls + 1
        reason = None
        if line.done:
            self.done, reason = True, line.done_reason or "stop"
        choice = wire.WireChoice(delta=line.message, logprobs=line.logprobs or None, finish_reason=reason)
        return wire.WireChunk(choices=[choice], usage=self._counts(line))

    def _counts(self, line: OllamaChunk) -> wire.WireUsage | None:
        """A prompt that was in the cache is not counted: it has to be estimated."""
        prompt, written = count_value(line.prompt_eval_count), count_value(line.eval_count)
        if prompt:
            return wire.WireUsage(prompt_tokens=prompt, completion_tokens=written)
        self.written = written
        return None


def _unread(payload: bytes) -> members.Unread:
    line = _object(payload)
    return members.Unread(members.unread(line, _READ), [({}, members.of_message(line.get("message")))])
