// One request as three columns: reads from the model, events, output to the client.  Items of one origin share `group`.

const COLUMNS = { put: "reads", answered: "reads", refused: "reads", read: "reads", ended: "reads", prepared: "events" };
const KINDS = { ToolStart: "call", ToolArgs: "call", ToolInput: "call", ToolEnd: "call", Failure: "bad" };
const REQUESTS = { asked: "request", put: "request sent" };

export class Exchange {
    constructor() {
        Object.assign(this, { reads: [], events: [], sent: [], calls: [], request: null, last: -1, pending: [] });
    }

    add(entry) {
        if (entry.n <= this.last) return; // it was asked for twice
        this.last = entry.n;
        if (entry.kind === "asked") this.request = entry;
        const item = { entry, group: entry.call && entry.kind !== "read" ? `call ${entry.call}` : entry.n, ...face(entry) };
        this[COLUMNS[entry.kind] ?? "sent"].push(item);
        if (entry.kind === "read" || entry.kind === "ended") this.#addEvents(item, entry);
        if (entry.kind === "wrote" && entry.of !== undefined) this.#wrote(item, entry);
    }

    // Events wait for the output that they cause.
    #addEvents(item, entry) {
        this.pending.push(item);
        const made = entry.kind === "ended" || !text(entry.data);
        for (const data of entry.events ?? []) {
            const { event: name, ...members } = data;
            const event = { entry, data, group: entry.n, ...appearance(name, members, made) };
            this.events.push(event);
            this.pending.push(event);
            this.#called(name, members, this.events.length - 1);
        }
    }

    #called(name, { choice, call, ...members }, place) {
        const which = `${choice}/${call}`;
        if (name === "ToolStart") this.calls.push({ which, place, name: members.name, pieces: [] });
        const found = this.calls.findLast((one) => one.which === which);
        if (found && (name === "ToolArgs" || name === "ToolInput")) {
            found.pieces.push({ place, text: members.json ?? members.text ?? "" });
        }
    }

    #wrote(item, entry) {
        const of = this.pending.filter((one) => one.entry.n <= entry.of);
        for (const one of of) one.group = entry.n;
        this.pending = this.pending.filter((one) => one.entry.n > entry.of);
        item.group = entry.n;
    }
}

// Bytes as text, if they are text.
export function text(bytes) {
    return bytes?.text ?? (bytes?.base64 ? `base64 ${bytes.base64}` : "");
}

function face(entry) {
    const body = text(entry.body ?? entry.data), why = entry.problem?.message ?? "";
    switch (entry.kind) {
        case "prepared": return { label: "format", look: "quiet", text: `${entry.format}: ${entry.reason}` };
        case "answered": return { label: "response started", look: "quiet", text: entry.content_type ?? "" };
        case "refused": return { label: `${entry.status}`, look: "bad", text: body };
        case "read": return body ? { label: "", look: "", text: body } : { label: "last byte", look: "quiet", text: "" };
        case "ended": return { label: "end", look: entry.problem ? "bad" : "quiet", text: why };
        case "began": return { label: `${entry.status}`, look: entry.status < 400 ? "quiet" : "bad", text: type(entry) };
        case "wrote": return { label: "", look: body.startsWith(": gateway-warnings") ? "made" : "", text: body };
        case "over": return { label: "end", look: entry.problem ? "bad" : "quiet", text: `${entry.status} ${why}` };
        default: return { label: REQUESTS[entry.kind] ?? entry.kind, look: "quiet", text: `${entry.path} ${body}` };
    }
}

const type = (entry) => entry.headers?.["content-type"] ?? "";

// made: the gateway made the event at this place.
function appearance(name, { choice, ...members }, made) {
    const look = members.complete === false || made ? "made" : KINDS[name] ?? "";
    const words = members.text ?? members.json;
    return { label: name, look, text: typeof words === "string" ? words : JSON.stringify(members) };
}

// The text of a row: the new part of each frame; all of other content.
export function brief(frames) {
    if (!frames.startsWith("data: ")) return frames;
    return frames.split("\n").filter((line) => line).map((line) => {
        try {
            return news(JSON.parse(line.replace(/^data: /, "")));
        } catch {
            return line; // a part of one, or none of JSON
        }
    }).join(" · ");
}

function news({ choices, type, delta, usage, error }) {
    if (type) return `${type} ${delta === undefined ? "" : JSON.stringify(delta)}`;
    const end = (one) => one.finish_reason ? { finish_reason: one.finish_reason } : {};
    const deltas = (choices ?? []).map((one) => ({ ...one.delta, ...end(one) }));
    const rest = [...(usage ? [{ usage }] : []), ...(error ? [{ error }] : [])];
    return [...deltas, ...rest].map((one) => JSON.stringify(one)).join(" ");
}

// The request as a command; the reader adds the key.
export function curl(request, root) {
    const quoted = (word) => `'${word.replaceAll("'", "'\\''")}'`;
    const headers = Object.entries({ "content-type": "application/json", ...request.headers })
        .filter(([name]) => name !== "user-agent").map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`);
    const key = '-H "authorization: Bearer $GATEWAY_KEY"';
    return ["curl -N", quoted(root + request.path), ...headers, key, "--data-binary", quoted(text(request.body))].join(" ");
}
