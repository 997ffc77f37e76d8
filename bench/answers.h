// What the mock upstream can say: whole HTTP responses, built once per wish and kept.
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
    int call_at;  // MARKUP: per cent of the chunks that are plain text before the call
    bool stamped; // each piece of text is "@T" and 16 digits, the time of its writing
    bool usage;   // a usage chunk before the end
} Wish;

// A response is a row of pieces, one HTTP chunk each (a whole body is a single piece).
typedef struct Answer {
    Wish wish;
    char *bytes;
    int pieces;
    size_t *start; // of each piece, and at [pieces] the length of all
    size_t *stamp; // where the 16 digits of a piece are; 0: it has none
    struct Answer *next;
} Answer;

Answer *answer_for(Wish wish);
