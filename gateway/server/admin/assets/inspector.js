// The inspector: the list of requests, one of them as it goes on, and a form that makes one.  All text stays text.

import { bar } from "./bar.js";
import { ask, forget, keep, key, reason } from "./door.js";
import { badge, find, made } from "./elements.js";
import { Exchange, brief, curl, text } from "./exchange.js";
import { showList, state } from "./list.js";
import { Rows } from "./rows.js";
import { timeline } from "./timeline.js";

const SECONDS = { list: 2, one: 0.5 };
const LONGEST = 100_000; // characters that are shown of one thing
const IN_ROW = 300;
const COLUMNS = ["reads", "events", "sent"];
const VIEWS = ["closed", "list", "one"];

const buttons = bar(load, tell);
let timer = 0, marks = null, playing = "";
let seen = new Exchange(), head = null, grown = Infinity; // the event up to which calls are shown
let columns = {};

// What is shown: the list, or the one that the address names.

const address = () => new URLSearchParams(location.search);
const path = (more = "") => {
    const started = address().get("started");
    const query = new URLSearchParams(started ? { started } : {});
    return [`/admin/exchanges/${encodeURIComponent(address().get("id"))}${more}`, query];
};

async function get(where, query) {
    const answer = await ask(`${where}?${query}`);
    if (answer.ok) return answer.json();
    const told = reason(await answer.text()) ?? `The gateway returned HTTP ${answer.status}.`;
    if (answer.status === 401 || answer.status === 403) refuse(told);
    else tell(told);
    return null;
}

function refuse(told) {
    find("refusal").textContent = key() ? told : "";
    forget();
    view("closed");
    find("key").focus();
}

function view(name) {
    for (const one of VIEWS) find(one).hidden = one !== name;
    find("leave").hidden = !key();
    find("pause").hidden = name === "closed";
}

function tell(said) {
    find("status").textContent = said;
}

async function load() {
    clearTimeout(timer);
    const asked = location.search, one = address().get("id");
    let wanted = true;
    try {
        wanted = one ? await loadOne() : await loadList();
    } catch (error) {
        if (!(error instanceof TypeError)) throw error;
        tell("The gateway does not respond.");
    }
    if (asked === location.search && wanted && !buttons.paused && !document.hidden) {
        timer = setTimeout(load, SECONDS[one ? "one" : "list"] * 1000);
    }
}

function route() {
    seen = new Exchange();
    head = null;
    grown = Infinity;
    for (const name of COLUMNS) {
        columns[name].group = undefined;
        columns[name].clear();
        columns[name].items = seen[name];
    }
    for (const id of ["chosen", "report", "copied"]) find(id).textContent = "";
    find("calls").replaceChildren();
    load();
}

// The list

async function loadList() {
    const said = await get("/admin/exchanges", new URLSearchParams(new FormData(find("filters"))));
    if (!said) return !find("closed").hidden ? false : true;
    view("list");
    showList(find("exchanges"), said.exchanges);
    find("none").hidden = said.exchanges.length > 0;
    tell(`as of ${new Date().toLocaleTimeString()}`);
    return true;
}

// One

async function loadOne() {
    const mine = seen, [where, query] = path();
    const known = await get(where, query);
    if (!known) return find("closed").hidden && playing === address().get("id");
    let page;
    do {
        query.set("after", seen.last);
        page = await get(`${where}/entries`, query);
        if (!page || mine !== seen) return false;
        for (const entry of page.entries) seen.add(entry);
    } while (page.more);
    if (!head) find("format").value = known.format;
    head = known;
    marks ??= new RegExp(head.markers.map((one) => one.replace(/[^\w\s]/g, "\\$&")).join("|"), "g");
    view("one");
    showHead();
    for (const name of COLUMNS) columns[name].grown(head.live);
    showCalls();
    tell(head.live ? "live" : "over");
    return head.live;
}

function showHead() {
    find("which").textContent = head.id;
    const { endpoint, model, backend, format, reason: why, cut, message } = head;
    const said = [endpoint, model, backend && `at ${backend}`, format, why && `(${why})`, cut && "cut"];
    const note = message ? [made("span", message, "note")] : [];
    find("summary").replaceChildren(state(head), " ", said.filter(Boolean).join(" "), ...note);
    const look = (one) => /^(repaired|synthesised)/.test(one) ? "fair" : "";
    find("ledger").replaceChildren(...head.ledger.flatMap((one) => [badge(one, look(one)), " "]));
    find("ledger").append(head.ledger.length ? "" : "The gateway passed everything on unchanged.");
    const shown = timeline(find("timeline"), seen, head);
    find("timeline").setAttribute("aria-label", shown);
    find("pace").textContent = shown;
}

function fill(row, item) {
    row.append(made("span", item.entry.t.toFixed(3), "time"));
    if (item.label) row.append(made("span", item.label, `label ${item.look}`));
    const words = made("span", "", `words ${item.look}`);
    words.append(...marked((item.said ? item.text : brief(item.text)).slice(0, IN_ROW).replaceAll("\n", "⏎")));
    row.append(words);
}

// With what models write around thoughts and calls marked.
function marked(said) {
    const parts = [];
    let done = 0;
    for (const found of said.matchAll(marks)) {
        parts.push(said.slice(done, found.index), made("mark", found[0]));
        done = found.index + found[0].length;
    }
    return [...parts, said.slice(done)];
}

// It is chosen: what became of it and what it came of is marked in all columns, and looked at.
function choose(name, place) {
    const item = columns[name].items[place];
    for (const other of COLUMNS) {
        const rows = columns[other];
        rows.chosen = -1;
        const linked = other === name ? place : rows.items.findIndex((one) => one.group === item.group);
        if (linked >= 0) rows.show(linked, other === name);
        rows.mark(item.group);
    }
    find("chosen").replaceChildren(...marked(whole(item)));
    grown = name === "events" ? place : seen.events.findLastIndex((one) => one.entry.n <= item.entry.n);
    showCalls();
}

function whole(item) {
    const bytes = item.said ? null : item.entry.body ?? item.entry.data;
    const said = bytes ? pretty(text(bytes)) : JSON.stringify(item.said ?? item.entry, null, 1);
    const rest = item.entry.cut && bytes ? `\n… of ${item.entry.cut} bytes` : "";
    return said.slice(0, LONGEST) + (said.length > LONGEST ? "\n…" : rest);
}

function pretty(said) {
    try {
        return JSON.stringify(JSON.parse(said), null, 1);
    } catch {
        return said;
    }
}

function showCalls() {
    const begun = seen.calls.filter((call) => call.place <= grown);
    find("called").hidden = begun.length === 0;
    find("calls").replaceChildren(...begun.flatMap((call) => {
        const so = call.pieces.filter((piece) => piece.place <= grown);
        const last = so.at(-1)?.place === grown ? so.pop().text : "";
        const shown = made("pre", so.map((piece) => piece.text).join("").slice(-LONGEST));
        if (last) shown.append(made("mark", last));
        return [made("h3", call.name), shown];
    }));
}

// Left and right: to what it came of, and what became of it.
function aside(event, name) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Enter: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const other = COLUMNS[(COLUMNS.indexOf(name) + step + COLUMNS.length) % COLUMNS.length];
    const chosen = columns[name].items[columns[name].chosen];
    const place = chosen ? columns[other].items.findIndex((one) => one.group === chosen.group) : -1;
    tab(other);
    columns[other].box.focus();
    if (place >= 0) choose(other, place);
}

function tab(name) {
    find("columns").dataset.shown = name;
    for (const button of find("tabs").children) button.setAttribute("aria-pressed", button.dataset.column === name);
    columns[name].draw();
}

// What can be done with it

async function copy() {
    const said = !seen.asked || seen.asked.cut ? "" : curl(seen.asked, location.origin);
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

async function replay() {
    find("report").textContent = "…";
    const [where, query] = path("/replay");
    const format = find("format").value;
    const answer = await ask(`${where}?${query}`, { method: "POST", body: JSON.stringify({ format }) });
    const said = await answer.text();
    find("report").textContent = answer.ok ? `${format}: ${JSON.parse(said).report}` : reason(said);
}

// The playground

async function play() {
    const { endpoint, model, prompt, stream } = Object.fromEntries(new FormData(find("playing")));
    const asked = endpoint === "/v1/responses" ? { input: prompt } : { messages: [{ role: "user", content: prompt }] };
    playing = `play-${[...crypto.getRandomValues(new Uint8Array(8))].map((one) => one.toString(16).padStart(2, "0")).join("")}`;
    const headers = { "content-type": "application/json", "x-request-id": playing };
    const mine = playing, body = JSON.stringify({ model, ...asked, stream: stream === "on", store: false });
    const answering = ask(endpoint, { method: "POST", headers, body });
    history.pushState(null, "", `/inspector?${new URLSearchParams({ id: mine })}`);
    route();
    const answer = await answering;
    const said = await answer.text();
    if (playing === mine) playing = "";
    if (!answer.ok && address().get("id") === mine) tell(reason(said) ?? `The gateway returned HTTP ${answer.status}.`);
}

const SUBMITS = { door: () => { keep(find("key").value); route(); }, filters: load, playing: play, replaying: replay };

document.addEventListener("submit", (event) => {
    event.preventDefault();
    SUBMITS[event.target.id]();
});
find("filters").addEventListener("change", load);
find("copy").addEventListener("click", copy);
find("download").addEventListener("click", download);
find("tabs").addEventListener("click", (event) => event.target.dataset.column && tab(event.target.dataset.column));
addEventListener("popstate", route);
document.addEventListener("visibilitychange", () => document.hidden || load());

for (const name of COLUMNS) {
    columns[name] = new Rows(find(name), fill, (place) => choose(name, place));
    find(name).addEventListener("keydown", (event) => aside(event, name));
}
route();
