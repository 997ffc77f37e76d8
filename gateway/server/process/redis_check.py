"""Say why the gateway cannot count usage in Redis."""

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError
from redis.retry import Retry

from gateway.server.upstream.failure_text import cause_text

_SECONDS = 5  # to connect, and for the response
_KEY = "limits.url"


def redis_problem(url: str) -> str:
    """Return why the Redis at this URL cannot be used, "" if it can.  It blocks."""
    timeouts = {"socket_timeout": _SECONDS, "socket_connect_timeout": _SECONDS}
    try:
        with Redis.from_url(url, retry=Retry(NoBackoff(), 0), **timeouts) as redis:
            redis.ping()
    except AuthenticationError:
        return f"Redis refuses the login; check the user and the password in {_KEY}"
    except (RedisError, OSError) as error:
        return _failure_text(error)
    return ""


def _failure_text(error: Exception) -> str:
    cause = error.__cause__ or error.__context__ or error
    if isinstance(cause, OSError):
        return cause_text(cause, program="Redis", url=_KEY, within=f" within {_SECONDS} s")
    return f"Redis reports: {str(error).rstrip('.')}; is it Redis, and is {_KEY} right?"
