// One request: what became of it, its conversation, times, warnings, its replay, and its stream.

import { ask, reason } from "./api_key.js";
import { badge, find, icon, made, state } from "./elements.js";
import { curl, text } from "./exchange.js";
import { fold, pretty, showConversation, showResponse } from "./conversation.js";
import { follow, get, open, tell } from "./follow.js";
import { restoreScroll } from "./scroll.js";
import { Stream } from "./stream.js";
import { timeline } from "./timeline.js";
import { showTiming } from "./timing.js";
import { verdict } from "./verdict.js";

const SECONDS = 1; // between two looks at a running request
const ICONS = { ok: "check", warn: "alert", bad: "error", info: "info" };
const SHOWN = 16_000; // characters of the response in a failure

const load = follow(look, SECONDS), stream = new Stream();
let head = null, talk = null;

const address = () => new URLSearchParams(location.search);
const path = (more = "") => {
    const started = address().get("started");
    return [`/admin/exchanges/${encodeURIComponent(address().get("id"))}${more}`, new URLSearchParams(started ? { started } : {})];
};

// Fetch and show what is new; return true if more will come.  The rest of a long stream follows the first rows.
async function look() {
    const [where, query] = path();
    const known = await get(where, query);
    if (!known) return false;
    const first = !head;
    let more = await loadEntries(where, query);
    if (more === null) return false;
    head = known;
    talk = await get(...path("/conversation")) ?? talk;
    open(true);
    showAll();
    while (more) {
        tell(`${(stream.seen.last + 1).toLocaleString()} of ${head.entries.toLocaleString()} entries`);
        more = await loadEntries(where, query);
        if (more === null) return false;
        if (more) stream.shown(head.markers, false);
        else showAll();
    }
    if (first) begin();
    tell(head.live ? "running" : "complete");
    return head.live;
}

// Add the next entries to the stream; return true if there are more, null if the gateway refuses.
async function loadEntries(where, query) {
    query.set("after", stream.seen.last);
    const page = await get(`${where}/entries`, query);
    for (const entry of page?.entries ?? []) stream.seen.add(entry);
    return page && page.more;
}

function showAll() {
    showHead();
    showVerdict();
    showFailure();
    if (talk) showConversation(find("talk"), talk);
    showBodies();
    showTiming(find("axis"), find("phases"), head);
    const said = timeline(find("timeline"), stream.seen, head);
    find("timeline").setAttribute("aria-label", said);
    find("pace").textContent = said;
    showWarnings();
    showPairs(find("usage"), usage());
    showPairs(find("details"), details());
    showLikely();
    stream.shown(head.markers, head.live);
}

function showHead() {
    const { id, prompt, endpoint, model, backend, started, key: name } = head;
    find("which").textContent = id;
    find("title").textContent = prompt || "Request without a prompt";
    document.title = `${prompt || id} · gateway`;
    const time = made("time", new Date(started).toLocaleString());
    time.dateTime = started;
    time.title = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const said = [endpoint, model && (backend ? `${model} at ${backend}` : model), name && `key ${name}`];
    find("summary").replaceChildren(state(head), ...said.filter(Boolean).flatMap((one) => [" ", made("span", one)]), " ", time);
    for (const side of ["newer", "older"]) {
        find(side).hidden = !head[side];
        if (head[side]) find(side).href = `/inspector?${new URLSearchParams(head[side])}`;
    }
}

function showVerdict() {
    const began = stream.seen.sent.find((one) => one.entry.kind === "began")?.entry.status;
    const { look, title, support, link, format } = verdict(head, talk, began);
    find("verdict").className = `notice is-${look}`;
    find("verdict-icon").replaceChildren(icon(ICONS[look]));
    find("verdict-title").textContent = title;
    find("verdict-support").textContent = support ?? "";
    const acts = find("verdict-acts");
    if (acts.dataset.of === `${link} ${format}`) return; // it may have the focus
    acts.dataset.of = `${link} ${format}`;
    acts.replaceChildren();
    if (format) {
        const button = made("button", `Replay as ${format}`, "primary");
        button.type = "button";
        button.addEventListener("click", () => replay(format));
        acts.append(button);
    } else if (link) {
        const more = made("a", "Show why", "button");
        more.href = link;
        acts.append(more);
    }
}

function showFailure() {
    const { failure } = head;
    find("failure").hidden = !failure;
    if (!failure) return;
    find("advice").replaceChildren(...coded(failure.advice).childNodes);
    find("equal").textContent = failure.equal > 1 ? `${failure.equal} equal failures in the last hour` : "";
    find("upstream-status").replaceChildren(failure.upstream_status ? badge(failure.upstream_status, "bad") : "");
    const none = failure.backend ? "The backend sent no error response." : "No backend was called.";
    find("upstream-body").textContent = pretty(failure.body) + (failure.cut ? `\n… of ${failure.cut} bytes` : "") || none;
    find("client-status").replaceChildren(badge(failure.status, "bad"));
    const sent = stream.seen.sent.filter((one) => one.entry.kind === "wrote").map((one) => text(one.entry.data)).join("");
    find("client-body").textContent = pretty(sent.slice(-SHOWN)) || "The client received nothing.";
}

function showBodies() {
    const { asked, reads } = stream.seen, put = reads.findLast((one) => one.entry.kind === "put")?.entry;
    for (const [id, entry] of [["request-body", asked], ["backend-body", put]]) {
        if (find(id).dataset.n === `${entry?.n}`) continue;
        find(id).dataset.n = `${entry?.n}`;
        find(id).textContent = entry ? pretty(text(entry.body)) + (entry.cut ? `\n… of ${entry.cut} bytes` : "") : "None.";
    }
}

function showWarnings() {
    const shown = head.warnings.map((one) => {
        const item = made("article", "", "warning"), title = made("h3"), acts = made("p", "", "acts");
        title.append(badge(one.title, one.severity === "warn" ? "warn" : ""));
        const docs = made("a", "What it means");
        docs.href = one.link;
        acts.append(docs);
        const n = head.warning_entries[one.entry];
        if (n !== undefined) acts.prepend(jump(n), " ");
        item.append(title, made("p", one.entry, "mono quiet"), coded(one.meaning), coded(one.action, "quiet"), acts);
        return item;
    });
    const rest = head.ledger.slice(head.warnings.length);
    if (rest.length) shown.push(fold(`${rest.length} further warnings`, [made("p", rest.join(", "), "mono")]));
    const box = find("ledger");
    if (box.dataset.of === head.ledger.join()) return;
    box.dataset.of = head.ledger.join();
    box.replaceChildren(...shown.length ? shown : [made("p", head.live ? "None so far." : "No warnings.", "pad quiet")]);
}

// Names between backquotes are code.
function coded(text, look = "") {
    const shown = made("p", "", look);
    shown.append(...text.split("`").map((part, place) => place % 2 ? made("code", part) : part));
    return shown;
}

function jump(n) {
    const link = made("a", "Show in the stream");
    link.href = "#stream";
    link.addEventListener("click", () => stream.open(n));
    return link;
}

function usage() {
    const { input, cached, output, reasoning, text: rest, estimated } = head.tokens;
    const counted = input || output; // a backend that failed has counted none
    const count = (tokens) => counted ? tokens.toLocaleString() : "–";
    const pairs = [["Input", count(input)], ["Input, cached", count(cached)], ["Output", count(output)]];
    pairs.push(["Reasoning", count(reasoning)], ["Text and tool calls", count(rest)]);
    const took = head.duration - head.times.first_token;
    if (output && head.times.first_token !== null && took > 0) pairs.push(["Output speed", `${(output / took).toFixed(0)} tokens/s`]);
    if (estimated.length) pairs.push(["Estimated", estimated.join(", ")]);
    return pairs;
}

function details() {
    const { id, format, reason: why, backend, upstream_model: model, client, bytes, entries, cut, line } = head;
    const pairs = [["Format", why ? `${format}: ${why}` : format], ["Backend", backend], ["Model at the backend", model], ["Client", client]];
    if (line.received_bytes !== undefined) pairs.push(["Bytes", `${line.received_bytes.toLocaleString()} in, ${line.sent_bytes.toLocaleString()} out`]);
    return [["Request", id], ...pairs, ["Recording", `${entries.toLocaleString()} entries, ${bytes.toLocaleString()} bytes${cut ? ", incomplete" : ""}`]];
}

function showPairs(list, pairs) {
    list.replaceChildren(...pairs.flatMap(([name, value]) => [made("dt", name), made("dd", value || "–")]));
}

function showLikely() {
    const names = talk?.looks_like.map((one) => one.format) ?? [], group = find("likely");
    if (group.dataset.of === names.join()) return;
    group.dataset.of = names.join();
    group.hidden = !names.length;
    group.replaceChildren(...names.map((name) => made("option", name)));
    if (names.length) find("format").value = names[0];
}

// Once, when the request is known.
function begin() {
    find("format").value = talk?.looks_like[0]?.format ?? head.format;
    const wanted = address().get("compare");
    if (wanted && !head.live) replay(wanted);
    else if (location.hash) find(location.hash.slice(1))?.scrollIntoView();
    stream.choosePlace(address().get("row"));
    restoreScroll();
}

// Actions

async function copy() {
    const { asked } = stream.seen, said = !asked || asked.cut ? "" : curl(asked, location.origin);
    if (!said) {
        find("copied").textContent = "The command is too long. Download the recording instead.";
        return;
    }
    find("chosen").textContent = said;
    try {
        await navigator.clipboard.writeText(said);
        find("copied").textContent = "Copied. Set the API key in GATEWAY_KEY.";
    } catch {
        find("copied").textContent = "The command is shown below.";
    }
}

async function download() {
    const [where, query] = path("/recording");
    const answer = await ask(`${where}?${query}`);
    if (!answer.ok) {
        tell(reason(await answer.text()));
        return;
    }
    const link = made("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = `${head.id.replaceAll(/[^\w-]/g, "_")}.jsonl`;
    link.click();
    URL.revokeObjectURL(link.href);
}

async function replay(format) {
    find("format").value = format;
    find("report").textContent = `Replaying in the format ${format} …`;
    find("replay").scrollIntoView();
    const query = address();
    query.set("compare", format);
    history.replaceState(null, "", `?${query}`);
    const [where, more] = path("/replay");
    const answer = await ask(`${where}?${more}`, { method: "POST", body: JSON.stringify({ format }) });
    const said = await answer.text();
    const { same, differences, reason: why, response } = answer.ok ? JSON.parse(said) : { reason: reason(said) };
    find("compared").hidden = !response;
    if (!response || !talk) {
        find("report").textContent = `The replay is not possible: ${why}`;
        return;
    }
    find("report").textContent = same ? `The format ${format} gives the same response.` : `The format ${format} gives another response.`;
    find("before-format").textContent = head.format;
    find("after-format").textContent = format;
    find("before").replaceChildren(...showResponse(talk.response));
    find("after").replaceChildren(...showResponse(response));
    find("differences").textContent = differences.join("\n") || "None.";
    find("yaml").textContent = `models:\n  ${JSON.stringify(head.model)}:\n    format: ${format}`;
}

find("replaying").addEventListener("submit", (event) => {
    event.preventDefault();
    replay(find("format").value);
});
find("copy").addEventListener("click", copy);
find("download").addEventListener("click", download);
document.addEventListener("visibilitychange", () => document.hidden || !head?.live || load());
load();
