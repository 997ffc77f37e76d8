"""Convert between requests and OpenAI's chat completions at the upstream: request bodies, responses, errors."""
