// The page of a request.  Modules for parts that a reader opens load then.

import { badge, coded, find, icon, made, state } from "./elements.js";
import { fold, pre, showConversation } from "./conversation.js";
import { follow, get, open, tell } from "./follow.js";
import { restoreScroll } from "./scroll.js";
import { showTiming, timeline } from "./timing.js";
import { verdict } from "./verdict.js";

const SECONDS = 1; // between two looks at a running request
const ICONS = { ok: "check", warn: "alert", bad: "error", info: "info" };

const load = follow(look, SECONDS);
let head = null, talk = null, steps = null; // steps: a promise of the recorded steps, once a reader wants them

const address = () => new URLSearchParams(location.search);
const path = (more = "") => {
    const started = address().get("started");
    return [`/admin/exchanges/${encodeURIComponent(address().get("id"))}${more}`, new URLSearchParams(started ? { started } : {})];
};

// Fetch and show new data; return true if more will come.
async function look() {
    const known = await get(...path());
    if (!known) return false;
    const first = !head;
    talk = await get(...path("/conversation")) ?? talk;
    head = known;
    if (head.failure) (await import("./failure.js")).showFailure(head.failure);
    open(true);
    showAll();
    if (first) await begin();
    else if (steps && !await (await steps).load(head)) return false;
    tell(head.live ? "running" : "complete");
    return head.live;
}

// The recorded steps, loaded at the first call.
async function wanted() {
    steps ??= import("./steps.js").then(({ Steps }) => new Steps(path), (error) => {
        steps = null; // the next call tries again
        throw error;
    });
    const loaded = await steps;
    await loaded.load(head);
    return loaded;
}

function showAll() {
    showHead();
    showVerdict();
    if (talk) showConversation(find("talk"), talk);
    showTiming(find("axis"), find("phases"), head);
    const summary = timeline(find("timeline"), head);
    find("timeline").setAttribute("aria-label", summary);
    find("pace").textContent = summary;
    showWarnings();
    showPairs(find("usage"), usage());
    showPairs(find("details"), details());
    showLikely();
}

function showHead() {
    const { id, prompt, endpoint, model, backend, started, key: name } = head;
    find("which").textContent = id;
    find("title").textContent = prompt || "Request without a prompt";
    document.title = `${prompt || id} · gateway`;
    const time = made("time", new Date(started).toLocaleString());
    time.dateTime = started;
    time.title = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const facts = [endpoint, model && (backend ? `${model} at ${backend}` : model), name && `key ${name}`];
    find("summary").replaceChildren(state(head), ...facts.filter(Boolean).flatMap((one) => [" ", made("span", one)]), " ", time);
    for (const side of ["newer", "older"]) {
        find(side).hidden = !head[side];
        if (head[side]) find(side).href = `/inspector?${new URLSearchParams(head[side])}`;
    }
}

function showVerdict() {
    const { look, title, support, link, format } = verdict(head, talk);
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
        const change = talk?.changes[one.entry];
        if (change) item.append(fold("Before and after", [pre(change.before || "–", "block"), pre(change.after || "–", "block")]));
        return item;
    });
    const rest = head.ledger.slice(head.warnings.length);
    if (rest.length) shown.push(fold(`${rest.length} further warnings`, [made("p", rest.join(", "), "mono")]));
    const box = find("ledger");
    if (box.dataset.of === head.ledger.join()) return;
    box.dataset.of = head.ledger.join();
    box.replaceChildren(...shown.length ? shown : [made("p", head.live ? "None so far." : "No warnings.", "pad quiet")]);
}

function jump(n) {
    const link = made("a", "Show in the stream");
    link.href = "#stream";
    link.addEventListener("click", async () => (await wanted()).open(n));
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
async function begin() {
    find("format").value = talk?.looks_like[0]?.format ?? head.format;
    const format = address().get("compare"), row = address().get("row");
    if (format && !head.live) replay(format);
    else if (location.hash) find(location.hash.slice(1))?.scrollIntoView();
    if (row) (await wanted()).choosePlace(row);
    restoreScroll();
    // The recorded steps load when a part that shows them is seen.
    const seen = new IntersectionObserver((all) => {
        if (!all.some((one) => one.isIntersecting)) return;
        seen.disconnect();
        wanted();
    });
    for (const id of ["stream", "panel-request", "panel-to-backend"]) seen.observe(find(id));
}

async function replay(format) {
    (await import("./replay.js")).replay(format, head, talk, path("/replay"));
}

find("replaying").addEventListener("submit", (event) => {
    event.preventDefault();
    replay(find("format").value);
});
find("copy").addEventListener("click", async () => head && (await wanted()).copy());
find("download").addEventListener("click", async () => head && (await import("./steps.js")).download(head, path("/recording")));
document.addEventListener("visibilitychange", () => document.hidden || !head?.live || load());
load();
