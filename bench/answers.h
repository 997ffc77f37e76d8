// The responses of the mock upstream: whole HTTP responses, built once per wish and cached.
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef enum { PLAIN, TOOLS, THINK, MARKUP, REASON } Mode;
typedef enum { CHAT_WHOLE, CHAT_STREAM, RESPONSES_WHOLE, RESPONSES_STREAM } Kind;

typedef struct {
    Kind kind;
    Mode mode;
    int chunks;   // of content
    int size;     // characters in each
    int call_at;  // MARKUP: per cent of the chunks that are plain text before the tool call
    bool stamped; // each piece of text is "@T" and 16 digits, the time of its writing
    bool usage;   // a usage chunk before the end
} Wish;

// A response is a row of pieces, one HTTP chunk each (a whole body is a single piece).
typedef struct Answer {
    Wish wish;
    char *bytes;
    int pieces;
    size_t *start; // of each piece, and at [pieces] the length of all
    size_t *stamp; // position of the 16 digits of a piece; 0: none
    struct Answer *next;
} Answer;

Answer *answer_for(Wish wish);
