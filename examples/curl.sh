#!/bin/sh
# One request to each API of the gateway. GET /v1/models lists the models that a request can name.
set -eu

curl -s http://127.0.0.1:8900/v1/models

curl -sN http://127.0.0.1:8900/v1/chat/completions -H 'content-type: application/json' \
    -d '{"model": "smollm2", "messages": [{"role": "user", "content": "Hello!"}], "stream": true}'

curl -sN http://127.0.0.1:8900/v1/responses -H 'content-type: application/json' \
    -d '{"model": "smollm2", "input": "Hello!", "stream": true, "store": false}'

curl -sN http://127.0.0.1:8900/v1/messages -H 'content-type: application/json' \
    -d '{"model": "smollm2", "max_tokens": 200, "messages": [{"role": "user", "content": "Hello!"}], "stream": true}'
