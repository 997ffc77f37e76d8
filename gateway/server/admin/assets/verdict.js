// The outcome of a request, in one sentence.  A failed or unfinished request is never "unchanged".

// head: the details; talk: the conversation, null until it is known.
export function verdict(head, talk) {
    if (head.live) return running(head);
    if (head.failure) return failed(head.failure, head.client_status);
    const likely = talk?.looks_like[0];
    if (likely) return unread(likely, head.format);
    const ends = talk?.response.choices.map((one) => one.finish_reason) ?? [];
    if (talk && talk.response.choices.length && ends.includes(null)) {
        return { look: "warn", title: "The response has no end.", support: "The recording has no finish reason of a choice.", link: "#stream" };
    }
    if (ends.includes("length")) {
        return { look: "warn", title: "The token limit cut the response off.", support: "Raise the limit of the request, or shorten the conversation.", link: "#conversation" };
    }
    return complete(head);
}

function running({ times, backend }) {
    const last = times.attempts.at(-1);
    const at = backend ? ` of backend '${backend}'` : "";
    const support = times.first_token != null ? "The model generates output."
        : last?.first_byte != null ? "The backend has responded, and no token has come."
            : last ? `The gateway waits for the response${at}.` : "The gateway prepares the request.";
    return { look: "info", title: "The request is running.", support };
}

function failed({ status, code, message, backend, upstream_status: upstream }, began) {
    if (status === 499) return { look: "warn", title: "The client disconnected before the response was complete.", support: message, link: "#stream" };
    const cut = began && began < 400;
    const received = cut ? "the client received a response that breaks off" : `the client received ${status}`;
    const title = upstream ? `Backend '${backend}' returned HTTP ${upstream}, and ${received}.`
        : cut ? `The response broke off with ${code}.`
            : `The request failed with ${status} ${code}.`;
    return { look: "bad", title, support: message, link: "#failure" };
}

function unread({ format, calls }, read) {
    const support = calls ? `The text was read as ${read}. The format ${format} reads a tool call in it.`
        : `The text was read as ${read}, and no format reads a call of an offered tool in it.`;
    return { look: "warn", title: `No tool was called, but the text has the markup of ${format}.`, support, format };
}

function complete({ warnings, ledger, cut }) {
    const warning = warnings.find((one) => one.severity === "warn");
    const count = ledger.length === 1 ? "1 warning" : `${ledger.length} warnings`;
    if (warning) return { look: "warn", title: `The response is complete, with ${count}: ${warning.title}.`, support: warning.meaning, link: "#warnings" };
    if (cut) return { look: "info", title: "The response is complete, and its recording is not.", support: "It exceeds recording.exchange_bytes." };
    if (ledger.length) return { look: "ok", title: "The response is complete.", support: `The gateway reports ${count}.`, link: "#warnings" };
    return { look: "ok", title: "The response is complete, and the gateway passed all parts on unchanged.", support: "" };
}
