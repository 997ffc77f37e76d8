// A fast mock of an OpenAI-compatible server: one thread, epoll, loopback only.
//
//   mock PORT
//
// The text of the request has the settings of the response; any gateway passes it on:
//
//   @@m=plain,n=200,p=0,w=0,d=0,ts=0,sz=4,at=75@@
//
//   m   plain | tools (a native tool call) | think (<think>…</think> first)
//       | reason (reasoning_content first) | markup (text, then <tool_call>{…}</tool_call>)
//   n   chunks of content            sz  characters in each
//   p   milliseconds between chunks; 0: as fast as the client reads.  The first is sent with the role
//   w   without p: events in one write(); 0: all
//   d   milliseconds before the first byte
//   ts  1: each chunk's text is "@T" and 16 digits, the nanoseconds of CLOCK_MONOTONIC when it was written
//   at  m=markup: per cent of the chunks before the tool call
//
// The mock supports `"stream":true` and `"include_usage":true`, paths that end in /chat/completions and
// /responses, and /models and /stats (requests, done, aborted).  Other paths return {}.
#define _GNU_SOURCE
#include "answers.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 4096, MOST_EVENTS = 512, LARGEST_REQUEST = 64 << 20, FIRST_ROOM = 8192 };

typedef struct Link {
    struct Link *prev, *next;
} Link;

typedef struct {
    Link link; // first: a link is its connection; in a slot of the wheel, in the busy list, or alone
    int fd;
    char *in; // unprocessed bytes
    size_t length, room;
    Answer *answer;          // NULL: no response in progress
    int piece;               // the next one to write
    size_t written;          // bytes of it that are written
    int pace, burst;         // knobs p and w
    uint64_t due;            // millisecond of the next piece
    bool blocked;            // the socket is full; epoll reports when it is writable
    bool close_after_answer; // the client asked for it
} Connection;

typedef struct {
    size_t body, end; // offsets in `in`
    bool close;
} Request;

static int poll_fd;
static Link wheel[SLOTS]; // connections that wait, by their millisecond modulo SLOTS
static Link busy;         // connections that write in bursts (knob w)
static int waiting;       // connections in the wheel
static uint64_t tick;     // the current millisecond of the wheel
static uint64_t requests, answered, aborted;

static uint64_t nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static uint64_t milliseconds(void) {
    return nanoseconds() / 1000000;
}

// --- lists -----------------------------------------------------------------------------------------------

static void make_empty(Link *list) {
    list->prev = list->next = list;
}

static bool alone(const Link *link) {
    return link->next == link;
}

static void link_into(Link *list, Link *link) {
    link->next = list->next;
    link->prev = list;
    list->next->prev = link;
    list->next = link;
}

static void take_out(Connection *c) {
    if (c->due)
        waiting--;
    c->due = 0;
    c->link.prev->next = c->link.next;
    c->link.next->prev = c->link.prev;
    make_empty(&c->link);
}

static void wake_at(Connection *c, uint64_t due) {
    c->due = due;
    waiting++;
    link_into(&wheel[due % SLOTS], &c->link);
}

// --- one connection: writing -----------------------------------------------------------------------------

static void drop(Connection *c) {
    if (c->answer)
        aborted++;
    take_out(c);
    close(c->fd);
    free(c->in);
    free(c);
}

static void set_blocked(Connection *c, bool blocked) {
    if (c->blocked == blocked)
        return;
    c->blocked = blocked;
    struct epoll_event event = {.events = EPOLLIN | (blocked ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &event);
}

// Write the time into the pieces that are sent now.  The bytes are shared; a stamp never changes its length.
static void stamp(const Answer *answer, int begin, int end) {
    char digits[24];
    snprintf(digits, sizeof digits, "%016llu", (unsigned long long)(nanoseconds() % 10000000000000000ull));
    for (int i = begin; i < end; i++)
        if (answer->stamp[i])
            memcpy(answer->bytes + answer->stamp[i], digits, 16);
}

// Note that the response is written up to the byte `at`.
static void note_written(Connection *c, size_t at) {
    while (c->piece < c->answer->pieces && c->answer->start[c->piece + 1] <= at)
        c->piece++;
    c->written = at - c->answer->start[c->piece];
}

// Write the pieces before `until`, as far as the socket accepts them; false if the connection is gone.
static bool write_pieces(Connection *c, int until) {
    Answer *answer = c->answer;
    size_t end = answer->start[until];
    if (answer->wish.stamped && !c->written)
        stamp(answer, c->piece, until);
    while (c->piece < until) {
        size_t at = answer->start[c->piece] + c->written;
        ssize_t count = send(c->fd, answer->bytes + at, end - at, MSG_NOSIGNAL);
        if (count < 0) {
            set_blocked(c, errno == EAGAIN);
            return errno == EAGAIN;
        }
        note_written(c, at + count);
    }
    set_blocked(c, false);
    return true;
}

// Return the piece up to which to write now: all, or a step of the pace or the burst.
static int next_stop(const Connection *c) {
    int step = c->pace ? 1 + !c->piece : c->burst; // the first content is sent with the role
    int left = c->answer->pieces - c->piece;
    return c->piece + (step && step < left ? step : left);
}

// Continue the response as far as pace and socket allow; false if the connection is gone.
static bool advance(Connection *c) {
    uint64_t now = c->due ? c->due : tick;
    take_out(c);
    if (!write_pieces(c, next_stop(c))) {
        drop(c);
        return false;
    }
    if (c->blocked)
        return true;
    if (c->piece < c->answer->pieces) {
        if (c->pace)
            wake_at(c, now + c->pace);
        else
            link_into(&busy, &c->link);
        return true;
    }
    c->answer = NULL;
    answered++;
    if (c->close_after_answer)
        drop(c);
    return !c->close_after_answer;
}

// --- one connection: requests ----------------------------------------------------------------------------

// Return the end of the chunked body; 0 if incomplete.  Chunks are not joined: none may split a knob.
static size_t chunked_end(const Connection *c, size_t body) {
    const char *last = strstr(c->in + body - 2, "\r\n0\r\n\r\n");
    return last ? (size_t)(last - c->in) + 7 : 0;
}

// Find the first request in the input; false if it is incomplete.
static bool find_request(Connection *c, Request *request) {
    char *blank = c->length ? strstr(c->in, "\r\n\r\n") : NULL;
    if (!blank)
        return false;
    *blank = 0; // makes the header a string
    const char *length = strcasestr(c->in, "\r\ncontent-length:");
    bool chunked = strcasestr(c->in, "\r\ntransfer-encoding: chunked");
    request->close = strcasestr(c->in, "\r\nconnection: close");
    request->body = blank - c->in + 4;
    request->end = request->body + (length ? strtoul(length + 17, NULL, 10) : 0);
    *blank = '\r';
    if (chunked)
        request->end = chunked_end(c, request->body);
    return request->end && request->end <= c->length;
}

static int knob(const char *knobs, const char *name, int otherwise) {
    const char *found = strstr(knobs, name);
    return found ? atoi(found + strlen(name)) : otherwise;
}

static Mode mode_of(const char *knobs) {
    static const char *const names[] = {
        [TOOLS] = ",m=tools", [THINK] = ",m=think", [MARKUP] = ",m=markup", [REASON] = ",m=reason"};
    for (Mode mode = TOOLS; mode <= REASON; mode++)
        if (strstr(knobs, names[mode]))
            return mode;
    return PLAIN;
}

// Copy the text between @@ and @@, with a comma before each knob.
static void find_knobs(const char *body, char *knobs, size_t room) {
    const char *begin = strstr(body, "@@");
    const char *end = begin ? strstr(begin + 2, "@@") : NULL;
    int length = end ? (int)(end - begin - 2) : 0;
    snprintf(knobs, room, ",%.*s", length, length ? begin + 2 : "");
}

static bool is_true(const char *body, const char *field) {
    char text[64];
    snprintf(text, sizeof text, "\"%s\":true", field);
    if (strstr(body, text))
        return true;
    snprintf(text, sizeof text, "\"%s\": true", field);
    return strstr(body, text);
}

static bool begin_answer(Connection *c, const char *body, bool responses) {
    char knobs[256];
    find_knobs(body, knobs, sizeof knobs);
    bool stream = is_true(body, "stream");
    c->answer = answer_for((Wish){
        .kind = responses ? (stream ? RESPONSES_STREAM : RESPONSES_WHOLE)
                : stream  ? CHAT_STREAM
                          : CHAT_WHOLE,
        .mode = mode_of(knobs),
        .chunks = knob(knobs, ",n=", 200),
        .size = knob(knobs, ",sz=", 4),
        .call_at = knob(knobs, ",at=", 75),
        .stamped = knob(knobs, ",ts=", 0),
        .usage = is_true(body, "include_usage"),
    });
    c->piece = 0;
    c->written = 0;
    c->pace = knob(knobs, ",p=", 0);
    c->burst = knob(knobs, ",w=", 0);
    int delay = knob(knobs, ",d=", 0);
    if (delay <= 0)
        return advance(c);
    wake_at(c, tick + delay);
    return true;
}

static bool reply(Connection *c, const char *body) {
    char text[1024];
    int length =
        snprintf(text, sizeof text,
                 "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                 strlen(body), body);
    bool sent = send(c->fd, text, length, MSG_NOSIGNAL) == length;
    if (!sent || c->close_after_answer)
        drop(c);
    return sent && !c->close_after_answer;
}

static bool reply_stats(Connection *c) {
    char text[200];
    snprintf(text, sizeof text, "{\"requests\":%llu,\"done\":%llu,\"aborted\":%llu}",
             (unsigned long long)requests, (unsigned long long)answered, (unsigned long long)aborted);
    return reply(c, text);
}

// Respond to one request, or begin to; false if the connection is gone.
static bool route(Connection *c, char *head, const char *body) {
    *strstr(head, "\r\n") = 0; // makes the request line a string
    bool post = !strncmp(head, "POST ", 5);
    if (post && strstr(head, "/chat/completions "))
        return begin_answer(c, body, false);
    if (post && strstr(head, "/responses "))
        return begin_answer(c, body, true);
    if (strstr(head, "/models "))
        return reply(
            c, "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\",\"created\":1760000000,"
               "\"owned_by\":\"vllm\",\"root\":\"mock\",\"max_model_len\":32768}]}");
    if (strstr(head, "/stats "))
        return reply_stats(c);
    return reply(c, "{}");
}

// Respond to the complete requests, one after the other; false if the connection is gone.
static bool serve(Connection *c) {
    Request request;
    while (!c->answer && find_request(c, &request)) {
        char *taken = c->in; // the request keeps it; later bytes go into a new buffer
        c->length -= request.end;
        c->room = c->length + FIRST_ROOM;
        c->in = malloc(c->room);
        memcpy(c->in, taken + request.end, c->length);
        c->in[c->length] = taken[request.end] = 0;
        c->close_after_answer = request.close;
        requests++;
        bool alive = route(c, taken, taken + request.body);
        free(taken);
        if (!alive)
            return false;
    }
    return true;
}

static void resume(Connection *c) {
    if (advance(c) && !c->answer)
        serve(c);
}

// --- reading and the loop --------------------------------------------------------------------------------

// Read the available bytes; false if the connection is gone or sends too much.
static bool read_all(Connection *c) {
    for (;;) {
        if (c->length + FIRST_ROOM / 2 > c->room)
            c->in = realloc(c->in, c->room *= 2);
        if (!c->in || c->room > LARGEST_REQUEST)
            return false;
        size_t room = c->room - c->length - 1;
        ssize_t count = recv(c->fd, c->in + c->length, room, 0);
        if (count <= 0)
            return count < 0 && errno == EAGAIN;
        c->length += count;
        c->in[c->length] = 0;
        if ((size_t)count < room)
            return true;
    }
}

static void accept_all(int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        Connection *c = calloc(1, sizeof *c);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        make_empty(&c->link);
        c->fd = fd;
        c->room = FIRST_ROOM;
        c->in = calloc(1, c->room);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event);
    }
}

static void on_event(Connection *c, uint32_t events) {
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        if (!read_all(c)) {
            drop(c);
            return;
        }
        if (!serve(c))
            return;
    }
    if (events & EPOLLOUT && c->answer && c->blocked)
        resume(c);
}

static void write_bursts(void) {
    for (Link *link = busy.next, *next; link != &busy; link = next) {
        next = link->next;
        resume((Connection *)link);
    }
}

static void turn_wheel(uint64_t now) {
    while (tick < now) {
        Link *slot = &wheel[++tick % SLOTS];
        for (Link *link = slot->next, *next; link != slot; link = next) {
            next = link->next;
            if (((Connection *)link)->due <= tick)
                resume((Connection *)link);
        }
    }
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 4096)) {
        perror("mock: listen");
        exit(1);
    }
    return fd;
}

static void set_up(int listener) {
    for (int i = 0; i < SLOTS; i++)
        make_empty(&wheel[i]);
    make_empty(&busy);
    signal(SIGPIPE, SIG_IGN);
    poll_fd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &event);
    tick = milliseconds();
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: mock PORT\n");
        return 2;
    }
    int listener = listen_on(atoi(arguments[1]));
    struct epoll_event events[MOST_EVENTS];
    set_up(listener);
    for (;;) {
        int timeout = !alone(&busy) ? 0 : waiting ? 1 : -1;
        int ready = epoll_wait(poll_fd, events, MOST_EVENTS, timeout);
        if (!waiting) // the wheel stopped
            tick = milliseconds();
        for (int i = 0; i < ready; i++)
            if (events[i].data.ptr)
                on_event(events[i].data.ptr, events[i].events);
            else
                accept_all(listener);
        write_bursts();
        turn_wheel(milliseconds()); // after the events: it may free connections that the events name
    }
}
