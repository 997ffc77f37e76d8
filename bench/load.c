// An HTTP/1.1 load generator: one thread, epoll, loopback only.
//
//   load -u HOST:PORT/path -b BODY [-c streams] [-n requests] [-t seconds] [-g grace] [-r ramp_ms] [-o]
//        [-a rate] [-H "k: v"]…
//
// Keeps `c` connections busy until `n` requests are done or `t` seconds are over.  Running requests then get
// `g` more seconds.  With -r the connections open evenly over that time, with -o each request has its own.
// With -a the loop is open: `n` requests begin at that rate, each on its own connection, however many are
// open.  Their times count from the moment that the rate gives, also if the generator is late.  Prints one
// line of JSON:
//
//   ok, errs      responses with status 200; all others, broken or late ones included
//   lines, dones  SSE `data:` lines; those with [DONE]; `failures`: those that begin with {"error"
//   ttfb, ttfd    milliseconds to the header, to the first `data:` line; tot: to the end (percentiles 50, 99)
//   lat           milliseconds since the time in a line, "@T" and 16 digits (see mock.c); ts: their number
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEADER_ROOM = 8192, LINE_ROOM = 1024, READ_ROOM = 262144, MOST_EVENTS = 512 };

typedef enum { IDLE, HEADER, BODY } State;
typedef enum { SIZE, EXTENSION, DATA, AFTER_DATA, TRAILER } Framing; // of a chunked body

typedef struct Stream {
    struct Stream *next; // in the list of idle ones
    int fd;
    State state;
    uint64_t began;
    int sent; // bytes of the request
    char header[HEADER_ROOM];
    int header_length;
    int status;
    bool closes, chunked;
    long left; // bytes of the body; -1: until the connection ends
    Framing framing;
    long chunk_left;
    int trailer_length;
    bool has_data;        // a data: line has arrived
    char line[LINE_ROOM]; // the beginning of an incomplete line
    int line_length;
} Stream;

typedef struct {
    double *values;
    long count, room;
} Sample;

typedef struct {
    char *url, *body;
    int streams, ramp_ms;
    bool own_connections;
    long requests;
    double seconds, grace, rate;
    char headers[4096];
} Options;

static Options options = {.streams = 1, .requests = 1, .seconds = 60, .grace = 10};
static struct sockaddr_in address;
static char *request;
static int request_length, poll_fd;
static Stream *idle;
static uint64_t run_begin, run_end;
static long started, live, ok, errors, lines, dones, failures, reads;
static unsigned long long bytes;
static Sample first_byte, first_data, total, delay;
static char first_error[600];

static uint64_t nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

// --- samples ---------------------------------------------------------------------------------------------

static void note(Sample *sample, double value) {
    if (sample->count == sample->room) {
        sample->room = sample->room ? sample->room * 2 : 1024;
        sample->values = realloc(sample->values, sample->room * sizeof *sample->values);
    }
    sample->values[sample->count++] = value;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Return the value below which `part` of the sorted sample lies.
static double quantile(const Sample *sample, double part) {
    long i = (long)(sample->count * part);
    return sample->count ? sample->values[i < sample->count ? i : sample->count - 1] : 0;
}

static void note_error(const char *text, int length) {
    errors++;
    if (!first_error[0])
        snprintf(first_error, sizeof first_error, "%.*s", length, text);
}

// --- one request -----------------------------------------------------------------------------------------

static void connect_stream(Stream *s) {
    int one = 1;
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connect(s->fd, (struct sockaddr *)&address, sizeof address); // in progress; epoll reports the connection
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = s};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, s->fd, &event);
}

static void disconnect(Stream *s) {
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

static void send_request(Stream *s) {
    while (s->sent < request_length) {
        ssize_t count = send(s->fd, request + s->sent, request_length - s->sent, MSG_NOSIGNAL);
        if (count <= 0)
            return;
        s->sent += count;
    }
}

static void begin(Stream *s, uint64_t began) {
    if (s->fd < 0)
        connect_stream(s);
    s->state = HEADER;
    s->header_length = s->line_length = s->sent = 0;
    s->has_data = false;
    s->began = began;
    started++;
    send_request(s);
}

// Send the next request after a response or its failure, or end this stream.
static void go_on(Stream *s, uint64_t now) {
    if (!options.rate && started < options.requests && now < run_end) {
        begin(s, nanoseconds());
        return;
    }
    s->state = IDLE;
    live--;
    disconnect(s);
    s->next = idle;
    idle = s;
}

static void finish(Stream *s, uint64_t now) {
    if (s->status == 200) {
        ok++;
        note(&total, (now - s->began) / 1e6);
    } else {
        note_error(s->line, s->line_length);
    }
    if (s->closes || options.own_connections)
        disconnect(s);
    go_on(s, now);
}

// --- lines of the body -----------------------------------------------------------------------------------

static void note_delay(const char *line, int length, uint64_t now) {
    const char *stamp = memmem(line, length, "@T", 2);
    if (!stamp || stamp + 18 > line + length)
        return;
    long long then = strtoll(stamp + 2, NULL, 10);
    note(&delay, ((long long)(now % 10000000000000000ull) - then) / 1e6);
}

static bool begins(const char *line, int length, const char *start) {
    return length >= (int)strlen(start) && !memcmp(line, start, strlen(start));
}

static void see_line(Stream *s, const char *line, int length, uint64_t now) {
    if (!begins(line, length, "data:"))
        return;
    lines++;
    if (!s->has_data)
        note(&first_data, (now - s->began) / 1e6);
    s->has_data = true;
    dones += begins(line, length, "data: [DONE]");
    if (begins(line, length, "data: {\"error\"")) {
        failures++;
        if (!first_error[0])
            snprintf(first_error, sizeof first_error, "%.*s", length, line);
    }
    note_delay(line, length, now);
}

static void keep_line(Stream *s, const char *data, int length) {
    int room = LINE_ROOM - s->line_length;
    int count = length < room ? length : room;
    memcpy(s->line + s->line_length, data, count);
    s->line_length += count;
}

static void see_body(Stream *s, const char *data, int length, uint64_t now) {
    bytes += length;
    for (const char *end; (end = memchr(data, '\n', length)) && s->status == 200;) {
        int count = end - data;
        if (s->line_length) {
            keep_line(s, data, count);
            see_line(s, s->line, s->line_length, now);
            s->line_length = 0;
        } else {
            see_line(s, data, count, now);
        }
        data = end + 1;
        length -= count + 1;
    }
    keep_line(s, data, length);
}

// --- framing: each function consumes data, and returns how many bytes --------------------------------------

static void read_header(Stream *s) {
    const char *length = strcasestr(s->header, "\r\ncontent-length:");
    s->status = atoi(s->header + sizeof "HTTP/1.1");
    s->closes = strcasestr(s->header, "\r\nconnection: close");
    s->chunked = strcasestr(s->header, "\r\ntransfer-encoding: chunked");
    s->left = length ? atol(length + 17) : -1;
    s->framing = SIZE;
    s->chunk_left = 0;
    s->state = BODY;
}

static int take_header(Stream *s, const char *data, int length, uint64_t now) {
    int room = HEADER_ROOM - 1 - s->header_length, before = s->header_length;
    int count = length < room ? length : room;
    memcpy(s->header + before, data, count);
    s->header[before + count] = 0;
    s->header_length += count;
    char *blank = strstr(s->header + (before > 3 ? before - 3 : 0), "\r\n\r\n");
    if (!blank)
        return room ? count : length; // a header that is too long never ends
    blank[2] = 0;
    note(&first_byte, (now - s->began) / 1e6);
    read_header(s);
    if (!s->chunked && !s->left)
        finish(s, now);
    return blank + 4 - s->header - before;
}

static int take_plain(Stream *s, const char *data, int length, uint64_t now) {
    int count = s->left >= 0 && s->left < length ? s->left : length;
    see_body(s, data, count, now);
    if (s->left >= 0 && !(s->left -= count))
        finish(s, now);
    return count;
}

static int take_chunk(Stream *s, const char *data, int length, uint64_t now) {
    int count = s->chunk_left < length ? s->chunk_left : length;
    see_body(s, data, count, now);
    if (!(s->chunk_left -= count))
        s->framing = AFTER_DATA;
    return count;
}

static void take_size(Stream *s, char c) {
    if (c == ';')
        s->framing = EXTENSION;
    else if (c != '\r')
        s->chunk_left = s->chunk_left * 16 + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
}

static int take_chunked(Stream *s, const char *data, int length, uint64_t now) {
    if (s->framing == DATA)
        return take_chunk(s, data, length, now);
    bool line_end = *data == '\n';
    if (s->framing == SIZE && !line_end) {
        take_size(s, *data);
    } else if (s->framing == TRAILER) {
        if (line_end && !s->trailer_length)
            finish(s, now);
        s->trailer_length = line_end ? 0 : s->trailer_length + (*data != '\r');
    } else if (line_end) {
        s->trailer_length = 0;
        s->framing = s->framing == AFTER_DATA ? SIZE : s->chunk_left ? DATA : TRAILER;
    }
    return 1;
}

static void take(Stream *s, const char *data, int length, uint64_t now) {
    for (int fd = s->fd; length > 0 && s->state != IDLE && s->fd == fd;) {
        int count = s->state == HEADER ? take_header(s, data, length, now)
                    : s->chunked       ? take_chunked(s, data, length, now)
                                       : take_plain(s, data, length, now);
        data += count;
        length -= count;
    }
}

// --- the loop --------------------------------------------------------------------------------------------

static void lost(Stream *s) {
    uint64_t now = nanoseconds();
    disconnect(s);
    if (s->state == BODY && !s->chunked && s->left < 0) { // the regular end of such a body
        finish(s, now);
        return;
    }
    static const char text[] = "connection closed early";
    note_error(text, sizeof text - 1);
    go_on(s, now);
}

static void read_all(Stream *s) {
    static char buffer[READ_ROOM];
    while (s->fd >= 0) {
        int fd = s->fd;
        ssize_t count = recv(fd, buffer, sizeof buffer, 0);
        if (count < 0 && (errno == EAGAIN || errno == ENOTCONN))
            return;
        if (count <= 0) {
            lost(s);
            return;
        }
        reads++;
        take(s, buffer, count, nanoseconds());
        if (s->fd != fd || count < (ssize_t)sizeof buffer)
            return;
    }
}

static Stream *idle_stream(void) {
    Stream *s = idle;
    if (s)
        idle = s->next;
    else
        s = calloc(1, sizeof *s);
    s->fd = -1;
    return s;
}

// Return the moment at which to open the stream with this number; 0 if there is none.
static uint64_t opening(long number, uint64_t now) {
    long all = options.rate ? options.requests : options.streams;
    if (number >= all || started >= options.requests || (now >= run_end && !options.rate))
        return 0;
    double apart = options.rate ? 1e9 / options.rate : options.ramp_ms * 1e6 / options.streams;
    return run_begin + (uint64_t)(apart * number);
}

// Wait for events until a moment, a tenth of a second at most.
static int await_events(struct epoll_event *events, uint64_t until, uint64_t now) {
    long nap = !until || until > now + 100000000 ? 100000000 : until > now ? (long)(until - now) : 0;
    struct timespec timeout = {.tv_nsec = nap};
    return epoll_pwait2(poll_fd, events, MOST_EVENTS, &timeout, NULL);
}

static void run(void) {
    struct epoll_event events[MOST_EVENTS];
    uint64_t give_up = run_end + (uint64_t)(options.grace * 1e9), next;
    for (long opened = 0;;) {
        uint64_t now = nanoseconds();
        for (; (next = opening(opened, now)) && next <= now; opened++) {
            live++;
            begin(idle_stream(), options.rate ? next : nanoseconds());
        }
        if ((!live && !next) || now > give_up)
            return;
        int ready = await_events(events, next, now);
        for (int i = 0; i < ready; i++) {
            Stream *s = events[i].data.ptr;
            if (s->fd >= 0 && s->state != IDLE && events[i].events & EPOLLOUT)
                send_request(s);
            if (s->fd >= 0 && s->state != IDLE && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                read_all(s);
        }
    }
}

// --- the command line and the report ---------------------------------------------------------------------

static bool read_options(int count, char **arguments) {
    for (int option; (option = getopt(count, arguments, "u:b:c:n:t:g:r:oa:H:")) > 0;)
        switch (option) {
        case 'u':
            options.url = optarg;
            break;
        case 'b':
            options.body = optarg;
            break;
        case 'c':
            options.streams = atoi(optarg);
            break;
        case 'n':
            options.requests = atol(optarg);
            break;
        case 't':
            options.seconds = atof(optarg);
            break;
        case 'g':
            options.grace = atof(optarg);
            break;
        case 'r':
            options.ramp_ms = atoi(optarg);
            break;
        case 'o':
            options.own_connections = true;
            break;
        case 'a':
            options.rate = atof(optarg);
            break;
        case 'H': {
            size_t length = strlen(options.headers);
            snprintf(options.headers + length, sizeof options.headers - length, "%s\r\n", optarg);
            break;
        }
        default:
            return false;
        }
    return options.url && options.body && strchr(options.url, '/') && options.streams > 0;
}

static void build_request(void) {
    char *path = strchr(options.url, '/');
    int host_length = path - options.url;
    char *colon = memchr(options.url, ':', host_length);
    address.sin_family = AF_INET;
    address.sin_port = htons(colon ? atoi(colon + 1) : 80);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    request_length =
        asprintf(&request,
                 "POST %s HTTP/1.1\r\nhost: %.*s\r\ncontent-type: application/json\r\n"
                 "authorization: Bearer sk-1234\r\n%scontent-length: %zu\r\n\r\n%s",
                 path, host_length, options.url, options.headers, strlen(options.body), options.body);
}

static void report_sample(const char *name, Sample *sample) {
    if (sample->count)
        qsort(sample->values, sample->count, sizeof *sample->values, compare);
    printf(",\"%s50\":%.3f,\"%s99\":%.3f", name, quantile(sample, .5), name, quantile(sample, .99));
}

static void report(double seconds) {
    for (char *c = first_error; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ' || (unsigned char)*c > '~')
            *c = '\'';
    printf("{\"ok\":%ld,\"errs\":%ld,\"s\":%.4f,\"rps\":%.2f,\"lines\":%ld,\"lps\":%.1f,\"dones\":%ld", ok,
           errors, seconds, ok / seconds, lines, lines / seconds, dones);
    printf(",\"failures\":%ld,\"bytes\":%llu,\"reads\":%ld", failures, bytes, reads);
    report_sample("ttfb", &first_byte);
    report_sample("ttfd", &first_data);
    report_sample("tot", &total);
    report_sample("lat", &delay);
    printf(",\"ts\":%ld,\"err\":\"%s\"}\n", delay.count, first_error);
}

int main(int count, char **arguments) {
    if (!read_options(count, arguments)) {
        fprintf(stderr,
                "usage: load -u HOST:PORT/path -b BODY [-c streams] [-n requests] [-t seconds] [-g grace] "
                "[-r ramp_ms] [-o] [-a rate] [-H header]...\n");
        return 2;
    }
    build_request();
    prctl(PR_SET_TIMERSLACK, 1); // openings are on time
    poll_fd = epoll_create1(0);
    run_begin = nanoseconds();
    run_end = run_begin + (uint64_t)(options.seconds * 1e9);
    run();
    static const char late[] = "not ended in time";
    for (; live > 0; live--)
        note_error(late, sizeof late - 1);
    report((nanoseconds() - run_begin) / 1e9);
    return 0;
}
