// The page of a request.  Modules for parts that a reader opens load then.

import { find, icon, made, state } from "./elements.js";
import { showConversation } from "./conversation.js";
import { follow, get, open, tell } from "./follow.js";
import { restoreScroll } from "./scroll.js";

const SECONDS = 1; // between two looks at a running request
const SVG = "http://www.w3.org/2000/svg";
const ICONS = { ok: "check", warn: "alert", bad: "error", info: "info" };

const load = follow(look, SECONDS);
// steps: a promise of the recorded steps, once a reader wants them; warned: the module of the warnings, once there are any
let head = null, talk = null, steps = null, warned = null;

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
    // Before the page opens, so that nothing moves then.
    if (head.failure) (await import("./failure.js")).showFailure(head.failure);
    if (head.ledger.length) warned ??= await import("./warnings.js");
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
    showTiming();
    showWarnings();
    showPairs(find("usage"), head.shown.usage);
    showPairs(find("details"), head.shown.details);
    showLikely();
}

function showHead() {
    const { id, prompt, started, shown: { facts } } = head;
    find("which").textContent = id;
    find("title").textContent = prompt || "Request without a prompt";
    document.title = `${prompt || id} · gateway`;
    const time = made("time", new Date(started).toLocaleString());
    time.dateTime = started;
    time.title = Intl.DateTimeFormat().resolvedOptions().timeZone;
    find("summary").replaceChildren(state(head), ...facts.flatMap((one) => [" ", made("span", one)]), " ", time);
    for (const side of ["newer", "older"]) {
        find(side).hidden = !head[side];
        if (head[side]) find(side).href = `/inspector?${new URLSearchParams(head[side])}`;
    }
}

function showVerdict() {
    const { look, title, support, link, format } = (!head.live && talk?.verdict) || head.shown.verdict;
    find("verdict").className = `notice is-${look}`;
    find("verdict-icon").replaceChildren(icon(ICONS[look]));
    find("verdict-title").textContent = title;
    find("verdict-support").textContent = support;
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
    const box = find("ledger"), { ledger, live } = head;
    if (box.dataset.of === `${live} ${ledger}`) return;
    box.dataset.of = `${live} ${ledger}`;
    const open = async (n) => (await wanted()).open(n);
    box.replaceChildren(...ledger.length
        ? warned.warnings(head, talk?.changes ?? {}, open)
        : [made("p", live ? "None so far." : "No warnings.", "pad quiet")]);
}

// The phases on a time axis, and the pace of the output, as the gateway has drawn them.
function showTiming() {
    const { axis: { ticks, rows }, pace, picture } = head.shown;
    find("axis").replaceChildren(...ticks.map(([place, label]) => shape("text", { x: `${place}%`, y: 16 }, label)));
    find("phases").replaceChildren(...rows.map(phase));
    find("timeline").replaceChildren(...Object.entries(picture).map(([look, d]) => shape("path", { class: look, d })));
    find("timeline").setAttribute("aria-label", pace);
    find("pace").textContent = pace;
}

function phase({ name, note, look, start, width, ended, took }) {
    const item = made("tr"), title = made("th", name), bar = made("td");
    title.scope = "row";
    title.append(made("span", note, "note"));
    bar.append(shape("svg", { "aria-hidden": true }));
    bar.firstChild.append(shape("rect", { class: `f-${look}`, x: `${start}%`, y: 9, width: `${width}%`, height: 10, rx: 2 }));
    item.append(title, bar, made("td", ended, "r t quiet"), made("td", took, "r t"));
    return item;
}

function shape(name, given, label = "") {
    const drawn = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(given)) drawn.setAttribute(key, value);
    drawn.textContent = label;
    return drawn;
}

function showPairs(list, pairs) {
    list.replaceChildren(...pairs.flatMap(([name, value]) => [made("dt", name), made("dd", value)]));
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
