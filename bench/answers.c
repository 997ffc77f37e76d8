// Build the responses of the mock upstream: JSON and HTTP framing, without sockets and clocks.
#include "answers.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_TEXT = 4000, MOST_CHUNKS = 1000000, MOST_TEXT = 64 << 20, OTHER_PIECES = 8 };

#define ID "\"id\":\"chatcmpl-5f1c2e0b9d7a4c33\""
#define MADE "\"created\":1760000000,\"model\":\"mock\""
#define CHUNK_HEAD "data: {" ID ",\"object\":\"chat.completion.chunk\"," MADE
#define DELTA_HEAD CHUNK_HEAD ",\"choices\":[{\"index\":0,\"delta\":{"
#define DELTA_TAIL "},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}]}\n\n"

#define RESPONSE_TAIL ",\"parallel_tool_calls\":true,\"tool_choice\":\"auto\",\"tools\":[]"
#define MESSAGE_HEAD "{\"id\":\"msg_1\",\"type\":\"message\",\"status\":"

// --- growing bytes ---------------------------------------------------------------------------------------

typedef struct {
    char *bytes;
    size_t length, room;
} Text;

static void add(Text *text, const char *bytes, size_t length) {
    if (text->length + length + 1 > text->room) {
        text->room = (text->length + length + 1) * 2;
        text->bytes = realloc(text->bytes, text->room);
        if (!text->bytes)
            abort();
    }
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = 0;
}

static void put(Text *text, const char *string) {
    add(text, string, strlen(string));
}

__attribute__((format(printf, 2, 3))) static void print(Text *text, const char *format, ...) {
    char line[LONGEST_TEXT + 2048];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0 || length >= (int)sizeof line)
        abort();
    add(text, line, length);
}

// --- the text of one chunk, as it is inside a JSON string -----------------------------------------------

// Words of text.  Arguments are code in a JSON string, so an escape there is escaped twice.
static const char *const WORDS[] = {" the", " of",   " and",         " model", " stream", " gate",
                                    " way", " fast", " token",       "s",      " in",     " \\\"q\\\"",
                                    ",",    ".",     " caf\xc3\xa9", " to"};
static const char *const CODE[] = {" let", " x =", "= 1;", "\\\\n  ", "if (", "a[i]", ") { ", "}   "};

static const char *filler(char *out, int i, int size) {
    for (int k = 0; k < size; k++)
        out[k] = "abcdefgh "[(i + k) % 9];
    out[size] = 0;
    return out;
}

static const char *word(const Wish *wish, int i, const char *const *words, int count, char *out) {
    if (wish->stamped)
        return "@T0000000000000000";
    return wish->size == 4 ? words[(i * 7) % count] : filler(out, i, wish->size);
}

static const char *argument_text(const Wish *wish, int i, char *out) {
    if (i == 0)
        return "{\\\"city\\\": \\\"";
    return i == wish->chunks - 1 ? "\\\"}" : word(wish, i, CODE, 8, out);
}

// Text, then from chunk `call` on one tool call in the format hermes_json.
static const char *markup_text(const Wish *wish, int i, char *out) {
    int call = (int)((long long)wish->chunks * wish->call_at / 100), last = wish->chunks - 1;
    if (i < call || last - call < 5)
        return word(wish, i, WORDS, 16, out);
    if (i == call)
        return "<tool_call>";
    if (i == call + 1)
        return "\\n{\\\"name\\\": \\\"get_weather\\\", ";
    if (i == call + 2)
        return "\\\"arguments\\\": {\\\"city\\\": \\\"";
    if (i == last)
        return "</tool_call>";
    return i == last - 1 ? "\\\"}}\\n" : word(wish, i, CODE, 8, out);
}

static const char *think_text(const Wish *wish, int i, char *out) {
    if (i == 0)
        return "<think>";
    return i == wish->chunks / 2 ? "</think>" : word(wish, i, WORDS, 16, out);
}

static const char *text_of(const Wish *wish, int i, char *out) {
    switch (wish->mode) {
    case TOOLS:
        return argument_text(wish, i, out);
    case MARKUP:
        return markup_text(wish, i, out);
    case THINK:
        return think_text(wish, i, out);
    default:
        return word(wish, i, WORDS, 16, out);
    }
}

// Add the text of the chunks from `begin` to `end`.
static void put_texts(Text *text, const Wish *wish, int begin, int end) {
    char room[LONGEST_TEXT + 1];
    for (int i = begin; i < end; i++)
        put(text, text_of(wish, i, room));
}

// --- whole bodies ----------------------------------------------------------------------------------------

static void put_message(Text *body, const Wish *wish) {
    int half = wish->chunks / 2;
    put(body, "{\"role\":\"assistant\",\"content\":");
    if (wish->mode == TOOLS) {
        put(body, "null,\"tool_calls\":[{\"id\":\"call_abc123\",\"type\":\"function\",\"function\":"
                  "{\"name\":\"get_weather\",\"arguments\":\"");
        put_texts(body, wish, 0, wish->chunks);
        put(body, "\"}}]");
    } else if (wish->mode == REASON) {
        put(body, "\"");
        put_texts(body, wish, half, wish->chunks);
        put(body, "\",\"reasoning_content\":\"");
        put_texts(body, wish, 0, half);
        put(body, "\"");
    } else {
        put(body, "\"");
        put_texts(body, wish, 0, wish->chunks);
        put(body, "\"");
    }
    put(body, ",\"refusal\":null}");
}

static void put_chat(Text *body, const Wish *wish) {
    put(body, "{" ID ",\"object\":\"chat.completion\"," MADE ",\"choices\":[{\"index\":0,\"message\":");
    put_message(body, wish);
    print(body, ",\"logprobs\":null,\"finish_reason\":\"%s\"}]", wish->mode == TOOLS ? "tool_calls" : "stop");
    print(body, ",\"usage\":{\"prompt_tokens\":17,\"total_tokens\":%d,\"completion_tokens\":%d}}",
          17 + wish->chunks, wish->chunks);
}

static void put_response(Text *body, const Wish *wish) {
    put(body,
        "{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":1760000000,\"status\":\"completed\","
        "\"model\":\"mock\",\"output\":[" MESSAGE_HEAD "\"completed\",\"role\":\"assistant\",\"content\":"
        "[{\"type\":\"output_text\",\"annotations\":[],\"text\":\"");
    put_texts(body, wish, 0, wish->chunks);
    print(
        body,
        "\"}]}]" RESPONSE_TAIL ",\"usage\":{\"input_tokens\":17,\"output_tokens\":%d,\"total_tokens\":%d,"
        "\"input_tokens_details\":{\"cached_tokens\":0},\"output_tokens_details\":{\"reasoning_tokens\":0}}}",
        wish->chunks, wish->chunks + 17);
}

static void build_whole(Answer *answer, void (*put_body)(Text *, const Wish *)) {
    Text body = {0}, all = {0};
    put_body(&body, &answer->wish);
    print(&all,
          "HTTP/1.1 200 OK\r\nserver: mock\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n",
          body.length);
    add(&all, body.bytes, body.length);
    free(body.bytes);
    answer->bytes = all.bytes;
    answer->pieces = 1;
    answer->start[1] = all.length;
}

// --- streams ---------------------------------------------------------------------------------------------

// End the event in `event`: add it to `all` as one HTTP chunk, and empty it.
static void end_event(Answer *answer, Text *all, Text *event) {
    char *stamp = answer->wish.stamped ? strstr(event->bytes, "@T") : NULL;
    if (answer->pieces) // the first piece begins with the header
        answer->start[answer->pieces] = all->length;
    print(all, "%zx\r\n", event->length);
    answer->stamp[answer->pieces++] = stamp ? all->length + (stamp + 2 - event->bytes) : 0;
    add(all, event->bytes, event->length);
    put(all, "\r\n");
    event->length = 0;
}

static void put_delta(Text *event, const Wish *wish, int i) {
    char room[LONGEST_TEXT + 1];
    const char *text = text_of(wish, i, room);
    const char *field = wish->mode == REASON && i < wish->chunks / 2 ? "reasoning_content" : "content";
    if (wish->mode == TOOLS)
        print(event,
              DELTA_HEAD "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"%s\"}}]" DELTA_TAIL,
              text);
    else
        print(event, DELTA_HEAD "\"%s\":\"%s\"" DELTA_TAIL, field, text);
}

static void chat_end(Answer *answer, Text *all, Text *event) {
    const Wish *wish = &answer->wish;
    print(event, DELTA_HEAD "},\"logprobs\":null,\"finish_reason\":\"%s\",\"stop_reason\":null}]}\n\n",
          wish->mode == TOOLS ? "tool_calls" : "stop");
    end_event(answer, all, event);
    if (wish->usage) {
        print(event,
              CHUNK_HEAD ",\"choices\":[],\"usage\":{\"prompt_tokens\":17,\"total_tokens\":%d,"
                         "\"completion_tokens\":%d}}\n\n",
              17 + wish->chunks, wish->chunks);
        end_event(answer, all, event);
    }
    put(event, "data: [DONE]\n\n");
    end_event(answer, all, event);
}

static void chat_events(Answer *answer, Text *all, Text *event) {
    put(event, DELTA_HEAD "\"role\":\"assistant\",\"content\":\"\"" DELTA_TAIL);
    end_event(answer, all, event);
    if (answer->wish.mode == TOOLS) {
        put(event, DELTA_HEAD "\"tool_calls\":[{\"id\":\"call_abc123\",\"type\":\"function\",\"index\":0,"
                              "\"function\":{\"name\":\"get_weather\",\"arguments\":\"\"}}]" DELTA_TAIL);
        end_event(answer, all, event);
    }
    for (int i = 0; i < answer->wish.chunks; i++) {
        put_delta(event, &answer->wish, i);
        end_event(answer, all, event);
    }
    chat_end(answer, all, event);
}

static void response_begin(Answer *answer, Text *all, Text *event) {
    put(event,
        "event: response.created\n"
        "data: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\","
        "\"object\":\"response\",\"created_at\":1760000000,\"status\":\"in_progress\",\"model\":\"mock\","
        "\"output\":[]" RESPONSE_TAIL "}}\n\n");
    end_event(answer, all, event);
    put(event, "event: response.output_item.added\n"
               "data: {\"type\":\"response.output_item.added\",\"sequence_number\":1,\"output_index\":0,"
               "\"item\":" MESSAGE_HEAD "\"in_progress\",\"role\":\"assistant\",\"content\":[]}}\n\n");
    end_event(answer, all, event);
}

static void response_events(Answer *answer, Text *all, Text *event) {
    const Wish *wish = &answer->wish;
    char room[LONGEST_TEXT + 1];
    response_begin(answer, all, event);
    for (int i = 0; i < wish->chunks; i++) {
        print(event,
              "event: response.output_text.delta\n"
              "data: {\"type\":\"response.output_text.delta\",\"sequence_number\":%d,\"item_id\":\"msg_1\","
              "\"output_index\":0,\"content_index\":0,\"delta\":\"%s\",\"logprobs\":[]}\n\n",
              i + 2, text_of(wish, i, room));
        end_event(answer, all, event);
    }
    print(
        event,
        "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":%d,\"response\":",
        wish->chunks + 2);
    put_response(event, wish);
    put(event, "}\n\n");
    end_event(answer, all, event);
}

static void build_stream(Answer *answer, void (*events)(Answer *, Text *, Text *)) {
    Text all = {0}, event = {0};
    put(&all, "HTTP/1.1 200 OK\r\nserver: mock\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
              "cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n");
    events(answer, &all, &event);
    put(&all, "0\r\n\r\n");
    free(event.bytes);
    answer->bytes = all.bytes;
    answer->start[answer->pieces] = all.length;
}

// --- the responses so far --------------------------------------------------------------------------------

static int within(int value, int least, int most) {
    return value < least ? least : value > most ? most : value;
}

static bool same(const Wish *a, const Wish *b) {
    return a->kind == b->kind && a->mode == b->mode && a->chunks == b->chunks && a->size == b->size &&
           a->call_at == b->call_at && a->stamped == b->stamped && a->usage == b->usage;
}

static Answer *build(Wish wish) {
    Answer *answer = calloc(1, sizeof *answer);
    answer->wish = wish;
    answer->start = calloc(wish.chunks + OTHER_PIECES, sizeof *answer->start);
    answer->stamp = calloc(wish.chunks + OTHER_PIECES, sizeof *answer->stamp);
    if (wish.kind == CHAT_WHOLE)
        build_whole(answer, put_chat);
    else if (wish.kind == RESPONSES_WHOLE)
        build_whole(answer, put_response);
    else
        build_stream(answer, wish.kind == CHAT_STREAM ? chat_events : response_events);
    return answer;
}

Answer *answer_for(Wish wish) {
    static Answer *kept;
    wish.size = within(wish.size, 1, LONGEST_TEXT);
    wish.chunks = within(wish.chunks, 1, within(MOST_TEXT / wish.size, 1, MOST_CHUNKS));
    wish.call_at = within(wish.call_at, 0, 100);
    wish.stamped = wish.stamped && (wish.kind == CHAT_STREAM || wish.kind == RESPONSES_STREAM);
    for (Answer *answer = kept; answer; answer = answer->next)
        if (same(&answer->wish, &wish))
            return answer;
    Answer *answer = build(wish);
    answer->next = kept;
    return kept = answer;
}
